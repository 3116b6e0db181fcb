"""Edges as they are counted, selected and compared with the truth: an undirected edge is one, with two columns."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.data import Batch, Data


@dataclass(frozen=True)
class CountedEdges:
    """The edges of a graph, or of a batch of graphs, as they are counted.

    In a graph in which every edge has its reverse, the two directions of an edge are one edge. Parallel edges are one
    edge in any graph. A *column* is an entry of ``edge_index``. Edges are numbered in the order of their first columns.
    """

    number: Tensor  # of each column's edge, [E]
    graph: Tensor  # of each edge, [M]
    num_graphs: int
    columns_graph: Tensor  # the graph of each column, [E]

    @classmethod
    def of(cls, data: Data | Batch, undirected: bool | None = None) -> CountedEdges:
        """Count edges; ``undirected`` is by default True for graphs in which every edge has its reverse."""
        edge_index, batch, num_graphs = edges_of(data), graph_of_nodes(data), number_of_graphs(data)
        source, target, nodes = edge_index[0], edge_index[1], int(data.num_nodes)
        columns_graph = batch[source]
        # One integer for each pair of nodes; a graph is directed if some pair has no reverse.
        forwards, backwards = source * nodes + target, target * nodes + source
        directed = torch.full((num_graphs,), not undirected, device=source.device)
        if undirected is None:
            directed = sums((~torch.isin(backwards, forwards)).long(), columns_graph, num_graphs) > 0
        pair = torch.where(directed[columns_graph], forwards, torch.minimum(forwards, backwards))
        number, first = numbered_by_first(pair)
        return cls(number, columns_graph[first], num_graphs, columns_graph)

    @property
    def counts(self) -> Tensor:
        """The number of edges of each graph, ``[G]``."""
        return sums(torch.ones_like(self.graph), self.graph, self.num_graphs)

    def totals(self, scores: Tensor) -> Tensor:
        """Return the score of each edge ``[M]``, which is the sum over its columns ``[E]``."""
        return sums(scores, self.number, len(self.graph))

    def any(self, marked: Tensor) -> Tensor:
        """Return whether any column of an edge is marked: bool ``[M]`` from bool ``[E]``."""
        return sums(marked.long(), self.number, len(self.graph)) > 0

    def per_graph(self, values: Tensor) -> Tensor:
        """Return the sums over the edges of each graph: ``[G]`` from ``[M]``."""
        return sums(values, self.graph, self.num_graphs)

    def ranks(self, scores: Tensor) -> Tensor:
        """Return the rank of each edge in its graph, ``[M]``: 0 for the highest score; the first of equal ones wins."""
        return position_in_graph(self.graph, self.num_graphs, -self.totals(scores))

    def budget(self, sparsity: float) -> Tensor:
        """Return how many edges of each graph are selected at a sparsity, ``[G]``; see ``select_edges``."""
        if not 0.0 <= sparsity <= 1.0:
            raise ValueError(f"Expected a sparsity from 0 to 1, the share of edges to leave out (got {sparsity}).")
        # (1 - 0.9) * 10 is a little less than 1 in floating-point numbers.
        budget = ((1.0 - sparsity) * self.counts.double() + 1e-6).long()
        return budget if sparsity == 1.0 else torch.minimum(budget.clamp(min=1), self.counts)


def sums(values: Tensor, index: Tensor, size: int) -> Tensor:
    """Return the sums of the values that have the same index."""
    return values.new_zeros(size).index_add_(0, index, values)


def position_in_graph(graph: Tensor, num_graphs: int, *keys: Tensor) -> Tensor:
    """Number the elements of each graph from 0 on, by the first of the keys ``[K]``, then the next, or as they are."""
    order = torch.arange(len(graph), device=graph.device)
    for key in (*reversed(keys), graph):
        order = order[torch.sort(key[order], stable=True).indices]
    counts = sums(torch.ones_like(graph), graph, num_graphs)
    position = torch.arange(len(graph), device=graph.device) - (counts.cumsum(0) - counts)[graph[order]]
    return torch.empty_like(position).scatter_(0, order, position)


def edges_of(data: Data | Batch) -> Tensor:
    """Return the edges ``[2, E]`` as an ordinary integer tensor."""
    if not isinstance(data, Data):  # a Batch is one, too
        kind, advice = type(data).__name__, "Batch.from_data_list(graphs) makes a batch of several graphs."
        raise ValueError(f"Expected a graph, torch_geometric.data.Data, or a Batch (got {kind}). {advice}")
    edge_index = data.edge_index
    if not isinstance(edge_index, Tensor) or edge_index.dim() != 2 or edge_index.size(0) != 2:
        got = list(edge_index.shape) if isinstance(edge_index, Tensor) else type(edge_index).__name__
        raise ValueError(f"Expected a graph whose edge_index is a tensor of shape [2, num_edges] (got {got}).")
    plain: Tensor = edge_index.as_tensor() if isinstance(edge_index, EdgeIndex) else edge_index
    return plain.long()


def graph_of_nodes(data: Data | Batch) -> Tensor:
    """Return the graph of each node, ``[N]``."""
    batch: Tensor | None = data.batch
    return batch if batch is not None else torch.zeros(data.num_nodes, dtype=torch.long, device=edges_of(data).device)


def number_of_graphs(data: Data | Batch) -> int:
    """Return how many graphs there are."""
    if isinstance(data, Batch):
        return int(data.num_graphs)
    return 1 if data.batch is None or data.batch.numel() == 0 else int(data.batch.max()) + 1


def description(value: object) -> str:
    """Return the dtype and shape of a tensor, or the type of anything else, for error messages."""
    return f"{value.dtype} {list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


def check_scores(scores: Tensor, data: Data | Batch) -> Tensor:
    """Raise ValueError unless there is one finite score per column of ``edge_index``; return detached scores."""
    columns = edges_of(data).size(1)
    if not isinstance(scores, Tensor) or scores.shape != (columns,) or not scores.is_floating_point():
        advice = "" if isinstance(scores, Tensor) else " Convert them by torch.as_tensor(scores)."
        raise ValueError(
            f"Expected scores of shape [{columns}], floating-point numbers (got {description(scores)}).{advice}"
        )
    if wrong := int((~scores.isfinite()).sum()):
        raise ValueError(f"Expected finite scores (got {wrong} of {columns} that are infinite or nan).")
    return scores.detach().to(data.edge_index.device)


def check_selected(selected: Tensor | None, data: Data | Batch, name: str = "selected edges") -> Tensor:
    """Raise ValueError unless there is one bool per column of ``edge_index``; return them on its device."""
    columns = edges_of(data).size(1)
    if not isinstance(selected, Tensor) or selected.shape != (columns,) or selected.dtype != torch.bool:
        got, advice = description(selected), "Use select_edges to select edges by score."
        raise ValueError(f"Expected {name} as bool of shape [{columns}], one per edge (got {got}). {advice}")
    return selected.to(data.edge_index.device)


def numbered_by_first(keys: Tensor) -> tuple[Tensor, Tensor]:
    """Number distinct keys in the order of their first appearance; return the numbers and the first positions."""
    position = torch.arange(len(keys), device=keys.device)
    distinct, inverse = torch.unique(keys, return_inverse=True)
    first = position.new_full((len(distinct),), len(keys)).scatter_reduce_(0, inverse, position, "amin")
    order = torch.sort(first).indices
    new_number = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=keys.device))
    return new_number[inverse], first[order]


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
        >>> from torch_geometric.data import Data
        >>> from captum_goat.metrics import select_edges
        >>> data = Data(edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=3)  # 0 - 1 - 2
        >>> select_edges(data, torch.tensor([0.9, -0.5, 0.3, 0.2]), sparsity=0.5)  # 0.4 against 0.5
        tensor([False, False,  True,  True])
    """
    edges, scores = CountedEdges.of(data), check_scores(scores, data)
    if (sparsity is None) == (k is None):
        raise ValueError(f"Expected either a sparsity or k (got sparsity={sparsity} and k={k}).")
    budget = edges.budget(sparsity) if sparsity is not None else _number_per_graph(k, edges)
    selected: Tensor = (edges.ranks(scores) < budget[edges.graph])[edges.number]
    return selected


