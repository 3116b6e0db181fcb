"""Rules for norms, torch's, PyG's and by hand: they scale by the size of the recorded pass."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from conftest import combinations, randomize
from rule_models import BATCH, EDGES, MASK, Model, X, check_complete, check_complete_alone
from torch import Tensor, nn
from torch_geometric.nn import (
    GraphNorm,
    GraphSizeNorm,
    InstanceNorm,
    LayerNorm,
    MeanSubtractionNorm,
    MessageNorm,
    PairNorm,
    SAGEConv,
)

from captum_goat import GOAtAttribution

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


@pytest.mark.parametrize(("name", "place"), combinations(list(NORMS), ["before ReLU", "after ReLU", "without ReLU"]))
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
    plain = copy.deepcopy(model).eval()  # PyG 2.6 forgets the mode of its Linear

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
