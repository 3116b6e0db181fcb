"""Rules for operations that are not linear: torch's and PyG's, and the user's own."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import random_edges, randomize, record_edges
from torch import Tensor, nn
from torch_geometric.nn import (
    EdgeConv,
    GATConv,
    GraphConv,
    GraphNorm,
    GraphSizeNorm,
    InstanceNorm,
    LayerNorm,
    MeanSubtractionNorm,
    MessageNorm,
    PairNorm,
    SAGEConv,
    global_max_pool,
    global_mean_pool,
)
from torch_geometric.utils import softmax

from captum_goat import EdgeMaskedModel, GOAtAttribution, UnsupportedModelError, rules
from captum_goat.activation_pattern import Subject
from captum_goat.recording import record

BATCH = torch.tensor([0, 0, 0, 0, 0, 1, 1, 1, 1])
EDGES = torch.cat([random_edges(5, 12, seed=1), random_edges(3, 5, seed=2, first=5)], dim=1)  # node 8 is isolated
X = torch.randn(9, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
MASK = torch.rand(17, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.5


class Model(nn.Module):
    """Two layers, something between them and something after them."""

    def __init__(self, between: Callable[..., Tensor], after: Callable[..., Tensor] | None = None) -> None:
        super().__init__()
        self.first, self.second, self.head = GraphConv(4, 6), GraphConv(6, 6), nn.Linear(6, 3)
        self.between, self.after = between, between if after is None else after

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        x = self.between(self.first(x, edge_index))
        return self.head(global_mean_pool(self.after(self.second(x, edge_index)), batch))


def check_complete(model: nn.Module, *arguments: Any) -> Tensor:
    """Check the sum by a way of its own, and that the replay is the model; return the attributions."""
    arguments = arguments or (X, EDGES, BATCH)
    attributions, delta = GOAtAttribution(model).attribute(MASK, [1, 2], arguments, return_convergence_delta=True)
    masked = EdgeMaskedModel(model)
    change = masked(MASK, *arguments) - masked(torch.zeros_like(MASK), *arguments)
    first = EDGES[0] < 5
    sums = torch.stack([attributions[first].sum(), attributions[~first].sum()])
    torch.testing.assert_close(sums, change[[0, 1], [1, 2]].detach(), rtol=1e-9, atol=1e-9)
    assert float(delta.abs().max()) < 1e-9
    assert attributions.any()
    return attributions


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    **{
        kind.__name__: kind()
        for kind in (
            *(nn.LeakyReLU, nn.ReLU6, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish, nn.Hardswish, nn.RReLU),
            *(nn.Softsign, nn.Tanh, nn.Tanhshrink, nn.Hardtanh, nn.Hardshrink, nn.Softshrink, nn.PReLU),
            *(nn.Sigmoid, nn.Hardsigmoid, nn.Softplus, nn.LogSigmoid),
        )
    },
    "PReLU per channel": nn.PReLU(6),
    "GELU by tanh": nn.GELU(approximate="tanh"),
    "LeakyReLU in place": nn.LeakyReLU(0.1, inplace=True),
    "ELU in place": nn.ELU(inplace=True),
    "SiLU in place": nn.SiLU(inplace=True),
    "Threshold": nn.Threshold(0.2, -0.3),
    "GLU": nn.Sequential(nn.Linear(6, 12), nn.GLU()),
    "Tensor.tanh": Tensor.tanh,
    "Tensor.sigmoid_": lambda x: (x, x.sigmoid_())[0],
    "torch.abs": torch.abs,
    "clamp between bounds": lambda x: x.clamp(-0.5, 0.5),
    "clamp above": lambda x: x.clamp(max=0.1),
    "swish by hand": lambda x: x * torch.sigmoid(1.5 * x),
    "a part in place": lambda x: (x, x[:, :2].tanh_())[0],
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name: str) -> None:
    check_complete(randomize(Model(copy.deepcopy(ACTIVATIONS[name])).double(), seed=1))


def test_every_spelling_is_the_same() -> None:
    for spellings in (
        (nn.LeakyReLU(0.2), lambda x: F.leaky_relu(x, 0.2), lambda x: F.leaky_relu(x, 0.2, True)),
        (nn.Tanh(), torch.tanh, F.tanh, Tensor.tanh, lambda x: x.tanh_()),
        (nn.Sigmoid(), torch.sigmoid, torch.special.expit, Tensor.sigmoid),
        (nn.ReLU6(), lambda x: x.clamp(0, 6), lambda x: F.hardtanh(x, 0.0, 6.0)),
    ):
        found = [check_complete(randomize(Model(each).double(), seed=1)) for each in spellings]
        for other in found[1:]:
            torch.testing.assert_close(other, found[0], rtol=0, atol=1e-13)


def test_a_smooth_gate_where_its_input_vanishes() -> None:
    """Without biases and features the input of a sigmoid is exactly 0, and its slope stands in for the ratio."""
    model = Model(torch.sigmoid).double().eval()
    for parameter in (model.first.lin_rel.bias, model.second.lin_rel.bias):
        parameter.data.zero_()
    check_complete(model, X * (BATCH == 0).view(-1, 1), EDGES, BATCH)
    pattern = record_edges(model.first, torch.zeros_like(X), EDGES, MASK)
    assert not pattern.output.any()


# Without a batch vector these mix the graphs of a batch.
MIXING = (
    *("BatchNorm of the batch", "F.normalize with another norm", "PyG LayerNorm", "PyG InstanceNorm", "GraphNorm"),
    *("PairNorm", "PairNorm of nodes", "MeanSubtractionNorm"),
)
NORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "LayerNorm": nn.LayerNorm(6),
    "LayerNorm without parameters": nn.LayerNorm(6, elementwise_affine=False),
    "RMSNorm": nn.RMSNorm(6),
    "GroupNorm": nn.GroupNorm(2, 6),
    "BatchNorm": nn.BatchNorm1d(6),
    "BatchNorm of the batch": nn.BatchNorm1d(6, track_running_stats=False),
    "InstanceNorm": lambda x: F.instance_norm(x.view(9, 2, 3)).view(9, 6),
    "F.normalize": F.normalize,
    "F.normalize with another norm": lambda x: F.normalize(x, p=1.0, dim=0),
    "PyG LayerNorm": LayerNorm(6),
    "PyG LayerNorm of nodes": LayerNorm(6, mode="node"),
    "PyG InstanceNorm": InstanceNorm(6, affine=True),
    "GraphNorm": GraphNorm(6),
    "PairNorm": PairNorm(),
    "PairNorm of nodes": PairNorm(scale_individually=True),
    "MeanSubtractionNorm": MeanSubtractionNorm(),
    "GraphSizeNorm": GraphSizeNorm(),
    "division by a norm": lambda x: x / (1e-3 + x.norm(dim=-1, keepdim=True)),
    "division in place": lambda x: x.clone().div_(x.std(dim=-1, keepdim=True)),
    "product with an inverse root": lambda x: x * (x.square().mean(-1, keepdim=True) + 0.1).rsqrt(),
    "size on the left": lambda x: x.norm(dim=-1, keepdim=True) * x,
}


@pytest.mark.parametrize("place", ["before ReLU", "after ReLU", "without ReLU"])
@pytest.mark.parametrize("name", NORMS)
def test_norms(name: str, place: str) -> None:
    norm = copy.deepcopy(NORMS[name])
    steps = {"before ReLU": lambda x: norm(x).relu(), "after ReLU": lambda x: norm(x.relu()), "without ReLU": norm}
    model = Model(steps[place])
    model.norm = norm if isinstance(norm, nn.Module) else nn.Identity()
    model = randomize(model.double(), seed=1)
    if name in MIXING:
        check_complete_alone(model)
    else:
        check_complete(model)


def check_complete_alone(model: nn.Module) -> None:
    single = torch.zeros_like(BATCH)
    attributions = GOAtAttribution(model).attribute(MASK, 1, (X, EDGES, single))
    masked = EdgeMaskedModel(model)
    change = masked(MASK, X, EDGES, single) - masked(torch.zeros_like(MASK), X, EDGES, single)
    torch.testing.assert_close(attributions.sum(), change[0, 1].detach(), rtol=1e-9, atol=1e-9)


def test_message_norm() -> None:
    class Normed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = SAGEConv(6, 6), MessageNorm(True)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.norm(x, self.conv(x, EDGES))

    model = Model(torch.relu, Normed())
    check_complete(randomize(model.double(), seed=1))


def test_a_size_scales_as_a_constant_does() -> None:
    """With the size of the recorded pass put in by hand, the layer before it has the same shares."""
    model = randomize(Model(lambda x: F.normalize(x).relu(), torch.relu).double(), seed=1)
    sizes: dict[bool, Tensor] = {}
    plain = copy.deepcopy(model)

    def frozen(x: Tensor) -> Tensor:
        at_zero = not bool((x - model.first(X, EDGES.new_empty(2, 0))).any())
        return (x / sizes[at_zero]).relu()

    with torch.no_grad():
        for at_zero, edges in ((False, EDGES), (True, EDGES.new_empty(2, 0))):
            sizes[at_zero] = model.first(X, edges).norm(dim=-1, keepdim=True)
    plain.between = frozen
    mask = torch.ones_like(MASK)
    expected = GOAtAttribution(plain).attribute(mask, [1, 2], (X, EDGES, BATCH))
    torch.testing.assert_close(GOAtAttribution(model).attribute(mask, [1, 2], (X, EDGES, BATCH)), expected)


WINNERS: dict[str, Callable[[Tensor], Tensor]] = {
    "max over channels": lambda x: x - x.max(dim=-1, keepdim=True)[0],
    "values of min": lambda x: x + x.min(dim=-1, keepdim=True).values,
    "amax": lambda x: x + torch.amax(x, 1, keepdim=True),
    "amin over two": lambda x: x + x.view(9, 2, 3).amin(dim=(1, 2)).view(9, 1),
    "maximum": lambda x: torch.maximum(x, x.flip(-1)),
    "maximum of a constant": lambda x: torch.maximum(x, torch.full_like(x, 0.2)),
    "ReLU by maximum": lambda x: torch.maximum(x, torch.zeros_like(x)),
    "fmin": lambda x: torch.fmin(x, x.roll(1, -1)),
    "max of two": lambda x: torch.max(x, 0.5 * x),
    "max of equals": lambda x: torch.stack([x, x]).max(dim=0)[0],
}


@pytest.mark.parametrize("name", WINNERS)
def test_winners(name: str) -> None:
    check_complete(randomize(Model(WINNERS[name]).double(), seed=1))


@pytest.mark.parametrize("reduce", ["amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("fill", [0.0, 0.3])
def test_scattered_winners(reduce: str, include_self: bool, fill: float) -> None:
    index = torch.tensor([0, 0, 2, 2, 2, 3, 3, 5, 5]).view(-1, 1).expand(-1, 6)

    def scattered(x: Tensor) -> Tensor:
        base = torch.full_like(x, fill)
        return base.scatter_reduce(0, index, x, reduce, include_self=include_self)

    def in_place(x: Tensor) -> Tensor:
        return torch.full_like(x, fill).scatter_reduce_(0, index, x, reduce=reduce, include_self=include_self)

    for body in (scattered, in_place):
        model = randomize(Model(torch.relu, body).double(), seed=1)
        attributions = GOAtAttribution(model).attribute(MASK, 1, (X, EDGES, torch.zeros_like(BATCH)))
        masked = EdgeMaskedModel(model)
        ends = [masked(mask, X, EDGES, torch.zeros_like(BATCH))[0, 1] for mask in (MASK, torch.zeros_like(MASK))]
        torch.testing.assert_close(attributions.sum(), (ends[0] - ends[1]).detach(), rtol=1e-9, atol=1e-9)


def test_equals_share_the_place_of_the_winner() -> None:
    """The maximum of a value and itself is the value: nothing may be counted twice or lost."""
    twice = randomize(Model(lambda x: torch.maximum(x, x.clone()).relu()).double(), seed=1)
    once = copy.deepcopy(twice)
    once.between = once.after = torch.relu
    torch.testing.assert_close(check_complete(twice), check_complete(once))


ATTENTION: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax over channels": lambda x: x * x.softmax(-1),
    "F.softmax": lambda x: x * F.softmax(x, dim=-1),
    "softmin": lambda x: x * F.softmin(x, dim=-1),
    "sparse softmax": lambda x: x * softmax(x.sum(-1, keepdim=True), BATCH),
    "attention from broken values": lambda x: x * F.softmax(x.exp().log1p(), dim=-1),
}


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_coefficients(name: str) -> None:
    check_complete(randomize(Model(torch.relu, ATTENTION[name]).double(), seed=1))
    check_complete(randomize(Model(ATTENTION[name], torch.relu).double(), seed=1))


class Transformer(nn.Module):
    """Attention of each node of a graph to all others."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True, **options)
        self.need_weights = False

    def forward(self, x: Tensor) -> Tensor:
        padded = torch.zeros(2, 5, 6, dtype=x.dtype)
        padded[0], padded[1, :4] = x[:5], x[5:]
        missing = torch.tensor([[False] * 5, [False] * 4 + [True]])
        out, _ = self.attention(padded, padded, padded, key_padding_mask=missing, need_weights=self.need_weights)
        return torch.cat([out[0], out[1, :4]])


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("options", [{}, {"bias": False}, {"kdim": 6, "vdim": 6}, {"add_bias_kv": True}], ids=str)
def test_multihead_attention(need_weights: bool, options: dict[str, Any]) -> None:
    for between, after in ((torch.relu, Transformer(**options)), (Transformer(**options), torch.relu)):
        model = Model(between, after)
        for each in (model.between, model.after):
            if isinstance(each, Transformer):
                each.need_weights = need_weights
        check_complete(randomize(model.double(), seed=1))


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.3}], ids=str)
def test_scaled_dot_product_attention_is_that_of_torch(options: dict[str, Any]) -> None:
    def attend(x: Tensor) -> Tensor:
        heads = x.view(1, 9, 2, 3).transpose(1, 2)
        return F.scaled_dot_product_attention(heads, heads, heads, **options).transpose(1, 2).reshape(9, 6)

    check_complete_alone(randomize(Model(attend).double(), seed=1))
    check_complete_alone(randomize(Model(torch.relu, attend).double(), seed=1))


