"""What faults are injected into: all ways to explain a small model with a state of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.explain import Explainer
from torch_geometric.nn import GCNConv, GINConv, global_add_pool

from captum_goat import EdgeMaskedModel, EdgeSetSearch, GOAtAttribution, GOAtExplainer, explain_dataset, explain_nodes

NUM_EDGES = 9


class Model(nn.Module):
    """Two layers, gates of three kinds, and things that a forward pass writes to."""

    calls: Tensor
    passes = 0  # of all models

    def __init__(self, *, pools: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        mlp = nn.Sequential(nn.Linear(3, 5), nn.ReLU(inplace=True), nn.Linear(5, 5), nn.BatchNorm1d(5))
        self.one, self.two, self.act, self.out = GINConv(mlp), GCNConv(5, 5), nn.ReLU(), nn.Linear(5, 2)
        self.pools, self.last = pools, None
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        Model.passes += 1
        self.calls += 1
        x = self.last = self.act(self.one(x, edge_index))
        x = F.relu(self.two(x, edge_index))
        return self.out(global_add_pool(x, batch) if self.pools else x)


def graph(seed: int) -> Data:
    generator = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(0, 6, (2, NUM_EDGES), generator=generator)
    return Data(torch.randn(6, 3, generator=generator, dtype=torch.double), edge_index)


MASK = torch.ones(NUM_EDGES, dtype=torch.double)


class Subject(NamedTuple):
    """A model, and a function that explains it and returns numbers."""

    model: Model
    run: Callable[[], Tensor]


def _attribute(model: Model) -> Callable[[], Tensor]:
    goat = GOAtAttribution(model)

    def run() -> Tensor:
        arguments = graph(0).x, graph(0).edge_index  # new to the one, known to the other
        return torch.stack([explainer.attribute(MASK, 1, arguments) for explainer in (GOAtAttribution(model), goat)])

    return run


def _features(model: Model) -> Callable[[], Tensor]:
    goat = GOAtAttribution(model, mask_type="node_and_edge")

    def run() -> Tensor:
        data = graph(0)
        return torch.cat(
            [attributions.reshape(-1) for attributions in goat.attribute((data.x, MASK), 1, (data.edge_index,))]
        )

    return run


def _adjacency(model: Model) -> Callable[[], Tensor]:
    goat = GOAtAttribution(model, at="adjacency")
    return lambda: goat.attribute(MASK, 1, (graph(0).x, graph(0).edge_index))


def _masked(model: Model) -> Callable[[], Tensor]:
    masked = EdgeMaskedModel(model)
    return lambda: masked(torch.stack([MASK, 0.5 * MASK]), graph(0).x, graph(0).edge_index).detach()


def _searched(model: Model) -> Callable[[], Tensor]:
    search = EdgeSetSearch(model, n_passes=14, shares=(0.5,))

    def run() -> Tensor:
        scores, sets = search.attribute(MASK, 1, (graph(0).x, graph(0).edge_index), return_sets=True)
        return torch.cat([scores, sets.sufficient.view(-1)])

    return run


def _explainer(model: Model) -> Callable[[], Tensor]:
    config = {"mode": "multiclass_classification", "task_level": "graph", "return_type": "raw"}
    # Of what the model is: else PyG calls it itself, and leaves what that changes.
    options = {"explanation_type": "phenomenon", "edge_mask_type": "object", "model_config": config}
    explainer = Explainer(model, GOAtExplainer(), **options)
    return lambda: explainer(graph(0).x, graph(0).edge_index, target=torch.tensor([1])).edge_mask


def _nodes(model: Model) -> Callable[[], Tensor]:
    return lambda: explain_nodes(model, graph(0), [1, 2], show_progress=False).attributions


def _dataset(model: Model) -> Callable[[], Tensor]:
    graphs = [graph(seed) for seed in range(3)]

    def run() -> Tensor:
        explanations = explain_dataset(model, graphs, batch_size=2, show_progress=False)
        return torch.cat([explanation.edge_mask for explanation in explanations])

    return run


SUBJECTS: dict[str, Callable[[Model], Callable[[], Tensor]]] = {
    "attribute": _attribute,
    "attribute, features": _features,
    "attribute, adjacency": _adjacency,
    "EdgeMaskedModel": _masked,
    "EdgeSetSearch": _searched,
    "GOAtExplainer": _explainer,
    "explain_nodes": _nodes,
    "explain_dataset": _dataset,
}


def subject(name: str) -> Subject:
    model = Model(pools=name != "explain_nodes").double().eval()
    return Subject(model, SUBJECTS[name](model))


def passes_of(run: Callable[[], Any]) -> int:
    """Return how often models run in a call: on a slower path they do so more often."""
    before = Model.passes
    run()
    return Model.passes - before
