"""Times of several methods that take turns, so that their ratios hold on a noisy machine."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from captum_goat.compare.graphs import Graphs

AT_LEAST = 2  # rounds, however long they take


@dataclass(frozen=True)
class Times:
    """The seconds of each method, round by round.

    Attributes:
        seconds: By method, one number per round.
    """

    seconds: dict[str, list[float]]

    def median(self, name: str) -> float:
        """Return the median over the rounds."""
        return statistics.median(self.seconds[name])

    def least(self, name: str) -> float:
        """Return the shortest time."""
        return min(self.seconds[name])

    def ratio(self, name: str, to: str) -> float:
        """Return how many times as long as another a method takes: the median of the rounds' own ratios."""
        pairs = zip(self.seconds[name], self.seconds[to], strict=True)
        return statistics.median(one / other for one, other in pairs)


def in_turn(
    methods: Mapping[str, Callable[[Graphs], object]],
    graphs: Callable[[int], Graphs],
    rounds: int,
    seconds: float = math.inf,
) -> Times:
    """Time methods in turn, each time with another one first; a round before the first warms up.

    When all have been first, the rounds go backwards: a method is faster after one that uses the same code and memory,
    and so none always comes after the same one.

    Args:
        methods: The functions, each called once per round.
        graphs: Returns the graphs of a round, by its number (0: the warm-up). They should be new ones in every round,
            so that nothing that a method keeps of those before is of use.
        rounds: How many rounds, at most.
        seconds: After which no further round begins, when there are two.

    Returns:
        The times.
    """
    times: dict[str, list[float]] = {name: [] for name in methods}
    names, begin = list(methods), time.perf_counter()
    for number in range(rounds + 1):
        if number > AT_LEAST and time.perf_counter() - begin > seconds:
            break
        given, (turn, first) = graphs(number), divmod(number, max(len(names), 1))
        order = names[first:] + names[:first]
        for name in order[:: -1 if turn % 2 else 1]:
            start = time.perf_counter()
            methods[name](given)
            if number:
                times[name].append(time.perf_counter() - start)
    return Times(times)
