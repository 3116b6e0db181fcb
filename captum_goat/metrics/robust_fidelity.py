"""Fidelity under small changes of a graph, so that it stays like those the model was trained on."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Generator, Tensor
from torch.nn import Module
from torch_geometric.data import Batch, Data

from captum_goat.metrics.counted_edges import CountedEdges, check_selected
from captum_goat.metrics.reduced_graphs import Measure, NodePolicy, Prediction


class RobustFidelity(NamedTuple):
    """Robust fidelities of each graph.

    Attributes:
        plus: Robust fid+ of each graph ``[G]``.
        minus: Robust fid- of each graph ``[G]``.

    Examples::

        >>> import torch
        >>> from captum_goat.metrics import RobustFidelity
        >>> RobustFidelity(plus=torch.tensor([0.5]), minus=torch.tensor([0.25])).delta
        tensor([0.2500])
    """

    plus: Tensor
    minus: Tensor

    @property
    def delta(self) -> Tensor:
        """Their difference, plus minus minus: the higher, the better."""
        return self.plus - self.minus


def robust_fidelity(
    model: Module,
    data: Data | Batch,
    selected: Tensor,
    target: Tensor | int | None = None,
    nodes: NodePolicy = "stay",
    *,
    alpha1: float = 0.1,
    alpha2: float = 0.9,
    samples: int = 50,
    measure: Measure = "probability",
    generator: Generator | None = None,
) -> RobustFidelity:
    r"""Return fidelities in which a few random edges of the explanation, or of the rest, are removed.

    .. math::
        \mathrm{Fid}_{\alpha_1,+} &= f(G)_c - \mathbb{E}\, f(G \setminus E_{\alpha_1}(S))_c \\
        \mathrm{Fid}_{\alpha_2,-} &= f(G)_c - \mathbb{E}\, f(S \cup E_{\alpha_2}(G \setminus S))_c

    :math:`E_\alpha` draws every edge with probability :math:`\alpha`, independently: so every edge of the explanation
    is removed with probability :math:`\alpha_1`, and every other edge is kept with probability :math:`\alpha_2`. The
    expectations are means over samples. :math:`\alpha_1 = 1` and :math:`\alpha_2 = 0` give the ordinary fidelities.

    Source: Zheng, Shirani, Wang, Cheng, Chen, Chen, Wei, Luo: *Towards Robust Fidelity for Evaluating Explainability of
    Graph Neural Networks*, ICLR 2024.

    Args:
        model: As for :func:`~captum_goat.metrics.fidelity_plus`.
        data: The graph, or the batch of G graphs.
        selected: The edges of the explanation, bool ``[E]``.
        target: As for :func:`~captum_goat.metrics.fidelity_plus`.
        nodes: As for :func:`~captum_goat.metrics.fidelity_plus`.
        alpha1: How likely an edge of the explanation is to be removed.
        alpha2: How likely any other edge is to be kept.
        samples: How many subsets are drawn for each of the two.
        measure: As for :func:`~captum_goat.metrics.fidelity_plus`.
        generator: Where the random numbers come from; PyTorch's default generator if ``None``. Undirected and parallel
            edges have one each: see :func:`~captum_goat.metrics.select_edges`.

    Returns:
        The two fidelities, ``[G]`` each.

    Examples::

        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from torch_geometric.nn import SimpleConv, global_add_pool
        >>> from captum_goat.metrics import robust_fidelity
        >>> class Sums(torch.nn.Module):  # every edge adds the features of its source
        ...     def forward(self, x, edge_index, batch):
        ...         return global_add_pool(SimpleConv()(x, edge_index), batch)
        >>> model = Sums().eval()
        >>> data = Data(x=torch.tensor([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]]), edge_index=torch.tensor([[0, 1], [2, 2]]))
        >>> robust_fidelity(model, data, torch.tensor([True, False]), target=0, alpha1=1.0, alpha2=0.0, samples=3)
        RobustFidelity(plus=tensor([0.1497]), minus=tensor([-0.4621]))
    """
    for name, alpha in (("alpha1", alpha1), ("alpha2", alpha2)):
        if not 0.0 <= alpha <= 1.0:
            raise ValueError(f"Expected {name} to be a probability from 0 to 1 (got {alpha}).")
    if samples < 1:
        raise ValueError(f"Expected one sample or more (got {samples}).")
    selected = check_selected(selected, data)
    edges, prediction = CountedEdges.of(data), Prediction.of(model, data, target, nodes, measure)
    plus, minus = torch.zeros_like(prediction.original), torch.zeros_like(prediction.original)
    for _ in range(samples):
        plus += prediction.drop(~(selected & _drawn(edges, alpha1, generator)))
        minus += prediction.drop(selected | _drawn(edges, alpha2, generator))
    return RobustFidelity(plus / samples, minus / samples)


def _drawn(edges: CountedEdges, probability: float, generator: Generator | None) -> Tensor:
    """Draw edges at random; return their columns, bool ``[E]``."""
    device = edges.graph.device if generator is None else generator.device
    drawn = torch.rand(len(edges.graph), generator=generator, device=device) < probability
    return drawn.to(edges.graph.device)[edges.number]
