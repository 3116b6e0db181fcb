"""RCExplainer: decision regions of models that are easy to see through, and what the network learns from them."""

from __future__ import annotations

import pytest
import torch
from conftest import make_gnn, random_edges
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GCNConv, SAGEConv, global_add_pool

from benchmarks.explainers import EXPLAINERS, ExplainerSkippedError
from benchmarks.explainers.decision_regions import Head, decision_regions
from captum_goat.compare.graphs import Graphs


class Sums(nn.Module):
    """Sums up what the edges carry, and classifies the sums."""

    def __init__(self, channels: int, head: nn.Module) -> None:
        super().__init__()
        self.conv, self.head = GCNConv(channels, channels, bias=False, normalize=False), head
        self.conv.lin.weight.data.copy_(torch.eye(channels))

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        return self.head(global_add_pool(self.conv(x, edge_index), batch))


def linear(weight: list[list[float]], bias: list[float]) -> nn.Linear:
    layer = nn.Linear(len(weight[0]), len(weight))
    layer.weight.data.copy_(torch.tensor(weight))
    layer.bias.data.copy_(torch.tensor(bias))
    return layer


def star(values: Tensor) -> Data:
    """Return a graph in which nodes with these features send them to the last one."""
    count = len(values)
    edges = torch.stack([torch.arange(count), torch.full((count,), count)])
    return Data(x=torch.cat([values, torch.zeros(1, values.size(1))]), edge_index=edges)


def graphs_of(*values: list[list[float]]) -> Graphs:
    batch = Batch.from_data_list([star(torch.tensor(leaves)) for leaves in values])
    return Graphs.of(batch, torch.zeros(len(values), dtype=torch.long))


def test_one_linear_boundary() -> None:
    """A linear classifier has one boundary, and one region on either side."""
    model = Sums(2, linear([[0.0, 0.0], [1.0, 2.0]], [0.0, -3.0])).eval().requires_grad_(False)
    graphs = graphs_of([[1.0, 0.0], [0.5, 0.0]], [[4.0, 1.0]], [[0.0, 0.1]], [[1.0, 2.0]])
    head = Head(model, graphs)
    embeddings = head.embeddings(graphs, model)
    torch.testing.assert_close(embeddings, torch.tensor([[1.5, 0.0], [4.0, 1.0], [0.0, 0.1], [1.0, 2.0]]))
    torch.testing.assert_close(head.logits(embeddings), model(*graphs.inputs))
    torch.manual_seed(0)
    for k, region in enumerate(decision_regions(head, embeddings)):
        sign = 1.0 if k % 2 else -1.0
        torch.testing.assert_close(region, sign * torch.tensor([[1.0, 2.0, -3.0]]), rtol=1e-4, atol=1e-4)


def test_regions_of_a_piecewise_linear_model() -> None:
    """Every embedding is inside of its region, and those of other classes are outside."""
    torch.manual_seed(3)
    model = Sums(2, nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 3))).eval().requires_grad_(False)
    graphs = graphs_of(*(3 * torch.randn(80, 1, 2)).tolist())
    head = Head(model, graphs)
    embeddings = head.embeddings(graphs, model)
    classes = model(*graphs.inputs).argmax(-1)
    assert len(classes.unique()) > 1
    extended = torch.cat([embeddings, torch.ones(80, 1)], dim=1)
    for k, region in enumerate(decision_regions(head, embeddings)):
        inside = (extended @ region.t() > 0).all(dim=1)
        assert bool(inside[k])
        assert len(region) < 15
        assert float((classes[inside] == classes[k]).float().mean()) > 0.9


def test_one_class_has_no_boundaries() -> None:
    model = Sums(1, linear([[0.0], [1.0]], [0.0, 100.0])).eval().requires_grad_(False)
    graphs = graphs_of([[1.0]], [[2.0]])
    head = Head(model, graphs)
    assert [tuple(region.shape) for region in decision_regions(head, head.embeddings(graphs, model))] == [(0, 2)] * 2


@pytest.mark.parametrize("kind", ["gcn", "gin", "sage_sum"])
@pytest.mark.parametrize("pool", ["mean", None])
def test_head_of_a_model(kind: str, pool: str | None) -> None:
    """At graph level, and at node level, where the first node of every graph counts."""

    class Root(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gnn = make_gnn(kind, pool=pool)

        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
            out = self.gnn(x, edge_index, batch)
            first = torch.ones_like(batch, dtype=torch.bool)
            first[1:] = batch[1:] != batch[:-1]
            return out if pool else out[first]

    model = Root().eval()
    data = [Data(x=torch.rand(5, 4).double(), edge_index=random_edges(5, 8, seed=k)) for k in range(3)]
    graphs = Graphs.of(Batch.from_data_list(data), torch.zeros(3, dtype=torch.long))
    head = Head(model, graphs)
    assert head.layer is model.gnn.hidden
    torch.testing.assert_close(head.logits(head.embeddings(graphs, model)), model(*graphs.inputs))


def test_skips_models_without_a_head() -> None:
    class Skips(Sums):
        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
            pooled = global_add_pool(self.conv(x, edge_index), batch)
            return self.head(pooled) + pooled

    head = linear([[0.0], [1.0]], [0.0, -1.0])
    for model, message in ((Sums(1, nn.Identity()), "linear layer"), (Skips(1, head), "nothing but the input")):
        with pytest.raises(ExplainerSkippedError, match=message):
            EXPLAINERS["rc_explainer"]().fit(model.eval(), [star(torch.tensor([[1.0], [5.0]]))])


@pytest.mark.slow
def test_learns_what_moves_graphs_across_the_boundary() -> None:
    """One strong edge makes class 1; the network finds it in graphs that it has not seen."""
    model = Sums(2, linear([[0.0, 0.0], [2.0, 0.0]], [0.0, -3.0])).eval()
    model.conv = SAGEConv(1, 2, aggr="sum", bias=False)  # what comes in, and the node's own feature
    model.conv.lin_l.weight.data.copy_(torch.tensor([[1.0], [0.0]]))
    model.conv.lin_r.weight.data.copy_(torch.tensor([[0.0], [1.0]]))
    generator = torch.Generator().manual_seed(0)
    weak = [0.3 * torch.rand(5, 1, generator=generator) for _ in range(24)]
    data = [star(torch.cat([leaves, torch.tensor([[2.5]])]) if k % 2 else leaves) for k, leaves in enumerate(weak)]
    explain = EXPLAINERS["rc_explainer"](epochs=80, lr=0.01)
    with pytest.raises(ValueError, match=r"fit\(model, graphs\)"):
        explain(model, data[1], torch.tensor([1]))
    explain.fit(model, data[:16])
    for graph in data[17::2]:
        assert int(explain(model, graph, torch.tensor([1])).argmax()) == 5
    with pytest.raises(ValueError, match="graphs with edges"):
        explain.fit(model, [])
