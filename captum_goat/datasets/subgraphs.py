"""What a node's output is computed from, cut out of a large graph."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch_geometric.data import Data

LARGEST_TABLE = 20_000_000  # entries of [nodes, edges] that are held at once


def computation_graphs(data: Data, nodes: Tensor | Sequence[int], num_hops: int) -> list[Data]:
    r"""Cut the computation graph of each of some nodes, so that nodes can be explained as graphs are.

    The output of node :math:`v` after :math:`L` layers of message passing depends on the edges

    .. math:: \{(j \to i) : d(i, v) \le L - 1\},

    where :math:`d(i, v)` is the number of steps along the edges from :math:`i` to :math:`v`. (An edge between two nodes
    that are :math:`L` steps away cannot reach :math:`v` in time, and an edge of an undirected graph may reach it in one
    of its directions only.) The graph that is cut has these edges and their nodes, with :math:`v` as node 0. For layers
    that add up messages, :class:`~captum_goat.models.RootClassifier` then returns the very row that the model has for
    :math:`v` in the whole graph. Degree normalisation is another matter: nodes at the border lose edges.

    Args:
        data: A graph with ``x``, ``edge_index``, labels ``y`` ``[N]`` and, if known, ``edge_label`` ``[E]``.
        nodes: The nodes, ``[K]``.
        num_hops: The number of message passing layers :math:`L`.

    Returns:
        A graph for each of the nodes, with ``x``, ``edge_index`` (in the order of ``data``), the node's label ``y``
        ``[1]``, ``edge_label`` if ``data`` has it, and the numbers that its nodes and edges have in ``data``: ``n_id``
        and ``e_id``.

    Examples::

        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from captum_goat.datasets import computation_graphs
        >>> path = torch.tensor([[0, 1, 2, 1, 2, 3], [1, 2, 3, 0, 1, 2]])  # 0 - 1 - 2 - 3, both directions
        >>> data = Data(x=torch.ones(4, 1), edge_index=path, y=torch.arange(4))
        >>> (graph,) = computation_graphs(data, nodes=[3], num_hops=2)
        >>> graph.n_id, graph.e_id, graph.y
        (tensor([3, 1, 2]), tensor([1, 2, 5]), tensor([3]))
        >>> graph.edge_index
        tensor([[1, 2, 0],
                [2, 0, 2]])
    """
    nodes = torch.as_tensor(nodes, dtype=torch.long, device=data.edge_index.device).view(-1)
    if len(nodes) and not 0 <= int(nodes.min()) <= int(nodes.max()) < data.num_nodes:
        raise IndexError(
            f"Expected nodes from 0 to {data.num_nodes - 1} (got {int(nodes.min())} to {int(nodes.max())})."
        )
    if num_hops < 0:
        raise ValueError(f"Expected a number of layers as num_hops (got {num_hops}).")
    at_once = max(1, LARGEST_TABLE // max(1, data.num_nodes, data.num_edges))
    return [graph for some in nodes.split(at_once) for graph in _cut(data, some, num_hops)]


def _cut(data: Data, roots: Tensor, num_hops: int) -> list[Data]:
    """Cut several graphs at once; a table has a row for each of them, and a column for each node or edge of all."""
    source, target = data.edge_index
    row = torch.arange(len(roots), device=roots.device)
    has_node = torch.zeros(len(roots), data.num_nodes, dtype=torch.bool, device=roots.device)
    has_edge = torch.zeros(len(roots), data.num_edges, dtype=torch.bool, device=roots.device)
    has_node[row, roots] = True
    for _ in range(num_hops):
        has_edge = has_node[:, target]
        graph_of_edge, edge = has_edge.nonzero(as_tuple=True)
        has_node[graph_of_edge, source[edge]] = True

    number = _numbers(has_node, roots)
    graph_of_node, node = has_node.nonzero(as_tuple=True)
    graph_of_edge, edge = has_edge.nonzero(as_tuple=True)
    edge_index = torch.stack([number[graph_of_edge, source[edge]], number[graph_of_edge, target[edge]]])
    order = (graph_of_node * data.num_nodes + number[graph_of_node, node]).argsort()
    n_ids = node[order].split(has_node.sum(dim=1).tolist())
    edge_counts = has_edge.sum(dim=1).tolist()
    parts = zip(n_ids, edge.split(edge_counts), edge_index.split(edge_counts, dim=1), strict=True)
    return [_graph(data, *part) for part in parts]


def _numbers(has_node: Tensor, roots: Tensor) -> Tensor:
    """Return the new number of every node in every graph: the root is 0, the others keep their order."""
    number = has_node.long().cumsum(dim=1) - 1
    of_root = number.gather(1, roots.view(-1, 1))
    number = number + (number < of_root).long()
    return number.scatter(1, roots.view(-1, 1), 0)


def _graph(data: Data, n_id: Tensor, e_id: Tensor, edge_index: Tensor) -> Data:
    graph = Data(x=data.x[n_id], edge_index=edge_index.contiguous(), y=data.y[n_id[:1]], n_id=n_id, e_id=e_id)
    if "edge_label" in data:
        graph.edge_label = data.edge_label[e_id]
    return graph
