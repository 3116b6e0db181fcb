"""What several benchmarks have in common: options of the command line, and the files that they write."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.datasets import DATASETS
from benchmarks.explainers import EXPLAINERS
from benchmarks.paper.csv_files import write_csv

GNNS = ("gcn", "sage", "gin")
TITLES = {
    "white_box": "White-box truth",
    "sanity": "Sanity checks",
    "in_distribution": "In-distribution fidelity",
}


def add_explainers(parser: argparse.ArgumentParser, default: Sequence[str], help: str = "default: %(default)s") -> None:
    """Add ``--explainers`` and ``--out``."""
    parser.add_argument("--explainers", nargs="+", choices=EXPLAINERS, metavar="NAME", default=default, help=help)
    parser.add_argument(
        "--out", type=Path, default=Path("benchmark"), help="folder for tables, CSV and weights (default: %(default)s)"
    )


def add_graph_dataset(parser: argparse.ArgumentParser) -> None:
    """Add the choice of a dataset of graphs and of a model."""
    names = [name for name, info in DATASETS.items() if info.task_level == "graph"]
    parser.add_argument("--dataset", choices=names, default="ba_2motifs", help="default: %(default)s")
    parser.add_argument("--gnn", choices=GNNS, default="gin", help="default: %(default)s")
    parser.add_argument("--data", type=Path, help="folder with the published data files (without: generated)")


def write_results(
    folder: Path, command: str, text: str, rows: Iterable[Any], row_type: type, seconds: float, *, subject: str = ""
) -> None:
    """Write a page and all its numbers as CSV, and print the page.

    Args:
        folder: Where to write.
        command: The benchmark's name on the command line, with which the names of both files begin.
        text: The page, in Markdown.
        rows: Dataclasses, one per line of the CSV.
        row_type: Their type.
        seconds: How long it took.
        subject: The dataset and the model, which follow in the names of both files.
    """
    name = f"{command}_{subject}" if subject else command
    write_csv(folder / f"{name}.csv", rows, row_type)
    note = (
        f"Written by `python -m benchmarks {command}` in {seconds:.0f} s; all numbers are in [{name}.csv]({name}.csv)."
    )
    text = f"# {TITLES[command]}\n\n{note}\n\n{text}\n"
    (folder / f"{name}.md").write_text(text, encoding="utf-8")
    print(text)
