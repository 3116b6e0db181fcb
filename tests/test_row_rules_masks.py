"""Rules for rows: masks of other dtypes, several masks at once, and masks of no edges."""

from __future__ import annotations

import torch
from conftest import randomize
from row_rule_models import CHANNELS, EDGES, MASK, NODES, Body, Model, X
from torch import Tensor, nn

from captum_goat import EdgeMaskedModel, GOAtAttribution


def test_coarse_masks_do_not_make_coarse_sums() -> None:
    model = randomize(Model(lambda x, f, s: s.relu()).double(), seed=8)
    fine = GOAtAttribution(model).attribute(MASK, 1, (X, EDGES))
    for dtype in (torch.float32, torch.bfloat16):
        coarse, delta = GOAtAttribution(model).attribute(MASK.to(dtype), 1, (X, EDGES), return_convergence_delta=True)
        assert coarse.dtype == dtype
        assert float(delta.abs()) < 1e-12
        torch.testing.assert_close(coarse, fine.to(dtype))
    whole = GOAtAttribution(model).attribute(MASK, 1, (X, EDGES.int()))
    torch.testing.assert_close(whole, fine)


def test_copies_that_do_not_fit_are_explained_one_by_one() -> None:
    class Embedded(Model):
        def __init__(self, body: Body) -> None:
            super().__init__(body)
            self.nodes = nn.Parameter(torch.zeros(NODES, CHANNELS))

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return super().forward(x + self.nodes, edge_index)

    model = randomize(Embedded(lambda x, f, s: s.relu()).double(), seed=8)
    masks = torch.rand(3, 14, dtype=torch.float64)
    for target in (1, [1], [0, 1, 1]):
        together = GOAtAttribution(model).attribute(masks, target, (X, EDGES))
        last = target[-1] if isinstance(target, list) else target
        torch.testing.assert_close(together[2], GOAtAttribution(model).attribute(masks[2], last, (X, EDGES)))
    single = torch.stack([EdgeMaskedModel(model)(mask, X, EDGES)[0] for mask in masks])
    torch.testing.assert_close(EdgeMaskedModel(model)(masks, X, EDGES), single)


def test_no_edges_and_several_masks() -> None:
    model = randomize(Model(lambda x, f, s: s.relu()).double(), seed=8)
    found, delta = GOAtAttribution(model).attribute(
        torch.ones(3, 0, dtype=torch.float64), 1, (X, EDGES[:, :0]), return_convergence_delta=True
    )
    assert found.shape == (3, 0)
    assert torch.equal(delta, torch.zeros(3, dtype=torch.float64))
