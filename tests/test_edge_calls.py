"""Calls of an EdgeMaskedModel after the first: only what touches edges is followed, and edges are not mistaken."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import (
    GAT,
    GCN,
    GIN,
    GCNConv,
    GraphConv,
    GraphSAGE,
    HeteroConv,
    MessagePassing,
    SAGEConv,
    TAGConv,
    TransformerConv,
)
from torch_geometric.utils import add_self_loops, coalesce, scatter, to_dense_adj

from captum_goat import EdgeMaskedModel, UnsupportedModelError
from captum_goat.tracking import edge_calls
from tests.fuzz.draw import draw_case
from tests.fuzz.program import build_model
from tests.fuzz.test_program_pairs import random_graph

# Duplicate and reversed edges, and no two that could be exchanged.
EDGES = torch.tensor([[0, 1, 1, 2, 3, 4, 5, 0, 2, 0], [1, 0, 2, 3, 4, 5, 0, 3, 5, 1]])
LOOPS = torch.tensor([[0, 1, 2, 3, 3, 4, 5, 0], [1, 1, 3, 3, 4, 5, 0, 3]])
X = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def followed(caplog: pytest.LogCaptureFixture) -> Callable[[], list[bool]]:
    """Return whether each try to follow the calls of an earlier pass went well, as the log has it."""
    caplog.set_level(logging.DEBUG, logger="captum_goat")
    return lambda: [
        "was followed" in record.getMessage() for record in caplog.records if "A program of" in record.getMessage()
    ]


def outputs(masked: EdgeMaskedModel, seed: int, edge_index: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    mask = torch.rand(edge_index.size(1), generator=torch.Generator().manual_seed(seed)).requires_grad_()
    output = masked(mask, X, edge_index, *rest)
    assert type(output) is Tensor
    return output.detach(), torch.autograd.grad(output.square().sum(), mask)[0]


def assert_like_new(masked: EdgeMaskedModel, *call: Any) -> None:
    for actual, expected in zip(outputs(masked, *call), outputs(EdgeMaskedModel(masked.model), *call), strict=True):
        assert torch.equal(actual, expected)


class OwnLayer(MessagePassing):
    """A layer with a message function of its own."""

    def __init__(self) -> None:
        super().__init__(aggr="mean")
        self.lin = nn.Linear(4, 4)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        edge_index, _ = add_self_loops(edge_index, num_nodes=x.size(0))
        weight = torch.ones(edge_index.size(1)) / (1 + edge_index[0])
        return self.propagate(edge_index, x=self.lin(x), weight=weight)

    def message(self, x_j: Tensor, weight: Tensor) -> Tensor:
        return weight.view(-1, 1) * x_j


class Net(nn.Module):
    """Two layers; ``how`` says what is done with them, and ``first`` whether it is the first way."""

    def __init__(self, how: Callable[..., Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two, self.own = GCNConv(4, 4), GraphConv(4, 4), OwnLayer()
        self.how, self.first, self.kept = how, True, list[Any]()

    def forward(self, x: Tensor, edge_index: Tensor, *rest: Any) -> Tensor:
        return self.two(self.how(self, x, edge_index, *rest).relu(), edge_index)


MODELS: dict[str, Callable[[], nn.Module]] = {
    **{model.__name__: (lambda model=model: model(4, 4, 2, 3)) for model in (GCN, GIN, GraphSAGE, GAT)},
    "TAGConv": lambda: TAGConv(4, 3),
    "TransformerConv": lambda: TransformerConv(4, 3, heads=2),
    "a layer of one's own": lambda: Net(lambda net, x, edges: net.own(x, edges)),
    "permuted edges": lambda: Net(lambda net, x, edges: net.one(x, edges[:, edges[1].argsort(descending=True)])),
    "selected edges": lambda: Net(lambda net, x, edges: net.two(x, edges[:, edges[0] < 4])),
    "degrees as features": lambda: Net(
        lambda net, x, edges: net.two(x + scatter(torch.ones(edges.size(1)), edges[1], dim_size=6)[:, None], edges)
    ),
    "weights of edges": lambda: Net(lambda net, x, edges: net.two(x, edges, (x[edges[0]] - x[edges[1]]).norm(dim=1))),
}


@pytest.mark.parametrize("name", MODELS)
def test_calls_with_edges_are_followed(name: str, followed: Callable[[], list[bool]]) -> None:
    torch.manual_seed(0)
    masked = EdgeMaskedModel(MODELS[name]().eval())
    outputs(masked, 0, EDGES)
    assert_like_new(masked, 1, EDGES)
    assert_like_new(masked, 2, EDGES[:, torch.randperm(10)])
    assert_like_new(masked, 3, EDGES[:, 2:].contiguous())
    assert followed() == [True] * 3
    assert_like_new(masked, 4, LOOPS)


def by_hand(net: Net, x: Tensor, edge_index: Tensor) -> Tensor:
    return x if net.first else scatter(x[edge_index[0]].flip(0), edge_index[1], dim_size=6)


def by_hand_later(net: Net, x: Tensor, edge_index: Tensor) -> Tensor:
    gathered = x[edge_index[0]]
    return x if net.first else x + gathered.sum(dim=0)


def by_matrix(net: Net, x: Tensor, edge_index: Tensor) -> Tensor:
    adjacency = to_dense_adj(edge_index, max_num_nodes=6)[0]
    return x if net.first else adjacency @ x


def by_numpy(net: Net, x: Tensor, edge_index: Tensor) -> Tensor:
    return net.one(x, edge_index if net.first else torch.from_numpy(edge_index.numpy().copy()))


def by_list(net: Net, x: Tensor, edge_index: Tensor) -> Tensor:
    return net.one(x, edge_index if net.first else torch.tensor(edge_index.tolist()))


def by_kept_edges(net: Net, x: Tensor, edge_index: Tensor) -> Tensor:
    KEPT.append(edge_index)
    return net.one(x, edge_index if net.first else KEPT[0])


def of_a_sum_by_hand(net: Net, x: Tensor, edge_index: Tensor) -> Tensor:
    total = scatter(x[edge_index[0]].flip(0), edge_index[1], dim_size=6)
    return net.two(x if net.first else total, edge_index)


def written_to(net: Net, x: Tensor, edge_index: Tensor) -> Tensor:
    if not net.first:
        edge_index.copy_(edge_index.flip(1))
    return net.one(x, edge_index)


KEPT: list[Tensor] = []
REFUSED = {
    by_hand: "over the edges",
    by_hand_later: "over the edges",
    by_matrix: "matrix",
    of_a_sum_by_hand: "over the edges",
}
REFUSED |= {by_numpy: "do not come from", by_list: "do not come from", by_kept_edges: "do not come from"}
REFUSED |= {written_to: "in place"}


@pytest.mark.parametrize("how", REFUSED)
def test_what_must_be_refused_is_refused_later(how: Callable[..., Tensor], followed: Callable[[], list[bool]]) -> None:
    KEPT.clear()
    masked = EdgeMaskedModel(Net(how).eval())
    outputs(masked, 0, EDGES)
    assert_like_new(masked, 1, EDGES)
    assert followed() == ([] if how in (by_matrix, of_a_sum_by_hand) else [True])  # they are followed in every call
    masked.model.first = False
    with pytest.raises(UnsupportedModelError, match=REFUSED[how]):
        outputs(masked, 2, EDGES.clone())


def messages_later(net: Net, x: Tensor, edge_index: Tensor) -> Tensor:
    total = scatter(x[edge_index[0]], edge_index[1], dim_size=6)
    return net.two(x if net.first else total, edge_index)


def test_models_with_messages_by_hand_are_followed_in_every_call(followed: Callable[[], list[bool]]) -> None:
    masked = EdgeMaskedModel(Net(messages_later).eval())
    outputs(masked, 0, EDGES)
    assert_like_new(masked, 1, EDGES)
    masked.model.first = False
    assert_like_new(masked, 2, EDGES.clone())
    assert not any(followed())


def reversed_later(net: Net, x: Tensor, edge_index: Tensor) -> Tensor:
    return net.one(x, edge_index if net.first else edge_index.flip(0))


def reordered_later(net: Net, x: Tensor, edge_index: Tensor) -> Tensor:
    return net.one(
        x, edge_index[:, list(range(10)) if net.first else [9, *range(1, 9), 0]]
    )  # equal edges change places


def shortened_later(net: Net, x: Tensor, edge_index: Tensor) -> Tensor:
    return net.two(x, edge_index[:, :-3] if net.first else edge_index[:, 3:])


def copied_and_written_to(net: Net, x: Tensor, edge_index: Tensor) -> Tensor:
    own = edge_index.clone()
    if not net.first:
        own[0], own[1] = edge_index[1], edge_index[0]
    return net.two(x, edge_index if net.first else own)


def merged(net: Net, x: Tensor, edge_index: Tensor) -> Tensor:
    return net.two(x, coalesce(edge_index))


def by_value(net: Net, x: Tensor, edge_index: Tensor) -> Tensor:
    return net.one(x, edge_index) if int(edge_index[0, 0]) == 0 else net.two(x, edge_index)


@pytest.mark.parametrize(
    "how", [reversed_later, reordered_later, shortened_later, copied_and_written_to, merged, by_value]
)
def test_another_branch(how: Callable[..., Tensor]) -> None:
    masked = EdgeMaskedModel(Net(how).eval())
    outputs(masked, 0, EDGES)
    masked.model.first = False
    for seed, edge_index in enumerate((EDGES, EDGES.flip(1), EDGES)):
        try:
            assert_like_new(masked, seed, edge_index.contiguous())
        except UnsupportedModelError:
            with pytest.raises(UnsupportedModelError):
                outputs(EdgeMaskedModel(masked.model), seed, edge_index.contiguous())


def test_a_changed_model(followed: Callable[[], list[bool]]) -> None:
    model = Net(lambda net, x, edges: net.one(x, edges)).eval()
    masked = EdgeMaskedModel(model)
    outputs(masked, 0, EDGES)
    for parameter in model.parameters():
        parameter.data += 1
    assert_like_new(masked, 1, EDGES)
    assert followed() == [True]
    model.one = SAGEConv(4, 4)
    assert_like_new(masked, 2, EDGES)
    assert_like_new(masked, 3, EDGES)
    model.two.explain = False
    assert_like_new(masked, 4, EDGES)
    model.two.explain = None
    model.one.register_forward_pre_hook(lambda module, arguments: (arguments[0], arguments[1].flip(1)))
    assert_like_new(masked, 5, EDGES)
    assert_like_new(masked, 6, EDGES)
    model.one.message = lambda x_j: x_j.flip(0)  # type: ignore[method-assign]
    assert_like_new(masked, 7, EDGES)


def test_other_forms_of_graphs(followed: Callable[[], list[bool]]) -> None:
    class OfData(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = GCNConv(4, 4)

        def forward(self, data: Data) -> Tensor:
            return self.conv(data.x, data.edge_index)

    class OfTypes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = HeteroConv({("a", "to", "b"): SAGEConv((4, 4), 4), ("b", "to", "a"): SAGEConv((4, 4), 4)})

        def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor]) -> Tensor:
            return self.conv(x_dict, edge_index_dict)["b"]

    class OfTwo(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = GraphConv(4, 4), GraphConv(4, 4)

        def forward(self, x: Tensor, edge_index: Tensor, others: Tensor) -> Tensor:
            return self.two(self.one(x, edge_index).relu(), torch.cat([others, edge_index], dim=1))

    typed = HeteroData()
    typed["a"].x, typed["b"].x = X, X.flip(0)
    typed["a", "to", "b"].edge_index, typed["b", "to", "a"].edge_index = EDGES, LOOPS
    for model, masks, arguments in (
        (OfData(), (10,), (Data(X, EDGES),)),
        (OfTypes(), (10, 8), (typed,)),
        (OfTwo(), (10, 8), (X, EDGES, LOOPS)),
    ):
        masked = EdgeMaskedModel(model.eval())
        for seed in range(3):
            torch.manual_seed(seed)
            given = [torch.rand(size) for size in masks]
            assert torch.equal(masked(*given, *arguments), EdgeMaskedModel(model)(*given, *arguments))
    assert followed() == [True] * 6


def test_compiled_parts_and_hooks_of_users(followed: Callable[[], list[bool]]) -> None:
    seen: list[Any] = []
    model = Net(lambda net, x, edges: net.one(x, edges)).eval()
    model.one = torch.compile(model.one, backend="eager")
    model.two.register_forward_hook(lambda module, arguments, output: seen.append(arguments[1]))
    masked = EdgeMaskedModel(model)
    outputs(masked, 0, EDGES)
    assert_like_new(masked, 1, EDGES)
    assert followed() == [True]
    kept = seen[1]  # an ordinary tensor, now that the pass is over
    assert torch.equal(kept.flip(0)[1] + kept[0], 2 * EDGES[0])


def test_failures_leave_nothing(followed: Callable[[], list[bool]]) -> None:
    def fails(net: Net, x: Tensor, edge_index: Tensor) -> Tensor:
        flipped = edge_index.flip(1)
        if not net.first:
            raise ZeroDivisionError
        return net.one(x, flipped)

    model = Net(fails).eval()
    masked, before = EdgeMaskedModel(model), [dict(vars(module)) for module in model.modules()]
    outputs(masked, 0, EDGES)
    model.first = False
    with pytest.raises(ZeroDivisionError):
        outputs(masked, 1, EDGES)
    model.first = True
    assert getattr(edge_calls.current, "run", None) is None
    assert [dict(vars(module)) for module in model.modules()] == before
    assert_like_new(masked, 2, EDGES)
    assert followed()[-1]


def compare_pairs(number: int, graphs: int) -> None:
    case, rng = draw_case(12, number), random.Random(number)
    model = build_model(case)
    masked = EdgeMaskedModel(model)
    for _ in range(graphs):
        mask, arguments, _ = random_graph(rng, case)
        assert torch.equal(masked(mask, *arguments), EdgeMaskedModel(model)(mask, *arguments)), f"case {number}"


@pytest.mark.slow
def test_other_graphs_of_random_models(followed: Callable[[], list[bool]]) -> None:
    for number in range(40):
        compare_pairs(number, graphs=4)
    assert sum(followed()) > 60  # graphs of one node, or without edges, are another case


@pytest.mark.exhaustive
@pytest.mark.parametrize("first", range(40, 540, 50))
def test_many_other_graphs_of_random_models(first: int) -> None:
    for number in range(first, first + 50):
        compare_pairs(number, graphs=5)


class SecondLayerWithGradients(nn.Module):
    """Runs its first layer without gradients, over the edges of the second one or over reversed ones."""

    def __init__(self, conv: type[MessagePassing], *, flips: bool) -> None:
        super().__init__()
        self.one, self.two, self.flips = conv(4, 4), conv(4, 3), flips

    def first(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.one(x, edge_index[[1, 0]] if self.flips else edge_index)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        with torch.no_grad():
            x = self.first(x, edge_index)
        return self.two(x, edge_index)


@pytest.mark.parametrize("flips", [False, True])
@pytest.mark.parametrize("conv", [GCNConv, GraphConv])
def test_layers_share_no_gradients_with_one_that_has_none(conv: type[MessagePassing], flips: bool) -> None:
    model = SecondLayerWithGradients(conv, flips=flips).eval()
    masked, second = EdgeMaskedModel(model), EdgeMaskedModel(model.two)
    for _ in range(3):
        mask = torch.ones(EDGES.size(1), requires_grad=True)
        expected = torch.autograd.grad(second(mask, model.first(X, EDGES).detach(), EDGES)[:, 0].sum(), mask)[0]
        assert expected.abs().min() > 0
        torch.testing.assert_close(torch.autograd.grad(masked(mask, X, EDGES)[:, 0].sum(), mask)[0], expected)
