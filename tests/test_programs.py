"""Graphs that are explained by the program of a model, and what must not be taken for the same."""

from __future__ import annotations

import gc
import logging
import pickle
from collections.abc import Callable
from typing import Any
from weakref import ref

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import GraphConv

from captum_goat import GOAtAttribution

EDGES = torch.tensor([[0, 1, 2, 3, 4, 5, 0, 2], [1, 2, 3, 4, 5, 0, 3, 5]])
X = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))
MASK = torch.linspace(0.5, 1.5, 8)


class Net(nn.Module):
    """Two layers; ``how`` says what is done with them."""

    def __init__(self, how: Callable[..., Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two = GraphConv(4, 8), GraphConv(8, 8)
        self.lin, self.out, self.act = nn.Linear(8, 8), nn.Linear(8, 2), nn.ReLU()
        self.how, self.first = how, True

    def forward(self, x: Tensor, edge_index: Tensor, which: Any = None) -> Tensor:
        return self.out(self.how(self, x, edge_index, which)).reshape(-1, 2).sum(dim=0, keepdim=True)


def branch(net: Net, x: Tensor, edge_index: Tensor, which: int) -> Tensor:
    one = net.one(x, edge_index)
    return (one, net.two(one, edge_index))[which].relu()


def by_value(net: Net, x: Tensor, edge_index: Tensor, which: None) -> Tensor:
    return branch(net, x, edge_index, int(x.mean().item() > 0))


def by_attribute(net: Net, x: Tensor, edge_index: Tensor, which: None) -> Tensor:
    return branch(net, x, edge_index, int(net.first))


def moved(net: Net, x: Tensor, edge_index: Tensor, which: None) -> Tensor:
    x = net.one(x, edge_index)
    x = net.two(net.act(x) if net.first else x, edge_index)
    return x if net.first else net.act(x)


def chosen(net: Net, x: Tensor, edge_index: Tensor, which: Any) -> Tensor:
    return net.lin(net.two(net.one(x, edge_index).relu(), edge_index)[which]).relu()


def plain(net: Net, x: Tensor, edge_index: Tensor, which: None) -> Tensor:
    return net.two(net.one(x, edge_index).relu(), edge_index).relu()


@pytest.fixture
def reused(caplog: pytest.LogCaptureFixture) -> Callable[[], list[bool]]:
    """Return whether each try to follow a program went well, as the log has it."""
    caplog.set_level(logging.DEBUG, logger="captum_goat")

    def tries() -> list[bool]:
        words = {"A program of Net was followed": True, "A program of Net did not fit": False}
        lines = [record.getMessage() for record in caplog.records]
        return [fits for line in lines for text, fits in words.items() if line.startswith(text)]

    return tries


def assert_like_new(goat: GOAtAttribution, model: nn.Module, arguments: tuple[Any, ...], **options: Any) -> None:
    expected = GOAtAttribution(model, **options).attribute(MASK, 0, arguments)
    torch.testing.assert_close(goat.attribute(MASK, 0, arguments), expected, rtol=0.0, atol=1e-6)


def test_other_features_of_a_known_graph(reused: Callable[[], list[bool]]) -> None:
    model = Net(plain).eval()
    goat = GOAtAttribution(model)
    for shift in range(3):
        assert_like_new(goat, model, (X + shift, EDGES))
    assert reused() == [True, True]


@pytest.mark.parametrize(
    ("how", "before", "after"),
    [
        (branch, 1, 0),
        (branch, 0, 1),
        (chosen, [0, 1], [3, 4, 5]),
        (chosen, np.array([0, 1]), np.array([3, 4])),
        (chosen, np.int64(0), np.int64(3)),
        (chosen, range(2), range(3, 5)),
    ],
)
def test_another_argument(
    how: Callable[..., Tensor], before: Any, after: Any, reused: Callable[[], list[bool]]
) -> None:
    model = Net(how).eval()
    goat = GOAtAttribution(model)
    goat.attribute(MASK, 0, (X, EDGES, before))
    assert_like_new(goat, model, (X, EDGES, after))
    assert not any(reused())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([0, 1], [3, 4]),
        (torch.tensor([0, 1]), torch.tensor([3, 4, 3])),
        (torch.tensor([True] * 6), torch.tensor([True, False] * 3)),
        (slice(0, 4, 1), slice(1, 6, 2)),
        (2, 4),
    ],
)
def test_another_index_is_all_that_a_program_needs(before: Any, after: Any, reused: Callable[[], list[bool]]) -> None:
    model = Net(chosen).eval()
    goat = GOAtAttribution(model)
    goat.attribute(MASK, 0, (X, EDGES, before))
    assert_like_new(goat, model, (X, EDGES, after))
    assert reused() == [True]


