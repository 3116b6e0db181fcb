"""Peeled methods: attribute in rounds, each without the edges that earlier rounds have ranked."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import torch
from captum.attr import Attribution
from torch import Tensor
from torch.nn import Module

from benchmarks.peeling import Order, UpperHalfGradients, peeled_scores
from captum_goat import EdgeMaskedModel, GOAtAttribution
from captum_goat.compare.explainers import Explainer
from captum_goat.compare.graphs import Graphs, seeded


class RandomNumbers(Attribution):
    """Uniform random numbers from 0 to 1, drawn anew in every call."""

    def attribute(self, inputs: Tensor, target: Any = None, additional_forward_args: Any = None) -> Tensor:
        """Return one number per entry of the mask."""
        return torch.rand_like(inputs)


class Peeled(Explainer):
    """A method in rounds, each without the edges that earlier rounds have removed; scores are ranks.

    Args:
        rounds: The number of rounds, and of attributions.
    """

    batched = True
    order: ClassVar[Order] = "most_important_first"
    turns: ClassVar[tuple[int, int]] = (1, 1)

    def __init__(self, rounds: int = 5) -> None:
        self.rounds = rounds

    def scores(self, model: Module, graphs: Graphs) -> Tensor:
        """Return the places of all graphs' edges."""
        return peeled_scores(self.method(model), graphs, self.rounds, self.order, self.turns)

    @abstractmethod
    def method(self, model: Module) -> Attribution:
        """Return the method that is peeled."""


class PeeledGOAt(Peeled):
    """GOAt, in rounds from the most important edges on.

    Examples::

        >>> import torch
        >>> from benchmarks.explainers.peeled import PeeledGOAt
        >>> from captum_goat.datasets import ba_2motifs
        >>> from captum_goat.models import GraphClassifier
        >>> (graph,) = ba_2motifs(num_graphs=1)
        >>> model = GraphClassifier("gcn", in_channels=10, hidden_channels=8, num_classes=2).eval()
        >>> scores = PeeledGOAt()(model, graph, target=torch.tensor([0]))
        >>> 2 * scores.max(), len(scores.unique())  # shared by two directions; 25 edges
        (tensor(1.), 25)
    """

    name = "goat_peeled"
    citation = "Lu et al.: GOAt, ICLR 2024; here in rounds"

    def method(self, model: Module) -> Attribution:
        """Return GOAt."""
        return GOAtAttribution(model)


class PeeledUpperHalfGradients(Peeled):
    """Integrated gradients, upper half, peeled from the most and from the least important edges on."""

    name = "ig_half_peeled_both"
    citation = "Sundararajan, Taly, Yan: Axiomatic Attribution for Deep Networks, ICML 2017; here in rounds, upper half"
    order = "both"

    def __init__(self, rounds: int = 8) -> None:
        super().__init__(rounds)

    def method(self, model: Module) -> Attribution:
        """Return integrated gradients, upper half."""
        return UpperHalfGradients(EdgeMaskedModel(model))


class LeaningUpperHalfGradients(PeeledUpperHalfGradients):
    """The same, with two edges from the most important end for each from the other."""

    name = "ig_half_peeled_2_1"
    turns = (2, 1)  # of 1 to 1, 2 to 1 and 3 to 1 best on 100 training graphs of each task


class PeeledRandom(Peeled):
    """Uniform random numbers, in rounds: to see that rounds alone find nothing.

    Args:
        rounds: The number of rounds.
        seed: Where random numbers start; every graph has its own, alone and in a batch.
    """

    name = "random_peeled"
    citation = "none"
    batched = False

    def __init__(self, rounds: int = 5, seed: int = 0) -> None:
        super().__init__(rounds)
        self.seed = seed

    def scores(self, model: Module, graphs: Graphs) -> Tensor:
        """Return random places."""
        with seeded(graphs.seed(self.seed)):
            return super().scores(model, graphs)

    def method(self, model: Module) -> Attribution:
        """Return random numbers."""
        return RandomNumbers(EdgeMaskedModel(model))
