"""Sanity checks: values by hand, explainers that pass and that fail, and models that are left as they were."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from conftest import make_gnn, random_edges
from scipy.stats import spearmanr
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import SAGEConv, global_add_pool
from torch_geometric.utils import to_undirected

from benchmarks.sanity_checks import SanityChecks, rank_correlation
from captum_goat.compare.explainers import EXPLAINERS
from captum_goat.models import NodeClassifier, RootClassifier

TARGET = torch.tensor([2, 0, 1])


@pytest.fixture
def graphs() -> Batch:
    """Two undirected graphs and a directed one, with edge attributes."""
    edges = [
        to_undirected(random_edges(7, 8, seed=1)),
        to_undirected(random_edges(6, 6, seed=2)),
        random_edges(6, 9, 3),
    ]
    random = torch.Generator().manual_seed(0)
    return Batch.from_data_list(
        [
            Data(
                x=torch.rand(8, 4, generator=random, dtype=torch.double),
                edge_index=edge_index.unique(dim=1),
                edge_attr=torch.rand(edge_index.unique(dim=1).size(1), generator=random),
            )
            for edge_index in edges
        ]
    )


class Constant(nn.Module):
    """A model with messages that its weights ignore."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.out = SAGEConv(4, 8).double(), nn.Linear(8, 3).double()
        self.conv.lin_l.weight.data.zero_()

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        return self.out(global_add_pool(self.conv(x, edge_index).relu(), batch))


def checks(name: str, graphs: Batch, model: nn.Module | None = None) -> SanityChecks:
    return SanityChecks(EXPLAINERS[name](), make_gnn("gin") if model is None else model, graphs, TARGET)


def by_pairs(data: Data, scores: Tensor, others: Tensor) -> float:
    """Return Spearman's correlation by scipy; the two directions of an edge are one pair if all edges have both."""
    columns = data.edge_index.t().tolist()
    both = all([target, source] in columns for source, target in columns)
    totals: dict[Any, list[float]] = {}
    for (source, target), one, other in zip(columns, scores.tolist(), others.tolist(), strict=True):
        values = totals.setdefault(frozenset((source, target)) if both else (source, target), [0.0, 0.0])
        values[0] += one
        values[1] += other
    return float(spearmanr(list(totals.values())).statistic)


def test_rank_correlation_is_that_of_scipy(graphs: Batch) -> None:
    random = torch.Generator().manual_seed(1)
    scores = torch.randint(5, (graphs.num_edges,), generator=random).double()  # with ties
    others = torch.randn(graphs.num_edges, generator=random).double()
    singles = graphs.to_data_list()
    sizes = [graph.num_edges for graph in singles]
    expected = [by_pairs(*parts) for parts in zip(singles, scores.split(sizes), others.split(sizes), strict=True)]
    torch.testing.assert_close(rank_correlation(graphs, scores, others), torch.tensor(expected).double())


def test_rank_correlation_by_hand() -> None:
    """Ranks 1, 2, 3, 4 against 2, 1, 4, 3: 1 - 6 * 4 / (4 * 15) = 0.6. Rounding is no difference."""
    data = Data(edge_index=torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]]), num_nodes=5)
    scores = torch.tensor([1.0, 2.0, 3.0, 4.0])
    assert rank_correlation(data, scores, torch.tensor([2.0, 1.0, 4.0, 3.0])).tolist() == pytest.approx([0.6])
    assert rank_correlation(data, scores, scores.neg()).tolist() == pytest.approx([-1.0])
    assert rank_correlation(data, scores, torch.ones(4)).isnan().all()
    near = torch.tensor([1.0, 1.0, 5.0, 9.0])
    assert rank_correlation(data, near, near + torch.tensor([1e-6, 0.0, 0.0, 0.0])).tolist() == pytest.approx([1.0])


@pytest.mark.slow
def test_goat_passes_and_random_fails(graphs: Batch) -> None:
    """Random scores depend on the graph only: not on weights and classes, but on features and the order of nodes."""
    goat, random = checks("goat", graphs), checks("random", graphs)
    assert torch.stack(list(random.parameter_randomization().values())).min() == 1.0
    last = list(goat.parameter_randomization().values())[-1]
    assert last.min() < 0.0
    assert random.random_target().min() == 1.0
    assert goat.random_target().max() < 0.95
    for check in ("node_order", "ignored_features"):
        assert getattr(goat, check)().max() < 1e-6
        assert getattr(random, check)().min() > 0.1
    assert goat.repeatability().min() == 1.0
    assert goat.repeatability(noise=1e-6).min() > 0.99
    assert random.repeatability(noise=1e-6).max() < 0.9


