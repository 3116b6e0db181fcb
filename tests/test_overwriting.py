"""Replays write to results that nothing else reads, and to no others."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GINConv, SAGEConv

from captum_goat import GOAtAttribution


def residual(x: Tensor) -> Tensor:
    return x.relu() + x


def added_to(x: Tensor) -> Tensor:
    """The first sum may be written to its argument, the second may not."""
    return ((x - 1.0) + x).relu() + (x + 1.0) + x


def through_dropout(x: Tensor) -> Tensor:
    """Dropout returns its argument itself."""
    return F.dropout(x, training=False).relu() + x


def multiplied_before(x: Tensor) -> Tensor:
    """Autograd keeps x for the product."""
    product = x * x
    return product + x.relu()


def through_view(x: Tensor) -> Tensor:
    return x.view(-1, 2, 3).relu().flatten(1) + x


BODIES: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "residual": residual,
    "added to": added_to,
    "through dropout": through_dropout,
    "multiplied before": multiplied_before,
    "through a view": through_view,
}


class Net(nn.Module):
    def __init__(self, body: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.body = SAGEConv(3, 6), body
        self.second = GINConv(nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2)))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.body(self.first(x, edge_index)), edge_index)


@pytest.mark.parametrize("body", list(BODIES))
def test_replays_overwrite_nothing_that_is_read_again(body: str, caplog: pytest.LogCaptureFixture) -> None:
    """A small graph is replayed at all points at once, many copies of it at one point after the other."""
    torch.manual_seed(3)
    x, edge_index = torch.randn(7, 3, dtype=torch.double), torch.randint(7, (2, 16))
    model, mask, copies = Net(BODIES[body]).double().eval(), torch.rand(16, dtype=torch.double), 200
    mask[3] = 0.0
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    expected, delta = GOAtAttribution(model).attribute(mask, (2, 1), (x, edge_index), return_convergence_delta=True)
    assert delta.abs().max() < 1e-12
    shifts = 7 * torch.arange(copies).repeat_interleave(16)
    side_by_side = x.repeat(copies, 1), edge_index.repeat(1, copies) + shifts
    goat = GOAtAttribution(model)
    caplog.set_level("DEBUG", "captum_goat")
    for copy in (0, 1):
        attributions = goat.attribute(mask.repeat(copies), (7 * copy + 2, 1), side_by_side).view(copies, 16)
        torch.testing.assert_close(attributions[copy], expected, rtol=1e-9, atol=1e-12)
        assert attributions.count_nonzero() == attributions[copy].count_nonzero()
    assert "did not serve" not in caplog.text  # else the model has run in place of the tape
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
