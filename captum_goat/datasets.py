"""A generated dataset whose explanations are known."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

__all__ = ["ba_2motifs"]

Edges: TypeAlias = "list[tuple[int, int]]"  # undirected

BASE_NODES = 20
MOTIF_NODES = 5
NUM_FEATURES = 10
FEATURE_VALUE = 0.1  # the same for every node: only the structure tells the classes apart

# Every motif is attached to the base graph by its node 0.
CYCLE: Edges = [(0, 1), (1, 2), (2, 3), (3, 4), (0, 4)]
HOUSE: Edges = [(0, 1), (1, 2), (2, 3), (0, 3), (0, 4), (1, 4)]  # the walls are 0 to 3, the roof is 4
MOTIFS = (CYCLE, HOUSE)  # by class


def ba_2motifs(num_graphs: int = 1000, seed: int = 0) -> list[Data]:
    """Generate BA-2Motifs: random trees with a cycle (class 0) or a house (class 1) attached.

    Every graph has 25 nodes: a Barabasi-Albert tree of 20 nodes, the motif in nodes 20 to 24, and one edge from node 0
    to node 20. All features ``x`` ``[25, 10]`` are 0.1. Classes ``y`` ``[1]`` alternate, so that every slice is
    balanced. ``edge_label`` ``[E]``, the ground truth, is True for the edges of the motif. Sizes, node numbers and
    labels are those of the published file; in 40 of its 1000 graphs the motif is disconnected, here it never is. The
    global random states are neither read nor changed.

    Reference: Luo, Cheng, Xu, Yu, Zong, Chen, Zhang: *Parameterized Explainer for Graph Neural Network*, NeurIPS 2020.

    Examples:
        >>> from captum_goat.datasets import ba_2motifs
        >>> cycle, house = ba_2motifs(num_graphs=2)
        >>> cycle
        Data(x=[25, 10], edge_index=[2, 50], y=[1], edge_label=[50])
        >>> int(cycle.edge_label.sum()) // 2, int(house.edge_label.sum()) // 2
        (5, 6)
    """
    generator = np.random.default_rng(seed)
    return [_graph_with_motif(index % len(MOTIFS), generator) for index in range(num_graphs)]


def _graph_with_motif(label: int, generator: np.random.Generator) -> Data:
    edges = [(0, 1)]
    for node in range(2, BASE_NODES):
        # A node is an end of as many edges as its degree says, so a random end of a random edge has the right odds.
        edge, end = generator.integers(len(edges)), generator.integers(2)
        edges.append((edges[edge][end], node))
    edges += [(0, BASE_NODES)] + [(BASE_NODES + source, BASE_NODES + target) for source, target in MOTIFS[label]]
    edge_index = to_undirected(torch.tensor(edges).t())  # sorts, too
    return Data(
        x=torch.full((BASE_NODES + MOTIF_NODES, NUM_FEATURES), FEATURE_VALUE),
        edge_index=edge_index,
        y=torch.tensor([label]),
        edge_label=(edge_index >= BASE_NODES).all(dim=0),
    )
