"""Peeling: attribute, remove the most important edges, attribute what is left.

Redundant edges hide each other: while one of them is present the other is not needed, and attributions of the whole
graph give it little. Rounds uncover them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import torch
from captum.attr import Attribution, GradientAttribution
from torch import Tensor

from captum_goat.compare.graphs import Graphs
from captum_goat.inputs.targets import find_target
from captum_goat.metrics.counted_edges import CountedEdges, position_in_graph
from captum_goat.rules.quadrature import gauss_legendre

Order: TypeAlias = Literal["most_important_first", "least_important_first", "both"]
# The attributions of all edges [M], given which of them are left, bool [M]; those of removed edges are ignored.
Attribute: TypeAlias = Callable[[Tensor], Tensor]

_ROUNDING = 32.0  # times eps and the largest attribution of a graph: differences that may be due to rounding
_LONGEST_SPAN = 8.0  # times that: from the first to the last of attributions that count as equal


def peel(
    edges: CountedEdges, attribute: Attribute, rounds: int, order: Order, turns: tuple[int, int] = (1, 1)
) -> Tensor:
    """Return the place of each edge in its graph's order of importance, ``[M]``: 0 for the most important one.

    With the order ``"both"``, each order has half of the rounds, they share the first attributions, and they are merged
    by turns of so many edges from the top and from the bottom.
    """
    if order != "both":
        return _peel_from(order == "most_important_first", edges, attribute, rounds)
    first = attribute(torch.ones_like(edges.graph, dtype=torch.bool))
    top = _peel_from(True, edges, attribute, rounds // 2 + 1, first)
    bottom = _peel_from(False, edges, attribute, (rounds + 1) // 2, first)
    of_top, of_bottom = turns
    both = of_top + of_bottom
    # The turn of each edge: distinct in a graph, as there is one edge for each place of an order.
    turn = torch.minimum(
        both * (top // of_top) + top % of_top, both * (bottom // of_bottom) + of_top + bottom % of_bottom
    )
    return _ranks(edges, -turn.double(), torch.ones_like(turn, dtype=torch.bool))


def peeled_scores(
    method: Attribution, graphs: Graphs, rounds: int, order: Order, turns: tuple[int, int] = (1, 1)
) -> Tensor:
    """Return the places of edges in the order in which rounds remove them, from 1 for the most important one down.

    Removed edges are cut out of the graphs, and an edge's columns share its score, because metrics sum over them.

    Args:
        method: A method that attributes a mask of the graphs' edges.
        graphs: The graphs and their classes.
        rounds: The number of rounds, and of attributions.
        order: From which end edges are removed; ``"both"`` takes half of the rounds for each.
        turns: With ``"both"``, how many edges are taken in a turn from either end.
    """
    edges, x = graphs.edges, graphs.x

    def attribute(left: Tensor) -> Tensor:
        columns = left[edges.number]
        scores = x.new_zeros(graphs.num_edges)
        if bool(columns.any()):
            mask = x.new_ones(int(columns.sum())).requires_grad_(isinstance(method, GradientAttribution))
            arguments = (x, graphs.edge_index[:, columns], graphs.batch)
            scores[columns] = method.attribute(mask, target=graphs.target, additional_forward_args=arguments).detach()
        return edges.totals(scores)

    place, counts = peel(edges, attribute, rounds, order, turns), edges.counts[edges.graph]
    return graphs.shared((counts - place).to(x.dtype) / counts)


class UpperHalfGradients(GradientAttribution):
    r"""Integrated gradients over the upper half of the path: the mean gradient between half the mask and the mask.

    .. math:: m_e \cdot 2 \int_{1/2}^1 \frac{\partial f}{\partial m_e}(t\, m)\, dt

    A model is trained on whole graphs, and its gradients far from them mean little. ``n_steps`` is the number of
    Gauss-Legendre points.

    Examples:
        >>> import torch
        >>> from benchmarks.peeling import UpperHalfGradients
        >>> UpperHalfGradients(lambda mask: (mask**2).sum().view(1)).attribute(torch.tensor([1.0, 2.0]))  # 2 m * 0.75 m
        tensor([1.5000, 6.0000])
    """

    def __init__(self, forward_func: Any, n_steps: int = 4) -> None:
        super().__init__(forward_func)
        self.n_steps = n_steps

    def attribute(self, inputs: Tensor, target: Any = None, additional_forward_args: tuple[Any, ...] = ()) -> Tensor:
        """Attribute the sum of the targets' outputs to the mask, ``[E]`` for a whole batch of graphs."""
        mean_gradient = torch.zeros_like(inputs)
        for point, weight in gauss_legendre(2 * self.n_steps):
            mask = (inputs.detach() * (1.0 + point) / 2.0).requires_grad_()
            output = self.forward_func(mask, *additional_forward_args)
            (gradient,) = torch.autograd.grad(find_target(output, target)(output).sum(), mask)
            mean_gradient += weight * gradient
        return (mean_gradient * inputs).detach()


