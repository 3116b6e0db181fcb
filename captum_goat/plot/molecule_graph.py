"""Chemical elements, and graphs as molecules of RDKit (an optional dependency)."""

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

if TYPE_CHECKING:
    from numpy.typing import NDArray

PERIODIC_TABLE = (
    "H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn Ga Ge As Se Br Kr Rb Sr Y Zr Nb "
    "Mo Tc Ru Rh Pd Ag Cd In Sn Sb Te I Xe Cs Ba La Ce Pr Nd Pm Sm Eu Gd Tb Dy Ho Er Tm Yb Lu Hf Ta W Re Os Ir Pt Au "
    "Hg Tl Pb Bi Po At Rn Fr Ra Ac Th Pa U Np Pu Am Cm Bk Cf Es Fm Md No Lr Rf Db Sg Bh Hs Mt Ds Rg Cn Nh Fl Mc Lv "
    "Ts Og"
)
SYMBOLS = PERIODIC_TABLE.split()
UNKNOWN = "*"  # an atom of any element, number 0

# The columns of x in Mutagenicity of the TU collection.
MUTAGENICITY_ELEMENTS = ("C", "O", "Cl", "H", "N", "F", "Br", "S", "P", "I", "Na", "K", "Li", "Ca")

# The hues of Corey, Pauling and Koltun, but pale: full red and blue are for attributions.
ELEMENT_COLORS = {
    "H": "#ffffff",
    "C": "#c8c8c8",
    "N": "#b9c6fb",
    "O": "#fbb9b3",
    "S": "#f7e58a",
    "P": "#fbc98f",
    "F": "#d3f2b0",
    "Cl": "#b4e8a8",
    "Br": "#d9a99b",
    "I": "#d6aee0",
    "B": "#f6d3c6",
    "Si": "#eadcc0",
}
OTHER_COLOR = "#e6d5f5"  # metals and the rest

ORDERS = {1.0: "SINGLE", 2.0: "DOUBLE", 3.0: "TRIPLE", 1.5: "AROMATIC"}
ONE_HOT_ORDERS = (1.0, 2.0, 3.0, 1.5)  # the columns of one-hot bond types


def element_symbols(atoms: Sequence[str | int] | Tensor) -> list[str]:
    """Return the symbols of elements given by symbol or by atomic number (0 and ``"*"`` for unknown ones).

    Raises:
        ValueError: If there is no such element.
    """
    if isinstance(atoms, Tensor):
        if atoms.dim() != 1 or atoms.is_floating_point():
            raise ValueError(
                f"Expected atoms to be atomic numbers, integers [N] (got {atoms.dtype} {list(atoms.shape)}). "
                "For one-hot features, use one_hot_atoms."
            )
        atoms = atoms.tolist()
    return [_symbol(atom) for atom in atoms]


def _symbol(atom: str | int) -> str:
    if isinstance(atom, str):
        symbol = atom.strip().capitalize()
        if symbol == UNKNOWN or symbol in SYMBOLS:
            return symbol
    elif 0 <= atom <= len(SYMBOLS):
        return SYMBOLS[atom - 1] if atom else UNKNOWN
    raise ValueError(f"Expected the symbol or the atomic number of an element (got {atom!r}).")


def one_hot_atoms(x: Tensor, elements: Sequence[str] = MUTAGENICITY_ELEMENTS) -> list[str]:
    """Return the elements of atoms with one-hot features.

    Args:
        x: The features, ``[N, len(elements)]``, with a 1 in the column of the element.
        elements: The elements of the columns; by default those of Mutagenicity in the TU collection.

    Raises:
        ValueError: If ``x`` is not one-hot.

    Examples::

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


def element_colours(symbols: Sequence[str]) -> list[str]:
    """Return a matplotlib colour per atom."""
    return [ELEMENT_COLORS.get(symbol, OTHER_COLOR) for symbol in symbols]


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
    """Return an RDKit molecule with exactly these atoms and bonds, whether or not they make chemical sense.

    Args:
        symbols: The elements, one per atom.
        edges: The bonds, ``[M, 2]``; self-loops and repetitions are left out.
        orders: Their orders, ``[M]``: 1, 2, 3, or 1.5 for aromatic bonds. Others are drawn as single bonds.
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
    """Return a drawable copy of an RDKit molecule: two-dimensional, with double bonds for aromatic ones."""
    chem = rdkit_module()
    copy = chem.RWMol(molecule)
    copy.UpdatePropertyCache(strict=False)
    chem.FastFindRings(copy)
    chem.KekulizeIfPossible(copy, clearAromaticFlags=True)
    if not copy.GetNumConformers() or copy.GetConformer().Is3D():
        rdkit_module("Chem.rdDepictor").Compute2DCoords(copy)
    return copy


def molecule_points(edges: NDArray[Any], num_nodes: int, symbols: Sequence[str] | None = None) -> NDArray[Any]:
    """Return the points at which RDKit draws the atoms, ``[N, 2]``; any graph is accepted."""
    if not num_nodes:
        return np.zeros((0, 2))
    molecule = with_coordinates(build_molecule([UNKNOWN] * num_nodes if symbols is None else symbols, edges))
    points: NDArray[Any] = molecule.GetConformer().GetPositions()[:, :2]
    return points


def bond_orders(bond_types: Tensor | Sequence[float] | None, num_edges: int) -> NDArray[Any] | None:
    """Return the orders of bonds, ``[E]``, from orders or from one-hot rows: single, double, triple, aromatic."""
    if bond_types is None:
        return None
    orders = torch.as_tensor(bond_types).detach().cpu()
    if orders.dim() == 2 and orders.size(1) in (3, 4) and ((orders == 0) | (orders == 1)).all():
        known_orders = torch.tensor([*ONE_HOT_ORDERS, 1.0])  # a row of zeros is a single bond
        orders = known_orders[torch.where(orders.any(dim=1), orders.float().argmax(dim=1), len(ONE_HOT_ORDERS))]
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
    """Return the RDKit molecule of a graph: from ``atoms``, from its atomic numbers ``z``, or from its ``smiles``.

    Raises:
        ValueError: If the elements of the nodes are unknown.
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
        molecule = _molecule_of_smiles(smiles, graph.num_nodes, {(min(edge), max(edge)) for edge in edges.tolist()})
        if molecule is not None:
            return molecule
    raise ValueError(
        "Expected atoms, the element of every node (got None, and a graph without z and without a matching smiles)."
    )


def _molecule_of_smiles(smiles: str, num_nodes: int | None, pairs: set[tuple[int, int]]) -> Any | None:
    """Return the molecule of a SMILES if it has the graph's nodes and bonds, with hydrogens or without."""
    chem = rdkit_module()
    molecule = chem.MolFromSmiles(smiles)
    for candidate in () if molecule is None else (molecule, chem.AddHs(molecule)):
        bonds = {tuple(sorted((bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()))) for bond in candidate.GetBonds()}
        if candidate.GetNumAtoms() == num_nodes and bonds == {pair for pair in pairs if pair[0] != pair[1]}:
            return candidate
    return None