def sparsity(data: Data | Batch, selected: Tensor) -> Tensor:
    r"""Return the share of each graph's edges that an explanation leaves out; nan for graphs without edges.

    Edges are counted as in :func:`select_edges`; those of the explanation are ``selected``, bool ``[E]``. Source: Pope
    et al., CVPR 2019; here for edges, as in the GOAt paper.

    Examples:
        >>> from torch_geometric.data import Data
        >>> from captum_goat.metrics import sparsity
        >>> data = Data(edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=3)
        >>> sparsity(data, torch.tensor([True, True, False, False]))
        tensor([0.5000])
    """
    edges = CountedEdges.of(data)
    is_selected = edges.any(check_selected(selected, data))
    return 1.0 - edges.per_graph(is_selected.to(torch.get_default_dtype())) / edges.counts


def _number_per_graph(k: int | Tensor | None, edges: CountedEdges) -> Tensor:
    """Return a number of edges for each graph, ``[G]``."""
    number = torch.as_tensor(k, device=edges.graph.device)
    if number.is_floating_point() or number.shape not in ((), (edges.num_graphs,)) or bool((number < 0).any()):
        raise ValueError(f"Expected k as an integer from 0 on, or one for each of {edges.num_graphs} graphs (got {k}).")
    return number.expand(edges.num_graphs)


