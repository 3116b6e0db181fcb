"""The pages on what explanations show: the motif, the class, and the same thing for the same class."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.paper import figures
from benchmarks.paper.coverage import class_table, coverage_table
from benchmarks.paper.explainer_order import COLOURS
from benchmarks.paper.measurements import PAPER_SPARSITY
from benchmarks.paper.pages.page import joined, of_graphs, picture, policies
from benchmarks.paper.published import STABLE_EXAMPLE
from benchmarks.paper.results import ALL, ORIGINAL, REFERENCE
from benchmarks.paper.study import Results, Study
from benchmarks.paper.tables import metric_table, title
from captum_goat.compare.comparison import number


def truth_page(results: Results) -> str:
    """Return how well scores find the edges of motifs, where these are known."""
    known = [
        dataset
        for dataset in results.values("dataset")
        if any(row.dataset == dataset and row.metric == "ground_truth_auc" for row in results.rows)
    ]
    if not known:
        return ""
    parts = [
        "The area under the ROC curve of signed scores against the edges of the motifs (or of NO2 and NH2 groups), "
        "and the share of motif edges among as many of the best edges as the motif has; averages over graphs that "
        "have both kinds of edges. A model need not look at a motif to tell classes apart, and edges of a motif can "
        "speak against a class."
    ]
    for dataset in known:
        parts += [f"## {title(dataset)}", "Area under the ROC curve:"]
        parts += [metric_table(results, "ground_truth_auc", [dataset]), "Precision at k:"]
        parts += [metric_table(results, "precision_at_k", [dataset])]
    return joined(parts)


def discriminability_page(results: Results, studies: Sequence[Study], folder: Path, seed: int) -> str:
    """Return distances between classes' explanations, and their embeddings in the plane."""
    parts = []
    for dataset in results.values("dataset"):
        if any(row.dataset == dataset and row.metric == "discriminability" for row in results.rows):
            nodes = policies(results, dataset)[-1]
            where = {"protocol": "correct", "selection": "fixed", "sparsity": str(PAPER_SPARSITY), "nodes": nodes}
            originals = [results.get(*task, "", ORIGINAL, protocol="correct") for task in results.tasks(dataset)]
            last = ["*original graphs*", *(f"*{number(None if row is None else row.value)}*" for row in originals)]
            path = figures.draw_discriminability(results, dataset, nodes, folder / f"discriminability_{dataset}.png")
            parts += [f"## {title(dataset)}", picture(path, f"Discriminability over sparsities, {title(dataset)}")]
            parts += [metric_table(results, "discriminability", [dataset], last=last, **where)]
    if not parts:
        return ""
    parts.insert(
        0,
        "The distance between classes' mean embeddings of explanations (of all pairs of classes the mean), for "
        f"correctly predicted graphs; in tables at sparsity {PAPER_SPARSITY}, with fixed k. Embeddings are outputs of "
        "the last hidden layer. Distances of different models do not compare.",
    )
    names = _coloured_first(results.values("explainer"))
    shown = [study for study in studies if study.task.held_out and not study.task.of_nodes]
    for study in shown:
        if study.task.gnn == shown[0].task.gnn:
            what = title(study.task.dataset, study.task.gnn)
            name = f"embeddings_{study.task.dataset}_{study.task.gnn}.png"
            path = figures.draw_embeddings(study, names, folder / name, seed)
            parts += [f"## Embeddings, {what}", picture(path, f"Explanation embeddings of {what}")]
    return joined(parts)


def _coloured_first(names: Sequence[str]) -> list[str]:
    """Return the explainers, those with a colour of their own first, without random numbers."""
    return sorted((name for name in names if name != "random"), key=lambda name: name not in COLOURS)


def stability_page(results: Results, studies: Sequence[Study], folder: Path) -> str:
    """Return how many graphs of a class share the most frequent explanations, and what these look like."""
    datasets = of_graphs(results)
    if not datasets:
        return ""
    parts = [
        "The share of a class that has its most frequent explanation / one of its three most frequent ones, at "
        f"sparsity {PAPER_SPARSITY}, for correctly predicted held-out graphs, nodes without edges leave. Explanations "
        'are the same if they are isomorphic with equal node features; "by embeddings", as in the authors\' code, if '
        "their embeddings are equal up to 0.0001. Of few graphs any share is large: look at the number of graphs "
        "before comparing.",
        headline(results),
    ]
    if "whole" in results.values("protocol") and STABLE_EXAMPLE[:2] in results.tasks():
        parts += ["The same for all graphs of the dataset, those of the training set included:"]
        parts += [coverage_table(results, *STABLE_EXAMPLE, "whole")]
    names, held_out = results.values("explainer"), [study for study in studies if study.task.held_out]
    for study in held_out:
        task = (study.task.dataset, study.task.gnn)
        if task[0] in datasets:
            what, stem = title(*task), "_".join(task)
            curves = figures.draw_coverage(study, names, folder / f"coverage_{stem}.png")
            motifs = figures.draw_motifs(study, REFERENCE, folder / f"motifs_{stem}.png")
            parts += [f"## {what}", picture(curves, f"Coverage of the most frequent explanations, {what}")]
            parts += [picture(motifs, f"GOAt's most frequent explanations, {what}")]
            parts += [class_table(results, *task, _labels(results, task))]
    return joined(parts)


def headline(results: Results) -> str:
    """Return the paper's example of a stable explanation, for held-out graphs."""
    if STABLE_EXAMPLE[:2] not in results.tasks():
        return ""
    return joined(
        [
            "## The paper's example: BA-2Motifs, GCN, class 1 (houses)",
            "Top 1 / 2 / 3, held-out graphs:",
            coverage_table(results, *STABLE_EXAMPLE, "correct"),
        ]
    )


def _labels(results: Results, task: tuple[str, str]) -> list[str]:
    rows = (row for row in results.rows if (row.dataset, row.gnn) == task and row.metric == "top1_coverage")
    return sorted({row.label for row in rows if row.label != ALL})
