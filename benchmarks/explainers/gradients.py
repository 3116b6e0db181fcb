"""More of Captum's gradient methods on the mask of ones."""

from __future__ import annotations

import warnings
from typing import Any

import captum.attr as captum
import torch
from torch import Tensor
from torch.nn import Module

from benchmarks.explainers.relu_modules import WithReLUModules
from captum_goat.compare.explainers import MaskGradients
from captum_goat.compare.graphs import Graphs, MaskedTargets, seeded


class InputXGradient(MaskGradients):
    r"""The gradient times the mask, :math:`m_e \, \partial f / \partial m_e`: for ones, the signed gradient."""

    name = "input_x_gradient"
    citation = "Shrikumar, Greenside, Shcherbina, Kundaje: Not Just a Black Box, 2016"

    def attributions(self, targets: MaskedTargets, mask: Tensor) -> Any:
        """Return the products."""
        return captum.InputXGradient(targets).attribute(mask)


class GradientShap(MaskGradients):
    """Integrated gradients with random points on the way, which adds up on average only.

    Args:
        samples: The number of points; the same ones for every graph.
        seed: Where the random numbers start.
    """

    name = "gradient_shap"
    citation = "Lundberg, Lee: A Unified Approach to Interpreting Model Predictions, NeurIPS 2017"

    def __init__(self, samples: int = 50, seed: int = 0) -> None:
        self.samples = samples
        self.seed = seed

    def scores(self, model: Module, graphs: Graphs) -> Tensor:
        """Return the attributions of as many graphs at once as fit into memory with a copy for every point."""
        scores = torch.zeros(graphs.num_edges, dtype=graphs.x.dtype, device=graphs.x.device)
        for part, columns in graphs.parts(self.samples):
            scores[columns] = super().scores(model, part)
        return scores

    def attributions(self, targets: MaskedTargets, mask: Tensor) -> Any:
        """Return the means over the points."""
        with seeded(self.seed):
            return captum.GradientShap(targets).attribute(mask, torch.zeros_like(mask), n_samples=self.samples)


class ReLUGradients(MaskGradients):
    """A method that changes the gradients of ReLUs, by hooks of which Captum warns."""

    def scores(self, model: Module, graphs: Graphs) -> Tensor:
        """Return the attributions of a mask of ones."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Setting backward hooks on ReLU activations")
            return super().scores(model, graphs)


class GuidedBackprop(ReLUGradients):
    """The gradient without what is negative on its way back through a ReLU.

    Captum hooks ``nn.ReLU`` modules only; ReLUs that are spelled as functions are given modules here.
    """

    name = "guided_backprop"
    citation = "Springenberg, Dosovitskiy, Brox, Riedmiller: Striving for Simplicity, ICLR 2015 workshop"

    def attributions(self, targets: MaskedTargets, mask: Tensor) -> Any:
        """Return the gradients."""
        return captum.GuidedBackprop(WithReLUModules(targets, mask)).attribute(mask)


class Deconvolution(ReLUGradients):
    """The gradient in which a ReLU passes back what is positive, whether it was on or off.

    ReLUs that are spelled as functions are given modules, as for :class:`GuidedBackprop`.
    """

    name = "deconvolution"
    citation = "Zeiler, Fergus: Visualizing and Understanding Convolutional Networks, ECCV 2014"

    def attributions(self, targets: MaskedTargets, mask: Tensor) -> Any:
        """Return the gradients."""
        return captum.Deconvolution(WithReLUModules(targets, mask)).attribute(mask)
