"""Where GOAt wins and where it loses, read off the table of results."""

from __future__ import annotations

import math
from typing import Literal

from captum_goat.benchmark.paper.results import REFERENCE, Row
from captum_goat.benchmark.paper.study import Results
from captum_goat.benchmark.paper.tables import EMPTY, markdown, number, title

DECISIVE = 2.0  # standard errors

Verdict = Literal["better", "alike", "worse"]


def verdict(row: Row) -> Verdict | None:
    """Say whether a method is better than GOAt: its paired difference is more than two standard errors away from 0.

    Args:
        row: A row of a metric of which more is better.

    Returns:
        What the method is; ``None`` if there is no paired difference.

    Examples::

        >>> from captum_goat.benchmark.paper.results import Row
        >>> from captum_goat.benchmark.paper.verdicts import verdict
        >>> what = ("nci1", "gin", "occlusion", "predicted", "all", "stay", "fixed", "", "area_gain")
        >>> verdict(Row(*what, value=0.5, error=0.1, n=9, difference=0.3, difference_error=0.1))
        'better'
    """
    if row.explainer == REFERENCE or math.isnan(row.difference) or math.isnan(row.difference_error):
        return None
    if abs(row.difference) <= DECISIVE * row.difference_error:
        return "alike"
    return "better" if row.difference > 0 else "worse"


def by_task(results: Results, nodes: str) -> str:
    """Return a table with the methods that are better than GOAt, alike and worse, for each data set and model."""
    lines = []
    for task in results.tasks():
        sides: dict[Verdict, list[str]] = {"better": [], "alike": [], "worse": []}
        for name in results.values("explainer"):
            row = results.get(*task, name, "area_gain", nodes=nodes, selection="fixed")
            found = None if row is None else verdict(row)
            if row is not None and found is not None:
                sides[found].append(f"`{name}` ({row.difference:+.3f})" if found == "better" else f"`{name}`")
        goat = results.get(*task, REFERENCE, "area_gain", nodes=nodes, selection="fixed")
        if goat is not None:
            lists = [", ".join(each) or EMPTY for each in sides.values()]
            lines.append([title(*task), number(goat.value), *lists])
    return markdown(["data set, model", "GOAt", "better than GOAt", "alike", "worse than GOAt"], lines)


def by_explainer(results: Results, nodes: str) -> str:
    """Return a table that counts, for each method, the tasks on which it is better than GOAt, alike and worse."""
    lines = []
    for name in results.values("explainer"):
        rows = [results.get(*task, name, "area_gain", nodes=nodes, selection="fixed") for task in results.tasks()]
        verdicts = [found for row in rows if row is not None and (found := verdict(row)) is not None]
        if verdicts:
            differences = [row.difference for row in rows if row is not None]
            counts = [str(verdicts.count(each)) for each in ("better", "alike", "worse")]
            lines.append([f"`{name}`", *counts, f"{sum(differences) / len(differences):+.3f}"])
    lines.sort(key=lambda line: -float(line[-1]))
    return markdown(["explainer", "better than GOAt", "alike", "worse than GOAt", "mean difference"], lines)


def in_words(results: Results, nodes: str) -> str:
    """Return one paragraph on who wins."""
    tasks = [
        task for task in results.tasks() if results.get(*task, REFERENCE, "area_gain", nodes=nodes, selection="fixed")
    ]
    beaten: dict[str, list[str]] = {}
    for task in tasks:
        for name in results.values("explainer"):
            row = results.get(*task, name, "area_gain", nodes=nodes, selection="fixed")
            if row is not None and verdict(row) == "better":
                beaten.setdefault(name, []).append(title(*task))
    first = len(tasks) - len({task for places in beaten.values() for task in places})
    text = f"On {first} of {len(tasks)} pairs of data set and model no method is better than GOAt."
    if beaten:
        ranked = sorted(beaten.items(), key=lambda each: -len(each[1]))
        text += " Better than GOAt are " + "; ".join(f"`{name}` on {len(places)}" for name, places in ranked) + "."
    return text
