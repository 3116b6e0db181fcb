"""Counterfactuals, the explainers of PyG, PGMExplainer and SubgraphX, each against what it should find."""

from __future__ import annotations

import importlib.util
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_gnn, random_edges
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.explain import Explainer, GNNExplainer, GraphMaskExplainer, PGExplainer
from torch_geometric.nn import GATConv, GCNConv, SimpleConv, global_add_pool
from torch_geometric.utils import to_undirected

from benchmarks.explainers import EXPLAINERS, ExplainerSkippedError, subgraphx
from benchmarks.explainers.pgm import PGMExplainerOfPyG, p_value
from captum_goat.compare.explainers import self_loops_last
from captum_goat.compare.graphs import Graphs, seeded

GRAPH_LEVEL = {"mode": "multiclass_classification", "task_level": "graph", "return_type": "raw"}


class Adds(nn.Module):
    """Class 1 if the features that are sent along the edges add up to more than a threshold."""

    def __init__(self, threshold: float, sharpness: float = 1.0, *, weighted: bool = False) -> None:
        super().__init__()
        self.conv, self.threshold, self.sharpness = SimpleConv(), threshold, sharpness
        if weighted:  # a layer that takes edge weights
            self.conv = GCNConv(1, 1, bias=False, normalize=False)
            self.conv.lin.weight.data.fill_(1.0)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        total = global_add_pool(self.conv(x, edge_index), batch)
        return self.sharpness * torch.cat([torch.zeros_like(total), total - self.threshold], dim=1)


def star(*values: float) -> Data:
    """Return a graph in which nodes with these features send them to the last one."""
    count = len(values)
    edges = torch.stack([torch.arange(count), torch.full((count,), count)])
    return Data(x=torch.tensor([*values, 0.0]).view(-1, 1), edge_index=edges)


@pytest.mark.parametrize("sharpness", [1.0, 50.0])  # at 50 the model is so sure that its gradients vanish
@pytest.mark.parametrize("weighted", [False, True])
def test_counterfactual_of_one_edge(weighted: bool, sharpness: float) -> None:
    """The one edge without which the class changes is the only one that is removed."""
    model = Adds(threshold=1.5, sharpness=sharpness, weighted=weighted).eval()
    data, target = star(0.3, 1.0, 0.2, 0.4), torch.tensor([1])
    scores = EXPLAINERS["cf_gnn_explainer"]()(model, data, target)
    assert (scores > 0.5).tolist() == [False, True, False, False]
    kept = data.edge_index[:, scores <= 0.5]
    assert int(model(data.x, data.edge_index).argmax()) == 1
    assert int(model(data.x, kept).argmax()) == 0


def test_counterfactual_of_several_edges_in_a_batch() -> None:
    model = Adds(threshold=1.5).eval()
    graphs = [star(0.9, 0.1, 0.7), star(1.0, 0.9, 0.8, 0.05), star(0.2, 0.1), star(2.0)]
    batch, target = Batch.from_data_list(graphs), torch.tensor([1, 1, 1, 1])
    scores = EXPLAINERS["cf_gnn_explainer"]()(model, batch, target)
    removed = (scores > 0.5).split([3, 4, 2, 1])
    assert sum(removed[0].tolist()) == 1
    assert sum(removed[1].tolist()) == 2
    assert not removed[1][3]
    assert len(set(scores[7:9].tolist())) == 1  # class 1 is not what is predicted there
    assert bool(removed[3][0])


def test_counterfactual_shares_undirected_edges() -> None:
    model, data = Adds(threshold=1.5).eval(), star(0.4, 1.0, 0.2)
    data.edge_index = to_undirected(data.edge_index)
    scores = EXPLAINERS["cf_gnn_explainer"]()(model, data, torch.tensor([1]))
    source, target = data.edge_index
    pairs = {frozenset(edge): score for edge, score in zip(data.edge_index.t().tolist(), scores.tolist(), strict=True)}
    for a, b, score in zip(source.tolist(), target.tolist(), scores.tolist(), strict=True):
        assert pairs[frozenset((a, b))] == score
    assert max(pairs, key=lambda edge: pairs[edge]) == {1, 3}


def test_without_a_counterfactual() -> None:
    """Where no removal helps, the edges that come closest still score most."""
    scores = EXPLAINERS["cf_gnn_explainer"]()(Adds(threshold=-1.0).eval(), star(0.1, 3.0, 0.2), torch.tensor([1]))
    assert int(scores.argmax()) == 1


