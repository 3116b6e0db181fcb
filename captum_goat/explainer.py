"""GOAt as an algorithm of PyG's ``Explainer``."""

from __future__ import annotations

import inspect
import logging
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.functional import one_hot
from torch_geometric.explain import ExplainerAlgorithm, Explanation
from torch_geometric.explain.config import MaskType, ModelMode, ModelReturnType, ModelTaskLevel
from torch_geometric.utils import is_sparse

from captum_goat.attribution import GOAtAttribution
from captum_goat.explained_model import ExplainedModel
from captum_goat.graph_explanation import SharedEdgesError
from captum_goat.tracking import UnsupportedModelError

# Copies of a graph are explained side by side: at most so many, of at most so many features and edges together.
_MOST_COPIES, _MOST_NUMBERS = 64, 2**24


class GOAtExplainer(ExplainerAlgorithm):
    r"""GOAt for :class:`torch_geometric.explain.Explainer`.

    Explained is the output for the target, before a softmax, log-softmax or sigmoid if that is the model's very last
    operation (``return_type`` ``"probs"`` or ``"log_probs"``): GOAt attributes logits. In ``multiclass_classification``
    that is the logit of each row's target class; in ``binary_classification`` the one logit of each row for target 1,
    and minus the logit for target 0; in ``regression`` the output. If ``index`` selects several rows, or is ``None``,
    their *sum* is explained, so in a batch of graphs every edge has the attribution for its own graph.

    The masks are the signed attributions as :class:`~captum_goat.GOAtAttribution` returns them, not numbers between 0
    and 1: ``edge_mask`` ``[E]`` adds up to the output minus the output without edges. Node masks are attributions to
    ``x``: ``"attributes"`` ``[N, F]``, ``"object"`` their sums over features ``[N, 1]``, ``"common_attributes"`` their
    sums over nodes ``[1, F]``. With both masks features and edges share the output between them.

    What PyG makes of signs:

    - Thresholds go by value, not by magnitude: ``"topk"`` keeps what speaks *for* the target most (and, beyond the
      positive ones, what speaks against it least); ``"hard"`` keeps what is above a threshold in units of the output.
    - ``get_explanation_subgraph()`` keeps what is positive, ``get_complement_subgraph()`` what is exactly 0; the
      negative is in neither. (PyG cannot cut subgraphs from ``"common_attributes"``, which have no nodes.)
    - ``fidelity`` and ``unfaithfulness`` multiply messages and features by the mask and by ``1 - mask``, which only
      makes sense for zeros and ones: set ``threshold_config=("topk_hard", k)``, or call
      ``explanation.threshold("topk_hard", k)`` first. PyG's edge masks do not reach self-loops.
    - ``visualize_graph`` stretches the mask from its least (invisible) to its greatest value, and
      ``visualize_feature_importance`` cuts negative bars off. :mod:`captum_goat.visualization` draws signs.

    Heterogeneous graphs are not supported yet.

    Args:
        field: ``"distinct"`` or ``"repeated"``, as for :class:`~captum_goat.GOAtAttribution`.

    Examples::

        >>> import torch
        >>> from torch_geometric.explain import Explainer
        >>> from torch_geometric.nn import GCN
        >>> from captum_goat.explainer import GOAtExplainer
        >>> _ = torch.manual_seed(0)
        >>> explainer = Explainer(
        ...     GCN(in_channels=4, hidden_channels=8, num_layers=2, out_channels=3),
        ...     algorithm=GOAtExplainer(),
        ...     explanation_type="model",
        ...     edge_mask_type="object",
        ...     model_config=dict(mode="multiclass_classification", task_level="node", return_type="raw"),
        ... )
        >>> x, edge_index = torch.randn(5, 4), torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
        >>> explanation = explainer(x, edge_index, index=2)
        >>> explanation.edge_mask[2:]  # two edges that cannot reach node 2
        tensor([0., 0.])
        >>> explanation.threshold("topk_hard", 1).edge_mask.sum()
        tensor(1.)
    """

    def __init__(self, field: Literal["distinct", "repeated"] = "distinct") -> None:
        super().__init__()
        if field not in ("distinct", "repeated"):
            raise ValueError(f"Expected field to be 'distinct' or 'repeated' (got {field!r}).")
        self.field = field

    @torch.inference_mode(False)
    def forward(
        self,
        model: Module,
        x: Tensor,
        edge_index: Tensor,
        *,
        target: Tensor,
        index: int | Tensor | None = None,
        **kwargs: Any,
    ) -> Explanation:
        """Explain a model; called by ``Explainer``.

        Args:
            model: The model, in evaluation mode.
            x: The node features ``[N, F]``.
            edge_index: The edges ``[2, E]``.
            target: The class of every row of the output; not used in regression.
            index: The rows to explain; ``None`` for all.
            **kwargs: The model's other arguments.

        Returns:
            The explanation with ``edge_mask``, ``node_mask`` or both.

        Raises:
            ValueError: If the graph is heterogeneous or the arguments do not fit together.
            UnsupportedModelError: If the model does something that cannot be explained exactly.
        """
        if isinstance(x, dict) or isinstance(edge_index, dict):
            raise ValueError(
                f"Expected a homogeneous graph, with tensors for x and edge_index (got dictionaries): heterogeneous "
                f"graphs are not yet supported in '{type(self).__name__}'."
            )
        explained = ExplainedModel.of(model)
        explained.check_evaluating()  # before the model is called: in training mode batch norms would take note of it
        with torch.no_grad():
            output = explained.model(x, edge_index, **kwargs)
        weights = output_weights(output, target, index, self.model_config.mode)
        masks = self._masks(_Graph(explained.model, x, edge_index, kwargs, weights.dtype), weights)
        sums = {MaskType.object: 1, MaskType.common_attributes: 0}
        if (dim := sums.get(self.explainer_config.node_mask_type)) is not None:
            masks["node_mask"] = masks["node_mask"].sum(dim, keepdim=True)
        return Explanation(**masks)

    def supports(self) -> bool:
        """Return whether the settings can be explained; if not, an error is logged."""
        edge_mask_type = self.explainer_config.edge_mask_type
        if edge_mask_type not in (None, MaskType.object):
            logging.error(
                f"'{type(self).__name__}' expects 'edge_mask_type' to be 'None' or 'object' "
                f"(got '{edge_mask_type.value}')"
            )
            return False
        return True

    def _masks(self, graph: _Graph, weights: Tensor) -> _Masks:
        """Attribute ``(weights * output).sum()``."""
        if self.model_config.return_type == ModelReturnType.raw:
            try:
                return self._attribute(_WeightedSum(graph, weights), graph, graph.kwargs, target=None)
            except UnsupportedModelError:
                pass  # perhaps only because of a softmax, which is bypassed if nothing comes after it
        if (weights != 0).sum() > 1 and self._is_one_number_per_graph(graph, weights):
            try:
                return self._graph_by_graph(graph, weights)
            except SharedEdgesError:
                pass
        return self._row_by_row(graph, weights)

    def _is_one_number_per_graph(self, graph: _Graph, weights: Tensor) -> bool:
        batch, edge_index = graph.kwargs.get("batch"), graph.edge_index
        if self.model_config.task_level != ModelTaskLevel.graph or not isinstance(batch, Tensor) or weights.dim() > 2:
            return False
        if is_sparse(edge_index) or int((weights.view(len(weights), -1) != 0).sum(dim=1).max()) > 1:
            return False
        return int(batch.max()) < len(weights) and torch.equal(batch[edge_index[0]], batch[edge_index[1]])

    def _graph_by_graph(self, graph: _Graph, weights: Tensor) -> _Masks:
        """Attribute the outputs of all graphs, explained or not, and weigh each graph's own edges and nodes."""
        column = weights.view(len(weights), -1).abs().argmax(dim=1)
        target = None if weights.dim() == 1 else column
        masks = self._attribute(graph.model, graph, positional_arguments(graph.model, graph.kwargs), target)
        batch = graph.kwargs["batch"]
        owner = {"node_mask": batch, "edge_mask": batch[graph.edge_index[0]]}
        scale = weights.view(len(weights), -1).sum(dim=1)
        return {name: _rows_times(mask, scale[owner[name]]) for name, mask in masks.items()}

    def _row_by_row(self, graph: _Graph, weights: Tensor) -> _Masks:
        """Attribute one output at a time, with copies of the graph side by side."""
        arguments = positional_arguments(graph.model, graph.kwargs)
        total: _Masks = {}
        for positions in weights.nonzero().split(graph.most_copies):
            targets = [tuple(position) for position in positions.tolist()]
            masks = self._attribute(graph.model, graph, arguments, targets, (len(targets),))
            scale = weights[positions.unbind(1)]
            for name, mask in masks.items():
                total[name] = total.get(name, 0.0) + torch.tensordot(scale.to(mask.dtype), mask, dims=1)
        return total

    def _attribute(
        self, model: Module, graph: _Graph, arguments: dict[str, Any], target: Any, copies: tuple[int, ...] = ()
    ) -> _Masks:
        """Call GOAtAttribution for the graph as it stands, or for copies of it."""
        x, edge_index, config = graph.x, graph.edge_index, self.explainer_config
        inputs: _Masks = {}
        if config.node_mask_type is not None:
            inputs["node_mask"] = x.detach().expand(*copies, *x.shape)
        if config.edge_mask_type is not None:
            inputs["edge_mask"] = torch.ones(*copies, edge_index.size(1), dtype=graph.dtype, device=edge_index.device)
        mask_type: Any = "_and_".join(name.removesuffix("_mask") for name in inputs)
        others = (edge_index, *arguments.values()) if "node_mask" in inputs else (x, edge_index, *arguments.values())
        goat = GOAtAttribution(model, self.field, mask_type=mask_type)
        return dict(zip(inputs, goat.attribute(tuple(inputs.values()), target, others), strict=True))


