"""Explanations from scores: the edges with the highest scores."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from captum_goat.metrics.counted_edges import CountedEdges, check_scores, check_selected


def select_edges(
    data: Data | Batch, scores: Tensor, sparsity: float | None = None, *, k: int | Tensor | None = None
) -> Tensor:
    r"""Select the edges with the highest scores in every graph, bool ``[E]``.

    At sparsity :math:`s`, the best :math:`\lfloor (1 - s) M \rfloor` of a graph's :math:`M` edges are selected, or one
    if that is 0 and :math:`s < 1`. Where every edge has its reverse, undirected edges are counted: such an edge has the
    sum of the scores of its two directions, and both are selected together. So are parallel edges. An edge that opposes
    the class comes last. Of edges with equal scores, the first in ``edge_index`` wins.

    Args:
        data: The graph, or the batch of G graphs.
        scores: One signed number per column of ``edge_index``, ``[E]``, from any explainer.
        sparsity: The share of edges to leave out, from 0 to 1.
        k: Instead of the sparsity, the number of edges to select, for all graphs or one per graph ``[G]``.

    Examples:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from captum_goat.metrics import select_edges
        >>> data = Data(edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=3)  # 0 - 1 - 2
        >>> select_edges(data, torch.tensor([0.9, -0.5, 0.3, 0.2]), sparsity=0.5)  # 0.4 against 0.5
        tensor([False, False,  True,  True])
    """
    edges, scores = CountedEdges.of(data), check_scores(scores, data)
    if (sparsity is None) == (k is None):
        raise ValueError(f"Expected either a sparsity or k (got sparsity={sparsity} and k={k}).")
    budget = edges.budget(sparsity) if sparsity is not None else number_per_graph(k, edges)
    selected: Tensor = (edges.ranks(scores) < budget[edges.graph])[edges.number]
    return selected


def sparsity(data: Data | Batch, selected: Tensor) -> Tensor:
    r"""Return the share of each graph's edges that an explanation leaves out; nan for graphs without edges.

    .. math:: \mathrm{sparsity} = 1 - \frac{|\text{selected edges}|}{|\text{edges}|}

    Edges are counted as in :func:`select_edges`; those of the explanation are ``selected``, bool ``[E]``. Source: Pope
    et al., CVPR 2019; here for edges, as in the GOAt paper.

    Examples:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from captum_goat.metrics import sparsity
        >>> data = Data(edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=3)
        >>> sparsity(data, torch.tensor([True, True, False, False]))
        tensor([0.5000])
    """
    edges = CountedEdges.of(data)
    is_selected = edges.any(check_selected(selected, data))
    return 1.0 - edges.per_graph(is_selected.to(torch.get_default_dtype())) / edges.counts


def number_per_graph(k: int | Tensor | None, edges: CountedEdges) -> Tensor:
    """Return a number of edges for each graph, ``[G]``."""
    number = torch.as_tensor(k, device=edges.graph.device)
    if number.is_floating_point() or number.shape not in ((), (edges.num_graphs,)) or bool((number < 0).any()):
        raise ValueError(f"Expected k as an integer from 0 on, or one for each of {edges.num_graphs} graphs (got {k}).")
    return number.expand(edges.num_graphs)
