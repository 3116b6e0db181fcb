"""Messages without PyG's hooks: the same layers by hand and as MessagePassing have the same attributions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import MessagePassing, MetaLayer, global_add_pool
from torch_geometric.utils import add_self_loops, degree, scatter, softmax

from captum_goat import EdgeMaskedModel, GOAtAttribution, UnsupportedModelError, explain_nodes
from tests.wild.cases import CHANNELS as C
from tests.wild.cases import CLASSES, EDGE_CHANNELS, graph, mlp, randomized

Sum = Callable[[Tensor, Tensor, int], Tensor]


def _into(values: Tensor, size: int) -> Tensor:
    return torch.zeros(size, *values.shape[1:], dtype=values.dtype)


def _wide(index: Tensor, values: Tensor) -> Tensor:
    return index.view(-1, *[1] * (values.dim() - 1)).expand_as(values)


SUMS: dict[str, Sum] = {
    "scatter": lambda v, i, n: scatter(v, i, 0, dim_size=n),
    "index_add": lambda v, i, n: _into(v, n).index_add(0, i, v),
    "index_add_": lambda v, i, n: _into(v, n).index_add_(0, i, v),
    "scatter_add": lambda v, i, n: torch.scatter_add(_into(v, n), 0, _wide(i, v), v),
    "scatter_add_": lambda v, i, n: v.new_zeros(n, *v.shape[1:]).scatter_add_(0, _wide(i, v), v),
    "scatter_reduce": lambda v, i, n: _into(v, n).scatter_reduce(0, _wide(i, v), v, "sum"),
    "index_put": lambda v, i, n: _into(v, n).index_put((i,), v, accumulate=True),
    "negative dimension": lambda v, i, n: _into(v, n).index_add(-v.dim(), i, v),
}


class Layer(MessagePassing):
    """A layer with learned messages, passed by PyG."""

    def __init__(self, aggr: str = "sum", flow: str = "source_to_target") -> None:
        super().__init__(aggr=aggr, flow=flow)
        self.before, self.after = mlp(2 * C, C, C), mlp(2 * C, C, C)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.after(torch.cat([x, self.propagate(edge_index, x=x)], dim=1))

    def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:
        return self.before(torch.cat([x_i, x_j], dim=1))


class HandLayer(nn.Module):
    """The same by hand."""

    def __init__(self, add: Sum, to: int = 1) -> None:
        super().__init__()
        self.before, self.after, self.add, self.to = mlp(2 * C, C, C), mlp(2 * C, C, C), add, to

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        to, of = edge_index[self.to], edge_index[1 - self.to]
        messages = self.before(torch.cat([x[to], torch.index_select(x, 0, of)], dim=1))
        return self.after(torch.cat([x, self.add(messages, to, len(x))], dim=1))


class GCNLayer(MessagePassing):
    """Degrees by hand, with self-loops, and messages by PyG."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(C, C)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        edge_index = add_self_loops(edge_index, num_nodes=len(x))[0]
        scale = degree(edge_index[1], len(x), dtype=x.dtype).pow(-0.5)
        weight = scale[edge_index[0]] * scale[edge_index[1]]
        return self.deliver(self.lin(x), edge_index, weight)

    def deliver(self, x: Tensor, edge_index: Tensor, weight: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x, weight=weight)

    def message(self, x_j: Tensor, weight: Tensor) -> Tensor:
        return weight.view(-1, 1) * x_j


