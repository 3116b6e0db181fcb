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
from captum_goat.plot.style import INK, ColourScale, PictureOptions, PictureSettings, add_dotted_handle, draw_pictures

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
BOND_NUMBER = "captum_goat_bond"  # the property of RDKit bonds that keeps their index
BAND = 10  # how much wider than a bond's line its band of colour is
RIM, DOT_RADIUS, DOT_MARGIN = 0.23, 0.018, 0.08  # dots: from the bond, of a dot, from the atoms; in lengths of a bond
DOTS = 9  # on either side of a bond


def visualize_molecule_attr(
    attributions: Tensor,
    molecule: Any,
    *,
    edge_index: Tensor | None = None,
    atoms: Sequence[str | int] | Tensor | None = None,
    bond_types: Tensor | Sequence[float] | None = None,
    node_attributions: Tensor | None = None,
    hydrogens: Hydrogens = "all",
    **options: Unpack[PictureOptions],
) -> tuple[Figure, Axes]:
    """Draw a molecule with RDKit, its bonds coloured by attribution: blue supports the target, red opposes it.

    The two directions of a bond are one, with the sum of their attributions. Molecules need not make chemical sense.
    Returns the figure and the axes; :func:`molecule_svg` returns the same picture as SVG.

    Args:
        attributions: One number per edge, ``[E]``.
        molecule: A PyG ``Data``, or an RDKit molecule or SMILES whose atoms have the order of the graph's nodes.
        edge_index: The edges, ``[2, E]``; by default those of the ``Data``, or the molecule's bonds in their order.
        atoms: The elements of a ``Data``'s nodes, as symbols or atomic numbers; ``one_hot_atoms(data.x)`` for
            Mutagenicity. By default they are taken from its ``z`` or, if it has the same bonds, from its ``smiles``.
        bond_types: The orders of a ``Data``'s edges, ``[E]`` (1, 2, 3, and 1.5 for aromatic bonds), or one-hot
            ``[E, 3]`` or ``[E, 4]``, such as the ``edge_attr`` of Mutagenicity and QM9; all single bonds if ``None``.
        node_attributions: One number per atom, ``[N]``, for discs below the atoms, on the same scale.
        hydrogens: Which hydrogens to draw: ``"all"``, ``"polar"`` (those not bound to carbon), or ``"none"``. The
            attributions of the others colour the atom that they are bound to. Those of the ground truth are drawn.
        **options: ``sign``, ``top_k``, ``ground_truth``, ``title`` and others: see :class:`PictureOptions`.

    Examples:
        >>> import torch
        >>> from captum_goat.plot import visualize_molecule_attr
        >>> fig, ax = visualize_molecule_attr(torch.tensor([2.0, -1.0]), "CCO", title="Ethanol", use_pyplot=False)
        >>> ax.get_title(), len(ax.images)
        ('Ethanol', 1)
    """
    settings = PictureSettings(**options)
    picture = _molecule_picture(
        attributions, molecule, settings, edge_index, atoms, bond_types, node_attributions, hydrogens
    )
    fig, (ax,) = draw_pictures({"": picture}, settings, FIGURE_SIZE)
    return fig, ax


def visualize_molecule_attr_multiple(
    attributions: Mapping[str, Tensor], molecule: Any, *, shared_scale: bool = True, **options: Any
) -> tuple[Figure, list[Axes]]:
    """Draw one molecule as several methods explain it, in panels with, by default, one scale.

    ``attributions`` and ``shared_scale`` are those of :func:`visualize_graph_attr_multiple`, the other arguments those
    of :func:`visualize_molecule_attr`.

    Examples:
        >>> import torch
        >>> from captum_goat.plot import visualize_molecule_attr_multiple
        >>> methods = {"GOAt": torch.tensor([2.0, -1.0]), "gradients": torch.ones(2)}
        >>> fig, axes = visualize_molecule_attr_multiple(methods, "CCO", use_pyplot=False)
        >>> [ax.get_title() for ax in axes]
        ['GOAt', 'gradients']
    """
    settings, own_options = PictureSettings.of_panels(attributions, options)
    pictures = {
        title: _molecule_picture(values, molecule, settings, **own_options) for title, values in attributions.items()
    }
    return draw_pictures(pictures, settings, PANEL_SIZE, shared_scale=shared_scale)


