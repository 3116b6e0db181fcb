"""Measurements of explanations, one value per graph, for paired comparisons."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Generator, Tensor
from torch_geometric.data import Batch

from benchmarks.paper.tasks import Task
from benchmarks.paper_metrics import (
    Prefix,
    distinct_embeddings,
    distinct_explanations,
    explanation_embeddings,
    robust_fidelity,
    search_prefix,
)
from captum_goat.compare.graphs import SPARSITIES
from captum_goat.metrics import (
    area_under_curve,
    fidelity_curve,
    fidelity_minus,
    fidelity_plus,
    ground_truth_auc,
    precision_at_k,
    select_edges,
)
from captum_goat.metrics import sparsity as sparsity_of
from captum_goat.metrics.fidelity import NodePolicy

PAPER_SPARSITY = 0.7  # at which the paper searches prefixes, and counts and shows explanations
SEARCHED_AT_ONCE = 50  # graphs of about the same size, because a search lasts as long as that of the largest graph


class Key(NamedTuple):
    """The metric and the settings of a measurement."""

    metric: str
    nodes: str = ""  # what becomes of nodes without edges: "stay" or "leave"; "" where that is of no account
    selection: str = ""  # "fixed" for the same k for every method, "search" for the best prefix; "" for scores
    sparsity: str = ""


@dataclass(frozen=True)
class Measurements:
    """The measurements of the first graphs of a task.

    Attributes:
        values: A number per graph, ``[G]``.
        embeddings: A row per graph, ``[G, H]``.
        groups: The number of each graph's explanation among the distinct ones, ``[G]``.
        selected: The edges of explanations at the paper's sparsity, bool ``[E]``.
    """

    values: dict[Key, Tensor] = field(default_factory=dict)
    embeddings: dict[Key, Tensor] = field(default_factory=dict)
    groups: dict[Key, Tensor] = field(default_factory=dict)
    selected: dict[Key, Tensor] = field(default_factory=dict)

    def on_cpu(self) -> Measurements:
        """Return the measurements on the CPU."""
        parts = (self.values, self.embeddings, self.groups, self.selected)
        return Measurements(*({key: tensor.cpu() for key, tensor in part.items()} for part in parts))


def measure(task: Task, scores: Tensor, count: int, seed: int = 0) -> Measurements:
    """Measure the explanations of the first graphs of a task; of a whole dataset only which explanations are the same.

    Args:
        task: The model and the graphs.
        scores: The scores of the edges of the first graphs, ``[E]``.
        count: How many graphs.
        seed: For the random numbers of robust fidelities.

    Returns:
        All measurements.
    """
    batch, target = Batch.from_data_list(task.graphs[:count]), task.predicted[:count].to(task.device)
    scores, measurements = scores.to(task.device), Measurements()
    if not task.held_out:
        _add_explanations_at_paper_sparsity(measurements, task, batch, scores, target, task.policies[-1])
        return measurements.on_cpu()
    for nodes in task.policies:
        measurements.values.update(_curves(task, batch, scores, target, nodes))
        _add_explanations_at_paper_sparsity(measurements, task, batch, scores, target, nodes)
    _add_embeddings(measurements, task, batch, scores)
    measurements.values.update(_robust(task, batch, scores, target, seed))
    if "edge_label" in batch:
        measurements.values[Key("ground_truth_auc")] = ground_truth_auc(batch, scores)
        measurements.values[Key("precision_at_k")] = precision_at_k(batch, scores)
    return measurements.on_cpu()


def _curves(task: Task, batch: Batch, scores: Tensor, target: Tensor, nodes: NodePolicy) -> dict[Key, Tensor]:
    """Return fidelities at fixed k, and the mean height of the curve of the gain, fid+ minus fid-."""
    curve = fidelity_curve(task.model, batch, scores, SPARSITIES, target, nodes)
    values_by_key: dict[Key, Tensor] = {}
    for metric, values in (("fidelity_plus", curve.plus), ("fidelity_minus", curve.minus)):
        for place, sparsity in enumerate(SPARSITIES):
            values_by_key[Key(metric, nodes, "fixed", str(sparsity))] = values[place]
    height = area_under_curve(curve.plus - curve.minus, curve.sparsities, normalize=True)
    return values_by_key | {Key("area_gain", nodes, "fixed"): height}


def _add_explanations_at_paper_sparsity(
    measurements: Measurements, task: Task, batch: Batch, scores: Tensor, target: Tensor, nodes: NodePolicy
) -> None:
    """Add the measurements of explanations with a fixed and with a searched number of edges."""
    key = Key("", nodes, "fixed", str(PAPER_SPARSITY))
    _add_explanations(measurements, task, batch, select_edges(batch, scores, PAPER_SPARSITY), target, key)
    chosen = searched(task, batch, scores, target, nodes)
    _add_explanations(measurements, task, batch, chosen, target, key._replace(selection="search"))


def searched(task: Task, batch: Batch, scores: Tensor, target: Tensor, nodes: NodePolicy) -> Tensor:
    """Search the best prefix of every graph, graphs of about the same size at once.

    Args:
        task: The model. With ``nodes="leave"`` a GCN is searched as by the authors' code: no prefix of one edge, and
            none after the first whose gain is above 0.999.
        batch: The graphs.
        scores: The scores of their edges, ``[E]``.
        target: Their classes, ``[G]``.
        nodes: What becomes of nodes without edges.

    Returns:
        The chosen edges, bool ``[E]``.
    """
    shortest, enough = (2, 0.999) if task.gnn == "gcn" and nodes == "leave" else (1, None)
    graphs = batch.to_data_list()
    sizes = torch.tensor([graph.num_edges for graph in graphs])
    parts = list(scores.split(sizes.tolist()))
    chosen: list[Tensor] = [torch.empty(0)] * len(graphs)
    for some in sizes.argsort().split(SEARCHED_AT_ONCE):
        part = Batch.from_data_list([graphs[index] for index in some.tolist()])
        prefix: Prefix = search_prefix(
            task.model,
            part,
            torch.cat([parts[index] for index in some.tolist()]),
            PAPER_SPARSITY,
            target[some],
            nodes,
            shortest=shortest,
            enough=enough,
        )
        for index, selected in zip(some.tolist(), prefix.selected.split(sizes[some].tolist()), strict=True):
            chosen[index] = selected
    return torch.cat(chosen)


def _add_explanations(
    measurements: Measurements, task: Task, batch: Batch, selected: Tensor, target: Tensor, key: Key
) -> None:
    """Add the measurements of explanations at the paper's sparsity."""
    nodes: NodePolicy = "leave" if key.nodes == "leave" else "stay"
    measurements.selected[key] = selected
    embeddings = explanation_embeddings(task.model, batch, selected, task.layer, nodes)
    if key.selection == "search":
        measurements.values[key._replace(metric="fidelity_plus")] = fidelity_plus(
            task.model, batch, selected, target, nodes
        )
        measurements.values[key._replace(metric="fidelity_minus")] = fidelity_minus(
            task.model, batch, selected, target, nodes
        )
        measurements.values[key._replace(metric="sparsity")] = sparsity_of(batch, selected)
        measurements.embeddings[key._replace(metric="discriminability")] = embeddings
    if not task.of_nodes:  # the paper counts explanations of graphs
        measurements.groups[key._replace(metric="coverage")] = distinct_explanations(batch, selected)
        if key.selection == "search":
            measurements.groups[key._replace(metric="coverage_of_embeddings")] = distinct_embeddings(embeddings)


