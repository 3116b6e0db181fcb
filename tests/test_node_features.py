"""Attributions of node features, of features and edges together, and of inputs of models without message passing."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import GNN, KINDS, combinations, make_gnn, random_edges, randomize
from torch import Tensor, nn
from torch_geometric.nn import GATConv, SimpleConv, global_add_pool, to_captum_model

from captum_goat import EdgeMaskedModel, GOAtAttribution, UnsupportedModelError

Batch = tuple[Tensor, Tensor, Tensor]
MASK_TYPES = ("node", "node_and_edge")


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def features(nodes: int, seed: int = 0) -> Tensor:
    """Return x with a row of zeros and a zero in another row."""
    x = normal(nodes, 4, seed=seed)
    x[1], x[0, 2] = 0.0, 0.0
    return x


def as_inputs(mask_type: str, x: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
    return (x,) if mask_type == "node" else (x, mask)


def randomized(*layers: nn.Module) -> nn.Module:
    return randomize(nn.Sequential(*layers).double(), seed=3)


def mlp(*sizes: int) -> nn.Module:
    """Return Linear layers with ReLUs between them."""
    return randomized(*[layer for pair in itertools.pairwise(sizes) for layer in (nn.ReLU(), nn.Linear(*pair))][1:])


def cnn() -> nn.Module:
    convolution = nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten()
    return randomized(*convolution, nn.Linear(12, 5), nn.ReLU(), nn.Linear(5, 3))


class Branches(nn.Module):
    """Two inputs that meet, and an argument that is not attributed."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.out = nn.Linear(3, 4), nn.Linear(2, 4), nn.Linear(4, 3)

    def forward(self, a: Tensor, b: Tensor, scale: float) -> Tensor:
        return self.out(F.relu(F.relu(self.first(a)) - scale * self.second(b)))


@pytest.mark.parametrize(
    ("kind", "pool", "field", "mask_type"),
    combinations(KINDS, ["mean", "sum", None], ["distinct", "repeated"], MASK_TYPES),
)
def test_completeness(kind: str, pool: str | None, field: str, mask_type: str) -> None:
    model, x, edge_index = make_gnn(kind, pool=pool), features(6), random_edges(6, 11, seed=4)
    mask = normal(11, seed=2) if mask_type == "node_and_edge" else torch.ones(11, dtype=torch.float64)
    target = (0, 1) if pool else (int(edge_index[1, 0]), 1)
    attributions, delta = GOAtAttribution(model, field=field, mask_type=mask_type).attribute(
        as_inputs(mask_type, x, mask), 1 if pool else target, (edge_index,), return_convergence_delta=True
    )
    masked = EdgeMaskedModel(model)
    with torch.no_grad():
        output = masked(mask, x, edge_index)
        baseline = masked(mask if mask_type == "node" else 0 * mask, 0 * x, edge_index)
    difference = (output - baseline)[target]
    total = sum(part.sum() for part in attributions)
    torch.testing.assert_close(total, difference, rtol=1e-10, atol=1e-10)
    assert delta.shape == (1,)
    assert float(delta.abs()) < 1e-10
    assert float(attributions[0].abs().max()) > 1e-3
    assert bool((attributions[0][x == 0] == 0).all())  # zero features get exactly 0


