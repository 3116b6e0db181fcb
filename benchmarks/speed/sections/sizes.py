"""Time and memory of all methods on one graph, from a few edges to a million."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

from benchmarks.paper.progress import bar
from benchmarks.paper.tables import GNN_TITLES
from benchmarks.speed.exponents import FROM, exponent, last_exponent
from benchmarks.speed.figures import draw_curves
from benchmarks.speed.graphs import FAMILY_TITLES
from benchmarks.speed.methods import GOAT, METHODS
from benchmarks.speed.options import Options
from benchmarks.speed.results import Check, Row, Section
from benchmarks.speed.scaling import Growth, LeftOut
from benchmarks.speed.tables import EMPTY, megabytes, seconds, size, table, times

LARGEST_EXPONENT = 1.15
WORDS = {"seconds": "time", "peak_bytes": "peak memory"}


def measure(options: Options) -> Section:
    """Measure all methods on graphs of growing size."""
    rows, left_out = list[Row](), list[LeftOut]()
    cases = list(product(options.families, options.gnns))
    with bar("sizes", len(cases) * len(options.sizes), "size", options.progress) as progress:
        for family, gnn in cases:
            growth = Growth(options, family, gnn)
            for edges in options.sizes:
                growth.measure(edges)
                progress.update(1)
            rows += growth.rows
            left_out += growth.left_out
    pictures = {
        f"{words.capitalize()} of one call against the number of edges": draw_curves(
            rows, metric, options.folder / f"{metric}.png"
        )
        for metric, words in WORDS.items()
    }
    tables = [_tables(options, rows, *case) for case in cases]
    text = "\n\n".join(part for part in [_introduction(options), *tables, _reasons(left_out)] if part)
    checks = [_check(options, rows, *case, metric) for metric in WORDS for case in cases]
    return Section("Time and memory against the number of edges", text, rows, checks, pictures)


def _introduction(options: Options) -> str:
    return (
        f"One call on one graph with a graph-level output; 3 layers, {options.hidden} hidden channels. Times are "
        f"medians of up to {options.rounds} rounds in which the methods take turns, each with a new graph. A dash: one "
        f"call takes more than {options.budget:g} seconds (GOAt and the unit: {options.goat_budget:g}) or "
        f"{options.memory / 1e9:g} GB. Memory is what a new process has at most during its first call, beyond model "
        "and graph."
    )


def _tables(options: Options, rows: Sequence[Row], family: str, gnn: str) -> str:
    values = {(row.method, row.metric, row.edges): row.value for row in rows if (row.graphs, row.gnn) == (family, gnn)}
    parts = [f"### {GNN_TITLES[gnn]}, graphs {FAMILY_TITLES[family]}"]
    for metric, name, words in (
        ("seconds", "time", seconds),
        ("units", "units", times),
        ("peak_bytes", "memory", megabytes),
    ):
        lines = [
            [method.title, *(words(values.get((key, metric, edges))) for edges in options.sizes)]
            for key, method in METHODS.items()
        ]
        lines = [line for line in lines if set(line[1:]) != {EMPTY}]
        parts.append(table([f"{name} at edges", *map(size, options.sizes)], lines))
    return "\n\n".join(parts)


def _reasons(left_out: Sequence[LeftOut]) -> str:
    lines = [
        f"- {METHODS[entry.method].title}, {GNN_TITLES[entry.gnn]}, graphs {FAMILY_TITLES[entry.family]}, from "
        f"{size(entry.edges)} edges on: {entry.reason}"
        for entry in left_out
    ]
    return "\n".join(["Left out:", "", *lines]) if lines else ""


def _check(options: Options, rows: Sequence[Row], family: str, gnn: str, metric: str) -> Check:
    values = {
        row.edges: row.value
        for row in rows
        if (row.graphs, row.gnn, row.method, row.metric) == (family, gnn, GOAT, metric)
    }
    wanted, kept = [edges for edges in options.sizes if edges >= FROM], [edges for edges in values if edges >= FROM]
    fitted = exponent(values)
    note = f"needs two sizes of {size(FROM)} edges or more"
    if len(kept) > 1:
        note = f"from {size(kept[0])} to {size(kept[-1])} edges; between the last two {last_exponent(values):.2f}"
    if len(kept) < len(wanted):  # what was too large to be measured may not be linear
        note = f"larger graphs took too much; {note}" + (f", fitted {fitted:.2f}" if len(kept) > 1 else "")
        fitted = math.nan
    what = f"exponent of GOAt's {WORDS[metric]}, {GNN_TITLES[gnn]}, graphs {FAMILY_TITLES[family]}"
    return Check(what, fitted, LARGEST_EXPONENT, True, note=note)
