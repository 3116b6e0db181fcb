"""GOAt as an algorithm of PyG's ``Explainer``."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Literal

import torch
from captum.attr import Attribution
from torch import Tensor
from torch.nn import Module
from torch.nn.functional import one_hot
from torch_geometric.explain import ExplainerAlgorithm, Explanation, HeteroExplanation
from torch_geometric.explain.config import MaskType, ModelMode

from captum_goat.attribution import GOAtAttribution, check_options
from captum_goat.hooks.global_state import outside_inference_mode, restores_state
from captum_goat.hooks.interception import unchanged
from captum_goat.inputs.graph_inputs import fresh
from captum_goat.masked_model import check_at
from captum_goat.wrapped_model import ExplainedModel


class CaptumGraphExplainer(ExplainerAlgorithm):
    r"""Any method of this package for :class:`torch_geometric.explain.Explainer`.

    ``method`` is its class, such as :class:`~captum_goat.GuidedShapley`, or another function of the model that returns
    it; its options follow. What is explained, and what becomes of signs, is as for :class:`GOAtExplainer`.
    :class:`~captum_goat.EdgeSetSearch`, which measures the probability of a class, explains one row of the output.

    Examples:
        >>> from captum_goat import CaptumGraphExplainer, GuidedShapley
        >>> algorithm = CaptumGraphExplainer(GuidedShapley, n_samples=16)  # in place of GOAtExplainer()
        >>> algorithm.options
        {'n_samples': 16}
    """

    def __init__(self, method: Callable[..., Attribution], **options: Any) -> None:
        super().__init__()
        if not callable(method) or isinstance(method, Module):
            raise TypeError(
                f"Expected the class of a method, such as GuidedShapley (got {type(method).__name__}). Its options "
                "follow by name; the model is that of PyG's Explainer."
            )
        self.method, self.options = method, options

    @restores_state
    def forward(
        self,
        model: Module,
        x: Tensor | dict[str, Tensor],
        edge_index: Tensor | dict[tuple[str, str, str], Tensor],
        *,
        target: Tensor,
        index: int | Tensor | None = None,
        **kwargs: Any,
    ) -> Explanation | HeteroExplanation:
        """Explain a model; called by ``Explainer``, whose documentation describes the arguments."""
        explained = ExplainedModel.of(model)
        explained.check_evaluating()  # before the model is called: in training mode batch norms would take note of it
        if isinstance(x, dict) != isinstance(edge_index, dict):
            got = f"{type(x).__name__} and {type(edge_index).__name__}"
            raise ValueError(f"Expected tensors for x and edge_index, or dictionaries for both (got {got}).")
        by_name = _ByName(explained.model, tuple(kwargs))
        arguments = (x, edge_index, *kwargs.values())
        with outside_inference_mode():
            with torch.no_grad():
                output = unchanged(explained.model, lambda: by_name(*map(fresh, arguments)))
            masks = self._masks(by_name, arguments, output_weights(output, target, index, self.model_config.mode))
        sums = {MaskType.object: 1, MaskType.common_attributes: 0}
        if (dim := sums.get(self.explainer_config.node_mask_type)) is not None:
            masks["node_mask"] = _by_type(lambda mask: mask.sum(dim, keepdim=True), masks["node_mask"])
        if not isinstance(edge_index, dict):
            return Explanation(**masks)
        explanation = HeteroExplanation()
        for name, mask in masks.items():
            explanation.set_value_dict(name, mask)
        return explanation

    def supports(self) -> bool:
        """Return whether the settings can be explained; if not, an error is logged."""
        nodes, edges = self.explainer_config.node_mask_type, self.explainer_config.edge_mask_type
        expected = ""
        if nodes is not None and self.method is not GOAtAttribution:
            expected = "expects 'node_mask_type' to be 'None'"
        elif edges not in (None, MaskType.object):
            expected = f"expects 'edge_mask_type' to be 'None' or 'object' (got '{edges.value}')"
        elif edges is None and self.options.get("at") == "adjacency":
            expected = "with at='adjacency' expects 'edge_mask_type' to be 'object'"
        if expected:
            logging.error(f"'{type(self).__name__}' {expected}")
        return not expected

    def _masks(self, model: _ByName, arguments: tuple[Any, ...], weights: Tensor) -> dict[str, Any]:
        """Attribute ``(weights * output).sum()``, with logits where the model ends in a softmax; the masks by name."""
        x, edge_index, *others = arguments
        nodes = self.explainer_config.node_mask_type is not None
        inputs: dict[str, Any] = {"node": _by_type(Tensor.detach, x)} if nodes else {}
        if self.explainer_config.edge_mask_type is not None:
            inputs["edge"] = _by_type(lambda edges: weights.new_ones(edges.size(1)), edge_index)
        positions = weights.nonzero(as_tuple=True)

        def weighted_sum(output: Tensor) -> Tensor:
            return (output.reshape(weights.shape)[positions] * weights[positions]).sum().view(1)

        is_single = self.model_config.mode == ModelMode.binary_classification or weights.size(-1) == 1

        def one_row(output: Tensor) -> Tensor:  # the logits of classes; of one logit, it or its negative
            output = output.reshape(weights.shape)
            return output[positions] * weights[positions].sign() if is_single else output[positions[:-1]].view(1, -1)

        mask_type, target = "_and_".join(inputs), None
        method = self.method(ExplainedModel(model, mask_type, weighted_sum), **self.options)
        if getattr(method, "measures_probabilities", False):
            _check_one_probability(method, weights, self.model_config.mode)
            method = self.method(ExplainedModel(model, mask_type, one_row), **self.options)
            target = None if is_single else int(positions[-1])
        given = (edge_index, *others) if nodes else arguments
        masks = method.attribute(tuple(inputs.values()), target, given)
        return {f"{name}_mask": mask for name, mask in zip(inputs, masks, strict=True)}


class GOAtExplainer(CaptumGraphExplainer):
    """GOAt for :class:`torch_geometric.explain.Explainer`.

    Explained is the output for the target, before a softmax, log-softmax or sigmoid if that is the model's very last
    operation (``return_type`` ``"probs"`` or ``"log_probs"``). In ``multiclass_classification`` that is the logit of
    each row's target class; in ``binary_classification`` the one logit of each row for target 1, and minus the logit
    for target 0; in ``regression`` the output. If ``index`` selects several rows, or is ``None``, their *sum* is
    explained, so in a batch of graphs every edge has the attribution for its own graph.

    The masks are the signed attributions as :class:`~captum_goat.GOAtAttribution` returns them, not numbers between 0
    and 1: ``edge_mask`` ``[E]`` adds up to the output minus the output without edges. Node masks are attributions to
    ``x``: ``"attributes"`` ``[N, F]``, ``"object"`` their sums over features, ``"common_attributes"`` their sums over
    nodes. With both masks features and edges share the output between them. PyG's thresholds go by value, not by
    magnitude. Its ``fidelity`` and ``unfaithfulness`` multiply by the mask and by ``1 - mask``, which only makes sense
    for zeros and ones: call ``explanation.threshold("topk_hard", k)`` first. Its pictures do not show signs;
    :mod:`captum_goat.plot` does.

    A heterogeneous graph, given by dictionaries, has a ``HeteroExplanation`` with a mask per edge type or node type,
    which together add up to the output. Edge masks and node masks at once are refused if there are several node types.

    The options are those of :class:`~captum_goat.GOAtAttribution`; ``at="adjacency"`` needs an edge mask.

    Examples:
        >>> from torch_geometric.explain import Explainer
        >>> from torch_geometric.nn import GCN
        >>> from captum_goat import GOAtExplainer
        >>> model = GCN(in_channels=4, hidden_channels=8, num_layers=2, out_channels=3)
        >>> config = dict(mode="multiclass_classification", task_level="node", return_type="raw")
        >>> explainer = Explainer(model, GOAtExplainer(), "model", config, edge_mask_type="object")
        >>> x, edge_index = torch.randn(5, 4), torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
        >>> explainer(x, edge_index, index=2).edge_mask[2:]  # two edges that cannot reach node 2
        tensor([0., 0.])
    """

    def __init__(
        self,
        field: Literal["distinct", "repeated"] = "distinct",
        *,
        at: Literal["message", "adjacency"] = "message",
        gates: Literal["equal", "proportional"] = "equal",
    ) -> None:
        if isinstance(field, Module):
            got = type(field).__name__
            raise TypeError(f"Expected options of GOAt (got the model, {got}). Pass the model to PyG's Explainer.")
        check_options(field, gates)
        check_at(at)
        super().__init__(GOAtAttribution, field=field, at=at, gates=gates)


def output_weights(output: Tensor, target: Tensor, index: int | Tensor | None, mode: ModelMode) -> Tensor:
    """Return the weights of the outputs whose weighted sum is explained; ``index`` has the rows, ``None`` for all."""
    if mode == ModelMode.multiclass_classification and output.dim() == 1:
        return output_weights(output.unsqueeze(0), target, index, mode).squeeze(0)
    output = output.view(1) if output.dim() == 0 else output
    rows = torch.arange(len(output), device=output.device)
    counts = rows[slice(None) if index is None else index].reshape(-1).bincount(minlength=len(output))
    if not counts.any():
        raise ValueError(f"Expected at least one row to explain (got index {index} for output {list(output.shape)}).")
    if mode == ModelMode.regression:
        weights = torch.ones_like(output)
    elif mode == ModelMode.multiclass_classification:
        weights = one_hot(_classes(output[..., 0], target, counts, output.size(-1)), output.size(-1))
    elif output.numel() == len(output):
        weights = 2 * _classes(output.flatten(), target, counts, 2) - 1
    else:
        raise ValueError(f"Expected one number per row in binary classification (got output {list(output.shape)}).")
    return weights.to(output.dtype).view(output.shape) * counts.view(-1, *[1] * (output.dim() - 1))


def _check_one_probability(method: Attribution, weights: Tensor, mode: ModelMode) -> None:
    """Raise ValueError unless one row of a classifier's output is explained."""
    name, count = type(method).__name__, int(weights.count_nonzero())
    if mode == ModelMode.regression:
        raise ValueError(f"Expected a classifier for {name}, which measures probabilities (got mode 'regression').")
    if count != 1:
        raise ValueError(
            f"Expected one row of the output to explain with {name} (got {count}). Pass index=..., or call "
            f"explain_dataset for many graphs, or explain_nodes for many nodes, with {name}(model)."
        )


def _classes(numbers: Tensor, target: Tensor, counts: Tensor, num_classes: int) -> Tensor:
    """Return the target classes, one per number; those of rows that are not explained may be anything."""
    if target.numel() != numbers.numel():
        expected = f"one target for each of the output's {numbers.numel()} row(s), also with an index"
        raise ValueError(f"Expected {expected} (got {target.numel()} target(s)).")
    classes = target.detach().to(numbers.device).long().view(numbers.shape)
    known = classes.clamp(0, num_classes - 1)
    if not torch.equal(known[counts > 0], classes[counts > 0]):
        raise ValueError(f"Expected target classes from 0 to {num_classes - 1} (got {classes[counts > 0].tolist()}).")
    return known


class _ByName(Module):
    """A model that takes its further arguments by position and passes them on by name."""

    def __init__(self, model: Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.names, self.training = model, names, False

    def forward(self, x: Any, edge_index: Any, *others: Any) -> Any:
        return self.model(x, edge_index, **dict(zip(self.names, others, strict=True)))


def _by_type(function: Callable[[Tensor], Tensor], value: Any) -> Any:
    """Apply a function to a tensor, or type by type to a dictionary of them."""
    return {key: function(entry) for key, entry in value.items()} if isinstance(value, dict) else function(value)
