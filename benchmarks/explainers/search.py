"""The search for edge sets as an explainer, and its control: swaps that are measured, but drawn at random."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import Module

from captum_goat.compare.explainers.graphs import Graphs
from captum_goat.compare.explainers.interface import Explainer
from captum_goat.search import EdgeSetSearch
from captum_goat.search.swaps import SwapSearch


class RandomSwaps(SwapSearch):
    """Swaps of random edges, which are measured as the others are."""

    _draws = 0

    def preferences(self, level: Tensor, scale: Tensor) -> Tensor:
        """Return random numbers that depend on a player's number in its game, alone and in a batch."""
        self._draws += 1
        number = torch.arange(len(self.game), device=self.game.device) - self._first[self.game]
        noise = torch.sin(number * 12.9898 + self._draws * 78.233 + 0.5) * 43758.5453
        return noise - noise.floor()


class RandomSwapSearch(EdgeSetSearch):
    """The same search with random swaps."""

    _search = RandomSwaps


class EdgeSets(Explainer):
    """The order of edges whose first edges are the best sets that a search has found; scores are places.

    Args:
        n_passes: The number of passes.
    """

    name = "edge_set_search"
    citation = "captum_goat: sets of edges by measured swaps"
    batched = True
    search: ClassVar[type[EdgeSetSearch]] = EdgeSetSearch

    def __init__(self, n_passes: int = 30) -> None:
        self.n_passes = n_passes

    def scores(self, model: Module, graphs: Graphs) -> Tensor:
        """Return the places of all graphs' edges, from 1 for the first one down, shared among its columns."""
        mask = torch.ones(graphs.num_edges, dtype=graphs.x.dtype, device=graphs.x.device)
        scores: Tensor = self.search(model, self.n_passes).attribute(mask, graphs.target, graphs.inputs)
        # Metrics sum over the columns of an edge, and not all edges have as many: a self-loop has one.
        return graphs.shared(scores.new_zeros(len(graphs.edges.graph)).scatter_(0, graphs.edges.number, scores))


class LongEdgeSets(EdgeSets):
    """The same with twice as many passes."""

    name = "edge_set_search_60"

    def __init__(self) -> None:
        super().__init__(n_passes=60)


class RandomEdgeSets(EdgeSets):
    """The same search with swaps drawn at random: how much of the gain is due to measuring alone."""

    name = "random_swaps"
    citation = "none"
    search = RandomSwapSearch
