"""What holds for every explainer of the benchmark."""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import GNN, combinations, make_gnn, random_edges, randomize, slow_unless
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GATConv, GCNConv, MessagePassing, global_mean_pool
from torch_geometric.utils import to_undirected

from benchmarks.explainers import EXPLAINERS, SLOW, Explainer, ExplainerSkippedError
from captum_goat import EdgeMaskedModel
from captum_goat.compare.explainers import EXPLAINERS as OF_THE_PACKAGE
from captum_goat.compare.graphs import Graphs
from captum_goat.datasets import ba_2motifs

NAMES = sorted(EXPLAINERS)
# Enough to see whether a method works.
FEW: dict[str, dict[str, Any]] = {
    "cf_gnn_explainer": {"steps": 8},
    "edge_set_search": {"n_passes": 6},
    "gnn_explainer": {"epochs": 4},
    "flowx_marginals": {"orders": 3},
    "gradient_shap": {"samples": 5},
    "gnn_shap": {"samples": 24},
    "graph_mask": {"epochs": 2},
    "kernel_shap": {"samples": 40},
    "pg_explainer": {"epochs": 2, "num_graphs": 2},
    "pgm_explainer": {"samples": 24},
    "random_swaps": {"n_passes": 6},
    "rc_explainer": {"epochs": 2, "num_graphs": 3},
    "rg_explainer": {"epochs": 2, "warm_up": 2, "num_graphs": 3, "rollouts": 2},
    "shapley_value_sampling": {"samples": 3},
    "subgraphx": {"rollouts": 2, "samples": 4, "smallest": 3},
}


class AuthorsGCN(nn.Module):
    """A GCN without degree normalisation on features of length 1, as in the paper's experiments."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(GCNConv(4 if k == 0 else 8, 8, normalize=False) for k in range(2))
        self.relu, self.out = nn.ReLU(), nn.Linear(8, 3)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        for conv in self.convs:
            x = self.relu(conv(F.normalize(x), edge_index))
        return self.out(global_mean_pool(x, batch))


class GAT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.out = GATConv(4, 8, heads=2), nn.Linear(16, 3)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        return self.out(global_mean_pool(self.conv(x, edge_index).relu(), batch))


def make_model(kind: str) -> nn.Module:
    if kind == "authors":
        return randomize(AuthorsGCN().double(), seed=4)
    return randomize(GAT().double(), seed=3) if kind == "gat" else make_gnn(kind)


def explainer(name: str, model: nn.Module, graphs: Batch) -> Explainer:
    """Return an explainer that does not take long, fitted if need be."""
    made = EXPLAINERS[name](**FEW.get(name, {}))
    made.fit(model, graphs.to_data_list())
    return made


def scores_of(explain: Explainer, model: nn.Module, data: Data | Batch, target: Tensor) -> Tensor:
    try:
        return explain(model, data, target)
    except ExplainerSkippedError as reason:
        pytest.skip(str(reason))


def graph(nodes: int, edges: Tensor, seed: int) -> Data:
    x = torch.rand(nodes, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return Data(x=x, edge_index=edges)


@pytest.fixture
def graphs() -> Batch:
    """An undirected graph with a self-loop, one without edges, a directed one with double edges, one with one edge."""
    undirected = torch.cat([to_undirected(random_edges(7, 8, seed=1)), torch.tensor([[3], [3]])], dim=1).unique(dim=1)
    return Batch.from_data_list(
        [
            graph(8, undirected, seed=1),
            graph(3, torch.empty(2, 0, dtype=torch.long), seed=2),
            graph(6, random_edges(6, 9, seed=3), seed=3),
            graph(3, torch.tensor([[0, 1], [1, 0]]), seed=4),
        ]
    )


TARGET = torch.tensor([2, 0, 1, 0])
KINDS = ("gcn", "authors", "gin", "sage_sum")


def kinds_for(name: str) -> tuple[str, ...]:
    """Return the models for an explainer: fewer if it takes long, or is another one with other numbers."""
    if name == "attention":
        return ("gat",)
    if re.search(r"_\d+$|_margin|peeled_both$", name):
        return (KINDS[-1],)
    return ("gcn", "gin") if name in SLOW or "peeled" in name else KINDS


CASES = [(name, kind) for name in NAMES for kind in kinds_for(name)]
FAST_CASES = [  # every method of the package that takes little time
    (name, kinds_for(name)[number % len(kinds_for(name))])
    for number, name in enumerate(NAMES)
    if name in OF_THE_PACKAGE and name not in SLOW and "edge_set" not in name
]


def state(model: nn.Module) -> dict[str, Any]:
    """Return all that an explainer could leave on a model."""
    return {
        "weights": {name: tensor.clone() for name, tensor in model.state_dict().items()},
        "modules": [name for name, _ in model.named_modules()],
        "requires_grad": [parameter.requires_grad for parameter in model.parameters()],
        "gradients": [parameter.grad for parameter in model.parameters()],
        "hooks": [
            len(value) for module in model.modules() for key, value in vars(module).items() if key.endswith("_hooks")
        ],
        "masks": [
            (module.explain, module._edge_mask, module._loop_mask, module.fuse, vars(module).get("message_scale"))
            for module in model.modules()
            if isinstance(module, MessagePassing)
        ],
        "training": [module.training for module in model.modules()],
    }


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return torch.equal(one, other) if isinstance(one, Tensor) else one == other


@pytest.mark.parametrize(("name", "kind"), slow_unless(FAST_CASES.__contains__, CASES))
def test_scores(name: str, kind: str, graphs: Batch) -> None:
    """One finite number per edge, the same again and in a batch; the model and all random states are left alone."""
    model = make_model(kind)
    before, numbers = state(model), (torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate())
    explain = explainer(name, model, graphs)
    scores = scores_of(explain, model, graphs, TARGET)
    assert same(state(model), before)
    assert torch.equal(torch.get_rng_state(), numbers[0])
    assert np.random.get_state()[1].tolist() == numbers[1]
    assert random.getstate() == numbers[2]

    assert scores.shape == (graphs.num_edges,)
    assert scores.dtype == graphs.x.dtype
    assert scores.isfinite().all()
    assert not scores.requires_grad
    torch.manual_seed(1)
    np.random.seed(1)
    with torch.no_grad():
        assert torch.equal(explainer(name, model, graphs)(model, graphs, TARGET), scores)
    alone = [explain(model, single, TARGET[k : k + 1]) for k, single in enumerate(graphs.to_data_list())]
    torch.testing.assert_close(torch.cat(alone), scores, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("name", NAMES)
def test_registered(name: str) -> None:
    kind = EXPLAINERS[name]
    assert kind.name == name
    assert kind.citation
    assert kind.complete == (kind.baseline is not None)
    assert EXPLAINERS[name]().complete is kind.complete


@pytest.mark.parametrize(
    ("name", "kind"),
    combinations([name for name in NAMES if EXPLAINERS[name].complete], ["gcn", "authors", "gin", "sage_mean"]),
)
def test_complete(name: str, kind: str, graphs: Batch) -> None:
    """What claims to add up does, up to what the method approximates."""
    model = make_model(kind)
    options = {"kernel_shap": {"samples": 60}, "shapley_value_sampling": {"samples": 2}}.get(name, {"n_steps": 400})
    exact = "goat" in name or name in ("exact_shapley", "gnn_shap") or "guided_shapley" in name
    explain = EXPLAINERS[name](**({} if exact else options))
    scores = scores_of(explain, model, graphs, TARGET)
    wrapped = Graphs.of(graphs, TARGET)
    x, edge_index, batch = wrapped.inputs
    if explain.baseline == "masked":
        nothing = EdgeMaskedModel(model)(torch.zeros(graphs.num_edges, dtype=x.dtype), x, edge_index, batch)
    else:
        nothing = model(x, edge_index[:, :0], batch)
    difference = wrapped.values(model) - wrapped.of_target(nothing)
    sums = torch.zeros(4, dtype=x.dtype).index_add_(0, batch[edge_index[0]], scores)
    near = 1e-6 if exact or name == "shapley_value_sampling" else 0.01
    torch.testing.assert_close(sums, difference, rtol=near, atol=near)


@pytest.mark.parametrize("name", ["goat", "occlusion", "gnn_explainer", "degree"])
def test_parts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches that are too large for one call are cut, and scores are put where they belong."""
    model, batch = make_gnn("sage_sum", dtype=torch.float32), Batch.from_data_list(ba_2motifs(4))
    batch.x = batch.x[:, :4].contiguous()
    # Edges of different graphs in any order.
    order = torch.randperm(batch.num_edges, generator=torch.Generator().manual_seed(0))
    mixed = Data(x=batch.x, edge_index=batch.edge_index[:, order], batch=batch.batch)
    target = torch.tensor([0, 1, 2, 0])
    expected = EXPLAINERS[name](**FEW.get(name, {}))(model, batch, target)
    monkeypatch.setattr("captum_goat.compare.graphs.LARGEST_CALL", 60)
    again = EXPLAINERS[name](**FEW.get(name, {}))(model, batch, target)
    torch.testing.assert_close(again, expected)
    if name != "gnn_explainer":  # its random numbers belong to edges in their order
        torch.testing.assert_close(EXPLAINERS[name]()(model, mixed, target), expected[order], rtol=1e-4, atol=1e-6)


