"""Robust fidelity: fidelities for which only a few random edges are removed."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Generator, Tensor
from torch.nn import Module
from torch_geometric.data import Batch, Data

from captum_goat.metrics.counted_edges import CountedEdges, check_selected
from captum_goat.metrics.fidelity import NodePolicy, Prediction


class RobustFidelity(NamedTuple):
    """Robust fid+ and fid- of each graph, from :func:`robust_fidelity`.

    Examples:
        >>> import torch
        >>> from benchmarks.paper_metrics import RobustFidelity
        >>> RobustFidelity(plus=torch.tensor([0.5]), minus=torch.tensor([0.25])).delta
        tensor([0.2500])
    """

    plus: Tensor
    minus: Tensor

    @property
    def delta(self) -> Tensor:
        """The difference of fid+ and fid-: the higher, the better."""
        return self.plus - self.minus


def robust_fidelity(
    model: Module,
    data: Data | Batch,
    selected: Tensor,
    target: Tensor | int | None = None,
    node_policy: NodePolicy = "stay",
    *,
    alpha1: float = 0.1,
    alpha2: float = 0.9,
    samples: int = 50,
    generator: Generator | None = None,
) -> RobustFidelity:
    r"""Return fidelities for which a few random edges of the explanation, or of the rest, are removed.

    .. math::
        \mathrm{Fid}_{\alpha_1,+} &= f(G)_c - \mathbb{E}\, f(G \setminus E_{\alpha_1}(S))_c \\
        \mathrm{Fid}_{\alpha_2,-} &= f(G)_c - \mathbb{E}\, f(S \cup E_{\alpha_2}(G \setminus S))_c

    :math:`E_\alpha` draws every edge with probability :math:`\alpha`: edges of the explanation are removed with
    probability :math:`\alpha_1`, and other edges are kept with probability :math:`\alpha_2`. Expectations are means
    over ``samples`` draws by ``generator``. :math:`\alpha_1 = 1` and :math:`\alpha_2 = 0` give the ordinary fidelities.
    The other arguments are those of :func:`captum_goat.metrics.fidelity_plus`. Source: Zheng et al.: *Towards Robust
    Fidelity for Evaluating Explainability of Graph Neural Networks*, ICLR 2024.

    Examples:
        >>> from captum_goat.datasets import ba_2motifs
        >>> from benchmarks.paper_metrics import robust_fidelity
        >>> from captum_goat.models import GraphClassifier
        >>> model, (graph,) = GraphClassifier("gin", 10, 8, 2).eval(), ba_2motifs(1)
        >>> robust_fidelity(model, graph, graph.edge_label, alpha1=0.0, alpha2=1.0, samples=1)  # nothing is removed
        RobustFidelity(plus=tensor([0.]), minus=tensor([0.]))
    """
    for name, alpha in (("alpha1", alpha1), ("alpha2", alpha2)):
        if not 0.0 <= alpha <= 1.0:
            raise ValueError(f"Expected {name} to be a probability from 0 to 1 (got {alpha}).")
    if samples < 1:
        raise ValueError(f"Expected one sample or more (got {samples}).")
    edges, selected = CountedEdges.of(data), check_selected(selected, data)
    prediction = Prediction(model, data, target, node_policy)
    device = edges.graph.device if generator is None else generator.device

    def draw(probability: float) -> Tensor:
        drawn = torch.rand(len(edges.graph), generator=generator, device=device) < probability
        return drawn.to(edges.graph.device)[edges.number]

    plus, minus = torch.zeros_like(prediction.original), torch.zeros_like(prediction.original)
    for _ in range(samples):
        plus += prediction.drop(~(selected & draw(alpha1)))
        minus += prediction.drop(selected | draw(alpha2))
    return RobustFidelity(plus / samples, minus / samples)
