"""Computation graphs of many nodes, cut out of a large graph, in which nodes have the same outputs as in the whole."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Data
from torch_geometric.data.data import BaseData
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import is_sparse

from captum_goat.fields.field_sets import repeated_positions
from captum_goat.inputs.arguments import attributes_for
from captum_goat.inputs.graph_inputs import GraphInputs, tensor_output
from captum_goat.method.record import record
from captum_goat.method.replay import Subject
from captum_goat.metrics.counted_edges import edges_of
from captum_goat.shapley.edge_attribution import run_skipping
from captum_goat.tracking import RowGraph, UnsupportedModelError

# Which edges of a node count: those that end there, those that begin there, or all.
Direction: TypeAlias = Literal["in", "out", "both"]
_MOST_SURPLUS = 4  # how many times as many edges there may be that serve degrees only
_LEFT_OUT = ("edge_index", "num_nodes", "ptr")  # what cut graphs have of their own, or not at all
MOST_COMPARED = 500_000  # edges of a graph that is run as a whole, to compare
_SAMPLES, _CANDIDATES = 8, 64  # nodes that are compared in a larger graph, and among how many they are chosen
_MOST_AROUND = 100_000  # edges around such a node
_TIGHT, _LOOSE = 16.0, 200.0  # differences taken for rounding, in units of the machine epsilon


class NodeEdges(NamedTuple):
    """The edges at some nodes, one node's after another's, in the graph's order."""

    position: Tensor  # of the node among the given ones
    edge: Tensor
    neighbor: Tensor  # the node at the other end


class NeighborIndex:
    """The edges of a graph, sorted by the node at which they are looked up: ``"in"`` where they end.

    Only sorting takes time in proportion to the graph. A self-loop counts twice in ``"both"``.
    """

    def __init__(self, edges: Tensor, num_nodes: int, direction: Direction = "in") -> None:
        if edges.numel() and not 0 <= int(edges.min()) <= int(edges.max()) < num_nodes:
            got = f"nodes {int(edges.min())} to {int(edges.max())}"
            raise ValueError(f"Expected edges between nodes 0 to {num_nodes - 1} (got {got}).")
        self.num_nodes, self.num_edges, self.direction = num_nodes, edges.size(1), direction
        self.source, self.target = edges[0], edges[1]
        both = direction == "both"
        here = torch.cat([self.target, self.source]) if both else edges[1 if direction == "in" else 0]
        self._neighbor = torch.cat([self.source, self.target]) if both else edges[0 if direction == "in" else 1]
        counts = torch.bincount(here, minlength=num_nodes)
        self._first = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        self._order = here.argsort(stable=True)

    def degree(self, nodes: Tensor) -> Tensor:
        """Return the number of edges at some nodes."""
        return self._first[nodes + 1] - self._first[nodes]

    def edges_at(self, nodes: Tensor) -> NodeEdges:
        """Return the edges at some nodes."""
        counts = self.degree(nodes)
        position = repeated_positions(counts)
        shift = self._first[nodes] - counts.cumsum(0) + counts
        place = self._order[torch.arange(len(position), device=nodes.device) + shift[position]]
        return NodeEdges(position, place % max(self.num_edges, 1), self._neighbor[place])


class CutGraphs(NamedTuple):
    """The computation graphs of some nodes, the roots, side by side."""

    roots: Tensor  # the row of each root, [B]
    nodes: Tensor  # the node of the whole graph that each row is a copy of
    edge_index: Tensor  # between rows: those of computation graphs, root by root; then those for degrees only
    edges: Tensor  # the edge of the whole graph that each edge is a copy of
    owner: Tensor  # the position of the root whose computation graph each of the first edges is in
    distance: Tensor  # hops from each row to a root
    row_owner: Tensor  # the position of the root of each row; -1 for shared rows


