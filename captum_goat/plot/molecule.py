"""Molecules with their bonds coloured by attribution: graphs as molecules of RDKit, drawn by matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from captum_goat.plot.edge_scores import edge_scores, plain_edges, strongest, with_sign
from captum_goat.plot.graph import side_by_side
from captum_goat.plot.style import Picture, PictureOptions, add_lines, checked, draw_pictures, draw_truth

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import Figure
    from numpy.typing import NDArray
    from typing_extensions import Unpack

Hydrogens = Literal["all", "polar", "none"]

# The columns of x in Mutagenicity of the TU collection.
MUTAGENICITY_ELEMENTS = ("C", "O", "Cl", "H", "N", "F", "Br", "S", "P", "I", "Na", "K", "Li", "Ca")

NUM_ELEMENTS = 118
ORDERS = {1.0: "SINGLE", 2.0: "DOUBLE", 3.0: "TRIPLE", 1.5: "AROMATIC"}  # also the columns of one-hot bond types
SUBSCRIPTS = str.maketrans("23456789", "₂₃₄₅₆₇₈₉")
FIGURE_SIZE = (6.0, 4.0)  # inches
OPACITY = 0.85  # of colours: letters are easier to read on pale ones
RDKIT_BOND = 1.5  # its length in RDKit's coordinates
MAX_BOND = 60.0  # its largest length in a picture, in points
# In lengths of a bond: the margin, bands and discs of colour, lines of bonds, the gap of double bonds, letters, and how
# far from an atom with letters lines end.
MARGIN, BAND, DISC, LINE, GAP, LETTER, TRIM = 0.5, 0.3, 0.55, 0.045, 0.14, 0.34, 0.21


class MoleculeOptions(PictureOptions, total=False):
    """The options of :func:`visualize_molecule_attr`."""

    edge_index: Tensor | None
    atoms: Sequence[str | int] | Tensor | None
    bond_types: Tensor | Sequence[float] | None
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
    - ``hydrogens``: Which hydrogens to draw: ``"all"``, ``"polar"`` (those not bound to carbon), or ``"none"``. The
      attributions of the others colour the atom that they are bound to. Those of the ground truth are drawn.

    Examples:
        >>> from captum_goat.plot import visualize_molecule_attr
        >>> fig, ax = visualize_molecule_attr(torch.tensor([2.0, -1.0]), "CCO", title="Ethanol", use_pyplot=False)
        >>> ax.get_title(), [text.get_text() for text in ax.texts]
        ('Ethanol', ['OH'])
    """
    settings: MoleculeOptions = checked({"hydrogens": "all"} | options, MoleculeOptions)
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
    scored = with_hydrogens(scored_molecule(rdkit_molecule, attributions, edge_index, *marks), hydrogens)
    bonds, atoms = (with_sign(scores, settings["sign"]) for scores in (scored.bonds, scored.atoms))
    coloured = strongest(bonds, settings["top_k"])
    draw = partial(_draw_molecule, scored=scored._replace(bonds=bonds, atoms=atoms), coloured=coloured)
    picture = Picture(np.concatenate([bonds, atoms]), draw)
    fig, (ax,) = draw_pictures({"": picture}, settings, FIGURE_SIZE, opacity=OPACITY)
    return fig, ax


class ScoredMolecule(NamedTuple):
    """A molecule with the attributions of its bonds and atoms."""

    molecule: Any
    bonds: NDArray[Any]  # [bonds]
    atoms: NDArray[Any]  # [atoms], 0 for atoms without a colour
    marked: NDArray[Any]  # bool [bonds], the ground truth


