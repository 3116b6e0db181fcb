"""The page on what explanations cost, and how exact they are."""

from __future__ import annotations

from pathlib import Path

import torch

from benchmarks.paper import figures
from benchmarks.paper.pages.page import joined, picture
from benchmarks.paper.study import Results
from benchmarks.paper.tables import completeness_table, time_table


def times_page(results: Results, everything: Results, folder: Path) -> str:
    """Return the seconds per graph, alone and in batches, and completeness errors.

    Args:
        results: The rows for the picture.
        everything: The rows for the tables, of all models and explainers.
        folder: Where the picture goes.

    Returns:
        The page, without its heading.
    """
    return joined(
        [
            "Alone (the median) / in batches of up to 64 graphs, where a method can do that; in seconds of "
            f"{'processor time of one thread' if torch.get_num_threads() == 1 else 'the clock'}. Learning beforehand "
            "is not in it; it is in the table of all results (`seconds_to_fit`).",
            picture(figures.draw_times(results, folder / "times.png"), "Time per graph"),
            *(time_table(everything, gnn) for gnn in everything.values("gnn")),
            "## Completeness",
            "The largest error of a graph, for methods that claim that scores add up to f(graph) - f(graph without "
            "edges):",
            *(completeness_table(everything, gnn) for gnn in everything.values("gnn")),
        ]
    )
