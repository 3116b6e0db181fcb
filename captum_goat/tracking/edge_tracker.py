"""Which edge of the user's graph is behind each message of a layer.

Layers reorder, split and extend ``edge_index``, by self-loops for example, before they propagate. So the edges are
tracked from the user's tensor to the ``propagate`` call, never inferred from sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import is_sparse

from captum_goat.tracking.errors import UnsupportedModelError
from captum_goat.tracking.row_graph import NO_ROW, Edges, Traces
from captum_goat.tracking.row_tracker import RowTracker
from captum_goat.tracking.sparse import ends_of, is_adjacency


class Messages(NamedTuple):
    """One call of a message function."""

    edges: Tensor  # the edge of each message (-1: a self-loop that the layer added itself, a constant)
    shape: list[int]  # the view of ``edges`` that broadcasts to the messages
    dtype: torch.dtype  # the dtype of the messages
    whole: Tensor | None = None  # the same tensor as ``edges``, if these are all edges of the mask in its order

    def mask_dtype(self, mask: Tensor) -> torch.dtype:
        """Return the dtype in which a mask multiplies the messages: theirs, unless they are integers."""
        return self.dtype if self.dtype.is_floating_point else mask.dtype

    def factor(self, mask: Tensor, t: float = 1.0) -> Tensor:
        """Return t times the mask of each message's edge (1 for constants), broadcastable to the messages."""
        scaled = mask.to(self.mask_dtype(mask))
        scaled = scaled if t == 1.0 else scaled * t
        if self.edges is not self.whole:  # the edge -1 is the last entry
            scaled = torch.cat([scaled, scaled.new_ones(1)])[self.edges]
        return scaled.view(self.shape)

    def along_path(self, gradient: Tensor | None) -> Tensor | None:
        """Return the derivative along the path from no edges, without the mask as a factor."""
        return gradient


