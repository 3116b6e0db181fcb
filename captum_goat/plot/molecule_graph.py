"""Graphs as molecules of RDKit (an optional dependency)."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from captum_goat.plot.edge_scores import plain_edges
from captum_goat.plot.layouts import side_by_side

if TYPE_CHECKING:
    from numpy.typing import NDArray

# The columns of x in Mutagenicity of the TU collection.
MUTAGENICITY_ELEMENTS = ("C", "O", "Cl", "H", "N", "F", "Br", "S", "P", "I", "Na", "K", "Li", "Ca")

NUM_ELEMENTS = 118
RDKIT_BOND = 1.5  # its length in RDKit's coordinates
BOND_GAP, TRIM = 0.14, 0.21  # between the lines of a double bond, and before letters, in lengths of a bond
SUBSCRIPTS = str.maketrans("23456789", "₂₃₄₅₆₇₈₉")
ORDERS = {1.0: "SINGLE", 2.0: "DOUBLE", 3.0: "TRIPLE", 1.5: "AROMATIC"}  # also the columns of one-hot bond types


def one_hot_atoms(x: Tensor, elements: Sequence[str] = MUTAGENICITY_ELEMENTS) -> list[str]:
    """Return the elements of atoms with one-hot features ``[N, len(elements)]``, by default those of Mutagenicity.

    Examples:
        >>> import torch
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
        raise ValueError(
            f"Expected atoms to be atomic numbers, integers [N] (got {atoms.dtype} {list(atoms.shape)}). "
            "For one-hot features, use one_hot_atoms."
        )
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
        gap = BOND_GAP * np.array([-along[1], along[0]])
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
        raise ValueError(
            f"Expected bond_types of shape [{num_edges}] (1, 2, 3, or 1.5 if aromatic), or one-hot "
            f"[{num_edges}, 3 or 4] (got {list(orders.shape)})."
        )
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