@pytest.mark.parametrize(
    ("model", "inputs", "arguments"),
    [
        (mlp(3, 3), (normal(4, 3),), ()),
        (mlp(3, 6, 3), (normal(4, 3),), ()),
        (mlp(3, 6, 5, 4, 3), (normal(4, 3),), ()),
        (cnn(), (normal(4, 2, 4, 4),), ()),
        (randomize(Branches().double(), seed=3), (normal(4, 3), normal(4, 2, seed=1)), (0.7,)),
    ],
    ids=["linear", "mlp", "deep_mlp", "cnn", "branches"],
)
def test_completeness_without_message_passing(
    model: nn.Module, inputs: tuple[Tensor, ...], arguments: tuple[Any, ...]
) -> None:
    """Rows are examples: each has a baseline, gates and a target of its own."""
    for part in inputs:
        part[:, 0], part[2] = 0.0, 0.0
    inputs[0][1, 1] = 0.0
    targets, goat = [0, 2, 1, 1], GOAtAttribution(model)
    attributions, delta = goat.attribute(inputs, targets, arguments or None, return_convergence_delta=True)
    with torch.no_grad():
        difference = model(*inputs, *arguments) - model(*[0 * part for part in inputs], *arguments)
    total = sum(part.flatten(1).sum(1) for part in attributions)
    torch.testing.assert_close(total, difference[range(4), targets], rtol=1e-12, atol=1e-12)
    assert delta.shape == (4,)
    for row, target in enumerate(targets):
        alone = goat.attribute(tuple(part[row : row + 1] for part in inputs), target, arguments or None)
        for part, whole, single in zip(inputs, attributions, alone, strict=True):
            torch.testing.assert_close(whole[row : row + 1], single, rtol=1e-12, atol=1e-12)
            assert bool((whole[part == 0] == 0).all())


def test_an_mlp_by_hand() -> None:
    """in1 = x0 + 2 x1 + 1 and in2 = -x0 + x1 - 2; f = 2 P1 in1 + 5 P2 in2 + 4.

    x = 0: in1 = 1, in2 = -2: f(0) = 2 P1' + 4 = 6 and I_P1' = 2, to be subtracted from the non-zero inputs.
    x = (3, 1): in1 = 6, in2 = -4: f = 2 x0 P1 + 4 x1 P1 + 2 P1 + 4 = 6 + 4 + 2 + 4 = 16; I_x0 = 3, I_x1 = 2 and
    I_P1 = 3 + 2 + 2 = 7: each input gets (7 - 2) / 2 = 2.5 more: 5.5 and 4.5, together 10 = 16 - 6.
    x = (0, 1): in1 = 3, in2 = -1: f = 4 x1 P1 + 2 P1 + 4 = 10; I_x1 = 2 and I_P1 = 4, whose field is x1 alone:
    2 + 4 - 2 = 4 = 10 - 6.
    x = (-4, 1): in1 = -1, in2 = 3: f = -5 x0 P2 + 5 x1 P2 - 10 P2 + 4 = 20 + 5 - 10 + 4 = 19; I_x0 = 10, I_x1 = 2.5
    and I_P2 = 10 + 2.5 - 10 = 2.5: (2.5 - 2) / 2 = 0.25 more: 10.25 and 2.75, together 13 = 19 - 6.
    """
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1)).double().eval()
    numbers = [[1.0, 2.0], [-1.0, 1.0]], [1.0, -2.0], [[2.0, 5.0]], [4.0]
    for parameter, values in zip(model.parameters(), numbers, strict=True):
        parameter.data = torch.tensor(values).double()
    x = torch.tensor([[3.0, 1.0], [0.0, 1.0], [-4.0, 1.0]]).double()
    expected = torch.tensor([[5.5, 4.5], [0.0, 4.0], [10.25, 2.75]]).double()
    torch.testing.assert_close(GOAtAttribution(model).attribute(x, target=0), expected, rtol=0, atol=1e-12)
    model.append(nn.Flatten(0)).eval()  # one number per example needs no target
    torch.testing.assert_close(GOAtAttribution(model).attribute(x), expected, rtol=0, atol=1e-12)


