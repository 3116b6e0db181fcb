"""The signature of all explainers: a model, graphs and their target classes in; signed edge scores out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import deepcopy
from typing import ClassVar, Literal, Protocol

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Batch, Data

from captum_goat.compare.explainers.graphs import Graphs


class ExplainerSkippedError(Exception):
    """Raised by an explainer that does not apply to a model; ``compare`` skips it and shows the message.

    Examples:
        >>> from captum_goat.compare.explainers import Explainer, ExplainerSkippedError
        >>> class Attention(Explainer):
        ...     name, citation = "attention", "none"
        ...     def scores(self, model, graphs):
        ...         raise ExplainerSkippedError("Expected a model with attention layers (got none).")
    """


class EdgeExplainer(Protocol):
    """The attributes that :func:`~captum_goat.compare.compare` needs of an explainer.

    Examples:
        >>> from captum_goat.compare.explainers import EXPLAINERS, EdgeExplainer
        >>> explainer: EdgeExplainer = EXPLAINERS["integrated_gradients"]()
        >>> explainer.name, explainer.complete
        ('integrated_gradients', True)
    """

    @property
    def name(self) -> str:
        """The name in tables."""

    @property
    def complete(self) -> bool:
        """Whether the scores are meant to add up to ``f(graph) - f(graph without edges)``."""

    def fit(self, model: Module, graphs: Sequence[Data]) -> None:
        """Learn what the explainer has to learn before it explains; most have nothing to learn."""

    def __call__(self, model: Module, data: Data | Batch, target: Tensor) -> Tensor:
        """Return signed edge scores ``[E]``, given the class of each graph ``[G]``."""


class Explainer(ABC):
    """Base class of explainers: checks the arguments, copies the model, and splits batches where needed.

    Subclasses set ``name``, ``citation`` and other class attributes, and compute scores in :meth:`scores`, which gets
    one graph at a time unless ``batched``. If ``trained``, :meth:`fit` must be called first. ``baseline`` says what
    "without edges" means for a ``complete`` method: messages ``"masked"`` to 0, or edges ``"removed"``.

    Examples:
        >>> import torch
        >>> from torch_geometric.utils import degree
        >>> from captum_goat.compare.explainers import Explainer
        >>> from captum_goat.datasets import ba_2motifs
        >>> from captum_goat.models import GraphClassifier
        >>> class Hubs(Explainer):  # scores edges by the degrees of their target nodes
        ...     name, citation = "hubs", "none"
        ...     def scores(self, model, graphs):
        ...         targets = graphs.edge_index[1]
        ...         return degree(targets)[targets]
        >>> model, (graph,) = GraphClassifier("gcn", 10, 8, 2).eval(), ba_2motifs(1)
        >>> Hubs()(model, graph, target=torch.tensor([0])).shape
        torch.Size([50])
    """

    name: ClassVar[str]
    citation: ClassVar[str]
    complete: ClassVar[bool] = False
    baseline: ClassVar[Literal["masked", "removed"] | None] = None
    batched: ClassVar[bool] = False
    trained: ClassVar[bool] = False

    def fit(self, model: Module, graphs: Sequence[Data]) -> None:  # noqa: B027 (most have nothing to learn)
        """Learn from other graphs what the explainer has to learn before it explains; by default, nothing."""

    def __call__(self, model: Module, data: Data | Batch, target: Tensor) -> Tensor:
        """Return signed scores ``[E]`` for one class of every graph, ``target`` ``[G]``; the model is copied."""
        if model.training:
            raise ValueError("Expected a model in evaluation mode (got one in training mode). Call model.eval() first.")
        graphs = Graphs.of(data, target)
        scores = torch.zeros(graphs.num_edges, dtype=graphs.x.dtype, device=graphs.x.device)
        with torch.inference_mode(False), torch.enable_grad():
            for part, columns in graphs.parts(1 if self.batched else 0):
                if len(columns):
                    scores[columns] = self._check(self.scores(own_copy(model), part), part)
        return scores

    @abstractmethod
    def scores(self, model: Module, graphs: Graphs) -> Tensor:
        """Return the scores ``[E]`` of graphs with edges, or of one if not ``batched``; the model is a copy."""

    def _check(self, scores: Tensor, graphs: Graphs) -> Tensor:
        """Raise RuntimeError unless there is one finite score per edge; return detached scores."""
        scores = scores.detach().to(graphs.x)
        if scores.shape != (graphs.num_edges,) or not bool(scores.isfinite().all()):
            got = f"shape {list(scores.shape)} with {int((~scores.isfinite()).sum())} non-finite values"
            raise RuntimeError(f"Expected {graphs.num_edges} finite scores from '{self.name}' (got {got}).")
        return scores


def own_copy(model: Module) -> Module:
    """Return a copy of a model that an explainer may change; its weights require no gradients."""
    return deepcopy(model).requires_grad_(False).train(model.training)  # PyG 2.6 forgets the mode of its Linear
