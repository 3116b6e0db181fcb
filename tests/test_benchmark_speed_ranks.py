"""The speed of several processes."""

import time

import pytest

from benchmarks.speed.graphs import graph_model, molecules
from benchmarks.speed.ranks import seconds_of_ranks


@pytest.mark.slow
def test_several_processes_explain_all_graphs_and_say_when_they_cannot() -> None:
    model, data = graph_model("sage", 8), molecules(5)
    start = time.perf_counter()
    seconds = seconds_of_ranks(model, "sage", 8, data, ranks=2, batch_size=2)
    assert 0 < seconds < time.perf_counter() - start
    with pytest.raises(RuntimeError, match=r"with 1 processes failed(.|\n)*size mismatch"):
        seconds_of_ranks(model, "sage", 16, data, ranks=1, batch_size=2)