class Attention(nn.Module):
    """A gate at every node before attention: of a node whose features are 0 it is a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(1, 1), GATConv(1, 1)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.first(x).relu(), edge_index)


@pytest.mark.parametrize("mask_type", MASK_TYPES)
def test_attention_over_constants_by_hand(mask_type: str) -> None:
    """h = relu(x + 1) with x = (0, 2): h_0 = 1, a constant, and h_1 = P x_1 + P = 3; edge a: 1 -> 0.

    Logits log(2) / 2 * h give the message of a 2/3 and the loop of node 0 1/3: f = 2/3 a (P x_1 + P) + 1/3 * 1.
    The last product has no variables: it goes to its frozen coefficient, which x_1 alone can change; also 1/2 in the
    baseline, where both coefficients are 1/2. So x_1 has all of f - f(0), or shares it with a.
    "node": f = 2 + 1/3 and f(0) = 1/2 + 1/2. "node_and_edge", a = 0 in the baseline: f(0) = 1/2, and I_x1 = 4/9 and
    I_a = 4/9 + 1/3; P, with only x_1 in its field: I_P = 4/9 + 1/3, in the baseline 0.
    """
    model = Attention().double().eval()
    names = dict(model.named_parameters())
    for name, parameter in names.items():
        nn.init.constant_(parameter, {"second.att_src": math.log(2) / 2}.get(name, 1.0))
    nn.init.zeros_(names["second.att_dst"])
    nn.init.zeros_(names["second.bias"])
    x, ones, edge_index = torch.tensor([[0.0], [2.0]]).double(), torch.ones(1).double(), torch.tensor([[1], [0]])
    result = GOAtAttribution(model, mask_type=mask_type).attribute(as_inputs(mask_type, x, ones), (0, 0), (edge_index,))
    of_x = 4 / 3 if mask_type == "node" else 4 / 9 + 4 / 9 + 1 / 3 + 1 / 3 - 1 / 2
    expected = [torch.tensor(part, dtype=torch.float64) for part in ([[0.0], [of_x]], [4 / 9 + 1 / 3])]
    torch.testing.assert_close(list(result), expected[: len(result)], rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mask_type", MASK_TYPES)
def test_batch_equals_single_graphs(kind: str, mask_type: str, batch_of_graphs: Batch) -> None:
    x, edge_index, batch = batch_of_graphs
    x[3], x[7, 1], x[14, 2:] = 0.0, 0.0, 0.0
    goat, mask, targets = GOAtAttribution(make_gnn(kind), mask_type=mask_type), normal(edge_index.size(1)), [2, 0, 1, 1]
    together, delta = goat.attribute(
        as_inputs(mask_type, x, mask), targets, (edge_index, batch), return_convergence_delta=True
    )
    assert delta.shape == (4,)
    for number, target in enumerate(targets):
        nodes, edges = batch == number, batch[edge_index[0]] == number
        inputs = as_inputs(mask_type, x[nodes], mask[edges])
        alone = goat.attribute(inputs, target, (edge_index[:, edges] - int(nodes.nonzero()[0]),))
        for whole, part, single in zip(together, (nodes, edges), alone, strict=False):
            torch.testing.assert_close(whole[part], single, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("kind", "pool", "mask_type"), combinations(KINDS, ["mean", None], MASK_TYPES))
def test_several_inputs_of_one_graph_equal_single_calls(kind: str, pool: str | None, mask_type: str) -> None:
    xs, masks, edge_index = torch.stack([features(5, seed) for seed in range(3)]), normal(3, 8), random_edges(5, 8, 1)
    xs[2, 4, 1:] = 0.0  # zeros differ between the examples
    targets = [0, 2, 1] if pool else [(0, 1), (4, 0), (2, 2)]
    goat = GOAtAttribution(make_gnn(kind, pool=pool), mask_type=mask_type)
    together, delta = goat.attribute(
        as_inputs(mask_type, xs, masks), targets, (edge_index,), return_convergence_delta=True
    )
    assert delta.shape == (3,)
    for row, target in enumerate(targets):
        alone = goat.attribute(as_inputs(mask_type, xs[row], masks[row]), target, (edge_index,))
        for whole, single in zip(together, alone, strict=True):
            torch.testing.assert_close(whole[row], single, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_features_that_cannot_reach_the_target_get_nothing(kind: str) -> None:
    """Along 0 -> 1 -> ... -> 5 two layers take nodes 1, 2 and 3 to node 3; without self paths node 1 alone."""
    edge_index = torch.stack([torch.arange(5), torch.arange(1, 6)])
    x = normal(6, 4)
    actual = GOAtAttribution(make_gnn(kind, layers=2, pool=None), mask_type="node").attribute(x, (3, 0), (edge_index,))
    reached = [1] if kind == "gcn_plain" else [1, 2, 3]
    assert actual.abs().sum(1).nonzero().flatten().tolist() == reached


@pytest.mark.parametrize("mask_type", MASK_TYPES)
def test_pygs_wrapper_gives_the_same(mask_type: Any) -> None:
    model, edge_index, mask = make_gnn("sage_mean"), random_edges(5, 8, seed=1), normal(1, 8)
    inputs = as_inputs(mask_type, features(5)[None], mask)
    expected = GOAtAttribution(model, mask_type=mask_type).attribute(
        tuple(part[0] for part in inputs), 1, (edge_index,)
    )
    actual = GOAtAttribution(to_captum_model(model, mask_type)).attribute(inputs, 1, (edge_index,))
    for part, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(part[0], other, rtol=0, atol=1e-13)


class InPlace(nn.Module):
    """Change x before anything else."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, *arguments: Tensor) -> Tensor:
        return self.model(x.mul_(2.0).relu_(), *arguments)


