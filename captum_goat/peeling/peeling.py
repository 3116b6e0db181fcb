"""Peeling: attribute, remove the most important edges, attribute what is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Literal, TypeAlias, cast, get_args

import torch
from captum.attr import Attribution, GradientAttribution
from captum.log import log_usage
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Batch, Data
from torch_geometric.explain.algorithm.captum import CaptumModel

from captum_goat.attribution import GOAtAttribution
from captum_goat.hooks.global_state import restores_state
from captum_goat.inputs.arguments import named_arguments
from captum_goat.inputs.attributed_inputs import flattened, restored
from captum_goat.inputs.edge_masks import check_mask
from captum_goat.inputs.edge_sets import is_edge_index
from captum_goat.inputs.graph_inputs import GraphInputs
from captum_goat.inputs.targets import find_target
from captum_goat.masked_model import EdgeMaskedModel
from captum_goat.method.share import gauss_legendre
from captum_goat.metrics.counted_edges import CountedEdges, edges_of
from captum_goat.metrics.reduced_graphs import keep_edges
from captum_goat.peeling.order import ORDERS, Order, peel, share_bounds
from captum_goat.wrapped_model import ExplainedModel

Removal: TypeAlias = Literal["mask", "cut"]
REMOVALS: tuple[str, ...] = get_args(Removal)

_SECONDS_TO_WAIT = 3.0  # before a progress bar that nobody asked for is shown


class Peeling(Attribution):
    r"""Find the order of importance of edges by removing them in rounds.

    Redundant edges hide each other: while one of them is present the other is not needed, and attributions of the whole
    graph give it little. Peeling wraps any attribution method of an edge mask, as Captum's ``NoiseTunnel`` does: it
    attributes, removes the most important n-th of each graph's edges, attributes what is left, and so on. n rounds cost
    n attributions, whatever the number of edges and of graphs in a batch.

    Columns of ``edge_index`` that are one edge (the two directions of an undirected edge, and parallel edges) are
    removed together, by the sum of their attributions. Attributions are signed; edges that oppose the target are least
    important. Among edges with equal attributions, up to rounding, the first in ``edge_index`` is more important.

    Args:
        attribution_method: The method: :class:`~captum_goat.GOAtAttribution`, or one of Captum's, around an
            :class:`~captum_goat.EdgeMaskedModel` or another function whose first argument is the mask.
        rounds: n, the number of rounds, and of attributions.
        order: ``"most_important_first"`` finds edges that the output needs, one set after another that could replace
            it. ``"least_important_first"`` removes the edges that are needed least, and so finds few edges that
            suffice. ``"both"`` does each in half of the rounds, and merges the two orders by turns.
        removal: ``"mask"`` sets the mask of removed edges to 0, which works for every function of a mask. ``"cut"``
            removes them from ``additional_forward_args``, from all that has ``edge`` in its name there: they no longer
            count in degrees, nor among the edges that share GOAt's gates, as masked ones do.
        turns: With ``order="both"``, how many edges are taken in a turn from the order that starts at the most
            important edge, and how many from the other: ``(2, 1)`` prefers edges that the output needs, ``(1, 2)``
            edges that suffice.

    Examples::

        >>> import torch
        >>> from torch_geometric.nn import SimpleConv
        >>> from captum_goat import GOAtAttribution
        >>> from captum_goat.peeling import Peeling
        >>> class Largest(SimpleConv):
        ...     def forward(self, x, edge_index):
        ...         return super().forward(x, edge_index).sum(dim=1)
        >>> model = Largest(aggr="max").eval()
        >>> x = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.9, 0.0], [0.0, 0.3]])
        >>> edge_index = torch.tensor([[1, 2, 3], [0, 0, 0]])  # node 0 receives max(1.0, 0.9), and 0.3
        >>> goat, mask, arguments = GOAtAttribution(model), torch.ones(3), (x, edge_index)
        >>> goat.attribute(mask, target=0, additional_forward_args=arguments)  # the second edge seems useless
        tensor([1.0000, 0.0000, 0.3000])
        >>> peeling = Peeling(goat, rounds=3)
        >>> scores, drops = peeling.attribute(mask, target=0, additional_forward_args=arguments, return_drops=True)
        >>> scores  # but it replaces the first one
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
            raise ValueError(f"Expected rounds to be an integer from 1 on (got {rounds!r}).")
        if order not in ORDERS:
            raise ValueError(f"Expected order to be one of {', '.join(ORDERS)} (got {order!r}).")
        if removal not in REMOVALS:
            raise ValueError(f"Expected removal to be one of {', '.join(REMOVALS)} (got {removal!r}).")
        if len(turns) != 2 or not all(type(count) is int and count > 0 for count in turns):
            raise ValueError(f"Expected turns to be two integers from 1 on (got {turns!r}).")
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
            additional_forward_args: As for the wrapped method. The argument called ``batch``, or a ``Batch``, tells
                which graph a node belongs to; else there is one graph. For a node of a large graph pass the subgraph
                that reaches the node, or the first round removes everything that matters.
            return_drops: Whether to return the drops of the output, too.
            undirected: Whether the two directions of an edge are one edge; ``None`` for graphs in which every edge has
                its reverse.
            graphs: The graphs of the mask, if ``additional_forward_args`` do not contain them.
            show_progress: Whether to show a progress bar (if tqdm is installed); ``None`` for a bar in a terminal after
                some seconds.
            **kwargs: Further arguments of the wrapped method's ``attribute``, the same in every round; with
                ``removal="cut"`` none with an entry per edge.

        Returns:
            Scores of the shape of ``inputs``, the same for all columns of an edge. The most important of a graph's M
            edges has 1, the next one :math:`(M - 1) / M`, and the last one :math:`1 / M`: an order, without a sign.

            With ``return_drops`` also the drops ``[G, rounds]`` (or ``[B, rounds]``), one row for each number that the
            wrapped method explains: the drop of the output when the most important n-th of the edges is removed, then
            the next one, and so on. They sum to ``f(graph) - f(graph without edges)``, and cost
            ``rounds + 1`` further forward passes.
        """
        mask, arguments = _only_mask(inputs), as_tuple(additional_forward_args)
        if kwargs.get("return_convergence_delta"):
            raise ValueError(
                "Expected no return_convergence_delta, because scores of several rounds do not add up to one (got "
                "True). return_drops=True returns numbers that do."
            )
        data = find_graphs(self, mask, arguments) if graphs is None else check_graphs(graphs, mask)
        edges = CountedEdges.of(data, undirected).repeated(mask.numel() // max(mask.size(-1), 1))
        graph = self._removable(mask, arguments)

        def left_of(left: Tensor) -> Tensor:
            return left[edges.number].view_as(mask)

        def attribute(left: Tensor) -> Tensor:
            attributions = self._attribute(*graph.only(left_of(left)), target, kwargs)
            advance(1)
            return edges.totals(graph.restored(attributions, left_of(left)).view(-1))

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
        """Return the mask and the arguments that edges are removed from."""
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
        attributions = method.attribute(mask, target=target, additional_forward_args=arguments or None, **options)
        return _checked(attributions, mask)

    def has_convergence_delta(self) -> bool:
        """Return whether there is a completeness error to return: an order has none."""
        return False

    @classmethod
    def get_name(cls) -> str:
        """Return the method's name."""
        return "Peeling"


