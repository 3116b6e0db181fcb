"""One explainer for many graphs, by the program of its model, against a fresh explainer for each of them."""

from __future__ import annotations

import logging
import random
from typing import Any

import pytest
import torch
from torch import Tensor

from captum_goat import GOAtAttribution, UnsupportedModelError

from .case import Case, shapes
from .draw import draw_case
from .program import build_model

TOLERANCE = 1e-12


def random_graph(rng: random.Random, case: Case) -> tuple[Tensor, tuple[Any, ...], Any]:
    """Return a mask, the arguments and a target for the model of a case: other sizes, loops, duplicates, no edges."""
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    num_graphs = 1 if case.batch is None else rng.randint(1, 3)
    sizes = [rng.randint(1, 7) for _ in range(num_graphs)]
    edges, first = [], 0
    for size in sizes:
        edges += [(first + rng.randrange(size), first + rng.randrange(size)) for _ in range(rng.choice((0, 3, 6, 12)))]
        first += size
    edge_index = torch.tensor(edges, dtype=torch.long).view(-1, 2).t().contiguous()
    x = torch.randn(first, len(case.x[0]), generator=generator, dtype=torch.float64)
    batch = [] if case.batch is None else [torch.arange(num_graphs).repeat_interleave(torch.tensor(sizes))]
    mask = 0.5 + torch.rand(len(edges), generator=generator, dtype=torch.float64)
    level, width = shapes(case)[-1]
    target: Any = [rng.randrange(width) for _ in sizes] if level == "graph" else (rng.randrange(first), 0)
    return mask, (x, edge_index, *batch), target if len(sizes) > 1 or level == "node" else target[0]


def result(goat: GOAtAttribution, *arguments: Any) -> Tensor | type:
    try:
        attributions: Tensor = goat.attribute(*arguments)
    except (UnsupportedModelError, ValueError) as error:
        return type(error)
    return attributions


def compare_pairs(number: int, graphs: int) -> None:
    case, rng = draw_case(11, number), random.Random(number)
    model = build_model(case)
    goat = GOAtAttribution(model, field=case.field)  # type: ignore[arg-type]
    for _ in range(graphs):
        mask, arguments, target = random_graph(rng, case)
        actual = result(goat, mask, target, arguments)
        expected = result(GOAtAttribution(model, field=case.field), mask, target, arguments)  # type: ignore[arg-type]
        if isinstance(actual, type) or isinstance(expected, type):
            assert actual == expected, f"case {number}"
            continue
        scale = 1 + float(expected.abs().sum())
        assert actual.numel() == 0 or float((actual - expected).abs().max()) <= TOLERANCE * scale, f"case {number}"


@pytest.mark.slow
def test_other_graphs_by_programs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="captum_goat.method")
    for number in range(30):
        compare_pairs(number, graphs=4)
    lines = [record.getMessage() for record in caplog.records]
    assert sum("was followed" in line for line in lines) > 10  # many models have other rules than ReLU's


@pytest.mark.exhaustive
@pytest.mark.parametrize("first", range(30, 530, 50))
def test_many_other_graphs_by_programs(first: int) -> None:
    for number in range(first, first + 50):
        compare_pairs(number, graphs=5)
