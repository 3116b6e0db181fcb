"""Sanity checks of explainers on a trained model: ``python -m benchmarks sanity``.

The checks are those of :class:`benchmarks.sanity_checks.SanityChecks`, and one more: a model that is trained on
shuffled labels must not have the same explanations. Where scores must change, :func:`structural_similarity` stands
beside the rank correlation.
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
from benchmarks.sanity_checks import SanityChecks, rank_correlation
from captum_goat.compare.explainers import make_explainer
from captum_goat.metrics.counted_edges import CountedEdges
from captum_goat.models import GraphClassifier

NAMES = ("goat", "guided_shapley_64", "integrated_gradients", "gnn_explainer", "random")
FIT_GRAPHS = 50
NOISE = 1e-3
SIMILAR = 0.5  # a higher rank correlation is too high where scores must change
SAME = 0.95  # a lower rank correlation is too low where scores must not change
ZERO = 1e-3  # a larger relative difference is one
CHANGING = ("weights", "last_layer", "target", "labels")  # checks in which scores must change
SSIM_CONSTANTS = (0.01, 0.03)  # the usual ones, for values from 0 to 1


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
        weights_ssim: The structural similarity of scores after all layers are randomised.
        last_layer_ssim: The same after the last layer is randomised.
        target_ssim: The same with the scores of another class.
        labels_ssim: The same with the scores of a model trained on shuffled labels.
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
    weights_ssim: float
    last_layer_ssim: float
    target_ssim: float
    labels_ssim: float
    null: float
    node_order: float
    ignored_features: float
    runs: float
    noise: float
    seconds: float


# Whether a value is as it should be.
PASSES: dict[str, Callable[[float], bool]] = {
    **dict.fromkeys(CHANGING, lambda value: value < SIMILAR),
    **dict.fromkeys(("null", "node_order", "ignored_features"), lambda value: value < ZERO),
    **dict.fromkeys(("runs", "noise"), lambda value: value > SAME),
}


def structural_similarity(data: Data | Batch, scores: Tensor, others: Tensor) -> Tensor:
    r"""Return the structural similarity (SSIM) of two sets of edge scores ``[E]``, one number per graph ``[G]``.

    Edges have no raster, so all edges of a graph are one window. As pixels are, scores a and b are brought to values
    from 0 to 1: divided by the largest absolute score of the graph, plus 1, divided by 2. (With means of both signs the
    formula would give opposite scores a similarity of 1.) With means, variances and the covariance over edges,

    .. math:: \frac{(2 \mu_a \mu_b + c_1)(2 \sigma_{ab} + c_2)}
              {(\mu_a^2 + \mu_b^2 + c_1)(\sigma_a^2 + \sigma_b^2 + c_2)},
              \quad c_1 = 0.01^2, c_2 = 0.03^2.

    It is 1 for equal scores, near 0 for unrelated ones and negative for the opposite.

    Source: Wang, Bovik, Sheikh, Simoncelli: *Image Quality Assessment: From Error Visibility to Structural Similarity*,
    2004; as a sanity check, Adebayo et al.: *Sanity Checks for Saliency Maps*, 2018.

    Examples::

        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from benchmarks.sanity import structural_similarity
        >>> data, scores = Data(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=3), torch.tensor([3.0, 1.0])
        >>> structural_similarity(data, scores, 2 * scores)
        tensor([1.], dtype=torch.float64)
    """
    edges = CountedEdges.of(data)
    first, second = (constant**2 for constant in SSIM_CONSTANTS)
    scaled, means = [], []
    for values in (scores, others):
        totals = edges.totals(values.double())
        largest = totals.new_zeros(edges.num_graphs).scatter_reduce(0, edges.graph, totals.abs(), "amax")
        scaled.append((totals / largest.clamp(min=torch.finfo(torch.double).tiny)[edges.graph] + 1.0) / 2.0)
        means.append(edges.per_graph(scaled[-1]) / edges.counts)
    centred = [values - mean[edges.graph] for values, mean in zip(scaled, means, strict=True)]
    variances = [edges.per_graph(values.square()) / edges.counts for values in centred]
    covariance = edges.per_graph(centred[0] * centred[1]) / edges.counts
    above = (2 * means[0] * means[1] + first) * (2 * covariance + second)
    return above / ((means[0].square() + means[1].square() + first) * (variances[0] + variances[1] + second))


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

    calls: list[tuple[Tensor, Tensor]] = []  # the classes and the scores of all calls, in their order

    def explain(given: Module, data: Any, classes: Tensor) -> Tensor:
        explainer = EXPLAINERS[name]()
        if explainer.trained:
            explainer.fit(given, fit_graphs)
        calls.append((classes, explainer(given, data, classes)))
        return calls[-1][1]

    def ssim(others: Tensor) -> Tensor:
        return structural_similarity(batch, scores, others)

    scores = explain(model, batch, target)
    checks = SanityChecks(explain, model, batch, target)
    randomized, last_layer_ssim, weights_ssim = [], [], []
    for seed in range(seeds):
        calls.clear()  # the next are of the model, then with one more layer randomised each
        randomized.append(torch.stack(list(replace(checks, seed=1000 * seed).parameter_randomization().values())))
        last_layer_ssim.append(ssim(calls[1][1]))
        weights_ssim.append(ssim(calls[-1][1]))
    weights = torch.stack(randomized, dim=-1)  # [L, G, seeds]
    calls.clear()
    other_class = checks.random_target()
    of_other_class = next(values for classes, values in calls if not torch.equal(classes, target))
    others = explain(shuffled, batch, target)
    values = {
        "weights": weights[-1],
        "weights_absolute": weights[-1].abs(),
        "last_layer": weights[0],
        "target": other_class,
        "labels": rank_correlation(batch, scores, others),
        "weights_ssim": torch.stack(weights_ssim),
        "last_layer_ssim": torch.stack(last_layer_ssim),
        "target_ssim": ssim(of_other_class),
        "labels_ssim": ssim(others),
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
    """Return two tables, of scores that must change and of scores that must not; what fails is bold."""
    changing = {
        "weights": "random weights",
        "last_layer": "random last layer",
        "target": "other class",
        "labels": "shuffled labels",
    }
    constant = {
        "null": "no edge to blame",
        "node_order": "node order",
        "ignored_features": "ignored features",
        "runs": "run to run",
        "noise": "tiny noise",
    }
    first, second = [], []
    for row in rows:
        texts = {key: _marked(row, key) for key in PASSES}
        passed = sum(passes(getattr(row, key)) for key, passes in PASSES.items())
        with_ssim = [f"{texts[key]} / {_shown(getattr(row, f'{key}_ssim'))}" for key in changing]
        first.append([f"`{row.explainer}`", *with_ssim, f"{row.weights_absolute:.2f}"])
        second.append([f"`{row.explainer}`", *(texts[key] for key in constant), f"{passed} of {len(PASSES)}"])
    first.append(["*should be*", *[f"*< {SIMILAR} / low*"] * 4, ""])
    second.append(["*should be*", *[f"*< {ZERO:g}*"] * 3, *[f"*> {SAME}*"] * 2, ""])
    return "\n\n".join(
        [
            "Scores must change: rank correlation / structural similarity (SSIM) with the scores of the trained model. "
            "The last column is the mean of the absolute rank correlation with random weights:",
            markdown(["explainer", *changing.values(), "absolute"], first),
            "Scores must not change: spread, relative changes, and rank correlations of two runs. The last column "
            "counts the checks of both tables, by rank correlation:",
            markdown(["explainer", *constant.values(), "passed"], second),
        ]
    )


def _shown(value: float) -> str:
    return f"{value:.0e}" if 0 < abs(value) < 0.005 else f"{value:.2f}"


def _marked(row: Checked, key: str) -> str:
    value = getattr(row, key)
    return _shown(value) if PASSES[key](value) else f"**{_shown(value)}**"


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
    subject, seconds = f"{given.dataset}_{given.gnn}", time.perf_counter() - start
    write_results(given.out, "sanity", text, rows, Checked, seconds, subject=subject)


if __name__ == "__main__":
    main()
