"""The arguments of a graph model: which of them are the edges, and how to lay copies of a graph side by side."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric import EdgeIndex
from torch_geometric.data import Batch, Data
from torch_geometric.data.data import BaseData
from torch_geometric.utils import is_sparse

from captum_goat.tracking import UnsupportedModelError

# What the arguments of a model are taken to be when its `forward` does not name them.
_USUAL_NAMES = ("x", "edge_index", "batch")
# Whole numbers that count things of which B copies of a graph have B times as many.
_COUNTS = frozenset({"batch_size", "num_graphs", "num_nodes", "dim_size"})


@dataclass(frozen=True)
class GraphInputs:
    """One graph, or one batch of graphs, as the arguments of a model; or the arguments of a model without a graph.

    Attributes:
        model: The model.
        arguments: Its arguments by name, in order.
        positional: How many of them are passed by position.
        edge_name: The name of the argument that holds the edges; ``None`` if there are none.
    """

    model: Module
    arguments: dict[str, Any]
    positional: int
    edge_name: str | None

    @classmethod
    def of(
        cls, model: Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None, num_edges: int | None = None
    ) -> GraphInputs:
        """Name the arguments of a call of the model and find the edges among them.

        Args:
            model: The model.
            args: Its arguments; or one :class:`torch_geometric.data.Data` or ``Batch`` that has them. Arguments that
                Captum has expanded are brought back to one graph.
            kwargs: Its keyword arguments.
            num_edges: How many edges there must be; ``None`` if the edges are not needed.
        """
        if args and all(isinstance(each, tuple) and len(each) == 2 and isinstance(each[0], str) for each in args):
            args = (Data.from_dict(dict(args)),)  # some methods of Captum take a Data object for a sequence
        if len(args) == 1 and isinstance(args[0], BaseData):
            args, kwargs = _unpacked(model, args[0], kwargs or {})
        arguments = dict(zip(_argument_names(model, len(args)), args, strict=True)) | (kwargs or {})
        arguments = {name: _plain(value) for name, value in arguments.items()}
        edge_name = _find_edges(arguments, num_edges)
        if edge_name is not None and isinstance(edges := arguments[edge_name], Tensor) and edges.size(0) > 2:
            arguments = _without_expansion(arguments, edges.size(0) // 2)
        return cls(model, arguments, len(args), edge_name)

    @property
    def edge_index(self) -> Tensor:
        """The edges, ``[2, E]``."""
        if self.edge_name is None:
            raise ValueError(
                f"Expected an integer tensor of shape [2, num_edges] among the model's arguments (got "
                f"{_describe(self.arguments)})."
            )
        value = self.arguments[self.edge_name]
        edge_index: Tensor = value.edge_index if isinstance(value, BaseData) else value
        return edge_index

    @property
    def edge_sets(self) -> tuple[Tensor, ...]:
        """The edges, one tensor ``[2, E]`` per set of edges that has a mask of its own."""
        return (self.edge_index,)

    @property
    def num_nodes(self) -> int:
        """The number of nodes."""
        if isinstance(data := self.arguments.get(self.edge_name or ""), BaseData):
            return int(data.num_nodes)
        for name in ("x", "z", "pos", "batch"):
            if isinstance(value := self.arguments.get(name), Tensor):
                return value.size(0)
        for name, value in self.arguments.items():
            if isinstance(value, Tensor) and value.dim() > 0 and name != self.edge_name:
                return value.size(0)
        return int(self.edge_index.max()) + 1 if self.edge_index.numel() else 0

    @property
    def num_graphs(self) -> int:
        """The number of graphs in the batch."""
        batch = self.arguments.get("batch")
        return int(batch.max()) + 1 if isinstance(batch, Tensor) and batch.numel() else 1

    def __call__(self, leading: Sequence[Tensor] = ()) -> Any:
        """Call the model, with its first arguments replaced."""
        values = list(self.arguments.items())
        args = [value for _, value in values[: self.positional]]
        tensors = {name: value for name, value in values[len(leading) :] if isinstance(value, Tensor)}
        versions = {name: value._version for name, value in tensors.items()}
        output = self.model(*leading, *args[len(leading) :], **dict(values[self.positional :]))
        for name, value in tensors.items():
            if value._version != versions[name]:
                raise UnsupportedModelError(
                    f"The model changes its argument '{name}' in place, so that every call would see another one. Let "
                    f"its forward work on a copy."
                )
        return output

    def with_leading(self, values: Sequence[Tensor]) -> GraphInputs:
        """Return the inputs with the first arguments replaced."""
        names = list(self.arguments)[: len(values)]
        return replace(self, arguments=self.arguments | dict(zip(names, values, strict=True)))

    def copies(self, count: int) -> GraphInputs:
        """Return ``count`` copies of the graph side by side, as PyG would batch them."""
        if count == 1:
            return self
        if isinstance(data := self.arguments.get(self.edge_name or ""), BaseData):
            graphs = data.to_data_list() if isinstance(data, Batch) else [data]
            batch = Batch.from_data_list(graphs * count)
            return replace(self, arguments={**self.arguments, str(self.edge_name): batch})
        num_nodes, num_graphs = self.num_nodes, self.num_graphs
        sizes = {num_nodes, self.edge_index.size(1), num_graphs}
        arguments: dict[str, Any] = {}
        for name, value in self.arguments.items():
            if value is self.edge_index and name != self.edge_name:
                continue  # the same edges again: they must stay the same tensor
            if isinstance(value, Tensor) and value.dim() > 0:
                kind = "edge_index" if name == self.edge_name else name
                value = _copies_of_tensor(kind, value, count, num_nodes, num_graphs, sizes)
            elif name in _COUNTS and isinstance(value, int) and not isinstance(value, bool):
                value = value * count
            arguments[name] = value
        again = {name: arguments[str(self.edge_name)] for name in self.arguments if name not in arguments}
        arguments = {name: (arguments | again)[name] for name in self.arguments}
        if arguments.get("batch") is None and "batch" in inspect.signature(self.model.forward).parameters:
            copy = torch.arange(count, device=self.edge_index.device)
            arguments["batch"] = copy.repeat_interleave(num_nodes)
        return replace(self, arguments=arguments)


def _copies_of_tensor(name: str, value: Tensor, count: int, num_nodes: int, num_graphs: int, sizes: set[int]) -> Tensor:
    copy = torch.arange(count, device=value.device)
    if name == "ptr":
        shifts = (copy * value[-1]).repeat_interleave(value.numel() - 1)
        return torch.cat([value[:1], value[1:].repeat(count) + shifts])
    if not value.is_floating_point() and "index" in name:  # PyG's convention: node indices, side by side
        return value.repeat(*[1] * (value.dim() - 1), count) + (copy * num_nodes).repeat_interleave(value.size(-1))
    if value.size(0) not in sizes:
        return value
    copies = value.repeat(count, *[1] * (value.dim() - 1))
    if not value.is_floating_point() and "batch" in name:
        return copies + (copy * num_graphs).repeat_interleave(value.size(0))
    return copies


def _argument_names(model: Module, count: int) -> list[str]:
    """Return the names of the first ``count`` positional arguments of the model."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(model.forward).parameters.values()
    names = [parameter.name for parameter in parameters if parameter.kind in kinds]
    variadic = any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters)
    if count > len(names) and not variadic:
        raise TypeError(
            f"Expected at most {len(names)} arguments for {type(model).__name__}.forward({', '.join(names)}) "
            f"(got {count}). Pass them in this order; an edge mask is not one of them."
        )
    usual = [name for name in _USUAL_NAMES if name not in names]
    unnamed = range(len(names), count)
    names += [usual[k] if variadic and k < len(usual) else f"argument_{n}" for k, n in enumerate(unnamed)]
    return names[:count]