class UpperHalfGradients(GradientAttribution):
    r"""Integrated gradients over the upper half of the path: the mean gradient between half the mask and the mask.

    .. math:: m_e \cdot 2 \int_{1/2}^1 \frac{\partial f}{\partial m_e}(t\, m)\, dt

    A model is trained on whole graphs, and its gradients far from them mean little. These attributions are not
    complete, but with :class:`~captum_goat.Peeling` they find sets of important edges in a few passes. For one graph
    they are twice those of :class:`captum.attr.IntegratedGradients` with ``baselines=mask / 2``, which takes no batch
    with a target per graph.

    Args:
        forward_func: A function of a mask, such as :class:`~captum_goat.EdgeMaskedModel`.
        n_steps: The number of Gauss-Legendre points.

    Examples::

        >>> import torch
        >>> from captum_goat import UpperHalfGradients
        >>> UpperHalfGradients(lambda mask: (mask**2).sum()).attribute(torch.tensor([1.0, 2.0]))  # 2 m * 0.75 m
        tensor([1.5000, 6.0000])
    """

    def __init__(self, forward_func: Any, n_steps: int = 4) -> None:
        super().__init__(forward_func)
        self.n_steps = n_steps

    def attribute(self, inputs: Tensor, target: Any = None, additional_forward_args: Any = None) -> Tensor:
        """Attribute the sum of the targets' outputs to the mask, one point after the other.

        Args:
            inputs: The mask, of any shape that the function takes; ``[E]`` for a whole batch of graphs.
            target: The class of every graph or mask, as for :class:`~captum_goat.GOAtAttribution`.
            additional_forward_args: The function's other arguments.

        Returns:
            The attributions, of the shape of ``inputs``.
        """
        mean_gradient = torch.zeros_like(inputs)
        for point, weight in gauss_legendre(2 * self.n_steps):
            mask = (inputs.detach() * (1.0 + point) / 2.0).requires_grad_()
            output = self.forward_func(mask, *as_tuple(additional_forward_args))
            output = output.view(1) if output.dim() == 0 else output
            (gradient,) = torch.autograd.grad(find_target(output, target)(output).sum(), mask)
            mean_gradient += weight * gradient
        return (mean_gradient * inputs).detach()


