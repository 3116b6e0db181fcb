"""Replicas that fail: what is given up, what is not, and for how long."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from fault_subjects import MASK, Model, graph
from torch import Tensor

from captum_goat import GOAtAttribution
from captum_goat.tracking.replicated_calls import ReplicatedCalls

ARGUMENTS = graph(0).x, graph(0).edge_index


class Failing:
    """Makes the first call for replicas fail."""

    def __init__(self, error: type[BaseException], patch: pytest.MonkeyPatch) -> None:
        self.error, self.calls, self.original = error, 0, ReplicatedCalls.__call__
        patch.setattr(ReplicatedCalls, "__call__", lambda *args: self(*args))

    def __call__(self, *args: Any) -> Any:
        self.calls += 1
        if self.calls == 1:
            raise self.error("no replicas today")
        return self.original(*args)


@pytest.fixture
def model() -> Model:
    return Model(pools=True).double().eval()


def explain(model: Model) -> Tensor:
    attributions: Tensor = GOAtAttribution(model).attribute(MASK, 1, ARGUMENTS)
    return attributions


def test_one_failure_is_forgotten(
    model: Model, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = explain(model)
    failing = Failing(RuntimeError, monkeypatch)
    with caplog.at_level(logging.DEBUG, "captum_goat"):
        torch.testing.assert_close(explain(model), expected)
    assert "no replicas today" in caplog.text
    assert failing.calls == 1
    torch.testing.assert_close(explain(model), expected)
    assert failing.calls > 1


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt, ZeroDivisionError])
def test_what_has_nothing_to_do_with_replicas_is_raised(
    model: Model, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = explain(model)
    Failing(error, monkeypatch)
    with pytest.raises(error, match="no replicas today"):
        explain(model)
    torch.testing.assert_close(explain(model), expected)
