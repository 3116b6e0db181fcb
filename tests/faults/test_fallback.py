"""Replicas that fail: what is given up, what is not, and for how long."""

from __future__ import annotations

import logging

import pytest
import torch
from fault_subjects import MASK, Model, graph, passes_of
from torch import Tensor

from captum_goat import GOAtAttribution

ARGUMENTS = graph(0).x, graph(0).edge_index


class Failing(Model):
    """A model that fails if it is replicated, as often as is asked for."""

    error: type[BaseException] = RuntimeError
    remaining = 0

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        if torch._C._functorch.maybe_current_level() is not None and Failing.remaining:
            Failing.remaining -= 1
            raise self.error("no replicas today")
        return super().forward(x, edge_index, batch)


@pytest.fixture
def model() -> Failing:
    Failing.remaining = 0
    return Failing(pools=True).double().eval()


def explain(model: Model) -> Tensor:
    attributions: Tensor = GOAtAttribution(model).attribute(MASK, 1, ARGUMENTS)
    return attributions


def test_one_failure_is_forgotten(model: Failing, caplog: pytest.LogCaptureFixture) -> None:
    expected, fast = explain(model), passes_of(lambda: explain(model))
    Failing.remaining = 1
    with caplog.at_level(logging.DEBUG, "captum_goat"):
        torch.testing.assert_close(explain(model), expected)
    assert "no replicas today" in caplog.text
    assert passes_of(lambda: explain(model)) == fast


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt, ZeroDivisionError])
def test_what_has_nothing_to_do_with_replicas_is_raised(model: Failing, error: type[BaseException]) -> None:
    expected, fast = explain(model), passes_of(lambda: explain(model))
    Failing.remaining, model.error = 1, error
    with pytest.raises(error, match="no replicas today"):
        explain(model)
    torch.testing.assert_close(explain(model), expected)
    assert passes_of(lambda: explain(model)) == fast


def test_a_model_that_always_fails_is_tried_ever_more_rarely(model: Failing) -> None:
    expected = explain(model)
    Failing.remaining = 1000
    for _ in range(12):
        torch.testing.assert_close(explain(model), expected)
    assert 1000 - Failing.remaining == 5  # the first, and the 1st, 2nd, 4th and 8th after it
