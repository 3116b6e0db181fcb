"""Draw the pictures in this folder again, from models that are trained and explained for the purpose.

Run ``python docs/images/make_pictures.py --data FOLDER``, where the folder has ``Mutagenicity.tar.xz`` or its raw files
(see ``benchmarks.datasets.load_mutagenicity``). It takes a few minutes, and needs the extras ``demo`` and
``molecules``.

The examples are not chosen by hand. The graph with a house is the first of the test set, in the order of the dataset,
that the model classifies correctly with a probability above 0.9. The molecule is the first of the test set that the
model correctly classifies as mutagenic, with a probability above 0.9, and that has an NO2 group.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch_geometric.data import Data

from benchmarks.datasets import load
from benchmarks.explainers import EXPLAINERS
from benchmarks.paper_models import Settings, train_paper_model
from captum_goat import EdgeMaskedModel
from captum_goat.datasets import ba_2motifs
from captum_goat.models import GraphClassifier, train_model
from captum_goat.plot import (
    one_hot_atoms,
    visualize_graph_attr,
    visualize_graph_attr_multiple,
    visualize_molecule_attr,
)
from captum_goat.plot.captum_visualizers import visualize_adjacency_attr
from captum_goat.plot.graph import node_positions

MUTAGEN, HOUSE = 0, 1  # classes
LEAST_PROBABILITY = 0.9
METHODS = {"GOAt": "goat", "IntegratedGradients": "integrated_gradients"}


class Example(NamedTuple):
    """A graph, its model, and what the methods say of it."""

    graph: Data
    model: torch.nn.Module
    output: float  # how much the edges change the output
    attributions: dict[str, Tensor]


def example(
    model: GraphClassifier, graphs: list[Data], suits: Callable[[Data], bool], least_probability: float = 0.0
) -> Example:
    """Explain the first graph that suits and is classified correctly, with a probability above the given one."""
    graph = next(
        graph
        for graph in graphs
        if suits(graph)
        and predicted_class(model, graph) == int(graph.y)
        and class_probabilities(model, graph)[int(graph.y)] > least_probability
    )
    target = graph.y.view(1)
    attributions = {title: EXPLAINERS[name]()(model, graph, target) for title, name in METHODS.items()}
    arguments = (graph.x, graph.edge_index)
    with torch.no_grad():
        without_edges = EdgeMaskedModel(model)(torch.zeros(graph.num_edges), *arguments)
        difference = (model(*arguments) - without_edges)[0, int(graph.y)]
    return Example(graph, model, float(difference), attributions)


@torch.no_grad()
def class_probabilities(model: GraphClassifier, graph: Data) -> Tensor:
    """Return the probability of every class, by the model."""
    return model(graph.x, graph.edge_index)[0].softmax(dim=0)


def predicted_class(model: GraphClassifier, graph: Data) -> int:
    """Return the class that the model predicts."""
    return int(class_probabilities(model, graph).argmax())


def has_nitro_group(graph: Data) -> bool:
    """Return whether a nitrogen of a molecule of Mutagenicity has two oxygens that have no other neighbour."""
    elements, neighbours = one_hot_atoms(graph.x), graph.edge_index.t().tolist()
    degrees = graph.edge_index[1].bincount(minlength=len(elements)).tolist()
    last_oxygens = [
        target
        for source, target in neighbours
        if elements[target] == "N" and elements[source] == "O" and degrees[source] == 1
    ]
    return any(last_oxygens.count(nitrogen) >= 2 for nitrogen in last_oxygens)


def house_example() -> Example:
    """Train the demo's GIN on BA-2Motifs, and explain a graph with a house."""
    graphs = ba_2motifs()
    torch.manual_seed(0)
    model = GraphClassifier("gin", in_channels=10, hidden_channels=32, num_classes=2)
    result = train_model(model, graphs, epochs=60)
    print(f"BA-2Motifs: test accuracy {result.test_accuracy:.3f}")
    test = [graphs[index] for index in sorted(result.test_set.tolist())]
    return example(model, test, lambda graph: int(graph.y) == HOUSE, LEAST_PROBABILITY)


def mutagen_example(data: Path, unpack_to: Path | None) -> Example:
    """Train a GIN on Mutagenicity, and explain a mutagen with an NO2 group."""
    dataset = load("mutagenicity", data, unpack_to=unpack_to)
    settings = Settings(epochs=40, lr=0.002, hidden_channels=64)
    model, result = train_paper_model(dataset, "gin", settings=settings)
    print(f"Mutagenicity: test accuracy {result.test_accuracy:.3f}")
    test = [dataset.graphs[index] for index in sorted(result.split.test.tolist())]
    return example(model, test, lambda graph: int(graph.y) == MUTAGEN and has_nitro_group(graph), LEAST_PROBABILITY)


