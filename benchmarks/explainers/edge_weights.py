"""Integrated gradients on edge weights, which enter before degree normalisation."""

from __future__ import annotations

import inspect
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.nn import MessagePassing

from benchmarks.explainers.graph_copies import repeat_graphs
from captum_goat.compare.explainers import ExplainerSkippedError, IntegratedGradients
from captum_goat.compare.graphs import Graphs, MaskedTargets


class WeightedTargets(MaskedTargets):
    """The logits of the target classes as a function of the edge weights that every layer is given.

    Args:
        model: A model whose layers all take ``edge_weight``.
        graphs: The graphs and their classes.

    Raises:
        ExplainerSkippedError: If a layer takes no weights.
    """

    def __init__(self, model: Module, graphs: Graphs) -> None:
        super().__init__(model, graphs)
        for name, layer in model.named_modules():
            if isinstance(layer, MessagePassing) and not takes_weights(layer):
                raise ExplainerSkippedError(
                    f"Expected layers that take edge weights (got {type(layer).__name__} as '{name}'). Without degree "
                    f"normalisation edge weights are the same as the mask of the messages: see 'integrated_gradients'."
                )
        self.model = model

    def logits(self, weights: Tensor) -> Tensor:
        """Return the logits for each of B rows of weights."""
        copies = repeat_graphs(self.graphs, len(weights))
        with ExitStack() as hooks:
            for layer in self.model.modules():
                if isinstance(layer, MessagePassing):
                    hook = _weigh(weights.reshape(-1), copies.edge_index)
                    hooks.callback(layer.register_forward_pre_hook(hook, with_kwargs=True).remove)
            logits: Tensor = self.model(*copies.inputs)
        return logits.view(len(weights), len(self.graphs.target), -1)


def takes_weights(layer: MessagePassing) -> bool:
    """Return whether a layer's forward takes ``edge_weight``."""
    return "edge_weight" in inspect.signature(layer.forward).parameters


def _weigh(weights: Tensor, edge_index: Tensor) -> Any:
    def hook(layer: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        given = inspect.signature(layer.forward).bind(*args, **kwargs).arguments
        if given.get("edge_weight") is not None or given.get("edge_index") is not edge_index:
            raise ExplainerSkippedError(
                f"Expected every layer to be called with the model's own edge_index and without weights (got another "
                f"call of {type(layer).__name__})."
            )
        if not getattr(layer, "add_self_loops", False):
            return (), given | {"edge_weight": weights}
        # Such a layer would add a self-loop of weight 1 in place of one that is not there.
        is_loop = edge_index[0] == edge_index[1]
        return (), given | {"edge_weight": torch.where(is_loop, 1.0, weights)}

    return hook


class WeightIntegratedGradients(IntegratedGradients):
    r"""Integrated gradients of the edge weights, :math:`\int_0^1 \partial f / \partial w_e \, dt`, from 0 to 1.

    Weights enter *before* degree normalisation, so that an edge also answers for what it does to the other edges'
    coefficients; weights of 0 are the graph without edges. A self-loop of the graph has weight 1 at a layer that would
    add one in its place, and so no part in the score there. Where a layer does not normalise, this is the same as
    integrated gradients on the mask of the messages.

    Args:
        n_steps: The number of points on the way.
    """

    name = "integrated_gradients_weights"
    citation = "Sundararajan, Taly, Yan: Axiomatic Attribution for Deep Networks, ICML 2017; here on edge weights"
    baseline = "removed"

    def scores(self, model: Module, graphs: Graphs) -> Tensor:
        """Return the integrals."""
        weights = torch.ones(1, graphs.num_edges, dtype=graphs.x.dtype, device=graphs.x.device)
        attributions: Tensor = self.attributions(WeightedTargets(model, graphs), weights)[0]
        return attributions
