"""The explainers that :func:`captum_goat.compare.compare` knows by name, and the base class for one's own.

Explainers take a model, graphs and their target classes, and return signed edge scores. :data:`EXPLAINERS` has the
classes by name::

    >>> from captum_goat.compare.explainers import EXPLAINERS
    >>> from captum_goat.datasets import ba_2motifs
    >>> from captum_goat.models import GraphClassifier
    >>> print(*EXPLAINERS)
    goat guided_shapley edge_set_search integrated_gradients saliency occlusion gnn_explainer random
    >>> (graph,) = ba_2motifs(num_graphs=1)
    >>> model = GraphClassifier("gin", in_channels=10, hidden_channels=8, num_classes=2).eval()
    >>> EXPLAINERS["occlusion"]()(model, graph, target=0).shape
    torch.Size([50])

Every explainer works on its own copy of the model, and returns the same scores for a graph alone and in a batch,
whatever the global random state.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from captum.attr import Attribution
from torch import Tensor
from torch.nn import Module
from torch_geometric.explain import ExplainerAlgorithm

from captum_goat.compare.explainers.interface import Explainer, ExplainerSkippedError
from captum_goat.compare.explainers.search import EdgeSets
from captum_goat.compare.explainers.shapley import GuidedShapleyValues
from captum_goat.compare.explainers.standard import (
    CaptumMethod,
    EdgeOcclusion,
    GNNExplainer,
    GOAt,
    IntegratedGradients,
    PyGAlgorithm,
    Random,
    Saliency,
)

__all__ = ["EXPLAINERS", "Explainer", "ExplainerSkippedError"]

EXPLAINERS: dict[str, type[Explainer]] = {
    explainer.name: explainer
    for explainer in (
        GOAt,
        GuidedShapleyValues,
        EdgeSets,
        IntegratedGradients,
        Saliency,
        EdgeOcclusion,
        GNNExplainer,
        Random,
    )
}


def make_explainer(factory: Callable[..., Explainer], seed: int) -> Explainer:
    """Create an explainer, with the seed if its class takes one."""
    return factory(seed=seed) if "seed" in inspect.signature(factory).parameters else factory()


def as_explainer(given: Any, seed: int) -> Callable[[Module, Any, Tensor], Tensor]:
    """Return the explainer for a name, a class of Captum, an algorithm of PyG, or any function."""
    if isinstance(given, str):
        if given not in EXPLAINERS:
            raise ValueError(f"Expected names of explainers, {', '.join(EXPLAINERS)} (got {given!r}).")
        return make_explainer(EXPLAINERS[given], seed)
    if isinstance(given, type) and issubclass(given, Attribution):
        return CaptumMethod(given)
    if isinstance(given, ExplainerAlgorithm):
        return PyGAlgorithm(given, seed)
    if isinstance(given, type | Module) or not callable(given):
        got = f"the class {given.__name__}" if isinstance(given, type) else f"an object of {type(given).__name__}"
        raise ValueError(
            f"Expected the name of an explainer, a class of captum.attr, an algorithm of torch_geometric.explain, an "
            f"Explainer, or a function of (model, data, target) that returns one score per edge (got {got})."
        )
    explain: Callable[[Module, Any, Tensor], Tensor] = given
    return explain


def name_of(explainer: Any) -> str:
    """Return the name of an explainer, or of a function; raise ValueError if it does not fit into a table."""
    own = getattr(explainer, "name", None)
    name: Any = getattr(explainer, "__name__", type(explainer).__name__) if own is None else own
    if not isinstance(name, str) or "|" in name or name.splitlines() != [name]:
        raise ValueError(f"Expected names of explainers that fit into a table, one line without | (got {name!r}).")
    return name
