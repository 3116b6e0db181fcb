"""The search for edge sets with more passes, and its control: swaps that are measured, but drawn at random."""

from __future__ import annotations

from typing import Any

import torch
from captum.attr import Attribution
from torch import Tensor

from captum_goat.compare.explainers import EdgeSets
from captum_goat.search import EdgeSetSearch, SwapSearch


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


class LongEdgeSets(EdgeSets):
    """The same with twice as many passes."""

    name = "edge_set_search_60"

    def __init__(self) -> None:
        super().__init__(n_passes=60)


class RandomEdgeSets(EdgeSets):
    """The same search with swaps drawn at random: how much of the gain is due to measuring alone."""

    name = "random_swaps"
    citation = "none"

    def method(self, model: Any) -> Attribution:
        """Return the search with random swaps."""
        return RandomSwapSearch(model, self.n_passes)
