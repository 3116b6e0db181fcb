"""Synthetic graphs whose explanations are known: the ground truth that pictures and tests are compared with."""

from __future__ import annotations

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from captum_goat.datasets.base_graphs import CYCLE, HOUSE, barabasi_albert

BASE_NODES = 20
MOTIF_NODES = 5
NUM_FEATURES = 10
FEATURE_VALUE = 0.1  # the same for every node: only the structure tells the classes apart
MOTIFS = (CYCLE, HOUSE)  # by class


def ba_2motifs(num_graphs: int = 1000, seed: int = 0) -> list[Data]:
    """Generate BA-2Motifs: random trees that carry a cycle (class 0) or a house (class 1).

    Every graph has 25 nodes: a Barabasi-Albert graph of 20 nodes with one edge per new node, the motif in nodes 20 to
    24, and one edge from node 0, one of the two oldest, to node 20. That makes 25 undirected edges with a cycle and
    26 with a house. All features are 0.1.

    Sizes, numbering and labels are those of the published file, with one difference. In 40 of its 1000 graphs the
    connecting edge is a self-loop at node 20, which leaves the motif on its own; here the motif is always connected.
    (Hence 50.96 directed edges per graph there and 51 here.) Classes alternate here, so that every slice is balanced.

    Reference: Luo, Cheng, Xu, Yu, Zong, Chen, Zhang: *Parameterized Explainer for Graph Neural Network*, NeurIPS 2020.

    Args:
        num_graphs: How many graphs; even numbers give as many of either class.
        seed: Where the random numbers start. The global random states are neither read nor changed.

    Returns:
        The graphs, each with ``x`` ``[25, 10]``, ``edge_index`` (both directions, sorted), the label ``y`` ``[1]``
        and the ground truth ``edge_label`` ``[E]``, which is True for the edges inside the motif.

    Examples::

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
    motif = [(BASE_NODES + source, BASE_NODES + target) for source, target in MOTIFS[label]]
    edges = [*barabasi_albert(BASE_NODES, 1, generator), (0, BASE_NODES), *motif]
    edge_index = to_undirected(torch.tensor(edges).t())  # sorts, too
    return Data(
        x=torch.full((BASE_NODES + MOTIF_NODES, NUM_FEATURES), FEATURE_VALUE),
        edge_index=edge_index,
        y=torch.tensor([label]),
        edge_label=(edge_index >= BASE_NODES).all(dim=0),
    )
