"""One explainer for several threads, and processes that are forked while a thread explains."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from fault_subjects import MASK, Model, graph
from injection import nothing_left
from torch import Tensor

from captum_goat import GOAtAttribution


@pytest.fixture(autouse=True)
def _restless() -> Iterator[None]:
    """Let threads take turns as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def arguments(seed: int, shift: float = 0.0) -> tuple[Tensor, Tensor]:
    data = graph(seed)
    return data.x + shift, data.edge_index


def check_sharing(model: Model, calls: int) -> None:
    """Explain graphs of equal shape with one explainer in four threads."""
    goat = GOAtAttribution(model)
    cases = [(seed, shift) for seed in range(2) for shift in (0.0, 1.0)]
    expected = {case: GOAtAttribution(model).attribute(MASK, 1, arguments(*case)) for case in cases}
    plan = [random.Random(0).choice(cases) for _ in range(calls // 2)]
    plan = [case for case in plan for _ in range(2)]  # known graphs as often as new ones

    def error(case: tuple[int, float]) -> float:
        return float((goat.attribute(MASK, 1, arguments(*case)) - expected[case]).abs().max())

    with nothing_left(model), ThreadPoolExecutor(4) as pool:
        errors = list(pool.map(error, plan))
    assert max(errors) < 1e-12


@pytest.mark.slow
def test_threads_share_an_explainer() -> None:
    check_sharing(Model(pools=True).double().eval(), 160)


@pytest.mark.exhaustive
def test_threads_share_an_explainer_for_long() -> None:
    check_sharing(Model(pools=True).double().eval(), 2000)


@pytest.mark.slow
def test_threads_silence_no_warnings() -> None:
    model = Model(pools=True).double().eval()
    before = list(warnings.filters)
    stop = threading.Event()

    def explain() -> None:
        goat = GOAtAttribution(model)
        while not stop.is_set():
            goat.attribute(MASK, 1, arguments(0))

    threads = [threading.Thread(target=explain) for _ in range(3)]
    for thread in threads:
        thread.start()
    seen = 0
    for _ in range(40):
        seen += warnings.filters != before
        stop.wait(0.01)
    stop.set()
    for thread in threads:
        thread.join()
    assert not seen
    assert warnings.filters == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_process_that_is_forked_while_a_thread_explains() -> None:
    inside, go_on = threading.Event(), threading.Event()

    class Waiting(Model):
        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
            if threading.current_thread() is not threading.main_thread():
                inside.set()
                go_on.wait(30)
            return super().forward(x, edge_index, batch)

    model = Waiting(pools=True).double().eval()
    goat = GOAtAttribution(model)
    expected, output = GOAtAttribution(model).attribute(MASK, 1, arguments(0)), model(*arguments(0))
    thread = threading.Thread(target=goat.attribute, args=(MASK, 1, arguments(0)))
    thread.start()
    assert inside.wait(30)
    process = os.fork()
    if process == 0:
        signal.alarm(30)
        clean = not any(hooks for layer in (model.one, model.two) for hooks in (layer._message_forward_hooks,))
        same = torch.equal(model(*arguments(0)), output)
        right = torch.allclose(goat.attribute(MASK, 1, arguments(0)), expected)
        os._exit(0 if clean and same and right else 1)
    _, status = os.waitpid(process, 0)
    go_on.set()
    thread.join()
    assert os.waitstatus_to_exitcode(status) == 0
    torch.testing.assert_close(goat.attribute(MASK, 1, arguments(0)), expected)
