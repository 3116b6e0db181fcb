"""Random graphs of any size, and models with random weights to explain on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import BatchNorm1d, Module
from torch_geometric.data import Data

from benchmarks.cost import NUM_FEATURES, NUM_NODES
from captum_goat.compare.graphs import Graphs
from captum_goat.models import GraphClassifier, NodeClassifier

BONDS_PER_ATOM = 1.1  # which makes an average degree of 2.2, as molecules have
RING = 5  # how many bonds a ring has beside the one that closes it
HUB_EDGES_PER_NODE = 2
EXPLAINED_CLASS = 1


def sparse_graph(num_edges: int, seed: int = 0) -> Data:
    """Return an undirected graph of a molecule's sparsity: a random tree with low degrees, and rings.

    Args:
        num_edges: The number of columns of ``edge_index``; an odd one is rounded down.
        seed: Where the random numbers start.

    Returns:
        A graph with ``x`` and ``edge_index``.

    Examples::

        >>> from benchmarks.speed.graphs import sparse_graph
        >>> graph = sparse_graph(1000)
        >>> graph.num_nodes, graph.num_edges
        (455, 1000)
    """
    num_bonds = num_edges // 2
    return _tree_with_rings(max(2, round(num_bonds / BONDS_PER_ATOM)), num_bonds, seed)


def hub_graph(num_edges: int, seed: int = 0) -> Data:
    """Return an undirected graph with hubs: a new node joins two old ones in proportion to their degrees.

    It is Barabasi and Albert's model, written for millions of edges: an edge's old end is a random end of a random
    edge before it. All are drawn at once, and whoever drew an end that was itself drawn follows it. A node may draw
    the same neighbour twice.

    Reference: Batagelj, Brandes: *Efficient Generation of Large Random Networks*, Physical Review E 71, 2005.

    Args:
        num_edges: The number of columns of ``edge_index``; an odd one is rounded down.
        seed: Where the random numbers start.

    Returns:
        A graph with ``x`` and ``edge_index``.
    """
    generator, count = np.random.default_rng(seed), num_edges // 2
    edge = np.arange(count)
    node = np.where(edge < HUB_EDGES_PER_NODE, edge + 1, edge // HUB_EDGES_PER_NODE + HUB_EDGES_PER_NODE)
    # End 2k of edge k is its new node and end 2k + 1 the node it joins; those of a node's own edges cannot be drawn.
    older = edge // HUB_EDGES_PER_NODE * HUB_EDGES_PER_NODE
    drawn = generator.integers(0, np.maximum(2 * older, 1))
    end = drawn.copy()
    while True:
        again = (end % 2 == 1) & (end // 2 >= HUB_EDGES_PER_NODE)
        if not again.any():
            break
        end[again] = drawn[end[again] // 2]
    joined = np.where(end % 2 == 1, end // 2, node[end // 2])  # the first edges form a path: edge k joins node k
    joined = np.where(edge < HUB_EDGES_PER_NODE, edge, joined)
    return _undirected(torch.from_numpy(joined), torch.from_numpy(node), int(node[-1]) + 1, seed)


FAMILIES: dict[str, Callable[[int, int], Data]] = {"sparse": sparse_graph, "hubs": hub_graph}
FAMILY_TITLES = {"sparse": "sparse as molecules", "hubs": "with hubs"}


def molecule(seed: int, num_nodes: int = NUM_NODES) -> Data:
    """Return a graph of a molecule's size and sparsity, with one to five rings."""
    rings = 1 + seed % 5
    return _tree_with_rings(num_nodes, num_nodes - 1 + rings, seed)


def with_features(data: Data, seed: int) -> Data:
    """Return a graph with other random features."""
    return Data(x=torch.randn(data.x.shape, generator=torch.Generator().manual_seed(seed)), edge_index=data.edge_index)


def molecules(count: int, seed: int = 0) -> list[Data]:
    """Return graphs of various sizes, those of molecules: 10 to 50 nodes."""
    sizes = torch.randint(10, 51, (count,), generator=torch.Generator().manual_seed(seed)).tolist()
    return [molecule(seed + number, size) for number, size in enumerate(sizes)]


def random_graph(num_nodes: int, num_edges: int, seed: int = 0) -> Data:
    """Return an undirected graph whose edges join random nodes."""
    ends = torch.randint(0, num_nodes, (2, num_edges // 2), generator=torch.Generator().manual_seed(seed))
    return _undirected(ends[0], ends[1], num_nodes, seed)


def explained(data: Data) -> Graphs:
    """Return a graph or a batch with the class that is explained."""
    count = getattr(data, "num_graphs", 1)
    return Graphs.of(data, torch.full((count,), EXPLAINED_CLASS))


def graph_model(gnn: str, hidden: int, seed: int = 0) -> Module:
    """Return a graph classifier of 3 layers with random weights, in evaluation mode."""
    torch.manual_seed(seed)
    model = GraphClassifier(cast(Any, gnn), NUM_FEATURES, hidden, 2)
    return with_statistics(model, sparse_graph(10_000, seed))


def node_model(num_features: int, num_classes: int, hidden: int, seed: int = 0) -> Module:
    """Return a GCN of 3 layers that classifies nodes, with random weights, in evaluation mode."""
    torch.manual_seed(seed)
    return NodeClassifier("gcn", num_features, hidden, num_classes).eval()


def with_statistics(model: Module, data: Data) -> Module:
    """Give batch norms the statistics of one pass over a graph, and return the model in evaluation mode."""
    norms = [module for module in model.modules() if isinstance(module, BatchNorm1d)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 1.0  # the statistics of this pass alone
    with torch.no_grad():
        model.train()(data.x, data.edge_index)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    return model.eval()


def _tree_with_rings(num_nodes: int, num_bonds: int, seed: int) -> Data:
    generator = torch.Generator().manual_seed(seed)
    child = torch.arange(1, num_nodes)
    # A new atom is bound to one of the four before it, so that degrees stay low.
    parent = (child - torch.randint(1, 5, child.shape, generator=generator)).clamp(min=0)
    span = min(RING, num_nodes - 1)
    start = torch.randint(0, num_nodes - span, (num_bonds - len(child),), generator=generator)
    return _undirected(torch.cat([parent, start]), torch.cat([child, start + span]), num_nodes, seed)


def _undirected(source: Tensor, target: Tensor, num_nodes: int, seed: int) -> Data:
    x = torch.randn(num_nodes, NUM_FEATURES, generator=torch.Generator().manual_seed(seed))
    edge_index = torch.stack([torch.cat([source, target]), torch.cat([target, source])])
    return Data(x=x, edge_index=edge_index)
