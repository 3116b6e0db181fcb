"""Train a GIN on BA-2Motifs and explain it with GOAt and with Captum's IntegratedGradients.

Run ``python -m benchmarks.demo``. It takes about half a minute, prints a table and saves a picture.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from captum.attr import IntegratedGradients
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.utils import coalesce

try:
    from sklearn.metrics import roc_auc_score
except ImportError as error:
    raise ImportError("The demo needs scikit-learn: pip install captum-goat[demo]") from error

from captum_goat import EdgeMaskedModel, GOAtAttribution
from captum_goat.datasets import ba_2motifs
from captum_goat.models import GraphClassifier, train_model
from captum_goat.plot import visualize_graph_attr

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

CLASS_NAMES = ("cycle", "house")

LEGEND = """
completeness error   how far, at worst, a graph's attributions are from adding up to f(graph) - f(graph without edges)
top k is motif       how much of the k highest edges is motif, for motifs of k edges
ROC AUC              how well the attributions separate the motif's edges from the others; 1 is best, 0.5 is chance.
                     Edges of the motif can also speak against a class, so magnitudes are ranked as well."""


class Explained(NamedTuple):
    """The test set, what the model says about it, and the outputs that are explained."""

    graphs: list[Data]
    batch: Batch
    predicted: Tensor  # [G]
    differences: Tensor  # [G], f(graph) - f(graph without edges) for the predicted class


class Explanation(NamedTuple):
    """One method's attributions, graph by graph, and how long they took."""

    method: str
    attributions: list[Tensor]
    seconds: float


class MotifScores(NamedTuple):
    """How well attributions find the motifs, averaged over graphs."""

    top_k: float
    auc: float
    auc_of_magnitude: float


def explained_outputs(model: GraphClassifier, graphs: list[Data]) -> Explained:
    """Compute what is to be explained: the logits of the predicted classes."""
    batch = Batch.from_data_list(graphs)
    arguments, full = (batch.x, batch.edge_index, batch.batch), torch.ones(batch.num_edges)
    with torch.no_grad():
        output = model(*arguments)
        without_edges = EdgeMaskedModel(model)(torch.zeros_like(full), *arguments)
    predicted = output.argmax(dim=1)
    differences = (output - without_edges).gather(1, predicted.unsqueeze(1)).squeeze(1)
    return Explained(graphs, batch, predicted, differences)


def goat(model: GraphClassifier, explained: Explained) -> Tensor:
    """Explain all graphs in one call with GOAt."""
    batch = explained.batch
    attributions: Tensor = GOAtAttribution(model).attribute(
        torch.ones(batch.num_edges),
        target=explained.predicted,
        additional_forward_args=(batch.x, batch.edge_index, batch.batch),
    )
    return attributions


def integrated_gradients(model: GraphClassifier, explained: Explained) -> Tensor:
    """Explain all graphs in one call with IntegratedGradients, from no edges to all edges."""
    batch, masked = explained.batch, EdgeMaskedModel(model)

    # The graphs are disjoint, so the gradient of the sum of their outputs gives every edge its own graph's attribution.
    def sum_of_outputs(masks: Tensor) -> Tensor:
        output = masked(masks, batch.x, batch.edge_index, batch.batch).view(len(masks), batch.num_graphs, -1)
        chosen: Tensor = output[:, torch.arange(batch.num_graphs), explained.predicted]
        return chosen.sum(dim=1)

    attributions: Tensor = IntegratedGradients(sum_of_outputs).attribute(torch.ones(1, batch.num_edges))
    return attributions.squeeze(0).detach()


METHODS: dict[str, Callable[[GraphClassifier, Explained], Tensor]] = {
    "GOAt": goat,
    "IntegratedGradients": integrated_gradients,
}


def timed_explanation(method: str, model: GraphClassifier, explained: Explained) -> Explanation:
    """Run a method and the clock."""
    start = time.perf_counter()
    attributions = METHODS[method](model, explained)
    seconds = time.perf_counter() - start
    return Explanation(method, list(attributions.split([graph.num_edges for graph in explained.graphs])), seconds)


def completeness_error(explanation: Explanation, differences: Tensor) -> float:
    """Return the largest difference, over graphs, between the attributions' sum and what it should be."""
    sums = torch.stack([attributions.sum() for attributions in explanation.attributions])
    return float((sums - differences).abs().max())


def undirected(attributions: Tensor, graph: Data) -> tuple[Tensor, Tensor]:
    """Return the attributions and the ground truth of undirected edges: the sums over the two directions."""
    values = torch.stack([attributions, graph.edge_label.to(attributions)], dim=1)
    _, merged = coalesce(graph.edge_index.sort(dim=0).values, values, reduce="sum")
    return merged[:, 0], merged[:, 1] > 0


def motif_scores(explanation: Explanation, graphs: list[Data]) -> MotifScores:
    """Compare attributions with the motifs, graph by graph."""
    rows = []
    for attributions, graph in zip(explanation.attributions, graphs, strict=True):
        scores, in_motif = undirected(attributions, graph)
        top = scores.topk(int(in_motif.sum())).indices
        aucs = roc_auc_score(in_motif, scores), roc_auc_score(in_motif, scores.abs())
        rows.append((float(in_motif[top].float().mean()), *map(float, aucs)))
    return MotifScores(*torch.tensor(rows).mean(dim=0).tolist())


