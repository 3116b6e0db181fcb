"""Peeling: attribute, remove the most important edges, attribute what is left."""

from __future__ import annotations

import operator
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
from captum_goat.masked_model import EdgeMaskedModel, with_bound
from captum_goat.method.share import gauss_legendre
from captum_goat.metrics.counted_edges import CountedEdges, edges_of
from captum_goat.metrics.reduced_graphs import keep_edges
from captum_goat.peeling.order import ORDERS, Order, peel, share_bounds
from captum_goat.runs.progress import progress_bar
from captum_goat.wrapped_model import ExplainedModel

Removal: TypeAlias = Literal["mask", "cut"]
REMOVALS: tuple[str, ...] = get_args(Removal)


class Peeling(Attribution):
    """Find the order of importance of edges by removing them in rounds.

    Redundant edges hide each other: while one of them is present the other is not needed, and attributions of the whole
    graph give it little. Peeling wraps any attribution method of an edge mask, as Captum's ``NoiseTunnel`` does: it
    attributes, removes the most important n-th of each graph's edges, attributes what is left, and so on. n rounds cost
    n attributions, whatever the number of edges and of graphs in a batch.

    Columns of ``edge_index`` that are one edge (the two directions of an undirected edge, and parallel edges) are
    removed together, by the sum of their attributions. Edges that oppose the target are least important. Among edges
    with equal attributions, up to rounding, the first in ``edge_index`` is more important.

    Args:
        attribution_method: :class:`~captum_goat.GOAtAttribution`, or a method of Captum, around an
            :class:`~captum_goat.EdgeMaskedModel` or another function whose first argument is the mask.
        rounds: n, the number of rounds, and of attributions.
        order: ``"most_important_first"`` finds edges that the output needs, one set after another that could replace
            it. ``"least_important_first"`` removes the edges that are needed least, and so finds few edges that
            suffice. ``"both"`` does each in half of the rounds, and merges the two orders by turns.
        removal: ``"mask"`` sets the mask of removed edges to 0, which works for every function of a mask. ``"cut"``
            removes them from all that has ``edge`` in its name in ``additional_forward_args``: they no longer count in
            degrees, nor among the edges that share GOAt's gates.
        turns: With ``order="both"``, how many edges are taken in a turn from each order: ``(2, 1)`` prefers edges that
            the output needs, ``(1, 2)`` edges that suffice.

    Examples:
        >>> import torch
        >>> from torch_geometric.nn import SimpleConv
        >>> from captum_goat import GOAtAttribution, Peeling
        >>> class Largest(SimpleConv):
        ...     def forward(self, x, edge_index):
        ...         return super().forward(x, edge_index).sum(dim=1)
        >>> x = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.9, 0.0], [0.0, 0.3]])
        >>> arguments = x, torch.tensor([[1, 2, 3], [0, 0, 0]])  # node 0 receives max(1.0, 0.9), and 0.3
        >>> goat, mask = GOAtAttribution(Largest(aggr="max").eval()), torch.ones(3)
        >>> goat.attribute(mask, target=0, additional_forward_args=arguments)  # the second edge seems useless
        tensor([1.0000, 0.0000, 0.3000])
        >>> Peeling(goat, rounds=3).attribute(mask, 0, arguments, return_drops=True)  # but it replaces the first one
        (tensor([1.0000, 0.6667, 0.3333]), tensor([[0.1000, 0.9000, 0.3000]]))
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
        self.attribution_method, self.rounds, self.turns = attribution_method, rounds, turns
        self.order: Order = order
        self.removal: Removal = removal

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
        """Find the order of importance of the edges.

        Args:
            inputs: The edge mask, usually ones, in a shape that the wrapped method takes: ``[E]`` for a graph or a
                batch of graphs, each of which is peeled by itself; ``[B, E]`` for B masks of them.
            target: As for the wrapped method.
            additional_forward_args: As for the wrapped method. The argument called ``batch``, or a ``Batch``, tells
                which graph a node belongs to. For a node of a large graph pass the subgraph that reaches the node, or
                the first round removes everything that matters.
            return_drops: Whether to return the drops of the output, too, which takes ``rounds + 1`` forward passes.
            undirected: Whether the two directions of an edge are one edge; by default, if every edge has its reverse.
            graphs: The graphs of the mask, if ``additional_forward_args`` do not contain them.
            show_progress: Whether to show a progress bar (if tqdm is installed); ``None`` for one after some seconds.
            **kwargs: Further arguments of the wrapped method's ``attribute``; with ``removal="cut"`` none per edge.

        Returns:
            Scores of the shape of ``inputs``, the same for all columns of an edge. The most important of a graph's M
            edges has 1, the next one :math:`(M - 1) / M`, and the last one :math:`1 / M`: an order, without a sign.
            With ``return_drops`` also the drops ``[G, rounds]`` (or ``[B, rounds]``) of each number that the wrapped
            method explains when the most important n-th of the edges is removed, then the next one, and so on. They sum
            to ``f(graph) - f(graph without edges)``.
        """
        mask = _only_mask(inputs)
        if kwargs.get("return_convergence_delta"):
            raise ValueError(
                "Expected no return_convergence_delta (got True). return_drops=True returns complete numbers."
            )
        call = _Call(self, mask, target, as_tuple(additional_forward_args))
        data = call.graphs() if graphs is None else graphs
        edges = CountedEdges.of(_check_graphs(data, mask), undirected).repeated(mask.numel() // max(mask.size(-1), 1))

        def attribute(left: Tensor) -> Tensor:
            attributions = call.attribute(left[edges.number].view_as(mask), kwargs)
            advance(1)
            return edges.totals(attributions.view(-1))

        with progress_bar(self.rounds, "round", show_progress, "peeling") as advance:
            place = peel(edges, attribute, self.rounds, self.order, self.turns) if mask.numel() else edges.graph
        counts = edges.counts[edges.graph]
        dtype = torch.promote_types(mask.dtype, torch.float32)  # half precision has not enough different numbers
        result = restored(inputs, [((counts - place).to(dtype) / counts)[edges.number].view_as(mask)])
        if not return_drops:
            return result
        bounds = share_bounds(edges, self.rounds, self.order)
        rest = ((place >= bound[edges.graph])[edges.number].view_as(mask) for bound in bounds)
        return result, -torch.stack([call.values(left) for left in rest], dim=1).diff(dim=1)

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
    they are twice those of :class:`captum.attr.IntegratedGradients` with ``baselines=mask / 2``. ``n_steps`` is the
    number of Gauss-Legendre points.

    Examples:
        >>> import torch
        >>> from captum_goat import UpperHalfGradients
        >>> UpperHalfGradients(lambda mask: (mask**2).sum()).attribute(torch.tensor([1.0, 2.0]))  # 2 m * 0.75 m
        tensor([1.5000, 6.0000])
    """

    def __init__(self, forward_func: Any, n_steps: int = 4) -> None:
        super().__init__(forward_func)
        self.n_steps = n_steps

    def attribute(self, inputs: Tensor, target: Any = None, additional_forward_args: Any = None) -> Tensor:
        """Attribute the sum of the targets' outputs to the mask, ``[E]`` for a whole batch of graphs.

        ``target`` is the class of every graph or mask, as for :class:`~captum_goat.GOAtAttribution`.
        """
        mean_gradient = torch.zeros_like(inputs)
        for point, weight in gauss_legendre(2 * self.n_steps):
            mask = (inputs.detach() * (1.0 + point) / 2.0).requires_grad_()
            output = self.forward_func(mask, *as_tuple(additional_forward_args))
            (gradient,) = torch.autograd.grad(_target_values(output, target).sum(), mask)
            mean_gradient += weight * gradient
        return (mean_gradient * inputs).detach()


