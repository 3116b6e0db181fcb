"""Sanity checks of explainers on a trained model: ``python -m benchmarks sanity``.

The checks are those of :class:`captum_goat.metrics.SanityChecks`, and one more: a model that is trained on shuffled
labels must not have the same explanations.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Batch, Data

from benchmarks.command_lines import add_explainers, add_graph_dataset, write_results
from benchmarks.datasets import GraphDataset, load
from benchmarks.explainers import EXPLAINERS
from benchmarks.markdown_tables import markdown
from benchmarks.paper.tasks import in_turn
from benchmarks.paper_models import PAPER_SETTINGS, train_paper_model
from captum_goat.compare.explainers import make_explainer
from captum_goat.metrics import SanityChecks, rank_correlation
from captum_goat.models import GraphClassifier

NAMES = ("goat", "guided_shapley_64", "integrated_gradients", "gnn_explainer", "random")
FIT_GRAPHS = 50
NOISE = 1e-3
SIMILAR = 0.5  # a higher rank correlation is too high where scores must change
SAME = 0.95  # a lower rank correlation is too low where scores must not change
ZERO = 1e-3  # a larger relative difference is one


@dataclass(frozen=True)
class Checked:
    """The checks of one explainer, means over graphs.

    Attributes:
        explainer: The explainer.
        weights: The rank correlation of scores after all layers are randomised.
        weights_absolute: The mean of the absolute value of that correlation.
        last_layer: The rank correlation after the last layer is randomised.
        target: The rank correlation with the scores of another class.
        labels: The rank correlation with the scores of a model trained on shuffled labels.
        null: The spread of scores where no edge is to blame.
        node_order: The relative change of scores with the order of nodes.
        ignored_features: The relative change of scores with features that the model ignores.
        runs: The rank correlation of two runs with other seeds.
        noise: The rank correlation of two runs, the second with tiny noise on the features, the same seed.
        seconds: The time of all checks.
    """

    explainer: str
    weights: float
    weights_absolute: float
    last_layer: float
    target: float
    labels: float
    null: float
    node_order: float
    ignored_features: float
    runs: float
    noise: float
    seconds: float


# Whether a value is as it should be.
PASSES: dict[str, Callable[[float], bool]] = {
    **dict.fromkeys(("weights", "last_layer", "target", "labels"), lambda value: value < SIMILAR),
    **dict.fromkeys(("null", "node_order", "ignored_features"), lambda value: value < ZERO),
    **dict.fromkeys(("runs", "noise"), lambda value: value > SAME),
}


class NewSeeds:
    """An explainer with another seed in every call, if it has one."""

    def __init__(self, name: str, model: Module, graphs: Sequence[Data]) -> None:
        self.name, self.model, self.graphs, self.seeds = name, model, graphs, count()

    def __call__(self, model: Module, data: Any, target: Tensor) -> Tensor:
        """Explain with the next seed."""
        explainer = make_explainer(EXPLAINERS[self.name], next(self.seeds))
        explainer.fit(self.model, self.graphs)
        return explainer(model, data, target)


def null_model(num_features: int) -> Module:
    """Return a GraphSAGE with random weights that passes messages and ignores them."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = GraphClassifier("sage", num_features, 16, 2).eval()
    for conv in model.convs:
        conv.lin_l.weight.data.zero_()  # type: ignore[union-attr, operator]
    return model


def check(
    name: str, model: Module, shuffled: Module, batch: Batch, fit_graphs: Sequence[Data], seeds: int = 3
) -> Checked:
    """Run all checks of one explainer.

    Args:
        name: The explainer.
        model: The trained model.
        shuffled: The same, trained on shuffled labels.
        batch: The graphs to explain; the targets are the predicted classes.
        fit_graphs: Graphs for explainers that have to learn.
        seeds: How often the weights are randomised.

    Returns:
        The means over graphs, and over random weights.
    """
    start = time.perf_counter()
    with torch.no_grad():
        target = model(batch.x, batch.edge_index, batch.batch).argmax(dim=1)

    def explain(given: Module, data: Any, classes: Tensor) -> Tensor:
        explainer = EXPLAINERS[name]()
        if explainer.trained:
            explainer.fit(given, fit_graphs)
        return explainer(given, data, classes)

    checks = SanityChecks(explain, model, batch, target)
    randomized = [
        torch.stack(list(replace(checks, seed=1000 * seed).parameter_randomization().values())) for seed in range(seeds)
    ]
    weights = torch.stack(randomized, dim=-1)  # [L, G, seeds]
    others = explain(shuffled, batch, target)
    values = {
        "weights": weights[-1],
        "weights_absolute": weights[-1].abs(),
        "last_layer": weights[0],
        "target": checks.random_target(),
        "labels": rank_correlation(batch, explain(model, batch, target), others),
        "null": SanityChecks(explain, null_model(batch.x.size(1)), batch, target).null_explanation(),
        "node_order": checks.node_order(),
        "ignored_features": checks.ignored_features(),
        "runs": SanityChecks(NewSeeds(name, model, fit_graphs), model, batch, target).repeatability(),
        "noise": checks.repeatability(noise=NOISE),
    }
    # Scores that are all equal correlate with nothing.
    means = {key: float(value.nan_to_num(0.0).double().mean()) for key, value in values.items()}
    return Checked(name, **means, seconds=time.perf_counter() - start)


