"""Verdicts: where GOAt wins and where it loses, from the table of results."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import Literal, TypeAlias

from scipy.stats import t as student

from benchmarks.markdown_tables import markdown
from benchmarks.paper.results import ALL, REFERENCE, Row
from benchmarks.paper.study import Results
from benchmarks.paper.tables import title
from captum_goat.compare.comparison import EMPTY, number, seconds, signed

Verdict: TypeAlias = Literal["better", "alike", "worse"]
Family: TypeAlias = Mapping[Row, Verdict]  # of comparisons that are corrected together
VERDICTS: tuple[Verdict, ...] = ("better", "alike", "worse")
SIGNIFICANT = 0.05  # of p-values after Holm's correction
TINY = 0.0005  # smaller than what three digits show


def p_value(row: Row) -> float:
    """Return the p-value of a paired difference against GOAt, by Student's t-test on both sides.

    Args:
        row: A row of the table; nan if it has no paired difference.

    Examples::

        >>> from benchmarks.paper.results import Row
        >>> from benchmarks.paper.verdicts import p_value
        >>> what = ("nci1", "gin", "occlusion", "predicted", "all", "stay", "fixed", "", "area_gain")
        >>> round(p_value(Row(*what, value=0.5, error=0.1, n=9, difference=0.3, difference_error=0.1)), 4)
        0.0171
    """
    if math.isnan(row.difference) or math.isnan(row.difference_error) or row.n < 2:
        return math.nan
    if row.difference_error == 0.0:
        return 0.0 if row.difference else 1.0
    return float(2.0 * student.sf(abs(row.difference / row.difference_error), row.n - 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values after Holm's correction for as many comparisons as there are p-values.

    The smallest is multiplied by their number, the next by one less, and so on; none becomes smaller than one before
    it. If all below 0.05 are called differences, there is no false one among them with a probability of 95 %.

    Examples::

        >>> from benchmarks.paper.verdicts import holm
        >>> holm([0.03, 0.01, 0.04])
        [0.06, 0.03, 0.06]
    """
    corrected, largest = [0.0] * len(p_values), 0.0
    for place, index in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        largest = max(largest, min(1.0, (len(p_values) - place) * p_values[index]))
        corrected[index] = largest
    return corrected


def judge(rows: Iterable[Row]) -> Family:
    """Return which rows are better than GOAt, alike or worse, corrected for the number of these rows.

    Args:
        rows: Rows of metrics of which more is better. Those without a paired difference have no verdict.

    Examples::

        >>> from benchmarks.paper.results import Row
        >>> from benchmarks.paper.verdicts import judge
        >>> what = ("nci1", "gin", "occlusion", "predicted", "all", "stay", "fixed", "", "area_gain")
        >>> row = Row(*what, value=0.5, error=0.1, n=9, difference=0.3, difference_error=0.1)
        >>> list(judge([row]).values())
        ['better']
    """
    compared = {row: p_value(row) for row in rows if row.explainer != REFERENCE}
    compared = {row: value for row, value in compared.items() if not math.isnan(value)}
    family: dict[Row, Verdict] = {}
    for row, corrected in zip(compared, holm(list(compared.values())), strict=True):
        decided = corrected < SIGNIFICANT and abs(row.difference) > TINY
        family[row] = "alike" if not decided else "better" if row.difference > 0 else "worse"
    return family


def _gain(results: Results, task: tuple[str, str], name: str, nodes: str, label: str = ALL) -> Row | None:
    return results.get(*task, name, "area_gain", nodes=nodes, selection="fixed", label=label)


def gains(results: Results, nodes: str, *, per_class: bool = False) -> Family:
    """Return the verdicts on fidelity: all tasks and explainers, or also all classes, are one family."""
    rows = []
    for task in results.tasks():
        for label in labels_of(results, task) if per_class else [ALL]:
            rows += [_gain(results, task, name, nodes, label) for name in results.values("explainer")]
    return judge(row for row in rows if row is not None)


def _judged(family: Family, task: tuple[str, str], label: str = ALL) -> list[tuple[Row, Verdict]]:
    """Return the rows of explainers on a task that have a verdict, with it."""
    return [(row, verdict) for row, verdict in family.items() if (row.dataset, row.gnn, row.label) == (*task, label)]


def _counts(judgements: Sequence[Verdict]) -> str:
    return " / ".join(str(judgements.count(judgement)) for judgement in VERDICTS)


def by_task(results: Results, nodes: str) -> str:
    """Return a table with the methods that are better than GOAt, alike and worse, for each dataset and model."""
    lines, family = [], gains(results, nodes)
    for task in results.tasks():
        sides: dict[Verdict, list[str]] = {judgement: [] for judgement in VERDICTS}
        for row, judgement in _judged(family, task):
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
    lines, family = [], gains(results, nodes, per_class=per_class)
    for task in results.tasks():
        for label in labels_of(results, task) if per_class else [ALL]:
            goat = _gain(results, task, REFERENCE, nodes, label)
            judged = _judged(family, task, label)
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


def labels_of(results: Results, task: tuple[str, str]) -> list[str]:
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
    families = [gains(results, nodes) for nodes in policies]
    for name in results.values("explainer"):
        columns = [over_tasks(family, name) for family in families]
        cells = [text for counts, mean in columns for text in (counts, EMPTY if mean is None else f"{mean:+.3f}")]
        if name == REFERENCE or set(cells) != {EMPTY}:
            shown = f"**`{name}`**" if name == REFERENCE else f"`{name}`"
            lines.append((-(columns[0][1] or 0.0), [shown, *cells, seconds(seconds_of(results, name))]))
    titles = [text for nodes in policies for text in (f"better / alike / worse, nodes {nodes}", "mean difference")]
    return markdown(["explainer", *titles, "time per graph"], [line for _, line in sorted(lines)])


def over_tasks(family: Family, name: str) -> tuple[str, float | None]:
    """Return on how many tasks a method is better, alike and worse, and its mean difference."""
    judged = [(row, verdict) for row, verdict in family.items() if row.explainer == name]
    if not judged:
        return EMPTY, None
    return _counts([verdict for _, verdict in judged]), fmean(row.difference for row, _ in judged)


def seconds_of(results: Results, name: str) -> float | None:
    """Return the median over tasks of the seconds per graph, in batches if a method can do that."""
    times = [
        results.get(*task, name, "seconds_in_batch") or results.get(*task, name, "seconds_alone")
        for task in results.tasks()
    ]
    return median([row.value for row in times if row is not None] or [math.nan])


def in_words(results: Results, nodes: str) -> str:
    """Return one paragraph on who wins."""
    family = gains(results, nodes)
    judged = {task: _judged(family, task) for task in results.tasks()}
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
