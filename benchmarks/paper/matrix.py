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

PAGES = "benchmark"  # the folder of the report's pages
AT_PAPER_SPARSITY = {"nodes": "stay", "selection": "fixed", "sparsity": str(PAPER_SPARSITY)}
EXPLANATION = """\
- *fidelity*, *robust fidelity* and *motif AUC* count pairs of dataset and model on which a method is better than GOAt /
  alike / worse, after Holm's correction for all comparisons of a column; nodes without edges stay.
- *white-box AUC* is how well scores find the edges that matter to weights set by hand, *sanity* how many checks are
  passed, *EdgeRank* the fidelity of a model that was fine-tuned on reduced graphs (in-distribution fidelity; random
  removal scores high, too: see "True to the model").
- *stability* is the share of graphs of a class that have its most frequent explanation, a mean over datasets of graphs,
  models and classes, the same number of edges for every method.
- *adds up to* is the largest completeness error of methods that claim to add up; *time* is the median over datasets and
  models of the time per graph, in batches where a method can do that.

Every figure links to the page that it is from."""


def verdict_matrix(results: Results, folder: Path) -> str:
    """Return the table of explainers by criteria; a criterion without any figure has no column.

    Args:
        results: The table of results.
        folder: The folder of the report. The figures of ``python -m benchmarks white_box``, ``sanity`` and
            ``in_distribution`` are taken from there or from the folder of its pages, if these wrote into it.

    Returns:
        The table. Counts are tasks on which a method is better than GOAt, alike, or worse.
    """
    names = results.values("explainer")
    columns: dict[str, tuple[str, dict[str, str]]] = {  # the page, and the cells
        "fidelity": (f"{PAGES}/fidelity.md", _counts(results, "area_gain", names)),
        "robust fidelity": (f"{PAGES}/fidelity.md", _counts(results, "robust_fidelity_plus", names)),
        "motif AUC": (f"{PAGES}/truth.md", _counts(results, "ground_truth_auc", names)),
    }
    for path in _files(folder, "white_box.csv"):
        columns["white-box AUC"] = (_page(folder, path), _white_box(path))
    for heading, pattern, cells_of in (
        ("sanity", "sanity_*.csv", _sanity),
        ("EdgeRank", "in_distribution_*.csv", _edge_rank),
    ):
        paths = _files(folder, pattern)
        for path in paths:
            subject = "" if len(paths) == 1 else f", {_subject(path)}"
            columns[f"{heading}{subject}"] = (_page(folder, path), cells_of(path))
    columns["stability"] = (f"{PAGES}/stability.md", _stability(results, names))
    columns["adds up to"] = (f"{PAGES}/times.md", _completeness(results, names))
    columns["time"] = (f"{PAGES}/times.md", {name: seconds(seconds_of(results, name)) for name in names})
    columns = {heading: column for heading, column in columns.items() if set(column[1].values()) - {EMPTY}}
    lines = []
    for name in sorted(names, key=lambda name: name != REFERENCE):
        cells = [(cells.get(name, EMPTY), page) for page, cells in columns.values()]
        shown = f"**`{name}`**" if name == REFERENCE else f"`{name}`"
        lines.append([shown, *(text if text == EMPTY else f"[{text}]({page})" for text, page in cells)])
    return markdown(["explainer", *columns], lines)


def _files(folder: Path, pattern: str) -> list[Path]:
    """Return files in the folder of pages, or else in that of the report."""
    return sorted((folder / PAGES).glob(pattern)) or sorted(folder.glob(pattern))


def _page(folder: Path, path: Path) -> str:
    return path.with_suffix(".md").relative_to(folder).as_posix()


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


def _stability(results: Results, names: Iterable[str]) -> dict[str, str]:
    """Return the mean shares of graphs that have the most frequent explanation of their class."""
    shares: dict[str, list[float]] = {}
    for row in results.rows:
        if (row.metric, row.protocol, row.selection) == ("top1_coverage", "correct", "fixed"):
            shares.setdefault(row.explainer, []).append(row.value)
    return {name: f"{100 * fmean(shares[name]):.0f} %" if name in shares else EMPTY for name in names}


def _white_box(path: Path) -> dict[str, str]:
    """Return the mean AUCs over rules, of each the mean over architectures."""
    values: dict[str, dict[str, list[float]]] = {}
    for row in _read(path):
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
