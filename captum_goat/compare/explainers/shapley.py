"""Guided Shapley values as an explainer."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import Module

from captum_goat.compare.explainers.graphs import Graphs
from captum_goat.compare.explainers.interface import Explainer
from captum_goat.shapley import GuidedShapley


class GuidedShapleyValues(Explainer):
    """Shapley values of deleted edges, estimated from few coalitions with path gradients as guides.

    Args:
        n_samples: The number of coalitions.
        margin: Whether the margin of the class is explained, instead of its logit.
        seed: The seed of the coalitions.
    """

    name = "guided_shapley"
    citation = "captum_goat: Shapley values by a regression that cheap attributions guide"
    complete = True
    baseline: ClassVar[Literal["masked", "removed"] | None] = "removed"
    batched = True

    def __init__(self, n_samples: int = 64, *, margin: bool = False, seed: int = 0) -> None:
        self.n_samples, self.margin, self.seed = n_samples, margin, seed

    def scores(self, model: Module, graphs: Graphs) -> Tensor:
        """Return the attributions of all graphs in one call."""
        mask = torch.ones(graphs.num_edges, dtype=graphs.x.dtype, device=graphs.x.device)
        shapley = GuidedShapley(model, n_samples=self.n_samples, margin=self.margin, random_state=self.seed)
        attributions: Tensor = shapley.attribute(mask, graphs.target, graphs.inputs)
        return attributions
