"""One node of a graph with millions of edges: time and memory should be those of its computation graph."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from functools import partial

import torch

from benchmarks.cost import NUM_FEATURES
from benchmarks.speed.graphs import node_model, random_graph
from benchmarks.speed.options import Options
from benchmarks.speed.results import Check, Row, Section
from benchmarks.speed.subprocess_timing import TooLargeError, call_apart
from benchmarks.speed.tables import megabytes, seconds, size, table
from captum_goat.nodes.explainer import NodeExplainer, explain_nodes

EDGES_PER_NODE = 10
NUM_CLASSES = 2
MOST_MEMORY = 4.0  # gigabytes
CALLS = 5  # of each kind
PATIENCE = 900.0  # seconds for everything
TITLES = ("first explain_nodes", "later ones", "NodeExplainer, made once", "its later nodes")


def measure(options: Options) -> Section:
    """Measure single nodes of the large graph, in a process of its own."""
    edges = EDGES_PER_NODE * options.large_nodes
    arguments = (options.large_nodes, options.hidden, options.seed)
    note = f"{size(options.large_nodes)} nodes, {size(edges)} edges"
    times, peak = [math.nan] * len(TITLES), math.nan
    try:
        measured = call_apart(
            prepare_calls, arguments, threads=options.threads, seconds=PATIENCE, memory=options.memory
        )
        times, peak = measured.result, measured.peak
    except TooLargeError as error:
        note += f"; {error}"
    rows = [
        Row("large", "random", "gcn", edges, title, "seconds", value)
        for title, value in zip(TITLES, times, strict=True)
    ]
    rows.append(Row("large", "random", "gcn", edges, "explain_nodes", "peak_bytes", peak))
    line = [note, *(seconds(time) for time in times), megabytes(peak)]
    text = table(["graph", *TITLES, "memory beyond the graph"], [line])
    check = Check("peak memory of one node in a large graph", peak / 1e9, MOST_MEMORY, True, "GB", note)
    return Section("One node of a large graph", f"{_introduction(options)}\n\n{text}", rows, [check])


def prepare_calls(num_nodes: int, hidden: int, seed: int) -> Callable[[], list[float]]:
    """Return a function that explains nodes of a large graph one by one and returns the seconds, in order of titles."""
    model = node_model(NUM_FEATURES, NUM_CLASSES, hidden, seed)
    explain_nodes(model, random_graph(100, 300, seed), nodes=[0])  # warms up
    data = random_graph(num_nodes, EDGES_PER_NODE * num_nodes, seed)
    nodes = torch.randint(0, num_nodes, (2, CALLS), generator=torch.Generator().manual_seed(seed)).tolist()

    def call() -> list[float]:
        first, *later = [_seconds(partial(explain_nodes, model, data, nodes=[node])) for node in nodes[0]]
        start = time.perf_counter()
        explainer = NodeExplainer(model, data)
        made = time.perf_counter() - start
        kept = [_seconds(partial(explainer, [node])) for node in nodes[1]]
        return [first, statistics.median(later), made, statistics.median(kept)]

    return call


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _introduction(options: Options) -> str:
    return (
        f"A 3-layer GCN with random weights and {options.hidden} hidden channels on an undirected random graph; random "
        f"nodes, one per call, in a process of their own. Later calls: the median of {CALLS - 1}, or {CALLS}. Memory "
        "is the most that the process had during all calls, beyond graph and model."
    )
