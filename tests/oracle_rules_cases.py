"""Random models of recipes and random graphs, with what the oracle of rules says of them."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from oracle_rules import Oracle, attributions, run
from oracle_rules_factors import Cell, chosen, divided, weighted, with_norm
from oracle_rules_rows import ACTIVATIONS, Stage
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, GraphConv, MessagePassing, SAGEConv, global_max_pool, global_mean_pool

from captum_goat import GOAtAttribution

CLASSES = 2
POOLS: tuple[Stage, ...] = (global_mean_pool, global_max_pool)
TOLERANCE = 1e-10

LAYERS: dict[str, Callable[[int, int], nn.Module]] = {
    "graph": GraphConv,
    "graph_max": functools.partial(GraphConv, aggr="max"),
    "sage": SAGEConv,
    "sage_unit": functools.partial(SAGEConv, normalize=True),
    "sage_max": functools.partial(SAGEConv, aggr="max"),
    "gcn": GCNConv,
    "gcn_max": functools.partial(GCNConv, aggr="max"),
    "gat": GATConv,
    "gat_max": functools.partial(GATConv, aggr="max"),
    "linear": nn.Linear,
    "cell": Cell,
}
OTHERS: dict[str, Stage] = {"unit": F.normalize, "pool": global_mean_pool, "max_pool": global_max_pool}
OTHERS |= {"divided": divided, "weighted": weighted, "with_norm": with_norm, "chosen": chosen}


class Net(nn.Module):
    """Real layers in a row."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        super().__init__()
        self.stages = list(stages)
        self.layers = nn.ModuleList(stage for stage in stages if isinstance(stage, nn.Module))

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        for stage in self.stages:
            if isinstance(stage, MessagePassing):
                x = stage(x, edge_index)
            else:
                x = stage(x, batch) if stage in POOLS else stage(x)
        return x


def build_model(recipe: str, generator: torch.Generator, way: int = 0) -> Net:
    """Build the layers with normal parameters; activations called as functions or as modules, by turns."""
    names = recipe.split()
    # Two channels are enough, except for norms, which would leave them only one direction.
    hidden = 3 if {"norm", "unit"} & set(names) else 2
    stages: list[Stage] = []
    width = 2
    for number, name in enumerate(names):
        if name in LAYERS:
            before, width = width, CLASSES if number == len(names) - 1 else hidden
            stages.append(LAYERS[name](before, width))
        elif name == "gat_heads":
            stages.append(GATConv(width, 1, heads=2))
            width = 2
        elif name == "norm":
            stages.append(nn.LayerNorm(width))
        elif name in OTHERS:
            stages.append(OTHERS[name])
        else:
            stages.append(ACTIVATIONS[name][1][way % 2])
            way += 1
    model = Net(stages).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, generator=generator)
    return model


def random_graph(seed: int, generator: torch.Generator) -> tuple[int, Tensor]:
    """Draw 3 to 7 directed edges; by seed with a loop, a duplicate, a node without edges or only with outgoing ones."""
    nodes = (4, 5, 4, 3, 5, 4)[seed % 6]
    isolated, source_only = seed % 3 == 1, seed % 3 == 2
    pairs = [(i, j) for i, j in itertools.permutations(range(nodes - isolated), 2) if not (source_only and j == 0)]
    chosen = torch.randperm(len(pairs), generator=generator)[: (4, 4, 5, 3, 4, 3)[seed % 6]].tolist()
    edges = [pairs[k] for k in chosen]
    if seed % 2 == 0:
        edges.append(edges[0])  # a duplicate: a variable of its own
    if seed % 4 != 3:
        loop = int(torch.randint(int(source_only), nodes - isolated, (1,), generator=generator))
        edges.insert(1, (loop, loop))  # not last, where PyG would put one
    return nodes, torch.tensor(edges).t()


@dataclass
class Case:
    """A model, a graph, masks (ones, fractions) and a target, with what the oracle says of them."""

    model: Net
    x: Tensor
    edge_index: Tensor
    masks: list[Tensor]
    target: tuple[int, int]

    def passes(self, kind: type[Oracle]) -> list[Oracle]:
        """Run an oracle with each mask, and without edges."""
        masks = [*self.masks, 0 * self.masks[0]]
        return [run(self.model.stages, self.x, self.edge_index, mask, kind) for mask in masks]

    @functools.cached_property
    def oracles(self) -> list[Oracle]:
        return self.passes(Oracle)

    @functools.cached_property
    def expected(self) -> list[Tensor]:
        """Return the oracle's attributions for each mask."""
        *explained, empty = self.oracles
        return [attributions(oracle, empty, self.target) for oracle in explained]

    @property
    def pooled(self) -> bool:
        return any(stage in POOLS for stage in self.model.stages)

    def actual(self, index: int) -> Tensor:
        """Return what the package says; graph-level outputs have one row per graph: the target is the class alone."""
        target = self.target[1] if self.pooled else self.target
        result: Tensor = GOAtAttribution(self.model).attribute(
            self.masks[index], target=target, additional_forward_args=(self.x, self.edge_index)
        )
        return result


@functools.cache
def draw_case(recipe: str, seed: int) -> Case:
    """Draw until the attributions are not all zero, for such cases test nothing, and rounding errors decide nothing."""
    generator = torch.Generator().manual_seed(1000 * seed + sum(map(ord, recipe)))
    while True:
        model = build_model(recipe, generator, seed)
        nodes, edge_index = random_graph(seed, generator)
        x = torch.randn(nodes, 2, generator=generator, dtype=torch.float64)
        ones = torch.ones(edge_index.shape[1], dtype=torch.float64)
        fractions = torch.rand(ones.shape, generator=generator, dtype=torch.float64)
        if seed % 2:
            fractions = 1.5 * torch.randn(ones.shape, generator=generator, dtype=torch.float64)
            fractions[seed % len(fractions)] = 0.0
        pooled = "pool" in recipe
        row = 0 if pooled else int(torch.randint(nodes, (1,), generator=generator))
        case = Case(model, x, edge_index, [ones, fractions], (row, seed % CLASSES))
        telling = all(expected.abs().max() > 1e-3 for expected in case.expected)
        if telling and all(oracle.margin > 1e-6 for oracle in case.oracles):
            return case
