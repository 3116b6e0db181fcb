"""The gates' shares of edges, message passing step by message passing step."""

from __future__ import annotations

import torch
from torch import Tensor

from captum_goat.tracking import RowGraph

_MOST_ENTRIES = 2**24  # of the matrix of rows, steps and edges that is held at once


def spread_by_step(graph: RowGraph, shares: Tensor, weights: Tensor) -> Tensor:
    """Share each row's number among the edges that reach it, each at the last step in which it does.

    Args:
        graph: Which rows read which; every block of masked messages is a step.
        shares: One number per row, by row id.
        weights: The weight of each edge, ``[E]``: a row is shared in proportion to these.

    Returns:
        One number per step and edge, ``[steps, E]``.
    """
    steps = [number for number, block in enumerate(graph.blocks) if block.crosses]
    width = max(1, _MOST_ENTRIES // max((graph.num_rows + 1) * len(steps), 1))
    parts = torch.arange(weights.numel(), device=weights.device).split(width)
    reaches = [_reach(graph, steps, edges) for edges in parts]
    pairs = zip(reaches, parts, strict=True)
    sizes = sum((reach.amax(dim=1) @ weights[edges] for reach, edges in pairs), torch.zeros_like(shares))
    per_weight = torch.where(sizes > 0, shares / sizes, 0.0)
    spread = []
    for reach, edges in zip(reaches, parts, strict=True):
        from_here_on = reach.flip(1).cumsum(dim=1).flip(1)
        last = reach * (from_here_on == 1)
        spread.append(torch.einsum("r,rse->se", per_weight, last) * weights[edges])
    return torch.cat(spread, dim=1) if spread else shares.new_zeros(len(steps), 0)


def _reach(graph: RowGraph, steps: list[int], edges: Tensor) -> Tensor:
    """Return which of some edges reach each row at which step, ``[rows, steps, edges]``, as ones and zeros."""
    dtype, count = torch.float64, len(edges)
    reach = torch.zeros(graph.num_rows, len(steps), count + 1, dtype=dtype, device=edges.device)
    first = int(edges[0])
    for number, block in enumerate(graph.blocks):  # a block reads only blocks made before it
        rows = reach[block.offset : block.offset + block.size]
        if block.parent.numel():
            rows.index_add_(0, block.child, reach.index_select(0, block.parent)).clamp_(max=1.0)
        if block.crosses and block.element is not None:
            place = block.element - first
            place = place.where((place >= 0) & (place < count), count).view(-1, 1)
            rows[:, steps.index(number)].scatter_(1, place, 1.0)
    return reach[:, :, :-1]
