"""Messages that the user declares by ``rules.message``: the same as those of MessagePassing, exact or an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from captum.attr import IntegratedGradients
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import MessagePassing, global_add_pool
from torch_geometric.utils import scatter, softmax

from captum_goat import EdgeMaskedModel, GOAtAttribution, UnsupportedModelError, explain_nodes, rules
from tests.wild.cases import CHANNELS as C
from tests.wild.cases import CLASSES, graph, mlp, randomized

HEADS = 2


def _added(values: Tensor, index: Tensor, size: int) -> Tensor:
    return torch.zeros(size, *values.shape[1:], dtype=values.dtype).index_add(0, index, values)


def _own_softmax(score: Tensor, index: Tensor, size: int) -> Tensor:
    largest = torch.full((size, score.size(1)), -torch.inf, dtype=score.dtype)
    wide = index.unsqueeze(1).expand_as(score)
    weight = (score - largest.scatter_reduce(0, wide, score, "amax")[index]).exp()
    return weight / _added(weight, index, size)[index]


class Attention(MessagePassing):
    """Attention of several heads by PyG."""

    def __init__(self) -> None:
        super().__init__(node_dim=0)
        self.lin, self.score = nn.Linear(C, HEADS * C), nn.Linear(2 * C, HEADS)
        self.after = nn.Linear(HEADS * C, C)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out = self.propagate(edge_index, x=x, values=self.lin(x).view(-1, HEADS, C))
        return self.after(out.flatten(1))

    def message(self, x_i: Tensor, x_j: Tensor, values_j: Tensor, index: Tensor, size_i: int) -> Tensor:
        score = self.score(torch.cat([x_i, x_j], dim=1)).tanh()
        return softmax(score, index, num_nodes=size_i).unsqueeze(-1) * values_j


class HandAttention(nn.Module):
    """The same with a softmax of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.lin, self.score = nn.Linear(C, HEADS * C), nn.Linear(2 * C, HEADS)
        self.after = nn.Linear(HEADS * C, C)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        messages = self.messages(x, edge_index)
        return self.after(_added(messages, edge_index[1], len(x)).flatten(1))

    @rules.message
    def messages(self, x: Tensor, edge_index: Tensor) -> Tensor:
        source, target = edge_index
        score = self.score(torch.cat([x[target], x[source]], dim=1)).tanh()
        return _own_softmax(score, target, len(x)).unsqueeze(-1) * self.lin(x).view(-1, HEADS, C)[source]


class EdgeSoftmax(nn.Module):
    """The softmax as a module of its own."""

    def forward(self, score: Tensor, index: Tensor, size: int) -> Tensor:
        return _own_softmax(score, index, size)


class FrozenAttention(HandAttention):
    """The same with messages that are recognized and coefficients that are declared to be frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.softmax = EdgeSoftmax()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        source, target = edge_index
        score = self.score(torch.cat([x[target], x[source]], dim=1)).tanh()
        weight = self.softmax(score, index=target, size=len(x)).unsqueeze(-1)
        messages = weight * self.lin(x).view(-1, HEADS, C)[source]
        return self.after(_added(messages, target, len(x)).flatten(1))


class Layer(MessagePassing):
    """Learned messages by PyG, and a loop at every node."""

    def __init__(self, aggr: str = "sum", loops: bool = False) -> None:
        super().__init__(aggr=aggr)
        self.before, self.after, self.loops = mlp(2 * C, C, C), mlp(2 * C, C, C), loops

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if self.loops:
            edge_index = torch.cat([edge_index, torch.arange(len(x)).expand(2, -1)], dim=1)
        return self.after(torch.cat([x, self.propagate(edge_index, x=x)], dim=1))

    def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:
        return self.before(torch.cat([x_i, x_j], dim=1))


class Between(nn.Module):
    """A module that returns the messages; its subclasses are declared."""

    def __init__(self) -> None:
        super().__init__()
        self.mlp = mlp(2 * C, C, C)

    def forward(self, *ends: Tensor) -> Tensor:
        return self.mlp(torch.cat(ends, dim=1))


@rules.message
class DeclaredBetween(Between):
    """The same, declared."""


class OwnPropagate(Layer):
    """A layer whose own ``propagate`` passes the messages."""

    def propagate(self, edge_index: Tensor, x: Tensor) -> Tensor:  # type: ignore[override]
        return _added(self.message(x[edge_index[1]], x[edge_index[0]]), edge_index[1], len(x))

    @rules.message
    def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:
        return self.before(torch.cat([x_i, x_j], dim=1))


class HandLayer(nn.Module):
    """The layer by hand, in ways in which the messages are not recognized."""

    def __init__(self, aggregate: Callable[..., Tensor] = _added, loops: bool = False) -> None:
        super().__init__()
        self.before, self.after, self.aggregate, self.loops = mlp(2 * C, C, C), mlp(2 * C, C, C), aggregate, loops

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        source, target = edge_index
        if self.loops:
            here = torch.arange(len(x))
            source, target = torch.cat([source, here]), torch.cat([target, here])
        return self.deliver(x, source, target)

    def deliver(self, x: Tensor, source: Tensor, target: Tensor) -> Tensor:
        messages = self.messages(x, source, target)
        return self.after(torch.cat([x, self.aggregate(messages, target, len(x))], dim=1))

    @rules.message
    def messages(self, x: Tensor, source: Tensor, target: Tensor) -> Tensor:
        return self.before(torch.cat([x[target], x[source]], dim=1))


class Sorted(HandLayer):
    """Edges are sorted by their targets first."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        order = torch.argsort(edge_index[1] * 7 % 5, stable=True)
        return self.deliver(x, edge_index[0][order], edge_index[1][order])


