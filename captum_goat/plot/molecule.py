"""Molecules with their bonds coloured by attribution, placed by RDKit and drawn by matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from captum_goat.plot.edge_scores import edge_scores, strongest, with_sign
from captum_goat.plot.molecule_graph import molecule_layout, molecule_of, rdkit_module
from captum_goat.plot.style import (
    ColourScale,
    PictureOptions,
    add_lines,
    check_methods,
    checked,
    draw_ground_truth,
    draw_pictures,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray
    from typing_extensions import Unpack

Hydrogens = Literal["all", "polar", "none"]

FIGURE_SIZE, PANEL_SIZE = (6.0, 4.0), (5.4, 3.8)  # inches
ALPHA = 0.85  # of colours: letters are easier to read on pale ones
BOND_NUMBER = "captum_goat_bond"  # the property of RDKit bonds that keeps their index
# In lengths of a bond: the margin, bands and discs of colour, lines of bonds, letters, and how long a bond is at most.
MARGIN, BAND, DISC, LINE, LETTER, MAX_BOND = 0.5, 0.3, 0.55, 0.045, 0.34, 60.0  # the last in points


class MoleculeOptions(PictureOptions, total=False):
    """The options of :func:`visualize_molecule_attr`."""

    edge_index: Tensor | None
    atoms: Sequence[str | int] | Tensor | None
    bond_types: Tensor | Sequence[float] | None
    node_attributions: Tensor | None
    hydrogens: Hydrogens


def visualize_molecule_attr(
    attributions: Tensor, molecule: Any, **options: Unpack[MoleculeOptions]
) -> tuple[Figure, Axes]:
    """Draw a molecule with its bonds coloured by attribution: blue supports the target, red opposes it.

    The two directions of a bond are one, with the sum of their attributions. Molecules need not make chemical sense.
    Returns the figure and the axes. The picture consists of lines and letters: save it as SVG or PDF for print.

    Args:
        attributions: One number per edge, ``[E]``.
        molecule: A PyG ``Data``, or an RDKit molecule or SMILES whose atoms have the order of the graph's nodes.
        **options: ``sign``, ``top_k``, ``ground_truth``, ``title`` and others, see :class:`PictureOptions`, and those
            below.

    - ``edge_index``: The edges, ``[2, E]``; by default those of the ``Data``, or the molecule's bonds in their order.
    - ``atoms``: The elements of a ``Data``'s nodes, as symbols or atomic numbers; ``one_hot_atoms(data.x)`` for
      Mutagenicity. By default they are taken from its ``z`` or, if it has the same bonds, from its ``smiles``.
    - ``bond_types``: The orders of a ``Data``'s edges, ``[E]`` (1, 2, 3, and 1.5 for aromatic bonds), or one-hot
      ``[E, 3]`` or ``[E, 4]``, such as the ``edge_attr`` of Mutagenicity and QM9; all single bonds if ``None``.
    - ``node_attributions``: One number per atom, ``[N]``, for discs below the atoms, on the same scale.
    - ``hydrogens``: Which hydrogens to draw: ``"all"``, ``"polar"`` (those not bound to carbon), or ``"none"``. The
      attributions of the others colour the atom that they are bound to. Those of the ground truth are drawn.

    Examples:
        >>> import torch
        >>> from captum_goat.plot import visualize_molecule_attr
        >>> fig, ax = visualize_molecule_attr(torch.tensor([2.0, -1.0]), "CCO", title="Ethanol", use_pyplot=False)
        >>> ax.get_title(), [text.get_text() for text in ax.texts]
        ('Ethanol', ['OH'])
    """
    settings: MoleculeOptions = checked({"hydrogens": "all"} | options, MoleculeOptions)
    picture = _molecule_picture(attributions, molecule, settings)
    fig, (ax,) = draw_pictures({"": picture}, settings, FIGURE_SIZE)
    return fig, ax


def visualize_molecule_attr_multiple(
    attributions: Mapping[str, Tensor], molecule: Any, *, shared_scale: bool = True, **options: Unpack[MoleculeOptions]
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
    check_methods(attributions)
    settings: MoleculeOptions = checked({"hydrogens": "all", "show_colorbar": True} | options, MoleculeOptions)
    pictures = {title: _molecule_picture(values, molecule, settings) for title, values in attributions.items()}
    return draw_pictures(pictures, settings, PANEL_SIZE, shared_scale=shared_scale)


def _molecule_picture(attributions: Tensor, molecule: Any, settings: MoleculeOptions) -> MoleculePicture:
    hydrogens, edge_index = settings["hydrogens"], settings["edge_index"]
    if hydrogens not in get_args(Hydrogens):
        names = ", ".join(map(repr, get_args(Hydrogens)))
        raise ValueError(f"Expected hydrogens to be one of {names} (got {hydrogens!r}).")
    if isinstance(molecule, Data):
        edge_index = molecule.edge_index if edge_index is None else edge_index
        if edge_index is None:
            raise ValueError("Expected a Data with edge_index (got one without).")
        rdkit_molecule = molecule_of(molecule, edge_index, settings["atoms"], settings["bond_types"])
    else:
        chem = rdkit_module()
        rdkit_molecule = chem.MolFromSmiles(molecule) if isinstance(molecule, str) else molecule
        if not isinstance(rdkit_molecule, chem.Mol):
            raise ValueError(f"Expected a Data, an RDKit molecule, or a valid SMILES (got {molecule!r}).")
        edge_index = bond_index(rdkit_molecule) if edge_index is None else edge_index
    marks = settings["ground_truth"], settings["feature_mask"]
    picture = scored_molecule(rdkit_molecule, attributions, edge_index, settings["node_attributions"], *marks)
    picture = with_hydrogens(picture, hydrogens)
    bonds, atoms = (with_sign(scores, settings["sign"]) for scores in (picture.bonds, picture.atoms))
    return picture._replace(bonds=bonds, atoms=atoms, coloured=strongest(bonds, settings["top_k"]))


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
        """Draw bands of colour below bonds, discs below coloured atoms, and dots around the ground truth."""
        layout = molecule_layout(self.molecule)
        low, high = (layout.points.min(axis=0), layout.points.max(axis=0)) if len(layout.points) else np.zeros((2, 2))
        size, box = high - low + 2 * MARGIN, ax.get_window_extent()
        length = min(72 / fig.dpi * min(box.width / size[0], box.height / size[1]), MAX_BOND)  # of a bond in points
        ax.set_aspect("equal", adjustable="datalim")
        ax.update_datalim([low - MARGIN, high + MARGIN])
        ax.margins(0)
        lines = layout.points[bond_index(self.molecule).t().numpy()]
        order = np.argsort(np.abs(self.bonds), kind="stable")
        order, discs = order[self.coloured[order]], np.flatnonzero(self.atoms)
        bands = np.full(len(lines), BAND * length)
        draw_ground_truth(ax, lines[self.ground_truth], bands[self.ground_truth], length * DISC / 20)
        add_lines(ax, lines[order], bands[order], colors=_opaque(scale, self.bonds[order]), zorder=2, gid="bands")
        x, y = layout.points[discs].T
        colours = _opaque(scale, self.atoms[discs])
        ax.scatter(x, y, (DISC * length) ** 2, colours, linewidths=0, zorder=2.5, gid="discs")
        add_lines(ax, layout.strokes, LINE * length, colors="black", zorder=3, gid="bonds")
        for (x, y), text in zip(layout.points, layout.texts, strict=True):
            if text:
                ax.text(
                    x, y, text, fontsize=LETTER * length, color="black", ha="center", va="center_baseline", zorder=4
                )


def _opaque(scale: ColourScale, scores: NDArray[Any]) -> NDArray[Any]:
    """Return the colours on white, so that bands that overlap are not darker."""
    rgba = scale.colours(scores).reshape(-1, 4)
    opaque: NDArray[Any] = rgba[:, :3] * rgba[:, 3:] + 1 - rgba[:, 3:]
    return opaque


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
