"""All methods on graphs of growing size: one kind of graphs, one model."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from benchmarks.speed.graphs import FAMILIES, explained, graph_model
from benchmarks.speed.methods import GOAT, METHODS, UNIT, Explain
from benchmarks.speed.options import Options
from benchmarks.speed.results import Row
from benchmarks.speed.rounds import in_turn
from benchmarks.speed.subprocess_timing import Apart, TooLargeError, call_apart
from captum_goat.compare.graphs import Graphs

WARM_UP = 100  # edges
LARGE = 10_000  # edges from which on time is nearly that of the edges, so that it tells that of more edges
PATIENCE = 60.0  # seconds that a process of its own may take beyond what its call may


class LeftOut(NamedTuple):
    """A method that was not measured from some size on, and why."""

    family: str
    gnn: str
    method: str
    edges: int
    reason: str


class Growth:
    """The measurements of one kind of graphs and one model.

    A method is first called once in a process of its own, which tells its memory and whether it takes too much. Those
    that do not are then timed in turn. One that does, or that would by its time for the size before, is left out from
    this size on.

    Args:
        options: What to measure.
        family: The kind of graphs.
        gnn: The model.

    Attributes:
        rows: What was found.
        left_out: What was not measured.
    """

    def __init__(self, options: Options, family: str, gnn: str) -> None:
        self.rows: list[Row] = []
        self.left_out: list[LeftOut] = []
        self._options = options
        self._family = family
        self._gnn = gnn
        model = graph_model(gnn, options.hidden, options.seed)
        self._explain: dict[str, Explain] = {name: method.prepare(model) for name, method in METHODS.items()}
        self._per_edge = dict.fromkeys(METHODS, 0.0)  # seconds, of the size before

    def measure(self, edges: int) -> None:
        """Measure all methods on graphs with this number of edges, which has to be larger than before."""
        for name in list(self._explain):
            self._probe(name, edges)

        def graphs(number: int) -> Graphs:
            return explained(FAMILIES[self._family](edges, self._options.seed + number))

        times = in_turn(self._explain, graphs, self._options.rounds, self._options.budget)
        for name in self._explain:
            self._add(name, edges, "seconds", times.median(name))
            self._add(name, edges, "least_seconds", times.least(name))
            if UNIT in self._explain:
                self._add(name, edges, "units", times.ratio(name, UNIT))

    def _probe(self, name: str, edges: int) -> None:
        """Call a method once in a process of its own, or leave it out."""
        budget = self._budget(name)
        try:
            if self._per_edge[name] * edges > 2 * budget:  # in doubt it is tried
                raise TooLargeError(f"would take more than {budget:g} seconds, by the size before")
            measured = self._apart(name, edges)
            if measured.seconds > budget:
                raise TooLargeError(f"took {measured.seconds:.1f} seconds")
        except (TooLargeError, RuntimeError) as error:
            self.left_out.append(LeftOut(self._family, self._gnn, name, edges, str(error)))
            del self._explain[name]
            return
        self._per_edge[name] = measured.seconds / edges if edges >= LARGE else 0.0
        self._add(name, edges, "peak_bytes", measured.peak)

    def _budget(self, name: str) -> float:
        return self._options.goat_budget if name in (GOAT, UNIT) else self._options.budget

    def _apart(self, name: str, edges: int) -> Apart:
        options = self._options
        return call_apart(
            prepare_call,
            (self._family, edges, self._gnn, options.hidden, name, options.seed),
            threads=options.threads,
            seconds=PATIENCE + 2 * self._budget(name),
            memory=options.memory,
        )

    def _add(self, name: str, edges: int, metric: str, value: float) -> None:
        self.rows.append(Row("sizes", self._family, self._gnn, edges, name, metric, value))


def prepare_call(family: str, edges: int, gnn: str, hidden: int, method: str, seed: int) -> Callable[[], None]:
    """Return one call of a method, after a first one on a small graph."""
    explain = METHODS[method].prepare(graph_model(gnn, hidden, seed))
    explain(explained(FAMILIES[family](WARM_UP, seed)))
    graphs = explained(FAMILIES[family](edges, seed))

    def call() -> None:
        explain(graphs)

    return call
