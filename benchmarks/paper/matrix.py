"""The verdict matrix: explainers by criteria, each with a link to its figures."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean

from benchmarks.markdown_tables import markdown
from benchmarks.paper.measurements import PAPER_SPARSITY
from benchmarks.paper.results import REFERENCE
from benchmarks.paper.study import Results
from benchmarks.paper.verdicts import gains, judge, over_tasks, seconds_of
from benchmarks.sanity import PASSES
from captum_goat.compare.comparison import EMPTY, seconds

AT_PAPER_SPARSITY = {"nodes": "stay", "selection": "fixed", "sparsity": str(PAPER_SPARSITY)}


def verdict_matrix(results: Results, folder: Path) -> str:
    """Return the table of explainers by criteria; a criterion without any figure has no column.

    Args:
        results: The table of results.
        folder: The folder of the report. The figures of ``python -m benchmarks white_box``, ``sanity`` and
            ``in_distribution`` are taken from there, if these wrote into it.

    Returns:
        The table. Counts are tasks on which a method is better than GOAt, alike, or worse.
    """
    names = results.values("explainer")
    columns: dict[str, dict[str, str]] = {
        "[fidelity](benchmark/fidelity.md)": _counts(results, "area_gain", names),
        "[robust fidelity](benchmark/fidelity.md)": _counts(results, "robust_fidelity_plus", names),
        "[ground truth, AUC](benchmark/truth.md)": _counts(results, "ground_truth_auc", names),
        "[completeness error](benchmark/times.md)": _completeness(results, names),
        "[time per graph](benchmark/times.md)": {name: seconds(seconds_of(results, name)) for name in names},
        "[white-box AUC](white_box.md)": _white_box(folder),
    }
    for path in sorted(folder.glob("sanity_*.csv")):
        columns[f"[sanity, {_subject(path)}]({path.stem}.md)"] = _sanity(path)
    for path in sorted(folder.glob("in_distribution_*.csv")):
        columns[f"[EdgeRank, {_subject(path)}]({path.stem}.md)"] = _edge_rank(path)
    columns = {heading: cells for heading, cells in columns.items() if set(cells.values()) - {EMPTY}}
    lines = []
    for name in sorted(names, key=lambda name: name != REFERENCE):
        shown = f"**`{name}`**" if name == REFERENCE else f"`{name}`"
        lines.append([shown, *(cells.get(name, EMPTY) for cells in columns.values())])
    return markdown(["explainer", *columns], lines)


def _counts(results: Results, metric: str, names: Iterable[str]) -> dict[str, str]:
    """Return on how many tasks methods are better, alike and worse by a metric."""
    if metric == "area_gain":
        family = gains(results, "stay")
    else:
        where = AT_PAPER_SPARSITY if metric.startswith("robust") else {}
        rows = [results.get(*task, name, metric, **where) for task in results.tasks() for name in names]
        family = judge(row for row in rows if row is not None)
    return {name: over_tasks(family, name)[0] for name in names}


def _completeness(results: Results, names: Iterable[str]) -> dict[str, str]:
    cells = {}
    for name in names:
        rows = [results.get(*task, name, "largest_completeness_error") for task in results.tasks()]
        errors = [row.value for row in rows if row is not None and not math.isnan(row.value)]
        cells[name] = f"{max(errors):.0e}" if errors else EMPTY
    return cells


def _white_box(folder: Path) -> dict[str, str]:
    """Return the mean AUCs over rules, of each the mean over architectures."""
    if not (folder / "white_box.csv").is_file():
        return {}
    values: dict[str, dict[str, list[float]]] = {}
    for row in _read(folder / "white_box.csv"):
        values.setdefault(row["explainer"], {}).setdefault(row["case"], []).append(float(row["auc"]))
    return {name: f"{fmean(map(fmean, by_rule.values())):.2f}" for name, by_rule in values.items()}


def _sanity(path: Path) -> dict[str, str]:
    """Return how many checks were passed."""
    counts = {row["explainer"]: sum(passes(float(row[key])) for key, passes in PASSES.items()) for row in _read(path)}
    return {name: f"{count} of {len(PASSES)}" for name, count in counts.items()}


def _edge_rank(path: Path) -> dict[str, str]:
    """Return the means over seeds."""
    values: dict[str, list[float]] = {}
    for row in _read(path):
        if row["metric"] == "edge_rank":
            values.setdefault(row["explainer"], []).append(float(row["value"]))
    return {name: f"{fmean(numbers):.2f}" for name, numbers in values.items()}


def _subject(path: Path) -> str:
    """Return the dataset and the model in a file's name."""
    return " ".join(path.stem.removeprefix("sanity_").removeprefix("in_distribution_").rsplit("_", 1))


def _read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
