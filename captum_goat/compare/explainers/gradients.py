"""Captum's gradient methods on the mask of the messages, each in one go for a whole batch."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from typing import Any

import captum.attr as captum
import torch
from torch import Tensor
from torch.nn import Module

from captum_goat.compare.explainers.graphs import LARGEST_CALL, Graphs
from captum_goat.compare.explainers.interface import Explainer
from captum_goat.compare.explainers.masked_targets import MaskedTargets


class MaskGradients(Explainer):
    """A method of Captum's on the mask of ones, whose gradients are those of the messages."""

    batched = True

    def scores(self, model: Module, graphs: Graphs) -> Tensor:
        """Return the attributions of the mask."""
        mask = torch.ones(1, graphs.num_edges, dtype=graphs.x.dtype, device=graphs.x.device, requires_grad=True)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Setting backward hooks on ReLU activations")
            attributions: Tensor = self.attributions(MaskedTargets(model, graphs), mask)
        return attributions[0]

    @abstractmethod
    def attributions(self, targets: MaskedTargets, mask: Tensor) -> Any:
        """Return the attributions ``[1, E]`` of a mask ``[1, E]``."""


class Saliency(MaskGradients):
    r"""The magnitude of the gradient, :math:`|\partial f / \partial m_e|`: it has no sign, by definition."""

    name = "saliency"
    citation = "Simonyan, Vedaldi, Zisserman: Deep Inside Convolutional Networks, ICLR 2014 workshop"

    def attributions(self, targets: MaskedTargets, mask: Tensor) -> Any:
        """Return the magnitudes."""
        return captum.Saliency(targets).attribute(mask)


class IntegratedGradients(MaskGradients):
    r"""The gradient's integral along the way from no messages to all, :math:`\int_0^1 \partial f / \partial m_e \, dt`.

    Args:
        steps: The number of points on the way.
    """

    name = "integrated_gradients"
    citation = "Sundararajan, Taly, Yan: Axiomatic Attribution for Deep Networks, ICML 2017"
    complete = True
    baseline = "masked"

    def __init__(self, steps: int = 50) -> None:
        self.steps = steps

    def attributions(self, targets: MaskedTargets, mask: Tensor) -> Any:
        """Return the integrals."""
        return integrated(targets, mask, self.steps)


def integrated(function: Module, inputs: Tensor, steps: int) -> Any:
    """Return Captum's integrated gradients of inputs ``[1, E]``, with as many points at once as fit into memory."""
    at_once = max(1, LARGEST_CALL // inputs.size(1))
    return captum.IntegratedGradients(function).attribute(inputs, n_steps=steps, internal_batch_size=at_once)