def molecule_svg(attributions: Tensor, molecule: Any, *, size: tuple[int, int] = (600, 400), **options: Any) -> str:
    """Return the picture of :func:`visualize_molecule_attr` as SVG, for web pages and for print.

    ``size`` is in pixels. There is no colour bar and no title, and options of figures are ignored.

    Examples:
        >>> import torch
        >>> from captum_goat.plot import molecule_svg
        >>> svg = molecule_svg(torch.tensor([2.0, -2.0]), "CCO")
        >>> svg.count("fill:#2A86BB"), svg.count("fill:#D12641")
        (1, 1)
    """
    settings, own_options = PictureSettings.of_panels({"": attributions}, options)
    picture = _molecule_picture(attributions, molecule, settings, **own_options)
    return picture.file(size, settings.scale(picture.alpha, picture.scores), "svg").decode()


def _molecule_picture(
    attributions: Tensor,
    molecule: Any,
    settings: PictureSettings,
    edge_index: Tensor | None = None,
    atoms: Sequence[str | int] | Tensor | None = None,
    bond_types: Tensor | Sequence[float] | None = None,
    node_attributions: Tensor | None = None,
    hydrogens: Hydrogens = "all",
) -> MoleculePicture:
    if hydrogens not in get_args(Hydrogens):
        names = ", ".join(map(repr, get_args(Hydrogens)))
        raise ValueError(f"Expected hydrogens to be one of {names} (got {hydrogens!r}).")
    if isinstance(molecule, Data):
        edge_index = molecule.edge_index if edge_index is None else edge_index
        if edge_index is None:
            raise ValueError("Expected a Data with edge_index (got one without).")
        rdkit_molecule = molecule_of(molecule, edge_index, atoms, bond_types)
    else:
        chem = rdkit_module()
        rdkit_molecule = chem.MolFromSmiles(molecule) if isinstance(molecule, str) else molecule
        if not isinstance(rdkit_molecule, chem.Mol):
            raise ValueError(f"Expected a Data, an RDKit molecule, or a valid SMILES (got {molecule!r}).")
        edge_index = bond_index(rdkit_molecule) if edge_index is None else edge_index
    picture = scored_molecule(
        rdkit_molecule, attributions, edge_index, node_attributions, settings.ground_truth, settings.feature_mask
    )
    picture = with_hydrogens(picture, hydrogens)
    bonds = with_sign(picture.bonds, settings.sign)
    return picture._replace(
        bonds=bonds, atoms=with_sign(picture.atoms, settings.sign), coloured=strongest(bonds, settings.top_k)
    )


class MoleculePicture(NamedTuple):
    """A molecule as it is drawn, without its colours."""

    molecule: Any
    bonds: NDArray[Any]  # [bonds], attributions
    atoms: NDArray[Any]  # [atoms], attributions; 0 for atoms without a colour
    ground_truth: NDArray[Any]  # bool [bonds]
    coloured: NDArray[Any]  # bool [bonds]

    @property
    def alpha(self) -> float:
        """How opaque the colours are."""
        return ALPHA

    @property
    def scores(self) -> NDArray[Any]:
        """All numbers that are coloured: those of bonds and of atoms."""
        return np.concatenate([self.bonds, self.atoms])

    def draw(self, fig: Figure, ax: Axes, scale: ColourScale) -> None:
        """Fill the axes with a picture of their size."""
        from matplotlib.image import imread

        box = ax.get_window_extent()
        width, height = (max(50, round(side / fig.dpi * PIXELS_PER_INCH)) for side in (box.width, box.height))
        ax.imshow(imread(BytesIO(self.file((width, height), scale, "png"))), interpolation="antialiased")
        if self.ground_truth.any():
            add_dotted_handle(ax)

    def file(self, size: tuple[int, int], scale: ColourScale, kind: Literal["png", "svg"]) -> bytes:
        """Return a file: bands of colour below bonds, discs below coloured atoms, dots beside the ground truth."""
        drawing = rdkit_module("Chem.Draw.rdMolDraw2D")
        molecule = with_coordinates(self.molecule)
        drawer = (drawing.MolDraw2DCairo if kind == "png" else drawing.MolDraw2DSVG)(*size)
        options = drawer.drawOptions()
        options.prepareMolsBeforeDrawing = False  # it fails on molecules that make no chemical sense
        options.useBWAtomPalette()  # red and blue are for attributions
        options.atomHighlightsAreCircles = True
        options.padding = 0.06
        options.scaleBondWidth = options.scaleHighlightBondWidth = True  # all sizes look alike
        options.highlightBondWidthMultiplier = BAND
        options.maxFontSize = -1  # none
        bonds, atoms = _colours(scale, self.bonds, self.coloured), _colours(scale, self.atoms, self.atoms != 0)
        drawer.DrawMolecule(
            molecule,
            highlightAtoms=list(atoms),
            highlightAtomColors=atoms,
            highlightAtomRadii=dict.fromkeys(atoms, ATOM_RADIUS),
            highlightBonds=list(bonds),
            highlightBondColors=bonds,
        )
        _draw_dots(drawer, molecule, self.ground_truth)
        drawer.FinishDrawing()
        text = drawer.GetDrawingText()
        return text.encode() if isinstance(text, str) else text


