"""Searching and peeling against occlusion on one large graph: ``python -m benchmarks large_graph_recipes``.

Occlusion takes one forward pass for each edge, so its time grows with the square of the graph's size; peeled methods
and the search take the same few passes whatever the size.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Data

from benchmarks.explainers import EXPLAINERS
from benchmarks.large_graphs import FEWEST_UNITS, MOST_EDGES, MOST_UNITS, Trained, large_graph, trained_model
from benchmarks.markdown_tables import markdown
from benchmarks.paper.machine import machine_lines
from benchmarks.paper.recipes import attributions_of
from captum_goat.compare.comparison import EMPTY, number, seconds
from captum_goat.compare.explainers import make_explainer
from captum_goat.compare.run import clock
from captum_goat.metrics import area_under_curve, fidelity_curve

PEELED = ("goat_peeled", "ig_half_peeled_both", "ig_half_peeled_2_1")
SEARCHES = ("edge_set_search", "random_swaps")
METHODS = ("random", "goat", *PEELED, *SEARCHES, "guided_shapley_128", "occlusion")
OCCLUSION = "occlusion"
SPARSITIES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99)


class Measured(NamedTuple):
    """The time and fidelities of one method on the graph.

    Attributes:
        method: Its name.
        seconds: How long it took.
        plus: fid+ at each sparsity.
        minus: fid- at each sparsity.
    """

    method: str
    seconds: float
    plus: Tensor
    minus: Tensor


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table, and write it to a file if that is wanted."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks large_graph_recipes", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--edges", type=int, default=10_000, help="undirected edges (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="where random numbers start (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=60, help="epochs of training (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="a Markdown file for the tables (default: only printed)")
    given = parser.parse_args(arguments)
    if given.edges < MOST_EDGES or given.threads < 1:
        parser.error(f"expected {MOST_EDGES} edges and 1 thread or more (got {given.edges} and {given.threads})")
    before = torch.get_num_threads()
    torch.set_num_threads(given.threads)
    try:
        page = run(given.edges, given.seed, given.epochs)
    finally:
        torch.set_num_threads(before)
    print(page)
    if given.out is not None:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(page, encoding="utf-8")


def run(num_edges: int, seed: int = 0, epochs: int = 60, *, show_progress: bool = True) -> str:
    """Train a model, explain a large graph by all methods in turn, and return the page.

    Args:
        num_edges: The undirected edges of the graph.
        seed: Where the random numbers start.
        epochs: The epochs of training.
        show_progress: Whether to show progress.

    Returns:
        The page, in Markdown.
    """
    trained = trained_model(seed, epochs, show_progress=show_progress)
    graph = large_graph(num_edges, seed=seed + 1)  # other trees than those that the model was trained on
    graph.x = graph.x.double()
    with torch.no_grad():
        probabilities = trained.model(graph.x, graph.edge_index).softmax(dim=1)
    target = probabilities.argmax(dim=1)
    measurements = []
    for name in METHODS:
        if show_progress:
            print(f"{name} ...", flush=True)
        measurements.append(measure(name, trained.model, graph, target, seed))
    return _page(measurements, trained, graph, probabilities[0], seed)


def measure(name: str, model: Module, graph: Data, target: Tensor, seed: int = 0) -> Measured:
    """Explain a graph by one method, after a small one that is not timed, and measure the explanation.

    Args:
        name: The name of an explainer.
        model: The model.
        graph: The graph.
        target: The class ``[1]``.
        seed: For explainers that have random numbers.

    Returns:
        Its time and fidelities; edges are really removed, and nodes without edges stay.
    """
    explainer, small = make_explainer(EXPLAINERS[name], seed), large_graph(MOST_EDGES)
    small.x = small.x.to(graph.x)
    explainer(model, small, target)
    start = clock()
    scores = explainer(model, graph, target)
    taken = clock() - start
    curve = fidelity_curve(model, graph, scores, SPARSITIES, target)
    return Measured(name, taken, curve.plus[:, 0], curve.minus[:, 0])


def time_table(measurements: Sequence[Measured], num_edges: int) -> str:
    """Return the times, and how many times longer occlusion takes."""
    occlusion = next(measured.seconds for measured in measurements if measured.method == OCCLUSION)
    lines = []
    for measured in measurements:
        ratio = EMPTY if measured.method == OCCLUSION else f"{occlusion / max(measured.seconds, 1e-6):,.0f}"
        lines.append([f"`{measured.method}`", _passes(measured.method, num_edges), seconds(measured.seconds), ratio])
    return markdown(["method", "what it takes", "time", "times faster than occlusion"], lines)


def _passes(method: str, num_edges: int) -> str:
    if method == OCCLUSION:
        return f"{num_edges:,} forward passes"
    if method.startswith("guided_shapley"):
        return f"{method.rpartition('_')[2]} forward passes and the guides"
    if method in SEARCHES:
        return "30 forward and backward passes"
    attributions = attributions_of(method)
    return "nothing" if not attributions else f"{attributions} attribution{'s' if attributions > 1 else ''}"


def fidelity_table(measurements: Sequence[Measured], plus: bool) -> str:
    """Return one fidelity over sparsities, and its mean height."""
    lines = []
    for measured in measurements:
        values = measured.plus if plus else measured.minus
        height = float(area_under_curve(values, torch.tensor(SPARSITIES), normalize=True))
        lines.append([f"`{measured.method}`", *(number(value) for value in values.tolist()), number(height)])
    return markdown(["method", *(f"{sparsity:g}" for sparsity in SPARSITIES), "area / width"], lines)


def _page(measurements: Sequence[Measured], trained: Trained, graph: Data, probabilities: Tensor, seed: int) -> str:
    edges, label, predicted = graph.num_edges // 2, int(graph.y), int(probabilities.argmax())
    clock_used = "processor time" if torch.get_num_threads() == 1 else "time by the clock"
    paragraphs = [
        "# Searching and peeling against occlusion on a large graph",
        f"Written by `python -m benchmarks large_graph_recipes --edges {edges} --seed {seed}`; nothing on this page is "
        "written by hand.",
        f"One graph of {edges:,} undirected edges and {graph.num_nodes:,} nodes: trees with cycles and houses, joined; "
        "the class is the motif that more of the trees have. A GIN of 3 layers, trained on graphs of "
        f"{FEWEST_UNITS} to {MOST_UNITS} such trees (test accuracy {trained.training.test_accuracy:.2f}), predicts "
        f"class {predicted} with probability {float(probabilities[predicted]):.4f}; class {label} is the true one. "
        "The predicted class is explained, in double precision, and every method explains the same graph in the same "
        "run. Occlusion is computed in full: one forward pass for each undirected edge, several at once.",
        f"## Time\n\nIn {clock_used}, after one small graph that is not timed.",
        time_table(measurements, edges),
        "## fid+ over sparsities\n\nMore is better: what the prediction loses without the best edges. Edges are really "
        "removed, nodes without edges stay.",
        fidelity_table(measurements, plus=True),
        "## fid- over sparsities\n\nLess is better: what the prediction loses if only the best edges are kept.",
        fidelity_table(measurements, plus=False),
        "One graph and one model: there are no standard errors, and another seed gives other figures. "
        "[benchmark.md](benchmark.md) has the same recipes on the paper's datasets, in pairs. Where a model averages "
        "over all nodes, as here, one edge's part hardly depends on edges far away, which is what occlusion supposes.",
        "\n".join(["## Machine, versions, seed", "", *machine_lines(), f"- seed {seed}"]),
    ]
    return "\n\n".join(paragraphs) + "\n"
