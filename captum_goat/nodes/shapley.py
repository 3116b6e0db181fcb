"""Shapley values of edges for many nodes of one graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from captum_goat.bulk.dataset import floating_tensor
from captum_goat.bulk.targets import Targets
from captum_goat.nodes.cut_graphs import CutGraphs, NeighborIndex, cut_graphs
from captum_goat.nodes.results import NodeExplanations
from captum_goat.runs.progress import progress_bar
from captum_goat.shapley import GuidedShapley
from captum_goat.wrapped_model import ExplainedModel

_AT_ONCE = 64  # nodes that are explained together


def shapley_of_nodes(
    method: GuidedShapley,
    data: Data,
    nodes: Tensor,
    targets: Targets,
    num_hops: int,
    *,
    arguments: Callable[[Data], Any] | None = None,
    max_edges: int | None = None,
    show_progress: bool = False,
) -> NodeExplanations:
    """Attribute the outputs for nodes to the edges of their surroundings, many nodes side by side.

    A deleted edge also changes the degrees of nodes at the border of a computation graph, so the edges of one hop more
    take part.

    Args:
        method: The method, with its default guides or none.
        data: The graph.
        nodes: The nodes, ``[K]``.
        targets: What is explained.
        num_hops: From how far away, in edges, a node's output is computed.
        arguments: Returns the model's arguments for a graph.
        max_edges: The number of edges of all graphs that are explained together.
        show_progress: Whether to show a progress bar.

    Raises:
        ValueError: If the method has guides of its own, which cannot follow to graphs that are cut out.
    """
    if method.guides:
        raise ValueError("Expected GuidedShapley with its default guides, or none, to explain nodes (got others).")
    index = NeighborIndex(data.edge_index, data.num_nodes, "both")
    dtype = floating_tensor(method.model).dtype
    parts: list[tuple[Tensor, ...]] = []
    begin = 0
    with progress_bar(len(nodes), "node", show_progress) as advance:
        while begin < len(nodes):
            cut = cut_graphs(index, nodes[begin : begin + _AT_ONCE], num_hops + 1, max_edges=max_edges)
            graph = _cut_data(data, cut)
            explained = ExplainedModel(method.model, "edge", partial(_rows, rows=cut.roots))
            shapley = GuidedShapley(explained, **method.options)
            known = targets.known(range(begin, begin + len(cut.roots)), None, nodes.device)
            mask = torch.ones(len(cut.owner), dtype=dtype, device=nodes.device)
            given = graph if arguments is None else arguments(graph)
            result = shapley._explain(mask, targets.choice(known), given, games=cut.owner)
            attributions = torch.stack([edges for (edges,) in result.attributions], dim=-1)
            deltas = torch.stack(result.deltas, dim=-1)
            if targets.target != "all":
                attributions, deltas = attributions.squeeze(-1), deltas.squeeze(-1)
            sizes = torch.bincount(cut.owner, minlength=len(cut.roots))
            parts.append((sizes, result.output.detach(), deltas, cut.edges, attributions))
            begin += len(cut.roots)
            advance(len(cut.roots))
    sizes, outputs, deltas, edges, attributions = (torch.cat(part) for part in zip(*parts, strict=True))
    classes = targets.explained(outputs, targets.known(range(len(nodes)), None, nodes.device))
    ptr = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
    return NodeExplanations(
        data, nodes, classes, outputs=outputs, deltas=deltas, ptr=ptr, edges=edges, attributions=attributions
    )


def _rows(output: Tensor, rows: Tensor) -> Tensor:
    return output[rows]


def _cut_data(data: Data, cut: CutGraphs) -> Data:
    """Return the cut graphs with what belongs to their nodes and edges."""
    graph = Data(edge_index=cut.edge_index, num_nodes=len(cut.nodes))
    for name, value in data:
        if name in ("edge_index", "num_nodes", "ptr"):
            continue
        if isinstance(value, Tensor) and data.is_edge_attr(name):
            value = value.index_select(data.__cat_dim__(name, value), cut.edges)
        elif isinstance(value, Tensor) and data.is_node_attr(name):
            value = value.index_select(data.__cat_dim__(name, value), cut.nodes)
        graph[name] = value
    return graph