@dataclass(frozen=True)
class MaskedEdges:
    """A mask and its arguments; edges are removed by setting their mask to 0.

    Attributes:
        mask: The edge mask, ``[E]`` or ``[B, E]``.
        arguments: The other arguments.
    """

    mask: Tensor
    arguments: tuple[Any, ...]

    def only(self, left: Tensor) -> tuple[Tensor, tuple[Any, ...]]:
        """Return the mask and the arguments with some edges only, bool of the mask's shape."""
        return torch.where(left, self.mask, 0.0), self.arguments

    def restored(self, attributions: Tensor, left: Tensor) -> Tensor:
        """Return attributions of what is left in the shape of the whole mask."""
        return attributions


@dataclass(frozen=True)
class CutEdges(MaskedEdges):
    """A mask and its arguments; edges are removed from both.

    Attributes:
        names: The names of the arguments. What has ``edge`` in its name and a row for every edge loses rows.
    """

    names: list[str]

    def __post_init__(self) -> None:
        if self.mask.dim() == 2 and len(self.mask) != 1:
            raise ValueError(
                f"Expected one mask for removal='cut', because several of a graph lose different edges (got "
                f"{len(self.mask)}). removal='mask' takes any number."
            )
        everything = torch.ones(self.mask.size(-1), dtype=torch.bool, device=self.mask.device)
        if all(_cut(name, value, everything) is value for name, value in zip(self.names, self.arguments, strict=True)):
            raise ValueError(
                f"Expected edges to cut out of additional_forward_args for removal='cut' (got "
                f"{', '.join(self.names) or 'no arguments'}). removal='mask' leaves arguments as they are."
            )

    def only(self, left: Tensor) -> tuple[Tensor, tuple[Any, ...]]:
        """Return the mask and the arguments with some edges only."""
        columns = left.view(-1)
        arguments = zip(self.names, self.arguments, strict=True)
        return self.mask[..., columns], tuple(_cut(name, value, columns) for name, value in arguments)

    def restored(self, attributions: Tensor, left: Tensor) -> Tensor:
        """Return attributions of what is left in the shape of the whole mask."""
        whole = attributions.new_zeros(self.mask.shape)
        whole[left] = attributions.view(-1)
        return whole


def _cut(name: str, value: Any, columns: Tensor) -> Any:
    """Return what is left of an argument."""
    if isinstance(value, Data):
        return keep_edges(value, columns)
    if not isinstance(value, Tensor) or "edge" not in name:
        return value
    if is_edge_index(value) and value.size(1) == len(columns):
        return value[:, columns]
    return value[columns] if value.dim() > 0 and len(value) == len(columns) else value


