"""The first page of the report: where GOAt wins and where it loses, and what became of the paper's own figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.markdown_tables import markdown
from benchmarks.paper import verdicts
from benchmarks.paper.matrix import EXPLANATION, verdict_matrix
from benchmarks.paper.measurements import PAPER_SPARSITY
from benchmarks.paper.pages.page import joined, of_graphs
from benchmarks.paper.published import (
    PAPER_SECONDS,
    PAPER_TOP_COVERAGE,
    PAPER_TOP_TWO_COVERAGE,
    STABLE_EXAMPLE,
)
from benchmarks.paper.results import REFERENCE
from benchmarks.paper.study import Results
from benchmarks.paper.tables import title
from benchmarks.paper_models import PAPER_ACCURACIES
from captum_goat.compare.comparison import EMPTY, number, seconds


def summary_page(results: Results, everything: Results, links: Sequence[str], folder: Path) -> str:
    """Return the first page.

    Args:
        results: The rows of the paper's models and of the explainers of the main tables.
        everything: The rows of all models.
        links: Lines that tell what the other pages have.
        folder: The folder of the report, in which other benchmarks may have left their figures.

    Returns:
        The page, without its heading.
    """
    return joined(
        [
            _extent(everything),
            _matrix(results, folder),
            _verdicts(results),
            _quoted(results),
            _accuracies(everything),
            "## The pages",
            "\n".join(links),
        ]
    )


def _extent(results: Results) -> str:
    """Say how many explainers, models and graphs there were."""
    graphs = [
        max((row.n for row in results.rows if (row.dataset, row.gnn) == task and row.metric == "area_gain"), default=0)
        for task in results.tasks()
    ]
    fewest = f"{min(graphs)} to " if len(set(graphs)) > 1 else ""
    return (
        f"{len(results.values('explainer'))} explainers on {len(graphs)} pair(s) of dataset and model, {fewest}"
        f"{max(graphs, default=0)} graphs each; some explain fewer, where they are slow."
    )


def _matrix(results: Results, folder: Path) -> str:
    if REFERENCE not in results.values("explainer"):
        return ""
    return joined(
        [
            "## Explainers by criteria",
            EXPLANATION,
            verdict_matrix(results, folder),
        ]
    )


def _verdicts(results: Results) -> str:
    if REFERENCE not in results.values("explainer"):
        return ""
    policies = ["stay", "leave"] if of_graphs(results) else ["stay"]
    return joined(
        [
            "## Where GOAt wins and where it loses",
            "The measure is fid+ minus fid-, averaged over sparsities 0.5 to 0.9 with the same number of edges for "
            'every method; nodes without edges stay, or leave the pool as in the authors\' code. "Better" and "worse" '
            "mean a paired difference against GOAt, on the same graphs, of more than 0.0005 and with p < 0.05 in a "
            "t-test, after Holm's correction for all comparisons of a column of the table: with a probability of 95 % "
            "none of them is a difference by chance. Times are medians over datasets and models, in batches where a "
            "method can do that.",
            verdicts.in_words(results, "stay"),
            verdicts.by_explainer(results, policies),
            "By dataset and model, where nodes stay; places are among methods that explained as many graphs:",
            verdicts.best_by_task(results, "stay"),
            *_by_class(results),
        ]
    )


def _by_class(results: Results) -> list[str]:
    """Return the verdicts for each class under the authors' node policy."""
    if not of_graphs(results):
        return []
    return [
        "Where nodes leave, class by class. The authors' code explains both classes of BA-2Motifs, but of Mutagenicity "
        "only class 0 and of NCI1 only class 1. A class that the model predicts without any edges has little to "
        "explain.",
        verdicts.best_by_task(results, "leave", per_class=True),
    ]


def _quoted(results: Results) -> str:
    """Return the paper's figures of time and stability beside ours."""
    parts, lines = [], []
    for dataset, quoted in PAPER_SECONDS.items():
        times = [results.get(dataset, "gcn", REFERENCE, metric) for metric in ("seconds_alone", "seconds_in_batch")]
        if any(times):
            own = [seconds(None if row is None else row.value) for row in times]
            lines.append([title(dataset), f"*{seconds(quoted)}*", *own])
    if lines:
        header = ["dataset (GCN)", "*paper, RTX 3090 (quoted)*", "here, alone", "here, in batches"]
        parts += ["GOAt's time for one graph, here without a GPU:", markdown(header, lines)]
    coverage = []
    for protocol, graphs in (("correct", "held-out graphs"), ("whole", "all graphs")):
        for selection, name in (("search", "with search"), ("fixed", "fixed k")):
            cells = _coverage(results, protocol, selection)
            if set(cells) != {EMPTY}:
                coverage.append([f"{name}, {graphs}", *cells])
    if coverage:
        dataset, _, label = STABLE_EXAMPLE
        top, two = (table[dataset, label] for table in (PAPER_TOP_COVERAGE, PAPER_TOP_TWO_COVERAGE))
        coverage.append(["*paper, with search (quoted)*", f"*{100 * top:.1f} %*", f"*{100 * two:.1f} %*", EMPTY])
        parts += [
            "The share of houses in BA-2Motifs (GCN, class 1, sparsity 0.7) that have GOAt's most frequent "
            "explanation, or one of two or three. It differs from model to model: `python -m benchmarks "
            "seeds` repeats it with other seeds.",
            markdown(["GOAt", "top 1", "top 2", "top 3"], coverage),
        ]
    return joined(["## The paper's own figures, here", *parts]) if parts else ""


def _coverage(results: Results, protocol: str, selection: str) -> list[str]:
    dataset, gnn, label = STABLE_EXAMPLE
    where = {"protocol": protocol, "selection": selection, "nodes": "leave", "label": label}
    where["sparsity"] = str(PAPER_SPARSITY)
    rows = [results.get(dataset, gnn, REFERENCE, f"top{top}_coverage", **where) for top in (1, 2, 3)]
    return [EMPTY if row is None else f"{100 * row.value:.1f} %" for row in rows]


def _accuracies(results: Results) -> str:
    lines = []
    for dataset, gnn in results.tasks():
        parts = [
            results.get(dataset, gnn, "", f"{part}_accuracy", protocol="") for part in ("train", "validation", "test")
        ]
        quoted = PAPER_ACCURACIES.get((dataset, gnn))
        values = [number(None if row is None else row.value) for row in parts]
        lines.append([title(dataset, gnn), *values, EMPTY if quoted is None else f"*{quoted:.2f}*"])
    header = ["dataset, model", "training", "validation", "test", "*test, paper (quoted)*"]
    text = (
        "The epoch with the best validation accuracy counts. The settings of the models (see "
        "`benchmarks.paper_models.PAPER_SETTINGS`) are not all in the paper: some were chosen by hand, with a look at "
        "test accuracies, so these are no fair estimate of how well such models do. They are there to explain. One "
        "seed is one split: `python -m benchmarks seeds` has the spread over several."
    )
    return joined(["## Accuracies of the models", text, markdown(header, lines)])
