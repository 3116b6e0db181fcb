"""Rules for rows: models that keep something, remove loops, have hooks or end with a sigmoid."""

from __future__ import annotations

from collections.abc import Callable

import torch
from conftest import randomize
from row_rule_models import CHANNELS, EDGES, MASK, Body, Model, X
from torch import Tensor, nn
from torch_geometric.nn import GCNConv
from torch_geometric.utils import remove_self_loops

from captum_goat import EdgeMaskedModel, GOAtAttribution


def test_what_a_model_keeps_of_a_call_is_neither_used_nor_left() -> None:
    class Remembering(Model):
        def __init__(self, *, keeps: bool) -> None:
            super().__init__(lambda x, f, s: s)
            self.keeps, self.kept = keeps, None
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            self.calls += 1
            kept = self.a(x, edge_index).relu() if self.kept is None else self.kept
            self.kept = kept if self.keeps else None
            return self.out(self.b(kept, edge_index)).mean(dim=0, keepdim=True)

    model, plain = (randomize(Remembering(keeps=keeps).double(), seed=8) for keeps in (True, False))
    calls = model.calls.clone()
    expected = GOAtAttribution(plain).attribute(MASK, 1, (X, EDGES))
    torch.testing.assert_close(GOAtAttribution(model).attribute(MASK, 1, (X, EDGES)), expected)
    EdgeMaskedModel(model)(MASK, X, EDGES)
    assert model.kept is None
    assert torch.equal(model.calls, calls)


def test_loops_that_the_model_removes_are_no_edges_of_its_layers() -> None:
    class WithoutLoops(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = GCNConv(CHANNELS, 2)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.conv(x, remove_self_loops(edge_index)[0])

    edge_index = torch.tensor([[0, 1, 1, 2], [1, 1, 2, 2]])
    model = WithoutLoops().double().eval()
    found = GOAtAttribution(model).attribute(MASK[:4], (2, 1), (X, edge_index))
    assert torch.equal(found != 0, torch.tensor([False, False, True, False]))
    mask = torch.tensor([1.0, 0.0, 1.0, 0.0], dtype=torch.float64)
    torch.testing.assert_close(EdgeMaskedModel(model)(mask, X, edge_index), model(X, edge_index))


def test_the_users_hooks_on_relu_take_effect() -> None:
    class Halved(Model):
        def __init__(self, body: Body) -> None:
            super().__init__(body)
            self.relu = nn.ReLU()

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.out(self.relu(input=self.a(x, edge_index))).mean(dim=0, keepdim=True)

    model = randomize(Halved(lambda x, f, s: s).double(), seed=8)
    full = GOAtAttribution(model).attribute(MASK, 1, (X, EDGES))
    model.relu.register_forward_hook(lambda module, args, out: 0.5 * out)
    torch.testing.assert_close(GOAtAttribution(model).attribute(MASK, 1, (X, EDGES)), 0.5 * full)


def test_a_sigmoid_before_a_change_of_shape_is_left_out_too() -> None:
    class Binary(Model):
        def __init__(self, end: Callable[[Tensor], Tensor]) -> None:
            super().__init__(lambda x, f, s: s.relu())
            self.end = end

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.end(super().forward(x, edge_index)[:, :1])

    logits = randomize(Binary(lambda out: out.squeeze(-1)).double(), seed=8)
    expected = GOAtAttribution(logits).attribute(MASK, None, (X, EDGES))
    for end in (lambda out: out.sigmoid().squeeze(-1), lambda out: torch.sigmoid(out).view(-1)):
        model = randomize(Binary(end).double(), seed=8)
        torch.testing.assert_close(GOAtAttribution(model).attribute(MASK, None, (X, EDGES)), expected)
    turned = randomize(Binary(lambda out: 1 - out.sigmoid().squeeze(-1)).double(), seed=8)
    _, delta = GOAtAttribution(turned).attribute(MASK, None, (X, EDGES), return_convergence_delta=True)
    assert float(delta.abs().max()) < 1e-12, "not the last step, so a gate"
