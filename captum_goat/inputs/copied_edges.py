"""Copies of a graph side by side: whether the output for each copy depends on the edges of that copy alone."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from captum_goat.tracking import Messages, Rows, RowTracker, Unmasked, Unsupported


class CopiedEdges:
    """Watch the masks of ``count`` copies of a graph from the messages to the output.

    An integer argument may hold node indices, which have to be shifted from copy to copy, or anything else, which must
    not be. Its name and values may mislead. But an argument that was copied in the wrong way makes the output for one
    copy read rows of another one, which is seen here.
    """

    integrates = False

    def __init__(self, tracker: RowTracker, edge_sets: Sequence[Tensor], count: int) -> None:
        self._tracker = tracker
        self._count = count
        self.before_masking = tracker.check_by_layers
        if count > 1:
            sizes = [edge_index.size(1) // count for edge_index in edge_sets]
            copies = torch.arange(count, device=edge_sets[0].device)
            none = copies.new_full((1,), -1)  # the copy of the edge -1, a constant
            self._copy_of_edge = torch.cat([*(copies.repeat_interleave(size) for size in sizes), none])

    def after_masking(self, masked: Tensor, messages: Tensor, call: Messages, nodes: Tensor) -> None:
        """Note that messages have been masked."""
        tracker = self._tracker
        if self._count == 1:
            tracker.set(masked, Unmasked("masked", "message"))  # all that edges have to do with it
            return
        with tracker.paused():
            trace = tracker.get(messages)
            rows = trace if isinstance(trace, Rows) else None
            marked = tracker.graph.cross(rows, self._copy_of_edge[call.edges].view(call.shape))
            tracker.set(masked, trace if isinstance(trace, Unsupported) else marked)

    def after_presence(self, factor: Tensor, edges: Tensor) -> None:
        """Note that a factor is the presence of edges."""
        if self._count > 1:
            with self._tracker.paused():
                self._tracker.set(factor, self._tracker.graph.cross(None, self._copy_of_edge[edges]))

    def check(self, output: Tensor) -> None:
        """Raise ValueError unless the output for each copy depends on the edges of that copy alone."""
        trace = self._tracker.get(output)
        if self._count == 1 or not isinstance(trace, Rows | Unsupported):
            return
        if not isinstance(trace, Rows) or not self._are_apart(trace.ids.expand(output.shape)):
            raise ValueError("Expected copies of a graph whose outputs do not depend on each other.")

    def _are_apart(self, ids: Tensor) -> bool:
        """Return whether each copy's part of the rows ``ids`` of an output is reached by that copy alone."""
        if ids.dim() == 0 or ids.size(0) % self._count:
            return False
        first, last = self._copies_of_rows()
        own = torch.arange(self._count, device=ids.device).repeat_interleave(ids.size(0) // self._count)
        own = own.view(-1, *[1] * (ids.dim() - 1))
        return bool(((ids < 0) | ((first[ids] >= own) & (last[ids] <= own))).all())

    def _copies_of_rows(self) -> tuple[Tensor, Tensor]:
        """Return the first and the last copy that reach each row, by row id."""
        graph = self._tracker.graph
        first = torch.full((graph.num_rows,), self._count, device=self._copy_of_edge.device)
        last = torch.full_like(first, -1)
        for block in graph.blocks:
            here = slice(block.offset, block.offset + block.size)
            if block.element is not None:
                first[here], last[here] = block.element.where(block.element >= 0, self._count), block.element
            first[here] = first[here].scatter_reduce(0, block.child, first[block.parent], "amin")
            last[here] = last[here].scatter_reduce(0, block.child, last[block.parent], "amax")
        return first, last