class ByModule(nn.Module):
    """A module makes the messages, of rows that it gets in the order of the edges."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = DeclaredBetween().mlp, mlp(2 * C, C, C)
        self.between = DeclaredBetween()
        self.between.mlp = self.before

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        ends = x[edge_index.flip(0).reshape(-1)].view(2, -1, C)  # which is not followed
        return self.after(torch.cat([x, _added(self.between(ends[0], ends[1]), edge_index[1], len(x))], dim=1))


@torch.jit.script
def _scripted(values: Tensor, index: Tensor, size: int) -> Tensor:
    """Add up as torch_scatter does, where function modes see nothing."""
    return torch.zeros([size, values.size(1)], dtype=values.dtype).scatter_add_(
        0, index.unsqueeze(1).expand_as(values), values
    )


class Network(nn.Module):
    """Two layers, pooled."""

    def __init__(self, layer: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.layers, self.head = nn.ModuleList([layer(), layer()]), nn.Linear(C, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, edge_index).relu()
        return self.head(global_add_pool(x, batch))


def _reduced(reduce: str) -> Callable[..., Tensor]:
    return lambda values, index, size: scatter(values, index, 0, dim_size=size, reduce=reduce)


class MaskedTwice(Layer):
    """A layer of PyG, whose messages need no declaration."""

    message = rules.message(Layer.message)


Build = Callable[[], nn.Module]
TWINS: dict[str, tuple[Build, Build]] = {
    "own softmax": (HandAttention, Attention),
    "frozen softmax": (FrozenAttention, Attention),
    "own propagate": (OwnPropagate, Layer),
    "inside a layer": (MaskedTwice, Layer),
    "sum": (HandLayer, Layer),
    "scripted sum": (lambda: HandLayer(_scripted), Layer),
    "mean": (lambda: HandLayer(_reduced("mean")), lambda: Layer("mean")),
    "max": (lambda: HandLayer(_reduced("max")), lambda: Layer("max")),
    "loops by hand": (lambda: HandLayer(loops=True), lambda: Layer(loops=True)),
    "sorted edges": (Sorted, Layer),
    "module": (ByModule, Layer),
}


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    """Let models make tensors of their own in double precision, and freeze the coefficients of one of them."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    rules.freeze(EdgeSoftmax)
    yield
    rules.forget(EdgeSoftmax)
    torch.set_default_dtype(before)


def _twins(name: str) -> tuple[nn.Module, nn.Module, tuple[Tensor, ...]]:
    by_hand, by_pyg = (randomized(Network(build)) for build in TWINS[name])
    by_hand.load_state_dict(by_pyg.state_dict(), strict=name != "module")
    given = graph()
    return by_hand, by_pyg, (given.x, given.edge_index, given.batch)