def cut_graphs(
    index: NeighborIndex,
    roots: Tensor,
    num_hops: int,
    margin: int = 0,
    max_edges: int | None = None,
    *,
    at_least: int = 1,
    shared: bool = True,
) -> CutGraphs:
    """Cut the computation graphs of as many roots, from the first on, as have at most ``max_edges`` together.

    Every root has its own copies of the edges that reach it in :math:`L` hops, and of the nodes at which they end.
    Nodes :math:`L` steps away, the border, only send their inputs; one copy serves all roots if it is ``shared``. With
    a ``margin`` of 1 the border has its incoming edges, too, for the degrees. Their messages come too late to reach a
    root, so all but self-loops come from the first root. If edges are looked up at both ends, nothing is shared: every
    root has all edges of the nodes that are less than ``num_hops + margin`` steps away.
    """
    size, one_way = max(index.num_nodes, 1), index.direction != "both"
    reach = num_hops if one_way else num_hops + margin
    roots, own, distance, keys = _reach(index, roots, reach, max_edges, at_least)
    owner, edges, border = keys // max(index.num_edges, 1), keys % max(index.num_edges, 1), roots[:0]
    is_border = (distance == num_hops) & one_way
    if shared:
        border, own, distance = torch.unique(own[is_border] % size), own[~is_border], distance[~is_border]
        border_rows, border_nodes = len(own) + torch.arange(len(border), device=roots.device), border
    else:
        border_rows, border_nodes = is_border.nonzero().view(-1), own[is_border] % size
    if margin == 0:
        border_rows, border_nodes = border_rows[:0], border_nodes[:0]
    if max_edges is not None and len(roots) > 1 and int(index.degree(border_nodes).sum()) > _MOST_SURPLUS * max_edges:
        fewer = roots[: len(roots) // 2]
        return cut_graphs(index, fewer, num_hops, margin, max_edges, at_least=at_least, shared=shared)
    root_rows = torch.searchsorted(own, torch.arange(len(roots), device=roots.device) * size + roots)

    def rows_of(nodes: Tensor) -> Tensor:
        place, is_own = _find(own, owner * size + nodes)
        return place.where(is_own, len(own) + torch.searchsorted(border, nodes))

    between = torch.stack([rows_of(index.source[edges]), rows_of(index.target[edges])])
    surplus = index.edges_at(border_nodes)
    here = border_rows[surplus.position]
    there = here.where(surplus.neighbor == border_nodes[surplus.position], root_rows[:1])
    around = torch.stack([here, there] if index.direction == "out" else [there, here])
    return CutGraphs(
        root_rows,
        torch.cat([own % size, border]),
        torch.cat([between, around], dim=1),
        torch.cat([edges, surplus.edge]),
        owner,
        torch.cat([distance, torch.full_like(border, num_hops)]),
        torch.cat([own // size, torch.full_like(border, -1)]),
    )


def _reach(
    index: NeighborIndex, roots: Tensor, num_hops: int, max_edges: int | None, at_least: int
) -> tuple[Tensor, ...]:
    """Return roots, sorted keys root * num_nodes + node, their distances, and sorted keys root * num_edges + edge."""
    size, num_edges = max(index.num_nodes, 1), max(index.num_edges, 1)
    number = len(roots)
    frontier = torch.arange(number, device=roots.device) * size + roots
    nodes, distance, edges = frontier, torch.zeros_like(frontier), frontier[:0]
    for hop in range(num_hops):
        if max_edges is not None:  # keep the first roots that have few enough edges after this hop
            counts = torch.bincount(edges // num_edges, minlength=number)
            counts.index_add_(0, frontier // size, index.degree(frontier % size))
            number = min(number, max(at_least, int((counts.cumsum(0) <= max_edges).sum())))
            frontier, edges = frontier[frontier < number * size], edges[edges < number * num_edges]
            nodes, distance = nodes[nodes < number * size], distance[nodes < number * size]
        incoming = index.edges_at(frontier % size)
        owner = (frontier // size)[incoming.position]
        edges = torch.cat([edges, owner * num_edges + incoming.edge])
        reached = torch.unique(owner * size + incoming.neighbor)
        frontier = reached[~_find(nodes, reached)[1]]
        nodes, order = torch.cat([nodes, frontier]).sort()
        distance = torch.cat([distance, torch.full_like(frontier, hop + 1)])[order]
    edges = torch.unique(edges) if index.direction == "both" else edges.sort().values
    return roots[:number], nodes, distance, edges


def _find(keys: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Return the places of wanted keys among sorted ones, and whether they are there."""
    if not keys.numel():
        return torch.zeros_like(wanted), torch.zeros_like(wanted, dtype=torch.bool)
    place = torch.searchsorted(keys, wanted).clamp(max=keys.numel() - 1)
    return place, keys[place] == wanted


class CutOptions(NamedTuple):
    """How graphs are cut."""

    direction: Direction  # where edges are looked up
    margin: int  # how much more than the computation graph is cut, for degrees
    tolerance: float = _LOOSE


class CheckedCut(NamedTuple):
    """Graphs that were cut out, the model's arguments, and the output of each root."""

    cut: CutGraphs
    inputs: GraphInputs
    output: Tensor


class CheckedCuts:
    """Cuts computation graphs out of one graph, and compares the outputs of their roots with those in the whole graph.

    Computation graphs alone are enough for models that add up, average or compare messages. Where degrees at the border
    matter, its edges are needed, too; where nodes are normalised by their outgoing edges, edges of both directions.
    ``shared`` is whether roots may share the rows of the border.
    """

    def __init__(
        self,
        model: Module,
        data: Data,
        arguments: Callable[[Data], Any] | None = None,
        check: bool | None = None,
        *,
        shared: bool = True,
    ) -> None:
        if not isinstance(data, Data) or not isinstance(data.edge_index, Tensor):
            got = data if isinstance(data, BaseData) else type(data).__name__
            raise TypeError(f"Expected one homogeneous graph, a Data (got {got}). Use GOAtAttribution for others.")
        self.model, self.data, self._arguments, self._shared = model, data, arguments, shared
        names = list(data.keys()) if arguments is not None else attributes_for(model, data)
        self._names = [name for name in names if name not in _LEFT_OUT and not is_sparse(data[name])]
        self.index: Callable[[Direction], NeighborIndex] = cache(partial(NeighborIndex, edges_of(data), data.num_nodes))
        self._candidates = _all_options(model, checked=check is not False)
        self._left_out: int | None = None  # the call of a last softmax or sigmoid, which would hide differences
        self.num_hops = self._count_hops()
        self._known: Tensor | None = None  # the outputs in the whole graph
        large = check is None and data.edge_index.size(1) > MOST_COMPARED
        sample = self._sample() if large else None
        if sample is not None:
            while not self._agree(self._cut(sample[0]).output, sample[1]):
                self._next_options()
        elif check is not False:
            self._known = self._output(self._inputs(), data.num_nodes)

    @property
    def options(self) -> CutOptions:
        """How graphs are cut: the first options that have not failed yet."""
        return self._candidates[0]

    def cut(self, roots: Tensor, max_edges: int | None = None) -> CheckedCut:
        """Cut the graphs of as many roots, from the first on, as have few enough edges."""
        while True:
            checked = self._cut(roots, max_edges)
            if self._known is None or self._agree(checked.output, self._known[roots[: len(checked.output)]]):
                return checked
            self._next_options()

    def arguments(self, cut: CutGraphs | None = None) -> tuple[Any, ...]:
        """Return the model's arguments for graphs that were cut out, or for the whole graph."""
        graph = self.data
        if cut is not None:
            graph = Data(edge_index=cut.edge_index, num_nodes=len(cut.nodes))
            for name in self._names:
                value, is_edge_attr = self.data[name], self.data.is_edge_attr(name)
                if isinstance(value, Tensor) and (is_edge_attr or self.data.is_node_attr(name)):
                    rows = cut.edges if is_edge_attr else cut.nodes
                    value = value.index_select(self.data.__cat_dim__(name, value), rows)
                graph[name] = value
        arguments = graph if self._arguments is None else self._arguments(graph)
        return arguments if isinstance(arguments, tuple) else (arguments,)

    def _inputs(self, cut: CutGraphs | None = None) -> GraphInputs:
        num_edges = (self.data if cut is None else cut).edge_index.size(1)
        return GraphInputs.of(self.model, self.arguments(cut), num_edges=[num_edges])

    @torch.no_grad()
    def _output(self, inputs: GraphInputs, num_nodes: int) -> Tensor:
        output = tensor_output(run_skipping(self._left_out, self.model, inputs))
        if output.dim() not in (1, 2) or len(output) != num_nodes:
            got = f"{list(output.shape)} for {num_nodes} nodes"
            raise ValueError(f"Expected one row of output per node, [num_nodes, classes] or [num_nodes] (got {got}).")
        return output

    def _cut(self, roots: Tensor, max_edges: int | None = None) -> CheckedCut:
        direction, margin, _ = self.options
        cut = cut_graphs(self.index(direction), roots, self.num_hops, margin, max_edges, shared=self._shared)
        inputs = self._inputs(cut)
        return CheckedCut(cut, inputs, self._output(inputs, len(cut.nodes))[cut.roots])

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

    def _count_hops(self) -> int:
        """Record a small part of the graph, and return from how far away messages may come."""
        index = self.index(self.options.direction)
        if not index.num_edges:
            return 1
        nodes = torch.cat([index.source[:_CANDIDATES], index.target[:_CANDIDATES]])
        degree = index.degree(nodes)
        root = nodes[degree.masked_fill(degree == 0, index.num_edges + 1).argmin()].view(1)
        inputs = self._inputs(cut_graphs(index, root, num_hops=1))
        mask = torch.ones(inputs.edge_sets[0].size(1), device=root.device)
        pattern = record(Subject(inputs.model, lambda _: inputs(), (), inputs.edge_sets, mask))
        self._left_out = pattern.left_out
        return 1 if pattern.rows is None else max(1, longest_path(pattern.graph, pattern.rows.sources))

    def _sample(self) -> tuple[Tensor, Tensor] | None:
        """Return a few nodes and their outputs in larger parts of the graph; ``None`` if too few parts are of use.

        A part is of use if it is small enough, and if edges were missed in a cut without margin and in one with it.
        """
        index, own = self.index("both"), self.index(self.options.direction)
        nodes = torch.randint(index.num_nodes, (_CANDIDATES,), generator=torch.Generator().manual_seed(0))
        nodes = torch.unique(nodes).to(index.source.device)
        roots, outputs = list[Tensor](), list[Tensor]()
        for root in nodes[index.degree(nodes).argsort(descending=True, stable=True)].split(1):
            around = cut_graphs(index, root, self.num_hops + 1, 1, _MOST_AROUND, at_least=0)
            if not len(around.roots):
                continue
            sizes = [len(cut_graphs(own, root, self.num_hops, margin).edges) for margin in (0, 1)]
            if sizes[0] < sizes[1] < len(around.edges):
                roots.append(root)
                outputs.append(self._output(self._inputs(around), len(around.nodes))[around.roots])
            if len(roots) == _SAMPLES:
                return torch.cat(roots), torch.cat(outputs)
        return None


def _all_options(model: Module, *, checked: bool) -> list[CutOptions]:
    """Return the ways to cut, the cheapest first, by the ends of the edges at which layers deliver messages."""
    flows = {module.flow for module in model.modules() if isinstance(module, MessagePassing)}
    one_way: Direction = "out" if flows == {"target_to_source"} else "in"
    direction: Direction = one_way if len(flows) == 1 else "both"  # messages may also be passed without layers
    wider = [CutOptions(around, 1) for around in dict.fromkeys((direction, "both"))]
    return [CutOptions(direction, 0, _TIGHT), *wider] if checked else wider[:1]


def longest_path(graph: RowGraph, sources: frozenset[int]) -> int:
    """Return the largest number of message functions between an input and the output, which reads ``sources``."""
    hops = [0 if number in sources else -1 for number in range(len(graph.blocks))]
    for number in reversed(range(len(graph.blocks))):
        block = graph.blocks[number]
        hops[number] += block.crosses and hops[number] >= 0
        for source in block.sources if hops[number] >= 0 else ():
            hops[source] = max(hops[source], hops[number])
    return max(hops, default=0)