class _Call:
    """One call of :meth:`Peeling.attribute`: the wrapped method on what is left of the edges."""

    def __init__(self, peeling: Peeling, mask: Tensor, target: Any, arguments: tuple[Any, ...]) -> None:
        self._method, self._cuts = peeling.attribution_method, peeling.removal == "cut"
        self._mask, self._target = mask, target
        self._innermost: Any = self._method
        while isinstance(inside := getattr(self._innermost, "attribution_method", None), Attribution):
            self._innermost = inside  # the method inside of wrappers such as NoiseTunnel
        function, self._leading, self._bound = self._method.forward_func, 0, None
        is_goat = isinstance(self._innermost, GOAtAttribution)
        if is_goat or isinstance(getattr(function, "_orig_mod", function), EdgeMaskedModel | CaptumModel):
            explained = ExplainedModel.of(function)
            function, self._bound = explained.model, explained.bound
        else:
            self._leading = 1  # the mask, of a function that is none of ours
        # What names the arguments.
        self._function = function if isinstance(function, Module) else cast(Module, SimpleNamespace(forward=function))
        self._arguments = arguments
        if self._cuts:
            self._check_cuts()

    def _check_cuts(self) -> None:
        if self._mask.dim() == 2 and len(self._mask) != 1:
            count = len(self._mask)
            raise ValueError(f"Expected one mask for removal='cut' (got {count}). removal='mask' takes any number.")
        if self._bound is not None:
            raise ValueError(
                "Expected the graph in additional_forward_args for removal='cut' (got an EdgeMaskedModel with its "
                "graph). Make the EdgeMaskedModel without data; or set at='adjacency', so that masks act like cuts."
            )
        _, arguments = self._left(torch.ones_like(self._mask, dtype=torch.bool))
        if all(map(operator.is_, arguments, self._arguments)):
            got = ", ".join(self._names()) or "no arguments"
            raise ValueError(f"Expected edges to cut out of additional_forward_args (got {got}). Use removal='mask'.")

    def graphs(self) -> Data:
        """Return the edges that are masked, and the graph of each node: the argument called ``batch``, or a Batch."""
        arguments = with_bound(self._bound, self._arguments)
        data = next((argument for argument in arguments if isinstance(argument, Data)), None)
        if data is not None:
            return data
        count, size = len(self._mask) if self._mask.dim() == 2 else 1, self._mask.size(-1)
        try:
            inputs = GraphInputs.of(self._function, arguments, num_edges=[size], leading=self._leading, count=count)
        except ValueError as error:
            raise ValueError(f"{error} Or pass the graph of the mask as graphs=data.") from error
        (edge_index,), batch = inputs.edge_sets, inputs.arguments.get("batch")
        batch = batch if isinstance(batch, Tensor) else None
        nodes = len(batch) if batch is not None else int(edge_index.max()) + 1 if edge_index.numel() else 0
        return Data(edge_index=edge_index, batch=batch, num_nodes=nodes)

    def attribute(self, left: Tensor, options: dict[str, Any]) -> Tensor:
        """Attribute what is left (bool of the mask's shape), in the shape of the whole mask."""
        mask, arguments = self._left(left)
        if not mask.numel():  # cut graphs may have no edge left that could be attributed
            return torch.zeros_like(self._mask)
        if isinstance(self._innermost, GradientAttribution):
            mask = mask.clone().requires_grad_()  # or Captum warns that it does so itself
        options = {"target": self._target, "additional_forward_args": arguments or None, **options}
        attributions = _checked(self._method.attribute(mask, **options), mask)
        if not self._cuts:
            return attributions
        return attributions.new_zeros(self._mask.shape).masked_scatter_(left, attributions)

    @restores_state
    def values(self, left: Tensor) -> Tensor:
        """Return the numbers that are explained, one per graph or mask: for GOAt logits, else the target's outputs."""
        mask, arguments = self._left(left)
        if isinstance(self._innermost, GOAtAttribution):
            return self._innermost.explained_values(mask, self._target, arguments)
        with torch.no_grad():
            return _target_values(self._method.forward_func(mask, *arguments), self._target)

    def _left(self, left: Tensor) -> tuple[Tensor, tuple[Any, ...]]:
        if not self._cuts:
            return torch.where(left, self._mask, 0.0), self._arguments
        columns = left.view(-1)
        arguments = tuple(
            _cut(name, value, columns) for name, value in zip(self._names(), self._arguments, strict=True)
        )
        return self._mask[..., columns], arguments

    def _names(self) -> list[str]:
        if any(isinstance(argument, Data) for argument in self._arguments):
            return [""] * len(self._arguments)
        named, _ = named_arguments(self._function, self._arguments, {}, self._leading)
        return list(named)[self._leading :]


