"""Shapley values of edges for nodes whose surroundings were cut out of one graph."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from captum_goat.bulk.dataset import floating_tensor
from captum_goat.inputs.targets import Choice
from captum_goat.nodes.checked_cuts import GraphData
from captum_goat.nodes.cut_graphs import CutGraphs
from captum_goat.shapley import GuidedShapley
from captum_goat.wrapped_model import ExplainedModel


def shapley_values(method: GuidedShapley, graph: GraphData, cut: CutGraphs, choice: Choice) -> Any:
    """Attribute the outputs for the roots of cut graphs to their edges, many roots side by side.

    A deleted edge also changes the degrees of nodes at the border of a computation graph, so the cut graphs have to be
    wider by one hop.

    Raises:
        ValueError: If the method has guides of its own, which cannot follow to graphs that are cut out.
    """
    if method.guides:
        raise ValueError("Expected GuidedShapley with its default guides, or none, to explain nodes (got others).")
    explained = ExplainedModel(method.model, "edge", partial(_rows, rows=cut.roots))
    mask = torch.ones(len(cut.owner), dtype=floating_tensor(method.model).dtype, device=cut.owner.device)
    return GuidedShapley(explained, **method.options)._explain(mask, choice, graph.arguments(cut)[0], games=cut.owner)


def _rows(output: Tensor, rows: Tensor) -> Tensor:
    return output[rows]
