"""Rules for rows: two ways to write the same model have the same attributions, and what is not known is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from conftest import random_edges, randomize
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, GraphConv, SGConv, global_add_pool
from torch_geometric.utils import remove_self_loops

from captum_goat import EdgeMaskedModel, GOAtAttribution, UnsupportedModelError

NODES, CHANNELS = 6, 4
EDGES = random_edges(NODES, 14, seed=3)
X = torch.randn(NODES, CHANNELS, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
MASK = torch.ones(14, dtype=torch.float64)
BATCH = torch.tensor([0, 0, 0, 1, 1, 1])
ORDER = torch.tensor([2, 0, 3, 1])
ROWS = torch.tensor([[True], [False], [True], [True], [False], [False]])
COLUMNS = torch.tensor([True, False, True, False])
WEIGHTS = torch.tensor([0.3, -0.7, 1.1, 0.4], dtype=torch.float64)

Body = Callable[[Tensor, Tensor, Tensor], Tensor]


class Model(nn.Module):
    """Two hidden states h1 (one hop) and h2 (two hops) that a body combines to [N, C] or [N]; then one more hop."""

    def __init__(self, body: Body) -> None:
        super().__init__()
        self.a, self.b, self.c = (GraphConv(CHANNELS, CHANNELS) for _ in range(3))
        self.out = nn.Linear(CHANNELS, 2)
        self.body = body

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        first = self.a(x, edge_index).relu()
        second = self.b(first, edge_index)
        combined = self.body(x, first - 0.1, second)
        if combined.dim() == 1:
            combined = combined.unsqueeze(-1).expand(-1, CHANNELS)
        return self.out(self.c(combined, edge_index).relu()).mean(dim=0, keepdim=True)


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


def test_values_that_leave_the_graph_of_gradients_are_refused() -> None:
    for body, operation in (
        (lambda x, f, s: s.detach().relu(), "detach"),
        (lambda x, f, s: s.long().double(), "_to_copy"),
    ):
        model = randomize(Model(body).double(), seed=8)
        with pytest.raises(UnsupportedModelError, match=operation):
            GOAtAttribution(model).attribute(MASK, 1, (X, EDGES))


def test_models_that_take_other_steps_the_next_time_are_refused() -> None:
    kept: list[Tensor] = []

    def remembering(x: Tensor, first: Tensor, second: Tensor) -> Tensor:
        kept[:] = kept or [second.relu()]
        return kept[0]

    model = randomize(Model(remembering).double(), seed=8)
    with pytest.raises(UnsupportedModelError, match="fewer"):
        GOAtAttribution(model).attribute(MASK, 1, (X, EDGES))


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


def test_what_a_layer_has_cached_is_refused() -> None:
    conv = SGConv(CHANNELS, 2, cached=True).double().eval()
    conv(X, EDGES)
    conv.cached = False
    with pytest.raises(UnsupportedModelError, match="`_cached_x` to None"):
        GOAtAttribution(conv).attribute(MASK, (0, 1), (X, EDGES))


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


def test_models_that_change_their_arguments_are_refused() -> None:
    class Shifting(Model):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            x += 1.0
            return super().forward(x, edge_index)

    model = randomize(Shifting(lambda x, f, s: s).double(), seed=8)
    with pytest.raises(UnsupportedModelError, match="argument 'x' in place"):
        GOAtAttribution(model).attribute(MASK, 1, (X.clone(), EDGES))


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
