"""The report: one CSV file, pictures and a Markdown page."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from benchmarks.paper.machine import processor
from benchmarks.speed.options import Options
from benchmarks.speed.results import Section, write_rows

PACKAGES = ("captum-goat", "captum", "torch", "torch-geometric")


def write_report(options: Options, sections: Sequence[Section]) -> Path:
    """Write ``speed.md`` and, in ``speed/``, the numbers.

    Args:
        options: What was measured, and where to write.
        sections: What the parts have found.

    Returns:
        The path of the report.
    """
    write_rows(options.folder / "results.csv", (row for section in sections for row in section.rows))
    paragraphs = [
        "# Speed and memory of GOAt and other methods",
        "Written by `python -m benchmarks speed`. All numbers are in "
        f"[results.csv]({options.folder.name}/results.csv); nothing on this page is written by hand.",
    ]
    if options.quick:
        paragraphs.append("**A quick run: small sizes and few rounds. Its numbers are a first impression.**")
    for section in sections:
        paragraphs += [f"## {section.title}", section.text]
        paragraphs += [f"![{text}]({options.folder.name}/{path.name})" for text, path in section.pictures.items()]
    paragraphs.append(_describe_machine(options))
    path = options.out / "speed.md"
    path.write_text("\n\n".join(paragraphs) + "\n", encoding="utf-8")
    return path


def _describe_machine(options: Options) -> str:
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    return "\n".join(
        [
            "## Machine and versions",
            "",
            f"- {processor()}, {os.cpu_count()} cores, {options.threads} thread(s), no GPU used; {platform.system()}",
            f"- Python {platform.python_version()}; {versions}",
            f"- seed {options.seed}",
        ]
    )
