"""Sanity checks of an explainer: scores must depend on the model, and on nothing that the model ignores."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy, deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor
from torch.nn import Module
from torch_geometric.data import Batch, Data

from captum_goat.metrics.counted_edges import CountedEdges, check_scores, edges_of, graph_of_nodes, middle_ranks
from captum_goat.metrics.fidelity import output_of

TIES = 1e-5  # differences below this share of a graph's largest score are rounding


def rank_correlation(data: Data | Batch, scores: Tensor, others: Tensor) -> Tensor:
    """Return Spearman's rank correlation of two sets of edge scores ``[E]``, one number per graph ``[G]``.

    Edges are counted as in :func:`~captum_goat.metrics.select_edges`. It is nan for graphs whose scores are all equal.

    Examples:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from benchmarks.sanity_checks import rank_correlation
        >>> data = Data(edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]), num_nodes=4)
        >>> rank_correlation(data, torch.tensor([0.1, 0.5, 0.9]), torch.tensor([0.0, 7.0, 1.0]))
        tensor([0.5000])
    """
    edges, ranks = CountedEdges.of(data), []
    for values in (scores, others):
        totals = edges.totals(check_scores(values, data).double())
        step = TIES * _extreme(edges, totals.abs(), "amax")[edges.graph]
        rank = middle_ranks(torch.where(step > 0, totals / step, 0.0).round(), edges)
        ranks.append(rank - ((edges.counts + 1) / 2)[edges.graph])
    variances = [edges.per_graph(rank.square()) for rank in ranks]
    return (edges.per_graph(ranks[0] * ranks[1]) / (variances[0] * variances[1]).sqrt()).to(scores.dtype)


@dataclass(frozen=True)
class SanityChecks:
    """Check an explainer on a model and graphs, one method per check; each returns one number per graph, ``[G]``.

    No check changes the model: weights are randomised in a copy.

    Args:
        explain: A function ``explain(model, data, target)`` that returns signed edge scores ``[E]``, such as the
            explainers of :mod:`captum_goat.compare.explainers`.
        model: The model, in evaluation mode.
        data: The graph, or the batch of G graphs.
        target: The class of each graph, ``[G]``.
        seed: The seed of the checks.

    Examples:
        >>> import torch
        >>> from captum_goat.compare.explainers import EXPLAINERS
        >>> from captum_goat.datasets import ba_2motifs
        >>> from benchmarks.sanity_checks import SanityChecks
        >>> from captum_goat.models import GraphClassifier
        >>> model, (graph,) = GraphClassifier("gin", 10, 8, 2, num_layers=1).eval(), ba_2motifs(1)
        >>> checks = SanityChecks(EXPLAINERS["random"](), model, graph, torch.tensor([0]))
        >>> checks.parameter_randomization()["classifier.3"]  # random scores do not depend on the model
        tensor([1.])
    """

    explain: Callable[[Module, Any, Tensor], Tensor]
    model: Module
    data: Data | Batch
    target: Tensor
    seed: int = 0

    def parameter_randomization(self) -> dict[str, Tensor]:
        """Randomise the layers of a copy one after the other, from the output down, and correlate ranks of scores.

        Correlations should fall to about 0. The layer that was registered last comes first (Adebayo et al., 2018).
        """
        scores, model = self._scores(), self._own_model()
        layers = [(name, layer) for name, layer in model.named_modules() if list(layer.parameters(recurse=False))][::-1]
        correlations = {}
        for number, (name, layer) in enumerate(layers):
            with torch.random.fork_rng(), torch.no_grad():
                torch.manual_seed(self.seed + number)
                for parameter in layer.parameters(recurse=False):  # of layers that cannot reset themselves
                    parameter.normal_(std=(parameter.size(-1) if parameter.dim() else 1) ** -0.5)
                if hasattr(layer, "reset_parameters"):
                    layer.reset_parameters()
            correlations[name] = rank_correlation(self.data, scores, self._scores(model))
        return correlations

    def random_target(self) -> Tensor:
        """Return the rank correlation with scores of a random other class (Sixt et al., 2020): should be below 1."""
        classes = output_of(self.model, self.data).size(1)
        if classes < 2:
            raise ValueError(f"Expected a model with logits of two classes or more (got {classes}).")
        step = torch.randint(1, classes, self.target.shape, generator=self._random).to(self.target.device)
        others = self.explain(self.model, self.data, (self.target + step) % classes)
        return rank_correlation(self.data, self._scores(), others)

    def null_explanation(self) -> Tensor:
        """Return the largest minus the smallest score where no edge is to blame: should be 0.

        The model's output must not depend on the edges, else it is refused.
        """
        output, random = output_of(self.model, self.data), self._random
        for share in (0.0, 0.5, 0.5):
            keep = (torch.rand(self.data.num_edges, generator=random) < share).to(output.device)
            reduced = output_of(self.model, self.data, keep)
            _check_equal(reduced, output, "whose output does not depend on edges", "when edges are removed")
        edges = CountedEdges.of(self.data)
        totals = edges.totals(check_scores(self._scores(), self.data))
        return _extreme(edges, totals, "amax") - _extreme(edges, totals, "amin")

    def node_order(self) -> Tensor:
        """Return how far scores change with the order of nodes and edges, relative to the largest: should be 0.

        A model whose own output depends on the order, as that of one that reads the first node, is refused.
        """
        data, random = self.data, self._random
        nodes, columns = graph_of_nodes(data), graph_of_nodes(data)[edges_of(data)[0]]
        node_order, edge_order = _shuffled(nodes, random), _shuffled(columns, random)
        new_number = torch.empty_like(node_order).scatter_(0, node_order, torch.arange(len(nodes), device=nodes.device))
        shuffled = data.clone()
        for name, value in data:
            of_nodes, of_edges = data.is_node_attr(name), data.is_edge_attr(name)
            if isinstance(value, Tensor) and name != "edge_index" and (of_nodes or of_edges):
                shuffled[name] = value[node_order if of_nodes else edge_order]
        shuffled.edge_index = new_number[edges_of(data)][:, edge_order]
        output = output_of(self.model, shuffled)
        _check_equal(output, output_of(self.model, data), "that is blind to the order of nodes", "in another order")
        scores = self._scores(data=shuffled)
        return self._difference(torch.empty_like(scores).scatter_(0, edge_order, scores))

    def ignored_features(self) -> Tensor:
        """Return how far scores change with random node features that the model ignores: should be 0.

        They are new columns of ``x``, which a copy of the model drops; the change is relative to the largest score.
        """
        widened = self.data.clone()
        noise = torch.randn(self.data.x.shape, generator=self._random).to(self.data.x)
        widened.x = torch.cat([self.data.x, noise], dim=1)
        model = self._own_model()
        model.register_forward_pre_hook(partial(_drop_features, self.data.x.size(1)))
        return self._difference(self._scores(model, widened))

    def repeatability(self, noise: float = 0.0) -> Tensor:
        """Return the rank correlation of two runs: should be 1.

        ``noise`` is the size of normal noise on the second run's node features, relative to the largest feature. An
        explainer that draws random numbers should draw new ones in every call.
        """
        scores, again, x = self._scores(), self.data.clone(), self.data.x
        again.x = x + noise * x.abs().max() * torch.randn(x.shape, generator=self._random).to(x)
        return rank_correlation(self.data, scores, self._scores(data=again))

    @property
    def _random(self) -> Generator:
        return Generator().manual_seed(self.seed)

    def _own_model(self) -> Module:
        return deepcopy(self.model).train(self.model.training)  # PyG 2.6 forgets the mode of its Linear

    def _scores(self, model: Module | None = None, data: Data | Batch | None = None) -> Tensor:
        return self.explain(self.model if model is None else model, self.data if data is None else data, self.target)

    def _difference(self, others: Tensor) -> Tensor:
        edges = CountedEdges.of(self.data)
        totals, other_totals = (edges.totals(check_scores(values, self.data)) for values in (self._scores(), others))
        largest = _extreme(edges, torch.maximum(totals.abs(), other_totals.abs()), "amax")
        return torch.where(largest > 0, _extreme(edges, (totals - other_totals).abs(), "amax") / largest, 0.0)


def _drop_features(count: int, _: Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Keep the first columns of the features, which are the first argument of a model, or in its graph."""
    if isinstance(args[0], Tensor):
        return args[0][:, :count], *args[1:]
    graph = copy(args[0]).update({"x": args[0].x[:, :count]})
    return graph, *args[1:]


def _shuffled(group: Tensor, random: Generator) -> Tensor:
    """Return a random order of elements in which groups stay together, in ascending order."""
    order = torch.randperm(len(group), generator=random).to(group.device)
    return order[torch.sort(group[order], stable=True).indices]


def _extreme(edges: CountedEdges, totals: Tensor, reduce: str) -> Tensor:
    return totals.new_zeros(edges.num_graphs).scatter_reduce(0, edges.graph, totals, reduce, include_self=False)


def _check_equal(output: Tensor, expected: Tensor, what: str, change: str) -> None:
    near = torch.finfo(expected.dtype).eps ** 0.5 * float(expected.abs().max() + 1.0)
    if not torch.allclose(output, expected, rtol=0.0, atol=near):
        difference = float((output - expected).abs().max())
        raise ValueError(f"Expected a model {what} (got an output that differs by {difference:.3g} {change}).")
