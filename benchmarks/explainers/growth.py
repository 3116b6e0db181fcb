"""Connected sets of nodes that grow from seeds by one node at a time, in all graphs of a batch at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch_geometric.utils import remove_self_loops, softmax, to_undirected

from captum_goat.compare.graphs import Graphs
from captum_goat.metrics.counted_edges import sums

NEVER = torch.iinfo(torch.long).max  # the place of a node that has not joined
STOP = -1  # in place of a node, where a graph stops
FORBIDDEN = -1e9  # the logit of what is done only if there is nothing else to do
NEARLY = 1e-4  # logits that differ by less count as equal: by rounding, those of a graph alone and in a batch differ


@dataclass(frozen=True)
class Neighbours:
    """Which nodes are next to each other, whatever the directions of edges; a node is not next to itself.

    Attributes:
        source: One node of each pair, both ways round, ``[P]``.
        target: The other one, ``[P]``.
        batch: The graph of each node, ``[N]``.
        num_graphs: G, the number of graphs.

    Examples::

        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from captum_goat.compare.graphs import Graphs
        >>> from benchmarks.explainers.growth import Neighbours
        >>> path = Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0, 2, 2], [1, 1, 2]]))  # 0 - 1 - 2
        >>> near = Neighbours.of(Graphs.of(path, torch.tensor([0])))
        >>> near.source, near.target
        (tensor([0, 1, 1, 2]), tensor([1, 0, 2, 1]))
    """

    source: Tensor
    target: Tensor
    batch: Tensor
    num_graphs: int

    @classmethod
    def of(cls, graphs: Graphs) -> Neighbours:
        """Find the neighbours in graphs."""
        source, target = to_undirected(remove_self_loops(graphs.edge_index)[0], num_nodes=len(graphs.x))
        return cls(source, target, graphs.batch, len(graphs.target))

    @cached_property
    def number(self) -> Tensor:
        """The number of each node's neighbours, ``[N]``."""
        return self.source.bincount(minlength=len(self.batch))

    def spread(self, values: Tensor, hops: int, restart: float) -> Tensor:
        r"""Spread the values of nodes ``[N, F]`` over their surroundings, as personalised PageRank does (APPNP).

        .. math:: Z_0 = X, \quad Z_{k+1} = (1 - r) \, D^{-1/2} A D^{-1/2} Z_k + r X,

        with :math:`A` the neighbours, :math:`D` their numbers and :math:`r` the share that returns to the start.
        """
        weight = (self.number[self.source] * self.number[self.target]).to(values.dtype).rsqrt().view(-1, 1)
        spread = values
        for _ in range(hops):
            arrived = torch.zeros_like(values).index_add_(0, self.target, weight * spread[self.source])
            spread = (1 - restart) * arrived + restart * values
        return spread


@dataclass(frozen=True)
class Growth:
    """One connected set of nodes per graph.

    Attributes:
        near: The neighbours.
        place: How many nodes of its graph had joined before a node did, ``[N]``: 0 for seeds, :data:`NEVER` for nodes
            that have not joined.
        open: Which graphs have not stopped, bool ``[G]``.
    """

    near: Neighbours
    place: Tensor
    open: Tensor

    @classmethod
    def at(cls, near: Neighbours, seeds: Tensor) -> Growth:
        """Start with sets of one node, at most one in a graph."""
        place = torch.full_like(near.batch, NEVER).index_fill_(0, seeds, 0)
        return cls(near, place, torch.ones(near.num_graphs, dtype=torch.bool, device=place.device))

    @cached_property
    def inside(self) -> Tensor:
        """Which nodes have joined, bool ``[N]``."""
        return self.place != NEVER

    @cached_property
    def sizes(self) -> Tensor:
        """How many nodes have joined in each graph, ``[G]``."""
        return sums(self.inside.long(), self.near.batch, self.near.num_graphs)

    @cached_property
    def boundary(self) -> Tensor:
        """The nodes that may join next, in ascending order: what is next to a set, in graphs that have not stopped."""
        touched = torch.zeros_like(self.inside)
        touched[self.near.target[self.inside[self.near.source]]] = True
        return (touched & ~self.inside & self.open[self.near.batch]).nonzero().view(-1)

    @cached_property
    def radius(self) -> Tensor:
        """The largest distance of a node from the seed, along edges inside of the set, ``[G]``."""
        here = self.inside[self.near.source] & self.inside[self.near.target]
        source, target = self.near.source[here], self.near.target[here]
        last, left = self.place == 0, self.inside & (self.place != 0)
        radius, distance = torch.zeros_like(self.sizes), 0
        while bool(last.any()):
            radius[self.near.batch[last]] = distance
            last = torch.zeros_like(last).index_fill_(0, target[last[source]], True) & left
            left, distance = left & ~last, distance + 1
        return radius

    def cut(self, sizes: Tensor) -> Growth:
        """Return the sets as they were when they had these sizes ``[G]``; smaller ones as they are."""
        return replace(self, place=torch.where(self.place < sizes[self.near.batch], self.place, NEVER))

    def reopened(self) -> Growth:
        """Return the same sets, free to grow on."""
        return replace(self, open=torch.ones_like(self.open))

    def after(self, nodes: Tensor, graphs: Tensor) -> Growth:
        """Return the sets after some nodes have joined; graphs whose node is :data:`STOP` stop."""
        joins = nodes != STOP
        place = self.place.index_copy(0, nodes[joins], self.sizes[graphs[joins]])
        return replace(self, place=place, open=self.open.index_fill(0, graphs[~joins], False))


