"""Fidelity that stays in the training distribution: ``python -m benchmarks in_distribution``.

Edges that are removed take a graph to where the model was never trained, so that a drop of its accuracy may come from
there. Here the model is trained on the reduced graphs before it is asked:

- *GInX* (Amara, El-Assady, Ying: GInX-Eval, 2023) fine-tunes the model on graphs without the most important share t of
  their edges: ``GInX(t) = 1 - test accuracy``. It is high if these edges are *necessary*.
- *EdgeRank* (there) is ``sum of (1 - t) * (GInX(t + 0.1) - GInX(t))`` over t from 0 to 0.8: high if the first edges to
  go are those that the model cannot replace.
- *RoMie* trains a new model on graphs with nothing but the most important share of their edges: its accuracy is high if
  these are *sufficient*. *RoLie* trains on the least important share: its accuracy should be low.

The perturbation is the same everywhere: edges are deleted in both directions, nodes stay. Explanations are of the
predicted class, which they may give away by their shape; random scores and the true motif's edges are the controls.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from statistics import fmean

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Batch, Data

from benchmarks.command_lines import add_explainers, add_graph_dataset, write_results
from benchmarks.datasets import load
from benchmarks.explainers import EXPLAINERS, Explainer
from benchmarks.markdown_tables import markdown
from benchmarks.paper_models import PAPER_SETTINGS, paper_model
from benchmarks.trained_weights import train_once
from benchmarks.training import train_classifier
from captum_goat.compare.explainers import make_explainer
from captum_goat.metrics.counted_edges import CountedEdges
from captum_goat.metrics.fidelity import keep_edges

NAMES = ("goat", "guided_shapley_64", "integrated_gradients", "occlusion", "gnn_explainer", "random")
TRUTH = "motif"  # the control that ranks the edges of the motif first
TENTHS = tuple(tenth / 10 for tenth in range(10))  # 0.0 to 0.9
KEPT = (0.1, 0.3, 0.5)
BATCH = 100  # graphs that are explained at once
FIT_GRAPHS = 100


@dataclass(frozen=True)
class Measured:
    """One number of one explainer and seed.

    Attributes:
        explainer: The explainer.
        seed: The seed of splits, weights and explainers.
        metric: ``"ginx"``, ``"edge_rank"``, ``"romie"`` or ``"rolie"``.
        share: The share of edges that is removed (GInX) or kept; nan for EdgeRank.
        value: The number: 1 - accuracy for GInX, the accuracy for RoMie and RoLie.
    """

    explainer: str
    seed: int
    metric: str
    share: float
    value: float


def without_top(graph: Data, scores: Tensor, share: float) -> Data:
    """Return a graph without the most important share of its edges, rounded to a number of edges.

    Examples::

        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from benchmarks.in_distribution import without_top
        >>> graph = Data(x=torch.ones(4, 1), edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]))
        >>> without_top(graph, torch.tensor([0.1, 0.9, 0.5]), share=0.3).edge_index
        tensor([[0, 2],
                [1, 3]])
    """
    edges = CountedEdges.of(graph)
    return keep_edges(graph, (edges.ranks(scores) >= _number(edges, share))[edges.number])


def top_only(graph: Data, scores: Tensor, share: float) -> Data:
    """Return a graph with the most important share of its edges only, at least one."""
    edges = CountedEdges.of(graph)
    return keep_edges(graph, (edges.ranks(scores) < max(1, _number(edges, share)))[edges.number])


def bottom_only(graph: Data, scores: Tensor, share: float) -> Data:
    """Return a graph with the least important share of its edges only, at least one."""
    edges = CountedEdges.of(graph)
    kept = max(1, _number(edges, share))
    return keep_edges(graph, (edges.ranks(scores) >= len(edges.graph) - kept)[edges.number])


def _number(edges: CountedEdges, share: float) -> int:
    return int(share * len(edges.graph) + 0.5)


def reduced(
    graphs: Sequence[Data], scores: Sequence[Tensor], share: float, how: Callable[[Data, Tensor, float], Data]
) -> list[Data]:
    """Return all graphs with some of their edges, and with their labels."""
    return [how(graph, score, share) for graph, score in zip(graphs, scores, strict=True)]


def ginx(
    model: Module,
    graphs: Sequence[Data],
    scores: Sequence[Tensor],
    share: float,
    *,
    epochs: int,
    lr: float = 0.001,
    batch_size: int = 64,
    seed: int = 0,
) -> float:
    """Return 1 - the test accuracy of a copy that is fine-tuned on graphs without their most important edges.

    Args:
        model: The trained model; it stays as it is.
        graphs: All graphs of a dataset, with labels ``y``; the seed splits them as in training.
        scores: The scores of their edges.
        share: The share of edges to remove.
        epochs: The number of epochs; with 0 the model is asked as it is, which is the usual fidelity.
        lr: The learning rate.
        batch_size: The number of graphs per step.
        seed: The seed of the split and of the order of the graphs.
    """
    graphs = reduced(graphs, scores, share, without_top)
    options = {"epochs": epochs, "batch_size": batch_size, "seed": seed}
    return 1.0 - train_classifier(deepcopy(model), graphs, lr=lr, show_progress=False, **options).test_accuracy


def edge_rank(curve: Sequence[float]) -> float:
    """Return the EdgeRank score of GInX at equally spaced shares from 0 on.

    Examples::

        >>> from benchmarks.in_distribution import edge_rank
        >>> edge_rank([0.0, 0.5, 0.5]), edge_rank([0.0, 0.0, 0.5])  # the sooner, the better
        (0.5, 0.45)
    """
    step = 0.1
    return sum((1.0 - step * place) * (curve[place + 1] - curve[place]) for place in range(len(curve) - 1))


def explain_all(explainer: Explainer, model: Module, graphs: Sequence[Data]) -> list[Tensor]:
    """Return the scores of every graph's edges for its predicted class."""
    scores: list[Tensor] = []
    for start in range(0, len(graphs), BATCH):
        part = [Data(x=graph.x, edge_index=graph.edge_index) for graph in graphs[start : start + BATCH]]
        batch = Batch.from_data_list(part)
        with torch.no_grad():
            target = model(batch.x, batch.edge_index, batch.batch).argmax(dim=1)
        scores += explainer(model, batch, target).split([graph.num_edges for graph in part])
    return scores


