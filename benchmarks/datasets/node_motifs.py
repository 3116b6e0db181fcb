"""Synthetic graphs whose nodes are classified by their places in motifs; the motifs' edges are the ground truth.

All three follow one plan: motifs hang on a base graph at regular distances, and a hundredth as many edges as there are
then is added at random. Sizes, numbering and labels are those of the published files.

Reference: Ying, Bourgeois, You, Zitnik, Leskovec: *GNNExplainer: Generating Explanations for Graph Neural Networks*,
NeurIPS 2019, appendix.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from captum_goat.datasets import HOUSE, Edges

NUM_FEATURES = 10
GRID: Edges = [(0, 1), (1, 2), (3, 4), (4, 5), (6, 7), (7, 8), (0, 3), (3, 6), (1, 4), (4, 7), (2, 5), (5, 8)]
HOUSE_LABELS = (1, 1, 2, 2, 3)  # middle, middle, bottom, bottom, top; the base has label 0
GRID_LABELS = (1,) * 9
EDGES_PER_NODE = 5  # of the Barabasi-Albert graphs
NOISE = 0.01  # random edges per edge
COMMUNITY_MEANS = (-1.0, 1.0)  # of the first two features, by community
COMMUNITY_VARIANCE = 0.5  # of the first two features; that of the others, whose mean is 0, is 1
BRIDGES_PER_NODE = 0.25  # random edges between the communities: 350 for 1400 nodes


def ba_shapes(num_base: int = 300, num_motifs: int = 80, seed: int = 0) -> Data:
    """Generate BA-Shapes: houses on a random graph, and nodes classified by their places.

    A Barabasi-Albert graph with 5 edges per new node carries the houses. Class 0 is the base, class 1 the middle of a
    house (where its roof begins), class 2 its bottom and class 3 its top. All features are 1.

    Args:
        num_base: The number of nodes of the base graph.
        num_motifs: The number of houses, at most ``num_base``.
        seed: Where the random numbers start. The global random states are neither read nor changed.

    Returns:
        One graph, with ``x`` ``[N, 10]``, ``edge_index`` (both directions, sorted), the labels ``y`` ``[N]``, the
        ground truth ``edge_label`` ``[E]``, which is True for the edges inside houses, and a random split 80/10/10 in
        ``train_mask``, ``val_mask`` and ``test_mask`` ``[N]``.

    Examples::

        >>> from benchmarks.datasets import ba_shapes
        >>> data = ba_shapes()
        >>> data.num_nodes, data.num_edges, int(data.edge_label.sum())
        (700, 4110, 960)
        >>> data.y.bincount()
        tensor([300, 160, 160,  80])
    """
    generator = np.random.default_rng(seed)
    edges, in_motif, labels = _houses(num_base, num_motifs, generator)
    return _data(torch.ones(len(labels), NUM_FEATURES), edges, in_motif, labels, generator)


def ba_community(num_base: int = 300, num_motifs: int = 80, seed: int = 0) -> Data:
    """Generate BA-Community: two BA-Shapes graphs whose features tell them apart, joined by random edges.

    The labels of the second community are 4 to 7, the nodes after those of the first. The first two features are normal
    with mean -1 in the first community and 1 in the second, and variance 0.5; the others are standard normal. A quarter
    as many edges as there are nodes joins the communities at random.

    Args:
        num_base: The number of nodes of either base graph.
        num_motifs: The number of houses of either community, at most ``num_base``.
        seed: Where the random numbers start. The global random states are neither read nor changed.

    Returns:
        One graph, as :func:`ba_shapes` returns it.

    Examples::

        >>> from benchmarks.datasets import ba_community
        >>> data = ba_community()
        >>> data.num_nodes, data.num_edges, int(data.edge_label.sum())
        (1400, 8920, 1920)
        >>> data.y.bincount()
        tensor([300, 160, 160,  80, 300, 160, 160,  80])
    """
    generator = np.random.default_rng(seed)
    edges, in_motif, labels = _houses(num_base, num_motifs, generator)
    more_edges, more_in_motif, more_labels = _houses(num_base, num_motifs, generator)
    size, num_classes = len(labels), 1 + max(labels)
    edges += [(size + source, size + target) for source, target in more_edges]
    labels += [num_classes + label for label in more_labels]
    bridges = _random_edges(int(BRIDGES_PER_NODE * len(labels)), range(size), range(size, 2 * size), edges, generator)
    in_motif += more_in_motif + [False] * len(bridges)
    return _data(_community_features(size, generator), edges + bridges, in_motif, labels, generator)


def tree_grid(height: int = 8, num_motifs: int = 80, seed: int = 0) -> Data:
    """Generate Tree-Grid: 3-by-3 grids on a binary tree, and nodes classified by whether they are in a grid.

    Args:
        height: The height of the tree, which has ``2 ** (height + 1) - 1`` nodes.
        num_motifs: The number of grids, at most the number of the tree's nodes.
        seed: Where the random numbers start. The global random states are neither read nor changed.

    Returns:
        One graph, as :func:`ba_shapes` returns it; class 0 is the tree and class 1 the grids.

    Examples::

        >>> from benchmarks.datasets import tree_grid
        >>> data = tree_grid()
        >>> data.num_nodes, data.num_edges, int(data.edge_label.sum())
        (1231, 3130, 1920)
        >>> data.y.bincount()
        tensor([511, 720])
    """
    generator = np.random.default_rng(seed)
    tree = binary_tree(height)
    edges, in_motif, labels = _hang_motifs(tree, len(tree) + 1, GRID, GRID_LABELS, num_motifs, generator)
    return _data(torch.ones(len(labels), NUM_FEATURES), edges, in_motif, labels, generator)


def binary_tree(height: int) -> Edges:
    """Return the edges of the complete binary tree with ``2 ** (height + 1) - 1`` nodes, parents first."""
    return [((node - 1) // 2, node) for node in range(1, 2 ** (height + 1) - 1)]


def _houses(num_base: int, num_motifs: int, generator: np.random.Generator) -> tuple[Edges, list[bool], list[int]]:
    base = barabasi_albert(num_base, EDGES_PER_NODE, generator)
    return _hang_motifs(base, num_base, HOUSE, HOUSE_LABELS, num_motifs, generator)


def _hang_motifs(
    base: Edges,
    num_base: int,
    motif: Edges,
    motif_labels: Sequence[int],
    num_motifs: int,
    generator: np.random.Generator,
) -> tuple[Edges, list[bool], list[int]]:
    """Return all edges, whether they are inside of a motif, and the labels of all nodes."""
    if not 0 < num_motifs <= num_base:
        raise ValueError(f"Expected 1 to {num_base} motifs, one per node of the base (got {num_motifs}).")
    starts = [num_base + index * len(motif_labels) for index in range(num_motifs)]
    distance = num_base // num_motifs
    inside = [(start + source, start + target) for start in starts for source, target in motif]
    outside = base + [(index * distance, start) for index, start in enumerate(starts)]
    num_nodes = num_base + num_motifs * len(motif_labels)
    everything = inside + outside
    everywhere = range(num_nodes)
    noise = _random_edges(int(NOISE * len(everything)), everywhere, everywhere, everything, generator)
    edges, in_motif = everything + noise, [True] * len(inside) + [False] * (len(outside) + len(noise))
    return edges, in_motif, [0] * num_base + list(motif_labels) * num_motifs


def _random_edges(
    number: int, sources: range, targets: range, existing: Edges, generator: np.random.Generator
) -> Edges:
    """Return that many new edges between the given nodes: no self-loops, none of the existing ones."""
    taken = {frozenset(edge) for edge in existing}
    edges: Edges = []
    while len(edges) < number:
        source = int(generator.integers(sources.start, sources.stop))
        target = int(generator.integers(targets.start, targets.stop))
        if source != target and frozenset((source, target)) not in taken:
            taken.add(frozenset((source, target)))
            edges.append((source, target))
    return edges


def _community_features(size: int, generator: np.random.Generator) -> Tensor:
    x = generator.standard_normal((len(COMMUNITY_MEANS) * size, NUM_FEATURES))
    means = np.repeat(COMMUNITY_MEANS, size)[:, np.newaxis]
    x[:, :2] = means + COMMUNITY_VARIANCE**0.5 * x[:, :2]
    return torch.from_numpy(x).float()


def _data(
    x: Tensor, edges: Edges, in_motif: Sequence[bool], labels: Sequence[int], generator: np.random.Generator
) -> Data:
    edge_index, edge_label = to_undirected(torch.tensor(edges).t(), torch.tensor(in_motif).long(), reduce="max")
    data = Data(x=x, edge_index=edge_index, y=torch.tensor(labels), edge_label=edge_label.bool())
    order = torch.from_numpy(generator.permutation(len(labels)))
    ends = (int(0.8 * len(labels)), int(0.9 * len(labels)))
    for name, nodes in zip(("train_mask", "val_mask", "test_mask"), order.tensor_split(ends), strict=True):
        data[name] = torch.zeros(len(labels), dtype=torch.bool).index_fill(0, nodes, True)
    return data


def barabasi_albert(num_nodes: int, edges_per_node: int, generator: np.random.Generator) -> Edges:
    """Grow a graph in which a new node joins old ones with probability proportional to their degrees.

    It begins as a star with node ``edges_per_node`` in the middle. The older node of an edge comes first. Reference:
    Barabasi, Albert: *Emergence of Scaling in Random Networks*, Science 286, 1999.
    """
    if not 0 < edges_per_node < num_nodes:
        raise ValueError(f"Expected more nodes than edges per node (got {num_nodes} and {edges_per_node}).")
    edges = [(node, edges_per_node) for node in range(edges_per_node)]
    for node in range(edges_per_node + 1, num_nodes):
        neighbours: list[int] = []
        while len(neighbours) < edges_per_node:
            # A node is an end of as many edges as its degree says, so a random end of a random edge has the right odds.
            edge, end = generator.integers(len(edges)), generator.integers(2)
            if edges[edge][end] not in neighbours:
                neighbours.append(edges[edge][end])
        edges += [(neighbour, node) for neighbour in neighbours]
    return edges
