"""What cannot be seen or masked is refused by name, and its harmless neighbours are not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from conftest import make_gnn, randomize
from torch import Tensor, nn
from torch_geometric.nn import (
    DenseGraphConv,
    GCNConv,
    GraphConv,
    MessagePassing,
    TopKPooling,
    dense_mincut_pool,
    global_mean_pool,
)
from torch_geometric.utils import degree, scatter, softmax, to_dense_adj, to_dense_batch, to_undirected

from captum_goat import EdgeMaskedModel, GOAtAttribution, UnsupportedModelError

EDGES = torch.tensor([[0, 1, 2, 3, 4, 5, 0, 2, 4, 6], [1, 2, 3, 4, 5, 6, 3, 0, 4, 1]])
X = torch.randn(7, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
MASK = torch.ones(10, dtype=torch.float64)


class OwnPropagate(MessagePassing):
    """A layer whose `propagate` is not that of PyG."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def propagate(self, edge_index: Tensor, x: Tensor) -> Tensor:
        return torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]])

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=self.lin(x))


class Both(OwnPropagate):
    """A layer that passes some messages by PyG's `propagate` and some by hand."""

    propagate = MessagePassing.propagate

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        by_hand = scatter(x[edge_index[0]], edge_index[1], dim_size=7, reduce="mean")
        return self.propagate(edge_index, x=x) + self.lin(by_hand)


