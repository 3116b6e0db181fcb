"""Molecules from SMILES: scores of bonds and atoms in RDKit's order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch_geometric.data import Data
from torch_geometric.utils import from_smiles

from captum_goat.bulk.dataset import edge_method, explain_dataset
from captum_goat.plot.molecule import bond_index, molecule_of, rdkit_module
from captum_goat.wrapped_model import floating_tensor


def explain_smiles(
    method: Any, smiles: str | Sequence[str], featurizer: Callable[[str], Data] | None = None, **options: Any
) -> Any:
    """Explain a model's output for molecules that are given as SMILES.

    Args:
        method: What :func:`~captum_goat.explain_dataset` takes: a model in evaluation mode, or a method with options.
        smiles: One molecule, or a list of them.
        featurizer: A function that returns the graph of a SMILES, as the model was trained with, its nodes in the order
            of RDKit's atoms, with hydrogens or without; :func:`torch_geometric.utils.from_smiles` if ``None``.
        **options: Options of :func:`~captum_goat.explain_dataset`, such as ``target``.

    Returns:
        A :class:`torch_geometric.explain.Explanation`, or a list of them, as ``explain_dataset`` returns, with
        ``smiles``; ``bond_scores``, one per bond of the RDKit molecule (both directions are added up); and
        ``atom_scores``, half of those of its bonds for each atom. :func:`write_report` draws them.

    Examples:
        >>> from torch_geometric.nn import GCN
        >>> from captum_goat.plot import visualize_molecule_attr
        >>> from captum_goat.report import explain_smiles
        >>> class Model(GCN):
        ...     def forward(self, x, edge_index, batch=None):
        ...         return super().forward(x, edge_index, batch=batch).sum(dim=0, keepdim=True)
        >>> explanation = explain_smiles(Model(9, 8, 2, 2).eval(), "CCO")
        >>> explanation.bond_scores.shape, explanation.atom_scores.shape
        (torch.Size([2]), torch.Size([3]))
        >>> fig, ax = visualize_molecule_attr(explanation.edge_mask, explanation, use_pyplot=False)
    """
    if not isinstance(smiles, Iterable):
        raise TypeError(f"Expected SMILES as a string or a list of strings (got {type(smiles).__name__}).")
    names = [smiles] if isinstance(smiles, str) else list(smiles)
    if not names:
        raise ValueError("Expected one or more SMILES (got none).")
    chem, like = rdkit_module(), floating_tensor(edge_method(method).model)
    for name in names:
        if not isinstance(name, str) or not name.strip() or chem.MolFromSmiles(name) is None:
            raise ValueError(f"Expected valid SMILES (got {name!r}).")
    graphs = [*map(featurizer or from_smiles, names)]
    for graph in graphs if featurizer is None else ():
        graph.x, graph.edge_attr = graph.x.to(like), graph.edge_attr.to(like)
    try:
        explanations = explain_dataset(method, graphs, **{"show_progress": False} | options)
    except RuntimeError as error:
        if featurizer is not None or "shapes cannot be multiplied" not in str(error):
            raise
        raise ValueError(
            f"Expected a model of the {graphs[0].x.size(1)} features that torch_geometric.utils.from_smiles gives "
            f"every atom (got: {error}). Pass featurizer=, the function that makes the model's graphs."
        ) from error
    for name, explanation in zip(names, explanations, strict=True):
        explanation.smiles = name
        _add_scores(explanation)
    return explanations[0] if isinstance(smiles, str) else explanations


def _add_scores(explanation: Data) -> None:
    """Add the scores of bonds and atoms; raise ValueError if the graph is not that of the SMILES."""
    named = Data(edge_index=explanation.edge_index, num_nodes=explanation.num_nodes, smiles=explanation.smiles)
    bonds = bond_index(molecule_of(named, explanation.edge_index))
    ends, mask, count = explanation.edge_index.cpu(), explanation.edge_mask.cpu(), int(explanation.num_nodes or 0)
    keys, bond_keys = (pairs.amin(dim=0) * count + pairs.amax(dim=0) for pairs in (ends, bonds))
    order, is_bond = bond_keys.argsort(), ends[0] != ends[1]
    bond = order[torch.searchsorted(bond_keys[order], keys[is_bond])]
    explanation.bond_scores = mask.new_zeros(len(order), *mask.shape[1:]).index_add_(0, bond, mask[is_bond])
    halves = torch.cat([mask, mask]) / 2
    explanation.atom_scores = mask.new_zeros(count, *mask.shape[1:]).index_add_(0, ends.reshape(-1), halves)