def looped(seed: int, *, all_nodes: bool) -> Data:
    """Return a graph with self-loops between its other edges."""
    edges = random_edges(6, 10, seed=seed)
    edges = edges[:, edges[0] != edges[1]]
    loops = torch.arange(6).flip(0) if all_nodes else torch.tensor([4, 1])
    edges = torch.cat([edges[:, :3], torch.stack([loops, loops]), edges[:, 3:]], dim=1)
    return Data(x=torch.rand(6, 4, generator=torch.Generator().manual_seed(seed)), edge_index=edges)


def test_self_loops_come_last() -> None:
    graphs = Graphs.of(looped(1, all_nodes=True), torch.tensor([0]))
    order = self_loops_last(graphs.edge_index)
    edges = graphs.edge_index[:, order]
    assert torch.equal(edges[:, -6:], torch.arange(6).expand(2, -1))
    assert order.sort().values.tolist() == list(range(graphs.num_edges))
    others = graphs.edge_index[:, graphs.edge_index[0] != graphs.edge_index[1]]
    assert torch.equal(edges[:, :-6], others), "other edges stay in their order"


def test_gnn_explainer_is_that_of_pyg() -> None:
    model, target = make_gnn("gin", dtype=torch.float32), torch.tensor([1])
    edges = random_edges(6, 10, seed=1)
    data = Data(x=torch.rand(6, 4), edge_index=edges[:, edges[0] != edges[1]])
    explainer = Explainer(model, GNNExplainer(epochs=6), "phenomenon", GRAPH_LEVEL, edge_mask_type="object")
    with seeded(Graphs.of(data, target).seed(2)):
        expected = explainer(data.x, data.edge_index, batch=torch.zeros(6, dtype=torch.long), target=target).edge_mask
    scores = EXPLAINERS["gnn_explainer"](epochs=6, seed=2)(model, data, target)
    torch.testing.assert_close(scores, expected)


@pytest.mark.parametrize("all_nodes", [False, True])
def test_gnn_explainer_with_self_loops(all_nodes: bool) -> None:
    """The mask belongs to the edges: it is the same whatever the order in which they come."""
    model, data, target = make_gnn("gcn", dtype=torch.float32), looped(3, all_nodes=all_nodes), torch.tensor([1])
    last = self_loops_last(data.edge_index)
    explain = EXPLAINERS["gnn_explainer"](epochs=5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Graphs, "seed", lambda graphs, seed: seed)
        one = explain(model, data, target)
        other = explain(model, Data(x=data.x, edge_index=data.edge_index[:, last]), target)
    torch.testing.assert_close(one[last], other)
    is_loop = data.edge_index[0] == data.edge_index[1]
    assert one[is_loop].tolist() == [0.0] * int(is_loop.sum())


def test_pg_explainer_is_that_of_pyg() -> None:
    model, target = make_gnn("gin", dtype=torch.float32), torch.tensor([1])
    edges = random_edges(6, 10, seed=1)
    data = Data(x=torch.rand(6, 4), edge_index=edges[:, edges[0] != edges[1]])
    explain = EXPLAINERS["pg_explainer"](epochs=3, seed=4)
    explain.fit(model, [data])
    batch = torch.zeros(6, dtype=torch.long)
    predicted = model(data.x, data.edge_index).argmax(-1)
    with seeded(4), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        algorithm = PGExplainer(epochs=3, lr=0.003)
        explainer = Explainer(model, algorithm, "phenomenon", GRAPH_LEVEL, edge_mask_type="object")
        torch.randperm(1)  # as drawn by the adapter
        for epoch in range(3):
            algorithm.train(epoch, model, data.x, data.edge_index, target=predicted, batch=batch)
        expected = explainer(data.x, data.edge_index, batch=batch, target=target).edge_mask
    torch.testing.assert_close(explain(model, data, target).sigmoid(), expected)


def test_attention() -> None:
    class OneLayer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = GATConv(4, 3)

        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
            return global_add_pool(self.conv(x, edge_index), batch)

    model, data = OneLayer().eval(), looped(2, all_nodes=False)
    edges, alpha = model.conv(data.x, data.edge_index, return_attention_weights=True)[1]
    weights = dict(zip(map(tuple, edges.t().tolist()), alpha[:, 0].tolist(), strict=True))
    expected = [0.0 if a == b else weights[a, b] for a, b in data.edge_index.t().tolist()]
    scores = EXPLAINERS["attention"]()(model, data, torch.tensor([0]))
    torch.testing.assert_close(scores, torch.tensor(expected))


