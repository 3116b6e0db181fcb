"""Print the table of what is explained exactly, or write it to a file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

import torch

from benchmarks.compat import convs, grids, layers, models, table
from benchmarks.compat.check import WRONG, Case, check


def all_cases() -> Iterator[Case]:
    """Yield every case."""
    return chain.from_iterable(module.cases() for module in (convs, models, grids, layers))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases and return whether something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compat", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="classes to be tried out (default: all)")
    parser.add_argument("--write", type=Path, metavar="FILE", help="where the table goes (default: printed)")
    parser.add_argument("--also", type=Path, metavar="FILE", help="a table of other versions, for what is not here")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)  # the tensors are too small to be worth a second thread
    chosen = [case for case in all_cases() if options.only is None or case.name in options.only]
    if not chosen:
        parser.error(f"no such class: {', '.join(options.only)}")
    results: table.Results = [(case, check(case, describe=True)) for case in chosen]
    other = options.also.read_text(encoding="utf-8") if options.also is not None else ""
    results = table.with_others(results, other) if other else results
    text = table.write(results, table.versions_of(other) if other else "")
    if options.write is None:
        print(text)
    else:
        options.write.write_text(text, encoding="utf-8")
        print("\n".join(table.summary(results)))
    return int(any(result.status == WRONG for _, result in results))


if __name__ == "__main__":
    sys.exit(main())
