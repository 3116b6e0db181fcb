"""The explainers that :func:`captum_goat.compare.compare` knows by name, and the base class for one's own.

Explainers take a model, graphs and their target classes, and return signed edge scores. Every one works on its own copy
of the model, and returns the same scores for a graph alone and in a batch, whatever the global random state::

    >>> from captum_goat.compare.explainers import EXPLAINERS
    >>> print(*EXPLAINERS)
    goat guided_shapley edge_set_search integrated_gradients saliency occlusion gnn_explainer random
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, ClassVar, Literal, TypeAlias
from weakref import WeakKeyDictionary

import captum.attr as captum
import torch
import torch_geometric.explain as pyg
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Batch, Data

from captum_goat import CaptumGraphExplainer, EdgeSetSearch, GOAtAttribution, GuidedShapley
from captum_goat.compare.graphs import LARGEST_CALL, Graphs, MaskedTargets, seeded
from captum_goat.metrics.counted_edges import check_scores, edges_of, number_of_graphs, position_in_graph
from captum_goat.metrics.fidelity import class_per_graph, output_of, signed_logits
from captum_goat.wrapped_model import ExplainedModel

__all__ = ["EXPLAINERS", "Explainer", "ExplainerSkippedError"]

Baseline: TypeAlias = Literal["masked", "removed"] | None
_num_logits: WeakKeyDictionary[Module, int] = WeakKeyDictionary()


class ExplainerSkippedError(Exception):
    """Raised by an explainer that does not apply to a model; ``compare`` skips it and shows the message."""


class Explainer(ABC):
    """Base class of explainers: checks the arguments, copies the model, and splits batches where needed.

    Subclasses set ``name``, ``citation`` and other class attributes, and compute scores in :meth:`scores`, which gets
    one graph at a time unless ``batched``. If ``trained``, :meth:`fit` must be called first. ``baseline`` says what
    "without edges" means for a ``complete`` method: messages ``"masked"`` to 0, or edges ``"removed"``.

    Examples:
        >>> from torch_geometric.utils import degree
        >>> from captum_goat.compare.explainers import Explainer, ExplainerSkippedError
        >>> from captum_goat.datasets import ba_2motifs
        >>> from captum_goat.models import GraphClassifier
        >>> class Hubs(Explainer):  # scores edges by the degrees of their target nodes
        ...     name, citation = "hubs", "none"
        ...     def scores(self, model, graphs):
        ...         if not graphs.num_edges > 1:
        ...             raise ExplainerSkippedError("Expected several edges (got one).")
        ...         targets = graphs.edge_index[1]
        ...         return degree(targets)[targets]
        >>> model, (graph,) = GraphClassifier("gcn", 10, 8, 2).eval(), ba_2motifs(1)
        >>> Hubs()(model, graph, target=0).shape
        torch.Size([50])
    """

    name: str
    citation: ClassVar[str]
    complete: ClassVar[bool] = False
    baseline: ClassVar[Baseline] = None
    batched: ClassVar[bool] = False
    trained: ClassVar[bool] = False

    def fit(self, model: Module, graphs: Sequence[Data]) -> None:  # noqa: B027 (most have nothing to learn)
        """Learn from other graphs what the explainer has to learn before it explains; by default, nothing."""

    def __call__(self, model: Module, data: Data | Batch, target: Tensor | Sequence[int] | int) -> Tensor:
        """Return signed scores ``[E]`` for the class of all graphs, or one per graph ``[G]``; the model is copied.

        The model is called as for :func:`~captum_goat.metrics.fidelity_plus`. Of one with a single logit, that logit is
        explained for class 1, and its negative for class 0.
        """
        if model.training or model not in _num_logits:
            _num_logits[model] = output_of(model, data).size(1)  # which refuses training mode
        logits = edges_of(data).new_empty(number_of_graphs(data), max(2, _num_logits[model]))
        graphs = Graphs.of(data, class_per_graph(target, logits), model)
        scores = torch.zeros_like(graphs.mask)
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
        output: Tensor = self.model(*args)
        return signed_logits(output if output.dim() > 1 else output.unsqueeze(1))


def own_copy(model: Module) -> Module:
    """Return a copy of a model that an explainer may change; its weights require no gradients."""
    return deepcopy(model).requires_grad_(False).train(model.training)  # PyG 2.6 forgets the mode of its Linear


class GOAt(Explainer):
    """GOAt, as in the paper: the share of a gate is spread over the *distinct* edges that reach it."""

    name = "goat"
    citation = "Lu, Mills, He, Liu, Niu: GOAt: Explaining Graph Neural Networks via Graph Output Attribution, ICLR 2024"
    complete = batched = True
    baseline: ClassVar[Baseline] = "masked"

    def method(self, model: Any) -> captum.Attribution:
        """Return the method, here GOAt with its defaults."""
        return GOAtAttribution(model)

    def scores(self, model: Module, graphs: Graphs) -> Tensor:
        """Return the attributions of all graphs in one call."""
        attributions: Tensor = self.method(model).attribute(graphs.mask, graphs.target, graphs.inputs)
        return attributions


class GuidedShapleyValues(GOAt):
    """Shapley values of deleted edges (with ``margin``, of the log-odds), guided by path gradients."""

    name = "guided_shapley"
    citation = "captum_goat: Shapley values by a regression that cheap attributions guide"
    baseline = "removed"

    def __init__(self, n_samples: int = 64, *, margin: bool = False, seed: int = 0) -> None:
        self.n_samples, self.margin, self.seed = n_samples, margin, seed

    def method(self, model: Any) -> captum.Attribution:
        """Return guided Shapley values."""
        return GuidedShapley(model, n_samples=self.n_samples, margin=self.margin, random_state=self.seed)


class EdgeSets(GOAt):
    """The order of edges whose first edges are the best sets that a search has found, with ``n_passes`` passes."""

    name = "edge_set_search"
    citation = "captum_goat: sets of edges by measured swaps"
    complete, baseline = False, None

    def __init__(self, n_passes: int = 30) -> None:
        self.n_passes = n_passes

    def method(self, model: Any) -> captum.Attribution:
        """Return the search."""
        return EdgeSetSearch(model, self.n_passes)

    def scores(self, model: Module, graphs: Graphs) -> Tensor:
        """Return the places of all graphs' edges, from 1 for the first one down, shared among its columns."""
        explained: Any = model
        target: Tensor | None = graphs.target
        if isinstance(model, SignedLogits):  # the probability is the sigmoid of z, not the softmax of (-z, z)
            signs = 2 * graphs.target - 1
            explained, target = ExplainedModel(model.model, "edge", lambda output: output.view(-1) * signs), None
        scores: Tensor = self.method(explained).attribute(graphs.mask, target, graphs.inputs)
        # Metrics sum over the columns of an edge, and not all edges have as many: a self-loop has one.
        return graphs.shared(scores.new_zeros(len(graphs.edges.graph)).scatter_(0, graphs.edges.number, scores))


