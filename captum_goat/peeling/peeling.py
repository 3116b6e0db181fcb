"""Peeling: attribute, take the most important edges away, attribute what is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from captum.attr import Attribution, GradientAttribution
from captum.log import log_usage
from torch import Tensor
from torch_geometric.data import Batch, Data

from captum_goat.inputs.attributed_inputs import flattened, restored
from captum_goat.inputs.edge_masks import check_mask
from captum_goat.peeling.call import (
    argument_names,
    as_tuple,
    check_graphs,
    counted_edges,
    explained_values,
    find_graphs,
    innermost,
)
from captum_goat.peeling.order import ORDERS, Order, peel, share_bounds
from captum_goat.peeling.removal import REMOVALS, CutEdges, MaskedEdges, Removal

_SECONDS_TO_WAIT = 3.0  # before a progress bar that nobody asked for is shown


class Peeling(Attribution):
    r"""Find the order of importance of edges by taking them away in rounds.

    Edges that do the same work hide each other: while one of them is there the other is not needed, and attributions
    of the whole graph give it little. Peeling wraps any attribution method of an edge mask, as Captum's ``NoiseTunnel``
    does: it attributes, takes away the most important n-th of each graph's edges, attributes what is left, and so on.
    n rounds cost n attributions, whatever the number of edges and of graphs in a batch.

    Columns of ``edge_index`` that are one edge go together, and by the sum of their attributions: the two directions of
    an undirected edge, and parallel edges. Attributions are signed; what speaks against the target is least important.
    Of edges whose attributions are equal up to rounding the one that comes first in ``edge_index`` counts as more
    important.

    Args:
        attribution_method: The method: :class:`~captum_goat.GOAtAttribution`, or one of Captum's, around an
            :class:`~captum_goat.EdgeMaskedModel` or another function whose first argument is the mask.
        rounds: n, the number of rounds, and of attributions.
        order: ``"most_important_first"`` finds edges that the output needs, one set after another that could do in
            place of it. ``"least_important_first"`` takes the edges away that are needed least, and so finds few edges
            that suffice. ``"both"`` does either in half of the rounds, and lets the two orders take turns in naming the
            next edge.
        removal: ``"mask"`` takes edges away by setting their mask to 0, which works for everything that takes a mask.
            ``"cut"`` cuts them out of ``additional_forward_args``, whatever has ``edge`` in its name there: they count
            no longer in degrees, nor among the edges that share GOAt's gates, in which masked ones stay.
        turns: With ``order="both"``, how many edges the order from the most important one names in its turn, and how
            many the other: ``(2, 1)`` leans towards edges that the output needs, ``(1, 2)`` to such that suffice.

    Examples::

        >>> import torch
        >>> from torch_geometric.nn import Sequential, SimpleConv
        >>> from captum_goat import GOAtAttribution
        >>> from captum_goat.peeling import Peeling
        >>> layers = [(SimpleConv(aggr="max"), "x, edge_index -> x"), (lambda x: x.sum(dim=1), "x -> x")]
        >>> model = Sequential("x, edge_index", layers).eval()
        >>> x = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.9, 0.0], [0.0, 0.3]])
        >>> edge_index = torch.tensor([[1, 2, 3], [0, 0, 0]])  # node 0 is told max(1.0, 0.9), and 0.3
        >>> goat, mask, arguments = GOAtAttribution(model), torch.ones(3), (x, edge_index)
        >>> goat.attribute(mask, target=0, additional_forward_args=arguments)  # the second edge seems to be idle
        tensor([1.0000, 0.0000, 0.3000])
        >>> peeling = Peeling(goat, rounds=3)
        >>> scores, drops = peeling.attribute(mask, target=0, additional_forward_args=arguments, return_drops=True)
        >>> scores  # but it is what stands in for the first one
        tensor([1.0000, 0.6667, 0.3333])
        >>> drops
        tensor([[0.1000, 0.9000, 0.3000]])
    """

    def __init__(
        self,
        attribution_method: Attribution,
        rounds: int = 5,
        order: Order = "most_important_first",
        *,
        removal: Removal = "mask",
        turns: tuple[int, int] = (1, 1),
    ) -> None:
        if not isinstance(attribution_method, Attribution):
            raise TypeError(f"Expected a captum Attribution to peel with (got {type(attribution_method).__name__}).")
        if not isinstance(rounds, int) or isinstance(rounds, bool) or rounds < 1:
            raise ValueError(f"Expected rounds to be a whole number from 1 on (got {rounds!r}).")
        if order not in ORDERS:
            raise ValueError(f"Expected order to be one of {', '.join(ORDERS)} (got {order!r}).")
        if removal not in REMOVALS:
            raise ValueError(f"Expected removal to be one of {', '.join(REMOVALS)} (got {removal!r}).")
        if len(turns) != 2 or not all(type(each) is int and each > 0 for each in turns):
            raise ValueError(f"Expected turns to be two whole numbers from 1 on (got {turns!r}).")
        super().__init__(attribution_method.forward_func)
        self.attribution_method = attribution_method
        self.rounds = rounds
        self.order: Order = order
        self.removal: Removal = removal
        self.turns = turns

    @log_usage()
    def attribute(
        self,
        inputs: Tensor | tuple[Tensor],
        target: Any = None,
        additional_forward_args: Any = None,
        return_drops: bool = False,
        *,
        undirected: bool | None = None,
        graphs: Data | Batch | None = None,
        show_progress: bool | None = None,
        **kwargs: Any,
    ) -> Any:
        r"""Find the order of importance of the edges.

        Args:
            inputs: The edge mask, usually ones, in a shape that the wrapped method takes: ``[E]`` for a graph or a
                batch of graphs, each of which is peeled by itself; ``[B, E]`` for B masks of them.
            target: As for the wrapped method.
            additional_forward_args: As for the wrapped method. Graphs are told apart by the argument that is called
                ``batch``, or by a ``Batch``; else there is one graph. For a node of a large graph pass the part of it
                that reaches the node, or the first round takes away everything that matters.
            return_drops: Whether to return the drops of the output, too.
            undirected: Whether the two directions of an edge are one edge; ``None`` for graphs in which every edge has
                its reverse.
            graphs: The graphs that the mask is of, if ``additional_forward_args`` do not have them.
            show_progress: Whether to show a progress bar (if tqdm is installed); ``None`` if it takes more than some
                seconds, in a terminal.
            **kwargs: Further arguments of the wrapped method's ``attribute``, the same in every round; so nothing with
                an entry per edge if edges are cut out.

        Returns:
            Scores of the shape of ``inputs``, the same for all columns of an edge. The most important of a graph's M
            edges has 1, the next one :math:`(M - 1) / M`, and the last one :math:`1 / M`. They are places in an order,
            without a sign.

            With ``return_drops`` also the drops ``[G, rounds]`` (or ``[B, rounds]``), one row for each number that the
            wrapped method explains: how far the output drops when the first n-th of the edges is taken away in the
            order of importance, then the second, and so on. They sum to ``f(graph) - f(graph without edges)``, and cost
            ``rounds + 1`` further forward passes.

        Raises:
            ValueError: If the arguments do not fit together, or attributions are not finite.
        """
        mask, arguments = _only_mask(inputs), as_tuple(additional_forward_args)
        if kwargs.get("return_convergence_delta"):
            raise ValueError(
                "Expected no return_convergence_delta, because scores of several rounds do not add up to one (got "
                "True). return_drops=True returns numbers that do."
            )
        data = find_graphs(self, mask, arguments) if graphs is None else check_graphs(graphs, mask)
        edges = counted_edges(data, undirected, mask.numel() // max(mask.size(-1), 1))
        graph = self._removable(mask, arguments)

        def left_of(left: Tensor) -> Tensor:
            return left[edges.number].view_as(mask)

        def attribute(left: Tensor) -> Tensor:
            found = self._attribute(*graph.only(left_of(left)), target, kwargs)
            advance(1)
            return edges.totals(graph.restored(found, left_of(left)).view(-1))

        with _progress(self.rounds, show_progress) as advance:
            place = peel(edges, attribute, self.rounds, self.order, self.turns) if mask.numel() else edges.graph
        counts = edges.counts[edges.graph]
        dtype = torch.promote_types(mask.dtype, torch.float32)  # half precision has not enough different numbers
        result = restored(inputs, [((counts - place).to(dtype) / counts)[edges.number].view_as(mask)])
        if not return_drops:
            return result
        bounds = share_bounds(edges, self.rounds, self.order)
        rest = (graph.only(left_of(place >= bound[edges.graph])) for bound in bounds)
        values = [explained_values(self, kept, target, others) for kept, others in rest]
        return result, -torch.stack(values, dim=1).diff(dim=1)

    def _removable(self, mask: Tensor, arguments: tuple[Any, ...]) -> MaskedEdges:
        """Return what edges are taken away from."""
        if self.removal == "mask":
            return MaskedEdges(mask, arguments)
        return CutEdges(mask, arguments, argument_names(self, arguments))

    def _attribute(self, mask: Tensor, arguments: tuple[Any, ...], target: Any, options: dict[str, Any]) -> Tensor:
        """Attribute what is left by the wrapped method."""
        if not mask.numel():  # cut graphs may have no edge left that it could attribute
            return mask
        if isinstance(innermost(self), GradientAttribution):
            mask = mask.clone().requires_grad_()  # or Captum warns that it does so itself
        method = self.attribution_method
        found = method.attribute(mask, target=target, additional_forward_args=arguments or None, **options)
        return _checked(found, mask)

    def has_convergence_delta(self) -> bool:
        """Return whether there is a completeness error to return: an order has none."""
        return False

    @classmethod
    def get_name(cls) -> str:
        """Return the method's name."""
        return "Peeling"


