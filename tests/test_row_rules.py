"""Rules for rows: two ways to write the same model have the same attributions."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from conftest import randomize
from row_rule_models import CHANNELS, EDGES, MASK, NODES, Body, Model, X
from torch import Tensor
from torch_geometric.nn import global_add_pool

from captum_goat import GOAtAttribution

BATCH = torch.tensor([0, 0, 0, 1, 1, 1])
ORDER = torch.tensor([2, 0, 3, 1])
ROWS = torch.tensor([[True], [False], [True], [True], [False], [False]])
COLUMNS = torch.tensor([True, False, True, False])
WEIGHTS = torch.tensor([0.3, -0.7, 1.1, 0.4], dtype=torch.float64)


def put_columns(_: Tensor, first: Tensor, second: Tensor) -> Tensor:
    out = first.new_zeros(NODES, CHANNELS)
    out[:, ORDER] = second
    return out.relu()


def moved_columns(second: Tensor) -> Tensor:
    return second[:, ORDER.argsort()].relu()


def written(base: Tensor, part: tuple[slice | int, ...], values: Tensor) -> Tensor:
    base[part] = values[part]
    return base


PAIRS: dict[str, tuple[Body, Body]] = {
    "index_put of columns": (put_columns, lambda x, f, s: moved_columns(s)),
    "index_add of columns": (
        lambda x, f, s: f.new_zeros(NODES, CHANNELS).index_add(1, ORDER, s).relu(),
        lambda x, f, s: moved_columns(s),
    ),
    "shapes changed in place": (
        lambda x, f, s: (s * 1).unsqueeze_(1).relu().squeeze_(1).t_().transpose_(0, 1),
        lambda x, f, s: s.relu(),
    ),
    "ReLU of a concatenation with constants": (
        lambda x, f, s: torch.cat([x[:, :2], s[:, :2]], dim=-1).relu(),
        lambda x, f, s: torch.cat([x[:, :2].relu(), s[:, :2].relu()], dim=-1),
    ),
    "ReLU of a concatenation of depths": (
        lambda x, f, s: torch.cat([f[:, :2], s[:, :2]], dim=-1).relu(),
        lambda x, f, s: torch.cat([f[:, :2].relu(), s[:, :2].relu()], dim=-1),
    ),
    "where between rows": (
        lambda x, f, s: torch.where(ROWS, s, x).relu(),
        lambda x, f, s: torch.where(ROWS, s.relu(), x.relu()),
    ),
    "where between depths": (
        lambda x, f, s: torch.where(COLUMNS, s, f).relu(),
        lambda x, f, s: torch.where(COLUMNS, s.relu(), f.relu()),
    ),
    "masked_fill": (
        lambda x, f, s: s.masked_fill(~ROWS, 0.5).relu(),
        lambda x, f, s: torch.where(ROWS, s.relu(), torch.tensor(0.5, dtype=s.dtype)),
    ),
    "padding of channels": (
        lambda x, f, s: F.pad(s[:, 1:3], (1, 1), value=0.5).relu(),
        lambda x, f, s: torch.cat([x.new_full((NODES, 1), 0.5), s[:, 1:3].relu(), x.new_full((NODES, 1), 0.5)], -1),
    ),
    "sum of a stack": (lambda x, f, s: torch.stack([f, s]).sum(0).relu(), lambda x, f, s: (f + s).relu()),
    "einsum over layers": (
        lambda x, f, s: torch.einsum("lnc,l->nc", torch.stack([f, s]), WEIGHTS[:2]).relu(),
        lambda x, f, s: (WEIGHTS[0] * f + WEIGHTS[1] * s).relu(),
    ),
    "matrix times vector": (lambda x, f, s: (s @ WEIGHTS).relu(), lambda x, f, s: (s * WEIGHTS).sum(-1).relu()),
    "batched product": (
        lambda x, f, s: torch.bmm(s.unsqueeze(1), WEIGHTS.view(1, CHANNELS, 1).expand(NODES, -1, -1)).view(-1).relu(),
        lambda x, f, s: (s * WEIGHTS).sum(-1).relu(),
    ),
    "gather of channels": (
        lambda x, f, s: s.gather(1, torch.full((NODES, 1), 0)).squeeze(1).relu(),
        lambda x, f, s: s[:, 0].relu(),
    ),
    "dense pooling matrix": (
        lambda x, f, s: (F.one_hot(BATCH).to(s.dtype).t() @ s)[BATCH].relu(),
        lambda x, f, s: global_add_pool(s, BATCH)[BATCH].relu(),
    ),
    "addcmul and lerp": (
        lambda x, f, s: torch.addcmul(f, s, WEIGHTS).lerp(f, 0.25).relu(),
        lambda x, f, s: (f + 0.75 * s * WEIGHTS).relu(),
    ),
    "roll of channels": (
        lambda x, f, s: s.roll(1, dims=1).relu(),
        lambda x, f, s: torch.cat([s[:, -1:], s[:, :-1]], dim=1).relu(),
    ),
    "a write into a view of a view": (
        lambda x, f, s: written(x.new_zeros(NODES * CHANNELS).view(NODES, CHANNELS), (slice(None), slice(2)), s).relu(),
        lambda x, f, s: torch.cat([s[:, :2].relu(), torch.zeros_like(s[:, 2:])], dim=-1),
    ),
    "a write behind a view": (
        lambda x, f, s: (s.t(), written(s, (0,), f))[0].t().relu(),
        lambda x, f, s: torch.cat([f[:1], s[1:]]).relu(),
    ),
    "slices with steps": (
        lambda x, f, s: written(written(torch.empty_like(s), (slice(0, None, 2),), s), (slice(1, None, 2),), f).relu(),
        lambda x, f, s: torch.where((torch.arange(NODES) % 2 == 0).view(-1, 1), s, f).relu(),
    ),
    "ReLU of a part in place": (
        lambda x, f, s: (s, s[:, :2].relu_())[0],
        lambda x, f, s: torch.cat([s[:, :2].relu(), s[:, 2:]], dim=-1),
    ),
    "index_copy": (
        lambda x, f, s: s.index_copy(0, torch.tensor([2, 0]), f[:2]).relu(),
        lambda x, f, s: torch.cat([f[1:2], s[1:2], f[:1], s[3:]]).relu(),
    ),
    "threshold in place": (lambda x, f, s: F.threshold(s, 0, 0, inplace=True), lambda x, f, s: s.relu()),
}


@pytest.mark.parametrize("field", ["distinct", "repeated"])
@pytest.mark.parametrize("name", PAIRS)
def test_the_same_model_written_in_two_ways(name: str, field: str) -> None:
    one, other = (randomize(Model(body).double(), seed=8) for body in PAIRS[name])
    torch.testing.assert_close(one(X, EDGES), other(X, EDGES))
    results = [GOAtAttribution(model, field=field).attribute(MASK, 1, (X, EDGES)) for model in (one, other)]
    torch.testing.assert_close(*results, rtol=1e-11, atol=1e-12)
    assert results[0].any(), "the network is dead, so the test says nothing"
