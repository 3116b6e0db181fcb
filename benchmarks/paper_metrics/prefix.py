"""The search for the best prefix of ranked edges, as in the code of GOAt's authors."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Batch, Data

from captum_goat.metrics import NodePolicy
from captum_goat.metrics.counted_edges import CountedEdges, check_scores
from captum_goat.metrics.fidelity import Prediction


class Prefix(NamedTuple):
    """The chosen prefix of every graph's ranked edges.

    Attributes:
        selected: Whether an edge belongs to the prefix, bool ``[E]``.
        length: The number of edges in each graph's prefix ``[G]``, as :func:`~captum_goat.metrics.select_edges`
            counts them.
        gain: fid+ minus fid- of each graph's prefix ``[G]``.

    Examples::

        >>> import torch
        >>> from benchmarks.paper_metrics import Prefix
        >>> prefix = Prefix(torch.tensor([True, False, True]), length=torch.tensor([2]), gain=torch.tensor([0.6]))
        >>> prefix.selected.nonzero().squeeze(1)
        tensor([0, 2])
    """

    selected: Tensor
    length: Tensor
    gain: Tensor


def search_prefix(
    model: Module,
    data: Data | Batch,
    scores: Tensor,
    sparsity: float,
    target: Tensor | int | None = None,
    node_policy: NodePolicy = "stay",
    *,
    shortest: int = 1,
    enough: float | None = None,
) -> Prefix:
    r"""Choose in every graph the prefix of the ranked edges with the largest difference of fidelities.

    .. math:: \arg\max_{1 \le l \le k} \; \mathrm{fid}_+(S_l) - \mathrm{fid}_-(S_l) = f(S_l)_c - f(G \setminus S_l)_c

    :math:`S_l` are the :math:`l` edges with the highest scores, and :math:`k` is the number that
    :func:`~captum_goat.metrics.select_edges` chooses at the given sparsity. Of equal prefixes the shortest is taken.
    The search uses the model's output and so improves the explanations of any method, even random ones: compare
    methods either all with it or all without it.

    Source: the code that the authors of GOAt published. There GraphSAGE and GIN are searched as here by default, GCN
    with ``shortest=2, enough=0.999``, all with ``node_policy="leave"`` and the true class as target.

    Args:
        model: As for :func:`~captum_goat.metrics.fidelity_plus`.
        data: The graph, or the batch of G graphs, which are searched together.
        scores: One number per edge, ``[E]``.
        sparsity: The least sparsity, which is that of the longest prefix.
        target: As for :func:`~captum_goat.metrics.fidelity_plus`.
        node_policy: As for :func:`~captum_goat.metrics.fidelity_plus`.
        shortest: The length of the shortest prefix; graphs with fewer edges to choose have all of these.
        enough: A difference above which a graph's search ends; ``None`` for a full search.

    Returns:
        The chosen edges, their number in every graph, and the difference of fidelities.

    Examples::

        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from torch_geometric.nn import SimpleConv, global_add_pool
        >>> from benchmarks.paper_metrics import search_prefix
        >>> class Sums(SimpleConv):  # every edge adds the features of its source
        ...     def forward(self, x, edge_index, batch=None):
        ...         return global_add_pool(super().forward(x, edge_index), batch)
        >>> model = Sums().eval()
        >>> data = Data(x=torch.tensor([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]]), edge_index=torch.tensor([[0, 1], [2, 2]]))
        >>> search_prefix(model, data, torch.tensor([1.0, 0.5]), sparsity=0.0, target=0)  # the second edge does harm
        Prefix(selected=tensor([ True, False]), length=tensor([1]), gain=tensor([0.6119]))
    """
    if shortest < 1:
        raise ValueError(f"Expected the shortest prefix to have one edge or more (got {shortest}).")
    edges, scores = CountedEdges.of(data), check_scores(scores, data)
    prediction = Prediction(model, data, target, node_policy)
    ranks, longest = edges.ranks(scores), edges.budget(sparsity)
    first = longest.clamp(max=shortest)
    length, open_graphs = first.clone(), torch.ones_like(first, dtype=torch.bool)
    gain = torch.full_like(prediction.original, -torch.inf)
    for candidate in range(int(first.min()), int(longest.max()) + 1):
        selected = (ranks < candidate)[edges.number]
        new_gain = prediction.with_edges(selected) - prediction.with_edges(~selected)
        better = open_graphs & (candidate >= first) & (new_gain > gain)
        length, gain = torch.where(better, candidate, length), torch.where(better, new_gain, gain)
        open_graphs = open_graphs & (longest > candidate)
        if enough is not None:
            open_graphs = open_graphs & (gain <= enough)
        if not bool(open_graphs.any()):
            break
    return Prefix((ranks < length[edges.graph])[edges.number], length, gain)
