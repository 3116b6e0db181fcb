"""The signature of all explainers: a model, graphs and their target classes in; signed edge scores out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import deepcopy
from typing import Any, ClassVar, Literal
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Batch, Data

from captum_goat.compare.explainers.graphs import Graphs
from captum_goat.metrics.counted_edges import check_scores
from captum_goat.metrics.reduced_graphs import class_per_graph, output_of, signed_logits

_num_logits: WeakKeyDictionary[Module, int] = WeakKeyDictionary()


class ExplainerSkippedError(Exception):
    """Raised by an explainer that does not apply to a model; ``compare`` skips it and shows the message.

    Examples:
        >>> from captum_goat.compare.explainers import Explainer, ExplainerSkippedError
        >>> class Attention(Explainer):
        ...     name, citation = "attention", "none"
        ...     def scores(self, model, graphs):
        ...         raise ExplainerSkippedError("Expected a model with attention layers (got none).")
    """


class Explainer(ABC):
    """Base class of explainers: checks the arguments, copies the model, and splits batches where needed.

    Subclasses set ``name``, ``citation`` and other class attributes, and compute scores in :meth:`scores`, which gets
    one graph at a time unless ``batched``. If ``trained``, :meth:`fit` must be called first. ``baseline`` says what
    "without edges" means for a ``complete`` method: messages ``"masked"`` to 0, or edges ``"removed"``.

    Examples:
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
        >>> Hubs()(model, graph, target=0).shape
        torch.Size([50])
    """

    name: str
    citation: ClassVar[str]
    complete: ClassVar[bool] = False
    baseline: ClassVar[Literal["masked", "removed"] | None] = None
    batched: ClassVar[bool] = False
    trained: ClassVar[bool] = False

    def fit(self, model: Module, graphs: Sequence[Data]) -> None:  # noqa: B027 (most have nothing to learn)
        """Learn from other graphs what the explainer has to learn before it explains; by default, nothing."""

    def __call__(self, model: Module, data: Data | Batch, target: Tensor | Sequence[int] | int) -> Tensor:
        """Return signed scores ``[E]`` for the class of all graphs, or one per graph ``[G]``; the model is copied.

        The model is called as for :func:`~captum_goat.metrics.fidelity_plus`. Of one with a single logit, that logit is
        explained for class 1, and its negative for class 0.
        """
        graphs = Graphs.of(data, target, model)
        if model.training or model not in _num_logits:
            _num_logits[model] = output_of(model, data).size(1)  # which refuses training mode
        class_per_graph(target, graphs.x.new_empty(len(graphs.target), max(2, _num_logits[model])))
        scores = torch.zeros(graphs.num_edges, dtype=graphs.x.dtype, device=graphs.x.device)
        with torch.inference_mode(False), torch.enable_grad():
            for part, columns in graphs.parts(1 if self.batched else 0):
                if len(columns):
                    own = own_copy(model)
                    own = SignedLogits(own) if _num_logits[model] == 1 else own
                    scores[columns] = check_scores(self.scores(own, part).to(part.x), part.data)
        return scores

    @abstractmethod
    def scores(self, model: Module, graphs: Graphs) -> Tensor:
        """Return the scores ``[E]`` of graphs with edges, or of one if not ``batched``; the model is a copy."""


class SignedLogits(Module):
    """A model with one logit z per graph as one with two classes, ``(-z, z)``."""

    def __init__(self, model: Module) -> None:
        super().__init__()
        self.model, self.training = model, model.training

    @property
    def __wrapped__(self) -> Module:  # for the names of the arguments
        return self.model

    def forward(self, *args: Any) -> Tensor:
        """Return the logits, ``[G, 2]``."""
        output: Tensor = self.model(*args)
        return signed_logits(output if output.dim() > 1 else output.unsqueeze(1))


def own_copy(model: Module) -> Module:
    """Return a copy of a model that an explainer may change; its weights require no gradients."""
    return deepcopy(model).requires_grad_(False).train(model.training)  # PyG 2.6 forgets the mode of its Linear
