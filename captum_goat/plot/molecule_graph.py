"""Graphs as molecules of RDKit, which is an optional dependency."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from captum_goat.plot.edge_scores import plain_edges
from captum_goat.plot.elements import UNKNOWN, element_symbols

if TYPE_CHECKING:
    from numpy.typing import NDArray

ORDERS = {1.0: "SINGLE", 2.0: "DOUBLE", 3.0: "TRIPLE", 1.5: "AROMATIC"}
ONE_HOT_ORDERS = (1.0, 2.0, 3.0, 1.5)  # the columns of one-hot bond types


def rdkit_module(name: str = "Chem") -> ModuleType:
    """Return a module of RDKit.

    Raises:
        ImportError: If RDKit is missing.
    """
    try:
        return import_module(f"rdkit.{name}")
    except ImportError as error:
        raise ImportError("RDKit is needed to draw molecules: pip install captum-goat[molecules]") from error


def build_molecule(
    symbols: Sequence[str], edges: NDArray[Any], orders: Sequence[float] | NDArray[Any] | None = None
) -> Any:
    """Return an RDKit molecule with just these atoms and bonds.

    Nothing is added and nothing is checked: what a data set says of a molecule need not make chemical sense.

    Args:
        symbols: The elements, one per atom.
        edges: The bonds, ``[M, 2]``; self-loops and repetitions are left out.
        orders: Their orders, ``[M]``: 1, 2, 3, or 1.5 for aromatic bonds. Others are drawn as single bonds.

    Examples::

        >>> import numpy as np
        >>> from captum_goat.plot.molecule_graph import build_molecule
        >>> molecule = build_molecule(["C", "O"], np.array([[0, 1], [1, 0]]), [2, 2])
        >>> [bond.GetBondType().name for bond in molecule.GetBonds()]
        ['DOUBLE']
    """
    chem = rdkit_module()
    molecule = chem.RWMol()
    for symbol in symbols:
        atom = chem.Atom(0 if symbol == UNKNOWN else symbol)
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


def with_coordinates(molecule: Any) -> Any:
    """Return a copy of an RDKit molecule that can be drawn: two-dimensional, with double bonds for aromatic ones."""
    chem = rdkit_module()
    copy = chem.RWMol(molecule)
    copy.UpdatePropertyCache(strict=False)
    chem.FastFindRings(copy)
    chem.KekulizeIfPossible(copy, clearAromaticFlags=True)
    if not copy.GetNumConformers() or copy.GetConformer().Is3D():
        rdkit_module("Chem.rdDepictor").Compute2DCoords(copy)
    return copy


def molecule_points(edges: NDArray[Any], num_nodes: int, symbols: Sequence[str] | None = None) -> NDArray[Any]:
    """Return where RDKit would draw the atoms, ``[N, 2]``; any graph will do for a molecule."""
    if not num_nodes:
        return np.zeros((0, 2))
    molecule = with_coordinates(build_molecule([UNKNOWN] * num_nodes if symbols is None else symbols, edges))
    points: NDArray[Any] = molecule.GetConformer().GetPositions()[:, :2]
    return points


def bond_orders(bond_types: Tensor | Sequence[float] | None, num_edges: int) -> NDArray[Any] | None:
    """Return the orders of bonds, ``[E]``, from orders or from one-hot rows: single, double, triple, aromatic.

    Examples::

        >>> import torch
        >>> from captum_goat.plot.molecule_graph import bond_orders
        >>> bond_orders(torch.tensor([[1, 0, 0], [0, 1, 0]]), 2).tolist(), bond_orders([1, 1.5], 2).tolist()
        ([1.0, 2.0], [1.0, 1.5])
    """
    if bond_types is None:
        return None
    given = torch.as_tensor(bond_types).detach().cpu()
    if given.dim() == 2 and given.size(1) in (3, 4) and ((given == 0) | (given == 1)).all():
        orders = torch.tensor([*ONE_HOT_ORDERS, 1.0])  # a row of zeros is a single bond
        given = orders[torch.where(given.any(dim=1), given.float().argmax(dim=1), len(ONE_HOT_ORDERS))]
    if given.shape != (num_edges,):
        raise ValueError(
            f"Expected bond_types of shape [{num_edges}] (1, 2, 3, or 1.5 if aromatic), or one-hot "
            f"[{num_edges}, 3 or 4] (got {list(given.shape)})."
        )
    known: NDArray[Any] = given.double().numpy()
    return known


def molecule_of(
    graph: Data,
    edge_index: Tensor,
    atoms: Sequence[str | int] | Tensor | None = None,
    bond_types: Tensor | Sequence[float] | None = None,
) -> Any:
    """Return the RDKit molecule of a graph: from ``atoms``, from its atomic numbers ``z``, or from its ``smiles``.

    Raises:
        ValueError: If it is not known which atoms the graph has.
    """
    edges = plain_edges(edge_index).t().numpy()
    orders = bond_orders(bond_types, len(edges))
    atoms = graph.z if atoms is None and "z" in graph else atoms
    if atoms is not None:
        if len(atoms) != graph.num_nodes:
            raise ValueError(f"Expected atoms to name {graph.num_nodes} elements, one per node (got {len(atoms)}).")
        return build_molecule(element_symbols(atoms), edges, orders)
    smiles = graph.smiles if "smiles" in graph else None
    if isinstance(smiles, str):
        found = _of_smiles(smiles, graph.num_nodes, {(min(edge), max(edge)) for edge in edges.tolist()})
        if found is not None:
            return found
    raise ValueError(
        "Expected atoms, the element of every node (got None, and a graph without z or a smiles of the same bonds)."
    )


def _of_smiles(smiles: str, num_nodes: int | None, pairs: set[tuple[int, int]]) -> Any | None:
    """Return the molecule of a SMILES if it has the graph's nodes and bonds, with hydrogens or without."""
    chem = rdkit_module()
    molecule = chem.MolFromSmiles(smiles)
    for each in () if molecule is None else (molecule, chem.AddHs(molecule)):
        bonds = {tuple(sorted((bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()))) for bond in each.GetBonds()}
        if each.GetNumAtoms() == num_nodes and bonds == {pair for pair in pairs if pair[0] != pair[1]}:
            return each
    return None
