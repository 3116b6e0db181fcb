"""The speed of several processes."""

import time
from subprocess import CompletedProcess

import pytest

from benchmarks.speed.graphs import graph_model, molecules
from benchmarks.speed.ranks import seconds_of_ranks


@pytest.mark.slow
def test_several_processes_explain_all_graphs() -> None:
    model, data = graph_model("sage", 8), molecules(5)
    start = time.perf_counter()
    seconds = seconds_of_ranks(model, "sage", 8, data, ranks=2, batch_size=2)
    assert 0 < seconds < time.perf_counter() - start


def test_failures_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = CompletedProcess([], 1, "", "size mismatch")
    monkeypatch.setattr("benchmarks.speed.ranks.subprocess.run", lambda *args, **options: failed)
    with pytest.raises(RuntimeError, match=r"with 1 processes failed(.|\n)*size mismatch"):
        seconds_of_ranks(graph_model("sage", 8), "sage", 16, molecules(5), ranks=1, batch_size=2)
