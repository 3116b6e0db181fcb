"""The user's own rules, for modules and functions, and which of them are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from conftest import randomize
from rule_models import BATCH, EDGES, MASK, Model, X, check_complete
from torch import Tensor, nn

from captum_goat import GOAtAttribution, UnsupportedModelError, rules


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
)  # without a rule, the latter two are factors of others
def test_a_rule_for_a_module_of_the_users(layer: type[nn.Module], register: Callable[..., None]) -> None:
    model = Model(layer(), torch.relu)
    if layer is Attention:
        model = Model(torch.relu, lambda x: x * model.attention(x))
        model.attention = layer()
    model = randomize(model.double(), seed=1)
    if layer is Snake:
        with pytest.raises(UnsupportedModelError, match=r"\(Snake\).*captum_goat.rules.gate"):
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
    attributions = check_complete(model)
    assert calls
    rules.scale(SoftNorm)
    torch.testing.assert_close(check_complete(model), attributions)


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


def test_rules_are_for_classes_and_functions() -> None:
    with pytest.raises(TypeError, match="class of a module"):
        rules.gate(Snake())
    with pytest.raises(TypeError, match="function of torch or a class of modules"):
        rules.gate("sin")
