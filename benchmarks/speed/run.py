"""One run of the benchmark: part by part, each printed and written down when it is finished."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

import torch

from benchmarks.speed.options import Options, parse
from benchmarks.speed.report import write_report
from benchmarks.speed.results import Section


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark from the command line."""
    options = parse(arguments)
    print(f"The report is in {run(options)}.")


def run(options: Options) -> Path:
    """Measure and print; what is finished is on disk if a later part is interrupted.

    Args:
        options: What to measure.

    Returns:
        The path of the report.
    """
    measures = [_measure_of(part) for part in options.parts]  # all are imported before the first begins
    before = torch.get_num_threads()
    torch.set_num_threads(options.threads)
    sections: list[Section] = []
    try:
        path = write_report(options, sections)
        for measure in measures:
            sections.append(measure(options))
            path = write_report(options, sections)
            print(_printed(sections[-1]), flush=True)
    finally:
        torch.set_num_threads(before)
    return path


def _measure_of(part: str) -> Callable[[Options], Section]:
    measure: Callable[[Options], Section] = import_module(f"benchmarks.speed.sections.{part}").measure
    return measure


def _printed(section: Section) -> str:
    checks = "\n".join(str(check) for check in section.checks)
    return f"\n{section.title}\n{'=' * len(section.title)}\n\n{section.text}\n\n{checks}"
