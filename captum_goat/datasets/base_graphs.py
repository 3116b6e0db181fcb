"""The base graphs of the synthetic data sets, and the motifs that are hung on them, as lists of undirected edges."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

Edges: TypeAlias = "list[tuple[int, int]]"

# Every motif hangs on the base graph by its node 0.
CYCLE: Edges = [(0, 1), (1, 2), (2, 3), (3, 4), (0, 4)]
HOUSE: Edges = [(0, 1), (1, 2), (2, 3), (0, 3), (0, 4), (1, 4)]  # the walls are 0 to 3, the roof is 4
GRID: Edges = [(0, 1), (1, 2), (3, 4), (4, 5), (6, 7), (7, 8), (0, 3), (3, 6), (1, 4), (4, 7), (2, 5), (5, 8)]


def barabasi_albert(num_nodes: int, edges_per_node: int, generator: np.random.Generator) -> Edges:
    """Grow a graph in which a new node joins some old ones with probability proportional to their degrees.

    It begins with a star: node ``edges_per_node`` in the middle of those before it. Every later node brings as many
    edges, to different nodes. With one edge per node the graph is a tree.

    Reference: Barabasi, Albert: *Emergence of Scaling in Random Networks*, Science 286, 1999.

    Args:
        num_nodes: The number of nodes, more than ``edges_per_node``.
        edges_per_node: How many edges a new node brings.
        generator: Where the random numbers come from.

    Returns:
        The edges, the older node first: ``edges_per_node * (num_nodes - edges_per_node)`` of them.

    Examples::

        >>> import numpy as np
        >>> from captum_goat.datasets.base_graphs import barabasi_albert
        >>> len(barabasi_albert(300, 5, np.random.default_rng(0)))
        1475
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


def binary_tree(height: int) -> Edges:
    """Return the edges of the complete binary tree with ``2 ** (height + 1) - 1`` nodes, parents first."""
    return [((node - 1) // 2, node) for node in range(1, 2 ** (height + 1) - 1)]
