"""Copies of graphs side by side."""

from __future__ import annotations

import torch
from torch_geometric.data import Data

from captum_goat.compare.graphs import Graphs


def repeat_graphs(graphs: Graphs, count: int) -> Graphs:
    """Return copies of graphs side by side, the first copy first.

    Examples::

        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from benchmarks.explainers.graph_copies import repeat_graphs
        >>> from captum_goat.compare.graphs import Graphs
        >>> graph = Graphs.of(Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0], [1]])), torch.tensor([1]))
        >>> repeat_graphs(graph, 2).edge_index
        tensor([[0, 2],
                [1, 3]])
    """
    copy = torch.arange(count, device=graphs.x.device)
    nodes = graphs.x.size(0)
    data = Data(
        x=graphs.x.repeat(count, 1),
        edge_index=graphs.edge_index.repeat(1, count) + (copy * nodes).repeat_interleave(graphs.num_edges),
        batch=graphs.batch.repeat(count) + (copy * len(graphs.target)).repeat_interleave(nodes),
    )
    return Graphs(data, graphs.target.repeat(count))
