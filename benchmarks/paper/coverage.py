"""Stability in tables: how many graphs of a class share the most frequent explanations."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.markdown_tables import markdown
from benchmarks.paper.measurements import PAPER_SPARSITY
from benchmarks.paper.published import PAPER_TOP_COVERAGE, PAPER_TOP_TWO_COVERAGE
from benchmarks.paper.study import Results
from captum_goat.compare.comparison import EMPTY

VARIANTS = (("search", "coverage"), ("search", "coverage_of_embeddings"), ("fixed", "coverage"))


def coverage_table(results: Results, dataset: str, gnn: str, label: str, protocol: str) -> str:
    """Return the coverage of the most frequent explanation, of two and of three, for one class.

    Args:
        results: The table of results.
        dataset: The dataset.
        gnn: The model.
        label: The class.
        protocol: Which graphs count: ``"correct"`` or ``"whole"``.

    Returns:
        Top 1 / 2 / 3 with the searched prefix (distinct up to isomorphism, and by embeddings) and with fixed k.
    """
    lines = []
    for name in results.values("explainer"):
        columns = [_coverage(results, dataset, gnn, name, label, protocol, *variant, (1, 2, 3)) for variant in VARIANTS]
        if any(cell != EMPTY for cell, _ in columns):
            lines.append([f"`{name}`", *(cell for cell, _ in columns), str(max(count for _, count in columns))])
    quoted = PAPER_TOP_COVERAGE.get((dataset, label))
    if gnn == "gcn" and quoted is not None:
        two = PAPER_TOP_TWO_COVERAGE.get((dataset, label))
        cell = f"*{100 * quoted:.1f} %{'' if two is None else f' / {100 * two:.1f} %'}*"
        lines.append(["*GOAt in the paper (quoted)*", cell, EMPTY, EMPTY, EMPTY])
    return markdown(["explainer", "search", "search, by embeddings", "fixed k", "graphs"], lines)


def class_table(results: Results, dataset: str, gnn: str, labels: Sequence[str]) -> str:
    """Return the coverage of explanations that are distinct up to isomorphism, of all classes side by side.

    Args:
        results: The table of results.
        dataset: The dataset.
        gnn: The model.
        labels: The classes.

    Returns:
        Top 1 / top 3 with the searched prefix and with fixed k, for correctly predicted held-out graphs.
    """
    columns = [(label, selection) for label in labels for selection in ("search", "fixed")]
    lines = []
    for name in results.values("explainer"):
        entries = [
            _coverage(results, dataset, gnn, name, label, "correct", selection, "coverage", (1, 3))
            for label, selection in columns
        ]
        if any(cell != EMPTY for cell, _ in entries):
            counts = [str(max(count for _, count in entries[place : place + 2])) for place in range(0, len(entries), 2)]
            lines.append([f"`{name}`", *(cell for cell, _ in entries), " + ".join(counts)])
    if gnn == "gcn" and any((dataset, label) in PAPER_TOP_COVERAGE for label in labels):
        cells = [_quoted(dataset, label) if selection == "search" else EMPTY for label, selection in columns]
        lines.append(["*GOAt in the paper, top 1 (quoted)*", *cells, EMPTY])
    titles = [f"class {label}, {'search' if selection == 'search' else 'fixed k'}" for label, selection in columns]
    return markdown(["explainer", *titles, "graphs"], lines)


def _quoted(dataset: str, label: str) -> str:
    value = PAPER_TOP_COVERAGE.get((dataset, label))
    return EMPTY if value is None else f"*{100 * value:.1f} %*"


def _coverage(
    results: Results,
    dataset: str,
    gnn: str,
    name: str,
    label: str,
    protocol: str,
    selection: str,
    metric: str,
    tops: tuple[int, ...],
) -> tuple[str, int]:
    """Return the coverage of some numbers of explanations as text, and the number of graphs."""
    where = {"protocol": protocol, "nodes": "leave", "selection": selection, "label": label}
    optional_rows = [
        results.get(dataset, gnn, name, f"top{top}_{metric}", sparsity=str(PAPER_SPARSITY), **where) for top in tops
    ]
    rows = [row for row in optional_rows if row is not None]
    if len(rows) < len(tops):
        return EMPTY, 0
    return " / ".join(f"{100 * row.value:.1f} %" for row in rows), rows[0].n