def ground_truth_auc(data: Data | Batch, scores: Tensor, ground_truth: Tensor | None = None) -> Tensor:
    r"""Return the area under the ROC curve of edge scores ``[E]`` against the true edges, one number per graph ``[G]``.

    It is the probability that a true edge has a higher score than a false one; ties count one half. Edges are counted
    as in :func:`~captum_goat.metrics.select_edges`; an edge is true if either of its directions is. ``ground_truth``
    has the true edges, bool ``[E]``; ``None`` for ``data.edge_label``. For graphs in which all edges are true, or none,
    the result is nan: take :func:`torch.nanmean` of several.

    Examples:
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

    ``k`` is one number for all graphs or one per graph ``[G]``; ``None`` for the number of true edges. The result is
    nan where no edge is on top. The other arguments are those of :func:`ground_truth_auc`.

    Examples:
        >>> from torch_geometric.data import Data
        >>> from captum_goat.metrics import precision_at_k
        >>> true = torch.tensor([True, True, False])
        >>> data = Data(edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]), edge_label=true, num_nodes=4)
        >>> precision_at_k(data, torch.tensor([0.5, 0.1, 0.4]))
        tensor([0.5000])
    """
    edges, scores = CountedEdges.of(data), check_scores(scores, data)
    true = edges.any(_true_edges(data, ground_truth))
    number = edges.per_graph(true.long()) if k is None else _number_per_graph(k, edges)
    top = edges.ranks(scores) < number[edges.graph]
    return edges.per_graph((top & true).to(scores.dtype)) / edges.per_graph(top.long())


def _true_edges(data: Data | Batch, ground_truth: Tensor | None) -> Tensor:
    label = data.edge_label if ground_truth is None and "edge_label" in data else ground_truth
    return check_selected(label, data, "ground_truth, or data.edge_label,")


def middle_ranks(values: Tensor, edges: CountedEdges) -> Tensor:
    """Rank edges in their graphs, 1 for the lowest value; equal ones share the mean of their ranks."""
    pairs = torch.stack([edges.graph.double(), values.double()])
    _, run, size = torch.unique(pairs, dim=1, return_inverse=True, return_counts=True)  # runs of equal values, in order
    before = edges.counts.cumsum(0) - edges.counts
    ranks: Tensor = (size.cumsum(0) - (size - 1).double() / 2)[run] - before[edges.graph]
    return ranks
