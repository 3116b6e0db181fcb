"""The two networks of RG-Explainer: one lets sets of nodes grow, the other tells where they start."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import Module
from torch.nn.functional import silu
from torch_geometric.nn import global_add_pool
from torch_geometric.utils import softmax

from benchmarks.explainers.growth import FORBIDDEN, Growth, Neighbours, Scorer

HIDDEN = 64
HOPS, RESTART = 3, 0.15  # of the spreading of features


class Policy(Module):
    """Gives logits to the nodes that may join a set, and to stopping.

    A node's inputs are its features and two marks, of the seed and of the set, spread over its surroundings. (The
    method spreads what a linear layer makes of them; as both are linear, that is the same.) Stopping has a logit of its
    own from the mean of the nodes of the set and next to it, weighted by attention. At first all logits are 0.

    Args:
        num_features: The number of node features.
    """

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(num_features + 2, HIDDEN), nn.SiLU(), nn.Linear(HIDDEN, HIDDEN), nn.SiLU())
        self.attention = nn.Linear(HIDDEN, 1)
        self.node = nn.Linear(HIDDEN, 1, bias=False)
        self.stop = nn.Linear(HIDDEN, 1, bias=False)
        nn.init.zeros_(self.node.weight)
        nn.init.zeros_(self.stop.weight)

    def scorer(self, near: Neighbours, x: Tensor, *, may_stop: bool = True) -> Scorer:
        """Return a function that computes the logits, given the neighbours and node features ``[N, F]``."""
        features = near.spread(x, HOPS, RESTART)

        def score(growth: Growth) -> tuple[Tensor, Tensor]:
            marks = near.spread(torch.stack([growth.place == 0, growth.inside], dim=1).to(x), HOPS, RESTART)
            members = (growth.inside & growth.open[near.batch]).nonzero().view(-1)
            nodes = torch.cat([growth.boundary, members]) if may_stop else growth.boundary
            hidden = self.embed(torch.cat([features[nodes], marks[nodes]], dim=1))
            logits = self.node(hidden[: len(growth.boundary)]).view(-1)
            if not may_stop:
                return logits, x.new_full((near.num_graphs,), FORBIDDEN)
            share = softmax(self.attention(hidden), near.batch[nodes], num_nodes=near.num_graphs)
            mean = global_add_pool(share * hidden, near.batch[nodes], near.num_graphs)
            return logits, self.stop(silu(mean)).view(-1)

        return score


class Locator(Module):
    """Tells how good a seed each node is, from its embedding and that of its graph.

    Args:
        pairs: Some such embeddings ``[R, 2 * D]``, to bring others to the same scale.
    """

    def __init__(self, pairs: Tensor) -> None:
        super().__init__()
        nodes = pairs[:, : pairs.size(1) // 2]
        self.mean, self.scale = nodes.mean(dim=0).repeat(2), nodes.std(dim=0).clamp(min=1e-6).repeat(2)
        self.layers = nn.Sequential(
            nn.Linear(pairs.size(1), HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 8), nn.ReLU(), nn.Linear(8, 1)
        )

    def forward(self, pairs: Tensor) -> Tensor:
        """Return logits ``[R]``."""
        logits: Tensor = self.layers((pairs - self.mean) / self.scale).view(-1)
        return logits
