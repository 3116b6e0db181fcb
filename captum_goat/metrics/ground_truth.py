"""Edge scores compared with the edges that are known to matter."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from captum_goat.metrics.counted_edges import (
    CountedEdges,
    check_scores,
    check_selected,
    number_per_graph,
    position_in_graph,
    sums,
)


def ground_truth_auc(data: Data | Batch, scores: Tensor, ground_truth: Tensor | None = None) -> Tensor:
    r"""Return the area under the ROC curve of edge scores ``[E]`` against the true edges, one number per graph ``[G]``.

    It is the probability that a true edge has a higher score than a false one; ties count one half:

    .. math:: \mathrm{AUC} = \frac{1}{P Q} \sum_{i\,\text{true}} \sum_{j\,\text{false}}
        \left[s_i > s_j\right] + \tfrac{1}{2} \left[s_i = s_j\right]

    Edges are counted as in :func:`~captum_goat.metrics.select_edges`; an edge is true if either of its directions is.
    ``ground_truth`` has the true edges, bool ``[E]``; ``None`` for ``data.edge_label``. For graphs in which all edges
    are true, or none, the result is nan: take :func:`torch.nanmean` of several.

    Examples:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from captum_goat.metrics import ground_truth_auc
        >>> true = torch.tensor([True, False, False])
        >>> data = Data(edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]), edge_label=true, num_nodes=4)
        >>> ground_truth_auc(data, torch.tensor([0.5, 0.9, 0.1]))
        tensor([0.5000])
    """
    edges, scores = CountedEdges.of(data), check_scores(scores, data)
    true = edges.any(_true_edges(data, ground_truth))
    ranks = middle_ranks(edges.totals(scores), edges)
    positive = edges.per_graph(true.double())
    negative = edges.counts - positive
    wins = edges.per_graph(torch.where(true, ranks, 0.0)) - positive * (positive + 1) / 2
    return (wins / (positive * negative)).to(scores.dtype)


def precision_at_k(
    data: Data | Batch, scores: Tensor, k: int | Tensor | None = None, ground_truth: Tensor | None = None
) -> Tensor:
    r"""Return the share of true edges among the k edges with the highest scores, one number per graph ``[G]``.

    .. math:: \mathrm{precision}_k = \frac{|\text{top}_k \cap \text{true}|}{|\text{top}_k|}

    ``k`` is one number for all graphs or one per graph ``[G]``; ``None`` for the number of true edges. The result is
    nan where no edge is on top. The other arguments are those of :func:`ground_truth_auc`.

    Examples:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from captum_goat.metrics import precision_at_k
        >>> true = torch.tensor([True, True, False])
        >>> data = Data(edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]), edge_label=true, num_nodes=4)
        >>> precision_at_k(data, torch.tensor([0.5, 0.1, 0.4]))
        tensor([0.5000])
    """
    edges, scores = CountedEdges.of(data), check_scores(scores, data)
    true = edges.any(_true_edges(data, ground_truth))
    number = edges.per_graph(true.long()) if k is None else number_per_graph(k, edges)
    top = edges.ranks(scores) < number[edges.graph]
    return edges.per_graph((top & true).to(scores.dtype)) / edges.per_graph(top.long())


def _true_edges(data: Data | Batch, ground_truth: Tensor | None) -> Tensor:
    label = data.edge_label if ground_truth is None and "edge_label" in data else ground_truth
    return check_selected(label, data, "ground_truth, or data.edge_label,", advice="")


def middle_ranks(values: Tensor, edges: CountedEdges) -> Tensor:
    """Rank edges in their graphs, 1 for the lowest value; equal ones share the mean of their ranks."""
    # First by value and then, stably, by graph: runs of equal pairs are ties.
    order = torch.sort(values, stable=True).indices
    order = order[torch.sort(edges.graph[order], stable=True).indices]
    sorted_values, sorted_graph = values[order], edges.graph[order]
    starts = torch.ones_like(order, dtype=torch.bool)
    starts[1:] = (sorted_values[1:] != sorted_values[:-1]) | (sorted_graph[1:] != sorted_graph[:-1])
    run = starts.long().cumsum(0) - 1
    rank = (position_in_graph(sorted_graph, edges.num_graphs) + 1).double()
    size = sums(torch.ones_like(rank), run, len(order))
    shared = (sums(rank, run, len(order)) / size)[run]
    return torch.empty_like(shared).scatter_(0, order, shared)
