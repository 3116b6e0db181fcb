"""The result of a comparison: its rows, tables and files."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeAlias

from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.explain import Explanation

from captum_goat.metrics import NodePolicy
from captum_goat.report import write_report

ROUNDING = 1e-6  # of sparsities
DECISIVE = 2.0  # standard errors
TINY = 0.0005  # smaller than what three digits show
EMPTY = "-"
Verdict: TypeAlias = Literal["better", "alike", "worse"]
# A metric and a sparsity, which is empty for metrics that have none and for means over all sparsities.
Key: TypeAlias = tuple[str, str]
LEGEND = """fid+: how far the probability of the class drops without the edges with the highest scores (more is better).
fid-: how far it drops if only these edges are left (less is better). Gain: fid+ minus fid-. All are means over the
sparsities, the shares of edges that are not among the highest. Better, worse: on the same graphs, the gain differs from
the reference's by more than two standard errors. AUC: how well scores tell the true edges from the others. Infidelity:
how badly scores predict the change of the logit when random messages are lost, with scores multiplied by the factor
that fits best (less is better). Completeness error: the largest difference between the sum of the scores and the change
of the logit, for explainers whose scores are meant to add up to it."""


@dataclass(frozen=True)
class TimedScores:
    """The edge scores of the first graphs, and the time they took."""

    scores: list[Tensor]  # of each graph, [E]
    seconds_alone: Tensor  # for single graphs, [M]
    seconds_in_batch: float  # per graph; nan if the explainer takes one graph at a time
    completeness_error: Tensor  # of each graph, [G]; nan for explainers that are not complete


@dataclass(frozen=True)
class ComparisonRow:
    """One value of a comparison: of an explainer, a metric and, where a metric has one, a sparsity.

    ``value`` is the mean over ``n`` graphs (the median for ``seconds_alone``), and ``error`` its standard error, nan
    for values that are not means. ``difference`` is the mean difference to the reference on the same graphs.
    ``verdict`` is ``"better"`` or ``"worse"`` if that exceeds two standard errors, else ``"alike"``.
    """

    explainer: str
    metric: str
    sparsity: str
    value: float
    error: float = math.nan
    n: int = 0
    difference: float = math.nan
    difference_error: float = math.nan
    verdict: Verdict | Literal[""] = ""


@dataclass(frozen=True, repr=False, eq=False)
class Comparison:
    """The result of :func:`~captum_goat.compare.compare`; ``print`` shows it as a table.

    ``rows`` has one row per explainer, metric and, for fidelities, sparsity. ``scores`` has the edge scores of each
    explainer, ``[E]`` for each graph that it explained in time. ``values`` has the values of each explainer by metric
    and sparsity, ``[G]``: ``values["goat"]["area_gain", ""]``, ``values["goat"]["fidelity_plus", "0.7"]``. ``skipped``
    has the reasons, and ``failed`` the errors, of explainers without scores, by name. ``graphs`` and ``target`` say
    what was explained.
    """

    rows: tuple[ComparisonRow, ...]
    scores: Mapping[str, list[Tensor]]
    values: Mapping[str, Mapping[Key, Tensor]]
    skipped: Mapping[str, str]
    failed: Mapping[str, Exception]
    graphs: tuple[Data, ...]
    target: Tensor
    reference: str | None
    sparsities: tuple[float, ...]
    node_policy: NodePolicy
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        def gain(name: str) -> float:
            row = self.get(name, "area_gain")
            return -math.inf if row is None else row.value

        names, sparsities = sorted(self.scores, key=gain, reverse=True), self.sparsities
        sections = [
            f"{len(names)} explainer(s) on {len(self.graphs)} graph(s), sparsities from {sparsities[0]:g} to "
            f"{sparsities[-1]:g}. Edges are removed, as many for every explainer; nodes without edges "
            f"{self.node_policy}."
        ]
        if names:
            sections += _tables(self, names)
        errors = ((name, type(error).__name__, " ".join(str(error).split())) for name, error in self.failed.items())
        failed = {name: f"{kind}: {message[:300]}" for name, kind, message in errors}
        for title, reasons in (("Skipped", self.skipped), ("Failed", failed)):
            if reasons:
                lines = (f"- `{name}`: {reason}" for name, reason in reasons.items())
                sections.append(f"{title}:\n\n" + "\n".join(lines))
        return "\n\n".join([*sections, *self.notes])

    _repr_markdown_ = __str__  # for notebooks

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self.scores)}: {len(self.graphs)} graphs)"

    def get(self, explainer: str, metric: str, sparsity: float | None = None) -> ComparisonRow | None:
        """Return the row of an explainer, a metric and, for fidelities, a sparsity; ``None`` if there is none."""
        rows = [row for row in self.rows if (row.explainer, row.metric) == (explainer, metric)]
        if sparsity is None:
            return next((row for row in rows if not row.sparsity), None)
        return next((row for row in rows if row.sparsity and abs(float(row.sparsity) - sparsity) < ROUNDING), None)

    def best(self, metric: str = "area_gain", sparsity: float | None = None) -> str:
        """Return the explainer with the best mean of a metric, among those that explained the most graphs."""
        rows = [row for name in self.scores if (row := self.get(name, metric, sparsity)) is not None]
        if not rows:
            known = ", ".join(sorted({row.metric for row in self.rows})) or "nothing"
            raise ValueError(f"Expected a metric that was measured: {known} (got {metric!r}).")
        sign = -1.0 if _less_is_better(metric) else 1.0
        most = max(len(self.scores[row.explainer]) for row in rows)
        complete = [row for row in rows if len(self.scores[row.explainer]) == most]
        return max(complete, key=lambda row: sign * row.value).explainer

    def write(self, folder: str | PathLike[str]) -> Path:
        """Write ``comparison.md``, whose path is returned, and ``comparison.csv`` into a folder."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "comparison.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(field.name for field in fields(ComparisonRow))
            writer.writerows([_csv_cell(value) for value in astuple(row)] for row in self.rows)
        path = folder / "comparison.md"
        path.write_text(f"# Explainers compared\n\n{self}\n\n{LEGEND}\n", encoding="utf-8")
        return path

    def write_html(self, path: str | PathLike[str], **options: Any) -> Path:
        """Write the scores of all explainers as one HTML page, with the options of ``captum_goat.report.write_report``.

        It has the graphs that all explainers explained in time.
        """
        count = min(map(len, self.scores.values()), default=0)
        gains = {name: row.value for name in self.scores if (row := self.get(name, "area_gain")) is not None}
        details = {"Gain (mean of fid+ minus fid-)": ", ".join(f"{name} {gain:.3f}" for name, gain in gains.items())}
        methods = {
            name: [
                Explanation(**graph.to_dict() | {"edge_mask": mask, "target": target.view(1)})
                for graph, mask, target in zip(self.graphs[:count], scores, self.target, strict=False)
            ]
            for name, scores in self.scores.items()
        }
        return write_report(path, methods, **{"details": details} | options)


