"""PGMExplainer: which nodes' perturbation goes with a drop of the class's probability."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module

from benchmarks.explainers.graph_copies import repeat_graphs
from captum_goat.compare.explainers import Explainer
from captum_goat.compare.graphs import Graphs, seeded

P_VALUE_FLOOR = 1e-300  # its logarithm is finite


class PGMExplainerOfPyG(Explainer):
    r"""PyG's ``PGMExplainer``, with the scores of edges from those of nodes.

    The features of random nodes are replaced by random ones (by PyG's code), and a chi-squared test tells for each node
    whether its perturbation and a large drop of the class's probability are independent. A node's score is
    :math:`-\log_{10} p` of that test; it measures evidence, and has no sign. An edge's score is the smaller of its two
    nodes' scores: an edge matters if both its ends do.

    Of PyG's class the perturbations are used. Its test for graphs takes the number of the class for the column of the
    result in its first round, and leaves all but a twentieth of the nodes out of the second; here all nodes take part
    in one round, with the asked class in place of the predicted one.

    Args:
        samples: The number of perturbed graphs.
        seed: Where the random numbers start.
    """

    name = "pgm_explainer"
    citation = "Vu, Thai: PGM-Explainer: Probabilistic Graphical Model Explanations for GNNs, NeurIPS 2020"

    def __init__(self, samples: int = 100, seed: int = 0) -> None:
        self.samples = samples
        self.seed = seed

    def scores(self, model: Module, graphs: Graphs) -> Tensor:
        """Return the scores of one graph's edges."""
        with seeded(graphs.seed(self.seed)), torch.no_grad():
            perturbed, drops = self.drawn(model, graphs)
        evidence = [abs(np.log10(max(P_VALUE_FLOOR, p_value(node, drops)))) for node in perturbed.T]
        nodes = torch.tensor(evidence, dtype=graphs.x.dtype, device=graphs.x.device)
        source, target = graphs.edge_index
        return torch.minimum(nodes[source], nodes[target])

    def drawn(self, model: Module, graphs: Graphs) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Return which nodes were perturbed, bool ``[samples, N]``, and in which samples the probability drops most.

        The latter are an eighth of the samples, as in PyG's code; bool ``[samples]``.
        """
        algorithm, nodes = _pyg_class()(num_samples=self.samples), graphs.x.size(0)
        perturbed = np.zeros((self.samples, nodes), dtype=bool)
        features = []
        for sample in perturbed:
            sample[:] = np.random.randint(0, 100, size=nodes) < 50
            features.append(algorithm._perturb_features_on_nodes(x=graphs.x, index=sample.nonzero()[0]))
        copies = repeat_graphs(graphs, self.samples)
        probability = model(torch.cat(features), copies.edge_index, copies.batch).softmax(-1)
        kept = copies.of_target(probability)
        most = torch.argsort(-kept)[-(self.samples // 8) :]
        drops = np.zeros(self.samples, dtype=bool)
        drops[most.cpu().numpy()] = True
        return perturbed, drops


def p_value(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> float:
    r"""Return the p-value of Pearson's chi-squared test of whether two events are independent.

    With :math:`n` samples, :math:`a` and :math:`b` of either event and :math:`c` of both, the statistic is

    .. math:: \chi^2 = \frac{n \, (|c n - a b| - n / 2)_+^2}{a (n - a) b (n - b)}, p = \mathrm{erfc}\sqrt{\chi^2 / 2},

    with Yates' correction.

    Examples::

        >>> import numpy as np
        >>> from benchmarks.explainers.pgm import p_value
        >>> event = np.arange(40) % 2 == 0
        >>> p_value(event, event) < 1e-6, p_value(event, np.arange(40) < 20)
        (True, 1.0)
    """
    count, both = one.size, int(np.sum(one & other))
    ones, others = int(one.sum()), int(other.sum())
    cells = ones * (count - ones) * others * (count - others)
    if cells == 0:
        return 1.0  # an event that always or never happens says nothing
    distance = max(0.0, abs(both * count - ones * others) - count / 2)
    return math.erfc(math.sqrt(count * distance**2 / cells / 2))


def _pyg_class() -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="'torch_geometric.contrib' contains experimental code")
        from torch_geometric.contrib.explain import PGMExplainer
    return PGMExplainer