_Masks = dict[str, Tensor]


def _rows_times(mask: Tensor, scale: Tensor) -> Tensor:
    return mask * scale.view(-1, *[1] * (mask.dim() - 1))


class _Graph(NamedTuple):
    """A model and its arguments, as ``Explainer`` passes them."""

    model: Module
    x: Tensor
    edge_index: Tensor
    kwargs: dict[str, Any]
    dtype: torch.dtype

    @property
    def most_copies(self) -> int:
        """How many copies are explained at a time."""
        size = self.edge_index.numel() + (self.x.numel() if isinstance(self.x, Tensor) else 0)
        return min(_MOST_COPIES, max(1, _MOST_NUMBERS // max(1, size)))


class _WeightedSum(Module):
    """A model whose outputs are weighted and added up, so that one attribution explains all of them."""

    def __init__(self, graph: _Graph, weights: Tensor) -> None:
        super().__init__()
        self.model, self.names, self.training = graph.model, tuple(graph.kwargs), False
        self.positions = weights.nonzero(as_tuple=True)
        self.weights, self.shape = weights[self.positions], weights.shape

    def forward(self, x: Tensor, edge_index: Tensor, *others: Any) -> Tensor:
        output: Tensor = self.model(x, edge_index, **dict(zip(self.names, others, strict=True)))
        return (output.reshape(self.shape)[self.positions] * self.weights).sum().view(1)


def positional_arguments(model: Module, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return keyword arguments as what follows ``(x, edge_index)``, with defaults in between.

    Raises:
        TypeError: If some of them cannot be passed by position.
    """
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = [each for each in inspect.signature(model.forward).parameters.values() if each.kind in kinds][2:]
    while parameters and parameters[-1].name not in kwargs:
        parameters.pop()
    arguments = {each.name: kwargs.get(each.name, each.default) for each in parameters}
    missing = [name for name in kwargs if name not in arguments]
    if missing:
        raise TypeError(
            f"Expected arguments that {type(model).__name__}.forward names and takes by position (got {missing})."
        )
    return arguments


def output_weights(output: Tensor, target: Tensor, index: int | Tensor | None, mode: ModelMode) -> Tensor:
    """Return the weights of the outputs whose weighted sum is explained.

    Args:
        output: The model's output, ``[rows]`` or ``[rows, ...]``.
        target: The class of every row; not used in regression.
        index: The rows to explain; ``None`` for all.
        mode: What the output means.

    Raises:
        ValueError: If target and output do not fit together.
    """
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
    return _rows_times(weights.to(output.dtype).view(output.shape), counts)


def _classes(numbers: Tensor, target: Tensor, counts: Tensor, num_classes: int) -> Tensor:
    """Return the target classes, one per number; those of rows that are not explained may be anything."""
    if target.numel() != numbers.numel():
        raise ValueError(
            f"Expected one target for each of the output's {numbers.numel()} row(s), also with an index "
            f"(got {target.numel()} target(s))."
        )
    classes = target.detach().to(numbers.device).long().view(numbers.shape)
    known = classes.clamp(0, num_classes - 1)
    if not torch.equal(known[counts > 0], classes[counts > 0]):
        raise ValueError(f"Expected target classes from 0 to {num_classes - 1} (got {classes[counts > 0].tolist()}).")
    return known
