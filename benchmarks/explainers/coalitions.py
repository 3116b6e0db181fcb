"""Shapley values of edges by all coalitions, or by a regression on random ones that nothing guides."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import Module

from benchmarks.explainers.adjacency import Deletion
from captum_goat.compare.explainers import ExplainerSkippedError
from captum_goat.compare.graphs import LARGEST_CALL, Graphs, MaskedTargets

LARGEST_GAME = 14  # players, 16,384 coalitions


class CoalitionValues(Deletion):
    """Base class of Shapley values of deleted edges; both directions of an undirected edge are one player."""

    complete = True
    baseline = "removed"

    def values(self, model: Module, graphs: Graphs, coalitions: Tensor) -> Tensor:
        """Return the target's logit of one graph for coalitions of its edges, ``[K]`` from bool ``[K, M]``."""
        targets = MaskedTargets(model, graphs, at="adjacency")
        masks, size = coalitions.to(graphs.x.dtype)[:, graphs.edges.number], max(1, LARGEST_CALL // graphs.num_edges)
        with torch.no_grad():
            return torch.cat([targets(part) for part in masks.split(size)])


class ExactShapley(CoalitionValues):
    r"""Shapley values of edges from all :math:`2^M` coalitions; graphs of more than 14 edges are skipped.

    .. math:: \varphi_e = \sum_{S \not\ni e} \frac{|S|!\,(M - |S| - 1)!}{M!}\,\big(v(S \cup e) - v(S)\big)
    """

    name = "exact_shapley"
    citation = "Shapley: A Value for n-Person Games, 1953; here for edges"

    def scores(self, model: Module, graphs: Graphs) -> Tensor:
        """Return the values."""
        count = len(graphs.edges.graph)
        if count > LARGEST_GAME:
            raise ExplainerSkippedError(f"Expected graphs of at most {LARGEST_GAME} edges (got one of {count}).")
        numbers = torch.arange(2**count, device=graphs.x.device)
        members = (numbers.view(-1, 1) >> torch.arange(count, device=graphs.x.device)) % 2 == 1
        values, sizes = self.values(model, graphs, members), members.sum(dim=1)
        weights = torch.tensor(
            [1.0 / (count * math.comb(count - 1, size)) for size in range(count)],
            dtype=values.dtype,
            device=values.device,
        )
        totals = []
        for edge in range(count):
            without = ~members[:, edge]
            gains = values[numbers[without] + 2**edge] - values[without]
            totals.append((weights[sizes[without]] * gains).sum())
        return graphs.shared(torch.stack(totals))


class GNNShap(CoalitionValues):
    r"""Shapley values of edges by a weighted regression on random coalitions, evaluated in batches.

    Minimises :math:`\sum_S w(S) (v(S) - v(\emptyset) - \sum_{e \in S} \varphi_e)^2` under the condition that
    :math:`\sum_e \varphi_e = v(G) - v(\emptyset)`. Coalitions come in pairs, a set and its complement, with sizes k in
    proportion to :math:`(M - 1) / (k (M - k))`, the Shapley kernel of all coalitions of a size together; all weights
    are 1 then. If there are no more coalitions than
    samples, all are evaluated, with the kernel as weights, and the values are exact.

    Args:
        samples: The number of coalitions.
        seed: Where the random numbers start.
    """

    name = "gnn_shap"
    citation = "Akkas, Azad: GNNShap: Scalable and Accurate GNN Explanation using Shapley Values, WWW 2024"

    def __init__(self, samples: int = 256, seed: int = 0) -> None:
        self.samples = samples
        self.seed = seed

    def scores(self, model: Module, graphs: Graphs) -> Tensor:
        """Return the coefficients."""
        count, device = len(graphs.edges.graph), graphs.x.device
        ends = torch.stack([torch.zeros(count, dtype=torch.bool), torch.ones(count, dtype=torch.bool)]).to(device)
        nothing, everything = self.values(model, graphs, ends).double()
        if count == 1:
            return graphs.shared((everything - nothing).view(1).to(graphs.x.dtype))
        members, weights = (part.to(device) for part in self.coalitions(count, graphs.seed(self.seed)))
        gains = self.values(model, graphs, members).double() - nothing
        # The last edge's value is what the others leave of the total.
        design = members.double()
        total, root = everything - nothing, weights.sqrt()
        reduced = (design[:, :-1] - design[:, -1:]) * root.view(-1, 1)
        wanted = (gains - design[:, -1] * total) * root
        first = torch.linalg.pinv(reduced) @ wanted  # the shortest solution, if there are several
        return graphs.shared(torch.cat([first, (total - first.sum()).view(1)]).to(graphs.x.dtype))

    def coalitions(self, count: int, seed: int) -> tuple[Tensor, Tensor]:
        """Return coalitions that are neither empty nor everything, bool ``[K, M]``, and their weights ``[K]``."""
        sizes = torch.arange(1, count, dtype=torch.double)
        kernel = (count - 1) / (sizes * (count - sizes))  # of all coalitions of a size together
        if count <= LARGEST_GAME and 2**count - 2 <= self.samples:
            numbers = torch.arange(1, 2**count - 1)
            members = (numbers.view(-1, 1) >> torch.arange(count)) % 2 == 1
            each = torch.tensor([kernel[size - 1] / math.comb(count, size) for size in range(1, count)])
            return members, each[members.sum(dim=1) - 1]
        random = torch.Generator().manual_seed(seed)
        pairs = max(1, self.samples // 2)
        drawn = torch.multinomial(kernel, pairs, replacement=True, generator=random) + 1
        ranks = torch.rand(pairs, count, generator=random).argsort(dim=1).argsort(dim=1)
        half = ranks < drawn.view(-1, 1)
        return torch.cat([half, ~half]), torch.ones(2 * pairs, dtype=torch.double)
