"""The results of a run, with look-up by dataset, model, explainer and metric."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.paper.result_cache import Cell
from benchmarks.paper.results import ALL, Row
from benchmarks.paper.tasks import Task


@dataclass(frozen=True)
class Study:
    """The results of all explainers on one task."""

    task: Task
    cells: Sequence[Cell]

    def cell(self, explainer: str) -> Cell | None:
        """Return the results of an explainer; ``None`` if it was skipped or not run."""
        return next((cell for cell in self.cells if cell.explainer == explainer and cell.explanation), None)


class Results:
    """Rows with look-up by dataset, model, explainer and metric.

    Args:
        rows: The table.
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = list(rows)
        self._found = {
            (
                row.dataset,
                row.gnn,
                row.explainer,
                row.metric,
                row.protocol,
                row.nodes,
                row.selection,
                row.sparsity,
                row.label,
            ): row
            for row in self.rows
        }

    def get(
        self,
        dataset: str,
        gnn: str,
        explainer: str,
        metric: str,
        *,
        protocol: str = "predicted",
        nodes: str = "",
        selection: str = "",
        sparsity: str = "",
        label: str = ALL,
    ) -> Row | None:
        """Return a row; ``None`` if there is none such."""
        return self._found.get((dataset, gnn, explainer, metric, protocol, nodes, selection, sparsity, label))

    def values(self, name: str) -> list[str]:
        """Return the different values of a column, in the order in which they first appear; without empty ones."""
        return [value for value in dict.fromkeys(getattr(row, name) for row in self.rows) if value]

    def tasks(self, dataset: str | None = None) -> list[tuple[str, str]]:
        """Return datasets and models, in the order in which they first appear."""
        pairs = dict.fromkeys((row.dataset, row.gnn) for row in self.rows)
        return [pair for pair in pairs if dataset in (None, pair[0])]
