"""RG-Explainer: a policy that has learned by reinforcement to grow connected subgraphs that explain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.functional import cross_entropy, kl_div
from torch_geometric.data import Batch, Data
from torch_geometric.nn import MessagePassing, global_mean_pool

from benchmarks.explainers.graph_copies import repeat_graphs
from benchmarks.explainers.growth import (
    FORBIDDEN,
    NEARLY,
    NEVER,
    Growth,
    Neighbours,
    best,
    first_highest,
    grow,
    repeating,
    sampled,
    uniform,
)
from benchmarks.explainers.growth_networks import Locator, Policy
from benchmarks.explainers.training_sample import sample_graphs
from captum_goat.compare.explainers import Explainer, ExplainerSkippedError, own_copy
from captum_goat.compare.graphs import Graphs, seeded
from captum_goat.metrics.counted_edges import position_in_graph, sums
from captum_goat.models import RootClassifier

AT_ONCE = 25  # graphs to learn from in one step
SMALLEST = 4  # nodes of the random sets that the policy starts by imitating
LOCATOR_EVERY, LOCATOR_STEPS = 5, 10  # epochs between two times that the locator learns, and its steps each time

Step: TypeAlias = Callable[[Tensor], None]  # goes one step down a loss


class Scene(NamedTuple):
    """Graphs, and what is needed to grow subgraphs in them.

    Attributes:
        graphs: The graphs.
        near: Their neighbours.
        pairs: The embeddings of each node and of its graph, side by side, ``[N, 2 * D]``.
        whole: The embeddings of the graphs, ``[G, D]``.
        may_seed: Where subgraphs may start, bool ``[N]``.
    """

    graphs: Graphs
    near: Neighbours
    pairs: Tensor
    whole: Tensor
    may_seed: Tensor

    @classmethod
    def of(cls, model: Module, graphs: Graphs) -> Scene:
        """Prepare graphs: subgraphs start at the classified nodes, or else at any node with neighbours."""
        near, (_, nodes) = Neighbours.of(graphs), _outputs(model, graphs)
        whole = _pooled(model, nodes, graphs)
        may_seed = _roots(graphs) if isinstance(model, RootClassifier) else near.number > 0
        return cls(graphs, near, torch.cat([nodes, whole[graphs.batch]], dim=1), whole, may_seed)

    def start(self, liking: Tensor) -> Growth:
        """Start at the allowed node with the highest value ``[N]`` of each graph."""
        values = torch.where(self.may_seed, liking, FORBIDDEN)
        return Growth.at(self.near, first_highest(values, self.near.batch, self.near.num_graphs, NEARLY))

    def random_start(self) -> Growth:
        """Start at a random allowed node of each graph."""
        return self.start(torch.rand(len(self.pairs), device=self.pairs.device))


class RGExplainer(Explainer):
    r"""RG-Explainer: connected subgraphs that a policy grows from a seed, one node after the other.

    It has to be fitted. The policy is a network that, given the nodes so far, chooses one of their neighbours or to
    stop (see :class:`~benchmarks.explainers.growth_networks.Policy`). It learns that the subgraph :math:`S`
    at which it stops has a small loss

    .. math:: L(S) = -\log p_c(S) + \lambda_1 |E_S| + \lambda_2 \max_{v \in S} d_S(v, \text{seed})
              + \lambda_3 \frac{\lVert h(S) - h(G) \rVert}{\lVert h(G) \rVert},

    with :math:`c` the class that is predicted for the graph :math:`G`, :math:`E_S` the columns of ``edge_index`` that
    are left, :math:`d_S` the distance in :math:`S`, and :math:`h` the mean over all nodes of the outputs of all message
    passing layers. As in the authors' code, the other nodes stay, without edges.

    First the policy imitates, by maximum likelihood, the best of some random connected subgraphs. Policy gradients
    follow: all steps to a subgraph have its reward :math:`-L`, less the mean reward of others from the same seed. The
    seed is the node that a second network, the locator, likes best. It learns the softmax of the rewards that random
    seeds lead to, by the Kullback-Leibler divergence. With a :class:`~captum_goat.models.RootClassifier`, the seed is
    the node that is classified, and :math:`h` is its own row.

    The scores are ranks, not signed evidence, and do not depend on the class. To explain, the likeliest step is always
    taken. An edge appears when the later one of its nodes joins, whatever its direction; the earlier, the higher it
    scores. So that all edges have a rank, which is our reading, the set grows on in the same way after the policy has
    stopped: edges of the explanation itself score above 1, later ones between 0 and 1, and those out of reach 0.

    What differs from the authors' code: the mean of other subgraphs is the baseline, where they complete every
    unfinished subgraph several times, which costs much more, and have none; embeddings differ in relation to their
    length, as it depends on the model; nodes and stopping share one softmax; the likeliest steps explain, not random
    ones; the weights for nodes are those for graphs; and there are more epochs at a lower learning rate (theirs is
    0.01), as there are fewer graphs to learn from.

    Args:
        epochs: How often to go through the graphs with policy gradients.
        warm_up: How often to go through the graphs before that, with random subgraphs to imitate.
        lr: Adam's learning rate.
        rollouts: How many subgraphs of each graph are grown at once, to imitate the best of them, to compare them with
            each other, or to try seeds.
        size: :math:`\lambda_1`.
        radius: :math:`\lambda_2`.
        similarity: :math:`\lambda_3`.
        largest: The number of nodes at which the policy has to stop.
        num_graphs: How many graphs to train with at most; they are sample_graphs at random.
        seed: Where the random numbers start.

    Attributes:
        rewards: The mean reward in each epoch of policy gradients.
    """

    name = "rg_explainer"
    citation = (
        "Shan, Shen, Zhang, Li, Li: Reinforcement Learning Enhanced Explainer for Graph Neural Networks, NeurIPS 2021"
    )
    batched = True
    trained = True

    def __init__(
        self,
        epochs: int = 30,
        warm_up: int = 60,
        lr: float = 0.003,
        rollouts: int = 8,
        size: float = 0.01,
        radius: float = 0.01,
        similarity: float = 0.01,
        largest: int = 20,
        num_graphs: int = 100,
        seed: int = 0,
    ) -> None:
        if rollouts < 2:
            raise ValueError(f"Expected 2 rollouts or more, to compare them with each other (got {rollouts}).")
        if largest < 2:
            raise ValueError(f"Expected subgraphs to grow to 2 nodes or more (got largest={largest}).")
        self.epochs = epochs
        self.warm_up = warm_up
        self.lr = lr
        self.rollouts = rollouts
        self.size = size
        self.radius = radius
        self.similarity = similarity
        self.largest = largest
        self.num_graphs = num_graphs
        self.seed = seed
        self.rewards: list[float] = []
        self._networks: tuple[Policy, Locator] | None = None

    def fit(self, model: Module, graphs: Sequence[Data]) -> None:
        """Train the policy and the locator."""
        model = own_copy(model)
        with seeded(self.seed), torch.inference_mode(False), torch.enable_grad():
            chosen = sample_graphs(graphs, self.num_graphs)
            parts = [chosen[k : k + AT_ONCE] for k in range(0, len(chosen), AT_ONCE)]
            scenes = [Scene.of(model, repeat_graphs(_predicted(model, part), self.rollouts)) for part in parts]
            x, pairs = scenes[0].graphs.x, torch.cat([scene.pairs for scene in scenes])
            policy, locator = Policy(x.size(1)).to(x), Locator(pairs).to(x)
            self._train(model, scenes, policy, locator)
        self._networks = policy.requires_grad_(False), locator.requires_grad_(False)

    def _train(self, model: Module, scenes: list[Scene], policy: Policy, locator: Locator) -> None:
        optimizer = torch.optim.Adam([*policy.parameters(), *locator.parameters()], lr=self.lr)

        def step(loss: Tensor) -> None:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        for _ in range(self.warm_up):
            for scene in scenes:
                self._imitate(model, scene, policy, locator, step)
        self.rewards = []
        for epoch in range(self.epochs):
            if epoch % LOCATOR_EVERY == 0:
                for scene in scenes:
                    start = scene.random_start()
                    with torch.no_grad():
                        grown, _ = grow(start, policy.scorer(scene.near, scene.graphs.x), sampled, self.largest)
                    self._locate(scene, start, self.losses(model, scene, grown), locator, step)
            rewards = [self._reinforce(model, scene, policy, locator, step) for scene in scenes]
            self.rewards.append(float(torch.cat(rewards).mean()))

    def _imitate(self, model: Module, scene: Scene, policy: Policy, locator: Locator, step: Step) -> None:
        """Learn from the best of some random subgraphs of each graph, and from where they started."""
        start = scene.random_start()
        grown, _ = grow(start, uniform, sampled, self.largest)
        spare = (grown.sizes + 1 - SMALLEST).clamp(min=1)
        grown = grown.cut(SMALLEST + (torch.rand(spare.shape, device=spare.device) * spare).long())
        losses = self.losses(model, scene, grown)
        self._locate(scene, start, losses, locator, step)
        table = losses.view(self.rollouts, -1)
        winners = (table == table.amin(dim=0)).view(-1)
        scorer = policy.scorer(scene.near, scene.graphs.x)
        _, log_probability = grow(replace(start, open=winners), scorer, repeating(grown), self.largest)
        step(-log_probability.sum() / table.size(1))

    def _locate(self, scene: Scene, start: Growth, losses: Tensor, locator: Locator, step: Step) -> None:
        """Train the locator on the losses of subgraphs that started at these seeds."""
        wanted = (-losses).view(self.rollouts, -1).softmax(dim=0)
        for _ in range(LOCATOR_STEPS):
            liking = locator(scene.pairs[start.inside]).view(self.rollouts, -1)
            step(kl_div(liking.log_softmax(dim=0), wanted, reduction="sum") / wanted.size(1))

    def _reinforce(self, model: Module, scene: Scene, policy: Policy, locator: Locator, step: Step) -> Tensor:
        """Follow the policy's gradient once, and return the rewards of the subgraphs that it has grown."""
        with torch.no_grad():
            start = scene.start(locator(scene.pairs))
        grown, log_probability = grow(start, policy.scorer(scene.near, scene.graphs.x), sampled, self.largest)
        rewards = -self.losses(model, scene, grown)
        table = rewards.view(self.rollouts, -1)
        others = (table.sum(dim=0) - table) / (self.rollouts - 1)
        step(-((table - others).view(-1) * log_probability).mean())
        return rewards

    def losses(self, model: Module, scene: Scene, growth: Growth) -> Tensor:
        """Return the losses ``[G]`` of one subgraph of each graph."""
        graphs, whole = scene.graphs, scene.whole
        kept = growth.inside[graphs.edge_index].all(dim=0)
        left = graphs.changed(edge_index=graphs.edge_index[:, kept])
        logits, nodes = _outputs(model, left)
        moved = torch.linalg.norm(_pooled(model, nodes, left) - whole, dim=1)
        unlike = moved / torch.linalg.norm(whole, dim=1).clamp(min=1e-6)
        size = sums(kept.to(unlike), graphs.batch[graphs.edge_index[0]], len(unlike))
        prediction = cross_entropy(logits, graphs.target, reduction="none")
        losses: Tensor = prediction + self.size * size + self.radius * growth.radius + self.similarity * unlike
        return losses

    @torch.no_grad()
    def scores(self, model: Module, graphs: Graphs) -> Tensor:
        """Return the ranks of the edges of all graphs."""
        if self._networks is None:
            raise ValueError("Expected RGExplainer to be fitted. Call fit(model, graphs) first.")
        policy, locator = self._networks
        scene = Scene.of(model, graphs)
        start, scorer = scene.start(locator(scene.pairs)), policy.scorer(scene.near, graphs.x)
        explanation, _ = grow(start, scorer, best, self.largest)
        endless = policy.scorer(scene.near, graphs.x, may_stop=False)
        everything, _ = grow(explanation.reopened(), endless, best, len(graphs.x))
        later = everything.place[graphs.edge_index].amax(dim=0)
        nodes = sums(torch.ones_like(graphs.batch), graphs.batch, len(graphs.target))
        rank = 1 - later / nodes[graphs.batch[graphs.edge_index[0]]]
        return torch.where(later == NEVER, 0.0, rank) + explanation.inside[graphs.edge_index].all(dim=0)


