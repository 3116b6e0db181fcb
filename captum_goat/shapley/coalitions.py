"""Coalitions of players, in pairs of a set and its complement: all of them, or some drawn at random."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

_CANDIDATES = 16  # random sets among which each coalition is chosen
_MANY_PLAYERS = 2000  # beyond, random sets are nearly orthogonal anyway


class Coalitions(NamedTuple):
    """Pairs of coalitions of M players: a set and its complement, neither of them empty."""

    members: Tensor  # who is in the set, bool ``[pairs, M]``; the others are in its complement
    weights: Tensor  # the weight of each pair in the regression, with mean 1, ``[pairs]``
    is_complete: bool  # whether these are all coalitions, each once


@lru_cache(maxsize=256)
def draw_coalitions(num_players: int, num_pairs: int, seed: int) -> Coalitions:
    r"""Return all pairs of coalitions if there are at most ``num_pairs``, else as many at random.

    The sizes of the sets are spread evenly over 1 to M - 1. A set of s players then stands for what the Shapley kernel
    gives to its size, so its weight is proportional to :math:`1 / (s (M - s))`. Each set is the one of several random
    sets of its size that has the least in common with those drawn before: nearly orthogonal rows tell players apart
    best.

    Args:
        num_players: M.
        num_pairs: The largest number of pairs.
        seed: The seed of the random numbers.

    Examples:
        >>> from captum_goat.shapley.coalitions import draw_coalitions
        >>> draw_coalitions(3, 8, seed=0).members.long()  # and their complements
        tensor([[1, 0, 0],
                [0, 1, 0],
                [1, 1, 0]])
        >>> draw_coalitions(6, 5, seed=0).members.sum(dim=1).sort().values  # a set of 4 stands for one of 2
        tensor([1, 1, 2, 2, 3])
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
    members = torch.from_numpy(_spread_sets(num_players, sizes, random))
    return Coalitions(members, torch.from_numpy(weights / weights.mean()), False)


def _spread_sets(num_players: int, sizes: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return a set of each size, bool ``[pairs, M]``, each as orthogonal to the others as one of several is."""
    members = np.zeros((len(sizes), num_players), dtype=bool)
    rows = np.zeros((len(sizes), num_players))  # the sets, centred and scaled to norm 1
    candidates = _CANDIDATES if num_players <= _MANY_PLAYERS else 1
    for number, size in enumerate(sizes):
        order = np.argpartition(random.random((candidates, num_players)), size - 1, axis=1)[:, :size]
        sets = np.zeros((candidates, num_players), dtype=bool)
        np.put_along_axis(sets, order, True, axis=1)
        centred = (sets - size / num_players) / np.sqrt(size * (1 - size / num_players))
        best = int(np.square(centred @ rows[:number].T).sum(axis=1).argmin())
        members[number], rows[number] = sets[best], centred[best]
    return members
