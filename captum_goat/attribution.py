"""GOAt (Graph Output Attribution) through Captum's interface."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
from captum.attr import Attribution
from captum.log import log_usage
from torch import Tensor

from captum_goat.adjacency.mask_entry import ENTRIES, check_deletion
from captum_goat.hooks.global_state import outside_inference_mode, restores_state, switch_off_autocast
from captum_goat.hooks.interception import check_caches
from captum_goat.inputs.graph_inputs import Selector, tensor_output
from captum_goat.inputs.request import Request, flattened, restored
from captum_goat.inputs.targets import Choice
from captum_goat.method.explain import recorded_explanations
from captum_goat.method.record import KnownModel
from captum_goat.tracking.program import ProgramStore
from captum_goat.wrapped_model import ExplainedModel

# A tensor, or several: in the order of the model's arguments, or by node or edge type.
Inputs: TypeAlias = Tensor | tuple[Any, ...] | dict[Any, Tensor]


class Explained(NamedTuple):
    """What methods of this package find, for each target."""

    attributions: list[tuple[Tensor, ...]]  # one tensor per input
    deltas: list[Tensor]  # the completeness error of each graph or mask; nan for scores that do not add up
    output: Tensor  # the model's output, without a last softmax or sigmoid
    details: Any  # GOAt: the number of points of integrals; other methods: what else they found, for each target


def check_options(field: str, gates: str) -> None:
    """Raise ValueError if ``field`` or ``gates`` is not a known option."""
    if field not in ("distinct", "repeated"):
        raise ValueError(f"Expected field to be 'distinct' or 'repeated' (got {field!r}).")
    if gates not in ("equal", "proportional"):
        raise ValueError(f"Expected gates to be 'equal' or 'proportional' (got {gates!r}).")


class GOAtAttribution(Attribution):
    r"""Attribute a graph model's output to its edges, exactly.

    GOAt writes the output of a ReLU network as a sum of scalar products of edges, gates (the on/off states of the
    ReLUs) and constants, shares every product equally among its edges and gates, gives each gate's share to the
    edges in its receptive field, and subtracts what the gates contribute without any edge. The attributions add up:

    .. math:: \sum_e \mathrm{attribution}_e = f(G) - f(G \text{ without edges}).

    The products are never enumerated: a few forward and backward passes give the exact result (see
    :mod:`captum_goat.method`). Receptive fields depend on the graph alone: an edge of mask 0 still takes part in the
    sharing of gates. A softmax or sigmoid that is the model's last step is left out: logits are attributed.

    Node features are attributed with ``mask_type="node"`` (edges are then constants) or ``"node_and_edge"`` (both are
    variables and share every product), against the graph with all features 0, for ``"node_and_edge"`` without edges.
    The gates' shares go to non-zero features: with ``"node"`` of every node that reaches the gate; with
    ``"node_and_edge"`` of the gate's own node (after pooling: of the nodes that bring more than biases into the pool),
    beside the edges that reach it. Edge attributes are variables as node features are: of every edge whose attributes
    reach the gate. A model without message passing is explained on its inputs, whose rows are examples. The user's own
    ``model`` and the options are attributes.

    In half precision rounding flips gates whose inputs are close to 0: attributions differ from those of
    ``model.float()`` by a few per cent (``float16``) or tens of per cent (``bfloat16``) of the largest one.

    Reference: Lu, Mills, He, Liu, Niu: *GOAt: Explaining Graph Neural Networks via Graph Output Attribution*, ICLR
    2024.

    Args:
        forward_func: The trained model itself, in evaluation mode; or :class:`~captum_goat.EdgeMaskedModel` around it;
            or PyG's ``to_captum_model(model, "edge")``, for heterogeneous graphs with ``metadata``.
        field: ``"distinct"`` shares a gate equally among the distinct edges that reach it, as the paper says.
            ``"repeated"`` counts an edge once for every hop in which it appears, as the authors' code does.
        mask_type: What is attributed: ``"edge"``, the default for models that are called with edges; ``"node"``, the
            node features; ``"edge_attr"``, the edge attributes; or several of them, with ``"_and_"`` between them or
            as a set. Inputs are in the order node, edge, edge_attr.
        at: Where an edge mask enters, as for :class:`~captum_goat.EdgeMaskedModel`: ``"message"``, the default and the
            paper's meaning, after degree normalisation; or ``"adjacency"``, as the presence of the edges: attributions
            add up to what deleting all edges does. The integrand is then no polynomial: the number of points is doubled
            from 8 to at most 128, until the completeness error is below ``eps ** 0.75`` of the sum of absolute values.
        gates: ``"equal"`` shares a gate equally among its edges, as the paper does; ``"proportional"`` in proportion to
            the absolute values of the edges' own shares.
        output: The part of the model's output that is explained, as for :class:`~captum_goat.EdgeMaskedModel`.

    Examples:
        >>> from torch_geometric.nn import GCN
        >>> from captum_goat import GOAtAttribution
        >>> goat = GOAtAttribution(GCN(in_channels=4, hidden_channels=8, num_layers=2, out_channels=3).eval())
        >>> graph = torch.randn(5, 4), torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])  # x, edge_index
        >>> attributions, delta = goat.attribute(torch.ones(4), (2, 0), graph, return_convergence_delta=True)
        >>> attributions.shape, bool(delta.abs() < 1e-6)
        (torch.Size([4]), True)
        >>> attributions[2:]  # two edges that cannot reach node 2
        tensor([0., 0.])
        >>> goat.attribute_all(torch.ones(4), [(2, 0), (2, 1), (4, 1)], graph).shape
        torch.Size([4, 3])
        >>> goat.attribute_layers(torch.ones(4), (2, 0), graph).shape
        torch.Size([2, 4])
    """

    multiplies_by_inputs = True  # attributions have the inputs as a factor

    def __init__(
        self,
        forward_func: Any,
        field: Literal["distinct", "repeated"] = "distinct",
        *,
        mask_type: str | Collection[str] | None = None,
        at: Literal["message", "adjacency"] | None = None,
        gates: Literal["equal", "proportional"] = "equal",
        output: Selector = None,
    ) -> None:
        check_options(field, gates)
        super().__init__(forward_func)
        self._explained = ExplainedModel.of(forward_func, mask_type, at, output)
        self.model, self.mask_type, self.at = self._explained.model, self._explained.mask_type, self._explained.at
        self.field, self.gates = field, gates
        self._checked = False
        self._programs = ProgramStore[KnownModel]()

    @log_usage()
    def attribute(
        self,
        inputs: Inputs,
        target: Any = None,
        additional_forward_args: Any = None,
        return_convergence_delta: bool = False,
        feature_mask: Inputs | None = None,
    ) -> Any:
        r"""Attribute the target's output to the edges, the node features, or both.

        Args:
            inputs: The edge mask, usually ones; other numbers are possible. ``[E]``: one mask of a graph or batch of
                graphs; every edge is attributed to its own graph's target. ``[B, E]``: B masks of one graph.
                With ``mask_type="node"`` the features ``x``, ``[N, F]`` or ``[B, N, F]``; with ``"node_and_edge"`` the
                tuple ``(x, edge_mask)``; with ``"edge_attr"`` the edge attributes, ``[E, D]`` or ``[E]``, after the
                others. For a model without message passing its inputs, one row per example.
                A heterogeneous graph has a mask per edge type, ``{edge_type: mask}`` or a tuple in the order of
                ``edge_index_dict``; and features per node type, ``{node_type: x}`` or, with ``HeteroData``, a tuple. A
                model with several ``edge_index`` tensors has a mask for each, in their order or by their names.
            target: What to explain: an int, or one per graph (or per mask) in a list or tensor; ``None`` for outputs
                with one number per graph, ``[G]`` or ``[G, 1]``; tuples for outputs with more dimensions, as in Captum.
                For models with one output row per node ``(node, class)``, or a list of such tuples, one per mask.
            additional_forward_args: The model's other arguments: ``(x, edge_index, batch, ...)`` for edges,
                ``(edge_index, batch, ...)`` where ``x`` is an input; for heterogeneous graphs ``(x_dict,
                edge_index_dict, ...)`` and ``(edge_index_dict, ...)``. Or one ``Data``, ``HeteroData`` or ``Batch``.
            return_convergence_delta: Whether to return the completeness error too.
            feature_mask: The feature of each entry of ``inputs``, in the same form: integers from 0 on. Each entry is
                given the sum over its feature. See :func:`~captum_goat.undirected_feature_mask`.

        Returns:
            The attributions, of the shape, dtype and device of ``inputs``, in the same form (tensor, tuple or
            dictionary); with ``return_convergence_delta`` also the delta, sum minus difference, one per graph or mask.

        Raises:
            ValueError: If the model is in training mode or the arguments do not fit together.
            UnsupportedModelError: If the model does something that cannot be explained exactly.
        """
        attributions, deltas, *_ = self._explain(inputs, Choice([target]), additional_forward_args, feature_mask)
        result = restored(inputs, attributions[0])
        return (result, deltas[0]) if return_convergence_delta else result

    @log_usage()
    def attribute_all(
        self,
        inputs: Inputs,
        targets: Sequence[Any] | None = None,
        additional_forward_args: Any = None,
        return_convergence_delta: bool = False,
    ) -> Any:
        r"""Attribute several targets at once: the model is recorded once and replayed as often as for one target.

        The arguments are those of :meth:`attribute`, with several targets; ``None`` for every class of an output
        ``[rows, classes]`` with one row per graph or mask. Returns the attributions, in the form of ``inputs`` with one
        more dimension at the end, that of the targets; with ``return_convergence_delta`` also the deltas,
        ``[graphs, targets]``.
        """
        if isinstance(targets, int):
            raise TypeError(f"Expected several targets, or None for every class (got {targets}). Pass [{targets}].")
        choice = Choice("all" if targets is None else targets)
        attributions, deltas, *_ = self._explain(inputs, choice, additional_forward_args)
        result = restored(inputs, [torch.stack(values, dim=-1) for values in zip(*attributions, strict=True)])
        return (result, torch.stack(deltas, dim=-1)) if return_convergence_delta else result

    @log_usage()
    @restores_state
    def attribute_layers(self, inputs: Tensor, target: Any = None, additional_forward_args: Any = None) -> Tensor:
        r"""Attribute the target's output to the edges, message passing step by message passing step.

        A step is a call of a message passing layer. An edge's own shares belong to the steps in which it is a factor.
        A gate's share belongs to the last step in which a message over the edge reaches the gate. The arguments are
        those of :meth:`attribute`, with one edge mask ``[E]``, ``at="message"`` and ``field="distinct"``. Returns one
        number per step, in the order of the calls, and edge, ``[steps, E]``, whose sum over the steps is what
        :meth:`attribute` returns.
        """
        with outside_inference_mode():
            request = self._request(inputs, additional_forward_args)
            options = self.mask_type or ("edge" if request.masks else "input"), self.at, self.field
            if options != ("edge", "message", "distinct") or request.count is not None or len(request.masks) != 1:
                raise ValueError(
                    f"Expected one edge mask [E] to be attributed, with at='message' and field='distinct' (got "
                    f"{len(flattened(inputs))} input(s) for {', '.join(map(repr, options))})."
                )
            (explanation,) = recorded_explanations(request, Choice([target]), proportional=self.gates == "proportional")
            return explanation.attribute_steps()[0].to(inputs.dtype)

    def _request(self, inputs: Any, arguments: Any) -> Request:
        """Read the arguments of a call, and switch autocast off until its end."""
        request = self._explained.request(inputs, arguments)
        switch_off_autocast(request.device)
        return request

    @restores_state
    def _explain(self, inputs: Any, choice: Choice, arguments: Any, feature_mask: Any = None) -> Explained:
        """Explain all chosen targets."""
        with outside_inference_mode():
            request = self._request(inputs, arguments)
            check_caches(self.model, lambda: tensor_output(request.one_graph()))
            if not self._checked:
                self._checked = check_deletion(request.one_graph, ENTRIES[request.at])
            options = {"repeated": self.field == "repeated", "proportional": self.gates == "proportional"}
            explanations = recorded_explanations(request, choice, programs=self._programs, **options)
            per_target = list(zip(*(explanation.attribute() for explanation in explanations), strict=True))
            attributions = [
                request.joined([part.edges for part in parts], [part.features for part in parts])
                for parts in per_target
            ]
            if feature_mask is not None:
                groups = flattened(feature_mask, inputs)
                attributions = [request.grouped(values, groups) for values in attributions]
            deltas = [torch.cat([part.delta for part in parts]) for parts in per_target]
            output = torch.cat([explanation.output for explanation in explanations])
            return Explained(attributions, deltas, output, sum(explanation.points for explanation in explanations))

    @log_usage()
    @restores_state
    def compute_convergence_delta(
        self,
        attributions: Inputs,
        start_point: Inputs | float | None,
        end_point: Inputs,
        target: Any = None,
        additional_forward_args: Any = None,
    ) -> Tensor:
        r"""Return the completeness error of attributions, by whatever method, one number per graph or per mask.

        It is ``sum(attributions) - (f(end_point) - f(start_point))``: ``end_point`` are the inputs that were explained,
        ``start_point`` is the baseline, ``None`` for 0 (no edges). The others are as for :meth:`attribute`.
        """
        ends, scores, given = (flattened(values, end_point) for values in (end_point, attributions, start_point))
        shapes, expected = ([list(tensor.shape) for tensor in tensors] for tensors in (scores, ends))
        if shapes != expected:
            raise ValueError(f"Expected attributions of the inputs' shapes {expected} (got {shapes}).")
        if len(given) not in (1, len(ends)):
            raise ValueError(f"Expected one start point per input, or one for all (got {len(given)} for {len(ends)}).")
        starts = [
            torch.as_tensor(0.0 if start is None else start, device=end.device).to(end.dtype).expand(end.shape)
            for start, end in zip(given * (len(ends) // len(given)), ends, strict=True)
        ]
        last = self._request(end_point, additional_forward_args)
        at_end = recorded_explanations(last, Choice([target]))
        parts = zip(at_end, last.parts(scores, len(at_end)), strict=True)
        sums = torch.cat([explanation.sums(*part) for explanation, part in parts])
        start_values = self.explained_values(restored(end_point, starts), target, additional_forward_args)
        return sums - (torch.cat([explanation.values() for explanation in at_end]) - start_values)

    @restores_state
    def explained_values(self, inputs: Any, target: Any = None, additional_forward_args: Any = None) -> Tensor:
        """Return the numbers that :meth:`attribute` with the same arguments would explain, one per graph or mask."""
        with outside_inference_mode():
            explanations = recorded_explanations(self._request(inputs, additional_forward_args), Choice([target]))
            return torch.cat([explanation.values() for explanation in explanations]).detach()

    @property
    def options(self) -> dict[str, Any]:
        """The options that decide the attributions, by name."""
        return {"field": self.field, "at": self.at, "gates": self.gates}

    def has_convergence_delta(self) -> bool:
        """Return whether :meth:`attribute` can return a completeness error; always true."""
        return True

    @classmethod
    def get_name(cls) -> str:
        """Return the method's name."""
        return "GOAt"
