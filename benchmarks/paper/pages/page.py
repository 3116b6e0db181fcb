"""Helpers for the pages of the report."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from benchmarks.paper.study import Results


def joined(parts: Iterable[str]) -> str:
    """Put paragraphs, tables and pictures one below the other, without empty ones."""
    return "\n\n".join(part for part in parts if part)


def picture(path: Path | None, text: str) -> str:
    """Show a picture from the page's own folder; nothing if there is none."""
    return "" if path is None else f"![{text}]({path.name})"


def policies(results: Results, dataset: str) -> list[str]:
    """Return the node policies in a dataset's results; the authors' policy comes last."""
    measured_policies = {row.nodes for row in results.rows if row.dataset == dataset}
    return [policy for policy in ("stay", "leave") if policy in measured_policies]


def measured(results: Results) -> list[str]:
    """Return the datasets with measured explanations; the others have models only."""
    return [dataset for dataset in results.values("dataset") if policies(results, dataset)]


def of_graphs(results: Results) -> list[str]:
    """Return the datasets whose graphs, and not nodes, are classified."""
    return [dataset for dataset in results.values("dataset") if "leave" in policies(results, dataset)]
