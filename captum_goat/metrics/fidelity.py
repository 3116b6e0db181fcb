r"""Fidelity: how a prediction changes when an explanation is removed, and when nothing else is kept.

In the formulas, :math:`f(G)_c` is the probability of class :math:`c`, and :math:`S` are the edges of the explanation. A
good explanation has a high :math:`\mathrm{fid}_+` and a low :math:`\mathrm{fid}_-`. Edges are removed from
``edge_index``, so they do not count in degrees either.

Sources: Pope et al., *Explainability Methods for Graph Convolutional Neural Networks*, CVPR 2019; Yuan, Yu, Gui, Ji,
*Explainability in Graph Neural Networks: A Taxonomic Survey*, TPAMI 2022; Amara et al., *GraphFramEx: Towards
Systematic Evaluation of Explainability Methods for Graph Neural Networks*, LoG 2022.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Batch, Data

from captum_goat.metrics.counted_edges import check_selected, select_edges
from captum_goat.metrics.reduced_graphs import NodePolicy, Prediction


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