@pytest.mark.parametrize("name", TWINS)
def test_declared_messages_have_the_attributions_of_layers(name: str) -> None:
    by_hand, by_pyg, arguments = _twins(name)
    ones, some = torch.ones(18), torch.rand(18, generator=torch.Generator().manual_seed(1))
    for mask in (ones, some):
        found, delta = GOAtAttribution(by_hand).attribute(mask, 1, arguments, return_convergence_delta=True)
        assert delta.abs().max() < 1e-9
        torch.testing.assert_close(found, GOAtAttribution(by_pyg).attribute(mask, 1, arguments), rtol=0, atol=1e-10)
    for options in ({"field": "repeated"}, {"gates": "proportional"}):
        found, expected = (
            GOAtAttribution(model, **options).attribute(ones, 1, arguments) for model in (by_hand, by_pyg)
        )
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
    both = [
        GOAtAttribution(model, mask_type="node_and_edge").attribute((arguments[0], ones), 1, arguments[1:])
        for model in (by_hand, by_pyg)
    ]
    for first, second in zip(*both, strict=True):
        torch.testing.assert_close(first, second, rtol=0, atol=1e-10)
    steps = [GOAtAttribution(model).attribute_layers(ones, 1, arguments) for model in (by_hand, by_pyg)]
    torch.testing.assert_close(*steps, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", TWINS)
def test_masked_models_are_those_of_layers(name: str) -> None:
    by_hand, by_pyg, arguments = _twins(name)
    masks = 1 - torch.eye(18)
    masked, expected = EdgeMaskedModel(by_hand), EdgeMaskedModel(by_pyg)
    with torch.no_grad():
        torch.testing.assert_close(masked(torch.ones(18), *arguments), by_hand(*arguments), rtol=0, atol=1e-12)
        for mask in (*masks[:2], torch.rand(18), masks):
            torch.testing.assert_close(masked(mask, *arguments), expected(mask, *arguments), rtol=0, atol=1e-12)
    batch = arguments[0][:5], arguments[1][:, (arguments[1] < 5).all(dim=0)], arguments[2][:5]
    found, expected_too = (
        GOAtAttribution(model).attribute(torch.rand(3, 12, generator=torch.Generator().manual_seed(1)), 1, batch)
        for model in (by_hand, by_pyg)
    )
    torch.testing.assert_close(found, expected_too, rtol=0, atol=1e-10)
    gradients = [
        IntegratedGradients(model).attribute(torch.ones(1, 12), target=1, additional_forward_args=batch, n_steps=8)
        for model in (masked, expected)
    ]
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-10)


def test_nodes_are_explained() -> None:
    class Nodes(nn.Module):
        def __init__(self, layer: Build) -> None:
            super().__init__()
            self.first, self.second = layer(), layer()

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.second(self.first(x, edge_index).relu(), edge_index)

    by_hand, by_pyg = (randomized(Nodes(layer)) for layer in (HandAttention, Attention))
    data = Data(x=graph().x, edge_index=graph().edge_index)
    for check in (True, False):
        found, expected = (
            explain_nodes(GOAtAttribution(model), data, [0, 6], target=1, check=check) for model in (by_hand, by_pyg)
        )
        for position in (0, 1):
            torch.testing.assert_close(found.edge_mask(position), expected.edge_mask(position), rtol=0, atol=1e-10)


class DirectedMPNN(nn.Module):
    """Chemprop: messages on directed bonds, with those that come back taken out."""

    def __init__(self) -> None:
        super().__init__()
        self.start, self.step, self.head = nn.Linear(C, C), nn.Linear(C, C), nn.Linear(C, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, back: Tensor, batch: Tensor) -> Tensor:
        source, target = edge_index
        first = self.start(x)[source]
        message = self.message(first)
        for _ in range(2):
            message = self.message(first, _added(message, target, len(x))[source] - message[back])
        return self.head(global_add_pool(x + _added(message, target, len(x)), batch))

    @rules.message
    def message(self, first: Tensor, come: Tensor | None = None) -> Tensor:
        return (first if come is None else first + self.step(come)).relu()


def test_messages_may_depend_on_those_of_opposite_edges() -> None:
    model, given = randomized(DirectedMPNN()), graph()
    back = (torch.arange(18) + 9) % 18
    arguments = given.x, given.edge_index, back, given.batch
    attributions, delta = GOAtAttribution(model).attribute(torch.ones(18), 1, arguments, return_convergence_delta=True)
    assert delta.abs().max() < 1e-9
    assert attributions.abs().min() > 0
    mask, kept = torch.ones(18), torch.ones(18, dtype=torch.bool)
    mask[[2, 11]], kept[[2, 11]] = 0.0, False
    fewer = given.x, given.edge_index[:, kept], (torch.arange(16) + 8) % 16, given.batch
    with torch.no_grad():
        torch.testing.assert_close(EdgeMaskedModel(model)(mask, *arguments), model(*fewer), rtol=0, atol=1e-12)