def find_graphs(method: Attribution, mask: Tensor, arguments: tuple[Any, ...]) -> Data:
    """Find the edges that are masked, and the graph of each node, among the arguments of a call.

    Args:
        method: The attribution method.
        mask: The edge mask, ``[E]`` or ``[B, E]``.
        arguments: The additional arguments. The one called ``batch``, or a ``Batch``, tells the graphs.
    """
    graphs = [argument for argument in arguments if isinstance(argument, Data)]
    if not graphs:
        function, leading = _function_of(method)
        count = len(mask) if mask.dim() == 2 else 1
        try:
            inputs = GraphInputs.of(function, arguments, num_edges=[mask.size(-1)], leading=leading, count=count)
        except ValueError as error:
            raise ValueError(f"{error} Or pass the graph of the mask as graphs=data.") from error
        (edge_index,), batch = inputs.edge_sets, inputs.arguments.get("batch")
        batch = batch if isinstance(batch, Tensor) else None
        nodes = len(batch) if batch is not None else int(edge_index.max()) + 1 if edge_index.numel() else 0
        graphs = [Data(edge_index=edge_index, batch=batch, num_nodes=nodes)]
    return check_graphs(graphs[0], mask)


def argument_names(method: Attribution, arguments: tuple[Any, ...]) -> list[str]:
    """Return the names of the additional arguments of a method's function, in their order."""
    if any(isinstance(argument, Data) for argument in arguments):
        return [""] * len(arguments)
    function, leading = _function_of(method)
    named, _ = named_arguments(function, arguments, {}, leading)
    return list(named)[leading:]


def check_graphs(data: Any, mask: Tensor) -> Data:
    """Raise a ValueError unless this is a graph with as many edges as the mask has."""
    if not isinstance(data, Data):
        raise ValueError(f"Expected graphs as a torch_geometric Data or Batch (got {type(data).__name__}).")
    columns = edges_of(data).size(1)
    if columns != mask.size(-1):
        raise ValueError(f"Expected a mask of {columns} edges, as in the graph (got {mask.size(-1)}).")
    return data


@restores_state
def explained_values(method: Attribution, mask: Tensor, target: Any, arguments: tuple[Any, ...]) -> Tensor:
    """Return the numbers that a method explains, one per graph or mask: for GOAt logits, else the target's outputs."""
    if isinstance(goat := innermost(method), GOAtAttribution):
        return goat.explained_values(mask, target, arguments)
    with torch.no_grad():
        output = method.forward_func(mask, *arguments)
        output = output.view(1) if output.dim() == 0 else output
        return find_target(output, target)(output)


def as_tuple(arguments: Any) -> tuple[Any, ...]:
    """Return additional arguments, which may be None, one, or a tuple, as a tuple."""
    return arguments if isinstance(arguments, tuple) else () if arguments is None else (arguments,)


def innermost(method: Attribution) -> Attribution:
    """Return the method inside wrappers such as NoiseTunnel."""
    while isinstance(inside := getattr(method, "attribution_method", None), Attribution):
        method = inside
    return method


def _function_of(method: Attribution) -> tuple[Module, int]:
    """Return the module that names the arguments of a method's function, and how many of them are masks."""
    function = method.forward_func
    if isinstance(goat := innermost(method), GOAtAttribution):
        return goat.model, 0
    if isinstance(getattr(function, "_orig_mod", function), EdgeMaskedModel | CaptumModel):
        return ExplainedModel.of(function).model, 0
    return function if isinstance(function, Module) else cast(Module, SimpleNamespace(forward=function)), 1


def _only_mask(inputs: Any) -> Tensor:
    """Return the one mask, without its history."""
    masks = flattened(inputs)
    if len(masks) != 1 or isinstance(inputs, dict):
        kind = "a dictionary" if isinstance(inputs, dict) else f"{len(masks)} inputs"
        raise ValueError(f"Expected one edge mask, [num_edges] or [num_masks, num_edges] (got {kind}).")
    check_mask(masks[0])
    mask: Tensor = masks[0].detach()
    return mask


def _checked(attributions: Any, mask: Tensor) -> Tensor:
    """Raise a ValueError unless there is one finite attribution per entry of the mask."""
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
    except ImportError:  # the bar is optional
        yield lambda count: None
        return
    delay = _SECONDS_TO_WAIT if shown is None else 0.0
    disable = None if shown is None else not shown  # None: unless it is a terminal
    with tqdm(total=rounds, desc="peeling", unit="round", disable=disable, delay=delay) as bar:
        yield bar.update