def _predicted(model: Module, graphs: list[Data]) -> Graphs:
    """Return graphs with the classes that the model predicts."""
    batch = Graphs.of(Batch.from_data_list(graphs), torch.zeros(len(graphs), dtype=torch.long))
    return replace(batch, target=_outputs(model, batch)[0].argmax(dim=-1))


def _roots(graphs: Graphs) -> Tensor:
    """Return which nodes are the first ones of their graphs, bool ``[N]``."""
    return position_in_graph(graphs.batch, len(graphs.target)) == 0


def _pooled(model: Module, nodes: Tensor, graphs: Graphs) -> Tensor:
    """Return the embeddings of graphs ``[G, D]``, given those of their nodes."""
    if isinstance(model, RootClassifier):
        return nodes[_roots(graphs)]
    mean: Tensor = global_mean_pool(nodes, graphs.batch, len(graphs.target))
    return mean


@torch.no_grad()
def _outputs(model: Module, graphs: Graphs) -> tuple[Tensor, Tensor]:
    """Return the logits, and the outputs of all message passing layers side by side, ``[N, D]``."""
    embeddings: list[Tensor] = []
    layers = [module for module in model.modules() if isinstance(module, MessagePassing)]
    hooks = [layer.register_forward_hook(lambda _, __, output: embeddings.append(output)) for layer in layers]
    try:
        logits = model(*graphs.inputs)
    finally:
        for hook in hooks:
            hook.remove()
    rows = [len(output) for output in embeddings]
    if set(rows) != {len(graphs.x)}:
        raise ExplainerSkippedError(
            f"Expected message passing layers that return one row for each of {len(graphs.x)} nodes (got {rows})."
        )
    return logits, torch.cat(embeddings, dim=-1)
