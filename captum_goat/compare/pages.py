"""A comparison in words and tables, in Markdown."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from captum_goat.compare.formatting import EMPTY, markdown, number, seconds, signed
from captum_goat.compare.rows import ComparisonRow

if TYPE_CHECKING:
    from captum_goat.compare.comparison import Comparison

LEAST_SECONDS = 0.01  # of fitting: less is nothing
LEGEND = """fid+: how far the probability of the class drops without the edges with the highest scores (more is better).
fid-: how far it drops if only these edges are left (less is better). Gain: fid+ minus fid-. All are means over the
sparsities, the shares of edges that are not among the highest. Better, worse: on the same graphs, the gain differs from
the reference's by more than two standard errors. Robust gain: the same if only a few random edges of those are removed.
Characterization: the harmonic mean of fid+ and 1 - fid-. AUC: how well scores tell the true edges from the others.
Infidelity: how badly scores foretell what the loss of random messages does to the logit, in the unit that fits best
(less is better). Completeness error: how far scores that claim to add up to the logit are from it, at most."""


def text(comparison: Comparison) -> str:
    """Return a comparison as it is printed, the best gain first."""
    names = _ranked(comparison)
    parts = [_title(comparison)]
    if names:
        parts += [_fidelities(comparison, names), _others(comparison, names)]
    reasons = [f"`{name}`: {reason}" for name, reason in comparison.skipped.items()]
    if reasons:
        parts.append("Skipped:\n\n" + "\n".join(f"- {each}" for each in reasons))
    failures = [f"`{name}`: {type(error).__name__}: {_one_line(error)}" for name, error in comparison.failed.items()]
    if failures:
        parts.append("Failed:\n\n" + "\n".join(f"- {each}" for each in failures))
    return "\n\n".join([*parts, *comparison.notes])


def page(comparison: Comparison, picture: str | None) -> str:
    """Return a comparison as a page, with a link to the picture of its curves."""
    parts = ["# Explainers compared", text(comparison), LEGEND]
    if picture is not None:
        parts.append(f"![fid+ and fid- over sparsities]({picture})")
    return "\n\n".join(parts) + "\n"


def _title(comparison: Comparison) -> str:
    sparsities, nodes = comparison.sparsities, comparison.node_policy
    return (
        f"{len(comparison.scores)} explainer(s) on {comparison.num_graphs} graph(s), sparsities from {sparsities[0]:g} "
        f"to {sparsities[-1]:g}. Edges are removed, as many for every explainer; nodes without edges {nodes}."
    )


def _ranked(comparison: Comparison) -> list[str]:
    def gain(name: str) -> float:
        row = comparison.get(name, "area_gain")
        return -math.inf if row is None else row.value

    return sorted(comparison.scores, key=gain, reverse=True)


def _fidelities(comparison: Comparison, names: Sequence[str]) -> str:
    """Return the table of fidelities, with the differences of gains."""
    reference = comparison.reference
    header = ["explainer", "fid+", "fid-", "gain"]
    if reference is not None:
        header += [f"gain - `{reference}`'s", "verdict"]
    lines = []
    for name in names:
        rows = [comparison.get(name, metric) for metric in ("area_plus", "area_minus", "area_gain")]
        line = [f"`{name}`", *(number(None if row is None else row.value) for row in rows)]
        if reference is not None:
            line += [_difference(rows[-1]), (rows[-1].verdict if rows[-1] is not None else "") or EMPTY]
        lines.append([*line, str(len(comparison.scores[name]))])
    return _aligned(markdown([*header, "graphs"], lines))


def _difference(row: ComparisonRow | None) -> str:
    return EMPTY if row is None else signed(row.difference, row.difference_error)


def _others(comparison: Comparison, names: Sequence[str]) -> str:
    """Return the table of everything else; columns without any number are left out."""
    columns = {
        "robust gain": [_value(comparison, name, "robust_gain", number) for name in names],
        "characterization": [_value(comparison, name, "characterization_score", number) for name in names],
        "AUC": [_value(comparison, name, "ground_truth_auc", number) for name in names],
        "infidelity": [_value(comparison, name, "infidelity", _significant) for name in names],
        "completeness error": [_value(comparison, name, "largest_completeness_error", _significant) for name in names],
        "time alone": [_value(comparison, name, "seconds_alone", seconds) for name in names],
        "in batches": [_value(comparison, name, "seconds_in_batch", seconds) for name in names],
        "to fit": [_value(comparison, name, "seconds_to_fit", _seconds_if_any) for name in names],
    }
    shown = {title: cells for title, cells in columns.items() if any(each != EMPTY for each in cells)}
    lines = [[f"`{name}`", *cells] for name, *cells in zip(names, *shown.values(), strict=True)]
    return _aligned(markdown(["explainer", *shown], lines))


def _value(comparison: Comparison, name: str, metric: str, shown: Callable[[float], str]) -> str:
    row = comparison.get(name, metric)
    return EMPTY if row is None else shown(row.value)


def _significant(value: float) -> str:
    return f"{value:.2g}"


def _seconds_if_any(value: float) -> str:
    return seconds(value) if value >= LEAST_SECONDS else EMPTY


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def _aligned(table: str) -> str:
    """Fill the cells of a table in Markdown up to the width of their columns, so that it is readable as it stands."""
    lines = [line.strip("|").split("|") for line in table.splitlines()]
    cells = [[cell.strip() for cell in line] for line in lines]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    right = [rule.endswith(":") for rule in cells[1]]
    filled = []
    for place, line in enumerate(cells):
        columns = list(zip(line, widths, right, strict=True))
        if place == 1:
            filled.append("|" + "|".join("-" * (width + 1) + (":" if end else "-") for _, width, end in columns) + "|")
        else:
            filled.append("| " + " | ".join(c.rjust(w) if end else c.ljust(w) for c, w, end in columns) + " |")
    return "\n".join(filled)
