"""Edge attributes and message passing steps: the package against the literal expansion."""

from __future__ import annotations

import itertools

import pytest
import torch
from oracle_edges import attributed, by_step, run_attributed, run_stepped
from test_oracle import FAST_NAMES, draw_case
from torch import Tensor, nn
from torch_geometric.nn import GINEConv, global_add_pool

from captum_goat import GOAtAttribution

KINDS = ("node", "edge", "edge_attr")
CHOICES = [set(chosen) for n in (1, 2, 3) for chosen in itertools.combinations(KINDS, n) if "edge_attr" in chosen]


class Net(nn.Module):
    """Two GINE layers on edges with attributes, for nodes or for the graph."""

    def __init__(self, pooled: bool) -> None:
        super().__init__()
        layers = [GINEConv(nn.Sequential(nn.Linear(2, 2)), eps=0.3, edge_dim=2) for _ in range(2)]
        self.stages = [layers[0], torch.relu, layers[1], torch.relu, *[global_add_pool] * pooled, nn.Linear(2, 2)]
        self.modules_of_stages = nn.ModuleList(stage for stage in self.stages if isinstance(stage, nn.Module))

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        for stage in self.stages:
            if isinstance(stage, GINEConv):
                x = stage(x, edge_index, edge_attr)
            else:
                x = stage(x, None) if stage is global_add_pool else stage(x)
        return x


@pytest.mark.parametrize("kinds", CHOICES, ids=lambda kinds: "_".join(sorted(kinds)))
@pytest.mark.parametrize("pooled", [False, True], ids=["nodes", "pooled"])
def test_edge_attributes_agree_with_the_oracle(kinds: set[str], pooled: bool) -> None:
    largest = 0.0
    for seed in range(8):
        random = torch.Generator().manual_seed(seed)
        model = Net(pooled).double().eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=random))
        edge_index = torch.randint(0, 4, (2, 5), generator=random)  # node 4 has no edges
        x, edge_attr = (torch.randn(n, 2, generator=random, dtype=torch.double).round(decimals=1) for n in (5, 5))
        x[0, 0] = edge_attr[1, 0] = 0.0
        networks = [run_attributed(model.stages, x, edge_index, edge_attr, kinds, factor) for factor in (1.0, 0.0)]
        expected = attributed(*networks, (0, 1))
        given = {"node": x, "edge": torch.ones(5, dtype=torch.double), "edge_attr": edge_attr}
        inputs = tuple(given[kind] for kind in KINDS if kind in kinds)
        arguments = (edge_index,) if "node" in kinds else (x, edge_index)
        goat = GOAtAttribution(model, mask_type=kinds)
        found = goat.attribute(inputs, 1 if pooled else (0, 1), arguments)
        largest = max([largest, *map(abs, expected.values())])
        for kind, scores in zip([kind for kind in KINDS if kind in kinds], found, strict=True):
            name = {"node": "feature", "edge": "edge", "edge_attr": "attribute"}[kind]
            places = itertools.product(*map(range, scores.shape))
            wanted = torch.tensor([expected[(name, *place)] for place in places], dtype=torch.double)
            torch.testing.assert_close(scores.flatten(), wanted, rtol=1e-10, atol=1e-10)
    assert largest > 0.1


@pytest.mark.parametrize("number", range(len(FAST_NAMES)))
def test_steps_agree_with_the_oracle(number: int) -> None:
    case = draw_case(*FAST_NAMES[number])
    for mask in case.masks:
        networks = [run_stepped(case.model.stages, case.x, case.edge_index, m) for m in (mask, torch.zeros_like(mask))]
        expected = by_step(*networks, case.target)
        goat, arguments = GOAtAttribution(case.model), (case.x, case.edge_index)
        found = goat.attribute_layers(mask, case.package_target, arguments)
        assert found.size(0) == networks[0].depth > 1
        wanted = [[expected[step, edge] for edge in range(found.size(1))] for step in range(found.size(0))]
        torch.testing.assert_close(found, torch.tensor(wanted, dtype=torch.double), rtol=1e-10, atol=1e-10)
        whole = goat.attribute(mask, case.package_target, arguments)
        torch.testing.assert_close(found.sum(dim=0), whole, rtol=1e-10, atol=1e-10)
