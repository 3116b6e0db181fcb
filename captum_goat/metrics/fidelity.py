r"""Fidelity: how a prediction changes when an explanation is removed, and when nothing else is kept.

In the formulas, :math:`f(G)_c` is the probability of class :math:`c`, and :math:`S` are the edges of the explanation. A
good explanation has a high :math:`\mathrm{fid}_+` and a low :math:`\mathrm{fid}_-`. Edges are removed from
``edge_index``, so they do not count in degrees either.

Sources: Pope et al., *Explainability Methods for Graph Convolutional Neural Networks*, CVPR 2019; Yuan, Yu, Gui, Ji,
*Explainability in Graph Neural Networks: A Taxonomic Survey*, TPAMI 2022; Amara et al., *GraphFramEx: Towards
Systematic Evaluation of Explainability Methods for Graph Neural Networks*, LoG 2022.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import torch
from torch import Tensor
from torch.nn import Module
from torch.overrides import TorchFunctionMode
from torch_geometric.data import Batch, Data

from captum_goat.inputs.arguments import signature_of
from captum_goat.metrics.counted_edges import check_selected, edges_of, graph_of_nodes, number_of_graphs, select_edges
from captum_goat.models import RootClassifier
from captum_goat.rules.registry import find

# What happens to nodes without edges: they stay in the pool, or they leave it, as in the authors' code.
NodePolicy: TypeAlias = Literal["stay", "leave"]
ROUNDING = 1e-5  # of sums of probabilities


class FidelityCurve(NamedTuple):
    """Fidelities over sparsities, from :func:`fidelity_curve`: fid+ and fid- of each graph at each sparsity."""

    sparsities: Tensor  # shares of edges left out, [S]
    plus: Tensor  # [S, G]
    minus: Tensor  # [S, G]


def fidelity_plus(
    model: Module,
    data: Data | Batch,
    selected: Tensor,
    target: Tensor | int | None = None,
    node_policy: NodePolicy = "stay",
) -> Tensor:
    r"""Return how far the probability of a class drops without the selected edges, one number per graph ``[G]``.

    .. math:: \mathrm{fid}_+ = f(G)_c - f(G \setminus S)_c

    Args:
        model: A model in evaluation mode. One whose forward names ``x`` and ``edge_index`` gets all attributes of the
            graph that it names, such as ``batch``, ``edge_weight`` and ``edge_attr``; one with a single argument gets
            the graph itself; any other is called as ``model(x, edge_index, batch)``. It returns logits or
            log-probabilities ``[G, C]``; or one logit ``[G, 1]`` or ``[G]``, whose sigmoid is the probability of
            class 1. Probabilities are refused.
        data: The graph, or the batch of G graphs.
        selected: The edges of the explanation, bool ``[E]``; see :func:`~captum_goat.metrics.select_edges`.
        target: The class of all graphs or one per graph ``[G]``, such as ``data.y``; ``None`` for the predicted one.
        node_policy: Whether nodes without any edge ``"stay"`` in the pool or ``"leave"`` it, as in the code of GOAt's
            authors. The probability of the whole graph has all nodes in either case.

    Examples:
        >>> from torch_geometric.data import Data
        >>> from torch_geometric.nn import SimpleConv
        >>> from captum_goat.metrics import fidelity_minus, fidelity_plus
        >>> from captum_goat.models import RootClassifier
        >>> model = RootClassifier(SimpleConv()).eval()  # the logits are the sum of the features of node 0's neighbours
        >>> data = Data(x=torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]]), edge_index=torch.tensor([[1, 2], [0, 0]]))
        >>> fidelity_plus(model, data, torch.tensor([True, False]), target=0)  # logits (1, 2) become (0, 2)
        tensor([0.1497])
        >>> fidelity_minus(model, data, torch.tensor([True, False]), target=0)  # logits (1, 2) become (1, 0)
        tensor([-0.4621])
    """
    return Prediction(model, data, target, node_policy).drop(~check_selected(selected, data))


def fidelity_minus(
    model: Module,
    data: Data | Batch,
    selected: Tensor,
    target: Tensor | int | None = None,
    node_policy: NodePolicy = "stay",
) -> Tensor:
    r"""Return how far the probability of a class drops when only the selected edges are kept.

    .. math:: \mathrm{fid}_- = f(G)_c - f(S)_c

    Arguments and result, and an example, are those of :func:`fidelity_plus`.
    """
    return fidelity_plus(model, data, ~check_selected(selected, data), target, node_policy)


def fidelity_curve(
    model: Module,
    data: Data | Batch,
    scores: Tensor,
    sparsities: Sequence[float] = (0.5, 0.6, 0.7, 0.8, 0.9),
    target: Tensor | int | None = None,
    node_policy: NodePolicy = "stay",
) -> FidelityCurve:
    """Return the fidelities of the edges with the highest scores over sparsities.

    ``scores`` holds one number per edge, ``[E]``, and ``sparsities`` the shares of edges to leave out, in ascending
    order; the other arguments are those of :func:`fidelity_plus`. :func:`~captum_goat.metrics.select_edges` selects
    whole edges, so actual sparsities (:func:`~captum_goat.metrics.sparsity`) differ a little.

    Examples:
        >>> from captum_goat.datasets import ba_2motifs
        >>> from captum_goat.metrics import fidelity_curve
        >>> from captum_goat.models import GraphClassifier
        >>> model, (graph,) = GraphClassifier("gin", 10, 8, 2).eval(), ba_2motifs(1)
        >>> fidelity_curve(model, graph, graph.edge_label.float(), [0.5, 0.7, 1.0]).plus[-1]  # nothing is removed
        tensor([0.])
    """
    prediction = Prediction(model, data, target, node_policy)
    selections = [select_edges(data, scores, sparsity) for sparsity in sparsities]
    if not selections:
        raise ValueError("Expected one sparsity or more (got none).")
    plus = torch.stack([prediction.drop(~selected) for selected in selections])
    minus = torch.stack([prediction.drop(selected) for selected in selections])
    return FidelityCurve(torch.tensor(list(sparsities), device=plus.device), plus, minus)


def area_under_curve(values: Tensor, sparsities: Tensor, *, normalize: bool = False) -> Tensor:
    """Return the area under curves ``[S, ...]`` over sparsities ``[S]``, by the trapezoidal rule.

    With ``normalize`` it is divided by the length of the interval, which gives the curve's mean height.

    Examples:
        >>> from captum_goat.metrics import area_under_curve
        >>> area_under_curve(torch.tensor([0.0, 1.0, 1.0]), torch.tensor([0.5, 0.6, 0.8]))
        tensor(0.2500)
    """
    if len(sparsities) < 2 or len(values) != len(sparsities) or bool((sparsities.diff() <= 0).any()):
        got = f"{len(values)} values at {sparsities}"
        raise ValueError(f"Expected two or more sparsities in ascending order, and a value for each (got {got}).")
    positions = sparsities.to(values)
    area = torch.trapezoid(values, positions, dim=0)
    return area / (positions[-1] - positions[0]) if normalize else area


def model_arguments(model: Module, data: Data | Batch) -> tuple[Any, ...]:
    """Return the positional arguments with which a model is called for a graph, or a batch of graphs.

    A model whose forward names ``x`` and ``edge_index`` gets everything that it names; a model with one argument gets
    the graph; any other gets ``x``, ``edge_index`` and ``batch``.
    """
    of_nodes, edge_index = isinstance(model, RootClassifier), edges_of(data)
    inner: Any = model.model if of_nodes else model
    usual = {"x": data.x, "edge_index": edge_index, "batch": graph_of_nodes(data)}
    parameters = signature_of(inner).parameters
    is_named = "x" in parameters and "edge_index" in parameters
    is_open = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters.values())
    required = [name for name, parameter in parameters.items() if parameter.default is parameter.empty]
    if not is_named and not is_open and len(required) == 1:
        return (data,)
    if is_open or not is_named:
        return tuple(usual.values())
    known = {name: data[name] for name in parameters if name in data} | usual
    if of_nodes:  # which get x, edge_index, batch, and what else the model of nodes takes
        del known["batch"]
    names = list(parameters)
    last = max(index for index, name in enumerate(names) if name in known)
    taken = {name: known.get(name, parameters[name].default) for name in names[: last + 1]}
    missing = [name for name in required if name not in known]
    keywords = [name for name in taken if parameters[name].kind is inspect.Parameter.KEYWORD_ONLY]
    if missing or keywords:
        got = f"{', '.join(missing)} missing" if missing else f"{', '.join(keywords)} by keyword only"
        raise ValueError(
            f"Expected a graph with all arguments of {type(inner).__name__}.forward({', '.join(names)}), by position "
            f"(got {got}). Put them into the graph, or wrap the model in one called as model(x, edge_index, batch)."
        )
    values = tuple(taken.values())
    return (*values[:2], usual["batch"], *values[2:]) if of_nodes else values


def keep_edges(data: Data | Batch, keep: Tensor) -> Data:
    """Return a graph, or a batch of graphs, with only the edges to keep, bool ``[E]``, and their attributes."""
    # A batch stores where the edges of each graph begin, which would no longer be true.
    plain = Data.from_dict(data.to_dict()) if isinstance(data, Batch) else data
    return plain.edge_subgraph(keep)


def _reduced(data: Data | Batch, keep: Tensor, node_policy: NodePolicy) -> Data:
    """Return graphs with only the edges to keep, bool ``[E]``.

    Nodes that leave are moved to an additional last graph, so that the other graphs keep their numbers.
    """
    reduced = keep_edges(data, keep)
    edge_index, batch = edges_of(reduced), graph_of_nodes(data)
    if node_policy == "leave":
        has_edge = torch.zeros_like(batch, dtype=torch.bool).index_fill_(0, edge_index.reshape(-1), True)
        batch, order = torch.sort(torch.where(has_edge, batch, number_of_graphs(data)), stable=True)
        edge_index = torch.argsort(order)[edge_index]
        for name, value in data:
            if isinstance(value, Tensor) and data.is_node_attr(name):
                reduced[name] = value.index_select(data.__cat_dim__(name, value), order)
    reduced.edge_index, reduced.batch = edge_index, batch
    return reduced


@torch.no_grad()
def output_of(
    model: Module, data: Data | Batch, keep: Tensor | None = None, node_policy: NodePolicy = "stay"
) -> Tensor:
    """Return a model's output for graphs with only the edges to keep: one row per graph (``[G, 1]`` for ``[G]``)."""
    if node_policy not in get_args(NodePolicy):
        raise ValueError(f"Expected node_policy to be 'stay' or 'leave' (got {node_policy!r}).")
    if model.training:
        raise ValueError("Expected a model in evaluation mode (got one in training mode). Call model.eval() first.")
    policy: NodePolicy = "stay" if isinstance(model, RootClassifier) else node_policy  # roots have no pool to leave
    output: Tensor = model(*model_arguments(model, data if keep is None else _reduced(data, keep, policy)))
    graphs = number_of_graphs(data)
    rows = (graphs, graphs + 1) if node_policy == "leave" else (graphs,)
    if not isinstance(output, Tensor) or output.dim() < 1 or len(output) not in rows:
        got = list(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise ValueError(
            f"Expected one row of output for each of {graphs} graphs (got {got}). A model with one row per node is "
            "wrapped in captum_goat.models.RootClassifier; compare takes it with nodes=... and num_hops=..."
        )
    return output[:graphs] if output.dim() > 1 else output[:graphs].unsqueeze(1)


def logits_of(model: Module, data: Data | Batch, *, logarithms_too: bool = True) -> Tensor:
    """Return logits ``[G, C]``, or one of two classes ``[G, 1]``; refuse probabilities and, by default, their logs."""
    output = output_of(model, data)
    if output.dim() != 2 or not output.size(1):
        raise ValueError(f"Expected logits [G, C] of classes, or one of two (got an output {list(output.shape)}).")
    # Logits may look like probabilities by chance: then the output without edges does not.
    without_edges = partial(output_of, model, data, torch.zeros_like(edges_of(data)[0], dtype=torch.bool))
    if output.size(1) == 1:
        # What a sigmoid returns could as well be a logit, so the operations of the model are watched.
        if _ends_squashed(partial(output_of, model, data)) and _ends_squashed(without_edges):
            raise ValueError("Expected one logit per graph (got what a sigmoid or softmax returns). Return its input.")
    elif _are_probabilities(output) and _are_probabilities(without_edges()):
        raise ValueError("Expected logits (got probabilities: they add up to 1). Return what goes into softmax.")
    elif logarithms_too and _near(output.logsumexp(dim=1), 0.0) and _near(without_edges().logsumexp(dim=1), 0.0):
        raise ValueError("Expected logits (got logarithms of probabilities). Return what goes into log_softmax.")
    return output


def of_two_classes(output: Tensor) -> Tensor:
    """Return logits ``[G, C]`` of two classes or more; a single logit is that of class 1, and class 0 gets 0."""
    return torch.cat([torch.zeros_like(output), output], dim=1) if output.size(1) == 1 else output


def signed_logits(output: Tensor) -> Tensor:
    """Return the explained number of each class, ``[..., C]``: the logit; for a single logit z, ``(-z, z)``."""
    return torch.cat([-output, output], dim=-1) if output.size(-1) == 1 else output


def _are_probabilities(output: Tensor) -> bool:
    """Return whether rows are positive and add up to 1; rows of ones and zeros alone may well be logits."""
    return bool((output >= 0).all()) and bool((output % 1 > 0).any()) and _near(output.sum(dim=1), 1.0)


def _near(sums: Tensor, expected: float) -> bool:
    rounding = max(ROUNDING, 2.0 * torch.finfo(sums.dtype).eps)
    return torch.allclose(sums, torch.full_like(sums, expected), rtol=0.0, atol=rounding)


def _ends_squashed(run: Callable[[], Tensor]) -> bool:
    """Return whether an output consists of entries of the result of a sigmoid or the like."""
    with _Squashed() as squashed:
        output = run()
    return any(bool(torch.isin(output, result).all()) for result in squashed.results)


class _Squashed(TorchFunctionMode):
    """Record the results of sigmoids and the like."""

    def __init__(self) -> None:
        super().__init__()
        self.results: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out, rule = func(*args, **(kwargs or {})), find(func)
        if rule is not None and rule.squashes:
            self.results.append(out)
        return out


class Prediction:
    """The probability of each graph's class, which is by default the predicted one, with all or some of the edges."""

    def __init__(
        self, model: Module, data: Data | Batch, target: Tensor | int | None, node_policy: NodePolicy = "stay"
    ) -> None:
        self.model, self.data, self.node_policy = model, data, node_policy
        logits, self.target = predicted_logits(model, data, target, logarithms_too=False)
        self.original = self._probabilities(logits)  # with all edges, [G]

    def with_edges(self, keep: Tensor) -> Tensor:
        """Return the probability for the graphs with only the edges to keep, ``[G]``."""
        return self._probabilities(of_two_classes(output_of(self.model, self.data, keep, self.node_policy)))

    def drop(self, keep: Tensor) -> Tensor:
        """Return how far the probability drops when only the edges to keep are left, ``[G]``."""
        return self.original - self.with_edges(keep)

    def _probabilities(self, logits: Tensor) -> Tensor:
        return logits.softmax(dim=1).gather(1, self.target.unsqueeze(1)).squeeze(1)


def predicted_logits(
    model: Module, data: Data | Batch, target: Any, *, logarithms_too: bool = True
) -> tuple[Tensor, Tensor]:
    """Return logits of two classes or more ``[G, C]``, and the class of each graph, by default the predicted one."""
    logits = of_two_classes(logits_of(model, data, logarithms_too=logarithms_too))
    return logits, logits.argmax(dim=1) if target is None else class_per_graph(target, logits)


def class_per_graph(target: Any, logits: Tensor) -> Tensor:
    """Return a class for each graph, ``[G]``."""
    graphs, classes = logits.shape
    is_text = isinstance(target, str) or (isinstance(target, list | tuple) and any(isinstance(k, str) for k in target))
    index = torch.as_tensor(-1 if is_text else target, device=logits.device)
    is_class = not index.is_floating_point() and index.dtype != torch.bool and index.numel() in (1, graphs)
    if not is_class or bool(((index < 0) | (index >= classes)).any()):
        raise ValueError(
            f"Expected target to be a class below {classes}, or one for each of {graphs} graphs (got {target!r})."
        )
    return index.long().reshape(-1).expand(graphs)
