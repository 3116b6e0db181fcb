"""The results as Markdown, and the statuses read back from there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.metadata import distributions

import torch
import torch_geometric
from torch_geometric.nn import conv, models

from benchmarks.compat import convs, grids
from benchmarks.compat import models as model_cases
from benchmarks.compat.check import EXACT, NOT_HERE, REFUSED, TOLERANCE, WRONG, Case, Result

Results = Sequence[tuple[Case, Result]]
Key = tuple[str, str, str]

_INTRODUCTION = f"""# What of PyTorch Geometric is explained exactly

Every layer and every model of {{versions}}, tried out by
`python -m benchmarks.compat --write docs/compat.md`, with random weights, on random directed graphs: without and with
some self-loops, with a self-loop at every node, with duplicate edges and isolated nodes, alone and in a batch.
{{elsewhere}}

- **{EXACT}**: on every graph the attributions add up to the difference of the output with and without edges, to
  {TOLERANCE:g} of the outputs in double precision. Shown are the activations that are gates, and the other operations
  of which something is frozen: `div` is the size by which a softmax or a norm divides.
- **{REFUSED}**: `attribute` raises an `UnsupportedModelError`, which begins as shown.
- **{NOT_HERE}**: it does not run here at all, for the reason shown. The kernels of cuGraph and dgNN are
  for NVIDIA GPUs only.

Convolutions stand between GCN, ReLU and ReLU, mean, linear; models of nodes have a mean and a linear layer after them;
aggregations, norms and activations follow a GCN layer. Class names without options are tried with their defaults.
Layers and models that make edges themselves are explained over these, too, by `MadeEdges`.
"""
_ELSEWHERE = """
What this installation cannot run was tried with {versions}; those rows end with that version.
"""
_PACKAGES = ("pyg-lib", "torch-cluster", "torch-scatter", "torch-sparse", "torch-spline-conv")
_LIST_HEAD = "| name | variant | status | what |\n|---|---|---|---|"


def versions() -> str:
    """Return the installed versions."""
    named = f"torch_geometric {torch_geometric.__version__} (torch {torch.__version__.split('+')[0]})"
    installed = ((one.name.replace("_", "-"), one.version) for one in distributions())
    packages = [f"{name} {version}" for name, version in installed if name in _PACKAGES]
    return f"{named} with {', '.join(sorted(packages))}" if packages else f"{named} without compiled packages"


def versions_of(text: str) -> str:
    """Return the versions that a document is of."""
    return text.split("Every layer and every model of ", 1)[1].split(", tried out by", 1)[0]


def with_others(results: Results, text: str) -> Results:
    """Return the results, with those of another document for what does not run here."""
    others, version = read_results(text), versions_of(text).split(" (")[0]
    merged = []
    for case, result in results:
        other = others.get(case.key, result)
        if result.status == NOT_HERE and other.status != NOT_HERE:
            result = other._replace(detail=f"{other.detail} ({version})")
        merged.append((case, result))
    return merged


def write(results: Results, elsewhere: str = "") -> str:
    """Return the document; ``elsewhere`` are the versions with which some of the results were found."""
    note = _ELSEWHERE.format(versions=elsewhere) if elsewhere else ""
    parts = [_INTRODUCTION.format(versions=versions(), elsewhere=note)]
    for section in dict.fromkeys(case.section for case, _ in results):
        rows = [(case, result) for case, result in results if case.section == section]
        body = _grid(rows) if section in grids.SECTIONS else _list(rows)
        parts.append(f"## {section}\n\n{body}\n")
    parts.append("## Summary\n\n" + "\n".join(f"- {line}" for line in summary(results)) + "\n")
    return "\n".join(parts)


def read(text: str) -> dict[Key, str]:
    """Return the status of every case in a document."""
    return {key: result.status for key, result in read_results(text).items()}


def read_results(text: str) -> dict[Key, Result]:
    """Return the result of every case in a document, without details in grids."""
    results: dict[Key, Result] = {}
    section, columns = "", list[str]()
    for line in text.splitlines():
        if line.startswith("## "):
            section, columns = line[3:], []
        elif line.startswith("|") and not line.startswith("|---"):
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            if not columns:
                columns = cells
            elif columns[0] == "name":
                results[section, cells[0], cells[1]] = Result(*cells[2:4])
            else:
                statuses = zip(columns[1:], cells[1:], strict=True)
                results.update({(section, name, cells[0]): Result(status) for name, status in statuses})
    return results


def counts(results: Results, section: str, names: Sequence[str]) -> Counter[str]:
    """Count the names by the status of their first row."""
    first: dict[str, str] = {}
    for case, result in results:
        if case.section == section:
            first.setdefault(case.name, result.status)
    return Counter(first[name] for name in names if name in first)


def summary(results: Results) -> Iterator[str]:
    """Yield one line each on the convolutions, the models and all rows."""
    kinds = (
        ("convolution classes", convs.SECTION, conv.__all__),
        ("models", model_cases.SECTION, models.__all__),
    )
    for what, section, names in kinds:
        count = counts(results, section, names)
        exact = {case.name for case, result in results if case.section == section and result.status == EXACT}
        some = len(exact.intersection(names)) - count[EXACT]
        others = ", ".join(f"{count[status]} {status}" for status in (REFUSED, NOT_HERE, WRONG) if count[status])
        yield f"{sum(count.values())} {what}: {count[EXACT]} {EXACT}, {others}; {some} more {EXACT} with other options"
    total = Counter(result.status for _, result in results)
    yield f"{len(results)} rows in all: " + ", ".join(f"{total[status]} {status}" for status in sorted(total))


def _list(rows: Results) -> str:
    lines = [
        f"| {case.name} | {case.variant} | {result.status} | {result.detail.replace('|', '/')} |"
        for case, result in rows
    ]
    return "\n".join([_LIST_HEAD, *lines])


def _grid(rows: Results) -> str:
    names = list(dict.fromkeys(case.name for case, _ in rows))
    status = {(case.variant, case.name): result.status for case, result in rows}
    lines = [
        f"| {variant} | " + " | ".join(status.get((variant, name), "") for name in names) + " |"
        for variant in dict.fromkeys(case.variant for case, _ in rows)
    ]
    reasons: dict[tuple[str, str], list[Case]] = {}
    for case, result in rows:
        if result.status != EXACT:
            reasons.setdefault((result.status, result.detail), []).append(case)
    notes = []
    for (outcome, detail), cases in reasons.items():
        which = [", ".join(dict.fromkeys(getattr(case, part) for case in cases)) for part in ("name", "variant")]
        notes.append(f"- {which[0]} with {which[1]}: {outcome}. {detail}")
    return "\n".join(["| option | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|", *lines, "", *notes])
