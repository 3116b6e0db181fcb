"""One explainer for many graphs, by the program of its model, against a fresh explainer for each of them."""

from __future__ import annotations

import logging
import random
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from captum_goat import GOAtAttribution, UnsupportedModelError
from captum_goat.models import GraphClassifier

from .case import Case, Op, shapes
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
    case = draw_case(11, number)
    compare(build_model(case), case, number, graphs)


def compare(model: nn.Module, case: Case, number: int, graphs: int) -> None:
    """Explain random graphs, of the kind of a case, by one explainer and by a fresh one each."""
    rng, field = random.Random(number), case.field
    goat = GOAtAttribution(model, field=field)  # type: ignore[arg-type]
    for _ in range(graphs):
        mask, arguments, target = random_graph(rng, case)
        actual = result(goat, mask, target, arguments)
        expected = result(GOAtAttribution(model, field=field), mask, target, arguments)  # type: ignore[arg-type]
        if isinstance(actual, type) or isinstance(expected, type):
            assert actual == expected, f"case {number}"
            continue
        scale = 1 + float(expected.abs().sum())
        assert actual.numel() == 0 or float((actual - expected).abs().max()) <= TOLERANCE * scale, f"case {number}"


@pytest.mark.slow
def test_other_graphs_by_programs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="captum_goat.method")
    for number in range(30):
        compare_pairs(number, graphs=6)
    text = "".join(record.getMessage() for record in caplog.records)  # many models have other rules than ReLU's
    assert text.count("was followed, by its rows") > 10
    assert text.count("was followed, by a plan of reach") > 10


@pytest.mark.exhaustive
@pytest.mark.parametrize("first", range(30, 530, 50))
def test_many_other_graphs_by_programs(first: int) -> None:
    for number in range(first, first + 50):
        compare_pairs(number, graphs=5)


@pytest.mark.parametrize("gnn", ["gcn", "sage", "gin"])
@pytest.mark.parametrize("graphs", [20, pytest.param(700, marks=pytest.mark.exhaustive)])
def test_other_graphs_by_plans_of_reach(gnn: Any, graphs: int, caplog: pytest.LogCaptureFixture) -> None:
    """Graphs, and batches of up to three, with loops and isolated nodes, for the models of the package."""
    caplog.set_level(logging.DEBUG, logger="captum_goat.method")
    torch.manual_seed(graphs)
    model = GraphClassifier(gnn, in_channels=3, hidden_channels=5, num_classes=3).double().eval()
    pooled = Case((Op("pool", (0,)),), 3, 0, x=((0.0,) * 3,), edges=(), batch=(0,), masks=(), many=False, targets=())
    compare(model, pooled, graphs, graphs)
    assert caplog.text.count("by a plan of reach") > graphs / 3
