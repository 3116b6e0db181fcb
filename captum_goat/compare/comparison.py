"""The result of a comparison."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from torch import Tensor

from captum_goat.compare.csv_files import write_rows
from captum_goat.compare.measures import BETTER
from captum_goat.compare.rows import ComparisonRow
from captum_goat.metrics import NodePolicy

ROUNDING = 1e-6  # of sparsities


@dataclass(frozen=True, repr=False, eq=False)
class Comparison:
    """What explainers did on a model and graphs; printed, it is a table.

    Attributes:
        rows: All numbers, one row per explainer, metric and, for fidelities, sparsity.
        scores: The edge scores of each explainer, one tensor ``[E]`` per graph. An explainer that ran out of time has
            fewer graphs, the first ones.
        values: What was measured of each explainer, one number per graph ``[G]``, by metric and sparsity:
            ``values["goat"]["area_gain", ""]``, ``values["goat"]["fidelity_plus", "0.7"]``.
        skipped: Why explainers were skipped, by their names.
        failed: The errors of explainers that failed, by their names; raise one to see where it comes from.
        reference: The explainer that the others are compared with; ``None`` if it did not explain anything.
        num_graphs: G, the number of graphs.
        sparsities: The shares of edges that were not taken.
        node_policy: What became of nodes without edges.
        notes: What else there is to know.

    Examples::

        >>> from captum_goat.compare import Comparison, compare
        >>> from captum_goat.datasets import ba_2motifs
        >>> from captum_goat.models import GraphClassifier
        >>> model = GraphClassifier("gin", in_channels=10, hidden_channels=8, num_classes=2).eval()
        >>> found: Comparison = compare(model, ba_2motifs(3), ("goat", "random", "attention"), show_progress=False)
        >>> found
        Comparison(goat, random: 3 graphs)
        >>> found.get("goat", "area_gain").n, len(found.scores["random"]), found.best("completeness_error")
        (3, 3, 'goat')
        >>> found.skipped
        {'attention': 'Expected a model with attention layers, such as GATConv (got none).'}
    """

    rows: tuple[ComparisonRow, ...]
    scores: Mapping[str, list[Tensor]]
    values: Mapping[str, Mapping[tuple[str, str], Tensor]]
    skipped: Mapping[str, str]
    failed: Mapping[str, Exception]
    reference: str | None
    num_graphs: int
    sparsities: tuple[float, ...]
    node_policy: NodePolicy
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        from captum_goat.compare.pages import text

        return text(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self.scores)}: {self.num_graphs} graphs)"

    def _repr_markdown_(self) -> str:
        """Return what notebooks show."""
        return str(self)

    def get(self, explainer: str, metric: str, sparsity: float | None = None) -> ComparisonRow | None:
        """Return a row; ``None`` if there is none such.

        Args:
            explainer: The name of an explainer.
            metric: The name of a metric.
            sparsity: The sparsity, for ``fidelity_plus`` and ``fidelity_minus``.
        """
        rows = (row for row in self.rows if (row.explainer, row.metric) == (explainer, metric))
        return next((row for row in rows if _is_at(row, sparsity)), None)

    def best(self, metric: str = "area_gain", sparsity: float | None = None) -> str:
        """Return the explainer with the best mean, among those that explained most graphs.

        Others may be as good: see the verdicts, with this one as the reference.

        Args:
            metric: The name of a metric.
            sparsity: As for :meth:`get`.

        Raises:
            ValueError: If there is nothing of the kind.
        """
        rows = [row for name in self.scores if (row := self.get(name, metric, sparsity)) is not None]
        if not rows:
            known = ", ".join(sorted({row.metric for row in self.rows})) or "nothing"
            raise ValueError(f"Expected a metric that was measured (got {metric!r}). There is {known}.")
        sign = 1.0 if BETTER[metric] == "more" else -1.0
        most = max(len(self.scores[row.explainer]) for row in rows)
        whole = [row for row in rows if len(self.scores[row.explainer]) == most]
        return max(whole, key=lambda row: sign * row.value).explainer

    def write(self, folder: str | PathLike[str]) -> Path:
        """Write ``comparison.md``, ``comparison.csv`` and, if matplotlib is there, the curves as ``fidelity.png``.

        Args:
            folder: The folder to write to; it is made if it is not there.

        Returns:
            The path of ``comparison.md``.
        """
        from captum_goat.compare.pages import page

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        write_rows(folder / "comparison.csv", self.rows, ComparisonRow)
        picture = self._draw(folder / "fidelity.png")
        path = folder / "comparison.md"
        path.write_text(page(self, picture), encoding="utf-8")
        return path

    def _draw(self, path: Path) -> str | None:
        """Draw the curves; return the name of the file, or ``None`` if matplotlib is not there."""
        try:
            from captum_goat.compare.curves import draw_curves
        except ImportError:
            return None
        return draw_curves(self, path).name


def _is_at(row: ComparisonRow, sparsity: float | None) -> bool:
    """Return whether a row is of a sparsity, though it may have come with fewer bits."""
    if sparsity is None or not row.sparsity:
        return sparsity is None and not row.sparsity
    return math.isclose(float(row.sparsity), sparsity, rel_tol=ROUNDING, abs_tol=ROUNDING)
