"""Methods that remove edges, for nodes whose surroundings were cut out of one graph."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from captum_goat.bulk.dataset import floating_tensor
from captum_goat.inputs.targets import Choice
from captum_goat.nodes.checked_cuts import GraphData
from captum_goat.nodes.cut_graphs import CutGraphs
from captum_goat.search import EdgeSetSearch
from captum_goat.shapley import GuidedShapley
from captum_goat.wrapped_model import ExplainedModel


def without_edges(method: GuidedShapley | EdgeSetSearch, graph: GraphData, cut: CutGraphs, choice: Choice) -> Any:
    """Explain the outputs for the roots of cut graphs by a method that removes edges, many roots side by side.

    A deleted edge also changes the degrees of nodes at the border of a computation graph, so the cut graphs have to be
    wider by one hop.

    Raises:
        ValueError: If the method has guides or starts of its own, which cannot follow to graphs that are cut out.
    """
    for name in ("guides", "starts"):
        if method.options.get(name):
            got = f"{type(method).__name__} with {name} of its own"
            raise ValueError(f"Expected a method with its default {name}, or none, to explain nodes (got {got}).")
    explained = ExplainedModel(method.model, "edge", partial(_rows, rows=cut.roots))
    mask = torch.ones(len(cut.owner), dtype=floating_tensor(method.model).dtype, device=cut.owner.device)
    own = type(method)(explained, **method.options)
    return own._explain(mask, choice, graph.arguments(cut)[0], games=cut.owner)


def _rows(output: Tensor, rows: Tensor) -> Tensor:
    return output[rows]