@pytest.mark.slow
def test_graph_mask_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    """The widths of all kinds of layers are told to PyG's code, so that it need not start anew."""
    data, starts, original = looped(5, all_nodes=False), [], GraphMaskExplainer._set_masks
    monkeypatch.setattr(GraphMaskExplainer, "_set_masks", lambda *args: (starts.append(1), original(*args)))
    for kind in ("gcn", "sage_sum", "gin"):
        model = make_gnn(kind, dtype=torch.float32)
        few, many = (EXPLAINERS["graph_mask"](epochs=n)(model, data, torch.tensor([0])) for n in (1, 8))
        assert len(starts) == 2  # once for each explanation
        starts.clear()
        assert len(few.unique()) > 5
        assert not torch.allclose(few, many)


def test_p_value() -> None:
    from scipy.stats import chi2_contingency  # takes a second to import

    generator = np.random.default_rng(0)
    for _ in range(20):
        one, other = generator.random((2, 60)) < generator.random((2, 1))
        table = np.array([[np.sum((one == a) & (other == b)) for b in (False, True)] for a in (False, True)])
        if table.any(0).all() and table.any(1).all():
            assert p_value(one, other) == pytest.approx(chi2_contingency(table).pvalue)
        else:
            assert p_value(one, other) == 1.0


def test_pgm_perturbs_as_pyg_does() -> None:
    """The same perturbations and the same drops as PyG's class, where the predicted class is asked for."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch_geometric.contrib.explain import PGMExplainer
    model, data = make_gnn("gcn", dtype=torch.float32), looped(1, all_nodes=False)
    target = model(data.x, data.edge_index).argmax(-1)
    graphs = Graphs.of(data, target)
    with seeded(3), torch.no_grad():
        perturbed, drops = PGMExplainerOfPyG(samples=40).drawn(model, graphs)
    with seeded(3):
        samples = (
            PGMExplainer(num_samples=40)
            ._batch_perturb_features_on_node(model, data.x, data.edge_index, np.arange(6))
            .numpy()
        )
    assert np.array_equal(perturbed, samples[:, :6] == 1)
    assert np.array_equal(drops, samples[:, 6] == 1)


def test_pgm_finds_the_node() -> None:
    """An edge scores as its less important node does."""

    class Watches(Adds):
        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
            total = global_add_pool(x * torch.tensor([[5.0], [5.0], [0.01], [0.01]]).repeat(len(x) // 4, 1), batch)
            return torch.cat([torch.zeros_like(total), total - 5], dim=1) + 0 * self.conv(x, edge_index).sum()

    data = Data(x=torch.ones(4, 1), edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]))
    scores = EXPLAINERS["pgm_explainer"](samples=500)(Watches(0.0).eval(), data, torch.tensor([1]))
    assert int(scores.argmax()) == 0
    assert float(scores[0]) > 2 * float(scores[1:].max())


def test_best_values_of_subgraphs() -> None:
    data = Data(x=torch.ones(5, 1), edge_index=torch.tensor([[0, 1, 2, 3, 3], [1, 2, 3, 4, 3]]))
    graphs = Graphs.of(data, torch.tensor([0]))
    coalitions = [([0, 1, 2, 3, 4], 0.0), ([0, 1, 2], -0.1), ([2, 3], -0.3), ([1, 2, 3], -0.2)]
    scores = subgraphx.best_values(coalitions, graphs)
    torch.testing.assert_close(scores, torch.tensor([-0.1, -0.1, -0.2, -0.3, -0.2]))


def test_subgraphx_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec: Any = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name, *args: None if name == "dig" else find_spec(name, *args)
    )
    with pytest.raises(ExplainerSkippedError, match="pip install --no-deps dive-into-graphs"):
        EXPLAINERS["subgraphx"]()(Adds(1.0).eval(), star(1.0, 2.0), torch.tensor([1]))


def test_subgraphx_finds_the_subgraph() -> None:
    """The node that sends most and the one that it sends to are in the best subgraph."""
    if importlib.util.find_spec("dig") is None:
        pytest.skip("dive-into-graphs is not installed")
    data = star(-1.0, 3.0, -1.0, -1.0, -1.0)
    data.edge_index = to_undirected(data.edge_index)
    explain = EXPLAINERS["subgraphx"](rollouts=20, samples=20, smallest=2)
    scores = explain(Adds(threshold=1.5).eval(), data, torch.tensor([1]))
    joins = [{1, 5} == set(edge) for edge in data.edge_index.t().tolist()]
    assert scores[joins].tolist() == [float(scores.max())] * 2
    assert float(scores.min()) < float(scores.max())
