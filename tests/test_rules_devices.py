"""Rules make nothing on another device than that of their inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from conftest import randomize
from rule_models import BATCH, EDGES, MASK, Model, Transformer, X
from torch import Tensor, nn

from captum_goat import GOAtAttribution


def test_on_the_inputs_device_only() -> None:
    """Whatever is made on the default device would be on `meta`, and fail."""
    layers = [nn.GELU(), nn.LayerNorm(6), nn.Sigmoid(), Transformer(), nn.Hardtanh(), nn.GroupNorm(2, 6)]
    model = randomize(Model(nn.Sequential(*layers), lambda x: F.normalize(x).amax(-1, keepdim=True) * x).double(), 1)
    expected = GOAtAttribution(model).attribute(MASK, [1, 2], (X, EDGES, BATCH))
    layers[3].forward = _on_cpu(layers[3].forward)
    torch.set_default_device("meta")
    try:
        attributions = GOAtAttribution(model).attribute(MASK, torch.tensor([1, 2], device="cpu"), (X, EDGES, BATCH))
    finally:
        torch.set_default_device(None)
    torch.testing.assert_close(attributions, expected)


def _on_cpu(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def run(*args: Any) -> Tensor:
        with torch.device("cpu"):
            return function(*args)

    return run