@pytest.mark.parametrize(
    "model", [make_gnn("gin"), InPlace(make_gnn("gin")).eval(), mlp(4, 5, 3), InPlace(mlp(4, 5, 3)).eval()]
)
@pytest.mark.parametrize("mask_type", MASK_TYPES)
def test_model_and_inputs_are_left_alone(model: nn.Module, mask_type: str) -> None:
    x, edge_index, mask = features(5), random_edges(5, 8, seed=1), normal(8)
    is_gnn = any(isinstance(module, GNN) for module in model.modules())
    state, before = copy.deepcopy(model.state_dict()), (x.clone(), mask.clone(), edge_index.clone())
    names = {name: set(vars(module)) for name, module in model.named_modules()}
    goat = GOAtAttribution(model, mask_type=mask_type) if is_gnn else GOAtAttribution(model)
    inputs = as_inputs(mask_type if is_gnn else "node", x, mask)
    attributions, delta = goat.attribute(inputs, 1, (edge_index,) if is_gnn else None, return_convergence_delta=True)
    assert float(delta.abs().max()) < 1e-10
    assert float(attributions[0].abs().max()) > 0
    torch.testing.assert_close((x, mask, edge_index), before, rtol=0, atol=0)
    torch.testing.assert_close(model.state_dict(), state, rtol=0, atol=0)
    assert {name: set(vars(module)) for name, module in model.named_modules()} == names
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    assert not any(part.requires_grad for part in (x, *attributions))