def share_bounds(edges: CountedEdges, rounds: int, order: Order) -> list[Tensor]:
    """Return where the shares of each graph's order begin and end, ``rounds + 1`` times ``[G]``.

    Shares differ by at most one edge; the larger ones are removed first.
    """
    counts = edges.counts
    spare = 0 if order == "least_important_first" else rounds - 1  # to round up
    return [(counts * number + spare) // rounds for number in range(rounds + 1)]


def _peel_from(
    top: bool, edges: CountedEdges, attribute: Attribute, rounds: int, first: Tensor | None = None
) -> Tensor:
    bounds = share_bounds(edges, rounds, "most_important_first" if top else "least_important_first")
    left = torch.ones_like(edges.graph, dtype=torch.bool)
    places = torch.zeros_like(edges.graph)
    for number in range(rounds):
        attributions = first if number == 0 and first is not None else attribute(left)
        share = number if top else rounds - 1 - number
        start, end = bounds[share][edges.graph], bounds[share + 1][edges.graph]
        # Edges removed from the top stand above all that are left.
        place = _ranks(edges, attributions, left) + (start if top else 0)
        taken = left & (place >= start) & (place < end)
        places = torch.where(taken, place, places)
        left = left & ~taken
    return places


def _ranks(edges: CountedEdges, values: Tensor, left: Tensor) -> Tensor:
    """Return the place of each edge among those left in its graph: 0 for the highest value, then for the first edge."""
    section = 2 * edges.graph + (~left).long()
    values = torch.where(left, values, 0.0)
    order = torch.sort(values, descending=True, stable=True).indices
    order = order[torch.sort(section[order], stable=True).indices]
    largest = values.new_zeros(edges.num_graphs).scatter_reduce_(0, edges.graph, values.abs(), "amax")
    rounding = _ROUNDING * torch.finfo(values.dtype).eps * largest[edges.graph[order]]
    number = _numbers_of_equals(values[order], section[order], rounding)
    order = torch.sort(torch.empty_like(order).scatter_(0, order, number), stable=True).indices
    place = position_in_graph(edges.graph[order], edges.num_graphs)
    return torch.empty_like(place).scatter_(0, order, place)


def _numbers_of_equals(values: Tensor, section: Tensor, rounding: Tensor) -> Tensor:
    """Number descending values from 0 on; those of a section that differ by rounding only have the same number.

    In a chain of values of which each is close to the next, but the first is not close to the last, all are distinct.
    """
    different = torch.ones_like(section, dtype=torch.bool)
    different[1:] = (values[:-1] - values[1:] > rounding[1:]) | (section[:-1] != section[1:])
    number = different.cumsum(0) - 1
    first = values[different][number]
    count = int(different.sum())
    span = values.new_zeros(count).scatter_reduce_(0, number, first - values, "amax")[number]
    return (different | (span > _LONGEST_SPAN * rounding)).cumsum(0) - 1
