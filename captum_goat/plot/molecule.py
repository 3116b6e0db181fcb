"""Molecules as RDKit draws them, with their bonds coloured by attribution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from captum_goat.plot.edge_scores import edge_scores, strongest, with_sign
from captum_goat.plot.molecule_graph import molecule_of, rdkit_module, with_coordinates
from captum_goat.plot.style import (
    INK,
    ColourScale,
    PictureOptions,
    PictureSettings,
    add_dotted_handle,
    check_methods,
    colour_scale,
    draw_panels,
    draw_picture,
    panel_settings,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray
    from typing_extensions import Unpack

Hydrogens = Literal["all", "polar", "none"]

FIGURE_SIZE, PANEL_SIZE = (6.0, 4.0), (5.4, 3.8)  # inches
PIXELS_PER_INCH = 200
ALPHA = 0.85  # of colours: letters are easier to read on pale ones
ATOM_RADIUS = 0.33  # of the disc of a coloured atom, in units of RDKit's coordinates (a bond has 1.5)
BAND = 10  # how much wider than a bond's line its band of colour is
RIM, DOT_STEP, DOT_RADIUS = 0.23, 0.1, 0.018  # dotted outlines: from the bond, between dots, of a dot; in bonds


def visualize_molecule_attr(
    attributions: Tensor,
    molecule: Any,
    *,
    edge_index: Tensor | None = None,
    atoms: Sequence[str | int] | Tensor | None = None,
    bond_types: Tensor | Sequence[float] | None = None,
    node_attributions: Tensor | None = None,
    feature_mask: Tensor | None = None,
    ground_truth: Tensor | None = None,
    hydrogens: Hydrogens = "all",
    **options: Unpack[PictureOptions],
) -> tuple[Figure, Axes]:
    """Draw a molecule with RDKit, its bonds coloured by attribution: blue supports the target, red opposes it.

    The two directions of a bond are one, with the sum of their attributions. Molecules need not make chemical sense:
    they are drawn as the graph has them.

    Args:
        attributions: One number per edge, ``[E]``.
        molecule: A PyG ``Data``, or an RDKit molecule or SMILES whose atoms have the order of the graph's nodes.
        edge_index: The edges, ``[2, E]``; by default those of the ``Data``, or the molecule's bonds in their order.
        atoms: The elements of a ``Data``'s nodes, as symbols or atomic numbers; ``one_hot_atoms(data.x)`` for
            Mutagenicity. By default they are taken from its ``z`` or, if it has the same bonds, from its ``smiles``.
        bond_types: The orders of a ``Data``'s edges, ``[E]`` (1, 2, 3, and 1.5 for aromatic bonds), or one-hot
            ``[E, 3]`` or ``[E, 4]``, such as the ``edge_attr`` of Mutagenicity and QM9; all single bonds if ``None``.
        node_attributions: One number per atom, ``[N]``, for discs below the atoms, on the same scale.
        feature_mask: As in :func:`visualize_graph_attr`.
        ground_truth: The edges that a good explanation finds, bool ``[E]``: they have a dotted outline.
        hydrogens: Which hydrogens to draw: ``"all"``, ``"polar"`` (those not bound to carbon), or ``"none"``. The
            attributions of the others colour the atom that they are bound to. Those of the ground truth are drawn.
        **options: ``sign``, ``top_k``, ``vmax``, ``outlier_perc``, ``cmap``, ``show_colorbar``, ``title``,
            ``fig_size``, ``use_pyplot`` and ``plt_fig_axis``; see :class:`PictureOptions`.

    Returns:
        The figure and the axes. :func:`molecule_svg` returns the same picture as SVG.

    Raises:
        ImportError: If RDKit or matplotlib is missing.
        ValueError: If the arguments do not fit together.

    Examples::

        >>> import torch
        >>> from captum_goat.plot import visualize_molecule_attr
        >>> fig, ax = visualize_molecule_attr(torch.tensor([2.0, -1.0]), "CCO", title="Ethanol", use_pyplot=False)
        >>> ax.get_title(), len(ax.images)
        ('Ethanol', 1)
    """
    settings = PictureSettings(**options)
    picture = _molecule_picture(
        attributions,
        molecule,
        settings,
        edge_index=edge_index,
        atoms=atoms,
        bond_types=bond_types,
        node_attributions=node_attributions,
        feature_mask=feature_mask,
        ground_truth=ground_truth,
        hydrogens=hydrogens,
    )
    return draw_picture(picture, settings, FIGURE_SIZE)


def visualize_molecule_attr_multiple(
    attributions: Mapping[str, Tensor], molecule: Any, *, shared_scale: bool = True, **options: Any
) -> tuple[Figure, list[Axes]]:
    """Draw one molecule as several methods explain it, in panels with, by default, one scale.

    Args:
        attributions: One number per edge, ``[E]``, of every method, by title.
        molecule: As in :func:`visualize_molecule_attr`.
        shared_scale: As in :func:`visualize_graph_attr_multiple`.
        **options: The options of :func:`visualize_molecule_attr`.

    Returns:
        The figure and the axes, one per method.

    Examples::

        >>> import torch
        >>> from captum_goat.plot import visualize_molecule_attr_multiple
        >>> methods = {"GOAt": torch.tensor([2.0, -1.0]), "gradients": torch.ones(2)}
        >>> fig, axes = visualize_molecule_attr_multiple(methods, "CCO", use_pyplot=False)
        >>> [ax.get_title() for ax in axes]
        ['GOAt', 'gradients']
    """
    check_methods(attributions)
    settings, own_options = panel_settings(options)
    pictures = {
        title: _molecule_picture(values, molecule, settings, **own_options) for title, values in attributions.items()
    }
    return draw_panels(pictures, settings, shared_scale, PANEL_SIZE)


def molecule_svg(attributions: Tensor, molecule: Any, *, size: tuple[int, int] = (600, 400), **options: Any) -> str:
    """Return the picture of :func:`visualize_molecule_attr` as SVG, for web pages and for print.

    Args:
        attributions: One number per edge, ``[E]``.
        molecule: A PyG ``Data``, an RDKit molecule, or a SMILES.
        size: The width and height in pixels.
        **options: The options of :func:`visualize_molecule_attr`, but for those of figures.

    Returns:
        The SVG, without colour bar and title.

    Raises:
        ImportError: If RDKit or matplotlib is missing.
        ValueError: If the arguments do not fit together.

    Examples::

        >>> import torch
        >>> from captum_goat.plot import molecule_svg
        >>> svg = molecule_svg(torch.tensor([2.0, -2.0]), "CCO")
        >>> svg.count("fill:#2A86BB"), svg.count("fill:#D12641")
        (1, 1)
    """
    settings, own_options = panel_settings(options)
    picture = _molecule_picture(attributions, molecule, settings, **own_options)
    scale = colour_scale(settings.sign, settings.full_scale(picture.scores), settings.cmap, picture.alpha)
    return picture.file(size, scale, "svg").decode()


class MoleculePicture(NamedTuple):
    """A molecule as it is drawn, without its colours."""

    scored: ScoredMolecule
    top_k: int | None

    @property
    def alpha(self) -> float:
        """How opaque the colours are."""
        return ALPHA

    @property
    def scores(self) -> NDArray[Any]:
        """All numbers that are coloured: those of bonds and of atoms."""
        return np.concatenate([self.scored.bonds, self.scored.atoms])

    def draw(self, fig: Figure, ax: Axes, scale: ColourScale) -> None:
        """Fill the axes with a picture of their size."""
        from matplotlib.image import imread

        box = ax.get_window_extent()
        width, height = (max(50, round(side / fig.dpi * PIXELS_PER_INCH)) for side in (box.width, box.height))
        ax.imshow(imread(BytesIO(self.file((width, height), scale, "png"))), interpolation="antialiased")
        ax.set_axis_off()
        if self.scored.ground_truth.any():
            add_dotted_handle(ax)

    def file(self, size: tuple[int, int], scale: ColourScale, kind: Literal["png", "svg"]) -> bytes:
        """Return the picture as the content of a file."""
        coloured = strongest(self.scored.bonds, self.top_k), self.scored.atoms != 0
        return draw_molecule(self.scored, scale, size, kind, coloured)


def _molecule_picture(
    attributions: Tensor,
    molecule: Any,
    settings: PictureSettings,
    *,
    edge_index: Tensor | None = None,
    atoms: Sequence[str | int] | Tensor | None = None,
    bond_types: Tensor | Sequence[float] | None = None,
    node_attributions: Tensor | None = None,
    feature_mask: Tensor | None = None,
    ground_truth: Tensor | None = None,
    hydrogens: Hydrogens = "all",
) -> MoleculePicture:
    """Return the picture of a molecule; the arguments are those of :func:`visualize_molecule_attr`."""
    if hydrogens not in get_args(Hydrogens):
        names = ", ".join(map(repr, get_args(Hydrogens)))
        raise ValueError(f"Expected hydrogens to be one of {names} (got {hydrogens!r}).")
    rdkit_molecule, edges = _molecule_and_edges(molecule, edge_index, atoms, bond_types)
    scored = scored_molecule(rdkit_molecule, attributions, edges, node_attributions, ground_truth, feature_mask)
    scored = with_hydrogens(scored, hydrogens)
    scored = scored._replace(bonds=with_sign(scored.bonds, settings.sign), atoms=with_sign(scored.atoms, settings.sign))
    strongest(scored.bonds, settings.top_k)  # refuse a wrong number before anything is drawn
    return MoleculePicture(scored, settings.top_k)


def _molecule_and_edges(
    molecule: Any,
    edge_index: Tensor | None,
    atoms: Sequence[str | int] | Tensor | None,
    bond_types: Tensor | Sequence[float] | None,
) -> tuple[Any, Tensor]:
    if isinstance(molecule, Data):
        edges = molecule.edge_index if edge_index is None else edge_index
        if edges is None:
            raise ValueError("Expected a Data with edge_index (got one without).")
        return molecule_of(molecule, edges, atoms, bond_types), edges
    chem = rdkit_module()
    rdkit_molecule = chem.MolFromSmiles(molecule) if isinstance(molecule, str) else molecule
    if not isinstance(rdkit_molecule, chem.Mol):
        raise ValueError(f"Expected a Data, an RDKit molecule, or a valid SMILES (got {molecule!r}).")
    return rdkit_molecule, bond_index(rdkit_molecule) if edge_index is None else edge_index


class ScoredMolecule(NamedTuple):
    """A molecule as it is drawn."""

    molecule: Any
    bonds: NDArray[Any]  # [bonds]
    atoms: NDArray[Any]  # [atoms]; 0 for atoms without a colour
    ground_truth: NDArray[Any]  # bool [bonds]


def bond_index(molecule: Any) -> Tensor:
    """Return the bonds of a molecule as edges, ``[2, bonds]``."""
    pairs = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in molecule.GetBonds()]
    return torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).t()


def scored_molecule(
    molecule: Any,
    attributions: Tensor,
    edge_index: Tensor,
    node_attributions: Tensor | None = None,
    ground_truth: Tensor | None = None,
    feature_mask: Tensor | None = None,
) -> ScoredMolecule:
    """Return the molecule with the sum of both directions for every bond; a self-loop counts for its atom.

    Raises:
        ValueError: If an edge is not a bond, or the arguments do not fit together.
    """
    edges, scores, marked = edge_scores(attributions, edge_index, ground_truth, feature_mask=feature_mask)
    count = molecule.GetNumAtoms()
    if node_attributions is not None and node_attributions.shape != (count,):
        raise ValueError(
            f"Expected node_attributions of shape [{count}], one per atom (got {list(node_attributions.shape)})."
        )
    atoms = np.zeros(count) if node_attributions is None else node_attributions.detach().cpu().double().numpy().copy()
    bonds, truth = np.zeros(molecule.GetNumBonds()), np.zeros(molecule.GetNumBonds(), dtype=bool)
    for (source, target), score, mark in zip(edges.tolist(), scores, marked, strict=True):
        if target >= count:
            raise ValueError(f"Expected edges between {count} atoms (got node {target}).")
        if source == target:
            atoms[source] += score
            continue
        bond = molecule.GetBondBetweenAtoms(source, target)
        if bond is None:
            raise ValueError(f"Expected every edge to be a bond of the molecule (got {source} - {target}).")
        bonds[bond.GetIdx()], truth[bond.GetIdx()] = score, mark
    return ScoredMolecule(molecule, bonds, atoms, truth)


def with_hydrogens(scored: ScoredMolecule, which: Hydrogens) -> ScoredMolecule:
    """Remove hydrogens from the picture; their attributions are added to the atoms that they are bound to.

    Args:
        scored: The molecule.
        which: The hydrogens to keep: ``"all"``, ``"polar"`` (those not bound to carbon), or ``"none"``. One of the
            ground truth stays, and so does one that is not bound to a single other atom.
    """
    hidden = (
        [] if which == "all" else [atom for atom in scored.molecule.GetAtoms() if _can_be_removed(atom, which, scored)]
    )
    if not hidden:
        return scored
    molecule, atom_scores = rdkit_module().RWMol(scored.molecule), scored.atoms.copy()
    kept_bonds = np.ones(len(scored.bonds), dtype=bool)
    for hydrogen in hidden:
        (bond,) = hydrogen.GetBonds()
        heavy = bond.GetOtherAtomIdx(hydrogen.GetIdx())
        atom_scores[heavy] += scored.bonds[bond.GetIdx()] + scored.atoms[hydrogen.GetIdx()]
        kept_bonds[bond.GetIdx()] = False
        parent = molecule.GetAtomWithIdx(heavy)
        parent.SetNumExplicitHs(parent.GetNumExplicitHs() + 1)  # N becomes NH
    removed = sorted((hydrogen.GetIdx() for hydrogen in hidden), reverse=True)
    # RDKit does not guarantee the order of the remaining bonds: they are identified by their ends.
    ends = {index: _ends(scored.molecule.GetBondWithIdx(int(index)), removed) for index in np.flatnonzero(kept_bonds)}
    for index in removed:
        molecule.RemoveAtom(index)
    order = {molecule.GetBondBetweenAtoms(*pair).GetIdx(): index for index, pair in ends.items()}
    bonds = [order[index] for index in range(molecule.GetNumBonds())]
    return ScoredMolecule(molecule, scored.bonds[bonds], np.delete(atom_scores, removed), scored.ground_truth[bonds])


def _can_be_removed(atom: Any, which: Hydrogens, scored: ScoredMolecule) -> bool:
    if atom.GetAtomicNum() != 1 or atom.GetDegree() != 1:
        return False
    (bond,), (other,) = atom.GetBonds(), atom.GetNeighbors()
    if scored.ground_truth[bond.GetIdx()] or other.GetAtomicNum() == 1:
        return False
    return which == "none" or other.GetAtomicNum() == 6


def _ends(bond: Any, removed: list[int]) -> tuple[int, int]:
    """Return the indices of the ends of a bond after the removal of atoms."""
    first, second = (
        end - sum(index < end for index in removed) for end in (bond.GetBeginAtomIdx(), bond.GetEndAtomIdx())
    )
    return first, second


def draw_molecule(
    scored: ScoredMolecule,
    scale: ColourScale,
    size: tuple[int, int],
    kind: Literal["png", "svg"],
    coloured: tuple[NDArray[Any], NDArray[Any]],
) -> bytes:
    """Draw a molecule: a band of colour below every bond, a disc below coloured atoms, dots around the ground truth.

    Returns:
        The file's content.
    """
    drawing = rdkit_module("Chem.Draw.rdMolDraw2D")
    molecule = with_coordinates(scored.molecule)
    drawer = (drawing.MolDraw2DCairo if kind == "png" else drawing.MolDraw2DSVG)(*size)
    options = drawer.drawOptions()
    options.prepareMolsBeforeDrawing = False  # it fails on molecules that make no chemical sense
    options.useBWAtomPalette()  # red and blue are for attributions
    options.atomHighlightsAreCircles = True
    options.padding = 0.06
    options.scaleBondWidth = options.scaleHighlightBondWidth = True  # all sizes look alike
    options.highlightBondWidthMultiplier = BAND
    options.maxFontSize = -1  # none
    colour = _colours(scale, scored)
    bonds, atoms = ({int(index) for index in np.flatnonzero(chosen)} for chosen in coloured)
    drawer.DrawMolecule(
        molecule,
        highlightAtoms=sorted(atoms),
        highlightAtomColors={index: colour[1][index] for index in atoms},
        highlightAtomRadii=dict.fromkeys(atoms, ATOM_RADIUS),
        highlightBonds=sorted(bonds),
        highlightBondColors={index: colour[0][index] for index in bonds},
    )
    _draw_dots(drawer, molecule, scored.ground_truth)
    drawer.FinishDrawing()
    text = drawer.GetDrawingText()
    return text.encode() if isinstance(text, str) else text


def _colours(scale: ColourScale, scored: ScoredMolecule) -> list[list[tuple[float, ...]]]:
    """Return the colours of bonds and of atoms on white, as RDKit draws opaque bands only."""
    shades = []
    for scores in (scored.bonds, scored.atoms):
        rgba = scale.colours(scores).reshape(-1, 4)
        opaque = rgba[:, :3] * rgba[:, 3:] + 1 - rgba[:, 3:]
        shades.append([tuple(map(float, colour)) for colour in opaque])
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
    """Return points around lines ``[L, 2, 2]``, ``[points, 2]``: all at that distance from the nearest line."""
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
