"""GOAt (Graph Output Attribution) through Captum's interface."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import torch
from captum.attr import Attribution
from captum.log import log_usage
from torch import Tensor

from captum_goat.explained_model import ExplainedModel
from captum_goat.graph_explanation import GraphExplanation, SharedEdgesError
from captum_goat.graph_inputs import GraphInputs
from captum_goat.masked_model import check_mask, copies_agree


class GOAtAttribution(Attribution):
    r"""Attribute a graph model's output to its edges, exactly.

    GOAt writes the output of a ReLU network as a sum of scalar products of edges, gates (the on/off states of the
    ReLUs) and constants, shares every product equally among its edges and gates, gives each gate's share to the
    edges in its receptive field, and subtracts what the gates contribute without any edge. The attributions
    therefore add up:

    .. math:: \sum_e \mathrm{attribution}_e = f(G) - f(G \text{ without edges}).

    The products are never enumerated: a few forward and backward passes give the exact result (see
    :mod:`captum_goat.contributions`). An edge's field membership is a matter of the graph's structure: an edge that
    is masked to 0 still takes part in the sharing of gates.

    Reference: Lu, Mills, He, Liu, Niu: *GOAt: Explaining Graph Neural Networks via Graph Output Attribution*, ICLR
    2024.

    Args:
        forward_func: The trained model itself, in evaluation mode; or
            :class:`~captum_goat.EdgeMaskedModel` around it; or PyG's ``to_captum_model(model, "edge")``.
        field: ``"distinct"`` shares a gate equally among the distinct edges that reach it, as the paper says.
            ``"repeated"`` counts an edge once for every hop in which it appears, as the authors' code does.

    Examples::

        >>> import torch
        >>> from torch_geometric.nn import GCN
        >>> from captum_goat import GOAtAttribution
        >>> _ = torch.manual_seed(0)
        >>> model = GCN(in_channels=4, hidden_channels=8, num_layers=2, out_channels=3).eval()
        >>> x, edge_index = torch.randn(5, 4), torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
        >>> attributions, delta = GOAtAttribution(model).attribute(
        ...     torch.ones(4), target=(2, 0), additional_forward_args=(x, edge_index), return_convergence_delta=True
        ... )
        >>> attributions.shape, bool(delta.abs() < 1e-6)
        (torch.Size([4]), True)
        >>> attributions[2:]  # two edges that cannot reach node 2
        tensor([0., 0.])
    """

    def __init__(self, forward_func: Any, field: Literal["distinct", "repeated"] = "distinct") -> None:
        if field not in ("distinct", "repeated"):
            raise ValueError(f"Expected field to be 'distinct' or 'repeated' (got {field!r}).")
        super().__init__(forward_func)
        self._explained = ExplainedModel.of(forward_func)
        self.field = field

    @log_usage()
    def attribute(
        self,
        inputs: Tensor | tuple[Tensor, ...],
        target: Any = None,
        additional_forward_args: Any = None,
        return_convergence_delta: bool = False,
    ) -> Any:
        r"""Attribute the target's output to the edges.

        Args:
            inputs: The edge mask, usually ones. ``[E]``: the graph, or batch of graphs, as it stands; every edge is
                attributed to its own graph's target. ``[B, E]``: B masks of one graph. Any real numbers will do.
            target: What to explain: an int, or one per graph (or per mask) in a list or tensor; ``None`` for outputs
                with one number per graph; tuples for outputs with more dimensions, as in Captum. For models with one
                output row per node ``(node, class)``, or a list of such tuples, one per mask.
            additional_forward_args: The model's own arguments, ``(x, edge_index, batch, ...)``.
            return_convergence_delta: Whether to return the completeness error too.

        Returns:
            The attributions, of the shape, dtype and device of ``inputs`` (a tuple if that is one); with
            ``return_convergence_delta`` also the delta, sum minus difference, one per graph or mask.

        Raises:
            ValueError: If the model is in training mode or the arguments do not fit together.
            UnsupportedModelError: If the model does something that cannot be explained exactly.
        """
        with torch.inference_mode(False):
            mask = _only_mask(inputs)
            explanations = self._explanations(mask, target, additional_forward_args)
            attributions, deltas = zip(*(each.attribute() for each in explanations), strict=True)
        joined = torch.cat(attributions).view_as(mask).to(mask.dtype)
        result = (joined,) if isinstance(inputs, tuple) else joined
        return (result, torch.cat(deltas)) if return_convergence_delta else result

    @log_usage()
    def compute_convergence_delta(
        self,
        attributions: Tensor | tuple[Tensor, ...],
        start_point: Tensor | tuple[Tensor, ...] | float | None,
        end_point: Tensor | tuple[Tensor, ...],
        target: Any = None,
        additional_forward_args: Any = None,
    ) -> Tensor:
        r"""Return the completeness error of attributions, Captum's way round: sum minus difference.

        Args:
            attributions: The attributions, by whatever method, of the shape of ``end_point``.
            start_point: The mask of the baseline; ``None`` for no edges.
            end_point: The mask that was explained.
            target: As for :meth:`attribute`.
            additional_forward_args: As for :meth:`attribute`.

        Returns:
            One number per graph (masks ``[E]``) or per mask (``[B, E]``):
            ``sum(attributions) - (f(end_point) - f(start_point))``.
        """
        mask, scores = _only_mask(end_point), _only_mask(attributions)
        start = _only_mask(start_point) if isinstance(start_point, Tensor | tuple) else start_point or 0.0
        start = torch.broadcast_to(torch.as_tensor(start, dtype=mask.dtype, device=mask.device), mask.shape)
        if scores.shape != mask.shape:
            raise ValueError(
                f"Expected attributions of the mask's shape {list(mask.shape)} (got {list(scores.shape)})."
            )
        ends = self._explanations(mask, target, additional_forward_args)
        starts = self._explanations(start, target, additional_forward_args)
        return torch.cat(
            [
                end.sums(part) - (end.value - begin.value)
                for end, begin, part in zip(ends, starts, scores.view(len(ends), -1), strict=True)
            ]
        )

    @property
    def multiplies_by_inputs(self) -> bool:
        """Whether attributions have the inputs as a factor: they do."""
        return True

    def has_convergence_delta(self) -> bool:
        """Return whether there is a completeness error to return: there is."""
        return True

    @classmethod
    def get_name(cls) -> str:
        """Return the method's name."""
        return "GOAt"

    def _explanations(self, mask: Tensor, target: Any, arguments: Any) -> list[GraphExplanation]:
        """Record the model: once for a graph or for copies of it side by side, else once per mask."""
        model, finish = self._explained
        self._explained.check_evaluating()
        arguments = arguments if isinstance(arguments, tuple) else () if arguments is None else (arguments,)
        graph = GraphInputs.of(model, arguments, {}, mask.size(-1))
        explain = partial(GraphExplanation, finish=finish, repeated=self.field == "repeated")
        if mask.dim() == 1:
            return [explain(graph, mask, target)]
        count = len(mask)
        if count == 1 or finish is None:
            try:
                together = explain(graph.copies(count), mask.reshape(-1), target, copies=count)
                if count == 1 or copies_agree(together.output, graph, mask):
                    return [together]
            except SharedEdgesError:
                pass  # the model mixes the graphs of a batch: explain one after the other
        per_mask = isinstance(target, list) or (isinstance(target, Tensor) and target.numel() > 1)
        targets = target if per_mask else [target] * count
        if len(targets) != count:
            raise ValueError(f"Expected one target per mask (got {len(targets)} targets for {count} masks).")
        return [explain(graph, each, one, copies=1) for each, one in zip(mask, targets, strict=True)]


def _only_mask(inputs: Any) -> Tensor:
    """Return the edge mask, detached."""
    if isinstance(inputs, tuple):
        if len(inputs) != 1:
            raise ValueError(f"Expected one input, the edge mask (got {len(inputs)} inputs).")
        inputs = inputs[0]
    check_mask(inputs)
    mask: Tensor = inputs.detach()
    return mask.clone() if mask.is_inference() else mask