class Model(nn.Module):
    """Layers to choose from."""

    def __init__(self, body: Callable[[Model, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.body = body
        self.conv, self.gcn, self.own, self.lin = GraphConv(4, 4), GCNConv(4, 4), OwnPropagate(), nn.Linear(4, 3)
        self.both = Both()
        self.one, self.pool, self.dense, self.topk = (
            nn.Linear(1, 4),
            nn.Linear(4, 2),
            DenseGraphConv(4, 4),
            TopKPooling(4),
        )

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.lin(global_mean_pool(self.body(self, x, edge_index), None))


def hidden(m: Model, x: Tensor, e: Tensor) -> Tensor:
    return m.conv(x, e).relu()


def adjacency(e: Tensor) -> Tensor:
    return to_dense_adj(e, max_num_nodes=7)[0].double()


def mincut(m: Model, x: Tensor, e: Tensor) -> Tensor:
    dense, kept = to_dense_batch(hidden(m, x, e))
    pooled, adj, _, _ = dense_mincut_pool(dense, adjacency(e).unsqueeze(0), m.pool(dense), kept)
    return m.dense(pooled, adj)[0]


BY_HAND: dict[str, Callable[[Model, Tensor, Tensor], Tensor]] = {
    "another order": lambda m, x, e: scatter(hidden(m, x, e)[e[0]].flip(0), e[1], dim_size=7),
    "the same end": lambda m, x, e: hidden(m, scatter(x[e[1]], e[1], dim_size=7), e),
    "adjacency matrix": lambda m, x, e: adjacency(e).t() @ hidden(m, x, e),
    "adjacency matrix before": lambda m, x, e: hidden(m, adjacency(e).t() @ x, e),
    "sparse adjacency matrix": lambda m, x, e: (
        torch.sparse_coo_tensor(e, MASK, (7, 7), check_invariants=True) @ hidden(m, x, e)
    ),
    "sparse adjacency matrix before": lambda m, x, e: hidden(
        m, torch.sparse_coo_tensor(e, MASK, (7, 7), check_invariants=True) @ x, e
    ),
    "a matrix that is written to": lambda m, x, e: (
        torch.zeros(7, 7).double().index_put((e[1], e[0]), MASK[0]) @ hidden(m, x, e)
    ),
    "a matrix of truths": lambda m, x, e: hidden(m, (adjacency(e) > 0).double() @ x, e),
    "a product and a sum": lambda m, x, e: (adjacency(e).unsqueeze(-1) * hidden(m, x, e).unsqueeze(0)).sum(1),
    "attention that is masked": lambda m, x, e: (
        ((h := hidden(m, x, e)) @ h.t()).masked_fill(adjacency(e) == 0, -1e9).softmax(-1) @ h
    ),
    "one-hot edges": lambda m, x, e: F.one_hot(e[1], 7).double().t() @ hidden(m, x, e)[e[0]],
    "node by node": lambda m, x, e: torch.stack([hidden(m, x, e)[e[0][e[1] == i]].sum(0) for i in range(7)]),
    "a power of a matrix": lambda m, x, e: hidden(m, torch.linalg.matrix_power(adjacency(e), 2) @ x, e),
    "an inverse": lambda m, x, e: torch.linalg.inv(torch.eye(7).double() - 0.1 * adjacency(e)) @ hidden(m, x, e),
    "beside the messages of a layer": lambda m, x, e: m.both(x, e).relu(),
    "after the messages of a layer": lambda m, x, e: m.both(hidden(m, x, e), e).relu(),
    "dense pooling": mincut,
    "own propagate": lambda m, x, e: m.own(hidden(m, x, e), e),
    "own propagate before": lambda m, x, e: hidden(m, m.own(x, e), e),
}


MESSAGES: dict[str, Callable[[Model, Tensor, Tensor], Tensor]] = {
    "scatter after a layer": lambda m, x, e: scatter(hidden(m, x, e)[e[0]], e[1], dim_size=7),
    "scatter before a layer": lambda m, x, e: hidden(m, scatter(x[e[0]], e[1], dim_size=7), e),
    "mean before a layer": lambda m, x, e: hidden(m, scatter(x[e[0]], e[1], dim_size=7, reduce="mean"), e),
    "index_add": lambda m, x, e: hidden(
        m, x + torch.zeros_like(x).index_add(0, e[1], m.lin.weight.mean() * x[e[0]]), e
    ),
    "index_put": lambda m, x, e: hidden(m, x.clone().index_put((e[1],), x[e[0]], accumulate=True), e),
    "a linear layer between": lambda m, x, e: hidden(m, scatter(m.own.lin(x)[e[0]], e[1], dim_size=7), e),
    "attention by hand": lambda m, x, e: scatter(
        (h := hidden(m, x, e))[e[0]] * softmax(h[e[1]].sum(-1, keepdim=True), e[1], num_nodes=7), e[1], dim_size=7
    ),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_messages_by_hand_are_refused(name: str) -> None:
    model = randomize(Model(BY_HAND[name]).double(), seed=3)
    with pytest.raises(UnsupportedModelError, match=r"by hand.*MessagePassing|code of its own"):
        GOAtAttribution(model).attribute(MASK, 1, (X, EDGES))
    with pytest.raises(UnsupportedModelError, match=r"by hand.*MessagePassing|code of its own"):
        EdgeMaskedModel(model)(MASK, X, EDGES)


HARMLESS: dict[str, Callable[[Model, Tensor, Tensor], Tensor]] = {
    "degrees as features": lambda m, x, e: hidden(m, x + m.one(degree(e[0], 7, dtype=x.dtype).view(-1, 1)), e),
    "degrees as factors": lambda m, x, e: hidden(m, x, e) / degree(e[1], 7, dtype=x.dtype).clamp(min=1).view(-1, 1),
    "the largest degree": lambda m, x, e: hidden(m, x, e) / degree(e[1], 7, dtype=x.dtype).max(),
    "weights of edges": lambda m, x, e: m.gcn(x, e, (x[e[0]] - x[e[1]]).norm(dim=1)).relu(),
    "weights that edges reach": lambda m, x, e: m.gcn(x, e, m.conv(x, e)[e[0]].sum(1).sigmoid()).relu(),
    "a check of values": lambda m, x, e: hidden(m, x, e) if not hidden(m, x, e).isnan().any() else x,
}


@pytest.mark.parametrize("name", HARMLESS | MESSAGES)
def test_harmless_uses_of_edges_are_not_refused(name: str) -> None:
    model = randomize(Model((HARMLESS | MESSAGES)[name]).double(), seed=3)
    found = GOAtAttribution(model).attribute(MASK, 1, (X, EDGES))
    masked = EdgeMaskedModel(model)
    change = (masked(MASK, X, EDGES) - masked(torch.zeros_like(MASK), X, EDGES))[0, 1].detach()
    torch.testing.assert_close(found.sum(), change, rtol=1e-10, atol=1e-10)
    assert found.any()


HIDDEN: dict[str, tuple[Callable[[Model, Tensor, Tensor], Tensor], str]] = {
    "item": (lambda m, x, e: x * hidden(m, x, e).sum().item(), r"'item' in the model \(Model\)"),
    "tolist": (
        lambda m, x, e: torch.tensor(hidden(m, x, e).tolist(), dtype=x.dtype) + hidden(m, x, e),
        r"'tolist' in the model \(Model\)",
    ),
    "new edges": (lambda m, x, e: m.conv(hidden(m, x, e), e.unique(dim=1)), "do not come from the given edge_index"),
}


@pytest.mark.parametrize("name", HIDDEN)
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_what_hides_from_us_is_refused(name: str) -> None:
    body, expected = HIDDEN[name]
    model = randomize(Model(body).double(), seed=3)
    with pytest.raises(UnsupportedModelError, match=expected):
        GOAtAttribution(model).attribute(MASK, 1, (X, EDGES))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_autocast_around_the_call_is_switched_off_and_inside_refused() -> None:
    model = make_gnn("gin", dtype=torch.float32)
    call = (torch.ones(10), 1, (X.float(), EDGES))
    expected = GOAtAttribution(model).attribute(*call)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(GOAtAttribution(model).attribute(*call), expected)

    class Autocast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                return self.model(x, edge_index).float()

    with pytest.raises(UnsupportedModelError, match=r"torch.autocast.*Switch that off"):
        GOAtAttribution(Autocast().eval()).attribute(*call)


@pytest.mark.parametrize(("dtype", "near"), [(torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 0.05)])
def test_every_precision_is_right_for_its_own(dtype: torch.dtype, near: float) -> None:
    exact = make_gnn("gin")
    expected = GOAtAttribution(exact).attribute(MASK, 1, (X, EDGES))
    model = make_gnn("gin").to(dtype)
    found = GOAtAttribution(model).attribute(MASK.to(dtype), 1, (X.to(dtype), EDGES))
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), expected, rtol=near, atol=near * float(expected.abs().max()))


def test_edges_that_are_taken_out_of_torch_are_refused() -> None:
    def by_node(m: Model, x: Tensor, e: Tensor) -> Tensor:
        out = torch.zeros_like(x)
        for source, target in e.t().tolist():
            out[target] += x[source]
        return hidden(m, out, e)

    with pytest.raises(UnsupportedModelError, match=r"'tolist' in the model \(Model\) takes edges out of torch"):
        GOAtAttribution(randomize(Model(by_node).double(), seed=3)).attribute(MASK, 1, (X, EDGES))


def test_a_graph_that_is_made_undirected_again_has_the_same_attributions() -> None:
    edges = torch.cat([EDGES[:, EDGES[0] != EDGES[1]], EDGES[:, EDGES[0] != EDGES[1]].flip(0)], dim=1)
    edges = edges[:, torch.randperm(edges.size(1), generator=torch.Generator().manual_seed(1))]
    mask = torch.rand(edges.size(1), generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    found = []
    for prepare in (lambda e: e, to_undirected, lambda e: e.flip(0).flip(0)):
        model = randomize(Model(lambda m, x, e, prepare=prepare: hidden(m, x, prepare(e))).double(), seed=3)
        found.append(GOAtAttribution(model).attribute(mask, 1, (X, edges)))
    torch.testing.assert_close(found[1], found[0])
    torch.testing.assert_close(found[2], found[0])


def test_the_sum_is_checked_beside_a_large_constant() -> None:
    def leaving(m: Model, x: Tensor, e: Tensor) -> Tensor:
        h = hidden(m, x, e)
        return h * (1 + h.mean().item()) + 1000.0

    model = randomize(Model(leaving), seed=3)
    with pytest.raises(UnsupportedModelError, match=r"'item' in the model \(Model\)"):
        GOAtAttribution(model).attribute(MASK.float(), 1, (X.float(), EDGES))
