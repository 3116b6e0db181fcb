"""Random graphs as examples, in the forms that different models take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

NODES = 10
CHANNELS = 8
EDGE_CHANNELS = 3
METADATA = (["a", "b"], [("a", "to", "b"), ("b", "of", "a"), ("a", "in", "a")])


class Graph(NamedTuple):
    """The arguments of a model, whether it needs them or not."""

    x: Tensor
    edge_index: Tensor
    batch: Tensor | None
    edge_attr: Tensor
    edge_weight: Tensor
    edge_type: Tensor
    pos: Tensor
    normal: Tensor
    node_type: Tensor


class Example(NamedTuple):
    """One call to be explained.

    Attributes:
        args: The arguments of the model, without what is attributed.
        inputs: What is attributed: masks of ones, one per set of edges; or features.
        owners: The number of the graph to which each entry (or row) of each input belongs.
        edges: Whether edges are attributed, else features.
    """

    args: tuple[Any, ...]
    inputs: tuple[Tensor, ...]
    owners: tuple[Tensor, ...]
    edges: bool = True

    def with_made(self, edge_index: Tensor) -> Example:
        """Return the call with edges that the model has made itself as its last argument."""
        batch = self.args[2]
        owner = torch.zeros_like(edge_index[0]) if batch is None else batch[edge_index[0]]
        inputs, owners = (*self.inputs, torch.ones(edge_index.size(1))), (*self.owners, owner)
        return self._replace(args=(*self.args, edge_index), inputs=inputs, owners=owners)


def examples(family: str) -> list[Example]:
    """Return the examples of a family; the same in every call, in the default dtype.

    Args:
        family: ``"graphs"``: one graph without self-loops, one with a self-loop at every node, and a batch of two
            graphs with some; all with duplicate edges and isolated nodes. ``"single"``: the first two, and one with
            some self-loops. ``"loops"``: the second. ``"batch"``: the batch. ``"few"``: the first and the batch.
            ``"sorted"``: as ``"graphs"``, with edges sorted by target.
            ``"mesh"``: four edges into every node, in its order. ``"signed"``: positive and negative edges.
            ``"hetero"``: several types of nodes and edges. ``"rows"``: features without a graph.
    """
    return _FAMILIES[family]()


def _random(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _edges(kind: str, *, nodes: int = NODES - 2, count: int = 18, first: int = 0) -> Tensor:
    """Return random edges among ``nodes`` nodes from ``first`` on; others are isolated."""
    edges = torch.randint(0, nodes, (2, count), generator=_random(1)) + first
    edges = edges[:, edges[0] != edges[1]]
    duplicates = edges[:, :2]
    if kind == "none":
        return torch.cat([edges, duplicates], dim=1)
    loops = torch.arange(first, first + nodes)[1::3] if kind == "some" else torch.arange(NODES)
    loops = torch.cat([loops, loops[:1]]) if kind == "some" else loops
    return torch.cat([edges[:, :3], loops.expand(2, -1), edges[:, 3:], duplicates], dim=1)


def _graph(edge_index: Tensor, batch: Tensor | None = None) -> Graph:
    random, edges = _random(2), edge_index.size(1)
    normal = torch.randn(NODES, 3, generator=random)
    return Graph(
        x=torch.randn(NODES, CHANNELS, generator=random),
        edge_index=edge_index,
        batch=batch,
        edge_attr=torch.rand(edges, EDGE_CHANNELS, generator=random),
        edge_weight=torch.rand(edges, generator=random) + 0.5,
        edge_type=torch.arange(edges) % 2,
        pos=torch.randn(NODES, 3, generator=random),
        normal=normal / normal.norm(dim=1, keepdim=True),
        node_type=torch.arange(NODES) % 2,
    )


def _example(edge_index: Tensor, batch: Tensor | None = None) -> Example:
    owner = torch.zeros(edge_index.size(1), dtype=torch.long) if batch is None else batch[edge_index[0]]
    return Example(tuple(_graph(edge_index, batch)), (torch.ones(edge_index.size(1)),), (owner,))


def _single() -> list[Example]:
    return [_example(_edges(kind)) for kind in ("none", "all", "some")]


def _batch() -> Example:
    first = _edges("some", nodes=5, first=1)
    second = _edges("some", nodes=3, count=6, first=7)
    return _example(torch.cat([first, second], dim=1), torch.tensor([0] * 6 + [1] * 4))


def _graphs() -> list[Example]:
    return [*_single()[:2], _batch()]


def _sorted() -> list[Example]:
    examples = []
    for example in _graphs():
        edge_index, batch = example.args[1], example.args[2]
        examples.append(_example(edge_index[:, edge_index[1].argsort(stable=True)], batch))
    return examples


def _mesh() -> list[Example]:
    target = torch.arange(NODES).repeat_interleave(4)
    source = torch.cat([torch.randperm(NODES, generator=_random(node))[:4] for node in range(NODES)])
    return [_example(torch.stack([source, target]))]


def _signed() -> list[Example]:
    examples = []
    for kind in ("none", "some"):
        edges, batch = _edges(kind), torch.zeros(NODES, dtype=torch.long)
        sets = (edges[:, ::2].clone(), edges[:, 1::2].clone())
        masks = tuple(torch.ones(edges_of_set.size(1)) for edges_of_set in sets)
        owners = tuple(torch.zeros(edges_of_set.size(1), dtype=torch.long) for edges_of_set in sets)
        examples.append(Example((_graph(edges).x, *sets, batch), masks, owners))
    return examples


def _hetero() -> list[Example]:
    random, sizes = _random(3), {"a": 6, "b": 4}
    x_dict = {name: torch.randn(size, CHANNELS, generator=random) for name, size in sizes.items()}
    edge_index_dict = {}
    for source, relation, target in METADATA[1]:
        ends = [torch.randint(0, sizes[name], (1, 7), generator=random) for name in (source, target)]
        edge_index_dict[source, relation, target] = torch.cat(ends)
    masks = tuple(torch.ones(7) for _ in edge_index_dict)
    return [Example((x_dict, edge_index_dict), masks, tuple(torch.zeros(7, dtype=torch.long) for _ in masks))]


def _rows() -> list[Example]:
    x = torch.randn(5, CHANNELS, generator=_random(4))
    return [Example((), (x,), (torch.arange(5),), edges=False)]


_FAMILIES: dict[str, Callable[[], list[Example]]] = {
    "graphs": _graphs,
    "single": _single,
    "loops": lambda: [_single()[1]],
    "batch": lambda: [_batch()],
    "few": lambda: [_single()[0], _batch()],
    "sorted": _sorted,
    "mesh": _mesh,
    "signed": _signed,
    "hetero": _hetero,
    "rows": _rows,
}