def test_layers_are_randomised_from_the_output_down(graphs: Batch) -> None:
    model, seen = make_gnn("gin"), []

    def watch(given: nn.Module, data: Any, target: Tensor) -> Tensor:
        seen.append({name for name, weight in given.state_dict().items() if not torch.equal(weight, before[name])})
        return torch.rand(data.num_edges, dtype=torch.double)

    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    layers = list(SanityChecks(watch, model, graphs, TARGET).parameter_randomization())
    assert layers[:3] == ["out", "hidden", "convs.2.nn.3"]
    assert seen[0] == set()
    assert seen[1] == {"out.weight", "out.bias"}
    assert all(one < other for one, other in itertools.pairwise(seen[:4]))
    assert {name for name, _ in model.named_parameters()} <= seen[-1]
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())


def test_own_weights_without_reset_are_randomised(graphs: Batch) -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(2.0).double())

        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
            return self.scale * global_add_pool(x, batch)

    scales: list[float] = []

    def watch(model: nn.Module, data: Any, target: Tensor) -> Tensor:
        scales.append(float(model.state_dict()["scale"]))
        return torch.rand(data.num_edges, dtype=torch.double)

    SanityChecks(watch, Scaled(), graphs, TARGET).parameter_randomization()
    assert scales[0] == 2.0
    assert scales[1] != 2.0


def test_null_explanation(graphs: Batch) -> None:
    torch.manual_seed(0)
    model = Constant().eval()
    assert checks("goat", graphs, model).null_explanation().max() < 1e-12
    assert checks("random", graphs, model).null_explanation().min() > 0.1
    with pytest.raises(ValueError, match=r"does not depend on edges .got an output that differs by"):
        checks("goat", graphs).null_explanation()


class OfGraph(nn.Module):
    """A model that takes the graph itself."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, data: Data) -> Tensor:
        return self.model(data.x, data.edge_index, data.batch)


def test_ignored_features_of_a_model_that_takes_the_graph(graphs: Batch) -> None:
    """The copy drops the new columns; the model itself would not run with them."""
    seen: list[tuple[int, Tensor]] = []

    def explain(given: nn.Module, data: Any, target: Tensor) -> Tensor:
        output = given(data)
        seen.append((data.x.size(1), output.detach()))
        return torch.arange(data.num_edges, dtype=torch.double)

    model = OfGraph(make_gnn("gin")).eval()
    assert SanityChecks(explain, model, graphs, TARGET).ignored_features().max() == 0.0
    assert sorted(width for width, _ in seen) == [4, 8]
    assert torch.equal(seen[0][1], seen[1][1])
    assert not model._forward_pre_hooks


def test_order_reaches_every_attribute(graphs: Batch) -> None:
    """Scores by attributes of nodes and edges come back in the order of the original edges."""

    def explain(model: nn.Module, data: Any, target: Tensor) -> Tensor:
        scores: Tensor = data.edge_attr.double() + data.x[data.edge_index[0], 0] + data.x[data.edge_index[1], 1]
        return scores

    assert SanityChecks(explain, make_gnn("gin"), graphs, TARGET).node_order().max() < 1e-12
    root = RootClassifier(NodeClassifier("gin", 4, 8, 3).double()).eval()
    with pytest.raises(ValueError, match="blind to the order of nodes"):
        SanityChecks(explain, root, graphs, TARGET).node_order()


def test_model_is_left_as_it_was_after_an_error(graphs: Batch) -> None:
    model = make_gnn("gcn")
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    calls = itertools.count()

    def explain(given: nn.Module, data: Any, target: Tensor) -> Tensor:
        if next(calls):
            raise RuntimeError("broken")
        return torch.rand(data.num_edges, dtype=torch.double)

    with pytest.raises(RuntimeError, match="broken"):
        SanityChecks(explain, model, graphs, TARGET).parameter_randomization()
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    assert not model.training


def test_one_class_is_refused(graphs: Batch) -> None:
    model = make_gnn("gcn")
    model.out = nn.Linear(8, 1).double()
    with pytest.raises(ValueError, match=r"two classes or more .got 1"):
        checks("goat", graphs, model).random_target()
