"""Every spelling of ReLU is seen, and nothing is left on the model."""

from __future__ import annotations

import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import make_gnn, random_edges, randomize
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch_geometric.explain.algorithm.utils import set_masks
from torch_geometric.nn import GIN, GCNConv, GraphConv

from captum_goat import EdgeMaskedModel, GOAtAttribution, UnsupportedModelError

X = torch.randn(6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
EDGES = random_edges(6, 14, seed=3)
MASK = torch.ones(14, dtype=torch.float64)


class Activated(nn.Module):
    """Two layers with an activation between them that is given as a function."""

    def __init__(self, activation: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.first, self.second = GraphConv(4, 6), GraphConv(6, 2)
        self.activation = activation

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.activation(self.first(x, edge_index)), edge_index)


def drops_result(function: Callable[[Tensor], Any]) -> Callable[[Tensor], Tensor]:
    def activate(x: Tensor) -> Tensor:
        function(x)
        return x

    return activate


def then_in_place(x: Tensor) -> Tensor:
    x = F.relu(x)
    x += 1.0
    x -= 1.0
    return x


SPELLINGS: dict[str, Callable[[Tensor], Tensor]] = {
    "nn.ReLU": nn.ReLU(),
    "nn.ReLU in place": nn.ReLU(inplace=True),
    "nn.ReLU in place, result dropped": drops_result(nn.ReLU(inplace=True)),
    "nn.ReLU.forward": nn.ReLU().forward,
    "F.relu": F.relu,
    "F.relu in place": lambda x: F.relu(x, inplace=True),
    "F.relu in place by position": lambda x: F.relu(x, True),
    "F.relu_": F.relu_,
    "torch.relu": torch.relu,
    "torch.relu by keyword": lambda x: torch.relu(input=x),
    "torch.relu_": drops_result(torch.relu_),
    "Tensor.relu": Tensor.relu,
    "Tensor.relu_": drops_result(lambda x: x.relu_()),
    "torch.clamp": lambda x: torch.clamp(x, min=0),
    "torch.clamp by position": lambda x: torch.clamp(x, 0.0),
    "Tensor.clamp": lambda x: x.clamp(min=0.0),
    "Tensor.clamp_": drops_result(lambda x: x.clamp_(min=0)),
    "Tensor.clamp_min": lambda x: x.clamp_min(0),
    "torch.clip": lambda x: torch.clip(x, min=0),
    "F.threshold": lambda x: F.threshold(x, 0, 0),
    "F.relu, changed in place afterwards": then_in_place,
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_spellings_of_relu_are_one(name: str) -> None:
    expected = randomize(Activated(torch.relu).double(), seed=1)
    model = copy.deepcopy(expected)
    model.activation = SPELLINGS[name]
    model.eval()
    assert torch.equal(model(X, EDGES), expected(X, EDGES))
    attributions, delta = GOAtAttribution(model).attribute(MASK, (2, 1), (X, EDGES), return_convergence_delta=True)
    reference = GOAtAttribution(expected).attribute(MASK, (2, 1), (X, EDGES))
    torch.testing.assert_close(attributions, reference, rtol=1e-12, atol=1e-12)
    assert float(delta.abs()) < 1e-12


class Exponential(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.exp()


REFUSED: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "an exponential": (torch.exp, "exp"),
    "softmax by hand": (lambda x: x.exp() / x.exp().sum(-1, keepdim=True), "exp"),
    "log-softmax": (lambda x: x.log_softmax(-1), "_log_softmax"),
    "another norm as a value": (lambda x: x.norm(p=3, dim=-1, keepdim=True).expand(-1, 6), "linalg_vector_norm"),
    "a bound that is a value": (lambda x: torch.clamp(x, min=x.flip(0)), "clamp"),
    "a running maximum": (lambda x: x.cummax(dim=0).values, "cummax"),
    "dropout in training": (lambda x: F.dropout(x, 0.5, training=True), "dropout|bernoulli"),
    "a random slope": (lambda x: F.rrelu(x, training=True), "rrelu"),
}
FROZEN: dict[str, Callable[[Tensor], Tensor]] = {
    "a product with its own sign": lambda x: x * (x > 0),
    "division by a value": lambda x: x / (1 + x.abs()),
    "division by a value in place": lambda x: (2 * x).div_(1 + x.abs()),
    "a choice by a value": lambda x: torch.where(x > 0.1, x, 0.5 * x),
    "a choice by a value in place": lambda x: (2 * x).masked_fill_(x < 0, 0.3),
    "a matrix product with exponentials": lambda x: x.exp() @ (x.t() @ x) / x.exp().sum(),
    "an equation with exponentials": lambda x: torch.einsum("nd,ne,n->nd", x, x.exp(), x[:, 0].cosh().log()),
    "a norm as a value": lambda x: torch.cat([x[:, :5], x.norm(dim=-1, keepdim=True)], dim=-1),
    "a vector norm as a value": lambda x: torch.linalg.vector_norm(x, dim=0).expand(6, -1),
    "a standard deviation as a value": lambda x: x.std(-1, keepdim=True).expand(-1, 6),
    "a variance as a value": lambda x: x.var(0, unbiased=False).expand(6, -1),
    "two roots as values": lambda x: (1 + x.square()).sqrt() + (1 + x.square()).pow(0.7),
    "sorting": lambda x: x.sort(dim=0).values,
    "the largest rows": lambda x: torch.cat([x[x.sum(1).topk(4).indices], x[:2]]),
    "an index of a value": lambda x: x[x.argmax(dim=0)[0].view(1)].expand(6, -1),
    "rows above a bound": lambda x: x[(x[:, 0] > x[:, 0].min()).nonzero().view(-1)].sum(0).expand(6, -1),
    "distances as factors": lambda x: torch.cdist(x, x) @ x,
    "a recurrent cell": nn.GRUCell(6, 6).double().eval(),
}


@pytest.mark.parametrize("name", FROZEN)
def test_factors_divisors_roots_and_cells_are_exact(name: str) -> None:
    model = randomize(Activated(FROZEN[name]).double(), seed=1)
    arguments = X, EDGES
    attributions, delta = GOAtAttribution(model).attribute(MASK, (2, 1), arguments, return_convergence_delta=True)
    masked = EdgeMaskedModel(model)
    with torch.no_grad():
        difference = masked(MASK, *arguments)[2, 1] - masked(torch.zeros_like(MASK), *arguments)[2, 1]
    assert float(delta.abs()) < 1e-10
    torch.testing.assert_close(attributions.sum(), difference, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_linear_is_refused_by_name(name: str) -> None:
    activation, operation = REFUSED[name]
    model = randomize(Activated(activation).double(), seed=1)
    with pytest.raises(UnsupportedModelError, match=operation):
        GOAtAttribution(model).attribute(MASK, (2, 1), (X, EDGES))


def test_refusals_name_the_module() -> None:
    model = Activated(nn.Sequential(nn.Identity(), Exponential())).double().eval()
    with pytest.raises(UnsupportedModelError, match=r"'exp' in 'activation.1' \(Exponential\).*captum_goat.rules.gate"):
        GOAtAttribution(model).attribute(MASK, (2, 1), (X, EDGES))


def test_what_has_no_part_in_the_output_is_not_refused() -> None:
    seen = []

    def watched(x: Tensor) -> Tensor:
        seen.append(x.exp().mean())
        assert not x.isnan().any()
        return x.relu()

    model = randomize(Activated(watched).double(), seed=1)
    attributions = GOAtAttribution(model).attribute(MASK, (2, 1), (X, EDGES))
    model.activation = torch.relu
    torch.testing.assert_close(attributions, GOAtAttribution(model).attribute(MASK, (2, 1), (X, EDGES)))
    assert seen


@pytest.mark.parametrize("row", [(slice(None), 0), (1,), (slice(None), slice(1, 3))], ids=["column", "row", "columns"])
@pytest.mark.parametrize(
    "kind", [float, lambda value: torch.tensor(value, dtype=torch.float64)], ids=["number", "tensor"]
)
@pytest.mark.parametrize("value", [0.0, 0.5])
def test_constants_may_overwrite_a_part(row: tuple[Any, ...], kind: Any, value: float) -> None:
    part = torch.zeros(6, 6, dtype=torch.bool)
    part[row] = True

    def overwrite(x: Tensor) -> Tensor:
        x[row] = kind(value)
        return x.relu()

    model = randomize(Activated(overwrite).double(), seed=1)
    attributions = GOAtAttribution(model).attribute(MASK, (2, 1), (X, EDGES))
    model.activation = lambda x: torch.where(part, value, x.relu())
    torch.testing.assert_close(attributions, GOAtAttribution(model).attribute(MASK, (2, 1), (X, EDGES)))


def test_products_of_edge_dependent_values_stay_exact() -> None:
    """A square doubles the degree of the polynomial, so it needs more points, not another method."""
    model = randomize(Activated(lambda x: x.relu() * x + x**3).double(), seed=1)
    _, delta = GOAtAttribution(model).attribute(MASK, (2, 1), (X, EDGES), return_convergence_delta=True)
    assert float(delta.abs()) < 1e-10


def snapshot(model: nn.Module) -> list[Any]:
    """Return everything about a model that an explanation might change."""
    state = []
    for name, module in model.named_modules():
        hooks = {key: dict(value) for key, value in vars(module).items() if key.endswith("hooks")}
        plain = {k: v for k, v in vars(module).items() if isinstance(v, bool | int | float | str | type(None))}
        state += [name, sorted(vars(module)), hooks, plain]
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        state += [name, tensor.requires_grad, tensor._version, tensor.grad is None, tensor.clone().flatten().tolist()]
    return state


class FailAt(TorchDispatchMode):
    """Fail in the n-th operation."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.remaining = number

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.remaining -= 1
        if self.remaining < 0:
            raise ZeroDivisionError(f"in {func}")
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("explain", ["attribute", "EdgeMaskedModel"])
@pytest.mark.slow
def test_nothing_is_left_on_the_model_wherever_it_fails(explain: str) -> None:
    model = randomize(GIN(4, 5, 2, 2, norm="batch_norm", act=nn.ReLU(inplace=True)).double(), seed=1)
    before, x_before = snapshot(model), X.clone()

    def run() -> None:
        if explain == "attribute":
            GOAtAttribution(model).attribute(MASK, (2, 1), (X, EDGES))
        else:
            EdgeMaskedModel(model)(MASK.expand(2, -1), X, EDGES)

    run()
    assert snapshot(model) == before
    failures = 0
    for number in range(0, 100_000, 23 if explain == "attribute" else 11):
        try:
            with FailAt(number):
                run()
            break
        except ZeroDivisionError:
            failures += 1
        assert snapshot(model) == before, f"after failing in operation {number}"
    assert failures > 10
    assert torch.equal(X, x_before)


def test_fused_kernels_come_back() -> None:
    model = make_gnn("sage_sum")
    assert all(conv.fuse for conv in model.convs)
    GOAtAttribution(model).attribute(MASK, 1, (X, EDGES))
    assert all(conv.fuse for conv in model.convs)


def test_the_users_hooks_still_run() -> None:
    model = randomize(Activated(nn.ReLU()).double(), seed=1)
    calls = []
    model.activation.register_forward_hook(lambda *_: calls.append("relu"))
    model.first.register_message_forward_hook(lambda *_: calls.append("message"))
    GOAtAttribution(model).attribute(MASK, (2, 1), (X, EDGES))
    assert {"relu", "message"} == set(calls)


def test_layers_that_cannot_be_masked_are_refused() -> None:
    masked = GCNConv(4, 2).double().eval()
    set_masks(masked, MASK, EDGES)
    with pytest.raises(UnsupportedModelError, match="clear_masks"):
        GOAtAttribution(masked).attribute(MASK, (0, 0), (X, EDGES))
    other = nn.ModuleList([GCNConv(4, 2)])
    other.forward = lambda x, edge_index: other[0](x, torch.tensor([[0, 1], [1, 2]]))
    with pytest.raises(UnsupportedModelError, match=r"'0' \(GCNConv\).*do not come from the given edge_index"):
        GOAtAttribution(other.double().eval()).attribute(MASK, (0, 0), (X, EDGES))
    more = nn.ModuleList([GraphConv(4, 2)])
    more.forward = lambda x, edge_index: more[0](x, torch.cat([edge_index, torch.tensor([[0], [1]])], dim=1))
    with pytest.raises(UnsupportedModelError, match="neither in the given edge_index nor self-loops"):
        GOAtAttribution(more.double().eval()).attribute(MASK, (0, 0), (X, EDGES))


def test_a_layer_set_aside_is_a_constant() -> None:
    model = randomize(Activated(torch.relu).double(), seed=1)
    model.first.explain = False
    attributions, delta = GOAtAttribution(model).attribute(MASK, (2, 1), (X, EDGES), return_convergence_delta=True)
    assert float(delta.abs()) < 1e-12
    # Only the second layer is left, and its messages go to node 2.
    assert torch.equal(attributions != 0, EDGES[1] == 2)


def test_threads_do_not_meet_each_others_hooks() -> None:
    model = make_gnn("gin")
    goat = GOAtAttribution(model)
    expected, output = goat.attribute(MASK, 1, (X, EDGES)), model(X, EDGES)

    def work(number: int) -> bool:
        if number % 2:
            return torch.equal(model(X, EDGES), output)
        return torch.allclose(goat.attribute(MASK, 1, (X, EDGES)), expected)

    with ThreadPoolExecutor(3) as pool:
        assert all(pool.map(work, range(24)))
    assert not any(module._forward_hooks for module in model.modules())
