"""One explainer through changes of graphs, tensors and models, against a fresh one at every step."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from conftest import slow_unless
from injection import CallFault, InjectedError
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, GraphConv, SAGEConv, global_add_pool, global_mean_pool

from captum_goat import GOAtAttribution

NODES, EDGES = 7, 12
ACTIVATIONS = (nn.ReLU, nn.Identity, nn.LeakyReLU)
LAYERS: tuple[Callable[[int, int], nn.Module], ...] = (GraphConv, SAGEConv, GCNConv)


class Net(nn.Module):
    """A model with an index among its buffers and a branch that an attribute chooses."""

    nodes: Tensor

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.one, self.two = rng.choice(LAYERS)(3, 4), rng.choice(LAYERS)(4, 4)
        self.act, self.out, self.skips, self.pool = nn.ReLU(), nn.Linear(4, 2), False, global_add_pool
        self.register_buffer("nodes", torch.arange(NODES))

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        hidden = self.act(self.one(x, edge_index))
        after = F.relu(self.two(hidden, edge_index))[self.nodes]
        return self.out(self.pool(after + hidden if self.skips else after, batch))


class Scene:
    """A model, a graph in memory that is used again and again, and everything that may happen to them."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        torch.manual_seed(seed)
        self.model = Net(self.rng).double().eval()
        self.goat = GOAtAttribution(self.model)
        self.storage = torch.randint(0, NODES, (4, EDGES))  # of edges: tensors come and go, their memory stays
        self.x, self.mask = torch.randn(NODES, 3, dtype=torch.double), torch.rand(EDGES, dtype=torch.double)
        self.batch = torch.zeros(NODES, dtype=torch.long)
        self.edge_index = self.storage[:2]
        self.target = 1

    def other_features(self) -> None:
        self.x = torch.randn_like(self.x)

    def features_in_place(self) -> None:
        self.x.mul_(-1.0)

    def other_mask(self) -> None:
        self.mask[self.rng.randrange(EDGES)] = self.rng.choice((0.0, 1.0, -0.5))

    def other_edges(self) -> None:
        self.edge_index = torch.randint(0, NODES, (2, EDGES))

    def edges_in_place(self) -> None:
        self.edge_index[self.rng.randrange(2), self.rng.randrange(EDGES)] = self.rng.randrange(NODES)

    def edges_behind_torch(self) -> None:
        self.edge_index.numpy()[self.rng.randrange(2), self.rng.randrange(EDGES)] = self.rng.randrange(NODES)

    def edges_in_the_same_memory(self) -> None:
        del self.edge_index
        self.storage.copy_(torch.randint(0, NODES, (4, EDGES)))
        start = self.rng.randrange(3)
        self.edge_index = self.storage[start : start + 2]

    def flipped_edges(self) -> None:
        self.edge_index = self.edge_index.flip(0)

    def other_graphs(self) -> None:
        """Make two graphs of the nodes, if no edge is between them, else one."""
        half = (torch.arange(NODES) >= self.rng.randrange(1, NODES)).long()
        apart = bool((half[self.edge_index[0]] == half[self.edge_index[1]]).all())
        self.batch = half if apart else torch.zeros(NODES, dtype=torch.long)

    def two_graphs(self) -> None:
        self.batch = torch.tensor([0, 0, 0, 1, 1, 1, 1])
        self.edge_index = torch.cat([torch.randint(0, 3, (2, 6)), torch.randint(3, NODES, (2, EDGES - 6))], dim=1)
        self.model.nodes = torch.arange(NODES)

    def other_target(self) -> None:
        self.target = 1 - self.target

    def weights_in_place(self) -> None:
        with torch.no_grad():
            for weight in self.model.parameters():
                weight.add_(0.3 * torch.randn_like(weight))

    def other_weights(self) -> None:
        self.model.out.weight = nn.Parameter(torch.randn_like(self.model.out.weight))

    def other_layer(self) -> None:
        self.model.two = self.rng.choice(LAYERS)(4, 4).double().eval()

    def other_activation(self) -> None:
        self.model.act = self.rng.choice(ACTIVATIONS)().eval()

    def other_branch(self) -> None:
        self.model.skips = not self.model.skips

    def other_pooling(self) -> None:
        self.model.pool = self.rng.choice((global_add_pool, global_mean_pool))

    def index_in_place(self) -> None:
        if not self.batch.any():
            self.model.nodes[self.rng.randrange(NODES)] = self.rng.randrange(NODES)

    def training(self) -> None:
        self.model.train()
        with pytest.raises(ValueError, match="evaluation mode"):
            self.explain(self.goat)
        self.model.eval()

    def layer_aside(self) -> None:
        self.model.one.explain = None if self.model.one.explain is False else False

    def fault(self) -> None:
        try:
            with CallFault(self.rng.randrange(1500), self.rng.choice((InjectedError, KeyboardInterrupt))):
                self.explain(self.goat)
        except (InjectedError, KeyboardInterrupt, ValueError):
            pass

    def other_threads(self) -> None:
        x, other = self.x, torch.randint(0, NODES, (2, EDGES))
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(self.goat.attribute, self.mask, self.target, (x, self.edge_index, self.batch))
            second = pool.submit(self.goat.attribute, self.mask, self.target, (x, other, torch.zeros_like(self.batch)))
            assert first.exception() is None or "share edges" in str(first.exception())
            assert second.exception() is None

    def explain(self, goat: GOAtAttribution) -> Tensor:
        attributions: Tensor = goat.attribute(self.mask, self.target, (self.x, self.edge_index, self.batch))
        return attributions

    def check(self) -> None:
        try:
            expected = self.explain(GOAtAttribution(self.model))
        except ValueError:  # some edge is between two graphs by now
            with pytest.raises(ValueError, match="share edges or inputs"):
                self.explain(self.goat)
        else:
            for _ in range(3):  # by the model itself, by its program, and by a plan of reach
                torch.testing.assert_close(self.explain(self.goat), expected, rtol=0.0, atol=1e-11)


EVENTS = [name for name in vars(Scene) if not name.startswith("_") and name not in ("explain", "check")]


def play(seed: int, steps: int) -> None:
    scene, played = Scene(seed), []
    for _ in range(steps):
        played.append(scene.rng.choice(EVENTS))
        try:
            getattr(scene, played[-1])()
            scene.check()
        except AssertionError as error:
            raise AssertionError(f"Scene({seed}): {', '.join(played)}") from error


@pytest.mark.parametrize("seed", slow_unless(lambda seed: seed < 5, range(16)))
def test_an_explainer_through_changes(seed: int) -> None:
    play(seed, steps=5)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(16, 416))
def test_an_explainer_through_many_changes(seed: int) -> None:
    play(seed, steps=12)