def _only_mask(inputs: Any) -> Tensor:
    """Return the one mask, without its history."""
    given = flattened(inputs)
    if len(given) != 1 or isinstance(inputs, dict):
        kind = "a dictionary" if isinstance(inputs, dict) else f"{len(given)} inputs"
        raise ValueError(f"Expected one edge mask, [num_edges] or [num_masks, num_edges] (got {kind}).")
    check_mask(given[0])
    mask: Tensor = given[0].detach()
    return mask


def _checked(attributions: Any, mask: Tensor) -> Tensor:
    """Refuse what is not one finite number per entry of the mask."""
    if not isinstance(attributions, Tensor) or attributions.shape != mask.shape:
        got = list(attributions.shape) if isinstance(attributions, Tensor) else type(attributions).__name__
        raise ValueError(f"Expected attributions of the mask's shape {list(mask.shape)} (got {got}).")
    if not bool(attributions.isfinite().all()):
        wrong = int((~attributions.isfinite()).sum())
        raise ValueError(f"Expected finite attributions (got {wrong} of {mask.numel()} that are infinite or nan).")
    return attributions.detach()


@contextmanager
def _progress(rounds: int, shown: bool | None) -> Iterator[Callable[[int], object]]:
    """Show a progress bar (if tqdm is installed), and yield a function that moves it on."""
    try:
        from tqdm import tqdm
    except ImportError:  # a bar is a comfort, not a need
        yield lambda count: None
        return
    delay = _SECONDS_TO_WAIT if shown is None else 0.0
    disable = None if shown is None else not shown  # None: unless it is a terminal
    with tqdm(total=rounds, desc="peeling", unit="round", disable=disable, delay=delay) as bar:
        yield bar.update
