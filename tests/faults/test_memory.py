"""Nothing of the user's is kept alive, and nothing grows."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from weakref import ref

import pytest
import torch
from fault_subjects import MASK, SUBJECTS, Model, graph, subject
from torch import Tensor

from captum_goat import EdgeMaskedModel, GOAtAttribution

_STATUS = Path("/proc/self/statm")


def live_tensors() -> int:
    gc.collect()
    return sum(issubclass(type(value), Tensor) for value in gc.get_objects())


def resident_bytes() -> int:
    return int(_STATUS.read_text().split()[1]) * 4096 if _STATUS.exists() else 0


def explain(number: int, model: Model, goat: GOAtAttribution) -> None:
    """Explain a graph that no other call has, of one of many sizes."""
    generator = torch.Generator().manual_seed(number)
    nodes, edges = 5 + number % 13, 6 + number % 29
    x = torch.randn(nodes, 3, generator=generator, dtype=torch.double)
    edge_index = torch.randint(0, nodes, (2, edges), generator=generator)
    mask = torch.ones(edges, dtype=torch.double)
    for _ in range(1 + number % 2):
        goat.attribute(mask, 1, (x, edge_index))
    EdgeMaskedModel(model)(mask, x, edge_index)


def check_growth(calls: int) -> None:
    """Explain many graphs; what the first tenth has filled is not counted."""
    model = Model(pools=True).double().eval()
    goat = GOAtAttribution(model)
    for number in range(calls // 10):
        explain(number, model, goat)
    explain(-1, model, goat)
    tensors, size = live_tensors(), resident_bytes()
    for number in range(calls // 10, calls):
        explain(number, model, goat)
    explain(-1, model, goat)
    assert live_tensors() == tensors
    assert resident_bytes() - size < 2**24


@pytest.mark.slow
def test_nothing_grows() -> None:
    check_growth(40)


@pytest.mark.exhaustive
def test_nothing_grows_in_many_calls() -> None:
    check_growth(2000)


def _arguments() -> list[Tensor]:
    data = graph(3)
    return [data.x, data.edge_index, torch.zeros(6, dtype=torch.long), MASK.clone()]


@pytest.mark.parametrize("gradients", [False, True])
def test_an_explainer_keeps_no_argument(gradients: bool) -> None:
    model = Model(pools=True).double().eval()
    goat, masked = GOAtAttribution(model), EdgeMaskedModel(model)
    calls: list[Callable[..., Tensor]] = [
        lambda x, edge_index, batch, mask: goat.attribute(mask, 1, (x, edge_index, batch)),
        lambda x, edge_index, batch, mask: masked(mask, x, edge_index, batch),
    ]
    for call in calls * 2:
        arguments = _arguments()
        arguments[3].requires_grad_(gradients)
        kept = [ref(argument) for argument in arguments]
        call(*arguments)
        del arguments
        assert [reference() for reference in kept] == [None] * 4


def test_an_explainer_keeps_no_weights() -> None:
    model = Model(pools=True).double().eval()
    goat = GOAtAttribution(model)
    goat.attribute(MASK, 1, (graph(0).x, graph(0).edge_index))
    kept = [ref(parameter) for parameter in model.out.parameters()]
    model.out = torch.nn.Linear(5, 2).double()
    assert [reference() for reference in kept] == [None, None]


@pytest.mark.parametrize("name", [name for name in SUBJECTS if "adjacency" not in name])
def test_calls_leave_no_tensors(name: str) -> None:
    run = subject(name).run
    for _ in range(3):  # the first records a program, the second a graph, the third its rows
        run()
    before = live_tensors()
    for _ in range(2):
        run()
    assert live_tensors() == before