@pytest.mark.parametrize("how", [by_attribute, moved])
def test_a_model_that_was_changed(how: Callable[..., Tensor], reused: Callable[[], list[bool]]) -> None:
    model = Net(how).eval()
    goat = GOAtAttribution(model)
    goat.attribute(MASK, 0, (X, EDGES))
    model.first = False
    assert_like_new(goat, model, (X, EDGES))
    assert reused() == [False]


def test_a_way_that_depends_on_values(reused: Callable[[], list[bool]]) -> None:
    model = Net(by_value).eval()
    goat = GOAtAttribution(model)
    goat.attribute(MASK, 0, (X + 5, EDGES))
    assert_like_new(goat, model, (X - 5, EDGES))
    assert reused() == [False]


def test_another_layer_that_is_not_explained(reused: Callable[[], list[bool]]) -> None:
    model = Net(plain).eval()
    model.one.explain = False
    goat = GOAtAttribution(model)
    goat.attribute(MASK, 0, (X, EDGES))
    model.one.explain, model.two.explain = None, False
    assert_like_new(goat, model, (X, EDGES))
    assert reused() == [False]


def test_another_precision_or_way_to_count(reused: Callable[[], list[bool]]) -> None:
    model = Net(plain).eval()
    goat = GOAtAttribution(model)
    goat.attribute(MASK, 0, (X, EDGES))
    goat.field = "repeated"
    assert_like_new(goat, model, (X, EDGES), field="repeated")
    assert reused() == [True]
    assert_like_new(goat, model.double(), (X.double(), EDGES), field="repeated")
    assert reused() == [True]  # nothing was tried


class Typed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two, self.out = GraphConv(4, 4), GraphConv(4, 4), nn.Linear(4, 2)

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[tuple[str, str, str], Tensor]) -> Tensor:
        one = self.one(x_dict["n"], edge_index_dict["n", "a", "n"])
        two = self.two(x_dict["n"], edge_index_dict["n", "b", "n"])
        return self.out((one + two).relu()).sum(dim=0, keepdim=True)


def test_edge_types_in_another_order() -> None:
    a, b = ("n", "a", "n"), ("n", "b", "n")
    model = Typed().eval()
    goat = GOAtAttribution(model)
    masks = {a: MASK, b: MASK.flip(0)}
    expected = goat.attribute(masks, 0, ({"n": X}, {a: EDGES, b: EDGES.clone()}))
    found = goat.attribute({b: masks[b], a: masks[a]}, 0, ({"n": X}, {b: EDGES.clone(), a: EDGES}))
    only_masks = goat.attribute({a: masks[a], b: masks[b]}, 0, ({"n": X}, {b: EDGES.clone(), a: EDGES}))
    for each in (a, b):
        torch.testing.assert_close(found[each], expected[each], rtol=0.0, atol=1e-6)
        torch.testing.assert_close(only_masks[each], expected[each], rtol=0.0, atol=1e-6)


def test_features_of_the_caller_are_not_kept() -> None:
    goat, x = GOAtAttribution(Net(plain).eval()), X.clone()
    goat.attribute(MASK, 0, (x, EDGES))
    alive = ref(x)
    del x
    gc.collect()
    assert alive() is None
    again = pickle.loads(pickle.dumps(goat))
    torch.testing.assert_close(again.attribute(MASK, 0, (X, EDGES)), goat.attribute(MASK, 0, (X, EDGES)))


def branch_of_features(net: Net, x: Tensor, edge_index: Tensor, which: None) -> Tensor:
    for _ in range(int(x[0, 0].item())):  # another number of calls for every graph
        x = x * 1.0
    return plain(net, x, edge_index, which)


@pytest.mark.slow
def test_programs_that_never_fit_are_tried_ever_more_rarely(reused: Callable[[], list[bool]]) -> None:
    model = Net(branch_of_features).eval()
    goat = GOAtAttribution(model)
    for number in range(20):
        x = X.clone()
        x[0, 0] = number
        assert_like_new(goat, model, (x, EDGES))
    tries = reused()
    assert not any(tries)
    assert 4 <= len(tries) <= 20  # after 1, 2, 4, 8 and 16 misses, of up to four programs each


def test_large_graphs_do_not_keep_small_ones_from_programs(reused: Callable[[], list[bool]]) -> None:
    model = Net(plain).eval()
    goat = GOAtAttribution(model)
    large = torch.randint(0, 3000, (2, 9000), generator=torch.Generator().manual_seed(0))
    for _ in range(3):
        goat.attribute(torch.ones(9000), 0, (torch.randn(3000, 4), large))
        assert_like_new(goat, model, (X, EDGES))
    assert reused() == [True] * 5