def _draw_molecule(ax: Axes, scale: ScalarMappable, scored: ScoredMolecule, coloured: NDArray[Any]) -> None:
    """Draw bands of colour below bonds, discs below coloured atoms, and dots around the ground truth."""
    layout = molecule_layout(scored.molecule)
    low, high = (layout.points.min(axis=0), layout.points.max(axis=0)) if len(layout.points) else np.zeros((2, 2))
    size, box = high - low + 2 * MARGIN, ax.get_window_extent()
    points_per_unit = 72 / ax.figure.dpi * min(box.width / size[0], box.height / size[1])
    length = min(points_per_unit, MAX_BOND)  # of a bond
    ax.set_aspect("equal", adjustable="datalim")
    ax.update_datalim([low - MARGIN, high + MARGIN])
    ax.margins(0)
    lines = layout.points[bond_index(scored.molecule).t().numpy()]
    order = np.argsort(np.abs(scored.bonds), kind="stable")
    order, discs = order[coloured[order]], np.flatnonzero(scored.atoms)
    bands = np.full(len(lines), BAND * length)
    draw_truth(ax, lines[scored.marked], bands[scored.marked], length * DISC / 20)
    add_lines(ax, lines[order], bands[order], colors=scale.to_rgba(scored.bonds[order]), zorder=2, gid="bands")
    colours = scale.to_rgba(scored.atoms[discs])
    x, y = layout.points[discs].T
    ax.scatter(x, y, (DISC * length) ** 2, colours, linewidths=0, zorder=2.5, gid="discs")
    add_lines(ax, layout.strokes, LINE * length, colors="black", zorder=3, gid="bonds")
    style: dict[str, Any] = {"ha": "center", "va": "center_baseline", "fontsize": LETTER * length, "zorder": 4}
    for (x, y), text in zip(layout.points, layout.texts, strict=True):
        if text:
            ax.text(x, y, text, color="black", **style)


def bond_index(molecule: Any) -> Tensor:
    """Return the bonds of a molecule as edges, ``[2, bonds]``."""
    pairs = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in molecule.GetBonds()]
    return torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).t()


def scored_molecule(
    molecule: Any,
    attributions: Tensor,
    edge_index: Tensor,
    ground_truth: Tensor | None = None,
    feature_mask: Tensor | None = None,
) -> ScoredMolecule:
    """Return the molecule with the sum of both directions for every bond; a self-loop counts for its atom."""
    edges, scores, marked = edge_scores(attributions, edge_index, ground_truth, feature_mask=feature_mask)
    atoms, bonds = np.zeros(molecule.GetNumAtoms()), np.zeros(molecule.GetNumBonds())
    truth = np.zeros(len(bonds), dtype=bool)
    for (source, target), score, mark in zip(edges.tolist(), scores, marked, strict=True):
        if source == target < len(atoms):
            atoms[source] += score
            continue
        bond = molecule.GetBondBetweenAtoms(source, target) if target < len(atoms) else None
        if bond is None:
            raise ValueError(f"Expected every edge to be a bond of the molecule (got {source} - {target}).")
        bonds[bond.GetIdx()], truth[bond.GetIdx()] = score, mark
    return ScoredMolecule(molecule, bonds, atoms, truth)


def with_hydrogens(scored: ScoredMolecule, which: Hydrogens) -> ScoredMolecule:
    """Keep some hydrogens, those of the ground truth among them; attributions of the others go to their heavy atoms."""
    whole, atoms = scored.molecule, scored.atoms.copy()
    molecule, hidden = rdkit_module().RWMol(whole), []
    for atom in () if which == "all" else whole.GetAtoms():
        if atom.GetAtomicNum() != 1 or atom.GetDegree() != 1:
            continue
        (bond,), (heavy,) = atom.GetBonds(), atom.GetNeighbors()
        is_polar, is_hydrogen = heavy.GetAtomicNum() != 6, heavy.GetAtomicNum() == 1
        if scored.marked[bond.GetIdx()] or is_hydrogen or (is_polar and which == "polar"):
            continue
        atoms[heavy.GetIdx()] += scored.bonds[bond.GetIdx()] + scored.atoms[atom.GetIdx()]
        parent = molecule.GetAtomWithIdx(heavy.GetIdx())
        parent.SetNumExplicitHs(parent.GetNumExplicitHs() + 1)  # N becomes NH
        hidden.append(atom.GetIdx())
    for index in reversed(hidden):
        molecule.RemoveAtom(index)
    kept = np.delete(np.arange(len(atoms)), hidden)
    # RDKit does not guarantee the order of the remaining bonds.
    bonds = [whole.GetBondBetweenAtoms(*ends).GetIdx() for ends in kept[bond_index(molecule).t().numpy()].tolist()]
    return ScoredMolecule(molecule, scored.bonds[bonds], atoms[kept], scored.marked[bonds])


