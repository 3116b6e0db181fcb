"""Guided Shapley values beside other explainers on the paper's models: ``python -m benchmarks shapley_gains``.

The gain of an explanation is the area under fid+ minus the area under fid-, over sparsities from 0.5 to 0.9, with edges
really removed. Explainers are compared graph by graph, on the graphs that both have explained.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor
from torch_geometric.data import Batch

from benchmarks.explainers import EXPLAINERS, ExplainerSkippedError
from benchmarks.paper.options import GNNS, OTHER_GNNS, parse
from benchmarks.paper.tasks import Task, load_task
from captum_goat.compare.subject import SPARSITIES
from captum_goat.metrics import area_under_curve, fidelity_curve

GUIDED = tuple(name for name in EXPLAINERS if name.startswith("guided_shapley"))
FAST = ("goat", "integrated_gradients", "occlusion", "occlusion_adjacency", "gradient_shap")
SLOW = ("cf_gnn_explainer", "shapley_value_sampling")
AT_ONCE = 64  # graphs that explainers of batches explain together
DATASETS = ("ba_2motifs", "mutagenicity", "nci1", "ba_shapes", "ba_community", "tree_grid")


def gains(task: Task, name: str, limit: int, budget: float) -> list[float]:
    """Return the gain of an explainer on as many graphs of a task as the budget allows.

    Args:
        task: The model and the graphs.
        name: The name of the explainer.
        limit: The largest number of graphs.
        budget: The seconds after which no further graph is explained.
    """
    explainer, start = EXPLAINERS[name](), time.process_time()
    scores: list[Tensor] = []
    count = 0
    while count < min(limit, len(task.graphs)) and (not count or time.process_time() - start < budget):
        end = min(limit, len(task.graphs), count + (AT_ONCE if explainer.batched else 1))
        batch = Batch.from_data_list(task.graphs[count:end])
        scores.append(explainer(task.model, batch, task.predicted[count:end]))
        count = end
    batch, target = Batch.from_data_list(task.graphs[:count]), task.predicted[:count]
    curve = fidelity_curve(task.model, batch, torch.cat(scores), SPARSITIES, target)
    heights: list[float] = area_under_curve(curve.plus - curve.minus, curve.sparsities, normalize=True).tolist()
    return heights


def difference(one: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
    """Return the mean of the paired differences, and its standard error."""
    count = min(len(one), len(other))
    pairs = torch.tensor(one[:count], dtype=torch.double) - torch.tensor(other[:count], dtype=torch.double)
    return float(pairs.mean()), float(pairs.std() / math.sqrt(count)) if count > 1 else math.inf


def verdict(one: Sequence[float], other: Sequence[float]) -> str:
    """Return ``better``, ``worse`` or ``alike``: by more than two standard errors, or not."""
    mean, error = difference(one, other)
    return "alike" if abs(mean) <= 2 * error or math.isnan(error) else "better" if mean > 0 else "worse"


def markdown(titles: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    rows = [titles, ["---", *("--:" for _ in titles[1:])], *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def gain_table(found: Mapping[str, Mapping[str, Sequence[float]]], names: Sequence[str]) -> str:
    """Return the mean gains, one line per pair of dataset and model."""
    lines = []
    for pair, by_name in found.items():
        means = {name: float(torch.tensor(by_name[name]).mean()) for name in names if by_name.get(name)}
        lines.append([pair, *(f"{means[name]:.3f}" if name in means else "" for name in names)])
    return markdown(["pair", *(f"`{name}`" for name in names)], lines)


def verdict_table(
    found: Mapping[str, Mapping[str, Sequence[float]]], ours: Sequence[str], others: Sequence[str]
) -> str:
    """Return on how many pairs each of ours is better than, alike and worse than each of the others."""
    lines = []
    for own in ours:
        cells = []
        for other in others:
            both = [by_name for by_name in found.values() if by_name.get(own) and by_name.get(other)]
            verdicts = [verdict(by_name[own], by_name[other]) for by_name in both]
            cells.append(" / ".join(str(verdicts.count(kind)) for kind in ("better", "alike", "worse")))
        lines.append([f"`{own}`", *cells])
    return markdown(["better / alike / worse", *(f"`{name}`" for name in others)], lines)


def difference_table(found: Mapping[str, Mapping[str, Sequence[float]]], own: str, others: Sequence[str]) -> str:
    """Return the paired differences of one explainer from others, with standard errors, pair by pair."""
    lines = []
    for pair, by_name in found.items():
        cells = []
        for other in others:
            known = by_name.get(own) and by_name.get(other)
            mean, error = difference(by_name[own], by_name[other]) if known else (math.nan, math.nan)
            cells.append(f"{mean:+.3f} ± {error:.3f}" if known else "")
        lines.append([pair, *cells])
    return markdown([f"`{own}` minus", *(f"`{name}`" for name in others)], lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is missing in the file of results, and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks shapley_gains", description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--data", type=Path, help="folder with the published data files")
    add("--cache", type=Path, default=Path("benchmark/cache"), help="folder for trained models (default: %(default)s)")
    add("--out", type=Path, default=Path("benchmark/shapley_gains.json"), help="file of results (default: %(default)s)")
    add("--datasets", nargs="+", default=DATASETS, metavar="NAME")
    add("--gnns", nargs="+", default=GNNS + OTHER_GNNS, metavar="NAME")
    add("--explainers", nargs="+", default=FAST + GUIDED + SLOW, metavar="NAME")
    add("--limit", type=int, default=60, help="held-out graphs per pair (default: %(default)s)")
    add("--slow-limit", type=int, default=20, help="the same for slow explainers (default: %(default)s)")
    add("--budget", type=float, default=90.0, help="seconds per explainer and pair (default: %(default)s)")
    add("--only-report", action="store_true", help="print the tables of what has been measured")
    given = parser.parse_args(arguments)
    found: dict[str, dict[str, list[float]]] = json.loads(given.out.read_text()) if given.out.exists() else {}
    if not given.only_report:
        _measure(given, found)
    for table in _report(found):
        print(table, end="\n\n")


def _measure(given: argparse.Namespace, found: dict[str, dict[str, list[float]]]) -> None:
    words = [] if given.data is None else ["--data", str(given.data)]
    options = replace(parse([*words, "--cache", str(given.cache)]), limit=given.limit, progress=False)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    for name in sorted(given.explainers, key=lambda name: name in SLOW):
        for pair in ((dataset, gnn) for dataset in given.datasets for gnn in given.gnns):
            results = found.setdefault(" ".join(pair), {})
            if name in results:
                continue
            task = load_task(options, *pair)
            try:
                results[name] = gains(task, name, given.slow_limit if name in SLOW else given.limit, given.budget)
            except ExplainerSkippedError as error:
                print(f"{name} on {' '.join(pair)}: {error}")
                results[name] = []
            given.out.write_text(json.dumps(found))
            print(name, *pair, f"{float(torch.tensor(results[name]).mean()):.3f} on {len(results[name])}", flush=True)


def _report(found: Mapping[str, Mapping[str, Sequence[float]]]) -> Iterable[str]:
    measured = [name for name in FAST + GUIDED + SLOW if any(by_name.get(name) for by_name in found.values())]
    others, ours = [name for name in measured if name not in GUIDED], [name for name in measured if name in GUIDED]
    yield gain_table(found, measured)
    yield verdict_table(found, ours, others)
    for own in ours:
        yield difference_table(found, own, others)


if __name__ == "__main__":
    main()
