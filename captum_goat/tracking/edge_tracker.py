"""Which edge of the user's graph is behind each message of a layer.

Layers reorder, split and extend ``edge_index`` (self-loops above all) before they propagate, so the edges are
tracked from the user's tensor to the ``propagate`` call, never inferred from sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import is_sparse

from captum_goat.tracking.errors import UnsupportedModelError
from captum_goat.tracking.row_graph import NO_ROW, Edges
from captum_goat.tracking.row_tracker import RowTracker


class Messages(NamedTuple):
    """One call of a message function."""

    edges: Tensor  # the edge of each message (-1: a self-loop that the layer added itself, a constant)
    shape: list[int]  # what ``edges`` is viewed as to broadcast to the messages
    dtype: torch.dtype  # the dtype of the messages

    def factor(self, mask: Tensor, t: float = 1.0) -> Tensor:
        """Return t times the mask's entry for each message (1 for constants), shaped to multiply the messages."""
        scaled = mask.to(self.dtype) * t
        padded = torch.cat([scaled, scaled.new_ones(1)])  # the edge -1 is the last entry
        return padded[self.edges].view(self.shape)

    def along_path(self, gradient: Tensor | None) -> Tensor | None:
        """Return the derivative along the path from no edges, but for the mask: that with respect to the factor."""
        return gradient


class EdgeTracker:
    """Name the edge behind each message.

    Args:
        tracker: The tracker that is entered while the model runs.
        edge_sets: The user's edges, the very tensors that the model will receive: one, or one per edge type. Edges
            are numbered through.
    """

    def __init__(self, tracker: RowTracker, edge_sets: Sequence[Tensor]) -> None:
        self._seen = False
        self._tracker = tracker
        ends = torch.cat(list(edge_sets), dim=1)
        self._source, self._target = ends.unbind()
        self._num_edges = self._source.numel()
        edges = torch.arange(self._num_edges, device=self._source.device)
        self._loops = edges[self._source == self._target]
        self._given_loops = self._loops
        self._num_sets = len(edge_sets)
        self._set_of = torch.cat([torch.full_like(each[0], number) for number, each in enumerate(edge_sets)])
        for edge_index, ids in zip(edge_sets, edges.split([each.size(1) for each in edge_sets]), strict=True):
            tracker.set(edge_index, Edges(ids.view(1, -1), ends))

    def follow(self, layer: MessagePassing, edge_index: Any, values: Tensor) -> Messages:
        """Return the edge behind each of the messages ``values``.

        Raises:
            UnsupportedModelError: If the layer passes messages over edges that are not the user's.
        """
        with self._tracker.paused():
            edges = self._tracked(edge_index)
            if values.size(layer.node_dim) != edges.numel():
                raise UnsupportedModelError(
                    f"Expected one message per edge in {self._tracker.place()} (got {values.size(layer.node_dim)} "
                    f"messages for {edges.numel()} edges along dimension {layer.node_dim})."
                )
            self._seen = True
            shape = [1] * values.dim()
            shape[layer.node_dim] = -1
            return Messages(self._with_kept_loops(edges, edge_index), shape, values.dtype)

    def enter(self, arguments: tuple[Any, ...]) -> None:
        """Note which of the user's self-loops a layer is given: those that it replaces by its own are still edges.

        A loop that the model itself has put in the place of the user's is given, too.
        """
        if not self._loops.numel():
            return
        with self._tracker.paused():
            present = [found for each in arguments if (found := self._loops_in(each)) is not None]
            if present:
                self._given_loops = self._loops[torch.stack(present).any(dim=0)]

    def _loops_in(self, argument: Any) -> Tensor | None:
        """Return of each of the user's self-loops whether it, or one in its place, is in an ``edge_index``."""
        edges = self._edges_of(argument)
        if edges is None:
            return None
        present = self._present(edges)
        loops = argument[0][(edges == NO_ROW) & (argument[0] == argument[1])]
        # Node numbers of other edge sets count other nodes.
        sets = torch.zeros(self._num_sets, dtype=torch.bool, device=edges.device)
        sets[self._set_of[edges[edges >= 0]]] = True
        ours = sets[self._set_of[self._loops]] | (self._num_sets == 1)
        return present[self._loops] | (ours & torch.isin(self._source[self._loops], loops))

    def _edges_of(self, argument: Any) -> Tensor | None:
        known = isinstance(argument, Tensor) and argument.dim() == 2 and argument.size(0) == 2
        return self._tracker.edges(argument) if known else None

    def _present(self, edges: Tensor) -> Tensor:
        present = torch.zeros(self._num_edges, dtype=torch.bool, device=edges.device)
        present[edges[edges >= 0]] = True
        return present

    def check_seen(self) -> None:
        """Raise UnsupportedModelError if the model has run without any message passing."""
        if not self._seen:
            raise UnsupportedModelError(
                "Edges are masked in the message passing of torch_geometric layers, and this model called none that "
                "can be seen. Use layers that derive from torch_geometric.nn.MessagePassing (without "
                "`explain=False` on all of them)."
            )

    def _tracked(self, edge_index: Any) -> Tensor:
        if is_sparse(edge_index) or not isinstance(edge_index, Tensor):
            raise UnsupportedModelError(
                f"{self._tracker.place()} passes messages over a sparse adjacency matrix. Call the model with an "
                f"edge_index tensor of shape [2, num_edges] instead."
            )
        edges = self._tracker.edges(edge_index)
        if edges is not None:
            return edges
        raise UnsupportedModelError(
            f"{self._tracker.place()} passes messages over edges that do not come from the given edge_index. Pass "
            f"the edges that the layer uses as the model's edge_index, or set `explain=False` on the layer to "
            f"treat its edges as constants."
        )

    def _with_kept_loops(self, edges: Tensor, edge_index: Tensor) -> Tensor:
        """Give a self-loop that replaces one of the user's the user's edge; refuse other foreign edges.

        Layers such as GCNConv, and models by `add_remaining_self_loops`, take self-loops away and put one loop at every
        node. Where the user had a loop, the new one stands for it (for the last one, where there were several: its
        weight is kept). A loop that a layer adds where the model has taken the user's away is a constant.
        """
        foreign = edges == NO_ROW
        if not foreign.any():
            return edges
        source, target = edge_index[0][foreign], edge_index[1][foreign]
        if (source != target).any():
            raise UnsupportedModelError(
                f"{self._tracker.place()} passes messages over edges that are neither in the given edge_index nor "
                f"self-loops. Set `explain=False` on the layer to treat all of its edges as constants."
            )
        lost = self._given_loops[~self._present(edges)[self._given_loops]]
        if lost.numel() == 0:
            return edges
        num_nodes = 1 + max(int(edge_index.max()), int(self._source.max()))
        loop_at = torch.full((num_nodes,), NO_ROW, device=edges.device)
        loop_at.scatter_reduce_(0, self._source[lost], lost, "amax")
        edges = edges.clone()
        edges[foreign] = loop_at[source]
        return edges