def one_hot_atoms(x: Tensor, elements: Sequence[str] = MUTAGENICITY_ELEMENTS) -> list[str]:
    """Return the elements of atoms with one-hot features ``[N, len(elements)]``, by default those of Mutagenicity.

    Examples:
        >>> from captum_goat.plot import one_hot_atoms
        >>> one_hot_atoms(torch.eye(14)[[0, 4, 1, 1]])
        ['C', 'N', 'O', 'O']
    """
    if x.dim() != 2 or x.size(1) != len(elements):
        raise ValueError(f"Expected x of shape [N, {len(elements)}], a column per element (got {list(x.shape)}).")
    if not (((x == 0) | (x == 1)).all() and (x.sum(dim=1) == 1).all()):
        raise ValueError("Expected x to be one-hot, a single 1 per atom (got other features).")
    return [elements[column] for column in x.argmax(dim=1).tolist()]


def rdkit_module(name: str = "Chem") -> ModuleType:
    """Return a module of RDKit; raise an ImportError that says what to install if RDKit is missing."""
    try:
        return import_module(f"rdkit.{name}")
    except ImportError as error:
        raise ImportError("RDKit is needed to draw molecules: pip install captum-goat[molecules]") from error


def build_molecule(
    atoms: Sequence[str | int] | Tensor, edges: NDArray[Any], orders: Sequence[float] | NDArray[Any] | None = None
) -> Any:
    """Return an RDKit molecule with exactly these atoms and bonds, whether or not they make chemical sense.

    ``"*"`` and 0 are unknown elements. Self-loops and repeated edges are left out; unknown orders become single bonds.
    """
    if isinstance(atoms, Tensor) and (atoms.dim() != 1 or atoms.is_floating_point()):
        got, advice = f"{atoms.dtype} {list(atoms.shape)}", "For one-hot features, use one_hot_atoms."
        raise ValueError(f"Expected atoms to be atomic numbers, integers [N] (got {got}). {advice}")
    chem = rdkit_module()
    table, molecule = chem.GetPeriodicTable(), chem.RWMol()
    numbers: dict[str | int, int] = {table.GetElementSymbol(number): number for number in range(NUM_ELEMENTS + 1)}
    numbers |= {number: number for number in numbers.values()}
    for element in atoms.tolist() if isinstance(atoms, Tensor) else atoms:
        number = numbers.get(element.strip().capitalize() if isinstance(element, str) else element)
        if number is None:
            raise ValueError(f"Expected the symbol or the atomic number of an element (got {element!r}).")
        atom = chem.Atom(number)
        atom.SetNoImplicit(True)  # no hydrogen that is not in the graph
        molecule.AddAtom(atom)
    for (source, target), order in zip(edges.tolist(), np.ones(len(edges)) if orders is None else orders, strict=True):
        if source != target and molecule.GetBondBetweenAtoms(source, target) is None:
            molecule.AddBond(source, target, getattr(chem.BondType, ORDERS.get(float(order), "SINGLE")))
    for bond in molecule.GetBonds():
        if bond.GetBondType() == chem.BondType.AROMATIC:
            for part in (bond, bond.GetBeginAtom(), bond.GetEndAtom()):
                part.SetIsAromatic(True)
    return molecule


class MoleculeLayout(NamedTuple):
    """Where a molecule is drawn: a bond has length 1, y points up."""

    points: NDArray[Any]  # of atoms, [N, 2]
    texts: list[str]  # of atoms: none for carbon that has neighbours
    strokes: list[NDArray[Any]]  # the lines of bonds, which end before letters, [2, 2] each


def molecule_layout(molecule: Any) -> MoleculeLayout:
    """Place the atoms of an RDKit molecule, and draw aromatic bonds as single and double ones."""
    molecule = with_coordinates(molecule)
    points = np.array(molecule.GetConformer().GetPositions()).reshape(-1, 3)[:, :2] / RDKIT_BOND
    parts = sorted(map(list, rdkit_module().GetMolFrags(molecule)), key=len, reverse=True)
    points = side_by_side(points, parts)  # RDKit puts them in one long row
    texts = [_atom_text(atom) for atom in molecule.GetAtoms()]
    rings = [list(ring) for ring in molecule.GetRingInfo().AtomRings()]
    strokes: list[NDArray[Any]] = []
    for bond in molecule.GetBonds():
        ends = [bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()]
        start, end = points[ends]
        along = (end - start) / (np.linalg.norm(end - start) or 1.0)
        gap = GAP * np.array([-along[1], along[0]])
        trims = [TRIM if texts[node] else 0.0 for node in ends]
        middle = np.array([start + trims[0] * along, end - trims[1] * along])
        centres = [points[ring].mean(axis=0) for ring in rings if {*ends} <= {*ring}]
        order = bond.GetBondTypeAsDouble()
        if order == 2 and centres:  # the second line is inside of the ring
            side = np.sign((centres[0] - (start + end) / 2) @ gap) or 1.0
            strokes += [middle, middle + TRIM / 2 * np.array([along, -along]) + side * gap]
        elif order == 2:
            strokes += [middle + gap / 2, middle - gap / 2]
        else:
            strokes += [middle, middle + gap, middle - gap] if order == 3 else [middle]
    return MoleculeLayout(points, texts, strokes)


