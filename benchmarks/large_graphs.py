"""One graph of any size with a known class, trees with motifs joined into one, and a small model for it.

A unit is a graph of BA-2Motifs, a tree of 20 nodes with a cycle or a house. Units are joined by single edges, and the
class of the whole is the motif that most of its units have. A model that was trained on graphs of some units tells it
for any number of them, because it averages over nodes.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Generator, Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.utils import to_undirected

from captum_goat.datasets import BASE_NODES, MOTIF_NODES, ba_2motifs
from captum_goat.models import GraphClassifier, TrainingResult, train_model

NODES_OF_UNIT = BASE_NODES + MOTIF_NODES
MOST_EDGES = 27  # of a unit: a tree, a house, the edge between them, and the edge to another unit
FEWEST_UNITS, MOST_UNITS = 4, 12  # of the graphs that a model is trained on
LEAST_SHARE = 0.6  # of units that have the motif of the class, in these graphs
SHARE = 0.7  # the same in a large graph
HIDDEN, LAYERS = 16, 3


def large_graph(num_edges: int, label: int = 1, share: float = SHARE, seed: int = 0) -> Data:
    """Return a graph with a given number of undirected edges.

    Args:
        num_edges: How many; at least those of one unit. Edges that make no unit go to leaves at random trees.
        label: The motif of most units: 0 for cycles, 1 for houses.
        share: How many of the units have it.
        seed: Where the random numbers start.

    Returns:
        The graph, with ``x``, ``edge_index`` (both directions) and ``y``.

    Examples::

        >>> from benchmarks.large_graphs import large_graph
        >>> large_graph(1000)
        Data(x=[939, 10], edge_index=[2, 2000], y=[1])
    """
    if num_edges < MOST_EDGES:
        raise ValueError(f"Expected {MOST_EDGES} edges or more, those of one unit (got {num_edges}).")
    labels = [label if _is_in(number, share) else 1 - label for number in range(num_edges // MOST_EDGES)]
    graph = _joined(_units(labels, seed), label, torch.Generator().manual_seed(seed))
    return _with_leaves(graph, num_edges - graph.num_edges // 2, torch.Generator().manual_seed(seed))


def training_graphs(count: int = 400, seed: int = 0) -> list[Data]:
    """Return small graphs of the same kind, half of them with most cycles, half with most houses."""
    generator = torch.Generator().manual_seed(seed)
    graphs = []
    for number in range(count):
        label, size = number % 2, int(torch.randint(FEWEST_UNITS, MOST_UNITS + 1, (1,), generator=generator))
        most = int(torch.randint(int(LEAST_SHARE * size) + 1, size + 1, (1,), generator=generator))
        labels = [label] * most + [1 - label] * (size - most)
        graphs.append(_joined(_units(labels, seed=seed * count + number), label, generator))
    return graphs


class Trained(NamedTuple):
    """A model in evaluation mode, in double precision, and how well it does on the small graphs."""

    model: GraphClassifier
    training: TrainingResult


def trained_model(seed: int = 0, epochs: int = 60, *, show_progress: bool = True) -> Trained:
    """Train a GIN on small graphs.

    Args:
        seed: Where the random numbers start: graphs, weights, training. The global random state stays as it was.
        epochs: How often to go through the graphs.
        show_progress: Whether to show a progress bar.

    Returns:
        The model. In double precision the part of one edge in ten thousand is not lost in rounding.
    """
    graphs = training_graphs(seed=seed)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        model = GraphClassifier("gin", graphs[0].num_features, HIDDEN, num_classes=2, num_layers=LAYERS)
    training = train_model(model, graphs, epochs=epochs, lr=0.005, seed=seed, show_progress=show_progress)
    return Trained(model.double().eval(), training)


def _is_in(number: int, share: float) -> bool:
    """Return whether a unit belongs to a share of units that is spread evenly."""
    return int((number + 1) * share + 1e-9) > int(number * share + 1e-9)


def _units(labels: list[int], seed: int) -> list[Data]:
    """Return units with the given motifs, in any order of them."""
    made = ba_2motifs(2 * len(labels), seed)
    by_label = {label: iter(made[label::2]) for label in (0, 1)}  # their classes take turns
    return [next(by_label[label]) for label in labels]


def _joined(units: list[Data], label: int, generator: Generator) -> Data:
    """Join every unit but the first to one before it, tree to tree, in a random order."""
    units = [units[place] for place in torch.randperm(len(units), generator=generator).tolist()]
    batch, later = Batch.from_data_list(units), torch.arange(1, len(units))
    earlier = (torch.rand(len(later), generator=generator) * later).long()
    joints = torch.stack([_in_trees(later, generator), _in_trees(earlier, generator)])
    edge_index = torch.cat([batch.edge_index, joints], dim=1)
    return Data(x=batch.x, edge_index=to_undirected(edge_index, num_nodes=len(batch.x)), y=torch.tensor([label]))


def _in_trees(units: Tensor, generator: Generator) -> Tensor:
    """Return a random node of the tree of each of these units."""
    return units * NODES_OF_UNIT + torch.randint(0, BASE_NODES, units.shape, generator=generator)


def _with_leaves(graph: Data, count: int, generator: Generator) -> Data:
    nodes, units = graph.num_nodes, graph.num_nodes // NODES_OF_UNIT
    stems = _in_trees(torch.randint(0, units, (count,), generator=generator), generator)
    leaves = torch.stack([stems, torch.arange(nodes, nodes + count)])
    edge_index = to_undirected(torch.cat([graph.edge_index, leaves], dim=1), num_nodes=nodes + count)
    return Data(x=graph.x[:1].expand(nodes + count, -1).clone(), edge_index=edge_index, y=graph.y)
