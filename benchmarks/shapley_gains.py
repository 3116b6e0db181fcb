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
from typing import TypeAlias

import torch
from torch import Tensor
from torch_geometric.data import Batch

from benchmarks.explainers import EXPLAINERS, ExplainerSkippedError
from benchmarks.paper.options import GNNS, OTHER_GNNS, parse
from benchmarks.paper.tasks import Task, load_task
from benchmarks.paper_metrics import robust_fidelity
from captum_goat.compare.graphs import SPARSITIES
from captum_goat.metrics import area_under_curve, fidelity_curve, select_edges

GUIDED = tuple(name for name in EXPLAINERS if name.startswith("guided_shapley"))
SEARCHES = ("edge_set_search", "random_swaps", "edge_set_search_60")
FAST = ("goat", "integrated_gradients", "occlusion", "occlusion_adjacency", "gradient_shap")
SLOW = ("cf_gnn_explainer", "shapley_value_sampling")
AT_ONCE = 64  # graphs that explainers of batches explain together
# What was measured of each explainer, by pair of dataset and model: one number per graph for each of `MEASURES`.
Results: TypeAlias = dict[str, dict[str, dict[str, list[float]]]]
MEASURES = ("gain", "plus", "minus", "other", "robust")
OTHER = (0.62, 0.78, 0.92)  # sparsities at which the search for edge sets measures nothing
ROBUST_SPARSITY = 0.78
DATASETS = ("ba_2motifs", "mutagenicity", "nci1", "ba_shapes", "ba_community", "tree_grid")


def measures(task: Task, name: str, limit: int, budget: float) -> dict[str, list[float]]:
    """Return what is measured of an explainer on as many graphs of a task as the budget allows.

    Args:
        task: The model and the graphs.
        name: The name of the explainer.
        limit: The largest number of graphs.
        budget: The seconds after which no further graph is explained.

    Returns:
        One number per graph for each of :data:`MEASURES`.
    """
    explainer, start = EXPLAINERS[name](), time.process_time()
    scores: list[Tensor] = []
    count = 0
    while count < min(limit, len(task.graphs)) and (not count or time.process_time() - start < budget):
        end = min(limit, len(task.graphs), count + (AT_ONCE if explainer.batched else 1))
        batch = Batch.from_data_list(task.graphs[count:end])
        scores.append(explainer(task.model, batch, task.predicted[count:end]))
        count = end
    model, all_scores = task.model, torch.cat(scores)
    batch, target = Batch.from_data_list(task.graphs[:count]), task.predicted[:count]
    curve, other = (fidelity_curve(model, batch, all_scores, sparsities, target) for sparsities in (SPARSITIES, OTHER))
    plus, minus, gain, apart = (
        area_under_curve(heights, sparsities, normalize=True)
        for heights, sparsities in (
            (curve.plus, curve.sparsities),
            (curve.minus, curve.sparsities),
            (curve.plus - curve.minus, curve.sparsities),
            (other.plus - other.minus, other.sparsities),
        )
    )
    selected, generator = select_edges(batch, all_scores, ROBUST_SPARSITY), torch.Generator().manual_seed(0)
    robust = robust_fidelity(model, batch, selected, target, generator=generator).delta
    numbers = {"gain": gain, "plus": plus, "minus": minus, "other": apart, "robust": robust}
    return {key: [round(value, 6) for value in numbers[key].tolist()] for key in MEASURES}


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
    found: Mapping[str, Mapping[str, Sequence[float]]],
    ours: Sequence[str],
    others: Sequence[str],
    *,
    less_is_better: bool = False,
) -> str:
    """Return on how many pairs each of ours is better than, alike and worse than each of the others."""
    lines = []
    for own in ours:
        cells = []
        for other in others:
            if own == other:
                cells.append("")
                continue
            both = [by_name for by_name in found.values() if by_name.get(own) and by_name.get(other)]
            verdicts = [verdict(by_name[own], by_name[other]) for by_name in both]
            if less_is_better:
                verdicts = [{"better": "worse", "worse": "better"}.get(kind, kind) for kind in verdicts]
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
    add("--explainers", nargs="+", default=FAST + GUIDED + SEARCHES + SLOW, metavar="NAME")
    add("--limit", type=int, default=60, help="held-out graphs per pair (default: %(default)s)")
    add("--slow-limit", type=int, default=20, help="the same for slow explainers (default: %(default)s)")
    add("--budget", type=float, default=90.0, help="seconds per explainer and pair (default: %(default)s)")
    add("--only-report", action="store_true", help="print the tables of what has been measured")
    given = parser.parse_args(arguments)
    found: Results = json.loads(given.out.read_text()) if given.out.exists() else {}
    if not given.only_report:
        _measure(given, found)
    for table in _report(found):
        print(table, end="\n\n")


def _measure(given: argparse.Namespace, found: Results) -> None:
    words = [] if given.data is None else ["--data", str(given.data)]
    options = replace(parse([*words, "--cache", str(given.cache)]), limit=given.limit, progress=False)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    for pair in ((dataset, gnn) for dataset in given.datasets for gnn in given.gnns):
        results = found.setdefault(" ".join(pair), {})
        missing = [name for name in given.explainers if name not in results]
        task = load_task(options, *pair) if missing else None
        for name in missing:
            assert task is not None
            try:
                results[name] = measures(task, name, given.slow_limit if name in SLOW else given.limit, given.budget)
            except ExplainerSkippedError as error:
                print(f"{name} on {' '.join(pair)}: {error}")
                results[name] = {}
            given.out.write_text(json.dumps(found))
            gain = torch.tensor(results[name].get("gain", []))
            print(name, *pair, f"{float(gain.mean()):.3f} on {len(gain)}", flush=True)


def _report(found: Results) -> Iterable[str]:
    names = FAST + GUIDED + SEARCHES + SLOW
    by_measure = {key: _by_pair(found, key) for key in MEASURES}
    measured = [name for name in names if any(name in by_name for by_name in by_measure["gain"].values())]
    ours = [name for name in measured if name in GUIDED]
    searches = [name for name in measured if name in SEARCHES]
    others = [name for name in measured if name not in (*GUIDED, *SEARCHES)]
    yield gain_table(by_measure["gain"], [name for name in measured if name not in SEARCHES])
    yield verdict_table(by_measure["gain"], ours, others)
    for own in ours:
        yield difference_table(by_measure["gain"], own, others)
    beside = [name for name in ("guided_shapley_64", *others) if name in measured]
    for key in MEASURES:
        yield f"### {key}\n\n" + gain_table(by_measure[key], [*searches, *beside])
        yield verdict_table(by_measure[key], searches, [*searches, *beside], less_is_better=key == "minus")


def _by_pair(found: Results, key: str) -> dict[str, dict[str, list[float]]]:
    """Return one measure of all explainers, pair by pair."""
    return {
        pair: {name: numbers[key] for name, numbers in by_name.items() if numbers} for pair, by_name in found.items()
    }


if __name__ == "__main__":
    main()
