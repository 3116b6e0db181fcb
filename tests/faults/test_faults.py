"""Errors and interrupts at any moment leave the model and all global state as they were, and later calls right."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Collection
from typing import Any

import pytest
import torch
from conftest import slow_unless
from fault_subjects import MASK, SUBJECTS, Model, Subject, graph, passes_of, subject
from injection import CallFault, InjectedError, Interrupt, nothing_left
from torch import Tensor

from captum_goat import GOAtAttribution, UnsupportedModelError
from captum_goat.hooks import interception

ERRORS = (InjectedError, KeyboardInterrupt, SystemExit)


class Expected:
    """What a subject returns, and how often its model runs, if nothing is wrong."""

    def __init__(self, name: str) -> None:
        self.subject: Subject = subject(name)
        self.subject.run()  # the first run may fill caches
        self.result, self.passes = self._run()

    def _run(self) -> tuple[Tensor, int]:
        results: list[Tensor] = []
        passes = passes_of(lambda: results.append(self.subject.run()))
        return results[0], passes

    def check_next(self) -> None:
        """Check the next call: its result, and that the model runs no more often than it used to.

        Of a graph that was being explained nothing may be known, so the model may run once more.
        """
        result, passes = self._run()
        torch.testing.assert_close(result, self.result, rtol=0.0, atol=1e-12)
        assert passes <= self.passes + 1


def check_calls(name: str, step: int | None = None) -> int:
    """Raise each of the errors in calls of torch functions and modules.

    Args:
        name: The subject.
        step: Which of the calls; ``None`` for the first and the last one from every line of code.
    """
    expected, every, count = Expected(name), CallFault(), 0
    with every:
        expected.subject.run()
    for number in every.numbers() if step is None else range(7, every.count, step):
        for error in ERRORS:
            with nothing_left(expected.subject.model):
                fault = CallFault(number, error)
                try:
                    with fault:
                        result = expected.subject.run()
                except error:
                    pass
                except UnsupportedModelError as refusal:  # the model does not run without edges
                    if not isinstance(refusal.__cause__, error):
                        raise
                else:  # a faster way was given up, or a graph that is known by now takes fewer calls
                    assert error is InjectedError or fault.count <= number
                    if name != "EdgeSetSearch":  # which goes another way without gradients at the adjacency
                        torch.testing.assert_close(result, expected.result, rtol=0.0, atol=1e-12)
            count += 1
            expected.check_next()
    return count


def check_interrupts(name: str, start: int = 0, step: int = 1, but: Collection[Any] = ()) -> tuple[int, set[Any]]:
    """Raise KeyboardInterrupt at moments at which Python handles signals, but not at some instructions."""
    expected, every, count = Expected(name), Interrupt(), 0
    every(expected.subject.run)
    for moment in [candidate for candidate in every.moments() if candidate[:2] not in but][start::step]:
        interrupt, caught = Interrupt(moment), False
        with nothing_left(expected.subject.model):
            try:
                interrupt(expected.subject.run)
            except KeyboardInterrupt:
                caught = True
        assert caught == bool(interrupt.raised), moment
        count += interrupt.raised
        expected.check_next()
    return count, set(every.passed)


FAST = [name for name in SUBJECTS if name != "attribute, adjacency"]


@pytest.mark.parametrize("name", slow_unless(lambda name: name in FAST[::3], FAST))
@pytest.mark.slow
def test_errors_in_some_calls(name: str) -> None:
    assert check_calls(name, 331 if name == "EdgeMaskedModel" else 1499)


@pytest.mark.parametrize("name", slow_unless(lambda name: name in FAST[1::3], FAST))
@pytest.mark.slow
def test_interrupts_at_some_moments(name: str) -> None:
    assert check_interrupts(name, 11, 797)[0]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", SUBJECTS)
def test_errors_in_calls_from_every_line(name: str) -> None:
    print(f"{name}: {check_calls(name)} errors")


@pytest.mark.exhaustive
def test_interrupts_at_every_instruction() -> None:
    """Each instruction is interrupted the first and the last time, in the first of the subjects that comes to it."""
    done: set[Any] = set()
    for name in SUBJECTS:
        count, passed = check_interrupts(name, but=done)
        done |= passed
        print(f"{name}: {count} interrupts")


def check_signals(name: str, count: int, seed: int) -> int:
    """Interrupt a call by signals at random times."""
    expected, rng, caught, waiting = Expected(name), random.Random(seed), 0, False
    start = time.perf_counter()
    expected.subject.run()
    seconds = time.perf_counter() - start

    def on_alarm(*_: Any) -> None:
        if waiting:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, on_alarm)
    try:
        for _ in range(count):
            with nothing_left(expected.subject.model):
                try:
                    waiting = True
                    signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-5, seconds))
                    expected.subject.run()
                    waiting = False
                except KeyboardInterrupt:
                    waiting, caught = False, caught + 1
                signal.setitimer(signal.ITIMER_REAL, 0.0)
            expected.check_next()
    finally:
        signal.signal(signal.SIGALRM, before)
    return caught


@pytest.mark.slow
def test_signals_at_random_times() -> None:
    assert check_signals("attribute", 12, seed=0)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", SUBJECTS)
def test_many_signals_at_random_times(name: str) -> None:
    print(f"{name}: {check_signals(name, 300, seed=1)} signals")


def test_what_two_interrupts_leave_is_swept_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever presses Ctrl-C again while the first is handled may find a model with hooks; the next call mends it."""
    expected = Expected("EdgeMaskedModel")
    layers = expected.subject.model.one, expected.subject.model.two

    def interrupted(changes: interception.Changes) -> None:
        raise KeyboardInterrupt

    before = torch.overrides._get_current_function_mode_stack()
    with monkeypatch.context() as patch:
        patch.setattr(interception.Changes, "undo", interrupted)
        with pytest.raises(KeyboardInterrupt):
            expected.subject.run()
    assert any(layer._message_forward_hooks or not layer.fuse for layer in layers)
    expected.check_next()
    assert not any(layer._message_forward_hooks or not layer.fuse for layer in layers)
    assert not interception._unfinished
    assert torch.overrides._get_current_function_mode_stack() == before


def test_a_plain_call_of_the_model_leaves_nothing() -> None:
    model = Model(pools=False).double().eval()
    with nothing_left(model):
        GOAtAttribution(model, at="adjacency").attribute(MASK, (2, 1), (graph(0).x, graph(0).edge_index))
