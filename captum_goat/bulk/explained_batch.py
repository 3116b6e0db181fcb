"""The explanation of one batch of graphs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Data

from captum_goat.attribution import GOAtAttribution
from captum_goat.bulk.graph_targets import GraphTargets
from captum_goat.inputs.feature_masks import average_features, undirected_feature_mask
from captum_goat.wrapped_model import ExplainedModel


class ExplainedBatch(NamedTuple):
    """Attributions of the graphs of a batch, on the CPU.

    Attributes:
        attributions: ``[E]``, or ``[E, C]`` for all classes.
        targets: The explained class of every graph, ``[G]``; ``None`` where all are explained or there are none.
        outputs: The model's output, ``[G, C]`` or ``[G]``, without a last softmax or sigmoid.
        deltas: The completeness errors, ``[G]``, or ``[G, C]`` for all classes.
    """

    attributions: Tensor
    targets: Tensor | None
    outputs: Tensor
    deltas: Tensor


@dataclass(frozen=True)
class BatchExplainer:
    """How batches are explained.

    Attributes:
        model: The model, or a wrapper that :class:`~captum_goat.GOAtAttribution` knows.
        targets: What is explained of every graph.
        field: As for :class:`~captum_goat.GOAtAttribution`.
        undirected: Whether the two directions of an edge are both given their mean.
        arguments: Returns the model's arguments for a batch; ``None`` to look for them by name.
        device: Where the model is; ``None`` to find out.
    """

    model: Any
    targets: GraphTargets
    field: Literal["distinct", "repeated"] = "distinct"
    undirected: bool = False
    arguments: Callable[[Data], Any] | None = None
    device: torch.device | None = None

    def __call__(self, batch: Data, members: range) -> ExplainedBatch:
        """Explain a batch of the graphs with these numbers in the data set."""
        model = ExplainedModel.of(self.model).model
        like = _numbers_of(model)
        device = like.device if self.device is None else self.device
        batch = batch.to(device)
        if self.arguments is None:
            check_arguments(model, batch)
        arguments = batch if self.arguments is None else self.arguments(batch)
        mask = torch.ones(batch.edge_index.size(1), dtype=like.dtype, device=device)
        choice, chosen = self.targets.choice(batch, members)
        found = GOAtAttribution(self.model, self.field)._explain(mask, choice, arguments)
        if len(found.output) != len(members):
            raise ValueError(
                f"Expected one row of output per graph (got output {list(found.output.shape)} for {len(members)} "
                "graphs). A model that takes one graph at a time needs batch_size=1; one with a row per node, "
                "explain_nodes."
            )
        edges = torch.stack([each for (each,) in found.attributions])
        if self.undirected:
            edges = average_features(edges, undirected_feature_mask(batch.edge_index))
        deltas = torch.stack(found.deltas)
        if self.targets.all_classes:
            attributions, deltas = edges.t().contiguous(), deltas.t().contiguous()
        else:
            attributions, deltas = edges[0], deltas[0]
        targets = self.targets.explained(found.output, chosen)
        return ExplainedBatch(
            attributions.cpu(), None if targets is None else targets.cpu(), found.output.detach().cpu(), deltas.cpu()
        )


def check_arguments(model: Module, batch: Data) -> None:
    """Refuse graphs that lack what a model's ``forward`` must be given by name."""
    parameters = inspect.signature(model.forward).parameters.values()
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [each.name for each in parameters if each.default is each.empty and each.kind not in variadic]
    missing = [name for name in needed if name not in batch]
    takes_graph = missing == needed and len(needed) <= 1
    if missing and not takes_graph:
        raise ValueError(
            f"Expected graphs with {', '.join(missing)}, which {type(model).__name__}.forward needs (got "
            f"{', '.join(batch.keys())}). Pass arguments=..., a function of a batch that returns the model's arguments."
        )


def _numbers_of(model: Module) -> Tensor:
    """Return a tensor of the type of a model's numbers, where they are."""
    weights = (each for each in (*model.parameters(), *model.buffers()) if each.is_floating_point())
    return next(weights, torch.empty(0))
