"""Attributions on the bonds and atoms of a molecule, and which hydrogens are drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from captum_goat.plot.edge_scores import edge_scores
from captum_goat.plot.molecule_graph import rdkit_module

if TYPE_CHECKING:
    from numpy.typing import NDArray

Hydrogens = Literal["all", "polar", "none"]


class ScoredMolecule(NamedTuple):
    """A molecule as it is drawn."""

    molecule: Any
    bonds: NDArray[Any]  # [bonds]
    atoms: NDArray[Any]  # [atoms]; 0 where there is nothing to say
    truth: NDArray[Any]  # bool [bonds]


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
    """Give every bond the sum over its directions; a self-loop goes to its atom.

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
    """Leave hydrogens out of the picture. Nothing is lost: what they have goes to the atom that they are bound to.

    Args:
        scored: The molecule.
        which: The hydrogens to keep: ``"all"``, ``"polar"`` (those not bound to carbon), or ``"none"``. One of the
            ground truth stays, and so does one that is not bound to a single other atom.

    Examples::

        >>> import numpy as np
        >>> from captum_goat.plot.molecule_graph import build_molecule
        >>> from captum_goat.plot.molecule_scores import ScoredMolecule, with_hydrogens
        >>> water = build_molecule(["O", "H", "H"], np.array([[0, 1], [0, 2]]))
        >>> scored = ScoredMolecule(water, np.array([1.0, 2.0]), np.zeros(3), np.array([False, True]))
        >>> shown = with_hydrogens(scored, "none")
        >>> shown.molecule.GetNumAtoms(), shown.bonds.tolist(), shown.atoms.tolist()
        (2, [2.0], [1.0, 0.0])
    """
    hidden = [] if which == "all" else [atom for atom in scored.molecule.GetAtoms() if _can_go(atom, which, scored)]
    if not hidden:
        return scored
    molecule, atoms = rdkit_module().RWMol(scored.molecule), scored.atoms.copy()
    kept_bonds = np.ones(len(scored.bonds), dtype=bool)
    for hydrogen in hidden:
        (bond,) = hydrogen.GetBonds()
        heavy = bond.GetOtherAtomIdx(hydrogen.GetIdx())
        atoms[heavy] += scored.bonds[bond.GetIdx()] + scored.atoms[hydrogen.GetIdx()]
        kept_bonds[bond.GetIdx()] = False
        parent = molecule.GetAtomWithIdx(heavy)
        parent.SetNumExplicitHs(parent.GetNumExplicitHs() + 1)  # N becomes NH
    gone = sorted((hydrogen.GetIdx() for hydrogen in hidden), reverse=True)
    # RDKit does not promise the order of the bonds that are left: they are found by their ends.
    ends = {index: _ends(scored.molecule.GetBondWithIdx(int(index)), gone) for index in np.flatnonzero(kept_bonds)}
    for index in gone:
        molecule.RemoveAtom(index)
    order = {molecule.GetBondBetweenAtoms(*pair).GetIdx(): index for index, pair in ends.items()}
    bonds = [order[index] for index in range(molecule.GetNumBonds())]
    return ScoredMolecule(molecule, scored.bonds[bonds], np.delete(atoms, gone), scored.truth[bonds])


def _can_go(atom: Any, which: Hydrogens, scored: ScoredMolecule) -> bool:
    if atom.GetAtomicNum() != 1 or atom.GetDegree() != 1:
        return False
    (bond,), (other,) = atom.GetBonds(), atom.GetNeighbors()
    if scored.truth[bond.GetIdx()] or other.GetAtomicNum() == 1:
        return False
    return which == "none" or other.GetAtomicNum() == 6


def _ends(bond: Any, gone: list[int]) -> tuple[int, int]:
    """Return the numbers that the ends of a bond have once the atoms are gone."""
    first, second = (end - sum(index < end for index in gone) for end in (bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()))
    return first, second
