"""Copies of a graph side by side, as PyG would batch them: one call of a model then runs all of them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Batch
from torch_geometric.data.data import BaseData

from captum_goat.inputs.edge_sets import EdgeSet, describe

# Whole numbers that count things of which B copies of a graph have B times as many.
_COUNTS = frozenset({"batch_size", "num_graphs", "num_nodes", "dim_size"})
# Arguments with one row per node.
_NODE_ARGUMENTS = ("x", "z", "pos", "batch")


def side_by_side(model: Module, arguments: dict[str, Any], edges: Sequence[EdgeSet], count: int) -> dict[str, Any]:
    """Return the arguments for ``count`` copies of a graph.

    Raises:
        ValueError: If it cannot be told how the arguments are to be copied.
    """
    if not edges:
        raise ValueError(
            f"Expected an integer tensor of shape [2, num_edges] among the model's arguments (got "
            f"{describe(arguments)})."
        )
    if isinstance(data := arguments[edges[0].name], BaseData):
        graphs = data.to_data_list() if isinstance(data, Batch) else [data]
        return arguments | {edges[0].name: Batch.from_data_list(graphs * count)}
    if edges[0].key is not None:
        return _typed(model, arguments, edges, count)
    return _untyped(model, arguments, edges, count)


def _untyped(model: Module, arguments: dict[str, Any], edges: Sequence[EdgeSet], count: int) -> dict[str, Any]:
    tensors = {each.name: each.of(arguments) for each in edges}
    num_nodes = _num_nodes(arguments, tensors)
    num_graphs = graphs_in(arguments.get("batch"))
    sizes = {num_nodes, num_graphs, *(each.size(1) for each in tensors.values())}
    found: dict[str, Any] = {}
    copied: dict[int, Tensor] = {}  # the same edges again must stay the same tensor
    for name, value in arguments.items():
        if isinstance(value, Tensor) and value.dim() > 0:
            is_edges = any(value is each for each in tensors.values())
            if id(value) not in copied or not is_edges:
                kind = "edge_index" if is_edges else name
                copied[id(value)] = _copies(kind, value, count, (num_nodes,), num_graphs, sizes)
            value = copied[id(value)]
        elif name in _COUNTS and isinstance(value, int) and not isinstance(value, bool):
            value = value * count
        found[name] = value
    if found.get("batch") is None and "batch" in inspect.signature(model.forward).parameters:
        found["batch"] = torch.arange(count, device=tensors[edges[0].name].device).repeat_interleave(num_nodes)
    return found


def _typed(model: Module, arguments: dict[str, Any], edges: Sequence[EdgeSet], count: int) -> dict[str, Any]:
    """Return copies of the dictionaries of a heterogeneous graph."""
    for name, value in arguments.items():
        others = value.values() if isinstance(value, dict) else ()
        if isinstance(value, Tensor) or not all(isinstance(each, Tensor) and each.dim() > 0 for each in others):
            raise ValueError(f"Expected dictionaries of tensors, by type (got another value for '{name}').")
    nodes = _nodes_per_type(arguments)
    batches = [value for name, value in arguments.items() if isinstance(value, dict) and "batch" in name]
    num_graphs = max((graphs_in(each) for value in batches for each in value.values()), default=1)
    found: dict[str, Any] = {}
    for name, value in arguments.items():
        kind = "edge_index" if name == edges[0].name else name
        if isinstance(value, dict):
            value = {
                key: _copies(kind, each, count, _ends(key, nodes), num_graphs, {each.size(0)})
                for key, each in value.items()
            }
        found[name] = value
    if found.get("batch_dict") is None and "batch_dict" in inspect.signature(model.forward).parameters:
        copy = torch.arange(count, device=edges[0].of(arguments).device)
        found["batch_dict"] = {key: copy.repeat_interleave(size) for key, size in nodes.items()}
    return found


def _copies(
    name: str, value: Tensor, count: int, num_nodes: tuple[int, ...], num_graphs: int, sizes: set[int]
) -> Tensor:
    copy = torch.arange(count, device=value.device)
    if name in ("ptr", "ptr_dict"):
        shifts = (copy * value[-1]).repeat_interleave(value.numel() - 1)
        return torch.cat([value[:1], value[1:].repeat(count) + shifts])
    if not value.is_floating_point() and "index" in name:  # PyG's convention: node indices, side by side
        shift = torch.tensor(num_nodes, device=value.device).view(-1, *[1] * (value.dim() > 1))
        return value.repeat(*[1] * (value.dim() - 1), count) + shift * copy.repeat_interleave(value.size(-1))
    if value.size(0) not in sizes:
        return value
    copies = value.repeat(count, *[1] * (value.dim() - 1))
    if not value.is_floating_point() and "batch" in name:
        return copies + (copy * num_graphs).repeat_interleave(value.size(0))
    return copies


def graphs_in(batch: Any) -> int:
    """Return the number of graphs in a batch vector; 1 if there is none."""
    return int(batch.max()) + 1 if isinstance(batch, Tensor) and batch.numel() else 1


def _num_nodes(arguments: Mapping[str, Any], edges: Mapping[str, Tensor]) -> int:
    for name in _NODE_ARGUMENTS:
        if isinstance(value := arguments.get(name), Tensor):
            return value.size(0)
    for name, value in arguments.items():
        if isinstance(value, Tensor) and value.dim() > 0 and name not in edges:
            return value.size(0)
    return max(int(each.max()) + 1 if each.numel() else 0 for each in edges.values())


def _nodes_per_type(arguments: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of nodes of every node type."""
    usual = [name for each in _NODE_ARGUMENTS for name in (each, f"{each}_dict")]
    found: dict[str, int] = {}
    for name in (*(name for name in usual if name in arguments), *arguments):
        if isinstance(value := arguments[name], dict) and "ptr" not in name and "index" not in name:
            found = {key: each.size(0) for key, each in value.items() if isinstance(key, str)} | found
    return found


def _ends(key: Any, nodes: Mapping[str, int]) -> tuple[int, ...]:
    """Return how many nodes there are at the two ends of an edge type, or of a node type."""
    ends = (key[0], key[-1]) if isinstance(key, tuple) else (key,)
    if not all(each in nodes for each in ends):
        raise ValueError(f"Expected the number of nodes of every type in {key!r} (got those of {list(nodes)}).")
    return tuple(nodes[each] for each in ends)
