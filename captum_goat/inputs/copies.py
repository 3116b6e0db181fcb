"""Copies of a graph side by side, as PyG would batch them: one call of a model then runs all of them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Batch
from torch_geometric.data.data import BaseData

from captum_goat.inputs.arguments import EdgeSet, describe, signature_of, tensors_of
from captum_goat.tracking.sparse import is_adjacency

_logger = logging.getLogger(__name__)

# Integers that count things of which B copies of a graph have B times as many.
_COUNTS = frozenset({"batch_size", "num_graphs", "num_nodes", "dim_size"})
# Arguments with one row per node.
_NODE_ARGUMENTS = ("x", "z", "pos", "batch")


def side_by_side(model: Module, arguments: dict[str, Any], edges: Sequence[EdgeSet], count: int) -> dict[str, Any]:
    """Return the arguments for ``count`` copies of a graph.

    Raises:
        ValueError: If it cannot be told how the arguments are to be copied.
    """
    if not edges:
        raise ValueError(f"Expected an integer tensor [2, num_edges] for the model (got {describe(arguments)}).")
    if any(edge_set.inside or is_adjacency(edge_set.of(arguments)) for edge_set in edges):
        raise ValueError("Expected an edge_index that is an argument of the model, to copy it (got another form).")
    if isinstance(data := arguments[edges[0].name], BaseData):
        graphs = data.to_data_list() if isinstance(data, Batch) else [data]
        return arguments | {edges[0].name: Batch.from_data_list(graphs * count)}
    typed = edges[0].key is not None
    edge_sets = {edge_set.name: edge_set.of(arguments) for edge_set in edges}
    nodes: dict[Any, int] = _nodes_per_type(arguments) if typed else {None: _num_nodes(arguments, edge_sets)}
    batches = [batch for (name, *_), batch in tensors_of(arguments) if name == "batch" or (typed and "batch" in name)]
    num_graphs = max(map(graphs_in, batches), default=1)
    sizes = {*nodes.values(), num_graphs, *(edge_index.size(1) for edge_index in edge_sets.values())}
    copied: dict[str, Any] = {}
    known: dict[tuple[int, str], Tensor] = {}  # the same edges again must stay the same tensor
    for name, value in arguments.items():
        if typed and isinstance(value, dict):
            kind = "edge_index" if name == edges[0].name else name
            value = {
                key: _copies(kind, tensor, count, _ends(key, nodes), num_graphs, {tensor.size(0)})
                for key, tensor in value.items()
            }
        elif isinstance(value, Tensor) and value.dim() > 0:
            kind = "edge_index" if any(value is edge_index for edge_index in edge_sets.values()) else name
            if (id(value), kind) not in known:
                known[id(value), kind] = _copies(kind, value, count, tuple(nodes.values()), num_graphs, sizes)
            value = known[id(value), kind]
        elif not typed and name in _COUNTS and isinstance(value, int) and not isinstance(value, bool):
            value = value * count
        copied[name] = value
    batch_name = "batch_dict" if typed else "batch"
    if copied.get(batch_name) is None and batch_name in signature_of(model).parameters:
        copy = torch.arange(count, device=edges[0].of(arguments).device)
        batch = {key: copy.repeat_interleave(size) for key, size in nodes.items()}
        copied[batch_name] = batch if typed else batch[None]
    return copied


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


def _num_nodes(arguments: Mapping[str, Any], edge_sets: Mapping[str, Tensor]) -> int:
    for name in _NODE_ARGUMENTS:
        if isinstance(value := arguments.get(name), Tensor):
            return value.size(0)
    for name, value in arguments.items():
        if isinstance(value, Tensor) and value.dim() > 0 and name not in edge_sets:
            return value.size(0)
    return max(int(edge_index.max()) + 1 if edge_index.numel() else 0 for edge_index in edge_sets.values())


def _nodes_per_type(arguments: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of nodes of every node type.

    Raises:
        ValueError: If some argument is no dictionary of tensors, so that it is not known how to copy it.
    """
    for name, value in arguments.items():
        entries = value.values() if isinstance(value, dict) else ()
        if isinstance(value, Tensor) or not all(isinstance(entry, Tensor) and entry.dim() > 0 for entry in entries):
            raise ValueError(f"Expected dictionaries of tensors by type, to copy them (got another value of '{name}').")
    usual = [name for argument in _NODE_ARGUMENTS for name in (argument, f"{argument}_dict")]
    nodes: dict[str, int] = {}
    for name in (*(name for name in usual if name in arguments), *arguments):
        if isinstance(value := arguments[name], dict) and "ptr" not in name and "index" not in name:
            nodes = {key: tensor.size(0) for key, tensor in value.items() if isinstance(key, str)} | nodes
    return nodes


def _ends(key: Any, nodes: Mapping[str, int]) -> tuple[int, ...]:
    """Return how many nodes there are at the two ends of an edge type, or of a node type."""
    ends = (key[0], key[-1]) if isinstance(key, tuple) else (key,)
    if not all(end in nodes for end in ends):
        raise ValueError(f"Expected the number of nodes of every type in {key!r} (got those of {list(nodes)}).")
    return tuple(nodes[end] for end in ends)


def copies_agree(together: Tensor, last: Tensor, count: int) -> bool:
    """Return whether the output for copies of a graph side by side ends with that for the last graph alone.

    A model may mix the graphs of a batch (by a mean over all nodes, say); then its copies are not independent.
    """
    if last.dim() == 0 or together.shape != (count * last.size(0), *last.shape[1:]):
        return False
    precision = torch.finfo(last.dtype).eps ** 0.5
    near = precision * last.abs().max() if last.numel() else 0.0
    return bool(((together[len(together) - len(last) :] - last).abs() <= near).all())


@contextmanager
def fallback_to_single_runs() -> Iterator[None]:
    """Catch the errors of a model that copies of a graph do not fit, because it has an embedding per node, say.

    Whatever is not due to the copies comes again when the graph runs alone. Running out of memory, interrupts and the
    like are not caught.
    """
    try:
        yield
    except (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        _logger.debug("Copies of the graph failed, so the masks run one by one: %r", error)
