"""Cut graphs that are known to give nodes the outputs that they have in the whole graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing

from captum_goat.inputs.graph_inputs import GraphInputs
from captum_goat.method.record import record
from captum_goat.method.replay import Subject
from captum_goat.nodes.cut_graphs import CutGraphs, cut_graphs, joint_surroundings, spans_more
from captum_goat.nodes.edge_index_by_node import Direction, NeighborIndex
from captum_goat.nodes.graph_data import GraphData
from captum_goat.nodes.trimmed_layers import TrimmedLayers, hops_behind
from captum_goat.tracking import UnsupportedModelError

MOST_COMPARED = 500_000  # edges of a graph that is run as a whole, to compare
_SAMPLES, _CANDIDATES = 8, 64  # nodes that are compared in a larger graph, and among how many they are looked for
_MOST_AROUND = (50_000, 500_000)  # edges around such a node: rather fewer than more
_TIGHT, _LOOSE = 16.0, 200.0  # differences taken for rounding, in units of it


class Way(NamedTuple):
    """How graphs are cut.

    Attributes:
        direction: Where edges are looked up.
        margin: How much more than the computation graph is cut, for degrees.
        trims: Whether layers leave out messages that come too late.
        tolerance: How much of a difference is taken for rounding.
    """

    direction: Direction
    margin: int
    trims: bool
    tolerance: float = _LOOSE


class CheckedCut(NamedTuple):
    """Graphs that were cut out.

    Attributes:
        cut: The graphs.
        inputs: The model's arguments.
        output: The output of each root.
        within: Runs a function in which the model is called.
    """

    cut: CutGraphs
    inputs: GraphInputs
    output: Tensor
    within: Callable[[Callable[[], Any]], Any]


class CheckedCuts:
    """Cuts computation graphs out of one graph, and compares the outputs of their roots with those in the whole graph.

    Computation graphs alone will do for models that add up, average or compare messages. Where degrees of nodes at
    their border matter, the edges of these are needed as well; and where nodes are normalised by the edges that they
    send to, all edges, whatever their direction. So these are tried one after the other.

    Args:
        graph: The model and the graph.
        num_hops: The number of hops of message passing; ``None`` to find out.
        check: Whether outputs are compared with those of the whole graph; ``None`` to do so in graphs of up to
            :data:`MOST_COMPARED` edges, and for a few nodes and their surroundings in larger ones.
    """

    def __init__(self, graph: GraphData, num_hops: int | None = None, check: bool | None = None) -> None:
        edge_index, num_nodes = graph.data.edge_index, graph.data.num_nodes

        @cache
        def index(direction: Direction) -> NeighborIndex:
            return NeighborIndex(edge_index, num_nodes, direction)

        self._graph = graph
        self._index = index
        self._ways = _ways(_direction(graph), checked=check is not False)
        self._hops_behind = self._look()
        seen = 1 + max(self._hops_behind, default=0)
        if num_hops is not None and num_hops < seen:
            raise ValueError(
                f"Expected num_hops of at least {seen}, the hops that the model's messages make (got {num_hops})."
            )
        self.num_hops = seen if num_hops is None else num_hops
        self._known: Tensor | None = None
        if check or (check is None and edge_index.size(1) <= MOST_COMPARED):
            self._known = graph.output(graph.whole(), num_nodes)
        elif check is None:
            self._compare_samples()

    @property
    def way(self) -> Way:
        """How graphs are cut, as far as it is known by now."""
        return self._ways[0]

    @property
    def index(self) -> NeighborIndex:
        """The edges at every node."""
        return self._index(self.way.direction)

    def cut(self, roots: Tensor, max_edges: int | None = None) -> CheckedCut:
        """Cut the graphs of as many roots, from the first on, as have few enough edges.

        Raises:
            UnsupportedModelError: If the roots' outputs are not those that they have in the whole graph.
        """
        while True:
            found = self._cut(roots, max_edges)
            if found is not None:
                known = None if self._known is None else self._known[roots[: len(found.output)]]
                if known is None or self._agree(found.output, known):
                    return found
            self._next_way()

    def _cut(self, roots: Tensor, max_edges: int | None = None) -> CheckedCut | None:
        """Cut graphs and run the model; ``None`` if its layers cannot be trimmed."""
        cut = cut_graphs(self.index, roots, self.num_hops, self.way.margin, max_edges)
        inputs = self._graph.cut(cut)
        if not self.way.trims:
            return CheckedCut(cut, inputs, self._graph.output(inputs, len(cut.nodes))[cut.roots], lambda run: run())
        trimmed = TrimmedLayers(self._graph.model, self._hops_behind, cut.distance)
        try:
            output = trimmed(lambda: self._graph.output(inputs, len(cut.nodes))[cut.roots])
            return CheckedCut(cut, inputs, output, trimmed)
        except Exception:  # what is not due to the trimming comes again without it
            return None

    def _agree(self, output: Tensor, expected: Tensor) -> bool:
        scale = float(expected.nan_to_num().abs().max()) if expected.numel() else 0.0
        near = self.way.tolerance * torch.finfo(expected.dtype).eps * scale
        return torch.allclose(output, expected, rtol=0.0, atol=near, equal_nan=True)

    def _next_way(self) -> None:
        if len(self._ways) == 1:
            raise UnsupportedModelError(
                f"A node's output does not depend on its surroundings of {self.num_hops} hop(s) alone: cut out, it has "
                f"another one than in the whole graph. Norms over all nodes, virtual nodes, pooling and positions in "
                f"the graph do that. Explain such a model with GOAtAttribution on the whole graph."
            )
        self._ways = self._ways[1:]

    def _look(self) -> list[int]:
        """Record a small part of the graph, and return how many hops there are behind each call of a layer."""
        index = self.index
        if not index.num_edges:
            return []
        nodes = torch.cat([index.source[:_CANDIDATES], index.target[:_CANDIDATES]])
        degree = index.degree(nodes)
        root = nodes[degree.masked_fill(degree == 0, index.num_edges + 1).argmin()].view(1)
        inputs = self._graph.cut(cut_graphs(index, root, num_hops=1))
        mask = torch.ones(inputs.edge_sets[0].size(1), device=root.device)
        pattern = record(Subject(inputs.model, lambda _: inputs(), (), inputs.edge_sets, mask))
        self._graph.left_out = pattern.left_out
        return [] if pattern.rows is None else hops_behind(pattern.graph, pattern.rows.sources)

    def _compare_samples(self) -> None:
        """Compare the outputs of a few nodes with what they are in larger parts of the graph."""
        ways = self._ways
        around: tuple[Direction, ...] = (ways[0].direction, "both")
        for direction in dict.fromkeys(around):
            if (sample := self._sample(self._index(direction))) is None:
                self._ways, self._known = ways, self._graph.output(self._graph.whole(), self.index.num_nodes)
                return
            roots, expected = sample
            for number in range(len(ways)):
                self._ways = ways[number:]
                if (found := self._cut(roots)) is not None and self._agree(found.output, expected):
                    return
        self._next_way()

    def _sample(self, index: NeighborIndex) -> tuple[Tensor, Tensor] | None:
        """Return a few nodes and their outputs in larger parts of the graph; ``None`` if such parts are too large."""
        candidates = torch.randint(index.num_nodes, (_CANDIDATES,), generator=torch.Generator().manual_seed(0))
        candidates = torch.unique(candidates).to(index.source.device)
        candidates = candidates[index.degree(candidates) > 0]
        for limit, more in product(_MOST_AROUND, (2, 1)):
            hops = self.num_hops + more
            fitting = [each for each in candidates if not spans_more(index, each.view(1), hops, limit)]
            if fitting:
                around = joint_surroundings(index, torch.stack(fitting[:_SAMPLES]), hops)
                output = self._graph.output(self._graph.cut(around), len(around.nodes))
                return around.nodes[around.roots], output[around.roots]
        return None


def _direction(graph: GraphData) -> Direction:
    """Return at which end of edges a model's layers bring messages to a node."""
    flows = {module.flow for module in graph.model.modules() if isinstance(module, MessagePassing)}
    if len(flows) > 1:
        return "both"
    return "out" if flows == {"target_to_source"} else "in"


def _ways(direction: Direction, *, checked: bool) -> list[Way]:
    """Return the ways of cutting to be tried, the fastest first."""
    if not checked:
        return [Way(direction, 1, trims=False)]
    trimmed = [Way(direction, 0, True, _TIGHT), Way(direction, 1, True)]
    trimmed += [Way("both", 1, True)] * (direction != "both")
    return trimmed + [way._replace(trims=False) for way in trimmed]
