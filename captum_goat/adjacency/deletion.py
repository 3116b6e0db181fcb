"""Graphs without some of their edges, and whether a model is on them what it is with these edges masked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import HeteroData
from torch_geometric.data.data import BaseData

from captum_goat.inputs.copies import graphs_in
from captum_goat.inputs.graph_inputs import GraphInputs
from captum_goat.tracking import UnsupportedModelError
from captum_goat.tracking.sparse import is_adjacency, num_edges


@contextmanager
def running_without_edges(graph: GraphInputs) -> Iterator[None]:
    """Turn whatever a model raises into an error that says that it runs without some edges."""
    try:
        yield
    except UnsupportedModelError:
        raise
    except Exception as error:  # of the user's model, so of any kind
        raise UnsupportedModelError(
            f"{type(graph.model).__name__} does not run on the graph without some of its edges "
            f"({type(error).__name__}: {error}), so it is not known what they do to the output. Use at='message'."
        ) from error


def check_same(graph: GraphInputs, masked: Tensor, deleted: Tensor, before: Tensor) -> None:
    """Raise if the outputs with edges masked to 0 and deleted differ by more than rounding of that ``before``."""
    if not nearly_equal(masked, deleted, before):
        graph.check_finite()
        raise UnsupportedModelError(
            f"With some of the edges masked to 0, the output of {type(graph.model).__name__} is not what it is without "
            f"them, so something in it depends on the edges in other ways than by sums over them. Use at='message'."
        )


def nearly_equal(one: Tensor, other: Tensor, *more: Tensor) -> bool:
    """Return whether two outputs are equal up to rounding, relative to the largest numbers in them or in ``more``."""
    if one.shape != other.shape:
        return False
    near = torch.finfo(one.dtype).eps ** 0.5
    if one.numel() and one.dtype == other.dtype and bool((one - other).abs().max() <= near * one.abs().max()):
        return True  # and there are no infinite or nan entries
    sizes = [output.nan_to_num(0.0, 0.0, 0.0).abs().max() for output in (one, *more) if output.numel()]
    largest = max(map(float, sizes), default=0.0)
    return torch.allclose(one, other, rtol=near, atol=near * largest, equal_nan=True)


def with_edges(graph: GraphInputs, kept: Tensor) -> GraphInputs:
    """Return a graph with some of its edges only, bool ``[E]``, and what belongs to them."""
    arguments = dict(graph.arguments)
    sizes = [num_edges(edges) for edges in graph.edge_sets]
    for (place, key, inside), keep in zip(graph.edges, kept.split(sizes), strict=True):
        if inside or any(map(is_adjacency, graph.edge_sets)):
            raise UnsupportedModelError(
                f"The edges are inside of a list, dictionary or sparse matrix, the argument '{place}', from which they "
                f"cannot be deleted. Use at='message', or call a model whose argument is an edge_index."
            )
        value = arguments[place]
        if isinstance(value, BaseData):
            arguments[place] = _data_with(value, key, keep)
        elif key is not None:
            for name, entry in arguments.items():
                if isinstance(entry, dict) and isinstance(entry.get(key), Tensor):
                    arguments[name] = entry | {key: _chosen(entry[key], name == place, keep)}
        else:
            same = {name for name, entry in arguments.items() if entry is value}
            of_edges = {name for name in arguments if len(graph.edges) == 1 and _is_of_edges(graph, name, keep)}
            arguments |= {name: _chosen(arguments[name], name in same, keep) for name in same | of_edges}
    return replace(graph, arguments=arguments)


def _is_of_edges(graph: GraphInputs, name: str, keep: Tensor) -> bool:
    """Return whether an argument has one row per edge: by size, or by name where nodes or graphs are as many."""
    value = graph.arguments[name]
    if not isinstance(value, Tensor) or value.dim() == 0 or value.size(0) != keep.numel():
        return False
    first = next(argument for argument in graph.arguments.values() if isinstance(argument, Tensor))
    return "edge" in name or keep.numel() not in (first.size(0), graphs_in(graph.arguments.get("batch")))


def _chosen(value: Tensor, is_edges: bool, keep: Tensor) -> Tensor:
    return value[:, keep] if is_edges else value[keep]


def _data_with(data: BaseData, key: Any, keep: Tensor) -> BaseData:
    data = copy(data)
    store = data[key] if isinstance(data, HeteroData) else data
    name = "edge_index" if isinstance(data, HeteroData) else key
    for other in list(store.keys()):
        if other != name and isinstance(store[other], Tensor) and store.is_edge_attr(other):
            store[other] = store[other][keep]
    store[name] = store[name][:, keep]
    return data
