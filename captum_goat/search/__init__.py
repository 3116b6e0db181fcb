"""The set of edges that a prediction needs, by measured swaps: one order of edges per graph, with nested sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import torch
from captum.attr import Attribution
from captum.log import log_usage
from torch import Tensor

from captum_goat.inputs.request import restored
from captum_goat.inputs.targets import Choice
from captum_goat.metrics.counted_edges import position_in_graph
from captum_goat.shapley.edge_attribution import EdgeAttribution, EdgeValues, check_at_least, check_guides
from captum_goat.shapley.games import Players

_PATH_POINTS = 4
# Given which players are kept, bool ``[K, P]``: the log-odds of the class in each game ``[K, G]``, and their gradients
# by the presence of the players ``[K, P]``. It takes K passes.
Measure: TypeAlias = Callable[[Tensor], tuple[Tensor, Tensor]]

KEPT = 0  # of the two worlds in which a set is measured: its players kept alone (0), or taken away (1)
_FIRST_SHARE = 0.25  # of the players between two boundaries, swapped by the first proposal


class EdgeSets(NamedTuple):
    """What was measured of the nested sets of each graph or mask, smallest set first.

    Attributes:
        sizes: The number of edges in each set, ``[G, sets]``.
        sufficient: The probability of the class with the edges of the set only: high if they suffice.
        necessary: The probability of the class without them: low if they are needed.
    """

    sizes: Tensor
    sufficient: Tensor
    necessary: Tensor


class SwapSearch:
    """Orders of the players of G games, and what is measured of their first players at L sizes.

    A proposal exchanges players inside and outside of one set, between the next smaller and the next larger set, so
    that no other set changes. It is measured in the world where more can be gained, if it gains there also in the other
    one, and accepted if the probability of the class with the set kept alone, minus that with it taken away, grows.
    """

    def __init__(self, game: Tensor, num_games: int, shares: Sequence[float], measure: Measure) -> None:
        self.game, self._num_games, self._measure = game, num_games, measure
        counts = game.bincount(minlength=num_games)
        self.counts, self._first = counts, counts.cumsum(0) - counts
        sizes = [(share * counts.double() + 1e-6).long().clamp(min=1).minimum(counts) for share in shares]
        self.sizes = torch.stack(sizes)  # [L, G]
        self._lower = torch.cat([torch.zeros_like(counts).unsqueeze(0), self.sizes[:-1]])
        self._upper = torch.cat([self.sizes[1:], counts.unsqueeze(0)])
        self.place = torch.zeros_like(game)  # of each player in the order of its game, 0 for the first
        self.odds = torch.zeros(2, *self.sizes.shape, dtype=torch.double, device=game.device)  # in both worlds
        self._gradients: Tensor  # [2, L, P]

    @property
    def probabilities(self) -> Tensor:
        """The probability of the class with each set kept alone, and with it taken away, ``[2, L, G]``."""
        probabilities: Tensor = self.odds.sigmoid()
        return probabilities

    def start(self, orders: Sequence[Tensor]) -> None:
        """Begin with the best of several orders, given by scores ``[P]``, in each game.

        All are measured at the middle set, and the best one then at the others: ``2 * (len(orders) + L - 1)`` passes.
        """
        middle = len(self.sizes) // 2
        places = [self.ranks(scores) for scores in orders]
        sets = torch.stack([place < self.sizes[middle, self.game] for place in places])
        odds, gradients = self._worlds(sets)
        kept, removed = odds.sigmoid()
        best = (kept - removed).argmax(dim=0)  # [G]
        players, of_player = torch.arange(len(self.game), device=best.device), best[self.game]
        self.place = torch.stack(places)[of_player, players]
        others = [level for level in range(len(self.sizes)) if level != middle]
        self._gradients = gradients.new_zeros(2, len(self.sizes), len(self.game))
        self.odds[:, middle] = odds.gather(1, best.expand(2, 1, -1)).squeeze(1)
        self._gradients[:, middle] = gradients[:, of_player, players]
        if others:
            sets = self.place < self.sizes[others][:, self.game]
            self.odds[:, others], self._gradients[:, others] = self._worlds(sets)

    def _worlds(self, sets: Tensor) -> tuple[Tensor, Tensor]:
        """Measure sets, bool ``[K, P]``, in both worlds: odds ``[2, K, G]`` and gradients ``[2, K, P]``."""
        odds, gradients = self._measure(torch.cat([sets, ~sets]))
        return odds.view(2, len(sets), -1), gradients.view(2, len(sets), -1)

    def climb(self, n_passes: int) -> None:
        """Propose and measure swaps: one set of every game in each pass."""
        games = torch.arange(self._num_games, device=self.game.device)
        players = torch.arange(len(self.game), device=self.game.device)
        scale = self.odds.abs().amax(dim=(0, 1)).clamp(min=1.0)
        space = torch.minimum(self.sizes - self._lower, self._upper - self.sizes)
        count = (_FIRST_SHARE * space).ceil().long().clamp(min=1)  # how many players a proposal swaps, [L, G]
        failures = torch.zeros_like(self.odds[0])
        tries = torch.zeros(self.sizes.size(0), len(self.game), dtype=torch.long, device=self.game.device)
        is_second = torch.zeros_like(games, dtype=torch.bool)  # whether a game's proposal has been measured once
        level, world, proposal = torch.zeros_like(games), torch.zeros_like(games), self.place
        first_gain, first_odds = self.odds.new_zeros(2, self._num_games)
        first_gradients = torch.zeros_like(self._gradients[0, 0])
        for _ in range(n_passes):
            kept, removed = self.probabilities.unbind()
            room = torch.where(space > 0, (1.0 - kept + removed) / (1.0 + failures), -1.0)
            level = torch.where(is_second, level, room.argmax(dim=0))
            of_player = level[self.game]
            fresh = self._swapped(level, count[level, games], scale, tries[of_player, players])
            proposal = torch.where(is_second[self.game], proposal, fresh)
            now_kept, now_removed = kept[level, games], removed[level, games]
            world = torch.where(is_second, 1 - world, (now_removed > 1.0 - now_kept).long())
            proposed = proposal < self.sizes[level, games][self.game]
            (odds,), (gradients,) = self._measure((proposed == (world[self.game] == KEPT)).unsqueeze(0))
            gain = torch.where(world == KEPT, odds.sigmoid() - now_kept, now_removed - odds.sigmoid())
            promising = ~is_second & (gain > 0.0)
            accepted = is_second & (first_gain + gain > 0.0)
            rejected = ~promising & ~accepted
            # Keep what was measured of accepted proposals, in both worlds.
            for measured, numbers, slopes in ((world, odds, gradients), (1 - world, first_odds, first_gradients)):
                self.odds[measured[accepted], level[accepted], games[accepted]] = numbers[accepted]
                mine = accepted[self.game].nonzero().view(-1)
                self._gradients[measured[self.game[mine]], of_player[mine], mine] = slopes[mine]
            moved = proposal != self.place
            self.place = torch.where(accepted[self.game], proposal, self.place)
            # A set whose proposal failed proposes less next time; single players that failed wait for their turn.
            single = rejected & (count[level, games] == 1)
            vain = (moved & single[self.game]).nonzero().view(-1)
            tries[of_player[vain], vain] += 1
            again = accepted[self.game].nonzero().view(-1)
            tries[of_player[again], again] = 0
            count[level[rejected], games[rejected]] = (count[level[rejected], games[rejected]] // 2).clamp(min=1)
            failures[level[rejected], games[rejected]] += 1.0
            failures[level[accepted], games[accepted]] = 0.0
            first_gain = torch.where(promising, gain, first_gain)
            first_odds = torch.where(promising, odds, first_odds)
            first_gradients = torch.where(promising[self.game], gradients, first_gradients)
            is_second = promising

    def preferences(self, level: Tensor, scale: Tensor) -> Tensor:
        """Return what speaks for a player to be in the set of its game's level, ``[P]``.

        Gradients of the log-odds count most where the class is in doubt, on a scale as wide as the log-odds are.
        """
        players = torch.arange(len(self.game), device=self.game.device)
        at_level = self.odds[:, level, torch.arange(len(level), device=level.device)]  # [2, G]
        doubt = (at_level / scale).sigmoid()
        weights = (doubt * (1.0 - doubt)).to(self._gradients.dtype)
        return (weights[:, self.game] * self._gradients[:, level[self.game], players]).sum(dim=0)

    def _swapped(self, level: Tensor, count: Tensor, scale: Tensor, tries: Tensor) -> Tensor:
        """Return places after swapping the least preferred players of a set with the most preferred ones outside."""
        games = torch.arange(self._num_games, device=self.game.device)
        lower, size, upper = (bound[level, games][self.game] for bound in (self._lower, self.sizes, self._upper))
        preferred = self.ranks(self.preferences(level, scale))
        inside = (self.place >= lower) & (self.place < size)
        outside = (self.place >= size) & (self.place < upper)
        # Those that were tried less come first; a player leaves until all others were tried in its place.
        last, number = -(2**62), len(self.game)
        turns = tries // (upper - size).clamp(min=1)
        leaving = self.ranks(torch.where(inside, preferred - number * turns, last))
        joining = self.ranks(torch.where(outside, -preferred - number * tries, last))
        # The i-th player that leaves changes places with the i-th that joins.
        leaving_at, joining_at = torch.full((2, len(self.game)), -1, device=self.game.device)
        for chosen, ranks, slots in ((inside, leaving, leaving_at), (outside, joining, joining_at)):
            mine = (chosen & (ranks < count[self.game])).nonzero().view(-1)
            slots[self._first[self.game[mine]] + ranks[mine]] = mine
        both = (leaving_at >= 0) & (joining_at >= 0)
        ones, others = leaving_at[both], joining_at[both]
        place = self.place.clone()
        place[ones], place[others] = self.place[others], self.place[ones]
        return place

    def ranks(self, scores: Tensor) -> Tensor:
        """Return the place of each player in its game by scores ``[P]``: 0 for the highest, then for the first."""
        return position_in_graph(self.game, self._num_games, -scores)


class EdgeSetSearch(EdgeAttribution):
    r"""Search for the sets of edges that a prediction rests on.

    The search has three nested sets of edges per graph, of 15, 30 and 45 % of its edges. It begins with the best of a
    few cheap orders of the edges, and then swaps edges across the border of one of the sets. A swap is chosen by
    gradients at the sets, and it is kept if a measurement says so: if the probability of the class with the edges of
    the set only, minus that without them, grows. All graphs of a batch are searched side by side.

    This is a search for sets, not a decomposition of the output: scores are places in an order, without a sign. It
    optimises what fidelity measures, so judge it by other numbers than fidelity at the same sizes.

    Args:
        forward_func: The model, or a wrapper, as for :class:`~captum_goat.GuidedShapley`. It returns logits of classes,
            or one logit, whose sigmoid is the probability that is measured.
        n_passes: How many forward and backward passes over the batch to spend; the first 16 find where to start.
        shares: The sizes of the sets, as ascending shares of a graph's edges.
        starts: Attribution methods of the same edge mask, or attributions as tensors of its shape: further orders to
            start from, beside the gradients at four points of the path of integrated gradients, for two passes each.
        at: Where edges are removed, as for :class:`~captum_goat.GuidedShapley`.

    Examples:
        >>> from torch_geometric.data import Data
        >>> from captum_goat import EdgeSetSearch
        >>> from captum_goat.models import GraphClassifier
        >>> _ = torch.manual_seed(0)
        >>> model = GraphClassifier("gin", in_channels=4, hidden_channels=8, num_classes=2).eval()
        >>> edge_index = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 7], [1, 2, 3, 4, 5, 6, 7, 0]])
        >>> data = Data(x=torch.randn(8, 4), edge_index=edge_index)
        >>> search = EdgeSetSearch(model, shares=(0.25, 0.5))
        >>> scores, sets = search.attribute(torch.ones(8), target=1, additional_forward_args=data, return_sets=True)
        >>> scores.sort(descending=True).values[:3]
        tensor([1.0000, 0.8750, 0.7500])
        >>> best = data.edge_subgraph(scores > 0.5)  # the larger set: 4 of 8 edges
        >>> probability = model(best.x, best.edge_index).softmax(dim=1)[0, 1]
        >>> sets.sizes, torch.allclose(sets.sufficient[0, 1], probability)
        (tensor([[2, 4]]), True)
    """

    measures_probabilities: ClassVar[bool] = True  # of what it is handed: logits of classes, or log-odds
    _option_names = ("n_passes", "shares", "starts", "at")
    _guides, _passes = "starts", "n_passes"
    _search: ClassVar[type[SwapSearch]] = SwapSearch

    def __init__(
        self,
        forward_func: Any,
        n_passes: int = 30,
        shares: Sequence[float] = (0.15, 0.3, 0.45),
        *,
        starts: Sequence[Attribution | Tensor] = (),
        at: Literal["message", "adjacency"] | None = None,
    ) -> None:
        check_at_least(0, n_passes=n_passes)
        bounds = (0.0, *shares, 1.0)
        if len(bounds) < 3 or not all(low < high for low, high in pairwise(bounds)):
            raise ValueError(f"Expected ascending shares between 0 and 1 (got {tuple(shares)}).")
        check_guides("starts", starts)
        super().__init__(forward_func, at)
        self.n_passes, self.shares, self.starts = n_passes, tuple(shares), tuple(starts)

    @log_usage()
    def attribute(
        self,
        inputs: Tensor | tuple[Any, ...] | dict[Any, Tensor],
        target: Any = None,
        additional_forward_args: Any = None,
        feature_mask: Tensor | tuple[Any, ...] | dict[Any, Tensor] | None = None,
        show_progress: bool = False,
        return_sets: bool = False,
    ) -> Any:
        r"""Find the order of the edges whose first edges are the best sets.

        Args:
            inputs: The edge mask, usually ones, as for :class:`~captum_goat.GuidedShapley`; as there are also the next.
            target: The class.
            additional_forward_args: The model's other arguments.
            feature_mask: Which edges come and go together.
            show_progress: Whether to show a progress bar.
            return_sets: Whether to return what was measured of the sets, too.

        Returns:
            Scores in the form of ``inputs``, the same for all columns of an edge. The first of a graph's M edges has 1,
            the next one :math:`(M - 1) / M`, and the last one :math:`1 / M`; edges with mask 0 have 0. With
            ``return_sets`` also the :class:`~captum_goat.search.EdgeSets`.
        """
        choice = Choice([target])
        explanation = self._explain(inputs, choice, additional_forward_args, feature_mask, show_progress=show_progress)
        result = restored(inputs, explanation.attributions[0])
        return (result, explanation.details[0]) if return_sets else result

    def _scores(
        self, values: EdgeValues, players: Players, guides: Tensor, advance: Callable[[int], object]
    ) -> tuple[Tensor, EdgeSets]:
        """Return the places of players, ``[P]``, and what was measured."""
        gradients, at, deletes = values.path_gradients(_PATH_POINTS)
        orders = torch.cat([gradients, guides])
        advance(_PATH_POINTS)
        passes = _PATH_POINTS

        def measure(kept: Tensor) -> tuple[Tensor, Tensor]:
            nonlocal passes
            passes += len(kept)
            columns = players.per_column(kept.to(values.mask.dtype))
            odds, gradients = values.with_gradients(columns, at)
            advance(len(kept))
            return odds if deletes else values(columns > 0), players.totals(gradients.t()).t()

        search = self._search(players.game, players.num_games, self.shares, measure)
        if len(players.game):
            search.start(list(players.totals(orders.t()).t()))
            search.climb(max(0, self.n_passes - passes))
        counts, dtype = search.counts[players.game], values.mask.dtype
        places = (counts - search.place).to(torch.promote_types(dtype, torch.float32)) / counts
        return places, EdgeSets(*(part.t() for part in (search.sizes, *search.probabilities.to(dtype))))
