r"""Games of edges: who plays in which order, which coalitions are drawn, and the regression that solves them.

Players are undirected edges, directed edges, or groups of edges; every graph or mask has a game of its own. A pair of
coalitions, S and its complement, tells by :math:`u_S = (v(S) - v(\bar S) + v(N) - v(\emptyset)) / 2` what the
players in S have together; what is left out, :math:`v(S) + v(\bar S)`, does not depend on Shapley values. The
regression looks for values :math:`\varphi = r + F a`, F being the guides, with the smallest

.. math:: \sum_S 2 w_S \big(u_S - \sum_{i \in S} \varphi_i\big)^2 + \lambda \, |r|^2 + \frac{\lambda}{100} \, |a|^2

subject to :math:`\sum_i \varphi_i = v(N) - v(\emptyset)`. It is solved as what it is to a Bayesian: the mean of
:math:`\varphi` given the :math:`u_S`, if :math:`\varphi` has the covariance :math:`C = I + 100\,F F^T` before, and the
sum as given beforehand. The equations are as many as pairs, however many players there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.data import BaseData

from captum_goat.inputs.feature_masks import check_feature_mask
from captum_goat.inputs.graph_inputs import GraphInputs
from captum_goat.metrics.counted_edges import CountedEdges, numbered_by_first, position_in_graph

if TYPE_CHECKING:
    from captum_goat.shapley.edge_attribution import EdgeValues

_ROUNDS = 4  # in which nodes tell their neighbours what they know
_MOST_PLAYERS, _GROUPS = 1000, 256  # of a game, before players are put into groups; and how many groups then
_SAME_SCORE = 0.01  # guides that differ by less, relative to their norm, do not order edges that are alike
_GUIDE_VARIANCE = 100.0  # of the coefficients of guides, relative to that of a player's own part
_CANDIDATES = 16  # random sets among which each coalition is chosen
_MANY_PLAYERS = 2000  # beyond, random sets are nearly orthogonal anyway


@dataclass(frozen=True)
class Players:
    """The players of G games. A column is an edge of a mask; the columns of a player come and go together."""

    number: Tensor  # the player of each column, ``[columns]``; -1 for edges that are masked to 0, which do not play
    game: Tensor  # the game of each player, ``[P]``
    num_games: int  # G
    shared: bool = False  # whether the columns of a player share its value, or each has it

    @classmethod
    def of(cls, keys: Tensor, games: Tensor, num_games: int, plays: Tensor, shared: bool) -> Players:
        """Make the columns that play, and have the same game and the same key (from 0 on), one player."""
        number = torch.full_like(keys, -1)
        pairs = games[plays] * (int(keys.max()) + 1 if keys.numel() else 1) + keys[plays]
        number[plays], first = numbered_by_first(pairs)
        return cls(number, games[plays][first], num_games, shared)

    @property
    def counts(self) -> Tensor:
        """The number of players of each game, ``[G]``."""
        return self.game.bincount(minlength=self.num_games)

    def ranks(self, *keys: Tensor) -> Tensor:
        """Number the players of each game from 0 on, ``[P]``, by the first of the keys ``[P]``, then the next, ..."""
        return position_in_graph(self.game, self.num_games, *keys)

    def totals(self, values: Tensor) -> Tensor:
        """Return the sums over the columns of each player, ``[P, ...]`` from ``[columns, ...]``."""
        plays = self.number >= 0
        totals = values.new_zeros(len(self.game), *values.shape[1:])
        return totals.index_add_(0, self.number[plays], values[plays])

    def sums(self, values: Tensor) -> Tensor:
        """Return the sums over the players of each game, ``[G]`` from ``[P]``."""
        return values.new_zeros(self.num_games).index_add_(0, self.game, values)

    def per_column(self, values: Tensor) -> Tensor:
        """Return the values ``[..., P]`` of the columns' players, ``[..., columns]``; 0 for edges that do not play."""
        padded = torch.cat([values, values.new_zeros(*values.shape[:-1], 1)], dim=-1)  # the player -1 is the last entry
        return padded[..., self.number]

    def per_mask(self, values: Tensor, masks: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return values ``[P]`` in the shapes of the masks."""
        values = values / self.totals(torch.ones_like(self.number)).clamp(min=1) if self.shared else values
        columns = self.per_column(values).view(len(torch.atleast_2d(masks[0])), -1)
        parts = columns.split([mask.size(-1) for mask in masks], dim=1)
        return tuple(part.reshape(mask.shape) for part, mask in zip(parts, masks, strict=True))


def mixed(numbers: Tensor) -> Tensor:
    """Return other integers that look random, by the multiplications and shifts of splitmix64."""
    for factor, shift in ((-0x61C8864680B583EB, 30), (-0x40A7B892E31B1A47, 27), (-0x6B2FB644ECCEEE15, 31)):
        numbers = (numbers ^ (numbers >> shift)) * factor
    return numbers


def structure_of_columns(graph: GraphInputs, num_masks: int) -> Tensor:
    """Return an integer for each column that tells where its edge is in the graph, whatever the numbers of nodes are.

    It is the Weisfeiler-Leman colour of the edge, for each set of edges alone. Nodes as sources and as targets are
    different nodes, which they are in heterogeneous graphs.
    """
    columns = []
    for number, edges in enumerate(graph.edge_sets):
        source, target = (nodes.unique(return_inverse=True)[1] for nodes in edges)
        sources, targets = torch.ones_like(source), torch.ones_like(target)
        for _ in range(_ROUNDS):
            to_targets, to_sources = mixed(sources + number)[source], mixed(targets)[target]
            sources, targets = sources.index_add(0, source, to_sources), targets.index_add(0, target, to_targets)
        columns.append(mixed(mixed(sources)[source] + 3 * mixed(targets)[target] + number))
    return torch.cat(columns).repeat(num_masks)


def games_of_columns(graph: GraphInputs, num_masks: int | None, num_games: int) -> Tensor:
    """Return the game of each column: one for each mask, or, without ``num_masks``, for each graph of a batch."""
    columns, device = sum(edges.size(1) for edges in graph.edge_sets), graph.edge_sets[0].device
    if num_masks is not None or num_games == 1:
        return torch.arange(num_masks or 1, device=device).repeat_interleave(columns)
    games = []
    for number, edges in enumerate(graph.edge_sets):
        batch = _graph_of_nodes(graph, number)
        if batch is None or (batch.numel() and int(batch.max()) >= num_games):
            raise ValueError(
                f"Expected one explained number for each graph of a batch, and an argument 'batch' with the graph of "
                f"each node (got {num_games} numbers). Choose one row of the output by a target such as (node, class)."
            )
        games.append(batch[edges[0]])
    return torch.cat(games)


def edge_keys(graph: GraphInputs, num_masks: int) -> Tensor:
    """Number the edges ``[columns]``: both directions of an edge have one number in graphs that are undirected.

    Edges between nodes of two types, as heterogeneous graphs have them, are directed.
    """
    keys: list[Tensor] = []
    first = 0
    for place, edges in zip(graph.edges, graph.edge_sets, strict=True):
        nodes = int(edges.max()) + 1 if edges.numel() else 0
        bipartite = isinstance(place.key, tuple) and place.key[0] != place.key[-1]
        batch = None if bipartite else _graph_of_nodes(graph, len(keys))
        data = Data(edge_index=edges, num_nodes=nodes, batch=None if batch is None else batch[:nodes])
        counted = CountedEdges.of(data, False if bipartite else None)
        keys.append(first + counted.number)
        first += len(counted.graph)
    return torch.cat(keys).repeat(num_masks)


def _graph_of_nodes(graph: GraphInputs, number: int) -> Tensor | None:
    """Return the graph of each node at which the edges of a set start; ``None`` if that is not known."""
    place, arguments = graph.edges[number], graph.arguments
    holder: Any = arguments[place.name]
    if isinstance(holder, BaseData):
        store = holder[place.key[0]] if isinstance(holder, HeteroData) else holder
        batch = store.batch if "batch" in store else None
    elif isinstance(place.key, tuple):
        dictionaries = [value for name, value in arguments.items() if "batch" in name and isinstance(value, dict)]
        batch = dictionaries[0].get(place.key[0]) if dictionaries else None
    else:
        batch = arguments.get("batch")
    return batch if isinstance(batch, Tensor) else None


def group_keys(feature_masks: Sequence[Any], masks: Sequence[Tensor]) -> Tensor:
    """Return the group of each column, given feature masks; raise ValueError if they do not fit the edge masks."""
    if len(feature_masks) != len(masks):
        raise ValueError(f"Expected one feature mask per edge mask (got {len(feature_masks)} for {len(masks)} masks).")
    columns = []
    for groups, mask in zip(feature_masks, masks, strict=True):
        check_feature_mask(groups, mask)
        columns.append(torch.atleast_2d(groups.to(mask.device).expand(mask.shape)))
    return torch.cat(columns, dim=1).view(-1).long()


class Coalitions(NamedTuple):
    """Pairs of coalitions of M players: a set and its complement, neither of them empty."""

    members: Tensor  # who is in the set, bool ``[pairs, M]``; the others are in its complement
    weights: Tensor  # the weight of each pair in the regression, with mean 1, ``[pairs]``
    is_complete: bool  # whether these are all coalitions, each once


@lru_cache(maxsize=256)
def draw_coalitions(num_players: int, num_pairs: int, seed: int) -> Coalitions:
    """Return all pairs of coalitions if there are at most ``num_pairs``, else as many at random.

    The sizes of the sets are spread evenly over 1 to M - 1. A set of s players then stands for what the Shapley kernel
    gives to its size, so its weight is proportional to 1 / (s (M - s)). Each set is the one of several random sets of
    its size that has the least in common with those drawn before: nearly orthogonal rows tell players apart best.
    """
    if num_players < 2:
        return Coalitions(torch.zeros(0, num_players, dtype=torch.bool), torch.ones(0, dtype=torch.double), True)
    if num_players <= 31 and 2 ** (num_players - 1) - 1 <= num_pairs:
        codes = torch.arange(1, 2 ** (num_players - 1)).unsqueeze(1)
        members = (codes >> torch.arange(num_players)) % 2 == 1
        return Coalitions(members, torch.ones(len(members), dtype=torch.double), True)
    random = np.random.default_rng(seed)
    strata = (np.arange(num_pairs) + random.random(num_pairs)) / num_pairs
    sizes = 1 + (strata * (num_players - 1)).astype(np.int64)
    sizes = random.permutation(np.minimum(sizes, num_players - sizes))
    weights = 1.0 / (sizes * (num_players - sizes))
    chosen = np.zeros((num_pairs, num_players), dtype=bool)
    rows = np.zeros((num_pairs, num_players))  # the sets, centred and scaled to norm 1
    candidates = _CANDIDATES if num_players <= _MANY_PLAYERS else 1
    for number, size in enumerate(sizes):
        order = np.argpartition(random.random((candidates, num_players)), size - 1, axis=1)[:, :size]
        sets = np.zeros((candidates, num_players), dtype=bool)
        np.put_along_axis(sets, order, True, axis=1)
        centred = (sets - size / num_players) / np.sqrt(size * (1 - size / num_players))
        best = int(np.square(centred @ rows[:number].T).sum(axis=1).argmin())
        chosen[number], rows[number] = sets[best], centred[best]
    return Coalitions(torch.from_numpy(chosen), torch.from_numpy(weights / weights.mean()), False)


class Games:
    """The coalitions of all games. Games with as many players have the same ones, with players in other orders.

    The order depends on where players are in the graph (``structure``, integers ``[P]``) and on their guides
    ``[P, K]``, not on their numbers. In very large games, groups of neighbours in the guides' order play instead.
    """

    def __init__(self, players: Players, guides: Tensor, structure: Tensor, n_samples: int, seed: int) -> None:
        counts, game, self._guides = players.counts, players.game, guides
        norms = guides.new_zeros(players.num_games, guides.size(1)).index_add_(0, game, guides.square()).sqrt()
        scores = torch.where(norms[game] > 0, guides / norms[game], 0.0).sum(dim=1)
        scores, size = -(scores / _SAME_SCORE).round(), counts[game]
        by_guides, by_structure = players.ranks(scores, structure), players.ranks(structure, scores)
        number = torch.where(size > _MOST_PLAYERS, by_guides * _GROUPS // size, by_structure)
        self._groups, first = numbered_by_first(game * (int(counts.max()) + 1 if len(counts) else 1) + number)
        columns = torch.cat([self._groups, self._groups.new_full((1,), -1)])[players.number]
        self._players = players = Players(columns, game[first], players.num_games)
        signatures = torch.zeros_like(counts).index_add_(0, game, structure)[players.game]
        position = players.ranks(mixed(signatures + mixed(number[first] + 1)))
        counts = players.counts
        self._drawn: list[tuple[Coalitions, Tensor, Tensor]] = []  # with the games, and their players [games, M]
        for count in counts.unique().tolist():
            games = (counts == count).nonzero().view(-1)
            mine = (counts == count)[players.game].nonzero().view(-1)
            place = players.game[mine] * max(count, 1) + position[mine]
            drawn = draw_coalitions(count, n_samples // 2, seed)
            self._drawn.append((drawn, games, mine[place.argsort()].view(len(games), count)))

    def differences(self, values: EdgeValues, advance: Callable[[int], object]) -> Tensor:
        """Evaluate all coalitions; return what each is worth more than its complement, ``[pairs, G]``."""
        number, device = self._players.number, self._players.number.device
        num_pairs = max((len(drawn.members) for drawn, _, _ in self._drawn), default=0)
        if not num_pairs:
            return values.whole.new_zeros(0, len(values.whole))
        # A game with fewer pairs than others repeats the one of no players; the last column is for absent edges.
        members = torch.zeros(num_pairs, len(self._players.game) + 1, dtype=torch.bool, device=device)
        for drawn, _, mine in self._drawn:
            rows = torch.arange(len(drawn.members), device=device)
            members[rows.view(-1, 1, 1), mine] = drawn.members.to(device).unsqueeze(1)
        kept = members[:, number]
        pairs = torch.stack([kept, ~kept & (number >= 0)], dim=1)
        return -values(pairs.flatten(0, 1), advance).view(num_pairs, 2, -1).diff(dim=1).squeeze(1)

    def solve(self, differences: Tensor, totals: Tensor, regularization: float) -> tuple[Tensor, Tensor]:
        """Return the values of all players and their standard errors, ``[P]``.

        What guides do not explain of a group's value is shared equally in it.
        """
        count, guides, groups = len(self._players.game), self._guides, self._groups
        of_groups = guides.new_zeros(count, guides.size(1)).index_add_(0, groups, guides)
        own, errors = totals.new_zeros(count), totals.new_zeros(count)
        factors = torch.zeros_like(of_groups)  # what a guide has to be multiplied with, for each group
        for drawn, games, mine in self._drawn:
            if not mine.numel():
                continue
            measured = differences[: len(drawn.members), games].t()
            if drawn.is_complete:
                own[mine] = exact_values(drawn, measured, totals[games])
                continue
            norms = of_groups[mine].norm(dim=1, keepdim=True)
            normed = torch.where(norms > 0, of_groups[mine] / norms, 0.0)
            values, errors[mine] = guided_values(drawn, measured, totals[games], normed, regularization)
            # The coefficients of guides, given the values: those of a ridge regression.
            ridge = torch.eye(guides.size(1)).to(normed) / _GUIDE_VARIANCE
            coefficients = torch.linalg.solve(normed.mT @ normed + ridge, normed.mT @ values.unsqueeze(2))
            own[mine] = values - (normed @ coefficients).squeeze(2)
            factors[mine] = torch.where(norms > 0, coefficients.mT / norms, 0.0).expand_as(normed)
        sizes = groups.bincount(minlength=count)
        return (guides * factors[groups]).sum(dim=1) + (own / sizes)[groups], (errors / sizes)[groups]


def exact_values(coalitions: Coalitions, differences: Tensor, totals: Tensor) -> Tensor:
    """Return the Shapley values ``[G, M]``, given all coalitions; the other arguments as in :func:`guided_values`."""
    members, num_players = coalitions.members.to(differences.device), coalitions.members.size(1)
    sizes = members.sum(dim=1, keepdim=True).double()
    others = torch.where(members, sizes - 1, sizes)  # in a set that the player joins
    last = torch.tensor(float(num_players), dtype=torch.double, device=members.device)
    weights = torch.exp(torch.lgamma(others + 1) + torch.lgamma(last - others) - torch.lgamma(last + 1))
    return differences @ torch.where(members, weights, -weights) + (totals / num_players).unsqueeze(1)


def guided_values(
    coalitions: Coalitions, differences: Tensor, totals: Tensor, guides: Tensor, regularization: float
) -> tuple[Tensor, Tensor]:
    """Return estimated Shapley values of G games and their standard errors, ``[G, M]``, from some coalitions.

    ``differences`` are v(S) minus v of the complement, ``[G, pairs]``; ``totals`` v(all players) minus v(no players),
    ``[G]``; ``guides`` have norm 1 or 0 each, ``[G, M, K]``; ``regularization`` is lambda.
    """
    members, weights = coalitions.members.to(differences), coalitions.weights.to(differences)
    # The covariance of each value with the total, [G, M].
    to_total = 1.0 + _GUIDE_VARIANCE * (guides * guides.sum(dim=1, keepdim=True)).sum(dim=2)
    share = to_total / to_total.sum(dim=1, keepdim=True)
    prior = share * totals.unsqueeze(1)
    to_pairs = members.t() + _GUIDE_VARIANCE * guides @ (members @ guides).mT  # with each u_S, [G, M, pairs]
    to_pairs = to_pairs - share.unsqueeze(2) * to_pairs.sum(dim=1, keepdim=True)  # given the total
    root = torch.linalg.cholesky(members @ to_pairs + torch.diag(regularization / (2.0 * weights)))
    surprise = (differences + totals.unsqueeze(1)) / 2.0 - prior @ members.t()
    solved = torch.cholesky_solve(surprise.unsqueeze(2), root)  # [G, pairs, 1]
    values = prior + (to_pairs @ solved).squeeze(2)
    values = values + (totals - values.sum(dim=1)).unsqueeze(1) / values.size(1)  # rounding
    free = max(1, members.size(0) - guides.size(2))  # the coefficients of guides are nearly unpenalised
    scale = (surprise * solved.squeeze(2)).sum(dim=1, keepdim=True) / free
    before = 1.0 + _GUIDE_VARIANCE * guides.square().sum(dim=2) - share * to_total
    known = torch.linalg.solve_triangular(root, to_pairs.mT, upper=False).square().sum(dim=1)
    return values, (scale * (before - known)).clamp(min=0.0).sqrt()
