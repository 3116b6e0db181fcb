"""How accuracies and coverage depend on the seed: ``python -m benchmarks seeds``.

One seed is one split and one model. How well a model does differs between splits by as much as between papers, and how
many houses of BA-2Motifs have the same explanation depends on the model more than on anything else.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev

from benchmarks.datasets import DATASETS
from benchmarks.markdown_tables import markdown
from benchmarks.paper.measurements import PAPER_SPARSITY
from benchmarks.paper.options import Options
from benchmarks.paper.published import PAPER_TOP_COVERAGE, PAPER_TOP_TWO_COVERAGE, STABLE_EXAMPLE
from benchmarks.paper.results import rows_of
from benchmarks.paper.run import run_task
from benchmarks.paper.study import Results
from benchmarks.paper.tables import title
from benchmarks.paper.tasks import load_task
from benchmarks.paper_models import PAPER_ACCURACIES
from benchmarks.training import TrainingResult
from captum_goat.cli.main import positive
from captum_goat.compare.comparison import EMPTY

DATASET, GNN, LABEL = STABLE_EXAMPLE
EXPLAINERS = ("goat", "goat_repeated")
NAMES = tuple(dict.fromkeys(dataset for dataset, _ in PAPER_ACCURACIES))
TOPS = (1, 2, 3)
NEAR = 0.03  # of the paper's accuracy

COVERAGE = """\
The paper reports that, on BA-2Motifs with a GCN, one explanation covers more than 90 % of class 1 (houses) and three
cover all. Here is the share of correctly predicted graphs of that class, of the whole dataset, whose explanation by
GOAt is among the most frequent one, two and three (up to isomorphism), for models that differ only in their seed: at
sparsity 0.7 with the authors' prefix search, and with k edges without a search. Nodes without edges leave the pool.
`goat_repeated` counts receptive fields as the authors' code does."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Print test accuracies, and the coverage of GOAt's most frequent explanations, over seeds."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks seeds", description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with the published data files (without: generated)")
    parser.add_argument("--cache", type=Path, default=Path("benchmark/cache"), help="folder for models and results")
    parser.add_argument("--seeds", type=positive, default=5, help="how many seeds (default: 5)")
    parser.add_argument("--epochs", type=int, help="epochs of training (default: those of the model)")
    parser.add_argument(
        "--datasets",
        nargs="+",
        choices=NAMES,
        metavar="NAME",
        help=f"datasets whose models' accuracies are wanted, of {', '.join(NAMES)} (default: all; without --data all "
        "that can be generated)",
    )
    parser.add_argument("--out", type=Path, help="a Markdown file for the tables (default: only printed)")
    given = parser.parse_args(arguments)
    datasets = given.datasets or [name for name in NAMES if given.data is not None or DATASETS[name].generate]
    options = [
        Options((), (), EXPLAINERS, given.data, Path("."), given.cache, seed=seed, epochs=given.epochs)
        for seed in range(given.seeds)
    ]
    text = "\n\n".join(
        [
            "# What depends on the seed",
            "Written by `python -m benchmarks seeds`.",
            "## Accuracies",
            f"Test accuracies over {given.seeds} seeds, each with its own split and weights, beside the paper's. The "
            "epoch with the best validation accuracy counts. The last column is no measure of quality: it is there to "
            "tell whether a figure that test sets do not reach may be one of all data.",
            _accuracies(options, datasets),
            "## One explanation for all houses?",
            COVERAGE,
            _coverage(options),
        ]
    )
    print(text)
    if given.out is not None:
        given.out.write_text(f"{text}\n", encoding="utf-8")


def _accuracies(options: Sequence[Options], datasets: Sequence[str]) -> str:
    lines = []
    for (dataset, gnn), quoted in PAPER_ACCURACIES.items():
        if dataset in datasets:
            trainings = [load_task(seed_options, dataset, gnn).training for seed_options in options]
            accuracies = [training.test_accuracy for training in trainings]
            mean, overall = fmean(accuracies), fmean(map(_overall, trainings))
            spread = f" ± {stdev(accuracies):.3f}" if len(accuracies) > 1 else ""
            near = "yes" if abs(mean - quoted) <= NEAR else "no"
            by_seed = ", ".join(f"{value:.3f}" for value in accuracies)
            name, cells = title(dataset, gnn), [f"{mean:.3f}{spread}", by_seed, f"*{quoted:.2f}*", near]
            lines.append([name, *cells, f"{overall:.3f}"])
    header = ["dataset, model", "mean ± standard deviation", "seed by seed", "*paper (quoted)*"]
    return markdown([*header, f"mean within {NEAR}", "training set included, mean"], lines)


def _overall(training: TrainingResult) -> float:
    """Return the accuracy on all graphs or nodes, those of the training set included."""
    sizes = [len(part) for part in training.split]
    parts = (training.train_accuracy, training.validation_accuracy, training.test_accuracy)
    return sum(size * part for size, part in zip(sizes, parts, strict=True)) / sum(sizes)


def _coverage(options: Sequence[Options]) -> str:
    lines = []
    for seed_options in options:
        task = load_task(seed_options, DATASET, GNN, held_out=False)
        study = run_task(task, seed_options, EXPLAINERS)
        results = Results(rows_of(study.task, study.cells))
        for name in EXPLAINERS:
            cells = [_shares(results, name, selection) for selection in ("search", "fixed")]
            lines.append([str(seed_options.seed), f"`{name}`", *cells])
    top, two = (100 * table[DATASET, LABEL] for table in (PAPER_TOP_COVERAGE, PAPER_TOP_TWO_COVERAGE))
    lines.append(["*paper (quoted)*", "*GOAt*", f"*{top:.1f} % / {two:.1f} %*", EMPTY])
    return markdown(["seed", "explainer", "search: top 1 / 2 / 3", "fixed k: top 1 / 2 / 3"], lines)


def _shares(results: Results, name: str, selection: str) -> str:
    where = {
        "protocol": "whole",
        "nodes": "leave",
        "label": LABEL,
        "sparsity": str(PAPER_SPARSITY),
        "selection": selection,
    }
    rows = [results.get(DATASET, GNN, name, f"top{top}_coverage", **where) for top in TOPS]
    return " / ".join(f"{100 * row.value:.1f} %" for row in rows if row is not None) or EMPTY