def table(explanations: Sequence[Explanation], explained: Explained) -> str:
    """Return the comparison as text."""
    header = ("method", "seconds", "completeness error", "top k is motif", "ROC AUC", "ROC AUC (magnitude)")
    lines = ["  ".join((f"{header[0]:<20}", *header[1:]))]
    for explanation in explanations:
        scores = motif_scores(explanation, explained.graphs)
        cells = (
            f"{explanation.seconds:.2f}",
            f"{completeness_error(explanation, explained.differences):.1e}",
            f"{scores.top_k:.0%}",
            f"{scores.auc:.3f}",
            f"{scores.auc_of_magnitude:.3f}",
        )
        padded = (cell.rjust(len(name)) for cell, name in zip(cells, header[1:], strict=True))
        lines.append("  ".join((f"{explanation.method:<20}", *padded)))
    return "\n".join(lines)


def examples(explained: Explained) -> list[int]:
    """Choose one test graph of each class, a correctly classified one if there is any."""
    labels = explained.batch.y.tolist()
    wrong = (explained.predicted != explained.batch.y).tolist()
    return [
        min((index for index, label in enumerate(labels) if label == each), key=wrong.__getitem__)
        for each in sorted(set(labels))
    ]


def picture(explanations: Sequence[Explanation], explained: Explained) -> Figure:
    """Draw a graph of each class (rows) as every method explains it (columns)."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    rows = examples(explained)
    size = (5.4 * len(explanations), 1 + 4.6 * len(rows))
    fig = Figure(figsize=size, layout=ConstrainedLayoutEngine(h_pad=0.12))
    fig.suptitle("Which edges tell the GIN what it sees?", fontsize=17)
    for subfigure, index in zip(fig.subfigures(len(rows), squeeze=False).flat, rows, strict=True):
        draw_row(fig, subfigure, index, explanations, explained)
    halos, _ = fig.axes[0].get_legend_handles_labels()
    fig.legend(halos, ["the motif (ground truth)"], loc="outside lower center", fontsize=12, frameon=False)
    return fig


def draw_row(
    fig: Figure, row: SubFigure, index: int, explanations: Sequence[Explanation], explained: Explained
) -> None:
    """Draw one graph as every method explains it, on one scale."""
    graph, predicted = explained.graphs[index], CLASS_NAMES[int(explained.predicted[index])]
    row.suptitle(
        f'A graph with a {CLASS_NAMES[int(graph.y)]}, predicted "{predicted}": '
        f"its edges change that output by {float(explained.differences[index]):.2f}",
        fontweight="bold",
    )
    vmax = max(float(undirected(each.attributions[index], graph)[0].abs().max()) for each in explanations)
    axes = row.subplots(1, len(explanations), squeeze=False)[0].tolist()
    for ax, explanation in zip(axes, explanations, strict=True):
        attributions = explanation.attributions[index]
        visualize_graph_attr(
            attributions,
            graph.edge_index,
            ground_truth=graph.edge_label,
            vmax=vmax,
            title=f"{explanation.method}: edges add up to {float(attributions.sum()):.2f}",
            plt_fig_axis=(fig, ax),
        )
    lines = next(each for each in axes[-1].collections if each.get_array() is not None)
    row.colorbar(lines, ax=axes, shrink=0.85, label=f"against {predicted}  ←  attribution  →  for {predicted}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the demo.

    Args:
        arguments: The command line; ``None`` for that of the process.
    """
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.demo",
        description="Train a GIN on BA-2Motifs and explain it with GOAt and with IntegratedGradients.",
    )
    parser.add_argument("--output", type=Path, default=Path("demo"), help="folder of the picture (default: demo)")
    parser.add_argument("--graphs", type=int, default=1000, help="number of graphs (default: 1000)")
    parser.add_argument("--epochs", type=int, default=60, help="epochs of training (default: 60)")
    parser.add_argument("--seed", type=int, default=0, help="seed of graphs, model and training (default: 0)")
    options = parser.parse_args(arguments)

    graphs = ba_2motifs(options.graphs, options.seed)
    torch.manual_seed(options.seed)
    model = GraphClassifier("gin", in_channels=graphs[0].num_features, hidden_channels=32, num_classes=2)
    result = train_model(model, graphs, epochs=options.epochs, seed=options.seed)
    explained = explained_outputs(model, [graphs[index] for index in result.split.test.tolist()])
    explanations = [timed_explanation(method, model, explained) for method in METHODS]

    print(f"GIN on BA-2Motifs: test accuracy {result.test_accuracy:.3f} ({len(result.split.test)} graphs)\n")
    print(table(explanations, explained))
    print(LEGEND)
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / "ba_2motifs.png"
    picture(explanations, explained).savefig(path, dpi=150)
    print(f"\nThe picture is in {path}.")


if __name__ == "__main__":
    torch.set_num_threads(1)  # layers this small gain nothing from threads, and lose a lot on a busy machine
    main()