def rows_of(
    name: str, explanation: TimedScores, values: Mapping[Key, Tensor], reference: Mapping[Key, Tensor] | None
) -> Iterator[ComparisonRow]:
    """Yield all rows of an explainer; differences to the reference are taken on the graphs that both explained."""
    for (metric, sparsity), numbers in values.items():
        value, error, n = mean_and_error(numbers)
        if n:
            others = None if reference is None else reference.get((metric, sparsity))
            difference = difference_error = math.nan
            if others is not None:
                both = min(len(numbers), len(others))
                difference, difference_error, _ = mean_and_error(numbers[:both] - others[:both])
            judged = verdict(metric, difference, difference_error)
            yield ComparisonRow(name, metric, sparsity, value, error, n, difference, difference_error, judged)
    errors = values.get(("completeness_error", ""))
    if errors is not None:
        yield ComparisonRow(name, "largest_completeness_error", "", float(errors.max()), n=len(errors))
    alone = explanation.seconds_alone
    _, error, n = mean_and_error(alone)
    yield ComparisonRow(name, "seconds_alone", "", float(alone.median()), error, n)
    if not math.isnan(explanation.seconds_in_batch):
        yield ComparisonRow(name, "seconds_in_batch", "", explanation.seconds_in_batch, n=len(explanation.scores))


