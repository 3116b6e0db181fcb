"""What an attribution of a batch costs in units, and what they are spent on."""

from __future__ import annotations

import statistics
from functools import cache, partial
from typing import NamedTuple

from torch_geometric.data import Data

from benchmarks.cost import molecule_batch
from benchmarks.paper.tables import GNN_TITLES
from benchmarks.speed.graphs import EXPLAINED_CLASS, graph_model
from benchmarks.speed.methods import CHEAP_UNIT, GOAT, METHODS, UNIT, Explain
from benchmarks.speed.options import Options
from benchmarks.speed.results import Check, Row, Section
from benchmarks.speed.rounds import in_turn
from benchmarks.speed.split import split_time
from benchmarks.speed.tables import seconds, table
from captum_goat.compare.graphs import Graphs

MOST_UNITS = {"gcn": 7.0, "sage": 7.0, "gin": 9.5}


class Share(NamedTuple):
    """The units and calls of one part of the work."""

    units: float
    calls: int

    def __str__(self) -> str:
        return f"{self.units:.2f} ({self.calls} calls)" if self.calls > 1 else f"{self.units:.2f}"


def measure(options: Options) -> Section:
    """Measure batches of molecule-sized graphs, a new batch in every round."""

    @cache
    def batch_of(number: int) -> Graphs:
        return _batch(options.batch_size, options.seed + number)

    rows, checks, lines = list[Row](), list[Check](), list[list[str]]()
    shares: dict[str, dict[str, Share]] = {}
    for gnn in options.gnns:
        model = graph_model(gnn, options.hidden, options.seed)
        explain = {name: METHODS[name].prepare(model) for name in (GOAT, UNIT, CHEAP_UNIT)}
        times = in_turn(explain, batch_of, options.rounds)
        edges = batch_of(1).num_edges
        for name in explain:
            rows.append(Row("batches", "molecules", gnn, edges, name, "seconds", times.median(name)))
            rows.append(Row("batches", "molecules", gnn, edges, name, "units", times.ratio(name, UNIT)))
        units, cheap = times.ratio(GOAT, UNIT), times.ratio(GOAT, CHEAP_UNIT)
        shares[gnn] = _spent(explain[GOAT], [batch_of(number) for number in range(1, options.rounds + 1)], units)
        rows += [
            Row("batches", "molecules", gnn, edges, part, "units", share.units) for part, share in shares[gnn].items()
        ]
        what = f"units of `attribute`, {GNN_TITLES[gnn]}, {options.batch_size} graphs"
        checks.append(Check(what, units, MOST_UNITS[gnn], True, "units", f"{cheap:.1f} passes with PyG's own mask"))
        medians = [seconds(times.median(name)) for name in (UNIT, CHEAP_UNIT, GOAT)]
        lines.append([GNN_TITLES[gnn], *medians, f"{units:.1f}", f"{cheap:.1f}"])
    header = ["model", "unit", "pass with PyG's mask", "GOAt", "GOAt in units", "in passes with PyG's mask"]
    text = "\n\n".join([_introduction(options), table(header, lines), "The units are spent on:", _spent_table(shares)])
    return Section(f"Batches of {options.batch_size} molecule-sized graphs", text, rows, checks)


def _batch(count: int, seed: int) -> Graphs:
    x, edge_index, batch = molecule_batch(count, seed)
    return Graphs.of(Data(x=x, edge_index=edge_index, batch=batch), EXPLAINED_CLASS)


def _introduction(options: Options) -> str:
    return (
        "A unit is one forward and backward pass over the same batch through `EdgeMaskedModel`, with the gradient with "
        "respect to the edge mask; beside it stands the same with PyG's own edge mask, which follows no edges. Medians "
        f"of {options.rounds} rounds, each with a new batch; ratios are taken within a round."
    )


def _spent(goat: Explain, batches: list[Graphs], units: float) -> dict[str, Share]:
    """Return how many units each part of the work takes: its share of GOAt's time, of GOAt's units."""
    watches = [split_time(partial(goat, batch)) for batch in batches]
    shares_of_parts = {}
    for part in watches[0].seconds:
        shares = (watch.seconds[part] / sum(watch.seconds.values()) for watch in watches)
        calls = watches[0].calls.get(part, 0) if part.startswith("replays") else 1
        shares_of_parts[part] = Share(units * statistics.median(shares), calls)
    return shares_of_parts


def _spent_table(shares: dict[str, dict[str, Share]]) -> str:
    parts = list(next(iter(shares.values())))
    lines = [[part, *(str(by_part[part]) for by_part in shares.values())] for part in parts]
    return table(["part of the work", *(GNN_TITLES[gnn] for gnn in shares)], lines)