def _unpacked(model: Module, data: BaseData, kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return what a model's forward takes of a graph; the graph itself if it takes that."""
    parameters = inspect.signature(model.forward).parameters
    if "edge_index" not in parameters and not any(name in data for name in parameters):
        return (data,), kwargs
    return (), {name: data[name] for name in parameters if name in data and data[name] is not None} | kwargs


def _plain(value: Any) -> Any:
    if isinstance(value, EdgeIndex):
        value = value.as_tensor()
    if isinstance(value, Tensor) and value.dtype == torch.int32 and _is_edge_index(value):
        return value.long()  # torch's scatter_add has no gradient for an index of 32 bits
    # Autograd cannot save tensors that were made in inference mode.
    return value.clone() if isinstance(value, Tensor) and value.is_inference() else value


def _find_edges(arguments: dict[str, Any], num_edges: int | None) -> str | None:
    for name, value in arguments.items():
        if is_sparse(value):
            raise ValueError(
                f"Expected edges as an edge_index tensor of shape [2, num_edges] (got a sparse adjacency matrix for "
                f"'{name}'). Convert it, for example with torch_geometric.utils.to_edge_index."
            )
    edges = arguments.get("edge_index")
    if isinstance(edges, Tensor) and edges.dim() == 2 and edges.size(0) == 1:
        raise ValueError(
            f"Expected an edge_index of shape [2, num_edges] (got {list(edges.shape)}). Captum's Lime and KernelShap "
            f"hand over one row of every tensor where there are several masks: pass the graph as one Data object."
        )
    candidates = [name for name, value in arguments.items() if _is_edge_index(value)]
    if "edge_index" in candidates:
        candidates = ["edge_index"]
    if num_edges is None:
        return candidates[0] if candidates else None
    sizes = [_num_edges(arguments[name]) for name in candidates]
    fitting = [name for name, size in zip(candidates, sizes, strict=True) if size == num_edges]
    if len(fitting) == 1:
        return fitting[0]
    if len(candidates) == 1:
        raise ValueError(f"Expected one mask entry per edge: {sizes[0]} for '{candidates[0]}' (got {num_edges}).")
    raise ValueError(
        f"Expected one integer tensor of shape [2, {num_edges}] with the edges among the model's arguments (got "
        f"{len(fitting)}: {_describe(arguments)}). Name it 'edge_index' in the model's forward."
    )


def _is_edge_index(value: Any) -> bool:
    if isinstance(value, BaseData):
        return True
    whole = isinstance(value, Tensor) and not value.is_floating_point() and value.dtype != torch.bool
    return whole and value.dim() == 2 and value.size(0) > 0 and value.size(0) % 2 == 0


def _num_edges(value: Any) -> int:
    return int(value.num_edges) if isinstance(value, BaseData) else int(value.size(1))


def _without_expansion(arguments: dict[str, Any], times: int) -> dict[str, Any]:
    """Undo Captum's expansion of additional arguments along dimension 0.

    Every tensor has been repeated row by row, or as a whole, or, by a wrapper around a method, first one and then the
    other: its rows then stand as [as a whole, row, row by row].
    """
    expanded = {name: value for name, value in arguments.items() if isinstance(value, Tensor) and value.dim() > 0}
    found = []
    if all(value.size(0) % times == 0 for value in expanded.values()):
        for inner in (n for n in range(1, times + 1) if times % n == 0):
            parts = {
                name: value.reshape(times // inner, value.size(0) // times, inner, *value.shape[1:])
                for name, value in expanded.items()
            }
            if all(bool((part == part[:1, :, :1]).all()) for part in parts.values()):
                found.append({name: part[0, :, 0] for name, part in parts.items()})
    if not found:
        raise ValueError(
            f"Expected edges of shape [2, num_edges], or all arguments repeated {times} times as Captum does it (got "
            f"{_describe(arguments)})."
        )
    if any(not torch.equal(value, other[name]) for other in found[1:] for name, value in found[0].items()):
        raise ValueError(  # possible only where every edge is a self-loop
            "Expected arguments whose repetition by Captum can be undone (got some that may have been repeated as a "
            "whole or row by row). Pass the graph as one torch_geometric Data."
        )
    return arguments | found[0]


def _describe(arguments: dict[str, Any]) -> str:
    parts = (f"{k}: {list(v.shape) if isinstance(v, Tensor) else type(v).__name__}" for k, v in arguments.items())
    return ", ".join(parts) or "no arguments"
