"""The order in which edges leave, against one that is found by hand, graph by graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from benchmarks.peeling import Order, peel, share_bounds
from captum_goat.metrics.counted_edges import CountedEdges

ORDERS: tuple[Order, ...] = ("most_important_first", "least_important_first", "both")

SIZES = [5, 0, 1, 3, 12, 7]


def edges_of_sizes(sizes: list[int], seed: int = 0) -> CountedEdges:
    """Return edges with one column each, those of different graphs in any order."""
    graph = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    graph = graph[torch.randperm(len(graph), generator=torch.Generator().manual_seed(seed))]
    return CountedEdges(torch.arange(len(graph)), graph, len(sizes), graph)


def interacting(edges: CountedEdges, seed: int = 0) -> Callable[[Tensor], Tensor]:
    """Return attributions, of both signs, that depend on which edges of the same graph are left."""
    count = len(edges.graph)
    weight = torch.randn(count, count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    weight = weight * (edges.graph.view(-1, 1) == edges.graph)
    return lambda left: weight @ left.double()


def chunks(edges: list[int], rounds: int) -> Iterator[int]:
    """Return how many edges leave in each round."""
    gone = 0
    for number in range(1, rounds + 1):
        due = -(-number * len(edges) // rounds)
        yield due - gone
        gone = due


def peel_by_hand(
    edges: list[int], values: Callable[[list[int]], dict[int, float]], rounds: int, top: bool
) -> list[int]:
    """Return the edges of one graph, the most important one first."""
    left, found = list(edges), []
    for size in chunks(edges, rounds):
        value = values(left)
        ranked = sorted(left, key=lambda edge: (-value[edge], edge))
        taken = ranked[:size] if top else ranked[len(ranked) - size :]
        found = found + taken if top else taken + found
        left = [edge for edge in left if edge not in taken]
    assert not left
    return found


def turns(one: list[int], other: list[int]) -> list[int]:
    """Let two orders take turns in naming the next edge."""
    found: list[int] = []
    for pair in zip(one, other, strict=True):
        found += [edge for edge in dict.fromkeys(pair) if edge not in found]
    return found


@pytest.mark.parametrize("rounds", [1, 2, 3, 5, 8, 20])
@pytest.mark.parametrize("order", ORDERS)
def test_places_are_those_found_by_hand(order: Order, rounds: int) -> None:
    edges = edges_of_sizes(SIZES, seed=rounds)
    attribute = interacting(edges, seed=rounds)
    place = peel(edges, attribute, rounds, order)

    def values(left: list[int]) -> dict[int, float]:
        present = torch.zeros(len(edges.graph), dtype=torch.bool)
        present[left] = True
        return dict(enumerate(attribute(present).tolist()))

    for graph in range(len(SIZES)):
        own = (edges.graph == graph).nonzero().view(-1).tolist()
        if order == "both":
            top, bottom = (
                peel_by_hand(own, values, rounds // 2 + 1, True),
                peel_by_hand(own, values, (rounds + 1) // 2, False),
            )
            expected = turns(top, bottom)
        else:
            expected = peel_by_hand(own, values, rounds, order == "most_important_first")
        assert sorted(own, key=lambda edge: int(place[edge])) == expected
        assert sorted(place[own].tolist()) == list(range(len(own)))


@pytest.mark.parametrize("counts", [(1, 1), (2, 1), (1, 3), (3, 2)])
def test_orders_name_edges_in_turns_of_several(counts: tuple[int, int]) -> None:
    edges = edges_of_sizes([11], seed=1)
    attribute = interacting(edges, seed=1)
    top = peel(edges, attribute, 5, "most_important_first").argsort().tolist()
    bottom = peel(edges, attribute, 4, "least_important_first").argsort().tolist()
    named = []
    while top or bottom:
        named += top[: counts[0]] + bottom[: counts[1]]
        top, bottom = top[counts[0] :], bottom[counts[1] :]
    assert peel(edges, attribute, 8, "both", counts).argsort().tolist() == list(dict.fromkeys(named))


@pytest.mark.parametrize("rounds", [1, 2, 3, 4, 8, 9])
@pytest.mark.parametrize("order", ORDERS)
def test_one_attribution_per_round(order: Order, rounds: int) -> None:
    edges, seen = edges_of_sizes(SIZES), []
    attribute = interacting(edges)

    def counted(left: Tensor) -> Tensor:
        seen.append(left)
        return attribute(left)

    peel(edges, counted, rounds, order)
    assert len(seen) == rounds
    assert seen[0].all()


@pytest.mark.parametrize("rounds", [1, 3, 5, 8])
@pytest.mark.parametrize("order", ORDERS)
def test_shares_are_equal_but_for_one_edge(order: Order, rounds: int) -> None:
    bounds = torch.stack(share_bounds(edges_of_sizes(SIZES), rounds, order))
    assert bounds[0].tolist() == [0] * len(SIZES)
    assert bounds[-1].tolist() == SIZES
    sizes = bounds.diff(dim=0)
    for graph, edges in enumerate(SIZES):
        assert set(sizes[:, graph].tolist()) <= {edges // rounds, -(-edges // rounds)}
        first = 0 if order != "least_important_first" else -1
        assert sizes[first, graph] == -(-edges // rounds)  # whatever there is, some of it leaves in the first round


def test_edges_leave_in_shares() -> None:
    edges, seen = edges_of_sizes([12, 3]), []

    def attribute(left: Tensor) -> Tensor:
        seen.append(edges.per_graph(left.long()).tolist())
        return torch.zeros(15)

    peel(edges, attribute, 5, "most_important_first")
    assert seen == [[12, 3], [9, 2], [7, 1], [4, 1], [2, 0]]
    seen.clear()
    peel(edges, attribute, 5, "least_important_first")
    assert seen == [[12, 3], [9, 2], [7, 1], [4, 1], [2, 0]]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_edges_that_differ_by_rounding_are_in_their_order(order: Order, dtype: torch.dtype) -> None:
    edges = edges_of_sizes([6, 6])
    alike = torch.where(edges.graph == 0, 1e-20, 1e20).to(dtype)  # each graph has its own scale
    noise = 1 + 4 * torch.finfo(dtype).eps * torch.randn(12, generator=torch.Generator().manual_seed(0), dtype=dtype)
    for sign in (1.0, -1.0, 0.0):
        place = peel(edges, lambda _, sign=sign: sign * alike * noise, 3, order)  # type: ignore[misc]
        for graph in range(2):
            assert place[edges.graph == graph].tolist() == list(range(6))


@pytest.mark.slow
def test_many_close_values_are_told_apart() -> None:
    values = torch.linspace(1.0, 0.0, 1_000_000)  # closer than what may be rounding between two that are alike
    edges = edges_of_sizes([len(values)])
    mixed = torch.randperm(len(values), generator=torch.Generator().manual_seed(0))
    place = peel(edges, lambda _: values[mixed], 1, "most_important_first")
    assert torch.equal(values[mixed][place.argsort()], values)


def test_smallest_numbers() -> None:
    edges, tiny = edges_of_sizes([3]), torch.tensor([1.0, 3.0, 2.0]) * 1e-44
    assert peel(edges, lambda _: tiny, 1, "both").tolist() == [2, 0, 1]