def table(rows: Sequence[Checked]) -> str:
    """Return the table; what fails is bold."""
    lines = []
    for row in rows:
        cells = []
        for key, passes in PASSES.items():
            value = getattr(row, key)
            text = f"{value:.0e}" if 0 < abs(value) < 0.005 else f"{value:.2f}"
            if key == "weights":
                text += f" ({row.weights_absolute:.2f})"
            cells.append(text if passes(value) else f"**{text}**")
        passed = sum(passes(getattr(row, key)) for key, passes in PASSES.items())
        lines.append([f"`{row.explainer}`", *cells, f"{passed} of {len(PASSES)}"])
    titles = {
        "weights": "random weights (absolute)",
        "last_layer": "random last layer",
        "target": "other class",
        "labels": "shuffled labels",
        "null": "no edge to blame",
        "node_order": "node order",
        "ignored_features": "ignored features",
        "runs": "run to run",
        "noise": "tiny noise",
    }
    wanted = [f"< {SIMILAR}"] * 4 + [f"< {ZERO:g}"] * 3 + [f"> {SAME}"] * 2
    lines.append(["*should be*", *(f"*{text}*" for text in wanted), ""])
    return markdown(["explainer", *(titles[key] for key in PASSES), "passed"], lines)


def with_shuffled_labels(dataset: GraphDataset, seed: int) -> GraphDataset:
    """Return the dataset with its labels in another order."""
    order = torch.randperm(len(dataset.graphs), generator=torch.Generator().manual_seed(seed + 1)).tolist()
    graphs = [graph.clone() for graph in dataset.graphs]  # deepcopy would copy the storage that slices share
    for graph, other in zip(graphs, order, strict=True):
        graph.y = dataset.graphs[other].y.clone()
    return replace(dataset, graphs=graphs)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, check, print the table and write every number as CSV."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks sanity", description=__doc__.splitlines()[0])
    add = parser.add_argument
    add_explainers(parser, NAMES)
    add_graph_dataset(parser)
    add("--graphs", type=int, default=20, help="held-out graphs to explain (default: %(default)s)")
    add("--seeds", type=int, default=3, help="how often weights are randomised (default: %(default)s)")
    add("--epochs", type=int, default=50, help="epochs of training (default: %(default)s)")
    add("--seed", type=int, default=0, help="default: %(default)s")
    given = parser.parse_args(arguments)
    start = time.perf_counter()
    dataset = load(given.dataset, given.data, unpack_to=given.out / "cache" / "data", seed=given.seed)
    settings = replace(PAPER_SETTINGS[given.dataset, given.gnn], epochs=given.epochs)

    def trained(graphs: GraphDataset) -> Any:
        cache = given.out / "cache" / "models"
        return train_paper_model(
            graphs, given.gnn, settings=settings, seed=given.seed, cache=cache, show_progress=False
        )

    model, result = trained(dataset)
    shuffled, _ = trained(with_shuffled_labels(dataset, given.seed))
    held_out = in_turn([dataset.graphs[index] for index in result.split.test.tolist()], given.seed)[: given.graphs]
    fit_graphs = [dataset.graphs[index] for index in result.split.train[:FIT_GRAPHS].tolist()]
    batch = Batch.from_data_list([Data(x=graph.x, edge_index=graph.edge_index) for graph in held_out])
    rows = []
    for name in given.explainers:
        rows.append(check(name, model, shuffled, batch, fit_graphs, given.seeds))
        print(f"{name}: {rows[-1].seconds:.0f} s", flush=True)
    text = (
        f"{dataset.info.title}, {given.gnn}, test accuracy {result.test_accuracy:.2f}, {len(held_out)} graphs:\n\n"
        f"{table(rows)}"
    )
    name = f"sanity_{given.dataset}_{given.gnn}"
    write_results(given.out, name, text, rows, Checked, time.perf_counter() - start)


if __name__ == "__main__":
    main()
