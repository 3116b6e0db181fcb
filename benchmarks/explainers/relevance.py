"""GNN-LRP: the relevance of all walks through an edge, by two backward passes."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn import Module, ModuleList
from torch.overrides import TorchFunctionMode
from torch_geometric.nn import Linear as PyGLinear
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.aggr import Aggregation

from captum_goat.compare.explainers import Explainer
from captum_goat.compare.graphs import Graphs, MaskedTargets

_LINEAR = (nn.Linear, PyGLinear)


class GNNLRP(Explainer):
    r"""GNN-LRP: an edge's score is the relevance of all walks of messages through it.

    With the rule LRP-:math:`\gamma`, what arrives at a layer's output :math:`h_k > 0` is shared among its inputs in
    proportion to their parts in :math:`p_k = \sum_j \lambda_{jk} h_j (W + \gamma W^+) + b`; where the output is not
    positive, in proportion to their parts in the output itself. That is the gradient of a network in which :math:`h_k`
    is written :math:`p_k \cdot [h_k / p_k]`, with a frozen bracket. In it, the relevance :math:`R_w` of a walk
    :math:`w` is the gradient along the walk times the input. Scale the inputs by :math:`t` and the messages of edge
    :math:`e` by :math:`m_e`: the term of a walk is then multiplied by :math:`t`, and by :math:`m_e` as often as the
    walk uses the edge, while what biases contribute has no :math:`t`. So the sum over all walks,

    .. math:: s_e = \sum_w (\text{how often } w \text{ uses } e) \cdot R_w
              = \left. \frac{\partial^2 f}{\partial m_e \, \partial t} \right|_{m = 1, t = 1},

    which is how walks are turned into edge scores in Dive into Graphs, takes two backward passes; walks are never
    listed. ``F.normalize`` divides by a frozen length.

    Args:
        gamma: How much positive weights are favoured.
    """

    name = "gnn_lrp"
    citation = (
        "Schnake, Eberle, Lederer, Nakajima, Schuett, Mueller, Montavon: Higher-Order Explanations of Graph Neural "
        "Networks via Relevant Walks, TPAMI 2022"
    )
    batched = True

    def __init__(self, gamma: float = 1.0) -> None:
        self.gamma = gamma

    def scores(self, model: Module, graphs: Graphs) -> Tensor:
        """Return the relevance of all graphs' edges."""
        mask = torch.ones(1, graphs.num_edges, dtype=graphs.x.dtype, device=graphs.x.device, requires_grad=True)
        scale = torch.ones((), dtype=graphs.x.dtype, device=graphs.x.device, requires_grad=True)
        scaled = graphs.changed(x=graphs.x * scale)
        value = MaskedTargets(RelevanceModel(model, self.gamma), scaled)(mask)
        (from_inputs,) = torch.autograd.grad(value.sum(), scale, create_graph=True)
        (relevance,) = torch.autograd.grad(from_inputs, mask)
        return relevance[0]


class RelevanceModel(Module):
    """A model with its own output, and the gradients of LRP.

    Args:
        model: The model; it is given hooks, which stay.
        gamma: How much positive weights are favoured.

    Examples::

        >>> import torch
        >>> from benchmarks.explainers.relevance import RelevanceModel
        >>> layer = torch.nn.Linear(2, 1, bias=False).requires_grad_(False)
        >>> _ = layer.weight.copy_(torch.tensor([[3.0, -1.0]]))
        >>> x = torch.tensor([[1.0, 1.0]], requires_grad=True)
        >>> out = RelevanceModel(layer, gamma=1.0)(x)
        >>> out.item(), (x * torch.autograd.grad(out, x)[0]).tolist()  # shares of 2 in proportion to 6 and -1
        (2.0, [[2.4000000953674316, -0.4000000059604645]])
    """

    def __init__(self, model: Module, gamma: float) -> None:
        super().__init__()
        self.model = model
        layers = list(_layers(model))
        # Modules of this model, so that their messages are masked, too.
        self.favouring = ModuleList(_favour_positive(deepcopy(layer), gamma) for layer in layers)
        for layer, favouring in zip(layers, self.favouring, strict=True):
            layer.register_forward_hook(_share_like(favouring), with_kwargs=True)

    def forward(self, *args: Any) -> Any:
        """Call the model."""
        with _FrozenLengths():
            return self.model(*args)


def _layers(module: Module) -> list[Module]:
    """Return the layers that are linear as a whole: convolutions without anything but weights inside, linear layers."""
    if isinstance(module, _LINEAR):
        return [module]
    if isinstance(module, MessagePassing):
        inside = [submodule for submodule in module.modules() if submodule is not module]
        if all(isinstance(submodule, (*_LINEAR, Aggregation, nn.Identity)) for submodule in inside):
            return [module]
    return [layer for child in module.children() for layer in _layers(child)]


def _favour_positive(layer: Module, gamma: float) -> Module:
    with torch.no_grad():
        for parameter in layer.parameters():
            if parameter.dim() > 1:  # a weight, no bias
                parameter.add_(gamma * parameter.relu())
    return layer


def _share_like(favouring: Module) -> Callable[..., Tensor]:
    def hook(_: Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor) -> Tensor:
        favoured: Tensor = favouring(*args, **kwargs)
        positive = (out > 0) & (favoured > 0)
        ratio = torch.where(positive, out / torch.where(positive, favoured, 1.0), 0.0).detach()
        return favoured * ratio + out * ~positive

    return hook


class _FrozenLengths(TorchFunctionMode):
    """Make the length by which ``F.normalize`` divides a constant."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is not F.normalize:
            return func(*args, **kwargs)
        return _normalized(*args, **kwargs)


def _normalized(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: None = None) -> Tensor:
    length: Tensor = input.detach().norm(p, dim, keepdim=True).clamp_min(eps)
    return input / length
