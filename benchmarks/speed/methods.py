"""The methods that are compared, each as a function of graphs that is made for one model.

Every method gets its own copy of the model, so that what one leaves behind does not meet another.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any, NamedTuple, TypeAlias

import torch
from captum.attr import IntegratedGradients, Saliency
from torch import Tensor
from torch.nn import Module
from torch_geometric.nn import to_captum_model

from benchmarks.explainers import EXPLAINERS
from benchmarks.speed.graphs import EXPLAINED_CLASS
from captum_goat import EdgeMaskedModel, GOAtAttribution
from captum_goat.compare.explainers import Explainer, own_copy
from captum_goat.compare.graphs import LARGEST_CALL, Graphs

STEPS = 50  # Captum's default
EPOCHS = 100  # PyG's default; the GOAt paper's experiments use more
UNIT, CHEAP_UNIT, GOAT, INTEGRATED_PYG = "unit", "cheap_unit", "goat", "integrated_gradients_pyg"

Explain: TypeAlias = Callable[[Graphs], Tensor]


class Method(NamedTuple):
    """One way to score edges, or a pass of the model that others are compared with.

    Attributes:
        title: Its name in tables and pictures.
        prepare: Makes the function that explains graphs from a model; what it does is not timed.
    """

    title: str
    prepare: Callable[[Module], Explain]


def _ones(graphs: Graphs) -> Tensor:
    return torch.ones(graphs.num_edges)


def _unit(model: Module) -> Explain:
    masked = EdgeMaskedModel(deepcopy(model))

    def explain(graphs: Graphs) -> Tensor:
        mask = _ones(graphs).requires_grad_()
        return torch.autograd.grad(graphs.of_target(masked(mask, *graphs.inputs)).sum(), mask)[0]

    return explain


def _cheap_unit(model: Module) -> Explain:
    masked = to_captum_model(deepcopy(model), "edge")

    def explain(graphs: Graphs) -> Tensor:
        mask = _ones(graphs).requires_grad_()
        output = masked(mask.unsqueeze(0), *graphs.inputs)
        return torch.autograd.grad(graphs.of_target(output).sum(), mask)[0]

    return explain


def _goat(model: Module) -> Explain:
    attribution = GOAtAttribution(deepcopy(model))

    def explain(graphs: Graphs) -> Tensor:
        attributions: Tensor = attribution.attribute(
            _ones(graphs), target=graphs.target, additional_forward_args=graphs.inputs
        )
        return attributions

    return explain


def _integrated_pyg(model: Module) -> Explain:
    attribution = IntegratedGradients(to_captum_model(deepcopy(model), "edge"))

    def explain(graphs: Graphs) -> Tensor:
        attributions: Tensor = attribution.attribute(
            _ones(graphs).unsqueeze(0),
            target=EXPLAINED_CLASS,
            additional_forward_args=graphs.inputs,
            n_steps=STEPS,
            internal_batch_size=1,  # PyG's wrapper takes one row at a time
        )
        return attributions[0]

    return explain


def _captum(method: Callable[..., Any], steps: int = 1) -> Callable[[Module], Explain]:
    """Return a function that prepares a method of Captum, with one wrapper for all graphs, as a user does.

    Its steps run at once, or as many of them as fit into memory.
    """

    def prepare(model: Module) -> Explain:
        attribution = method(EdgeMaskedModel(deepcopy(model)))

        def explain(graphs: Graphs) -> Tensor:
            mask = _ones(graphs).unsqueeze(0).requires_grad_()
            options = {"n_steps": steps} if steps > 1 else {}
            if 1 < steps > (at_once := LARGEST_CALL // max(graphs.num_edges, 1)):
                options["internal_batch_size"] = max(1, at_once)
            attributions: Tensor = attribution.attribute(
                mask, target=EXPLAINED_CLASS, additional_forward_args=graphs.inputs, **options
            )
            return attributions[0]

        return explain

    return prepare


def _benchmarked(name: str, **settings: int) -> Callable[[Module], Explain]:
    """Return a function that prepares an explainer of the benchmark, which copies the model once."""

    def prepare(model: Module) -> Explain:
        explainer, own = EXPLAINERS[name](**settings), own_copy(model)
        assert isinstance(explainer, Explainer)
        return lambda graphs: explainer.scores(own, graphs)

    return prepare


METHODS: dict[str, Method] = {
    GOAT: Method("GOAt", _goat),
    INTEGRATED_PYG: Method(f"IntegratedGradients, {STEPS} steps, PyG's wrapper", _integrated_pyg),
    "integrated_gradients": Method(
        f"IntegratedGradients, {STEPS} steps, EdgeMaskedModel", _captum(IntegratedGradients, STEPS)
    ),
    "saliency": Method("Saliency, EdgeMaskedModel", _captum(Saliency)),
    "gnn_explainer": Method(f"GNNExplainer, {EPOCHS} epochs", _benchmarked("gnn_explainer", epochs=EPOCHS)),
    UNIT: Method("unit: forward + backward, EdgeMaskedModel", _unit),
    CHEAP_UNIT: Method("forward + backward, PyG's own mask", _cheap_unit),
}
