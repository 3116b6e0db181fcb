"""Graphs per second when a whole dataset is explained."""

from __future__ import annotations

import time
from collections.abc import Callable

from torch.nn import Module
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader

from benchmarks.datasets import load
from benchmarks.speed.graphs import explained, graph_model, molecules
from benchmarks.speed.methods import METHODS, UNIT
from benchmarks.speed.options import Options
from benchmarks.speed.ranks import seconds_of_ranks
from benchmarks.speed.results import Check, Row, Section
from benchmarks.speed.tables import seconds, table
from captum_goat.bulk import explain_dataset

GNN = "gin"
LEAST_PER_SECOND = 800.0
ROUNDS = 3


def measure(options: Options) -> Section:
    """Measure all graphs of Mutagenicity, or generated ones of the same number and similar size."""
    graphs, origin = _graphs(options)
    model = graph_model(GNN, options.hidden, options.seed)
    calls = {
        "goat": timed(lambda: _all(model, graphs, options.batch_size)),
        "unit": timed(_units(model, graphs, options.batch_size)),
    }
    if options.threads > 1:
        calls["ranks"] = lambda: seconds_of_ranks(
            model, GNN, options.hidden, graphs, ranks=options.threads, batch_size=options.batch_size
        )
    rounds: dict[str, list[float]] = {name: [] for name in calls}
    _all(model, graphs[: options.batch_size], options.batch_size)  # warms up
    for _ in range(min(ROUNDS, options.rounds)):
        for name, call in calls.items():
            rounds[name].append(call())
    best = {name: min(times) for name, times in rounds.items()}
    per_second = {name: len(graphs) / time_taken for name, time_taken in best.items()}
    rows = [Row("dataset", origin, GNN, 0, name, "graphs_per_second", value) for name, value in per_second.items()]
    titles = {
        "goat": f"`explain_dataset`, one process, {options.threads} thread(s)",
        "ranks": f"`python -m captum_goat explain`, {options.threads} processes of 1 thread",
        "unit": METHODS[UNIT].title,
    }
    lines = [[titles[name], seconds(best[name]), f"{per_second[name]:.0f}"] for name in calls]
    text = f"{_introduction(options, len(graphs), origin)}\n\n{table(['', 'all graphs', 'graphs per second'], lines)}"
    way = min(best.keys() - {"unit"}, key=lambda name: best[name])
    note = f"{titles[way]}: {len(graphs)} graphs in {best[way]:.2f} s; the unit: {per_second['unit']:.0f} graphs/s"
    check = Check("throughput, GIN, the better way", per_second[way], LEAST_PER_SECOND, False, "graphs/s", note)
    return Section("A whole dataset", text, rows, [check])


def timed(call: Callable[[], None]) -> Callable[[], float]:
    """Return a function that returns the seconds of one call."""

    def measured() -> float:
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    return measured


def _graphs(options: Options) -> tuple[list[Data], str]:
    if options.data is None:
        return molecules(options.molecules, options.seed), "generated molecules"
    graphs = load("mutagenicity", options.data, unpack_to=options.out / "cache" / "data").graphs
    return [Data(x=graph.x, edge_index=graph.edge_index) for graph in graphs[: options.molecules]], "Mutagenicity"


def _all(model: Module, graphs: list[Data], batch_size: int) -> None:
    explain_dataset(model, graphs, batch_size=batch_size, show_progress=False)


def _units(model: Module, graphs: list[Data], batch_size: int) -> Callable[[], None]:
    unit = METHODS[UNIT].prepare(model)

    def call() -> None:
        batch: Batch
        for batch in DataLoader(graphs, batch_size=batch_size):
            unit(explained(batch))

    return call


def _introduction(options: Options, count: int, origin: str) -> str:
    return (
        f"{count} graphs ({origin}), a 3-layer GIN with random weights and {options.hidden} hidden channels, batches "
        f"of {options.batch_size}. Making batches of the graphs is part of all times, and writing files is part of the "
        f"command's; the best of {min(ROUNDS, options.rounds)} rounds in which they take turns."
    )