def mean_and_error(values: Tensor) -> tuple[float, float, int]:
    r"""Return the mean, its standard error :math:`s / \sqrt n` and the number of values, ignoring nan."""
    values = values[~values.isnan()].double()
    n = len(values)
    if n == 0:
        return math.nan, math.nan, 0
    return float(values.mean()), float(values.std() / math.sqrt(n)) if n > 1 else math.nan, n


def _less_is_better(metric: str) -> bool:
    return metric.endswith("_minus") or metric.startswith(("infidelity", "completeness", "largest", "seconds"))


def verdict(metric: str, difference: float, error: float) -> Verdict | Literal[""]:
    """Return whether a paired difference to the reference exceeds two standard errors and shows in three digits."""
    if math.isnan(difference) or math.isnan(error):
        return ""
    if abs(difference) <= max(TINY, DECISIVE * error):
        return "alike"
    return "better" if (difference > 0) != (_less_is_better(metric)) else "worse"


def _tables(comparison: Comparison, names: Sequence[str]) -> list[str]:
    def column(metric: str, formatted: Callable[[ComparisonRow], str] = lambda row: number(row.value)) -> list[str]:
        rows = (comparison.get(name, metric) for name in names)
        return [EMPTY if row is None else formatted(row) for row in rows]

    fidelities = {
        "explainer": [f"`{name}`" for name in names],
        "fid+": column("area_plus"),
        "fid-": column("area_minus"),
        "gain": column("area_gain"),
        f"gain - `{comparison.reference}`'s": column(
            "area_gain", lambda row: signed(row.difference, row.difference_error)
        ),
        "verdict": column("area_gain", lambda row: row.verdict or EMPTY),
        "graphs": [str(len(comparison.scores[name])) for name in names],
    }
    others = {
        "explainer": fidelities["explainer"],
        "AUC": column("ground_truth_auc"),
        "infidelity": column("infidelity", lambda row: f"{row.value:.2g}"),
        "completeness error": column("largest_completeness_error", lambda row: f"{row.value:.2g}"),
        "time alone": column("seconds_alone", lambda row: seconds(row.value)),
        "in batches": column("seconds_in_batch", lambda row: seconds(row.value)),
    }
    return [_table(fidelities), _table(others)]


def _table(columns: Mapping[str, Sequence[str]]) -> str:
    """Return a Markdown table that is readable as plain text; columns without any value are left out."""
    padded = []
    for title, cells in columns.items():
        if any(cell != EMPTY for cell in cells):
            width = max(map(len, (title, *cells)))
            are_numbers = all(cell[:1] in "+-0123456789" for cell in cells)
            align = str.rjust if are_numbers else str.ljust
            rule = "-" * (width + 1) + (":" if are_numbers else "-")
            padded.append([f" {align(title, width)} ", rule, *(f" {align(cell, width)} " for cell in cells)])
    return "\n".join("|" + "|".join(line) + "|" for line in zip(*padded, strict=True))


def number(value: float | None, digits: int = 3) -> str:
    """Return a number with a fixed number of decimals; a dash for ``None`` and nan."""
    return EMPTY if value is None or math.isnan(value) else f"{value:.{digits}f}"


def seconds(value: float | None) -> str:
    """Return a time in a readable unit; a dash for ``None`` and nan."""
    if value is None or math.isnan(value):
        return EMPTY
    return f"{value:.3g} s" if value >= 10 else f"{value:.2f} s" if value >= 1 else f"{1e3 * value:.3g} ms"


def signed(difference: float, error: float) -> str:
    """Return a difference with its standard error; a dash for nan."""
    if math.isnan(difference):
        return EMPTY
    digits = ".0e" if 0 < abs(difference) < TINY else ".3f"
    return f"{difference:+{digits}}" + ("" if math.isnan(error) else f" ± {error:{digits}}")


def _csv_cell(value: Any) -> Any:
    return "" if value != value else f"{value:.6g}" if isinstance(value, float) else value  # nan is not itself