def test_refuses(graphs: Batch) -> None:
    model, explain = make_gnn("gcn"), EXPLAINERS["occlusion"]()
    with pytest.raises(ValueError, match="a class below 3, or one for each of 4 graphs"):
        explain(model, graphs, torch.tensor([1, 0]))
    with pytest.raises(ValueError, match=r"model\.eval"):
        explain(model.train(), graphs, TARGET)
    with pytest.raises(ValueError, match=r"fit\(model, graphs\)"):
        EXPLAINERS["pg_explainer"]()(model.eval(), graphs, TARGET)
    with pytest.raises(ValueError, match="graphs with edges"):
        EXPLAINERS["pg_explainer"]().fit(model, [graphs[1]])


def test_skips(graphs: Batch) -> None:
    for name, kind, message in (
        ("integrated_gradients_weights", "gin", "take edge weights .got GINConv"),
        ("attention", "gcn", "attention layers"),
        ("degree", "gat", "no rule for"),
    ):
        with pytest.raises(ExplainerSkippedError, match=message):
            EXPLAINERS[name]()(make_model(kind), graphs, TARGET)


def test_model_unchanged_after_an_error(graphs: Batch) -> None:
    class Broken(GNN):
        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
            super().forward(x, edge_index, batch)
            raise RuntimeError("broken")

    model = randomize(Broken("gcn").double(), seed=1)
    before = state(model)
    for name in NAMES:
        if name in ("random", "random_peeled", "pg_explainer", "rc_explainer", "rg_explainer", "subgraphx"):
            continue
        with pytest.raises(RuntimeError, match="broken"):
            EXPLAINERS[name](**FEW.get(name, {}))(model, graphs, TARGET)
        assert same(state(model), before)
