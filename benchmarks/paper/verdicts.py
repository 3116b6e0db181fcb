"""Verdicts: where GOAt wins and where it loses, from the table of results."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean, median

from benchmarks.markdown_tables import markdown
from benchmarks.paper.results import ALL, REFERENCE, Row
from benchmarks.paper.study import Results
from benchmarks.paper.tables import title
from captum_goat.compare import measures
from captum_goat.compare.comparison import EMPTY, number, seconds, signed
from captum_goat.compare.measures import Verdict

VERDICTS: tuple[Verdict, ...] = ("better", "alike", "worse")


def verdict(row: Row) -> Verdict | None:
    """Say whether a method is better than GOAt: its paired difference is more than two standard errors away from 0.

    Args:
        row: A row of a metric of which more is better.

    Returns:
        What the method is; ``None`` if there is no paired difference.

    Examples::

        >>> from benchmarks.paper.results import Row
        >>> from benchmarks.paper.verdicts import verdict
        >>> what = ("nci1", "gin", "occlusion", "predicted", "all", "stay", "fixed", "", "area_gain")
        >>> verdict(Row(*what, value=0.5, error=0.1, n=9, difference=0.3, difference_error=0.1))
        'better'
    """
    if row.explainer == REFERENCE:
        return None
    return measures.verdict("area_gain", row.difference, row.difference_error) or None


def _gain(results: Results, task: tuple[str, str], name: str, nodes: str, label: str = ALL) -> Row | None:
    return results.get(*task, name, "area_gain", nodes=nodes, selection="fixed", label=label)


def _judged(
    results: Results, task: tuple[str, str], names: Iterable[str], nodes: str, label: str = ALL
) -> list[tuple[Row, Verdict]]:
    """Return the rows of explainers on a task that have a verdict, with it."""
    rows = [_gain(results, task, name, nodes, label) for name in names]
    return [(row, judgement) for row in rows if row is not None and (judgement := verdict(row)) is not None]


def _counts(judgements: Sequence[Verdict]) -> str:
    return " / ".join(str(judgements.count(judgement)) for judgement in VERDICTS)


def by_task(results: Results, nodes: str) -> str:
    """Return a table with the methods that are better than GOAt, alike and worse, for each dataset and model."""
    lines = []
    for task in results.tasks():
        sides: dict[Verdict, list[str]] = {judgement: [] for judgement in VERDICTS}
        for row, judgement in _judged(results, task, results.values("explainer"), nodes):
            name = f"`{row.explainer}`"
            sides[judgement].append(f"{name} ({row.difference:+.3f})" if judgement == "better" else name)
        goat = _gain(results, task, REFERENCE, nodes)
        if goat is not None:
            lists = [", ".join(names) or EMPTY for names in sides.values()]
            lines.append([title(*task), number(goat.value), *lists])
    return markdown(["dataset, model", "GOAt", "better than GOAt", "alike", "worse than GOAt"], lines)


def best_by_task(results: Results, nodes: str, *, per_class: bool = False) -> str:
    """Return a table with the best of the methods that are better than GOAt, for each dataset and model.

    Args:
        results: The table of results.
        nodes: What becomes of nodes without edges.
        per_class: Whether each predicted class has a line of its own.

    Returns:
        GOAt's value, its place among the methods that explained as many graphs, how many methods are better, alike and
        worse, and the one with the largest paired difference among those that are better.
    """
    lines = []
    for task in results.tasks():
        for label in _labels(results, task) if per_class else [ALL]:
            goat = _gain(results, task, REFERENCE, nodes, label)
            judged = _judged(results, task, results.values("explainer"), nodes, label)
            if goat is not None and judged:
                better = [row for row, judgement in judged if judgement == "better"]
                best = max(better, key=lambda row: row.difference, default=None)
                counts = _counts([judgement for _, judgement in judged])
                values = [row.value for row, _ in judged if row.n == goat.n]
                place = f"{1 + sum(value > goat.value for value in values)} of {1 + len(values)}"
                name = title(*task) if label == ALL else f"{title(*task)}, class {label}"
                shown = "" if best is None else f"`{best.explainer}` ({signed(best.difference, best.difference_error)})"
                lines.append([name, number(goat.value), place, counts, shown or "none is better"])
    header = ["dataset, model", "GOAt", "its place", "better / alike / worse", "best against GOAt"]
    return markdown(header, lines)


def _labels(results: Results, task: tuple[str, str]) -> list[str]:
    """Return the predicted classes of a task."""
    return sorted({row.label for row in results.rows if (row.dataset, row.gnn) == task} - {ALL})


def by_explainer(results: Results, policies: Sequence[str]) -> str:
    """Return a table that counts, for each method, the tasks on which it is better than GOAt, alike and worse.

    Args:
        results: The table of results.
        policies: What becomes of nodes without edges, two columns for each.

    Returns:
        The counts, and the mean differences over tasks, by which methods are ordered; the median seconds per graph of
        tasks, in batches where a method can do that.
    """
    lines: list[tuple[float, list[str]]] = []
    for name in results.values("explainer"):
        columns = [_over_tasks(results, name, nodes) for nodes in policies]
        cells = [text for counts, mean in columns for text in (counts, EMPTY if mean is None else f"{mean:+.3f}")]
        if name == REFERENCE or set(cells) != {EMPTY}:
            shown = f"**`{name}`**" if name == REFERENCE else f"`{name}`"
            lines.append((-(columns[0][1] or 0.0), [shown, *cells, seconds(_seconds(results, name))]))
    titles = [text for nodes in policies for text in (f"better / alike / worse, nodes {nodes}", "mean difference")]
    return markdown(["explainer", *titles, "time per graph"], [line for _, line in sorted(lines)])


def _over_tasks(results: Results, name: str, nodes: str) -> tuple[str, float | None]:
    """Return on how many tasks a method is better, alike and worse, and its mean difference."""
    judged = [pair for task in results.tasks() for pair in _judged(results, task, [name], nodes)]
    if not judged:
        return EMPTY, None
    return _counts([judgement for _, judgement in judged]), fmean(row.difference for row, _ in judged)


def _seconds(results: Results, name: str) -> float | None:
    """Return the median over tasks of the seconds per graph, in batches if a method can do that."""
    times = [
        results.get(*task, name, "seconds_in_batch") or results.get(*task, name, "seconds_alone")
        for task in results.tasks()
    ]
    return median([row.value for row in times if row is not None] or [math.nan])


def in_words(results: Results, nodes: str) -> str:
    """Return one paragraph on who wins."""
    judged = {task: _judged(results, task, results.values("explainer"), nodes) for task in results.tasks()}
    tasks = [task for task, pairs in judged.items() if pairs]
    if not tasks:
        return "There is nothing to compare with GOAt."
    beaten: dict[str, list[tuple[str, str]]] = {}
    for task in tasks:
        for row, judgement in judged[task]:
            if judgement == "better":
                beaten.setdefault(row.explainer, []).append(task)
    first = len(tasks) - len({task for places in beaten.values() for task in places})
    text = f"On {first} of {len(tasks)} pairs of dataset and model no method is better than GOAt."
    if beaten:
        ranked = sorted(beaten.items(), key=lambda item: -len(item[1]))
        text += " Better than GOAt are " + "; ".join(f"`{name}` on {len(places)}" for name, places in ranked) + "."
    return text
