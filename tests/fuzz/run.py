"""Run any number of fuzz cases: ``python -m tests.fuzz --cases 10000 --seed 0 --jobs 2``."""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import chain

import torch

from .case import Case
from .check import Result, check
from .draw import draw_case, draw_extended_case
from .shrink import shrink

CHUNK = 50
SHOWN = 5  # failures that are shrunk and printed


def run_chunk(arguments: tuple[int, range, bool]) -> list[tuple[int, Case, Result]]:
    """Check some numbers of a seed's sequence."""
    seed, numbers, extended = arguments
    draw = draw_extended_case if extended else draw_case
    cases = [(number, draw(seed, number)) for number in numbers]
    return [(number, case, check(case)) for number, case in cases]


def results(seed: int, numbers: range, jobs: int, extended: bool = False) -> Iterator[tuple[int, Case, Result]]:
    """Yield every case with its result, computed by ``jobs`` processes."""
    chunks = [(seed, numbers[start : start + CHUNK], extended) for start in range(0, len(numbers), CHUNK)]
    if jobs == 1:
        yield from chain.from_iterable(map(run_chunk, chunks))
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(jobs, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        yield from chain.from_iterable(pool.imap_unordered(run_chunk, chunks))


def traits(case: Case) -> set[str]:
    """Return what is counted of a case: its operations and options, and what is asked."""
    names = set()
    for op in case.ops:
        variant = op.options.get("function") or op.options.get("kind") or op.options.get("aggr")
        names.add(f"{op.kind} {variant}" if variant else op.kind)
        names |= {f"{op.kind} in place"} if op.options.get("inplace") else set()
        names |= {f"{op.kind} {op.options['flow']}"} if op.options.get("flow") == "target_to_source" else set()
        names |= {f"hand {op.kind} {op.options['hand']}"} if op.options.get("hand") else set()
        names |= {"std"} if op.options.get("aggr") == "std" else set()
    layers = Counter(op.layer for op in case.ops if op.layer)
    names |= {"reused layer"} if max(layers.values(), default=0) > 1 else set()
    names |= {"no edges"} if not case.edges else set()
    names |= {"[B, E] masks"} if case.many else set()
    names |= {"batch of graphs"} if case.num_graphs > 1 else set()
    names |= {"self-loops"} if any(a == b for a, b in case.edges) else set()
    names |= {"duplicates"} if len(set(case.edges)) < len(case.edges) else set()
    return names | {f"field {case.field}", f"mask_type {case.mask_type}"}


def report_failure(seed: int, number: int, case: Case, result: Result) -> None:
    """Print a failing case, small and as a program."""
    small = shrink(case, lambda smaller: check(smaller).kind == result.kind)
    last = check(small)
    print(f"\ncase {number} of seed {seed}: {last.kind}: {last.message}\n\n{last.program}\n# as data: {small!r}\n")


def main(arguments: list[str] | None = None) -> int:
    """Return 0 if no case failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=1000, help="how many cases to draw (default: 1000)")
    parser.add_argument("--seed", type=int, default=0, help="the sequence of cases (default: 0)")
    parser.add_argument("--first", type=int, default=0, help="the number of the first case (default: 0)")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes to use (default: 1)")
    parser.add_argument("--extended", action="store_true", help="edge attributes, messages by hand and more")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    started = time.perf_counter()
    ends, counts, reasons = Counter[str](), Counter[str](), defaultdict[str, list[int]](list)
    worst, failures = (0.0, -1), 0
    numbers = range(options.first, options.first + options.cases)
    for done, (number, case, result) in enumerate(
        results(options.seed, numbers, options.jobs, options.extended), start=1
    ):
        ends[result.kind] += 1
        counts.update(traits(case))
        if result.kind == "agreed":
            worst = max(worst, (result.difference, number))
        elif result.failed:
            failures += 1
            if failures <= SHOWN:
                report_failure(options.seed, number, case, result)
            else:
                print(f"case {number} of seed {options.seed}: {result.kind}: {result.message}")
        else:
            reasons[f"{result.kind}: {result.message}"].append(number)
        if done % 500 == 0 or done == options.cases:
            seconds = time.perf_counter() - started
            print(f"{done} cases in {seconds:.0f} s: {dict(ends)}, worst difference {worst[0]:.1e}", flush=True)
    print("\ncases by kind: " + ", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    for reason, found_at in reasons.items():
        print(f"{len(found_at)} {reason} (cases {', '.join(map(str, sorted(found_at)[:5]))})")
    print(f"worst relative difference {worst[0]:.2e} (case {worst[1]} of seed {options.seed}); {failures} failures")
    return int(failures > 0)