def measure(
    name: str,
    model: Module,
    fresh: Callable[[], Module],
    graphs: Sequence[Data],
    scores: Sequence[Tensor],
    *,
    seed: int,
    fine_tuning: int,
    training: int,
    lr: float,
) -> list[Measured]:
    """Return all numbers of one explainer and seed.

    Args:
        name: The explainer.
        model: The trained model.
        fresh: Makes the same model with initial weights.
        graphs: All graphs, with labels.
        scores: The scores of their edges.
        seed: The seed of the split.
        fine_tuning: The epochs of fine-tuning.
        training: The epochs of training anew.
        lr: The learning rate of training; fine-tuning has a fifth of it.
    """
    curve = [ginx(model, graphs, scores, share, epochs=fine_tuning, lr=lr / 5, seed=seed) for share in TENTHS]
    rows = [Measured(name, seed, "ginx", share, value) for share, value in zip(TENTHS, curve, strict=True)]
    rows.append(Measured(name, seed, "edge_rank", float("nan"), edge_rank(curve)))
    for metric, how in (("romie", top_only), ("rolie", bottom_only)):
        for share in KEPT:
            kept = reduced(graphs, scores, share, how)
            result = train_classifier(fresh(), kept, epochs=training, lr=lr, seed=seed, show_progress=False)
            rows.append(Measured(name, seed, metric, share, result.test_accuracy))
    return rows