def _atom_text(atom: Any) -> str:
    hydrogens, charge = atom.GetTotalNumHs(), atom.GetFormalCharge()
    if atom.GetAtomicNum() == 6 and atom.GetDegree() and not charge:
        return ""
    count = "" if hydrogens < 2 else str(hydrogens).translate(SUBSCRIPTS)
    sign = "" if not charge else ("" if abs(charge) == 1 else str(abs(charge))) + "⁺⁻"[charge < 0]
    return f"{atom.GetSymbol()}{'H' if hydrogens else ''}{count}{sign}"


def with_coordinates(molecule: Any) -> Any:
    """Return a drawable copy of an RDKit molecule: two-dimensional, with double bonds for aromatic ones."""
    chem = rdkit_module()
    copy = chem.RWMol(molecule)
    copy.UpdatePropertyCache(strict=False)
    chem.FastFindRings(copy)
    chem.KekulizeIfPossible(copy, clearAromaticFlags=True)
    if not copy.GetNumConformers() or copy.GetConformer().Is3D():
        rdkit_module("Chem.rdDepictor").Compute2DCoords(copy)
    return copy


def bond_orders(bond_types: Tensor | Sequence[float] | None, num_edges: int) -> NDArray[Any] | None:
    """Return the orders of bonds, ``[E]``, from orders or from one-hot rows: single, double, triple, aromatic."""
    if bond_types is None:
        return None
    orders = torch.as_tensor(bond_types).detach().cpu()
    if orders.dim() == 2 and orders.size(1) in (3, 4) and ((orders == 0) | (orders == 1)).all():
        orders = torch.tensor(list(ORDERS))[orders.float().argmax(dim=1)]  # a row of zeros is a single bond
    if orders.shape != (num_edges,):
        shapes = f"[{num_edges}] (1, 2, 3, or 1.5 if aromatic), or one-hot [{num_edges}, 3 or 4]"
        raise ValueError(f"Expected bond_types of shape {shapes} (got {list(orders.shape)}).")
    result: NDArray[Any] = orders.double().numpy()
    return result


def molecule_of(
    graph: Data,
    edge_index: Tensor,
    atoms: Sequence[str | int] | Tensor | None = None,
    bond_types: Tensor | Sequence[float] | None = None,
) -> Any:
    """Return the RDKit molecule of a graph: from ``atoms``, from its atomic numbers ``z``, or from its ``smiles``."""
    edges = plain_edges(edge_index).t().numpy()
    orders = bond_orders(bond_types, len(edges))
    atoms = graph.z if atoms is None and "z" in graph else atoms
    if atoms is not None:
        if len(atoms) != graph.num_nodes:
            raise ValueError(f"Expected atoms to name {graph.num_nodes} elements, one per node (got {len(atoms)}).")
        return build_molecule(atoms, edges, orders)
    if isinstance(graph.get("smiles"), str):  # it has to have the graph's nodes and bonds, with hydrogens or without
        pairs = {(min(edge), max(edge)) for edge in edges.tolist() if edge[0] != edge[1]}
        chem = rdkit_module()
        molecule = chem.MolFromSmiles(graph.smiles)
        for candidate in () if molecule is None else (molecule, chem.AddHs(molecule)):
            bonds = {tuple(sorted((bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()))) for bond in candidate.GetBonds()}
            if candidate.GetNumAtoms() == graph.num_nodes and bonds == pairs:
                return candidate
    raise ValueError("Expected atoms, the element of every node (got None, without z and without a matching smiles).")