class Actions(NamedTuple):
    """What graphs may do next: let a node of the boundary join or, last of all, stop.

    Attributes:
        node: The node that joins, or :data:`STOP`, ``[A]``.
        graph: The graph that may do this, ``[A]``.
        logit: How likely that is, ``[A]``.
    """

    node: Tensor
    graph: Tensor
    logit: Tensor


Scorer: TypeAlias = Callable[[Growth], tuple[Tensor, Tensor]]  # the logits of the boundary's nodes, and of stops [G]
Chooser: TypeAlias = Callable[[Growth, Actions], Tensor]  # the number of one action for each graph that is open


def grow(start: Growth, scorer: Scorer, choose: Chooser, limit: int) -> tuple[Growth, Tensor]:
    """Let sets grow, all graphs in step, until each has stopped or is large enough.

    A graph's actions have the softmax of their logits as probabilities. Without a boundary it can only stop.

    Args:
        start: The sets to start with.
        scorer: Tells the logits.
        choose: Chooses the actions.
        limit: The number of nodes that is large enough.

    Returns:
        The sets, and the logarithm of the probability of all that was chosen, ``[G]``.

    Examples::

        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from captum_goat.compare.graphs import Graphs
        >>> from benchmarks.explainers.growth import Growth, Neighbours, best, grow, uniform
        >>> path = Data(x=torch.ones(4, 1), edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]))  # 0 - 1 - 2 - 3
        >>> start = Growth.at(Neighbours.of(Graphs.of(path, torch.tensor([0]))), torch.tensor([2]))
        >>> grown, log_probability = grow(start, uniform, best, limit=3)
        >>> grown.inside, log_probability  # node 1, which might have been 3, and then node 0, which might have been 3
        (tensor([ True,  True,  True, False]), tensor([-1.3863]))
    """
    growth, count = start, start.near.num_graphs
    total = torch.zeros(count, device=start.place.device)
    while True:
        growth = replace(growth, open=growth.open & (growth.sizes < limit))
        graphs = growth.open.nonzero().view(-1)
        if not len(graphs):
            return growth, total
        nodes, stops = scorer(growth)
        actions = Actions(
            torch.cat([growth.boundary, torch.full_like(graphs, STOP)]),
            torch.cat([growth.near.batch[growth.boundary], graphs]),
            torch.cat([nodes, stops[graphs]]),
        )
        chosen = choose(growth, actions)
        probability = softmax(actions.logit, actions.graph, num_nodes=count)[chosen]
        total = total.to(probability).index_add(0, actions.graph[chosen], probability.clamp(min=1e-12).log())
        growth = growth.after(actions.node[chosen], actions.graph[chosen])


def uniform(growth: Growth) -> tuple[Tensor, Tensor]:
    """Give the same logits to all nodes, and never stop before a graph has to."""
    device = growth.place.device
    return torch.zeros(len(growth.boundary), device=device), torch.full(growth.open.shape, FORBIDDEN, device=device)


def best(growth: Growth, actions: Actions) -> Tensor:
    """Choose the actions with the highest logits; of those that are nearly equal, the first."""
    return first_highest(actions.logit, actions.graph, len(growth.open), NEARLY)


def sampled(growth: Growth, actions: Actions) -> Tensor:
    """Choose actions at random, by their probabilities."""
    noise = -torch.empty_like(actions.logit).exponential_().log()  # Gumbel's: the highest sum is such a choice
    return first_highest(actions.logit.detach() + noise, actions.graph, len(growth.open))


def repeating(example: Growth) -> Chooser:
    """Return a chooser that repeats the growth of given sets: the same nodes in the same order, then stop."""

    def choose(growth: Growth, actions: Actions) -> Tensor:
        joined_next = example.place[actions.node] == growth.sizes[actions.graph]
        wanted = torch.where(actions.node == STOP, 0.5, joined_next.float())
        return first_highest(wanted, actions.graph, len(growth.open))

    return choose


def first_highest(values: Tensor, graph: Tensor, num_graphs: int, nearly: float = 0.0) -> Tensor:
    """Return the number of each graph's highest value, for graphs that have values, in the order of the graphs.

    Args:
        values: Values ``[A]``.
        graph: The graph of each, ``[A]``.
        num_graphs: The number of graphs.
        nearly: How far below the highest value others count as equal to it, times 1 more than its size. The first of
            equal ones is taken.

    Examples::

        >>> import torch
        >>> from benchmarks.explainers.growth import first_highest
        >>> first_highest(torch.tensor([2.0, 1.0, 3.0, 1.0, 1.0]), torch.tensor([0, 2, 0, 2, 2]), 3)
        tensor([2, 1])
    """
    highest = values.new_full((num_graphs,), -torch.inf).scatter_reduce(0, graph, values, "amax")[graph]
    position = torch.arange(len(values), device=values.device)
    equal = values >= highest - nearly * (1 + highest.abs())
    first = position.new_full((num_graphs,), len(values))
    first = first.scatter_reduce(0, graph, torch.where(equal, position, len(values)), "amin")
    return first[first < len(values)]