def table(rows: Sequence[Measured]) -> str:
    """Return necessity and sufficiency side by side, means over seeds."""
    names = list(dict.fromkeys(row.explainer for row in rows))

    def mean(name: str, metric: str, share: float | None = None) -> str:
        own = [row for row in rows if row.explainer == name and row.metric == metric]
        return f"{fmean(row.value for row in own if share in (None, row.share)):.2f}"

    shares = (0.0, 0.1, 0.2, 0.3, 0.5)
    header = ["explainer", *(f"GInX({share:g})" for share in shares), "EdgeRank"]
    header += [f"{metric} {share:g}" for share in KEPT for metric in ("RoMie", "RoLie")]
    lines = []
    for name in names:
        kept = [mean(name, metric, share) for share in KEPT for metric in ("romie", "rolie")]
        cells = [mean(name, "ginx", share) for share in shares] + [mean(name, "edge_rank")] + kept
        lines.append([f"`{name}`" if name in EXPLAINERS else f"*{name}*", *cells])
    return markdown(header, lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, explain, train again on reduced graphs; print the table and write every number as CSV."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks in_distribution", description=__doc__.splitlines()[0])
    add = parser.add_argument
    add_explainers(parser, NAMES)
    add_graph_dataset(parser)
    add("--graphs", type=int, default=500, help="a subsample of the dataset, split 80/10/10 (default: %(default)s)")
    add("--seeds", type=int, default=2, help="splits and initial weights (default: %(default)s)")
    add("--training", type=int, default=40, help="epochs of training (default: %(default)s)")
    add("--fine-tuning", type=int, default=5, help="epochs of fine-tuning (default: %(default)s)")
    given = parser.parse_args(arguments)
    start, rows, accuracies = time.perf_counter(), [], []
    dataset = load(given.dataset, given.data, unpack_to=given.out / "cache" / "data")
    settings = replace(PAPER_SETTINGS[given.dataset, given.gnn], epochs=given.training)
    sample = torch.randperm(len(dataset.graphs), generator=torch.Generator().manual_seed(0))[: given.graphs].tolist()
    graphs = [dataset.graphs[index] for index in sample if dataset.graphs[index].num_edges]
    for seed in range(given.seeds):

        def fresh(seed: int = seed) -> Module:
            return paper_model(dataset.info, given.gnn, settings, seed)

        model = fresh()
        trained = train_once(
            model,
            graphs,
            given.out / "cache" / "models",
            epochs=settings.epochs,
            lr=settings.lr,
            seed=seed,
            show_progress=False,
        )
        accuracies.append(trained.test_accuracy)
        fit_graphs = [graphs[index] for index in trained.split.train[:FIT_GRAPHS].tolist()]
        scores_by_name: dict[str, list[Tensor]] = {}
        for name in given.explainers:
            explainer = make_explainer(EXPLAINERS[name], seed)
            explainer.fit(model, fit_graphs)
            scores_by_name[name] = explain_all(explainer, model, graphs)
        if "edge_label" in graphs[0]:
            random = torch.Generator().manual_seed(seed)
            scores_by_name[TRUTH] = [
                graph.edge_label + 0.1 * torch.rand(graph.num_edges, generator=random) for graph in graphs
            ]
        for name, scores in scores_by_name.items():
            options = {"seed": seed, "fine_tuning": given.fine_tuning, "training": given.training}
            rows += measure(name, model, fresh, graphs, scores, lr=settings.lr, **options)
            print(f"seed {seed}, {name}: {time.perf_counter() - start:.0f} s", flush=True)
    text = (
        f"{dataset.info.title}, {given.gnn}, {len(graphs)} graphs ({len(graphs) // 10} of them in each test set), "
        f"{given.seeds} seeds, test accuracy {fmean(accuracies):.2f}:\n\n{table(rows)}"
    )
    subject, seconds = f"{given.dataset}_{given.gnn}", time.perf_counter() - start
    write_results(given.out, "in_distribution", text, rows, Measured, seconds, subject=subject)


if __name__ == "__main__":
    main()
