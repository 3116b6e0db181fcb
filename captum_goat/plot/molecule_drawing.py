"""RDKit's drawing of a molecule, its bonds in colours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from captum_goat.plot.molecule_graph import rdkit_module, with_coordinates
from captum_goat.plot.molecule_scores import ScoredMolecule
from captum_goat.plot.palette import INK, ColourScale

if TYPE_CHECKING:
    from numpy.typing import NDArray

ATOM_RADIUS = 0.33  # of the disc of a coloured atom, in units of RDKit's coordinates (a bond has 1.5)
BAND = 10  # how much wider than a bond's line its band of colour is
RIM, DOT_STEP, DOT_RADIUS = 0.23, 0.1, 0.018  # dotted outlines: from the bond, between dots, of a dot; in bonds


def draw_molecule(
    scored: ScoredMolecule,
    scale: ColourScale,
    size: tuple[int, int],
    kind: Literal["png", "svg"],
    coloured: tuple[NDArray[Any], NDArray[Any]],
) -> bytes:
    """Draw a molecule: a band of colour below every bond, a disc below coloured atoms, dots around the ground truth.

    Args:
        scored: The molecule.
        scale: The colours.
        size: The width and height in pixels.
        kind: The format.
        coloured: Which bonds and which atoms are coloured.

    Returns:
        The file's content.
    """
    drawing = rdkit_module("Chem.Draw.rdMolDraw2D")
    molecule = with_coordinates(scored.molecule)
    drawer = (drawing.MolDraw2DCairo if kind == "png" else drawing.MolDraw2DSVG)(*size)
    options = drawer.drawOptions()
    options.prepareMolsBeforeDrawing = False  # it would fail on molecules that make no chemical sense
    options.useBWAtomPalette()  # red and blue are for attributions
    options.atomHighlightsAreCircles = True
    options.padding = 0.06
    options.scaleBondWidth = options.scaleHighlightBondWidth = True  # all sizes look alike
    options.highlightBondWidthMultiplier = BAND
    options.maxFontSize = -1  # none
    colour = _colours(scale, scored)
    bonds, atoms = ({int(index) for index in np.flatnonzero(each)} for each in coloured)
    drawer.DrawMolecule(
        molecule,
        highlightAtoms=sorted(atoms),
        highlightAtomColors={index: colour[1][index] for index in atoms},
        highlightAtomRadii=dict.fromkeys(atoms, ATOM_RADIUS),
        highlightBonds=sorted(bonds),
        highlightBondColors={index: colour[0][index] for index in bonds},
    )
    _draw_dots(drawer, molecule, scored.truth)
    drawer.FinishDrawing()
    text = drawer.GetDrawingText()
    return text.encode() if isinstance(text, str) else text


def _colours(scale: ColourScale, scored: ScoredMolecule) -> list[list[tuple[float, ...]]]:
    """Return the colours of bonds and of atoms on white, as RDKit draws opaque bands only."""
    shades = []
    for scores in (scored.bonds, scored.atoms):
        rgba = scale.colours(scores).reshape(-1, 4)
        opaque = rgba[:, :3] * rgba[:, 3:] + 1 - rgba[:, 3:]
        shades.append([tuple(map(float, each)) for each in opaque])
    return shades


def _draw_dots(drawer: Any, molecule: Any, truth: NDArray[Any]) -> None:
    """Draw a dotted line around the bonds of the ground truth, as around a pipe."""
    marked = [molecule.GetBondWithIdx(int(index)) for index in np.flatnonzero(truth)]
    if not marked:
        return
    ends = [drawer.GetDrawCoords(atom) for bond in marked for atom in (bond.GetBeginAtomIdx(), bond.GetEndAtomIdx())]
    lines = np.array([(end.x, end.y) for end in ends]).reshape(-1, 2, 2)
    length = float(np.median(np.linalg.norm(lines[:, 1] - lines[:, 0], axis=1)))
    drawer.SetColour(tuple(int(INK[at : at + 2], 16) / 255 for at in (1, 3, 5)))
    drawer.SetFillPolys(True)
    drawer.SetLineWidth(1)
    radius, point = DOT_RADIUS * length, rdkit_module("Geometry").Point2D
    for x, y in outline(lines, RIM * length, DOT_STEP * length).tolist():
        drawer.DrawEllipse(point(x - radius, y - radius), point(x + radius, y + radius), True)


def outline(lines: NDArray[Any], distance: float, step: float) -> NDArray[Any]:
    """Return points around lines ``[L, 2, 2]``, ``[points, 2]``: all at that distance from the nearest line.

    Examples::

        >>> import numpy as np
        >>> from captum_goat.plot.molecule_drawing import outline
        >>> points = outline(np.array([[[0.0, 0.0], [4.0, 0.0]]]), distance=1.0, step=1.0)
        >>> float(points[:, 0].min()), float(points[:, 0].max()), float(np.abs(points[:, 1]).max())
        (-1.0, 5.0, 1.0)
    """
    around = [_around(start, end, distance, step) for start, end in lines]
    kept: list[NDArray[Any]] = []
    for points in around:
        near = np.min([_distances(points, start, end) for start, end in lines], axis=0) < distance * (1 - 1e-6)
        for point in points[~near]:
            if all(np.linalg.norm(point - other) > 0.6 * step for other in kept):
                kept.append(point)
    return np.array(kept).reshape(-1, 2)


def _around(start: NDArray[Any], end: NDArray[Any], distance: float, step: float) -> NDArray[Any]:
    """Return points of the outline of one line: along one side, half a circle, back on the other, half a circle."""
    along = (end - start) / (np.linalg.norm(end - start) or 1.0)
    left = np.array([-along[1], along[0]])
    straight = np.linspace(start, end, max(2, round(float(np.linalg.norm(end - start)) / step) + 1))
    angles = np.linspace(-np.pi / 2, np.pi / 2, max(3, 2 * round(np.pi * distance / step / 2) + 1))[:, None]
    cap = distance * (np.cos(angles) * along + np.sin(angles) * left)
    return np.concatenate([straight + distance * left, straight - distance * left, end + cap, start - cap])


def _distances(points: NDArray[Any], start: NDArray[Any], end: NDArray[Any]) -> NDArray[Any]:
    along = end - start
    share = ((points - start) @ along / max(float(along @ along), 1e-12)).clip(0, 1)
    distances: NDArray[Any] = np.linalg.norm(points - start - share[:, None] * along, axis=1)
    return distances
