"""Cut graphs in which nodes have the same outputs as in the whole graph."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from itertools import count, product
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Data
from torch_geometric.data.data import BaseData
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import is_sparse

from captum_goat.hooks.interception import Changes, Result, changed, intercepted, unchanged
from captum_goat.inputs.arguments import attributes_for
from captum_goat.inputs.graph_inputs import GraphInputs, tensor_output
from captum_goat.method.record import record
from captum_goat.method.replay import Subject
from captum_goat.nodes.cut_graphs import CutGraphs, Direction, NeighborIndex, cut_graphs, joint_cut, surroundings
from captum_goat.rules.operations import input_of
from captum_goat.rules.registry import Rule
from captum_goat.tracking import RowGraph, UnsupportedModelError

_LEFT_OUT = ("edge_index", "num_nodes", "ptr")  # what cut graphs have of their own, or not at all
MOST_COMPARED = 500_000  # edges of a graph that is run as a whole, to compare
_SAMPLES, _CANDIDATES = 8, 64  # nodes that are compared in a larger graph, and among how many they are chosen
_MOST_AROUND = (50_000, 500_000)  # edges around such a node; the first limit is preferred
_TIGHT, _LOOSE = 16.0, 200.0  # differences taken for rounding, in units of the machine epsilon


class GraphData:
    """A model and the graph on which it classifies nodes; attributes of nodes and edges are cut with the graph."""

    def __init__(self, model: Module, data: Data, arguments: Callable[[Data], Any] | None = None) -> None:
        if not isinstance(data, Data) or not isinstance(data.edge_index, Tensor):
            got = data if isinstance(data, BaseData) else type(data).__name__
            raise TypeError(f"Expected one homogeneous graph, a Data (got {got}). Use GOAtAttribution for others.")
        self.model, self.data, self._arguments = model, data, arguments
        self.left_out: int | None = None  # the call of a last softmax or sigmoid, which would hide differences
        names = list(data.keys()) if arguments is not None else attributes_for(model, data)
        self._names = [name for name in names if name not in _LEFT_OUT and not is_sparse(data[name])]

    def inputs(self, cut: CutGraphs | None = None) -> GraphInputs:
        """Return the model's arguments for graphs that were cut out; ``None`` for the graph as it is."""
        graph = self.data
        if cut is not None:
            graph = Data(edge_index=cut.edge_index, num_nodes=len(cut.nodes))
            for name in self._names:
                graph[name] = self._rows(name, cut)
        arguments = graph if self._arguments is None else self._arguments(graph)
        arguments = arguments if isinstance(arguments, tuple) else (arguments,)
        return GraphInputs.of(self.model, arguments, num_edges=[graph.edge_index.size(1)])

    @torch.no_grad()
    def output(self, inputs: GraphInputs, num_nodes: int) -> Tensor:
        """Return the model's output for such arguments."""
        calls = count()

        def on_call(rule: Rule, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return input_of(args, kwargs).clone() if next(calls) == self.left_out else func(*args, **kwargs)

        plain = self.left_out is None
        result = unchanged(self.model, inputs) if plain else intercepted(inputs, self.model, on_call=on_call)
        output = tensor_output(result)
        if output.dim() not in (1, 2) or len(output) != num_nodes:
            got = f"{list(output.shape)} for {num_nodes} nodes"
            raise ValueError(f"Expected one row of output per node, [num_nodes, classes] or [num_nodes] (got {got}).")
        return output

    def _rows(self, name: str, cut: CutGraphs) -> Any:
        """Return an attribute for the nodes, or edges, of cut graphs if it is one of nodes, or edges."""
        value = self.data[name]
        if not isinstance(value, Tensor):
            return value
        dim = self.data.__cat_dim__(name, value)
        if self.data.is_edge_attr(name):
            return value.index_select(dim, cut.edges)
        return value.index_select(dim, cut.nodes) if self.data.is_node_attr(name) else value


class CutOptions(NamedTuple):
    """How graphs are cut."""

    direction: Direction  # where edges are looked up
    margin: int  # how much more than the computation graph is cut, for degrees
    trims: bool  # whether layers leave out messages that come too late
    tolerance: float = _LOOSE


class CheckedCut(NamedTuple):
    """Graphs that were cut out, the model's arguments, and the output of each root."""

    cut: CutGraphs
    inputs: GraphInputs
    output: Tensor
    within: Callable[[Callable[[], Any]], Any]  # runs a function that calls the model


class CheckedCuts:
    """Cuts computation graphs out of one graph, and compares the outputs of their roots with those in the whole graph.

    Computation graphs alone are enough for models that add up, average or compare messages. Where degrees at the border
    matter, its edges are needed, too; where nodes are normalised by their outgoing edges, edges of both directions.
    """

    def __init__(self, graph: GraphData, check: bool | None = None) -> None:
        edge_index, num_nodes = graph.data.edge_index, graph.data.num_nodes

        @cache
        def index(direction: Direction) -> NeighborIndex:
            return NeighborIndex(edge_index, num_nodes, direction)

        self._graph = graph
        self._index = index
        self._candidates = _all_options(_direction(graph), checked=check is not False)
        self._hops_behind = self._look()
        self.num_hops = 1 + max(self._hops_behind, default=0)
        self._known: Tensor | None = None
        if check or (check is None and edge_index.size(1) <= MOST_COMPARED):
            self._known = graph.output(graph.inputs(), num_nodes)
        elif check is None:
            self._compare_samples()

    @property
    def options(self) -> CutOptions:
        """How graphs are cut: the first options that have not failed yet."""
        return self._candidates[0]

    @property
    def index(self) -> NeighborIndex:
        """The edges at every node."""
        return self._index(self.options.direction)

    def cut(self, roots: Tensor, max_edges: int | None = None) -> CheckedCut:
        """Cut the graphs of as many roots, from the first on, as have few enough edges."""
        while True:
            checked = self._cut(roots, max_edges)
            if checked is not None:
                known = None if self._known is None else self._known[roots[: len(checked.output)]]
                if known is None or self._agree(checked.output, known):
                    return checked
            self._next_options()

    def _cut(self, roots: Tensor, max_edges: int | None = None) -> CheckedCut | None:
        """Cut graphs and run the model; ``None`` if its layers cannot be trimmed."""
        cut = cut_graphs(self.index, roots, self.num_hops, self.options.margin, max_edges)
        inputs = self._graph.inputs(cut)
        if not self.options.trims:
            return CheckedCut(cut, inputs, self._graph.output(inputs, len(cut.nodes))[cut.roots], lambda run: run())
        trimmed = TrimmedLayers(self._graph.model, self._hops_behind, cut.distance)
        try:
            output = trimmed(lambda: self._graph.output(inputs, len(cut.nodes))[cut.roots])
            return CheckedCut(cut, inputs, output, trimmed)
        except (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError):
            # If trimming is not the cause, it comes again without.
            return None

    def _agree(self, output: Tensor, expected: Tensor) -> bool:
        scale = float(expected.nan_to_num().abs().max()) if expected.numel() else 0.0
        near = self.options.tolerance * torch.finfo(expected.dtype).eps * scale
        return torch.allclose(output, expected, rtol=0.0, atol=near, equal_nan=True)

    def _next_options(self) -> None:
        if len(self._candidates) == 1:
            raise UnsupportedModelError(
                f"Expected outputs that depend on the {self.num_hops} hop(s) around a node alone (got a node with "
                f"another output when it is cut out). Norms over all nodes, virtual nodes, pooling and positions in "
                f"the graph are unsupported here. Explain such a model with GOAtAttribution on the whole graph."
            )
        self._candidates = self._candidates[1:]

    def _look(self) -> list[int]:
        """Record a small part of the graph, and return how many hops there are behind each call of a layer."""
        index = self.index
        if not index.num_edges:
            return []
        nodes = torch.cat([index.source[:_CANDIDATES], index.target[:_CANDIDATES]])
        degree = index.degree(nodes)
        root = nodes[degree.masked_fill(degree == 0, index.num_edges + 1).argmin()].view(1)
        inputs = self._graph.inputs(cut_graphs(index, root, num_hops=1))
        mask = torch.ones(inputs.edge_sets[0].size(1), device=root.device)
        pattern = record(Subject(inputs.model, lambda _: inputs(), (), inputs.edge_sets, mask))
        self._graph.left_out = pattern.left_out
        return [] if pattern.rows is None else hops_behind(pattern.graph, pattern.rows.sources)

    def _compare_samples(self) -> None:
        """Compare the outputs of a few nodes with what they are in larger parts of the graph."""
        candidates = self._candidates
        around: tuple[Direction, ...] = (candidates[0].direction, "both")
        for direction in dict.fromkeys(around):
            sample = self._sample(self._index(direction))
            if sample is None:
                self._candidates = candidates
                self._known = self._graph.output(self._graph.inputs(), self.index.num_nodes)
                return
            roots, expected = sample
            for number in range(len(candidates)):
                self._candidates = candidates[number:]
                if (checked := self._cut(roots)) is not None and self._agree(checked.output, expected):
                    return
        self._next_options()

    def _sample(self, index: NeighborIndex) -> tuple[Tensor, Tensor] | None:
        """Return a few nodes and their outputs in larger parts of the graph; ``None`` if such parts are too large."""
        candidates = torch.randint(index.num_nodes, (_CANDIDATES,), generator=torch.Generator().manual_seed(0))
        candidates = torch.unique(candidates).to(index.source.device)
        candidates = candidates[index.degree(candidates) > 0]
        for limit, more in product(_MOST_AROUND, (2, 1)):
            hops = self.num_hops + more
            fitting = [node for node in candidates if surroundings(index, node.view(1), hops, limit) is not None]
            if fitting:
                around = joint_cut(index, torch.stack(fitting[:_SAMPLES]), hops)
                output = self._graph.output(self._graph.inputs(around), len(around.nodes))
                return around.nodes[around.roots], output[around.roots]
        return None


def _direction(graph: GraphData) -> Direction:
    """Return at which end of the edges a model's layers deliver messages."""
    flows = {module.flow for module in graph.model.modules() if isinstance(module, MessagePassing)}
    if len(flows) > 1:
        return "both"
    return "out" if flows == {"target_to_source"} else "in"


def _all_options(direction: Direction, *, checked: bool) -> list[CutOptions]:
    if not checked:
        return [CutOptions(direction, 1, trims=False)]
    trimmed = [CutOptions(direction, 0, True, _TIGHT), CutOptions(direction, 1, True)]
    trimmed += [CutOptions("both", 1, True)] * (direction != "both")
    return trimmed + [options._replace(trims=False) for options in trimmed]


def hops_behind(graph: RowGraph, sources: frozenset[int]) -> list[int]:
    """Return, for every call of a message function, how many more hops there may be between it and the output."""
    behind = [0 if number in sources else -1 for number in range(len(graph.blocks))]
    for number in reversed(range(len(graph.blocks))):
        block = graph.blocks[number]
        for source in block.sources if behind[number] >= 0 else ():
            behind[source] = max(behind[source], behind[number] + block.crosses)
    return [hops for hops, block in zip(behind, graph.blocks, strict=True) if block.crosses]


class TrimmedLayers:
    """A model whose layers leave out messages that cannot reach a root any more.

    A layer passes messages to a node that is d hops away from every root only if d hops or more follow. What the layer
    computes from all edges before, such as degrees and attention, stays as it is.
    """

    def __init__(self, model: Module, hops_behind: list[int], distance: Tensor) -> None:
        self._model, self._hops_behind, self._distance = model, hops_behind, distance
        self._kept: list[Tensor] = []  # the messages of each call, from the first forward pass
        self._calls = 0

    def __call__(self, run: Callable[[], Result]) -> Result:
        """Run a function, with the model's layers trimmed."""
        modules = list(self._model.modules())

        def run_trimmed(changes: Changes) -> Result:
            changes.hook(self._model, "_forward_pre_hooks", self._begin)
            for module in modules:
                if isinstance(module, MessagePassing) and module.explain is not False:
                    changes.hook(module, "_propagate_forward_pre_hooks", self._trimmed)
            return run()

        return changed(modules, run_trimmed)

    def _begin(self, model: Module, inputs: Any) -> None:
        self._calls = 0

    def _trimmed(self, layer: MessagePassing, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        edges, size, arguments = inputs
        call = self._calls
        self._calls += 1
        if call == len(self._kept):
            target = edges[1 if layer.flow == "source_to_target" else 0]
            self._kept.append((self._distance[target] <= max(self._hops_behind[call], 0)).nonzero().view(-1))
        kept, names = self._kept[call], inspect.signature(layer.message).parameters
        trimmed = dict(arguments)
        for name, value in arguments.items():
            of_nodes = f"{name}_i" in names or f"{name}_j" in names or name not in names
            if not of_nodes and isinstance(value, Tensor) and value.dim() and len(value) == edges.size(1):
                trimmed[name] = value.index_select(0, kept)
        return edges.index_select(1, kept), size, trimmed