def _add_embeddings(measurements: Measurements, task: Task, batch: Batch, scores: Tensor) -> None:
    """Add embeddings at fixed k over sparsities, by the authors' node policy where there is a choice."""
    nodes = task.policies[-1]
    for sparsity in SPARSITIES:
        selected = select_edges(batch, scores, sparsity)
        embeddings = explanation_embeddings(task.model, batch, selected, task.layer, nodes)
        measurements.embeddings[Key("discriminability", nodes, "fixed", str(sparsity))] = embeddings


def original_embeddings(task: Task) -> Tensor:
    """Return the embeddings of a task's graphs with all their edges, ``[G, H]``."""
    batch = Batch.from_data_list(task.graphs)
    everything = torch.ones(batch.num_edges, dtype=torch.bool, device=task.device)
    return explanation_embeddings(task.model, batch, everything, task.layer).cpu()


def _robust(task: Task, batch: Batch, scores: Tensor, target: Tensor, seed: int) -> dict[Key, Tensor]:
    selected = select_edges(batch, scores, PAPER_SPARSITY)
    generator = Generator().manual_seed(seed)
    robust = robust_fidelity(task.model, batch, selected, target, generator=generator)
    key = Key("", "stay", "fixed", str(PAPER_SPARSITY))
    return {
        key._replace(metric="robust_fidelity_plus"): robust.plus,
        key._replace(metric="robust_fidelity_minus"): robust.minus,
    }
