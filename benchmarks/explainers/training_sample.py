"""Graphs for explainers that need training."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch_geometric.data import Data


def sample_graphs(graphs: Sequence[Data], number: int) -> list[Data]:
    """Return random graphs that have edges, in random order.

    Args:
        graphs: The graphs.
        number: The largest number to return.

    Raises:
        ValueError: If no graph has edges.
    """
    usable = [graph for graph in graphs if graph.num_edges]
    if not usable:
        raise ValueError(f"Expected graphs with edges to train with (got none among {len(graphs)}).")
    return [usable[index] for index in torch.randperm(len(usable))[:number].tolist()]