class HandGCN(nn.Module):
    """The same with messages by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(C, C)

    forward = GCNLayer.forward

    def deliver(self, x: Tensor, edge_index: Tensor, weight: Tensor) -> Tensor:
        source, target = edge_index
        return torch.zeros_like(x).index_add(0, target, weight.unsqueeze(1) * x[source])


class AttentionLayer(MessagePassing):
    """Attention by PyG."""

    def __init__(self) -> None:
        super().__init__(node_dim=0)
        self.lin, self.score = nn.Linear(C, C), nn.Linear(2 * C, 1)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=self.lin(x))

    def message(self, x_i: Tensor, x_j: Tensor, index: Tensor, size_i: int) -> Tensor:
        return softmax(self.score(torch.cat([x_i, x_j], dim=1)).tanh(), index, num_nodes=size_i) * x_j


class HandAttention(nn.Module):
    """The same with messages by hand and the softmax of PyG."""

    def __init__(self) -> None:
        super().__init__()
        self.lin, self.score = nn.Linear(C, C), nn.Linear(2 * C, 1)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x, (source, target) = self.lin(x), edge_index
        weight = softmax(self.score(torch.cat([x[target], x[source]], dim=1)).tanh(), target, num_nodes=len(x))
        return scatter(weight * x[source], target, 0, dim_size=len(x))


class Mover(MessagePassing):
    """EGNN by PyG: what moves the positions, and the messages of features."""

    def __init__(self) -> None:
        super().__init__(aggr="sum", flow="target_to_source")
        self.edge, self.node, self.coord = mlp(2 * C + 1, C, C), mlp(2 * C, C, C), mlp(C, C, 1)

    def forward(self, x: Tensor, pos: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        count = degree(edge_index[0], len(x), dtype=x.dtype).clamp(min=1).view(-1, 1)
        moved = pos + self.propagate(edge_index, x=x, pos=pos, moves=True) / count
        return x + self.node(torch.cat([x, self.propagate(edge_index, x=x, pos=pos, moves=False)], dim=1)), moved

    def message(self, x_i: Tensor, x_j: Tensor, pos_i: Tensor, pos_j: Tensor, moves: bool) -> Tensor:
        difference = pos_i - pos_j
        distance = difference.square().sum(dim=1, keepdim=True)
        messages = self.edge(torch.cat([x_i, x_j, distance], dim=1))
        return difference * self.coord(messages) if moves else messages


class HandMover(nn.Module):
    """EGNN by hand, with the sums and means of its authors."""

    def __init__(self) -> None:
        super().__init__()
        self.edge, self.node, self.coord = mlp(2 * C + 1, C, C), mlp(2 * C, C, C), mlp(C, C, 1)

    def forward(self, x: Tensor, pos: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        row, col = edge_index
        difference = pos[row] - pos[col]
        distance = torch.sum(difference**2, 1).unsqueeze(1)
        messages = self.edge(torch.cat([x[row], x[col], distance], dim=1))
        moves = difference * self.coord(messages)
        wide = row.unsqueeze(-1).expand(-1, 3)
        count = moves.new_zeros(len(x), 3).scatter_add_(0, wide, torch.ones_like(moves))
        moved = pos + moves.new_zeros(len(x), 3).scatter_add_(0, wide, moves) / count.clamp(min=1)
        wide = row.unsqueeze(-1).expand(-1, C)
        sums = messages.new_zeros(len(x), C).scatter_add_(0, wide, messages)
        return x + self.node(torch.cat([x, sums], dim=1)), moved


class EdgePart(nn.Module):
    """Updates the features of edges."""

    def __init__(self) -> None:
        super().__init__()
        self.mlp = mlp(2 * C + EDGE_CHANNELS, EDGE_CHANNELS)

    def forward(self, source: Tensor, target: Tensor, edge_attr: Tensor, u: Any = None, batch: Any = None) -> Tensor:
        return self.mlp(torch.cat([source, target, edge_attr], dim=1)).relu()


class NodePart(nn.Module):
    """Updates the features of nodes, as in the documentation of MetaLayer."""

    def __init__(self) -> None:
        super().__init__()
        self.message, self.update = mlp(C + EDGE_CHANNELS, C), mlp(2 * C, C)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, u: Any = None, batch: Any = None) -> Tensor:
        row, col = edge_index
        out = self.message(torch.cat([x[row], edge_attr], dim=1)).relu()
        out = scatter(out, col, dim=0, dim_size=x.size(0), reduce="mean")
        return self.update(torch.cat([x, out], dim=1)).relu()


class MetaByPyG(MessagePassing):
    """MetaLayer with messages by PyG."""

    def __init__(self) -> None:
        super().__init__(aggr="mean")
        self.edge_model, self.node_model = EdgePart(), NodePart()

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> tuple[Tensor, Tensor]:
        edge_attr = self.edge_model(x[edge_index[0]], x[edge_index[1]], edge_attr)
        out = self.propagate(edge_index, x=x, edge_attr=edge_attr)
        return self.node_model.update(torch.cat([x, out], dim=1)).relu(), edge_attr

    def message(self, x_j: Tensor, edge_attr: Tensor) -> Tensor:
        return self.node_model.message(torch.cat([x_j, edge_attr], dim=1)).relu()


class Network(nn.Module):
    """Two layers and a readout of graphs."""

    def __init__(self, layer: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.layers, self.head = nn.ModuleList([layer(), layer()]), nn.Linear(C, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, pos: Tensor, batch: Tensor) -> Tensor:
        for layer in self.layers:
            if isinstance(layer, Mover | HandMover):
                x, pos = layer(x, pos, edge_index)
            elif isinstance(layer, MetaLayer | MetaByPyG):
                x, edge_attr = layer(x, edge_index, edge_attr)[:2]
            else:
                x = layer(x, edge_index).relu()
        return self.head(global_add_pool(x, batch))


def mean(values: Tensor, index: Tensor, size: int) -> Tensor:
    return scatter(values, index, 0, dim_size=size, reduce="mean")


def own_mean(values: Tensor, index: Tensor, size: int) -> Tensor:
    count = torch.zeros(size, dtype=values.dtype).index_add(0, index, torch.ones(len(index), dtype=values.dtype))
    return _into(values, size).index_add(0, index, values) / count.clamp(min=1).unsqueeze(1)


def largest(values: Tensor, index: Tensor, size: int) -> Tensor:
    return scatter(values, index, 0, dim_size=size, reduce="max")


Build = Callable[[], nn.Module]
TWINS: dict[str, tuple[Build, Build]] = {
    **{name: (lambda add=add: HandLayer(add), Layer) for name, add in SUMS.items()},
    "mean": (lambda: HandLayer(mean), lambda: Layer("mean")),
    "own mean": (lambda: HandLayer(own_mean), lambda: Layer("mean")),
    "max": (lambda: HandLayer(largest), lambda: Layer("max")),
    "to sources": (lambda: HandLayer(SUMS["index_add"], to=0), lambda: Layer(flow="target_to_source")),
    "GCN": (HandGCN, GCNLayer),
    "attention": (HandAttention, AttentionLayer),
    "EGNN": (HandMover, Mover),
    "MetaLayer": (lambda: MetaLayer(EdgePart(), NodePart()), MetaByPyG),
}


def _twins(name: str) -> tuple[nn.Module, nn.Module, tuple[Tensor, ...]]:
    by_hand, by_pyg = (randomized(Network(build)) for build in TWINS[name])
    by_hand.load_state_dict(by_pyg.state_dict())
    given = graph()
    return by_hand, by_pyg, (given.x, given.edge_index, given.edge_attr, given.pos, given.batch)


@pytest.mark.parametrize("name", TWINS)
@pytest.mark.slow
def test_twins_have_the_same_attributions(name: str) -> None:
    by_hand, by_pyg, arguments = _twins(name)
    mask = torch.rand(18, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for edges in (torch.ones(18, dtype=torch.float64), mask):
        found, delta = GOAtAttribution(by_hand).attribute(edges, 1, arguments, return_convergence_delta=True)
        assert delta.abs().max() < 1e-9
        torch.testing.assert_close(found, GOAtAttribution(by_pyg).attribute(edges, 1, arguments), rtol=0, atol=1e-10)
    ones = torch.ones(18, dtype=torch.float64)
    layers = [GOAtAttribution(model).attribute_layers(ones, 1, arguments) for model in (by_hand, by_pyg)]
    torch.testing.assert_close(*layers, rtol=0, atol=1e-10)
    both = [
        GOAtAttribution(model, mask_type="node_and_edge").attribute((arguments[0], ones), 1, arguments[1:])
        for model in (by_hand, by_pyg)
    ]
    for first, second in zip(*both, strict=True):
        torch.testing.assert_close(first, second, rtol=0, atol=1e-10)
    repeated = [
        GOAtAttribution(model, "repeated", mask_type="edge").attribute(ones, 1, arguments)
        for model in (by_hand, by_pyg)
    ]
    torch.testing.assert_close(*repeated, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", TWINS)
@torch.no_grad()
def test_masked_twins_are_the_same(name: str) -> None:
    by_hand, by_pyg, arguments = _twins(name)
    masks = 1 - torch.eye(18, dtype=torch.float64)
    ones = torch.ones(18, dtype=torch.float64)
    torch.testing.assert_close(EdgeMaskedModel(by_hand)(ones, *arguments), by_hand(*arguments), rtol=0, atol=1e-12)
    masked, expected = EdgeMaskedModel(by_hand), EdgeMaskedModel(by_pyg)
    for mask in (*masks[:3], masks[0], torch.rand(18, dtype=torch.float64)):
        torch.testing.assert_close(masked(mask, *arguments), expected(mask, *arguments), rtol=0, atol=1e-12)
    torch.testing.assert_close(masked(masks, *arguments), expected(masks, *arguments), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["index_add", "mean", "GCN", "EGNN"])
def test_presence_by_hand_is_refused(name: str) -> None:
    by_hand, _, arguments = _twins(name)
    for run in (
        lambda: GOAtAttribution(by_hand, at="adjacency").attribute(torch.ones(18, dtype=torch.float64), 1, arguments),
        lambda: EdgeMaskedModel(by_hand, at="adjacency")(torch.ones(18, dtype=torch.float64), *arguments),
    ):
        with pytest.raises(UnsupportedModelError):
            run()


def _own_softmax(v: Tensor, i: Tensor, n: int) -> Tensor:
    weight = v.mean(dim=1, keepdim=True).exp()
    return _into(v, n).index_add(0, i, v * (weight / _into(weight, n).index_add(0, i, weight)[i]))


def _own_quotient(v: Tensor, i: Tensor, n: int) -> Tensor:
    weight = v.sigmoid()
    return _into(v, n).index_add(0, i, v * weight) / (_into(v, n).index_add(0, i, weight) + 1e-6)


def _own_softmax_of_heads(v: Tensor, i: Tensor, n: int) -> Tensor:
    weight = v.mean(dim=1, keepdim=True).exp()
    total = torch.cat([_into(weight, n).index_add(0, i, weight)] * C, dim=1).index_select(0, i)
    return _into(v, n).index_add(0, i, v * weight * (1 / total))


REFUSED: dict[str, Sum] = {
    "softmax of heads": _own_softmax_of_heads,
    "softmax": _own_softmax,
    "quotient": _own_quotient,
    "shuffled": lambda v, i, n: _into(v, n).index_add(0, i, v.flip(0)),
    "opposite edges": lambda v, i, n: _into(v, n).index_add(0, i, v - v[torch.arange(len(v) - 1, -1, -1)]),
    "other order": lambda v, i, n: _into(v, n).index_add(0, i.flip(0), v),
    "half": lambda v, i, n: _into(v, n).index_add(0, i[:9], v[:9] + v[9:]),
    "sorted": lambda v, i, n: _into(v, n).index_add(0, i, v.sort(dim=0).values),
    "batch statistics": lambda v, i, n: _into(v, n).index_add(0, i, v - v.mean(dim=0)),
    "shifted": lambda v, i, n: _into(v, n).index_add(0, (i + 1) % n, v),
    "sum over all": lambda v, i, n: _into(v, n) + v.sum(dim=0),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_may_be_no_message_is_refused(name: str) -> None:
    by_hand = randomized(Network(lambda: HandLayer(REFUSED[name])))
    given = graph()
    arguments = given.x, given.edge_index, given.edge_attr, given.pos, given.batch
    ones = torch.ones(18, dtype=torch.float64)
    with pytest.raises(UnsupportedModelError):
        GOAtAttribution(by_hand).attribute(ones, 1, arguments)
    with pytest.raises(UnsupportedModelError):
        EdgeMaskedModel(by_hand)(ones, *arguments)


def test_the_same_end_is_refused() -> None:
    class SameEnd(HandLayer):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            messages = x[edge_index[1]]
            return self.after(torch.cat([x, self.add(messages, edge_index[1], len(x))], dim=1))

    given = graph()
    arguments = given.x, given.edge_index, given.edge_attr, given.pos, given.batch
    with pytest.raises(UnsupportedModelError, match="by hand"):
        GOAtAttribution(randomized(Network(lambda: SameEnd(SUMS["scatter"])))).attribute(
            torch.ones(18, dtype=torch.float64), 1, arguments
        )


@pytest.mark.parametrize("to", [0, 1])
def test_nodes_are_cut_out_in_the_direction_of_messages(to: int) -> None:
    class Nodes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = HandLayer(SUMS["scatter"], to), HandLayer(SUMS["index_add"], to)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.second(self.first(x, edge_index).relu(), edge_index)

    model, given = randomized(Nodes()), graph()
    ring = torch.stack([torch.arange(10), (torch.arange(10) + 1) % 10])
    for check in (True, False):
        explanations = explain_nodes(
            GOAtAttribution(model), Data(x=given.x, edge_index=ring), [0, 4], target=1, check=check
        )
        for position, node in enumerate((0, 4)):
            expected = GOAtAttribution(model).attribute(torch.ones(10).double(), (node, 1), (given.x, ring))
            torch.testing.assert_close(explanations.edge_mask(position), expected, rtol=0, atol=1e-10)