def mixed(net: Net, x: Tensor, edge_index: Tensor, which: None) -> Tensor:
    """Apply a linear map along the nodes, which mixes rows."""
    hidden = net.one(x, edge_index).relu()
    return nn.functional.linear(hidden.t(), net.lin.weight[:6, :6]).t() + net.two(hidden, edge_index)


def test_calls_that_mix_rows_are_followed_within_a_program(reused: Callable[[], list[bool]]) -> None:
    model = Net(mixed).eval()
    goat = GOAtAttribution(model)
    for edges in (EDGES, EDGES.flip(0), EDGES.roll(1, 1)):
        assert_like_new(goat, model, (X, edges))
    assert reused() == [True, True]


def flipped_sum(hidden: Tensor) -> Tensor:
    return torch.add(hidden, other=hidden.flip(0))


def numpy_names(hidden: Tensor) -> Tensor:
    columns = torch.stack(hidden.unbind(axis=1), axis=1)
    return torch.cat([columns, hidden.amax(axis=0, keepdims=True)], axis=0)


@pytest.mark.parametrize("call", [flipped_sum, numpy_names])
def test_arguments_by_name(call: Callable[[Tensor], Tensor]) -> None:
    """The tensor ``other`` has rows, too, and numpy's names stand for torch's."""
    model = Net(lambda net, x, edge_index, which: net.two(call(net.one(x, edge_index).relu())[-6:], edge_index).relu())
    goat = GOAtAttribution(model.double().eval())
    mask = MASK.double()
    for shift in range(3):
        arguments = X.double() + shift, EDGES
        steps = GOAtAttribution(model).attribute_layers(mask, 0, arguments)  # without a program
        torch.testing.assert_close(goat.attribute(mask, 0, arguments), steps.sum(dim=0))


def with_virtual_node(net: Net, x: Tensor, edge_index: Tensor, which: None) -> Tensor:
    hidden = net.one(x, edge_index).relu()
    return net.two((hidden + net.lin(hidden.mean(dim=0, keepdim=True))).relu(), edge_index).relu()


def from_one_row(net: Net, x: Tensor, edge_index: Tensor, which: None) -> Tensor:
    """A constant with a row per node makes many rows of one."""
    pooled = net.one(x, edge_index).relu().sum(dim=0, keepdim=True)
    return net.two(pooled * (1 + x[:, :1]), edge_index).relu()


def residual(net: Net, x: Tensor, edge_index: Tensor, which: None) -> Tensor:
    hidden = net.one(x, edge_index).relu()
    return (net.two(hidden, edge_index)[torch.arange(len(x)).flip(0)] + hidden).relu()


def jumping(net: Net, x: Tensor, edge_index: Tensor, which: None) -> Tensor:
    """Channels of a row that other edges reach than the rest."""
    hidden = net.one(x, edge_index).relu()
    return torch.cat([hidden[:, :4], net.two(hidden, edge_index)[:, :4]], dim=1).relu()


class Pooled(Net):
    """The same without a call of reshape."""

    def forward(self, x: Tensor, edge_index: Tensor, which: Any = None) -> Tensor:
        return self.out(self.how(self, x, edge_index, which)).sum(dim=0, keepdim=True)


@pytest.mark.parametrize(
    ("how", "planned"),
    [(plain, True), (with_virtual_node, True), (from_one_row, True), (residual, True), (jumping, False)],
)
def test_edges_that_reach_gates_are_found_by_the_tape(
    how: Callable[..., Tensor], planned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Graphs with self-loops, isolated nodes, multiple edges and other sizes, in double precision."""
    caplog.set_level(logging.DEBUG, logger="captum_goat")
    model, generator = Pooled(how).double().eval(), torch.Generator().manual_seed(5)
    goat = GOAtAttribution(model)
    for size in (5, 9, 6, 12, 2, 7):
        graph = torch.randn(size, 4, dtype=torch.double), torch.randint(size, (2, 2 * size - 1), generator=generator)
        mask = torch.rand(2 * size - 1, dtype=torch.double, generator=generator)
        attributions, delta = goat.attribute(mask, 1, graph, return_convergence_delta=True)
        expected = GOAtAttribution(model).attribute(mask, 1, graph)
        torch.testing.assert_close(attributions, expected, rtol=0.0, atol=1e-12 * (1 + float(expected.abs().sum())))
        assert delta.abs().max() < 1e-10
    assert caplog.text.count("by a plan of reach") == (4 if planned else 0)
