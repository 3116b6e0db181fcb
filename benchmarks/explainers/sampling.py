"""Captum's Shapley values of edges, by sampling: graph by graph, and slow."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import captum.attr as captum
import torch
from torch import Tensor
from torch.nn import Module

from captum_goat.compare.explainers import Explainer
from captum_goat.compare.graphs import Graphs, MaskedTargets, seeded

AT_ONCE = 64  # masks that are tried in one call of the model


class SampledShapley(Explainer):
    """Shapley values of edges, the two directions of an undirected edge being one player and sharing its value equally.

    Args:
        samples: The number of samples.
        seed: Where the random numbers start.
    """

    complete = True
    baseline = "masked"

    def __init__(self, samples: int, seed: int) -> None:
        self.samples = samples
        self.seed = seed

    def scores(self, model: Module, graphs: Graphs) -> Tensor:
        """Return the values of one graph's edges."""
        targets = MaskedTargets(model, graphs)
        mask = torch.ones(1, graphs.num_edges, dtype=graphs.x.dtype, device=graphs.x.device)
        number = graphs.edges.number
        with torch.no_grad(), seeded(graphs.seed(self.seed)):
            value: Tensor
            if (
                len(graphs.edges.graph) == 1
            ):  # a single player has it all; Captum's KernelShap cannot draw from no others
                value = targets(mask) - targets(torch.zeros_like(mask))
            else:
                value = self.attributions(targets, mask, number.unsqueeze(0))[0]
        # Captum gives every edge the whole value of its player.
        return value / number.bincount()[number]

    @abstractmethod
    def attributions(self, targets: MaskedTargets, mask: Tensor, players: Tensor) -> Any:
        """Return the value of every edge's player, ``[1, E]``."""


class ShapleyValueSampling(SampledShapley):
    """Shapley values by random orders in which the edges come in.

    Args:
        samples: The number of orders.
        seed: Where the random numbers start.
    """

    name = "shapley_value_sampling"
    citation = "Castro, Gomez, Tejada: Polynomial Calculation of the Shapley Value Based on Sampling, 2009"

    def __init__(self, samples: int = 25, seed: int = 0) -> None:
        super().__init__(samples, seed)

    def attributions(self, targets: MaskedTargets, mask: Tensor, players: Tensor) -> Any:
        """Return the mean gains."""
        return captum.ShapleyValueSampling(targets).attribute(
            mask, feature_mask=players, n_samples=self.samples, perturbations_per_eval=AT_ONCE
        )


class KernelShap(SampledShapley):
    """Shapley values by a weighted linear regression on random sets of edges.

    Args:
        samples: The number of sets.
        seed: Where the random numbers start.
    """

    name = "kernel_shap"
    citation = "Lundberg, Lee: A Unified Approach to Interpreting Model Predictions, NeurIPS 2017"

    def __init__(self, samples: int = 1000, seed: int = 0) -> None:
        super().__init__(samples, seed)

    def attributions(self, targets: MaskedTargets, mask: Tensor, players: Tensor) -> Any:
        """Return the coefficients."""
        return captum.KernelShap(targets).attribute(
            mask, feature_mask=players, n_samples=self.samples, perturbations_per_eval=AT_ONCE
        )