def test_a_transformer_encoder_layer() -> None:
    layer = nn.TransformerEncoderLayer(6, 2, 8, batch_first=True, norm_first=True)

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x.unsqueeze(0)).squeeze(0)

    check_complete_alone(randomize(Model(torch.relu, Encoder()).double(), seed=1))


class GATs(nn.Module):
    """Attention without any ReLU: some products have coefficients of attention and no variable."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.convs = nn.ModuleList([GATConv(4, 6, **options), GATConv(6, 6, **options), GATConv(6, 3, **options)])

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        skip = self.convs[0].lin(x)
        for conv in self.convs[:2]:
            x = conv(x, edge_index)
        return global_max_pool(self.convs[2](x + skip, edge_index), batch)


def test_products_of_frozen_factors_alone() -> None:
    model = randomize(GATs().double(), seed=1)
    pattern = record(Subject(model, lambda _: model(X, EDGES, BATCH), (), (EDGES,), torch.ones_like(MASK)))
    assert pattern.rows is not None
    assert pattern.rows.frozen > 0
    check_complete(model)


class Snake(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.sin(x) ** 2


class SoftNorm(nn.Module):
    """A norm that only scales, by something for which there is no rule."""

    def forward(self, x: Tensor) -> Tensor:
        return x / (1 + x.square().sum(-1, keepdim=True)).log1p()


class Attention(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.exp() / x.exp().sum(-1, keepdim=True)


@pytest.fixture(autouse=True)
def forgets() -> Iterator[None]:
    yield
    rules.forget(Snake, SoftNorm, Attention, torch.sin)


@pytest.mark.parametrize(
    ("layer", "register"), [(Snake, rules.gate), (SoftNorm, rules.scale), (Attention, rules.freeze)]
)
def test_a_rule_for_a_module_of_the_users(layer: type[nn.Module], register: Callable[..., None]) -> None:
    model = Model(layer(), torch.relu)
    if layer is Attention:
        model = Model(torch.relu, lambda x: x * model.attention(x))
        model.attention = layer()
    model = randomize(model.double(), seed=1)
    with pytest.raises(UnsupportedModelError, match=rf"\({layer.__name__}\).*captum_goat.rules.gate"):
        GOAtAttribution(model).attribute(MASK, [1, 2], (X, EDGES, BATCH))
    register(layer)
    check_complete(model)


def test_a_rule_for_a_function_of_the_users() -> None:
    model = randomize(Model(lambda x: x + torch.sin(x) ** 2).double(), seed=1)
    rules.gate(torch.sin)
    check_complete(model)


def test_a_rule_in_the_users_own_words() -> None:
    calls = []

    @rules.rule(SoftNorm)
    def soft_norm(keep: rules.Keep, module: SoftNorm, x: Tensor) -> Tensor:
        calls.append(module)
        return x * keep(lambda: 1 / (1 + x.square().sum(-1, keepdim=True)).log1p())

    model = randomize(Model(SoftNorm(), torch.relu).double(), seed=1)
    found = check_complete(model)
    assert calls
    rules.scale(SoftNorm)
    torch.testing.assert_close(check_complete(model), found)


def test_a_rule_that_is_not_the_operation_is_found_out() -> None:
    @rules.rule(Snake)
    def wrong(keep: rules.Keep, module: Snake, x: Tensor) -> Tensor:
        return 2 * x

    model = randomize(Model(Snake(), torch.relu).double(), seed=1)
    with pytest.raises(UnsupportedModelError, match=r"rule for 'Snake' in 'between' \(Snake\)"):
        GOAtAttribution(model).attribute(MASK, [1, 2], (X, EDGES, BATCH))


class Mixing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + x[torch.arange(len(x)).flip(0)]


def test_a_gate_must_act_on_every_row_alone() -> None:
    model = randomize(Model(Mixing(), torch.relu).double(), seed=1)
    rules.gate(Mixing)
    try:
        with pytest.raises(ValueError, match=r"acts on every number alone \(got Mixing.forward, which mixes rows\)"):
            GOAtAttribution(model).attribute(MASK, [1, 2], (X, EDGES, BATCH))
    finally:
        rules.forget(Mixing)


CHOICES: list[Callable[[Tensor], Tensor]] = [lambda p: p[:, 1], lambda p: p.clone()[:, 1:2], lambda p: p.t()[1]]


@pytest.mark.parametrize("choose", CHOICES, ids=range(3))
def test_what_is_chosen_of_a_last_softmax_is_that_of_the_logits(choose: Callable[[Tensor], Tensor]) -> None:
    class Head(Model):
        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
            return choose(super().forward(x, edge_index, batch).softmax(-1))

    plain, model = (randomize(kind(torch.relu).double(), seed=1) for kind in (Model, Head))
    expected = GOAtAttribution(plain).attribute(MASK, [1, 1], (X, EDGES, BATCH))
    target = [0, 0] if choose(torch.ones(2, 3)).dim() == 2 else None
    torch.testing.assert_close(GOAtAttribution(model).attribute(MASK, target, (X, EDGES, BATCH)), expected)


def test_what_is_written_to_after_a_last_softmax_is_not_the_output() -> None:
    class Head(Model):
        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
            logits = super().forward(x, edge_index, batch)
            probabilities = logits.softmax(-1)
            logits.mul_(0)
            return probabilities

    plain, model = (randomize(kind(torch.relu).double(), seed=1) for kind in (Model, Head))
    expected = GOAtAttribution(plain).attribute(MASK, 1, (X, EDGES, BATCH))
    torch.testing.assert_close(GOAtAttribution(model).attribute(MASK, 1, (X, EDGES, BATCH)), expected)


def test_an_output_of_frozen_numbers_alone_is_refused() -> None:
    class Head(Model):
        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
            return 2 * super().forward(x, edge_index, batch).softmax(-1)

    with pytest.raises(UnsupportedModelError, match="frozen numbers alone"):
        GOAtAttribution(randomize(Head(torch.relu).double(), seed=1)).attribute(MASK, 1, (X, EDGES, BATCH))


def test_rules_are_for_classes_and_functions() -> None:
    with pytest.raises(TypeError, match="class of a module"):
        rules.gate(Snake())
    with pytest.raises(TypeError, match="function of torch or a class of modules"):
        rules.gate("sin")


def test_edge_conv_with_several_aggregations() -> None:
    mlp = nn.Sequential(nn.Linear(12, 6), nn.GELU(), nn.Linear(6, 6))

    class Convs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = EdgeConv(mlp, aggr="max")

        def forward(self, x: Tensor) -> Tensor:
            return self.conv(x, EDGES)

    check_complete(randomize(Model(torch.relu, Convs()).double(), seed=1))


def test_on_the_inputs_device_only() -> None:
    """Whatever is made on the default device would be on `meta`, and fail."""
    layers = [nn.GELU(), nn.LayerNorm(6), nn.Sigmoid(), Transformer(), nn.Hardtanh(), nn.GroupNorm(2, 6)]
    model = randomize(Model(nn.Sequential(*layers), lambda x: F.normalize(x).amax(-1, keepdim=True) * x).double(), 1)
    expected = GOAtAttribution(model).attribute(MASK, [1, 2], (X, EDGES, BATCH))
    layers[3].forward = _on_cpu(layers[3].forward)
    torch.set_default_device("meta")
    try:
        found = GOAtAttribution(model).attribute(MASK, torch.tensor([1, 2], device="cpu"), (X, EDGES, BATCH))
    finally:
        torch.set_default_device(None)
    torch.testing.assert_close(found, expected)


def _on_cpu(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def run(*args: Any) -> Tensor:
        with torch.device("cpu"):
            return function(*args)

    return run
