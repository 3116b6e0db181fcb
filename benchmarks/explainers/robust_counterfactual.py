"""RCExplainer: a network that learns to move graphs across the decision boundaries that many graphs share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import Module
from torch_geometric.data import Batch, Data
from torch_geometric.utils import get_embeddings

from benchmarks.explainers.decision_regions import Head, decision_regions
from benchmarks.explainers.training_sample import sample_graphs
from captum_goat import EdgeMaskedModel
from captum_goat.compare.explainers import Explainer, own_copy
from captum_goat.compare.graphs import Graphs, seeded
from captum_goat.metrics.counted_edges import sums

HIDDEN = 64
COLDEST, HOTTEST = 0.5, 4.99  # what divides the log-odds in training, from the first epoch to the last


class _Part(NamedTuple):
    """Graphs to train with: the inputs of the network, their embeddings, and the boundaries of their regions."""

    graphs: Graphs
    pairs: Tensor
    embeddings: Tensor
    boundaries: Tensor  # [B, D + 1]
    owner: Tensor  # the graph of each boundary, [B]


class RCExplainer(Explainer):
    r"""RCExplainer: a network tells an edge's mask from the embeddings of its two nodes, as in PGExplainer.

    It has to be fitted. First the model's decision regions are found (see
    :func:`~benchmarks.explainers.decision_regions.decision_regions`): with :math:`B_i(\alpha)` the
    boundaries of the region of a graph with embedding :math:`\alpha`, and :math:`\alpha'`, :math:`\alpha''` the
    embeddings with the edges multiplied by the mask :math:`M` and by :math:`1 - M`, the loss of a graph is

    .. math:: \lambda \, \mathrm{mean}_i \, \sigma(-B_i(\alpha) B_i(\alpha'))
              + (1 - \lambda) \min_i \sigma(B_i(\alpha) B_i(\alpha''))
              + \beta \sum_e M_e + \mu \, \mathrm{mean}_e H(M_e):

    what is kept stays inside of the region, and what is left over crosses one of its boundaries; :math:`H` is the
    entropy. The scores are the network's log-odds. They do not depend on the class.

    Args:
        epochs: How often to go through the graphs.
        lr: Adam's learning rate.
        keep: :math:`\lambda`.
        size: :math:`\beta`.
        entropy: :math:`\mu`.
        num_graphs: How many graphs to train with at most; they are sample_graphs at random.
        seed: Where the random numbers start.
    """

    name = "rc_explainer"
    citation = (
        "Bajaj, Chu, Xue, Pei, Wang, Lam, Zhang: Robust Counterfactual Explanations on Graph Neural Networks, NeurIPS "
        "2021"
    )
    batched = True
    trained = True

    def __init__(
        self,
        epochs: int = 100,
        lr: float = 0.001,
        keep: float = 0.85,
        size: float = 0.006,
        entropy: float = 0.66,
        num_graphs: int = 100,
        seed: int = 0,
    ) -> None:
        self.epochs = epochs
        self.lr = lr
        self.keep = keep
        self.size = size
        self.entropy = entropy
        self.num_graphs = num_graphs
        self.seed = seed
        self._network: Module | None = None

    def fit(self, model: Module, graphs: Sequence[Data]) -> None:
        """Find the decision regions, and train the network."""
        model = own_copy(model)
        with seeded(self.seed), torch.inference_mode(False), torch.enable_grad():
            chosen = sample_graphs(graphs, self.num_graphs)
            head, parts = _prepared(model, chosen)
            network = _network(parts[0].pairs)
            optimizer = torch.optim.Adam(network.parameters(), lr=self.lr)
            for epoch in range(self.epochs):
                temperature = COLDEST * (HOTTEST / COLDEST) ** (epoch / self.epochs)
                for part in parts:
                    optimizer.zero_grad()
                    self._loss(head, part, network(part.pairs).view(-1), temperature).backward()
                    optimizer.step()
        self._network = network.requires_grad_(False)

    def _loss(self, head: Head, part: _Part, log_odds: Tensor, temperature: float) -> Tensor:
        graphs, (slope, offset) = part.graphs, (part.boundaries[:, :-1], part.boundaries[:, -1])
        noise = torch.rand_like(log_odds).clamp(1e-6, 1 - 1e-6).logit()
        mask = graphs.shared(graphs.edges.totals(((log_odds + noise) / temperature).sigmoid()))

        def distances(embeddings: Tensor) -> Tensor:
            return (embeddings[part.owner] * slope).sum(dim=1) + offset

        masked, actual = EdgeMaskedModel(head.model), distances(part.embeddings)
        kept = (-actual * distances(head.embeddings(graphs, masked, mask))).sigmoid()
        left = (actual * distances(head.embeddings(graphs, masked, 1 - mask))).sigmoid()
        count = len(graphs.target)
        number = sums(torch.ones_like(kept), part.owner, count).clamp(min=1)
        same = (sums(kept, part.owner, count) / number).mean()
        opposite = left.new_ones(count).scatter_reduce(0, part.owner, left, "amin").mean()
        soft = mask * 0.99 + 0.005
        entropy = -(soft * soft.log() + (1 - soft) * (1 - soft).log()).mean()
        return self.keep * same + (1 - self.keep) * opposite + self.size * mask.sum() / count + self.entropy * entropy

    def scores(self, model: Module, graphs: Graphs) -> Tensor:
        """Return the log-odds of the masks of all graphs."""
        if self._network is None:
            raise ValueError("Expected RCExplainer to be fitted. Call fit(model, graphs) first.")
        log_odds: Tensor = self._network(_pairs(model, graphs)).view(-1)
        return log_odds


def _network(pairs: Tensor) -> Module:
    layers = nn.Sequential(nn.Linear(pairs.size(1), HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1))
    return layers.to(pairs)


def _pairs(model: Module, graphs: Graphs) -> Tensor:
    """Return the embeddings of the two nodes of each edge, from all layers side by side."""
    with torch.no_grad():
        nodes = torch.cat(get_embeddings(model, *graphs.inputs), dim=-1)
    source, target = graphs.edge_index
    return torch.cat([nodes[source], nodes[target]], dim=-1)


def _prepared(model: Module, chosen: list[Data], at_once: int = 32) -> tuple[Head, list[_Part]]:
    batches = [Batch.from_data_list(chosen[k : k + at_once]) for k in range(0, len(chosen), at_once)]
    parts = [Graphs.of(batch, torch.zeros(batch.num_graphs, dtype=torch.long)) for batch in batches]
    head = Head(model, parts[0])
    with torch.no_grad():
        embeddings = [head.embeddings(part, model).detach() for part in parts]
    regions = iter(decision_regions(head, torch.cat(embeddings)))
    parts_with_regions = []
    for part, rows in zip(parts, embeddings, strict=True):
        own = [next(regions) for _ in rows]
        sizes = torch.tensor([len(boundaries) for boundaries in own], device=rows.device)
        owner = torch.arange(len(own), device=rows.device).repeat_interleave(sizes)
        parts_with_regions.append(_Part(part, _pairs(model, part), rows, torch.cat(own), owner))
    return head, parts_with_regions
