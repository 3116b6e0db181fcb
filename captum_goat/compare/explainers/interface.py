"""The one signature of all explainers: a model, graphs and their classes in; signed edge scores out."""

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
    """An explainer does not apply to a model, or a package that it needs is not installed; the message says which.

    Examples::

        >>> import torch
        >>> from captum_goat.compare.explainers import EXPLAINERS, ExplainerSkippedError
        >>> from captum_goat.datasets import ba_2motifs
        >>> from captum_goat.models import GraphClassifier
        >>> model, (graph,) = GraphClassifier("gcn", 10, 8, 2).eval(), ba_2motifs(1)
        >>> try:
        ...     EXPLAINERS["attention"]()(model, graph, target=torch.tensor([0]))
        ... except ExplainerSkippedError as error:
        ...     print(error)
        Expected a model with attention layers, such as GATConv (got none).
    """


class EdgeExplainer(Protocol):
    """What the benchmark asks of an explainer.

    Examples::

        >>> from captum_goat.compare.explainers import EXPLAINERS, EdgeExplainer
        >>> explainer: EdgeExplainer = EXPLAINERS["integrated_gradients"]()
        >>> explainer.name, explainer.complete
        ('integrated_gradients', True)
    """

    @property
    def name(self) -> str:
        """Its name in :data:`~captum_goat.compare.explainers.EXPLAINERS`."""

    @property
    def complete(self) -> bool:
        """Whether it claims that its scores add up to ``f(graph) - f(graph without edges)``."""

    def fit(self, model: Module, graphs: Sequence[Data]) -> None:
        """Learn what the explainer has to learn before it explains; most have nothing to learn."""

    def __call__(self, model: Module, data: Data | Batch, target: Tensor) -> Tensor:
        """Return signed edge scores ``[E]``, given the class of each graph ``[G]``."""


class Explainer(ABC):
    """An explainer that checks its arguments, and works on its own copy of the model, graph by graph if need be.

    Subclasses say what they are by class attributes, and compute scores in :meth:`scores`.

    Attributes:
        name: See :class:`EdgeExplainer`.
        citation: Where the method was published.
        complete: See :class:`EdgeExplainer`.
        baseline: What "without edges" means for a complete method: messages that are ``"masked"`` to 0, so that degrees
            stay as they are, or edges that are really ``"removed"``.
        batched: Whether a batch of graphs is explained in one go, else graph by graph.
        trained: Whether :meth:`fit` has to be called first.
        slow: Whether a benchmark should explain a sample of the graphs only.
        copies: How many copies of a batch the method lays side by side, so that it is given no more graphs at once than
            fit into memory.

    Examples::

        >>> import torch
        >>> from torch_geometric.utils import degree
        >>> from captum_goat.compare.explainers import Explainer
        >>> from captum_goat.datasets import ba_2motifs
        >>> from captum_goat.models import GraphClassifier
        >>> class Hubs(Explainer):  # edges that go to hubs have high scores
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
    slow: ClassVar[bool] = False
    copies: int = 1

    def fit(self, model: Module, graphs: Sequence[Data]) -> None:  # noqa: B027 (most have nothing to learn)
        """Learn what the explainer has to learn before it explains: nothing, unless it is ``trained``.

        Args:
            model: The model that is going to be explained.
            graphs: The graphs to learn from; not those that are going to be explained.
        """

    def __call__(self, model: Module, data: Data | Batch, target: Tensor) -> Tensor:
        """Explain a class of every graph.

        Args:
            model: Called as ``model(x, edge_index, batch)``; returns logits ``[G, C]``; in evaluation mode. It is
                copied, and stays as it is.
            data: A graph, or a batch of G graphs.
            target: The class to explain of each graph, ``[G]``.

        Returns:
            Signed scores ``[E]``, one per column of ``edge_index``.

        Raises:
            ValueError: If the arguments do not fit together.
            ExplainerSkippedError: If the explainer does not apply, or is not installed.
        """
        if model.training:
            raise ValueError("Expected a model in evaluation mode (got one in training mode). Call model.eval() first.")
        graphs = Graphs.of(data, target)
        found = torch.zeros(graphs.num_edges, dtype=graphs.x.dtype, device=graphs.x.device)
        with torch.inference_mode(False), torch.enable_grad():
            for part, columns in graphs.parts(self.copies if self.batched else 0):
                if len(columns):
                    found[columns] = self._checked(self.scores(own_copy(model), part), part)
        return found

    @abstractmethod
    def scores(self, model: Module, graphs: Graphs) -> Tensor:
        """Return the scores ``[E]`` of graphs with edges, or of one such graph if not ``batched``.

        Args:
            model: A copy of the model that may be changed.
            graphs: The graphs and their classes.
        """

    def _checked(self, scores: Tensor, graphs: Graphs) -> Tensor:
        scores = scores.detach().to(graphs.x)
        if scores.shape != (graphs.num_edges,) or not bool(scores.isfinite().all()):
            raise RuntimeError(
                f"Expected {graphs.num_edges} finite scores from '{self.name}' (got {list(scores.shape)}, "
                f"{int((~scores.isfinite()).sum())} of them not finite). Look for the same in the model's output."
            )
        return scores


def own_copy(model: Module) -> Module:
    """Return a copy of a model, for an explainer to do with it what it likes; its weights ask for no gradients."""
    return deepcopy(model).requires_grad_(False).train(model.training)  # PyG 2.6 forgets the mode of its Linear
