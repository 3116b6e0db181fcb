"""The pages on fidelity: with the same k for every method, and with the authors' search."""

from __future__ import annotations

from pathlib import Path

from benchmarks.paper import figures, verdicts
from benchmarks.paper.measurements import PAPER_SPARSITY
from benchmarks.paper.pages.page import joined, measured, picture, policies
from benchmarks.paper.results import REFERENCE
from benchmarks.paper.study import Results
from benchmarks.paper.tables import GNN_TITLES, fidelity_table, model_table, point_table, robust_table, title

AT_PAPER_SPARSITY = {"nodes": "stay", "selection": "fixed", "sparsity": str(PAPER_SPARSITY)}


def fidelity_page(results: Results, everything: Results, folder: Path) -> str:
    """Return curves and their areas with the same k for every method, verdicts for each task, robust fidelities.

    Args:
        results: The rows of the paper's models.
        everything: The rows of all models; those that are not the paper's have one table.
        folder: Where the pictures go.

    Returns:
        The page, without its heading.
    """
    parts = [
        "fid+ minus fid-, averaged over sparsities 0.5 to 0.9, for the predicted class of all graphs; in brackets the "
        "paired difference against GOAt on the same graphs, with its standard error. Pictures where nodes leave are "
        "of correctly predicted graphs, as in the paper. Explainers that are not in a legend are the grey lines; one "
        "with less than a tenth of the others' graphs is not drawn.",
    ]
    for dataset in measured(results):
        for nodes in policies(results, dataset):
            path = figures.draw_fidelity(results, dataset, nodes, folder / f"fidelity_{dataset}_{nodes}.png")
            parts += [f"## {title(dataset)}, nodes without edges {nodes}"]
            parts += [picture(path, f"Fidelity curves of {title(dataset)}, nodes {nodes}")]
            parts += [fidelity_table(results, dataset, nodes)]
    if REFERENCE in results.values("explainer"):
        parts += ["## Who is better, task by task", verdicts.by_task(results, "stay")]
    for gnn in [gnn for gnn in everything.values("gnn") if gnn not in results.values("gnn")]:
        parts += [
            f"## {GNN_TITLES[gnn]}, which is not the paper's",
            "Nodes stay. It divides by degrees, so that an edge counts for more than its message: methods with "
            "`adjacency` in their names, and integrated gradients on edge weights before the division "
            "(`integrated_gradients_weights`), see that; masks of messages do not.",
            model_table(everything, gnn, "stay"),
        ]
    tables = {dataset: robust_table(results, dataset, **AT_PAPER_SPARSITY) for dataset in results.values("dataset")}
    if any(tables.values()):
        parts += [
            "## Robust fidelity",
            f"rfid+ / rfid- at sparsity {PAPER_SPARSITY} with fixed k, nodes stay: every edge of an explanation is "
            "removed with probability 0.1, or every other edge with probability 0.1, 50 times, so that what is left "
            "looks like a graph of the dataset (Zheng et al.: Towards Robust Fidelity, ICLR 2024). So little is "
            "removed that differences are small.",
        ]
        for dataset, table in tables.items():
            parts += [f"### {title(dataset)}, robust", table]
    return joined(parts)


def search_page(results: Results) -> str:
    """Return fidelities at the paper's sparsity, with fixed k and with the searched prefix."""
    parts = [
        f"fid+ / fid- at sparsity {PAPER_SPARSITY} as in the paper: correctly predicted graphs, the true class, nodes "
        "without edges leave (where there is a pool). Beside the fixed k stands the prefix of at most k edges that "
        "maximises fid+ minus fid-. The search looks at the model: random scores gain by it, too.",
    ]
    for dataset in measured(results):
        nodes = policies(results, dataset)[-1]
        table = point_table(results, dataset, protocol="correct", nodes=nodes, sparsity=str(PAPER_SPARSITY))
        parts += [f"## {title(dataset)}", table]
    return joined(parts)
