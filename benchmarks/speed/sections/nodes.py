"""All nodes of one graph at once, beside single calls of ``attribute``."""

from __future__ import annotations

import statistics
import time
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Data

from benchmarks.datasets import load
from benchmarks.paper_models import PAPER_SETTINGS
from benchmarks.speed.graphs import node_model
from benchmarks.speed.options import Options
from benchmarks.speed.results import Check, Row, Section
from benchmarks.speed.tables import seconds, table
from captum_goat import GOAtAttribution
from captum_goat.nodes.explainer import explain_nodes

LEAST_SPEED_UP, LARGEST_DIFFERENCE = 20.0, 1e-6
ROUNDS = 3
NUM_CLASSES = 4
HIDDEN = PAPER_SETTINGS["ba_shapes", "gcn"].hidden_channels


class Round(NamedTuple):
    """One call for all nodes, and some single calls.

    Attributes:
        together: The seconds of the call for all nodes.
        alone: The seconds that single calls would take for all nodes, by those that were made.
        difference: The largest difference of their results.
    """

    together: float
    alone: float
    difference: float


def measure(options: Options) -> Section:
    """Measure all nodes of BA-Shapes."""
    data = load("ba_shapes", options.data).graphs[0]
    model = node_model(data.num_features, NUM_CLASSES, HIDDEN, options.seed)
    count = int(data.num_nodes)
    chosen = torch.linspace(0, count - 1, min(options.single_calls, count)).long()
    _round(model, data, chosen[:2])  # warms up
    rounds = [_round(model, data, nodes) for nodes in chosen.chunk(min(ROUNDS, options.rounds))]
    together, alone = (statistics.median(times) for times in list(zip(*rounds, strict=True))[:2])
    speed_up = statistics.median(one_round.alone / one_round.together for one_round in rounds)
    difference = max(one_round.difference for one_round in rounds)
    seconds_of = {"explain_nodes": together, "goat": alone}
    rows = [
        Row("nodes", "ba_shapes", "gcn", data.num_edges, name, "seconds", value) for name, value in seconds_of.items()
    ]
    rows.append(Row("nodes", "ba_shapes", "gcn", data.num_edges, "explain_nodes", "largest_difference", difference))
    note = f"{len(chosen)} single calls, scaled to {count}"
    checks = [
        Check(f"speed-up of explain_nodes, {count} nodes", speed_up, LEAST_SPEED_UP, False, note=note),
        Check("largest difference of explain_nodes and attribute", difference, LARGEST_DIFFERENCE, True),
    ]
    titles = ("`explain_nodes`", f"`attribute`, {note}")
    lines = [
        [title, seconds(value), seconds(value / count)]
        for title, value in zip(titles, seconds_of.values(), strict=True)
    ]
    text = f"{_introduction(options)}\n\n{table(['', 'all nodes', 'per node'], lines)}"
    return Section("All nodes of one graph", text, rows, checks)


def _round(model: Module, data: Data, nodes: Tensor) -> Round:
    """Explain all nodes at once, and some of them one by one."""
    start = time.perf_counter()
    attributions_of_nodes = explain_nodes(model, data)
    together = time.perf_counter() - start
    assert attributions_of_nodes.targets is not None
    single, mask, alone, difference = GOAtAttribution(model), torch.ones(data.num_edges), 0.0, 0.0
    for node in nodes.tolist():
        target, inputs = (node, int(attributions_of_nodes.targets[node])), (data.x, data.edge_index)
        start = time.perf_counter()
        attributions = single.attribute(mask, target=target, additional_forward_args=inputs)
        alone += time.perf_counter() - start
        difference = max(difference, float((attributions - attributions_of_nodes.edge_mask(node)).abs().max()))
    return Round(together, alone * len(attributions_of_nodes) / len(nodes), difference)


def _introduction(options: Options) -> str:
    return (
        f"BA-Shapes, a 3-layer GCN with random weights and {HIDDEN} hidden channels, the predicted classes. "
        "The nodes of the single calls are spread over the graph; single calls and calls for all nodes take turns."
    )
