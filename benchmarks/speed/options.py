"""What to measure: the command line of ``python -m benchmarks speed``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from benchmarks.paper.options import GNNS
from benchmarks.speed.graphs import FAMILIES

PARTS = ("sizes", "batches", "single_graph", "dataset", "nodes", "large")
SMALLEST = 2  # edges: both directions of one


@dataclass(frozen=True)
class Options:
    """What is measured, and where results go.

    Attributes:
        out: The folder that gets ``speed.md`` and ``speed/`` with numbers and pictures.
        data: The folder with the published data files; ``None`` for graphs that are generated.
        parts: What is measured, of :data:`PARTS`.
        gnns: Names of models.
        families: Kinds of graphs of growing size, of :data:`~benchmarks.speed.graphs.FAMILIES`.
        sizes: Numbers of edges, in ascending order.
        threads: How many threads torch uses.
        rounds: How often the methods take turns at most.
        budget: The seconds that one call may take; a method that needs longer is left out from that size on.
        goat_budget: The same for GOAt and for the unit.
        memory: The bytes that one call may take.
        seed: Where random numbers start.
        hidden: The width of the models.
        batch_size: How many graphs a batch has.
        alone: How many graphs are explained one by one.
        molecules: How many graphs of molecules' size are generated, or taken of the dataset at most.
        single_calls: How many nodes are explained one by one.
        large_nodes: The number of nodes of the large graph, which has ten times as many edges.
        quick: Whether this is a small run, whose numbers are a first impression.
        progress: Whether to show progress bars.
    """

    out: Path
    data: Path | None = None
    parts: tuple[str, ...] = PARTS
    gnns: tuple[str, ...] = GNNS
    families: tuple[str, ...] = tuple(FAMILIES)
    sizes: tuple[int, ...] = (10, 100, 1_000, 10_000, 100_000, 1_000_000)
    threads: int = 2
    rounds: int = 10
    budget: float = 20.0
    goat_budget: float = 180.0
    memory: float = 12e9
    seed: int = 0
    hidden: int = 64
    batch_size: int = 128
    alone: int = 40
    molecules: int = 4337  # as many as Mutagenicity has
    single_calls: int = 70
    large_nodes: int = 1_000_000
    quick: bool = False
    progress: bool = True

    @property
    def folder(self) -> Path:
        """Where numbers and pictures go."""
        return self.out / "speed"


QUICK: dict[str, Any] = {
    "families": ("sparse",),
    "sizes": (10, 100, 1_000, 10_000),
    "rounds": 2,
    "budget": 2.0,
    "goat_budget": 2.0,
    "alone": 10,
    "molecules": 512,
    "single_calls": 14,
    "large_nodes": 20_000,
}


def parse(arguments: Sequence[str] | None = None) -> Options:
    """Read the command line.

    Args:
        arguments: The words after ``speed``; ``None`` for those of the running program.

    Returns:
        What to measure. With ``--quick``, what is not named is chosen so that it is over in about a minute.

    Examples::

        >>> from benchmarks.speed.options import parse
        >>> parse(["--quick", "--gnns", "gin"]).sizes
        (10, 100, 1000, 10000)
        >>> parse(["--sizes", "500", "20"]).sizes
        (20, 500)
    """
    parser = _parser()
    given = vars(parser.parse_args(arguments)).items()
    named: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in given if value is not None
    }
    if "memory" in named:
        named["memory"] *= 1e9
    if "sizes" in named:
        named["sizes"] = tuple(sorted(set(named["sizes"])))
        if named["sizes"][0] < SMALLEST:
            parser.error(f"expected sizes of {SMALLEST} edges or more (got {named['sizes'][0]})")
    for name in ("threads", "rounds"):
        if named.get(name, 1) < 1:
            parser.error(f"expected {name} to be 1 or more (got {named[name]})")
    return Options(**((QUICK if named["quick"] else {}) | named))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks speed",
        description="Measure time and memory of GOAt beside integrated gradients, saliency and GNNExplainer, in one "
        "process, on the same models and graphs.",
    )
    default = {field.name: field.default for field in fields(Options)}
    add = parser.add_argument
    add("--out", type=Path, default=Path("benchmark"), help="folder for the report (default: benchmark)")
    add("--data", type=Path, help="folder with the published data files (without: generated graphs)")
    add("--parts", nargs="+", choices=PARTS, metavar="NAME", help=f"of {', '.join(PARTS)} (default: all)")
    add("--gnns", nargs="+", choices=GNNS, metavar="NAME", help=f"of {', '.join(GNNS)} (default: all)")
    add("--families", nargs="+", choices=FAMILIES, metavar="NAME", help=f"of {', '.join(FAMILIES)} (default: all)")
    add("--sizes", nargs="+", type=int, metavar="EDGES", help="numbers of edges (default: 10, 100, ... 1000000)")
    add("--threads", type=int, help=f"threads of torch (default: {default['threads']})")
    add("--rounds", type=int, help=f"how often methods take turns, at most (default: {default['rounds']})")
    add("--budget", type=float, help=f"seconds that a call may take (default: {default['budget']:g})")
    add("--goat-budget", type=float, help=f"the same for GOAt and the unit (default: {default['goat_budget']:g})")
    add("--memory", type=float, help=f"gigabytes that a call may take (default: {Options.memory / 1e9:g})")
    add("--seed", type=int, help=f"where random numbers start (default: {default['seed']})")
    add("--quick", action="store_true", help="small sizes and few rounds, for a first impression")
    return parser