class Typed(nn.Module):
    """Messages over two sets of edges."""

    def __init__(self, declared: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList([HandLayer(), HandLayer()] if declared else [Layer(), Layer()])

    def forward(self, x: Tensor, edges: list[Tensor]) -> Tensor:
        return sum(layer(x, edge_index) for layer, edge_index in zip(self.layers, edges, strict=True)).relu()


def test_several_sets_of_edges() -> None:
    by_hand, by_pyg = (randomized(Typed(declared)) for declared in (True, False))
    given = graph()
    edges = [given.edge_index[:, :9], given.edge_index[:, 9:]]
    masks = tuple(torch.rand(9) for _ in edges)
    found, expected = (GOAtAttribution(model).attribute(masks, (3, 1), (given.x, edges)) for model in (by_hand, by_pyg))
    for first, second in zip(found, expected, strict=True):
        torch.testing.assert_close(first, second, rtol=0, atol=1e-10)


class Wrong(nn.Module):
    """Declared messages with something wrong about them."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        source, target = edge_index
        if self.what == "softmax outside":
            weight = x[source].mean(dim=1, keepdim=True).exp()
            return _added(self.messages(x[source], weight / _added(weight, target, len(x))[target]), target, len(x))
        if self.what == "hidden layer":
            x = _added(x[source].flip(0), target, len(x))
        messages = self.messages(x[source], torch.ones(1))
        if self.what == "more than messages":
            messages = messages + x[source]
        return _added(messages, target, len(x)) if messages.dim() else x * messages

    @rules.message
    def messages(self, x: Tensor, weight: Tensor) -> Any:
        if self.what in ("no tensor", "one number"):
            return (x, weight) if self.what == "no tensor" else x.sum()
        return x[:7] if self.what == "fewer rows" else x * weight


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("fewer rows", r"Expected one row per edge, 18 or more along dimension 0, .*rules\.message .*\[7, 4\]"),
        ("no tensor", r"Expected one row per edge, 18 or more .*tuple"),
        ("one number", r"Expected one row per edge, 18 or more .*\[\]"),
        ("softmax outside", r"inside of it, by captum_goat\.rules\.message"),
        ("hidden layer", r"by hand .*captum_goat\.rules\.message"),
        ("more than messages", "by hand"),
    ],
)
def test_wrong_declarations_are_errors(what: str, says: str) -> None:
    model, given = randomized(Wrong(what)), graph()
    with pytest.raises(UnsupportedModelError, match=says):
        GOAtAttribution(model).attribute(torch.ones(18), (3, 1), (given.x, given.edge_index))
    with pytest.raises(UnsupportedModelError, match=says):
        EdgeMaskedModel(model)(torch.ones(18), given.x, given.edge_index)


def test_presence_is_refused() -> None:
    model, given = randomized(Network(HandLayer)), graph()
    arguments = given.x, given.edge_index, given.batch
    with pytest.raises(UnsupportedModelError, match=r"rules\.message.*at='message'"):
        GOAtAttribution(model, at="adjacency").attribute(torch.ones(18), 1, arguments)


def test_declarations_are_forgotten() -> None:
    def messages(x: Tensor, edge_index: Tensor) -> Tensor:
        return x[edge_index[0]].flip(0).flip(0)

    class Model(nn.Module):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return _added(declared(x, edge_index), edge_index[1], len(x)).relu()

    declared, given = rules.message(messages), graph()
    masked, call = EdgeMaskedModel(Model().eval()), (torch.ones(18), given.x, given.edge_index)
    for _ in range(3):
        torch.testing.assert_close(masked(*call), Model()(*call[1:]))
    rules.forget(declared)
    with pytest.raises(UnsupportedModelError, match="by hand"):
        masked(*call)
    torch.testing.assert_close(Model()(*call[1:]), _added(messages(*call[1:]), given.edge_index[1], 10).relu())


def test_what_returns_no_messages_is_an_error() -> None:
    with pytest.raises(TypeError, match="the layer Layer itself"):
        rules.message(Layer)
    with pytest.raises(TypeError, match="Expected the class of a module"):
        rules.message(nn.Linear(1, 1))
