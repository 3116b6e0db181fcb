"""Rules for activations, in every spelling, and where their input vanishes."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from conftest import randomize, record_edges
from rule_models import BATCH, EDGES, MASK, Model, X, check_complete
from torch import Tensor, nn

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


@pytest.mark.slow
def test_every_spelling_is_the_same() -> None:
    for spellings in (
        (nn.LeakyReLU(0.2), lambda x: F.leaky_relu(x, 0.2), lambda x: F.leaky_relu(x, 0.2, True)),
        (nn.Tanh(), torch.tanh, F.tanh, Tensor.tanh, lambda x: x.tanh_()),
        (nn.Sigmoid(), torch.sigmoid, torch.special.expit, Tensor.sigmoid),
        (nn.ReLU6(), lambda x: x.clamp(0, 6), lambda x: F.hardtanh(x, 0.0, 6.0)),
    ):
        attributions = [check_complete(randomize(Model(spelling).double(), seed=1)) for spelling in spellings]
        for other in attributions[1:]:
            torch.testing.assert_close(other, attributions[0], rtol=0, atol=1e-13)


def test_a_smooth_gate_where_its_input_vanishes() -> None:
    """Without biases and features the input of a sigmoid is exactly 0, and its slope stands in for the ratio."""
    model = Model(torch.sigmoid).double().eval()
    for parameter in (model.first.lin_rel.bias, model.second.lin_rel.bias):
        parameter.data.zero_()
    check_complete(model, X * (BATCH == 0).view(-1, 1), EDGES, BATCH)
    pattern = record_edges(model.first, torch.zeros_like(X), EDGES, MASK)
    assert not pattern.output.any()