@pytest.mark.parametrize(
    ("mask_type", "inputs", "message"),
    [
        ("nodes", (normal(5, 4),), r"mask_type to be one of node, edge, edge_attr"),
        ("node", (torch.ones(5, 4, dtype=torch.long),), r"one row per node \(got torch.int64"),
        ("node_and_edge", (torch.ones(5, 4, dtype=torch.long), normal(8)), r"one row per node \(got torch.int64"),
        ("node", (normal(5, 4), normal(8)), r"1 input\(s\), the node features \(got 2 inputs\)"),
        ("node_and_edge", (normal(5, 4),), r"2 input\(s\), \(x, edge_mask\) \(got 1 inputs\)"),
        ("node_and_edge", (normal(5, 4), normal(8), normal(8)), r"1 mask\(s\), .* 'edge_index' .* \(got 2 masks\)"),
        ("node_and_edge", (normal(5, 4), normal(7)), r"one mask entry per edge: 8 for 'edge_index' \(got 7\)"),
        ("node_and_edge", (normal(5, 4), normal(2, 8)), r"features \[B, num_nodes, ...\] for masks \[B, num_edges\]"),
    ],
)
def test_errors(mask_type: str, inputs: tuple[Tensor, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GOAtAttribution(make_gnn(), mask_type=mask_type).attribute(inputs, 1, (random_edges(5, 8, seed=1),))


def test_errors_without_message_passing() -> None:
    with pytest.raises(ValueError, match="floating point numbers"):
        GOAtAttribution(mlp(3, 4, 2)).attribute(torch.ones(2, 3, dtype=torch.long), 0)
    with pytest.raises(UnsupportedModelError, match=r"at most 1 arguments for Sequential.forward\(input\) \(got 2\)"):
        GOAtAttribution(mlp(3, 4, 2)).attribute((normal(2, 3), normal(2, 3)), 0)
    with pytest.raises(ValueError, match="mask_type 'node', as that of the wrapped model"):
        GOAtAttribution(to_captum_model(make_gnn(), "node"), mask_type="edge")


class Ending(nn.Module):
    def __init__(self, model: nn.Module, end: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.model, self.end = model, end

    def forward(self, *arguments: Tensor) -> Tensor:
        return self.end(self.model(*arguments))


ENDINGS: list[Callable[[Tensor], Tensor]] = [
    nn.Softmax(dim=-1),
    nn.LogSoftmax(dim=1),
    nn.Sigmoid(),
    torch.sigmoid,
    lambda output: F.softmax(output, dim=-1),
    lambda output: F.log_softmax(output, dim=-1),
    lambda output: output.log_softmax(1),
    lambda output: output.sigmoid(),
]


@pytest.mark.parametrize("end", ENDINGS)
def test_a_softmax_or_sigmoid_at_the_end_is_bypassed(end: Callable[[Tensor], Tensor]) -> None:
    gnn, edge_index, x, mask = make_gnn(), random_edges(5, 8, seed=1), features(5), normal(8)
    for mask_type in MASK_TYPES:
        call = as_inputs(mask_type, x, mask), 1, (edge_index,), True
        expected, actual = (
            GOAtAttribution(model, mask_type=mask_type).attribute(*call) for model in (gnn, Ending(gnn, end).eval())
        )
        torch.testing.assert_close(actual, expected, rtol=0, atol=1e-13)
    network = mlp(4, 5, 3)
    logits, actual = (GOAtAttribution(model).attribute(x, 2) for model in (network, Ending(network, end).eval()))
    torch.testing.assert_close(actual, logits, rtol=0, atol=1e-13)


def test_a_log_softmax_in_the_middle_is_refused() -> None:
    model = nn.Sequential(mlp(4, 3), nn.LogSoftmax(-1), nn.Linear(3, 2)).double().eval()
    with pytest.raises(UnsupportedModelError, match="log_softmax"):
        GOAtAttribution(model).attribute(features(3), 1)


class Received(nn.Module):
    """One ReLU of what nodes receive, so that a node's own features share in a gate that they cannot move."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = SimpleConv(aggr="sum")

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return global_add_pool(self.conv(x, edge_index).relu(), batch, 2)


def test_features_that_only_share_in_gates_belong_to_their_graph() -> None:
    x = torch.tensor([[3.0], [0.6], [0.9]], dtype=torch.float64)
    edge_index, batch, mask = torch.tensor([[2], [1]]), torch.tensor([0, 1, 1]), torch.ones(1, dtype=torch.float64)
    goat = GOAtAttribution(Received().eval(), mask_type="node_and_edge")
    (features, edges), delta = goat.attribute((x, mask), [0, 0], (edge_index, batch), return_convergence_delta=True)
    # x[2] * edge * gate: a third each; the gate's third is shared by the edge and by the features of its own node.
    torch.testing.assert_close(features.view(-1), torch.tensor([0.0, 0.15, 0.3], dtype=torch.float64))
    torch.testing.assert_close(edges, torch.tensor([0.45], dtype=torch.float64))
    torch.testing.assert_close(delta, torch.zeros(2, dtype=torch.float64))
