"""Who plays: undirected edges, directed edges, or groups of edges; every graph or mask has a game of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.data import BaseData

from captum_goat.inputs.feature_masks import check_feature_mask
from captum_goat.inputs.graph_inputs import GraphInputs
from captum_goat.metrics.counted_edges import CountedEdges, numbered_by_first, position_in_graph

_ROUNDS = 4  # in which nodes tell their neighbours what they know


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