def _colours(scale: ColourScale, scores: NDArray[Any], coloured: NDArray[Any]) -> dict[int, tuple[float, ...]]:
    """Return the colours on white of the coloured bonds or atoms, by index; RDKit draws opaque bands only."""
    rgba = scale.colours(scores).reshape(-1, 4)
    opaque = rgba[:, :3] * rgba[:, 3:] + 1 - rgba[:, 3:]
    return {int(index): tuple(map(float, opaque[index])) for index in np.flatnonzero(coloured)}


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
) -> MoleculePicture:
    """Return the molecule with the sum of both directions for every bond; a self-loop counts for its atom."""
    edges, scores, marked = edge_scores(attributions, edge_index, ground_truth, feature_mask=feature_mask)
    count = molecule.GetNumAtoms()
    if node_attributions is not None and node_attributions.shape != (count,):
        got = list(node_attributions.shape)
        raise ValueError(f"Expected node_attributions of shape [{count}], one per atom (got {got}).")
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
    return MoleculePicture(molecule, bonds, atoms, truth, np.ones_like(truth))


def with_hydrogens(scored: MoleculePicture, which: Hydrogens) -> MoleculePicture:
    """Keep some hydrogens, those of the ground truth among them; attributions of the others go to their heavy atoms."""
    hidden = [] if which == "all" else [atom for atom in scored.molecule.GetAtoms() if _is_hidden(atom, which, scored)]
    molecule, atoms = rdkit_module().RWMol(scored.molecule), scored.atoms.copy()
    for bond in molecule.GetBonds():
        bond.SetIntProp(BOND_NUMBER, bond.GetIdx())  # RDKit does not guarantee the order of the remaining bonds
    for hydrogen in hidden:
        (bond,) = hydrogen.GetBonds()
        heavy = bond.GetOtherAtomIdx(hydrogen.GetIdx())
        atoms[heavy] += scored.bonds[bond.GetIdx()] + scored.atoms[hydrogen.GetIdx()]
        parent = molecule.GetAtomWithIdx(heavy)
        parent.SetNumExplicitHs(parent.GetNumExplicitHs() + 1)  # N becomes NH
    removed = sorted((hydrogen.GetIdx() for hydrogen in hidden), reverse=True)
    for index in removed:
        molecule.RemoveAtom(index)
    bonds = [bond.GetIntProp(BOND_NUMBER) for bond in molecule.GetBonds()]
    return MoleculePicture(
        molecule, scored.bonds[bonds], np.delete(atoms, removed), scored.ground_truth[bonds], scored.coloured[bonds]
    )


def _is_hidden(atom: Any, which: Hydrogens, scored: MoleculePicture) -> bool:
    if atom.GetAtomicNum() != 1 or atom.GetDegree() != 1:
        return False
    (bond,), (other,) = atom.GetBonds(), atom.GetNeighbors()
    if scored.ground_truth[bond.GetIdx()] or other.GetAtomicNum() == 1:
        return False
    return which == "none" or other.GetAtomicNum() == 6


def _draw_dots(drawer: Any, molecule: Any, truth: NDArray[Any]) -> None:
    drawer.SetColour(tuple(int(INK[at : at + 2], 16) / 255 for at in (1, 3, 5)))
    drawer.SetFillPolys(True)
    drawer.SetLineWidth(1)
    point = rdkit_module("Geometry").Point2D
    for bond in (molecule.GetBondWithIdx(int(index)) for index in np.flatnonzero(truth)):
        ends = (drawer.GetDrawCoords(atom) for atom in (bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()))
        start, end = (np.array([end.x, end.y]) for end in ends)
        along = end - start
        across, radius = RIM * np.array([-along[1], along[0]]), DOT_RADIUS * float(np.linalg.norm(along))
        for share in np.linspace(DOT_MARGIN, 1 - DOT_MARGIN, DOTS):
            for x, y in (start + share * along + across, start + share * along - across):
                drawer.DrawEllipse(point(x - radius, y - radius), point(x + radius, y + radius), True)
