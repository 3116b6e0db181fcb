"""What replicas of a pattern need that depends on its rows alone, so that a graph that is known has it already."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from captum_goat.method.quadrature import Point, points
from captum_goat.method.replay import ActivationPattern


class _Replica(NamedTuple):
    """One point of the integral of one of two patterns: 0, that of the graph, or 1, that without edges."""

    pattern: int
    point: Point


def replicas_of(pattern: ActivationPattern) -> list[_Replica]:
    """Return the replicas: the model itself, the model without edges, and the points of both integrals."""
    assert pattern.rows is not None
    found = [_Replica(number, each) for number in (0, 1) for each in points(pattern.rows, inputs=number == 0)]
    whole = Point(1.0, None, 0.0)
    return [_Replica(0, whole), _Replica(1, whole), *found]


class ReplicaPlan:
    """The scales and weights of all replicas, and where gradients go.

    Args:
        pattern: The pattern.

    Attributes:
        nowhere_zero: Whether no replica has gates with scale 0.
        which: The pattern of each replica ``[R]``, 0 or 1, which is also the number of the replica it takes numbers of.
        own: The scale of edges and features in each replica ``[R]``.
        weights: The weights of the points of the integrals over variables, and over frozen numbers, ``[2, R]`` each:
            one line per pattern.
        scales: The scales of the rows of each factor, ``[R, ...]``.
        edges: The edges of each call of a message function; the number of edges where there is none.
        rows: The rows of each factor; the number of rows where they are constants.
    """

    def __init__(self, pattern: ActivationPattern) -> None:
        replicas, mask = replicas_of(pattern), pattern.subject.mask
        numbers, found = [each.pattern for each in replicas], [each.point for each in replicas]
        dtype, device = pattern.sum_dtype, mask.device
        self.nowhere_zero = all(each.t != 0.0 for each in found)
        self.which = torch.tensor(numbers, device=device)
        t = torch.tensor([each.t for each in found], dtype=dtype, device=device)
        s = t.new_tensor([1.0 if each.frozen is None else each.frozen for each in found])
        weights = t.new_tensor([each.weight for each in found])
        over_frozen = torch.tensor([each.frozen is not None for each in found], device=device)
        of_pattern = self.which == torch.arange(2, device=device).view(2, 1)
        self.weights = weights * of_pattern * ~over_frozen, weights * of_pattern * over_frozen
        self.own = t * of_pattern[0]
        self.scales = [between(each.scale(0.0), each.scale(1.0), t if each.gates else s) for each in pattern.factors]
        self.edges = [_places(call.edges, mask.numel()) for call in pattern.messages]
        self.rows = [
            _places(each.rows.ids.masked_fill(~each.variable, -1), pattern.graph.num_rows) for each in pattern.factors
        ]


def between(zero: Tensor, one: Tensor, scales: Tensor) -> Tensor:
    """Return for each replica what is ``zero`` at scale 0 and ``one`` at scale 1."""
    return zero + scales.to(zero.dtype).view(-1, *[1] * zero.dim()) * (one - zero)


def _places(ids: Tensor, count: int) -> Tensor:
    flat = ids.reshape(-1)
    return flat.where(flat >= 0, count)