def with_sums(attributions: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return attributions by titles that say what they add up to."""
    return {f"{name}: adds up to {float(values.sum()):.2f}": values for name, values in attributions.items()}


def of_molecule(graph: Data) -> dict[str, Any]:
    """Return what is known of a molecule of Mutagenicity."""
    return {"atoms": one_hot_atoms(graph.x), "bond_types": graph.edge_attr, "ground_truth": graph.edge_label}


def roof_up(graph: Data) -> NDArray[Any]:
    """Return the layout of a graph with the house's roof (the last node) on top."""
    points = node_positions(graph.edge_index.t().numpy(), graph.num_nodes)
    return points if points[-1, 1] > points[-5:, 1].mean() else points * [1, -1]


def hero(house: Example, mutagen: Example) -> Figure:
    """Draw both examples as GOAt and as IntegratedGradients explain them, every panel on its own scale."""
    fig = Figure(figsize=(10.5, 7.6), layout="constrained")
    upper, lower = fig.subfigures(2, height_ratios=(1.25, 1), hspace=0.03)
    for row, question, explained in (
        (upper, "Which edges tell a GIN that the graph contains a house?", house),
        (lower, "Which bonds tell a GIN that the molecule is mutagenic?", mutagen),
    ):
        row.suptitle(f"{question}  They change its output by {explained.output:.2f}.", fontsize=13, fontweight="bold")
    axes = upper.subplots(1, 2)
    visualize_graph_attr_multiple(
        with_sums(house.attributions),
        house.graph,
        layout=roof_up(house.graph),
        ground_truth=house.graph.edge_label,
        shared_scale=False,
        plt_fig_axis=(upper, axes),
    )
    for ax, (title, values) in zip(lower.subplots(1, 2), with_sums(mutagen.attributions).items(), strict=True):
        options: dict[str, Any] = {"title": title, "show_colorbar": True, "plt_fig_axis": (lower, ax)}
        visualize_molecule_attr(values, mutagen.graph, **options, **of_molecule(mutagen.graph))
    handles, _ = axes[0].get_legend_handles_labels()
    fig.legend(
        handles, ["what is known to decide (ground truth)"], loc="outside lower center", frameon=False, fontsize=11
    )
    return fig


def methods(house: Example) -> Figure:
    """Draw the house as four methods explain it whose numbers can be compared."""
    target = torch.tensor([HOUSE])
    more = {"ShapleyValueSampling": "shapley_value_sampling", "DEGREE": "degree"}
    attributions = house.attributions | {
        title: EXPLAINERS[name]()(house.model, house.graph, target) for title, name in more.items()
    }
    fig, _ = visualize_graph_attr_multiple(
        attributions,
        house.graph,
        layout=roof_up(house.graph),
        ground_truth=house.graph.edge_label,
        fig_size=(13, 3.6),
        use_pyplot=False,
    )
    return fig


def pictures(house: Example, mutagen: Example) -> Iterator[tuple[str, Figure]]:
    """Draw all pictures, with the names of their files."""
    yield "hero", hero(house, mutagen)
    yield "methods", methods(house)
    graph, attributions = mutagen.graph, mutagen.attributions["GOAt"]
    options: dict[str, Any] = {"show_colorbar": True, "use_pyplot": False}
    known = of_molecule(graph)
    fig, _ = visualize_molecule_attr(attributions, graph, **known, **options, fig_size=(7, 4))
    yield "molecule_attr", fig
    options["node_labels"] = known["atoms"]
    fig, _ = visualize_graph_attr(
        attributions,
        graph,
        ground_truth=graph.edge_label,
        fig_size=(7, 4),
        **options,
    )
    yield "graph_attr", fig
    options["title"] = "GOAt on the same molecule"
    fig, _ = visualize_adjacency_attr(attributions, graph.edge_index, **options, fig_size=(5, 5.6))
    yield "adjacency_attr", fig


def save(fig: Figure, path: Path) -> None:
    """Save a figure with 256 colours, as a small file, and say how small."""
    file = BytesIO()
    fig.savefig(file, dpi=130, bbox_inches="tight", facecolor="white")
    Image.open(file).convert("RGB").quantize(256, kmeans=5, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


def main() -> None:
    """Train, explain and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with Mutagenicity")
    parser.add_argument("--unpack-to", type=Path, help="where it is unpacked (default: the same folder)")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent, help="folder of the pictures")
    options = parser.parse_args()
    for name, fig in pictures(house_example(), mutagen_example(options.data, options.unpack_to)):
        save(fig, options.output / f"{name}.png")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
