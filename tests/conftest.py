"""Graphs and models that the tests share."""

from __future__ import annotations

import gc
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.metadata import entry_points
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, GINConv, SAGEConv, global_add_pool, global_mean_pool

from captum_goat.fields.receptive_field import Elements, ReceptiveFields
from captum_goat.method.record import record
from captum_goat.method.replay import ActivationPattern, Subject

# Tensors of a few numbers are not worth a second thread, for which a busy machine lets them wait.
torch.set_num_threads(1)


def pytest_collection_finish() -> None:
    """Take what is imported by now out of garbage collection: hundreds of thousands of objects, traversed in vain."""
    gc.collect()
    gc.freeze()


def slow_unless(fast: Callable[[Any], bool], cases: Iterable[Any], exhaustive: Sequence[Any] = ()) -> list[Any]:
    """Return cases as parameters, marked ``slow`` if they are not ``fast``; a tuple stands for several parameters.

    Those that are neither fast nor worth their time otherwise are ``exhaustive``.
    """

    def marks(case: Any) -> tuple[pytest.MarkDecorator, ...]:
        return () if fast(case) else (pytest.mark.exhaustive if case in exhaustive else pytest.mark.slow,)

    return [pytest.param(*_flat(case), marks=marks(case)) for case in cases]


def _flat(case: Any) -> Iterator[Any]:
    if type(case) is tuple:  # a named one is a value
        for value in case:
            yield from _flat(value)
    else:
        yield case


def combinations(*axes: Sequence[Any]) -> list[Any]:
    """Return all combinations of values as parameters.

    A few that have every value once are fast; ``slow`` ones add every pair of values; all others are ``exhaustive``.
    """
    sizes = [len(axis) for axis in axes]
    fast = {tuple(number % size for size in sizes) for number in range(max(sizes))}
    cases = list(itertools.product(*map(range, sizes)))
    missing, chosen = {pair for case in cases for pair in _pairs(case)}, set[tuple[int, ...]]()
    while missing:
        chosen.add(case := max(cases, key=lambda case: (len(missing & _pairs(case)), case in fast)))
        missing -= _pairs(case)

    def marks(case: tuple[int, ...]) -> tuple[pytest.MarkDecorator, ...]:
        return () if case in fast else (pytest.mark.slow if case in chosen else pytest.mark.exhaustive,)

    named = ((case, tuple(axis[place] for axis, place in zip(axes, case, strict=True))) for case in cases)
    return [pytest.param(*_flat(values), marks=marks(case)) for case, values in named]


def _pairs(case: tuple[int, ...]) -> set[tuple[tuple[int, int], ...]]:
    return set(itertools.combinations(enumerate(case), 2))


def run_command(words: Sequence[str] | None = None) -> int:
    """Run the console script ``captum-goat`` in this process, and return its exit code."""
    (script,) = entry_points(group="console_scripts", name="captum-goat")
    code: int = script.load()(words)
    return code


def random_edges(nodes: int, edges: int, seed: int, *, first: int = 0) -> Tensor:
    """Return random directed edges, duplicates and self-loops among them."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, nodes, (2, edges), generator=generator) + first


def randomize(model: nn.Module, seed: int) -> nn.Module:
    """Give every parameter and statistic a random value, so that biases and batch norms matter; in eval mode."""
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if tensor.is_floating_point():
            value = torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype) * 0.7
            tensor.data.copy_(value.abs() + 0.5 if "running_var" in name else value)
    return model.eval()


def _conv(kind: str, before: int, after: int) -> nn.Module:
    if kind == "gcn":
        return GCNConv(before, after)
    if kind == "gcn_plain":
        return GCNConv(before, after, normalize=False)
    if kind == "gin":
        mlp = nn.Sequential(nn.Linear(before, after), nn.ReLU(), nn.Linear(after, after), nn.BatchNorm1d(after))
        return GINConv(mlp, train_eps=True)
    return SAGEConv(before, after, aggr=kind.removeprefix("sage_"))


KINDS = ("gcn", "gcn_plain", "gin", "sage_sum", "sage_mean")


class GNN(nn.Module):
    """Message passing layers, then one row per node or one per graph."""

    def __init__(self, kind: str, *, layers: int = 3, pool: str | None = "mean", channels: int = 8) -> None:
        super().__init__()
        self.convs = nn.ModuleList(_conv(kind, 4 if k == 0 else channels, channels) for k in range(layers))
        self.hidden, self.out, self.pool = nn.Linear(channels, channels), nn.Linear(channels, 3), pool

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        for conv in self.convs:
            x = F.relu(conv(x, edge_index))
        if self.pool is not None:
            x = (global_mean_pool if self.pool == "mean" else global_add_pool)(x, batch)
        return self.out(torch.relu(self.hidden(x)))


def make_gnn(kind: str = "gcn", *, seed: int = 5, dtype: torch.dtype = torch.float64, **options: object) -> GNN:
    """Return a model with random weights, in eval mode."""
    model = GNN(kind, **options).to(dtype)  # type: ignore[arg-type]
    randomize(model, seed)
    return model


@pytest.fixture(autouse=True)
def no_figures_left() -> Iterator[None]:
    """Close what a test has drawn: pyplot keeps figures for the tests that come after it."""
    yield
    if (pyplot := sys.modules.get("matplotlib.pyplot")) is not None:
        pyplot.close("all")


@pytest.fixture
def batch_of_graphs() -> tuple[Tensor, Tensor, Tensor]:
    """Four graphs: an ordinary one, one with isolated nodes, one without edges, one of a single looped node."""
    edges = [
        random_edges(6, 14, seed=1),
        torch.tensor([[0, 1, 1], [1, 0, 1]]) + 6,
        torch.empty(2, 0, dtype=torch.long),
        torch.tensor([[14], [14]]),
    ]
    batch = torch.tensor([0] * 6 + [1] * 5 + [2] * 3 + [3])
    x = torch.randn(15, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    return x, torch.cat(edges, dim=1), batch


def record_edges(model: nn.Module, x: Tensor, edge_index: Tensor, mask: Tensor, *others: Tensor) -> ActivationPattern:
    """Record a model with its edges as variables."""
    return record(Subject(model, lambda _: model(x, edge_index, *others), (), (edge_index,), mask))


def fields_of_edges(pattern: ActivationPattern, *, repeated: bool = False) -> ReceptiveFields:
    """Return the receptive fields of a pattern in which only edges are variables."""
    mask = pattern.subject.mask
    elements = Elements(mask.numel(), torch.ones_like(mask, dtype=torch.long))
    blocks = frozenset[int]().union(*(factor.rows.sources for factor in pattern.factors))
    return ReceptiveFields(pattern.graph, elements, wanted=blocks, repeated=repeated)
