"""Graphs as molecules of RDKit: elements, bonds, hydrogens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from benchmarks.datasets.molecules import load_mutagenicity
from captum_goat.plot.molecule import (
    MUTAGENICITY_ELEMENTS,
    bond_index,
    bond_orders,
    build_molecule,
    molecule_of,
    one_hot_atoms,
    scored_molecule,
    with_coordinates,
    with_hydrogens,
)

Chem = pytest.importorskip("rdkit.Chem")


def undirected(pairs: list[tuple[int, int]]) -> torch.Tensor:
    there = torch.tensor(pairs).t()
    return torch.cat([there, there.flip(0)], dim=1)


def bonds_of(molecule: Any) -> dict[tuple[int, int], str]:
    return {(b.GetBeginAtomIdx(), b.GetEndAtomIdx()): b.GetBondType().name for b in molecule.GetBonds()}


def test_elements_by_symbol_and_by_number() -> None:
    for atoms in (["*", "C", "n", "O ", "ZN"], [0, 6, 7, 8, 30], torch.tensor([0, 6, 7, 8, 30]), [0, "C", 7, "O", 30]):
        molecule = build_molecule(atoms, np.zeros((0, 2), dtype=int))
        assert [atom.GetSymbol() for atom in molecule.GetAtoms()] == ["*", "C", "N", "O", "Zn"]


@pytest.mark.parametrize(
    ("atoms", "message"),
    [
        (["C", "Xx"], r"symbol or the atomic number of an element \(got 'Xx'\)"),
        (torch.tensor([1, 119]), r"number of an element \(got 119\)"),
        ([-1], r"number of an element \(got -1\)"),
        (torch.eye(4), r"integers \[N\] .*\[4, 4\]\). For one-hot features, use one_hot_atoms"),
    ],
)
def test_elements_that_do_not_exist(atoms: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_molecule(atoms, np.zeros((0, 2), dtype=int))


def test_elements_of_mutagenicity_are_those_in_the_docstring_of_its_loader() -> None:
    listed = ", ".join(MUTAGENICITY_ELEMENTS)
    assert listed in " ".join((load_mutagenicity.__doc__ or "").split())
    assert one_hot_atoms(torch.eye(14)) == list(MUTAGENICITY_ELEMENTS)
    assert one_hot_atoms(torch.eye(2), ["C", "O"]) == ["C", "O"]
    with pytest.raises(ValueError, match=r"x of shape \[N, 14\], a column per element \(got \[2, 3\]\)"):
        one_hot_atoms(torch.zeros(2, 3))
    with pytest.raises(ValueError, match="one-hot, a single 1 per atom"):
        one_hot_atoms(torch.full((2, 14), 1 / 14))


def test_molecules_have_the_atoms_and_bonds_of_their_graphs() -> None:
    edges = undirected([(0, 1), (1, 2), (2, 3), (3, 3)]).t().numpy()
    molecule = build_molecule(["C", "N", "O", "*"], edges, [3, 2, 7, 1, 1, 1, 1, 1])
    assert [atom.GetSymbol() for atom in molecule.GetAtoms()] == ["C", "N", "O", "*"]
    assert bonds_of(molecule) == {(0, 1): "TRIPLE", (1, 2): "DOUBLE", (2, 3): "SINGLE"}  # 7 is not known
    assert not any(atom.GetTotalNumHs() for atom in with_coordinates(molecule).GetAtoms())  # none that is not a node


def test_molecules_need_not_make_sense() -> None:
    """Carbon with six bonds and an aromatic ring of three oxygens: no sanitiser would let them pass."""
    edges = np.array([(0, other) for other in range(1, 7)] + [(7, 8), (8, 9), (9, 7)])
    molecule = with_coordinates(build_molecule(["C"] * 7 + ["O"] * 3, edges, [2] * 6 + [1.5] * 3))
    assert molecule.GetNumBonds() == 9
    assert np.isfinite(molecule.GetConformer().GetPositions()).all()


def test_aromatic_rings_get_double_bonds() -> None:
    edges = np.array([(index, (index + 1) % 6) for index in range(6)])
    benzene = with_coordinates(build_molecule(["C"] * 6, edges, [1.5] * 6))
    assert sorted(bonds_of(benzene).values()) == ["DOUBLE"] * 3 + ["SINGLE"] * 3


def test_points_are_those_of_drawings() -> None:
    drawn = with_coordinates(build_molecule([0, 0, 0], np.array([[0, 1], [1, 2]])))
    points = drawn.GetConformer().GetPositions()[:, :2]
    assert np.linalg.norm(np.diff(points, axis=0), axis=1) == pytest.approx([1.5, 1.5], abs=1e-3)
    conformer = Chem.MolFromSmiles("CCO")
    own = np.array([[0.0, 0.0, 0.0], [5.0, 0.0, 0.0], [5.0, 5.0, 0.0]])
    given = Chem.Conformer(3)
    for index, point in enumerate(own):
        given.SetAtomPosition(index, point)
    given.Set3D(False)
    conformer.AddConformer(given)
    np.testing.assert_array_equal(with_coordinates(conformer).GetConformer().GetPositions(), own)  # they stay


def test_bond_orders() -> None:
    assert bond_orders(None, 3) is None
    assert bond_orders(torch.tensor([[0, 1, 0], [0, 0, 0], [0, 0, 1]]), 3).tolist() == [2, 1, 3]
    assert bond_orders(torch.eye(4)[[3, 0]], 2).tolist() == [1.5, 1]
    with pytest.raises(ValueError, match=r"bond_types of shape \[2\] .* one-hot \[2, 3 or 4\] \(got \[2, 5\]\)"):
        bond_orders(torch.zeros(2, 5), 2)


def test_molecules_of_data_come_from_atoms_numbers_or_smiles() -> None:
    edge_index = undirected([(0, 1), (1, 2)])
    graph = Data(edge_index=edge_index, num_nodes=3)
    with pytest.raises(ValueError, match=r"Expected atoms, the element of every node \(got None"):
        molecule_of(graph, edge_index)
    with pytest.raises(ValueError, match=r"atoms to name 3 elements, one per node \(got 2\)"):
        molecule_of(graph, edge_index, "CC")

    def symbols(**options: Any) -> str:
        return "".join(atom.GetSymbol() for atom in molecule_of(graph, edge_index, **options).GetAtoms())

    graph.smiles = "CC=O"
    assert symbols() == "CCO"
    assert bonds_of(molecule_of(graph, edge_index)) == {(0, 1): "SINGLE", (1, 2): "DOUBLE"}
    graph.z = torch.tensor([6, 7, 8])
    assert symbols() == "CNO"
    assert symbols(atoms="SSS") == "SSS"


def test_smiles_have_to_have_the_bonds_of_the_graph() -> None:
    water = undirected([(0, 1), (0, 2)])
    graph = Data(edge_index=water, num_nodes=3, smiles="O")
    assert [atom.GetSymbol() for atom in molecule_of(graph, water).GetAtoms()] == ["O", "H", "H"]  # with hydrogens
    for smiles in ("CCO", "CC", "no smiles"):  # other bonds, another size, nonsense
        graph.smiles = smiles
        with pytest.raises(ValueError, match="without z and without a matching smiles"):
            molecule_of(graph, water)


# Methylamine: C with three hydrogens, N with two.
METHYLAMINE = [(0, 1), (0, 2), (0, 3), (0, 4), (1, 5), (1, 6)]
SYMBOLS_OF_METHYLAMINE = ["C", "N", "H", "H", "H", "H", "H"]


def methylamine(truth: list[int] | None = None) -> Any:
    edge_index = undirected(METHYLAMINE)
    attributions = torch.tensor([10.0, 1, 2, 3, 4, 5]).repeat(2) / 2
    marks = torch.zeros(12, dtype=torch.bool)
    marks[truth or []] = True
    molecule = build_molecule(SYMBOLS_OF_METHYLAMINE, edge_index.t().numpy())
    return scored_molecule(molecule, attributions, edge_index, marks)._replace(atoms=np.arange(7.0))


def test_scores_are_sums_over_directions_and_self_loops_go_to_atoms() -> None:
    scored = methylamine([5])
    assert scored.bonds.tolist() == [10, 1, 2, 3, 4, 5]
    assert scored.marked.tolist() == [False] * 5 + [True]
    molecule = build_molecule(["C", "O"], np.array([[0, 1]]))
    loops = scored_molecule(molecule, torch.tensor([1.0, 4.0, 2.0]), torch.tensor([[0, 1, 1], [1, 1, 0]]))
    assert (loops.bonds.tolist(), loops.atoms.tolist()) == ([3], [0, 4])


@pytest.mark.parametrize(
    ("which", "symbols", "bonds", "atoms"),
    [
        ("all", "CNHHHHH", [10, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5, 6]),
        ("polar", "CNHH", [10, 4, 5], [0 + 1 + 2 + 3 + 2 + 3 + 4, 1, 5, 6]),
        ("none", "CN", [10], [15, 1 + 4 + 5 + 5 + 6]),
    ],
)
def test_hydrogens_leave_what_they_have_to_their_atoms(
    which: Any, symbols: str, bonds: list[float], atoms: list[float]
) -> None:
    shown = with_hydrogens(methylamine(), which)
    assert "".join(atom.GetSymbol() for atom in shown.molecule.GetAtoms()) == symbols
    assert (shown.bonds.tolist(), shown.atoms.tolist()) == (bonds, atoms)
    everything = methylamine()
    assert shown.bonds.sum() + shown.atoms.sum() == everything.bonds.sum() + everything.atoms.sum()
    hidden = [atom.GetNumExplicitHs() for atom in shown.molecule.GetAtoms()][:2]
    assert hidden == {"all": [0, 0], "polar": [3, 0], "none": [3, 2]}[which]
    assert everything.molecule.GetNumAtoms() == 7


def test_hydrogens_of_the_ground_truth_stay() -> None:
    shown = with_hydrogens(methylamine([4]), "none")  # N - H, one of the two
    assert [atom.GetSymbol() for atom in shown.molecule.GetAtoms()] == ["C", "N", "H"]
    assert (shown.bonds.tolist(), shown.marked.tolist()) == ([10, 4], [False, True])


def test_hydrogen_itself_and_bridges_stay() -> None:
    for pairs, count in (([(0, 1)], 2), ([(0, 1), (0, 2)], 3)):  # H2, and H between two carbons
        molecule = build_molecule(["H", "H"] if count == 2 else ["H", "C", "C"], np.array(pairs))
        scored = scored_molecule(molecule, torch.ones(len(pairs)), torch.tensor(pairs).t())
        assert with_hydrogens(scored, "none").molecule.GetNumAtoms() == count


def test_bonds_are_found_whatever_their_order() -> None:
    """Hydrogens before and between the others: what is left of the bonds keeps its scores."""
    generator = np.random.default_rng(0)
    for _ in range(20):
        order = generator.permutation(7)
        pairs = [(int(order[first]), int(order[second])) for first, second in METHYLAMINE]
        generator.shuffle(pairs)
        symbols = [""] * 7
        for old, new in enumerate(order):
            symbols[new] = SYMBOLS_OF_METHYLAMINE[old]
        edge_index = torch.tensor(pairs).t()
        molecule = build_molecule(symbols, edge_index.t().numpy())
        shown = with_hydrogens(scored_molecule(molecule, torch.arange(6.0), edge_index), "polar")
        expected = {
            tuple(sorted((symbols[first], symbols[second]))): score
            for score, (first, second) in enumerate(pairs)
            if {symbols[first], symbols[second]} == {"C", "N"}
        }
        drawn = {
            tuple(sorted((bond.GetBeginAtom().GetSymbol(), bond.GetEndAtom().GetSymbol()))): shown.bonds[bond.GetIdx()]
            for bond in shown.molecule.GetBonds()
        }
        assert drawn["C", "N"] == expected["C", "N"]
        assert len(shown.bonds) == 3


def test_scores_that_do_not_fit() -> None:
    molecule = Chem.MolFromSmiles("CCO")
    assert bond_index(molecule).tolist() == [[0, 1], [1, 2]]
    with pytest.raises(ValueError, match=r"every edge to be a bond of the molecule \(got 0 - 2\)"):
        scored_molecule(molecule, torch.ones(1), torch.tensor([[2], [0]]))
    with pytest.raises(ValueError, match=r"every edge to be a bond of the molecule \(got 2 - 3\)"):
        scored_molecule(molecule, torch.ones(1), torch.tensor([[2], [3]]))