def _cut(name: str, value: Any, columns: Tensor) -> Any:
    """Return what is left of an argument: what has ``edge`` in its name and a row for every edge loses rows."""
    if isinstance(value, Data):
        return keep_edges(value, columns)
    if not isinstance(value, Tensor) or "edge" not in name:
        return value
    if is_edge_index(value) and value.size(1) == len(columns):
        return value[:, columns]
    return value[columns] if value.dim() > 0 and len(value) == len(columns) else value


def _check_graphs(data: Any, mask: Tensor) -> Data:
    if not isinstance(data, Data):
        raise ValueError(f"Expected graphs as a torch_geometric Data or Batch (got {type(data).__name__}).")
    columns = edges_of(data).size(1)
    if columns != mask.size(-1):
        raise ValueError(f"Expected a mask of {columns} edges, as in the graph (got {mask.size(-1)}).")
    return data


def _target_values(output: Tensor, target: Any) -> Tensor:
    output = output.view(1) if output.dim() == 0 else output
    return find_target(output, target)(output)


def as_tuple(arguments: Any) -> tuple[Any, ...]:
    """Return additional arguments, which may be None, one, or a tuple, as a tuple."""
    return arguments if isinstance(arguments, tuple) else () if arguments is None else (arguments,)


def _only_mask(inputs: Any) -> Tensor:
    masks = flattened(inputs)
    if len(masks) != 1 or isinstance(inputs, dict):
        kind = "a dictionary" if isinstance(inputs, dict) else f"{len(masks)} inputs"
        raise ValueError(f"Expected one edge mask, [num_edges] or [num_masks, num_edges] (got {kind}).")
    check_mask(masks[0])
    mask: Tensor = masks[0].detach()
    return mask


def _checked(attributions: Any, mask: Tensor) -> Tensor:
    if not isinstance(attributions, Tensor) or attributions.shape != mask.shape:
        got = list(attributions.shape) if isinstance(attributions, Tensor) else type(attributions).__name__
        raise ValueError(f"Expected attributions of the mask's shape {list(mask.shape)} (got {got}).")
    if not bool(attributions.isfinite().all()):
        wrong = int((~attributions.isfinite()).sum())
        raise ValueError(f"Expected finite attributions (got {wrong} of {mask.numel()} that are infinite or nan).")
    return attributions.detach()
