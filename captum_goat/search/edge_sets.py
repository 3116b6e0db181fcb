"""The set of edges that a prediction needs, by measured swaps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from captum.attr import Attribution
from captum.log import log_usage
from torch import Tensor

from captum_goat.inputs.request import restored
from captum_goat.inputs.targets import Choice
from captum_goat.search.swaps import SwapSearch
from captum_goat.shapley.edge_attribution import EdgeAttribution, check_at_least, check_guides
from captum_goat.shapley.players import Players
from captum_goat.shapley.values import EdgeValues

_PATH_POINTS = 4


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


class EdgeSetSearch(EdgeAttribution):
    r"""Search for the sets of edges that a prediction rests on.

    The search has three nested sets of edges per graph, of 15, 30 and 45 % of its edges. It begins with the best of a
    few cheap orders of the edges, and then swaps edges across the border of one of the sets. A swap is chosen by
    gradients at the sets, and it is kept if a measurement says so: if the probability of the class with the edges of
    the set only, minus that without them, grows. All graphs of a batch are searched side by side.

    This is a search for sets, not a decomposition of the output: scores are places in an order, without a sign. It
    optimises what fidelity measures, so judge it by other numbers than fidelity at the same sizes.

    Args:
        forward_func: The trained model itself, in evaluation mode; or :class:`~captum_goat.EdgeMaskedModel` around it,
            which decides where edges are removed; or PyG's ``to_captum_model(model, "edge")``. It returns logits of
            classes, or one logit, whose sigmoid is the probability that is measured.
        n_passes: How many forward and backward passes over the batch to spend; the first 16 find where to start.
        shares: The sizes of the sets, as ascending shares of a graph's edges.
        starts: Attribution methods of the same edge mask, or attributions as tensors of its shape: further orders to
            start from, beside the gradients at four points of the path of integrated gradients. Each takes two passes,
            and what it costs itself.
        at: ``"adjacency"``: edges are deleted; ``"message"``: their messages are masked to 0. By default, they are
            deleted if the model runs without edges.

    Examples:
        >>> import torch
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
    _option_names: ClassVar[tuple[str, ...]] = ("n_passes", "shares", "starts", "at")
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
            inputs: The edge mask, usually ones, as for :class:`~captum_goat.GuidedShapley`.
            target: The class, as for :class:`~captum_goat.GuidedShapley`.
            additional_forward_args: The model's other arguments, as there.
            feature_mask: Which edges come and go together, as there.
            show_progress: Whether to show a progress bar.
            return_sets: Whether to return what was measured of the sets, too.

        Returns:
            Scores in the form of ``inputs``, the same for all columns of an edge. The first of a graph's M edges has 1,
            the next one :math:`(M - 1) / M`, and the last one :math:`1 / M`; edges with mask 0 have 0. With
            ``return_sets`` also the :class:`~captum_goat.search.EdgeSets`.

        Raises:
            ValueError: If the model is in training mode or the arguments do not fit together.
            UnsupportedModelError: If the model's edges can neither be deleted nor masked.
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