class EdgeTracker:
    """Find the edge behind each message; ``edge_sets`` are the very tensors with which the model is called."""

    def __init__(self, tracker: RowTracker, edge_sets: Sequence[Tensor]) -> None:
        self._seen, self._tracker, self._num_sets = False, tracker, len(edge_sets)
        self._known = Traces[tuple[Tensor, int]]()  # the edges behind an `edge_index`, and its version
        self._flat: dict[int, tuple[Tensor, Tensor]] = {}  # the ids of a trace, by their id(), and the same as ``[E]``
        with tracker.paused():
            all_ends = [ends_of(edges) for edges in edge_sets]
            ends = torch.cat(all_ends, dim=1)  # a copy: it outlives the user's tensors
            self._source, self._target = ends[0], ends[1]
            edges = torch.arange(ends.size(1), device=ends.device)  # the edges of all sets are numbered consecutively
            self._given_loops = self._loops = (self._source == self._target).nonzero().view(-1)
            sizes = [edge_set.size(1) for edge_set in all_ends]
            self._all = edges.view(1, -1) if len(sizes) == 1 else None
            stops = list(accumulate(sizes, initial=0))
            tracker.by_hand.ends, tracker.by_hand.sets = ends, [range(*one) for one in pairwise(stops)]
            if self._loops.numel():
                # The node of each given loop, as the current layer counts nodes.
                self._loop_nodes = self._source[self._loops]
                sets = torch.arange(len(sizes), device=ends.device)
                self._set_of = sets.repeat_interleave(torch.tensor(sizes, device=ends.device))
            for edge_set, ids in zip(edge_sets, edges.split(sizes), strict=True):
                tracker.set(edge_set, Edges(ids.view(1, -1) if self._all is None else self._all, ends))
                tracker.graph.by_values |= is_adjacency(edge_set)

    def follow(self, layer: MessagePassing, edge_index: Any, values: Tensor) -> Messages:
        """Return the edge behind each of the messages ``values``.

        Raises:
            UnsupportedModelError: If the layer passes messages over edges that are not the user's.
        """
        with self._tracker.paused():
            if not isinstance(edge_index, Tensor) or (is_sparse(edge_index) and not is_adjacency(edge_index)):
                raise UnsupportedModelError(
                    f"{self._tracker.place()} passes messages over a {type(edge_index).__name__}. Call the model with "
                    f"an edge_index tensor of shape [2, num_edges], or a torch.sparse matrix in COO or CSR layout, and "
                    f"let it pass that on."
                )
            if (edges := self._edges_of(edge_index)) is None:
                raise UnsupportedModelError(
                    f"{self._tracker.place()} passes messages over edges that do not come from the given edge_index. "
                    f"If the model makes them itself, as by knn_graph, wrap it: captum_goat.MadeEdges(model). Else "
                    f"pass the edges that the layer uses as the model's edge_index, or set `explain=False` on the "
                    f"layer to treat its edges as constants."
                )
            if values.size(layer.node_dim) != edges.numel():
                raise UnsupportedModelError(
                    f"Expected one message per edge in {self._tracker.place()} (got {values.size(layer.node_dim)} "
                    f"messages for {edges.numel()} edges along dimension {layer.node_dim}). Let `message` return one "
                    f"row per edge, or set `explain=False` on the layer."
                )
            self._seen = True
            trace = self._tracker.get(edge_index)
            self._tracker.graph.renumbered |= isinstance(trace, Edges) and trace.renumbered
            shape = [1] * values.dim()
            shape[layer.node_dim] = -1
            whole = edges if isinstance(trace, Edges) and trace.ids is self._all else None
            return Messages(edges, shape, values.dtype, whole)

    def follow_by_hand(self, source: Any, index: Any, into: Any) -> tuple[Messages, Tensor, range | None] | None:
        """Return the edge behind each of the messages that a scatter outside of layers delivers, and their nodes.

        It is ``None`` where it is not certain that these are messages over the user's edges. Where messages go to other
        edges, in place of nodes, the last part is all edges of their set.
        """
        found = self._tracker.messages_by_hand(source, index, into)
        if found is None or (self._loops.numel() and bool((found[0] < 0).any())):
            return None  # loops of the model's own might stand for the user's
        self._seen = True
        self._tracker.graph.by_values = True  # which end of the edges an index has was seen by its values
        edges, nodes, edge_set = found
        self._tracker.graph.renumbered |= edge_set is not None
        return Messages(edges, [-1] + [1] * (source.dim() - 1), source.dtype), nodes, edge_set

    def follow_declared(self, messages: Any, arguments: Sequence[Tensor]) -> tuple[Messages, Tensor]:
        """Return the edge behind each row that is declared to be a message, and the targets of the edges.

        The rows are in the order of edges, or of values at edges, among the arguments of the declared function.
        """
        rows = messages.size(0) if isinstance(messages, Tensor) and messages.dim() else -1
        with self._tracker.paused():
            orders = [order for value in arguments if (order := self._order_of(value)) is not None]
            orders = [order for order in orders if order.numel() == rows] or orders
            if not orders and self._all is not None:
                orders = [self._all.view(-1)]
            where = f"from what is declared by rules.message in {self._tracker.place()}"
            if not orders or not all(torch.equal(orders[0], order) for order in orders):
                raise UnsupportedModelError(
                    f"Expected messages over the edges of one edge_index {where} (got {len(orders)} in other orders "
                    f"among its arguments). Pass the edge_index of its messages, and no other one."
                )
            edges, self._seen = orders[0], True
            if rows < edges.numel():
                got = list(messages.shape) if isinstance(messages, Tensor) else type(messages).__name__
                raise UnsupportedModelError(
                    f"Expected one row per edge, {edges.numel()} or more along dimension 0, {where} (got {got}). Let "
                    f"it return one tensor with the messages in the order of the edges."
                )
            edges = torch.cat([edges, edges.new_full((rows - edges.numel(),), NO_ROW)])
            self._tracker.graph.by_values = True
            self._tracker.graph.renumbered |= self._num_sets > 1  # which nodes get them is not known
            return Messages(edges, [-1] + [1] * (messages.dim() - 1), messages.dtype), self._target[edges]

    def _order_of(self, value: Tensor) -> Tensor | None:
        """Return the edge of each column of edges, or of each row of values at edges; ``None`` for other tensors."""
        trace = self._tracker.get(value)
        if not isinstance(trace, Edges):
            return self._tracker.by_hand.edges_of(value)
        self._tracker.graph.renumbered |= trace.renumbered
        if value.dim() == 2 and (value.size(0) == 2 or is_adjacency(value)):
            return self._edges_of(value)
        return trace.ids.reshape(-1).expand(len(value)) if trace.ids.numel() in (1, *value.shape[:1]) else None

    def _edges_of(self, edge_index: Tensor) -> Tensor | None:
        """Return the edge of each column, with the user's self-loops; the same tensor for the same ``edge_index``."""
        known = self._known.get(edge_index)
        if known is not None and known[1] == edge_index._version and not self._loops.numel():
            return known[0]
        edges, trace = self._tracker.edges(edge_index), self._tracker.get(edge_index)
        if edges is not None and isinstance(trace, Edges):
            if trace.ids.shape == (1, edges.numel()):  # layers with the same edges share one tensor
                edges = self._flat.setdefault(id(trace.ids), (trace.ids, edges))[1]
            edges = self._with_kept_loops(edges, ends_of(edge_index))
            self._known.set(edge_index, (edges, edge_index._version))
        return edges

    @property
    def on_layer(self) -> Callable[[tuple[Any, ...]], None] | None:
        """What looks at the arguments of a layer; ``None`` where the user's edges have no self-loops."""
        return self._enter if self._loops.numel() else None

    def _enter(self, arguments: tuple[Any, ...]) -> None:
        """Note which of the user's self-loops a layer is given: its own loops at their nodes stand for them.

        A loop that the model itself has put in place of the user's counts as given.
        """
        with self._tracker.paused():
            traced = [
                (value, ids)
                for value in arguments
                if isinstance(value, Tensor) and value.dim() == 2 and (value.size(0) == 2 or is_adjacency(value))
                if (ids := self._tracker.edges(value)) is not None
            ]
            edges = [(ends_of(value), ids, self._is_renumbered(value)) for value, ids in traced]
            if given := [self._loops_in(*known) for known in edges]:
                present = torch.stack(given).any(dim=0)
                self._given_loops, self._loop_nodes = self._loops[present], self._source[self._loops][present]
                for index, ids, renumbered in edges:
                    if renumbered:
                        column = torch.full_like(self._source, NO_ROW)
                        column[ids[ids >= 0]] = torch.nonzero(ids >= 0).view(-1)
                        here = column[self._given_loops]
                        self._loop_nodes = torch.where(here >= 0, index[0][here], self._loop_nodes)

    def _is_renumbered(self, edge_index: Tensor) -> bool:
        trace = self._tracker.get(edge_index)
        return isinstance(trace, Edges) and trace.renumbered

    def _loops_in(self, edge_index: Tensor, edges: Tensor, renumbered: bool) -> Tensor:
        """Return for each of the user's self-loops whether it, or one in its place, is in an ``edge_index``."""
        loops = edge_index[0][(edges == NO_ROW) & (edge_index[0] == edge_index[1])]
        own = edges[edges >= 0]
        # The same number is another node in another edge set.
        sets = torch.zeros(self._num_sets, dtype=torch.bool, device=edges.device)
        sets[self._set_of[own]] = True
        ours = sets[self._set_of[self._loops]] | (self._num_sets == 1)
        if renumbered:
            return self._present(own)[self._loops]
        return self._present(own)[self._loops] | (ours & torch.isin(self._source[self._loops], loops))

    def _present(self, edges: Tensor) -> Tensor:
        return torch.zeros_like(self._source, dtype=torch.bool).index_fill_(0, edges, True)

    def check_seen(self) -> None:
        """Raise UnsupportedModelError if the model has run without any message passing."""
        if not self._seen:
            own = [
                f"'{name}' ({type(layer).__name__})"
                for layer, name in self._tracker.names.items()
                if isinstance(layer, MessagePassing) and type(layer).propagate is not MessagePassing.propagate
            ]
            overridden = f"; its own `propagate` hides the messages of {', '.join(own)}" if own else ""
            raise UnsupportedModelError(
                f"Expected a model that calls torch_geometric's message passing, where edges are masked (got one that "
                f"called none{overridden}). Use layers that derive from torch_geometric.nn.MessagePassing, without "
                f"`explain=False` on all of them and without a `propagate` of their own; or gather and scatter values "
                f"of nodes by the two ends of the edges, or declare what returns the messages by rules.message."
            )

    def _with_kept_loops(self, edges: Tensor, edge_index: Tensor) -> Tensor:
        """Return the edges, with the user's self-loop for a loop that replaces it; refuse other foreign edges.

        GCNConv and ``add_remaining_self_loops`` remove self-loops and add one at every node. The new loop stands for
        the user's at this node, or for the last one if there were several: its weight is kept. A loop that a layer adds
        where the model has removed the user's is a constant.
        """
        foreign = edges == NO_ROW
        if (foreign & (edge_index[0] != edge_index[1])).any():
            raise UnsupportedModelError(
                f"{self._tracker.place()} passes messages over edges that are neither in the given edge_index nor "
                f"self-loops. Set `explain=False` on the layer to treat all its edges as constants."
            )
        if not self._given_loops.numel() or not edges.numel():
            return edges
        is_lost = ~self._present(edges[edges >= 0])[self._given_loops]
        lost, nodes = self._given_loops[is_lost], self._loop_nodes[is_lost]
        if lost.numel() == 0:
            return edges
        num_nodes = 1 + max(int(edge_index.max()), int(nodes.max()))
        loop_at = torch.full((num_nodes,), NO_ROW, device=edges.device)
        loop_at.scatter_reduce_(0, nodes, lost, "amax")
        edges = edges.clone()
        edges[foreign] = loop_at[edge_index[0][foreign]]
        return edges