class MaskGradients(Explainer):
    """A method of Captum, applied to the edge mask of a whole batch at once."""

    batched = True
    method: ClassVar[type[captum.Attribution]]

    def scores(self, model: Module, graphs: Graphs) -> Tensor:
        """Return the attributions of a mask of ones."""
        mask = graphs.mask.unsqueeze(0).requires_grad_()
        attributions: Tensor = self.attributions(MaskedTargets(model, graphs), mask)
        return attributions[0]

    def attributions(self, targets: MaskedTargets, mask: Tensor) -> Any:
        """Return the attributions ``[1, E]`` of a mask ``[1, E]``."""
        return self.method(targets).attribute(mask)


class Saliency(MaskGradients):
    r"""The absolute value of the gradient, :math:`|\partial f / \partial m_e|`, which has no sign."""

    name = "saliency"
    citation = "Simonyan, Vedaldi, Zisserman: Deep Inside Convolutional Networks, ICLR 2014 workshop"
    method = captum.Saliency


class IntegratedGradients(MaskGradients):
    r"""The integral of the gradient from no messages to all, :math:`\int_0^1 \partial f / \partial m_e \, dt`."""

    name = "integrated_gradients"
    citation = "Sundararajan, Taly, Yan: Axiomatic Attribution for Deep Networks, ICML 2017"
    complete = True
    baseline: ClassVar[Baseline] = "masked"

    def __init__(self, n_steps: int = 50) -> None:
        self.n_steps = n_steps

    def attributions(self, targets: MaskedTargets, mask: Tensor) -> Any:
        """Return the integrals, computed with as many steps at once as fit into memory."""
        at_once = max(1, LARGEST_CALL // mask.size(1))
        return captum.IntegratedGradients(targets).attribute(mask, n_steps=self.n_steps, internal_batch_size=at_once)


class EdgeOcclusion(Explainer):
    r"""The drop of the target's logit when an edge is masked, :math:`f(\mathbf 1) - f(\mathbf 1 - \mathbf 1_e)`.

    Both directions of an undirected edge share the drop equally. The k-th edges of all graphs are masked at once.
    """

    name = "occlusion"
    citation = "Zeiler, Fergus: Visualizing and Understanding Convolutional Networks, ECCV 2014; here for edges"
    batched = True
    at: ClassVar[Literal["message", "adjacency"]] = "message"

    def scores(self, model: Module, graphs: Graphs) -> Tensor:
        """Return the drops."""
        targets, edges = MaskedTargets(model, graphs, self.at), graphs.edges
        position = position_in_graph(edges.graph, edges.num_graphs)
        position_of_column = position[edges.number]
        at_once = max(1, LARGEST_CALL // graphs.num_edges)
        with torch.no_grad():
            whole = targets.values(graphs.mask.unsqueeze(0))
            drops = [
                whole - targets.values((positions.view(-1, 1) != position_of_column).to(graphs.x.dtype))
                for positions in torch.arange(int(edges.counts.max()), device=graphs.x.device).split(at_once)
            ]
        return graphs.shared(torch.cat(drops)[position, edges.graph])


class Random(Explainer):
    """Uniform random numbers from 0 to 1; every graph has its own, the same alone and in a batch."""

    name = "random"
    citation = "none"

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def scores(self, model: Module, graphs: Graphs) -> Tensor:
        """Return random scores."""
        with seeded(graphs.seed(self.seed)):
            return torch.rand(graphs.num_edges, device=graphs.x.device)


def _of_captum(method: type[captum.Attribution]) -> Explainer:
    """Return a class of Captum's methods, or of this package's, at its default arguments as an explainer."""
    base: type[Explainer] = GOAt if issubclass(method, GOAtAttribution | GuidedShapley) else MaskGradients
    base = EdgeSets if issubclass(method, EdgeSetSearch) else base
    attributes = {"name": method.__name__, "method": staticmethod(method), "batched": False, "complete": False}
    made: Explainer = type(method.__name__, (base,), attributes | {"citation": "none"})()
    return made


class PyGAlgorithm(Explainer):
    """An algorithm of :mod:`torch_geometric.explain` that scores edges."""

    citation = "none"

    def __init__(self, algorithm: pyg.ExplainerAlgorithm, seed: int = 0) -> None:
        self.algorithm, self.seed, self.name = algorithm, seed, type(algorithm).__name__

    def scores(self, model: Module, graphs: Graphs) -> Tensor:
        """Return the edge mask."""
        with seeded(graphs.seed(self.seed)):
            return edge_mask(pyg_explainer(model, deepcopy(self.algorithm), graphs), graphs)


class GNNExplainer(PyGAlgorithm):
    """PyG's ``GNNExplainer``: learns a mask of one graph's edges that keeps the class, is small and nearly binary."""

    name = "gnn_explainer"
    citation = "Ying, Bourgeois, You, Zitnik, Leskovec: GNNExplainer, NeurIPS 2019"

    def __init__(self, epochs: int = 100, lr: float = 0.01, seed: int = 0) -> None:
        self.algorithm, self.seed = pyg.GNNExplainer(epochs=epochs, lr=lr), seed


def pyg_explainer(
    model: Module, algorithm: Any, graphs: Graphs | None = None, explanation_type: str = "phenomenon"
) -> pyg.Explainer:
    """Return PyG's explainer of a graph classifier, with an algorithm that scores edges.

    Given ``graphs``, the model may have one logit and any arguments; else it is called as model(x, edge_index, batch).
    """
    mode = "binary_classification" if isinstance(model, SignedLogits) else "multiclass_classification"
    return pyg.Explainer(
        model if graphs is None else _CalledByPyG(model, graphs),
        algorithm=algorithm,
        explanation_type=explanation_type,
        edge_mask_type="object",
        model_config={"mode": mode, "task_level": "graph", "return_type": "raw"},
    )


class _CalledByPyG(Module):
    """A model that is called as PyG's explainers call it, with the edges in the order of :func:`self_loops_last`."""

    def __init__(self, model: Module, graphs: Graphs) -> None:
        super().__init__()
        self.model = model.model if isinstance(model, SignedLogits) else model
        order = self_loops_last(graphs.edge_index)
        edge_attributes = [name for name in graphs.data.edge_attrs() if name != "edge_index"]
        self.graphs = graphs.changed(**{name: graphs.data[name][order] for name in edge_attributes})
        self.training = False

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        output: Tensor = self.model(*self.graphs.changed(x=x, edge_index=edge_index, batch=batch).inputs)
        return output


def edge_mask(explainer: pyg.Explainer, graphs: Graphs) -> Tensor:
    """Return the edge mask of PyG's explainer, ``[E]``.

    Where layers add self-loops, PyG's masks do not tell them from the graph's own, whose mask is 0 here.
    """
    order = self_loops_last(graphs.edge_index)
    edge_index = graphs.edge_index[:, order]
    of_class = explainer.explanation_type == pyg.config.ExplanationType.phenomenon
    target = {"target": graphs.target} if of_class else {}
    mask: Tensor = explainer(graphs.x, edge_index, batch=graphs.batch, **target).edge_mask
    adds_loops = any(getattr(module, "add_self_loops", False) for module in explainer.model.modules())
    if adds_loops and not isinstance(explainer.algorithm, CaptumGraphExplainer):
        mask = mask * (edge_index[0] != edge_index[1])
    return torch.zeros_like(mask).scatter_(0, order, mask)


def self_loops_last(edge_index: Tensor) -> Tensor:
    """Return an order of the edges, ``[E]``, with self-loops last, by their nodes: where layers put those they add.

    PyG's masks do not follow edges: in any other order, some edges would get the mask of others.
    """
    source, target = edge_index
    return torch.sort(torch.where(source == target, 1 + source, 0), stable=True).indices


_KNOWN = (GOAt, GuidedShapleyValues, EdgeSets, IntegratedGradients, Saliency, EdgeOcclusion, GNNExplainer, Random)
EXPLAINERS: dict[str, type[Explainer]] = {explainer.name: explainer for explainer in _KNOWN}


def make_explainer(factory: Callable[..., Explainer], seed: int) -> Explainer:
    """Create an explainer, with the seed if its class takes one."""
    return factory(seed=seed) if "seed" in inspect.signature(factory).parameters else factory()


def as_explainer(given: Any, seed: int) -> Callable[[Module, Any, Tensor], Tensor]:
    """Return the explainer for a name, a class of Captum, an algorithm of PyG, or any function."""
    if isinstance(given, str):
        if given not in EXPLAINERS:
            raise ValueError(f"Expected names of explainers, {', '.join(EXPLAINERS)} (got {given!r}).")
        return make_explainer(EXPLAINERS[given], seed)
    if isinstance(given, type) and issubclass(given, captum.Attribution):
        return _of_captum(given)
    if isinstance(given, pyg.ExplainerAlgorithm):
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
