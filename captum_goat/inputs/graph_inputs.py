"""The arguments of a graph model: which of them are the edges, and how to call the model with them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, TypeAlias

from torch import Tensor
from torch.nn import Module
from torch.utils._pytree import tree_map_only
from torch_geometric.data.data import BaseData
from torch_geometric.nn import MessagePassing

from captum_goat.inputs.arguments import EdgeSet, MaskSizes, find_edge_sets, named_arguments, tensors_of, unexpanded
from captum_goat.inputs.copies import side_by_side
from captum_goat.tracking import UnsupportedModelError
from captum_goat.tracking.sparse import is_adjacency

# A position, a key, the name of an attribute, a tuple of these, or a function of the output; None for all of it.
Selector: TypeAlias = int | str | tuple[int | str, ...] | Callable[[Any], Any] | None


@dataclass(frozen=True)
class GraphInputs:
    """One graph, or one batch of graphs, as the arguments of a model; or the arguments of a model without a graph."""

    model: Module
    arguments: dict[str, Any]  # by name, in order
    positional: int  # how many of them are passed by position
    edges: tuple[EdgeSet, ...]  # where the edges are among the arguments, one place per mask
    node_types: tuple[str, ...] | None = None  # of attributed features that are in a dictionary, the first argument
    output: Selector = None  # which part of the model's output is explained
    attributes: tuple[str, str | None] | None = None  # the argument that edge attributes are, or a graph and their name

    @classmethod
    def of(
        cls,
        model: Module,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any] | None = None,
        num_edges: MaskSizes | None = None,
        *,
        leading: int | tuple[str, ...] = 0,
        count: int = 1,
        output: Selector = None,
        attributes: bool = False,
    ) -> GraphInputs:
        """Name the arguments and find the edges; ``leading`` (or a dictionary of types) and attributes are missing."""
        node_types, number = (None, leading) if isinstance(leading, int) else (leading, 1)
        arguments, positional, place = named_arguments(model, args, kwargs or {}, number, attributes)
        edges = find_edge_sets(arguments, num_edges)
        arguments = unexpanded(arguments, edges[0] if edges else None, count)
        return cls(model, arguments, positional, edges, node_types, output, place)

    @property
    def edge_sets(self) -> tuple[Tensor, ...]:
        """The edges, one tensor ``[2, E]`` per set of edges that has a mask of its own."""
        return tuple(edge_set.of(self.arguments) for edge_set in self.edges)

    @property
    def tensors(self) -> list[Tensor]:
        """All tensors among the arguments."""
        return [tensor for _, tensor in tensors_of(self.arguments)]

    @property
    def kinds(self) -> Hashable:
        """The names, dtypes and dimensions of the arguments, and where the edges are among them."""
        tensors = [(path, tensor.dtype, tensor.device, tensor.dim()) for path, tensor in tensors_of(self.arguments)]
        names = [(name, value is None) for name, value in self.arguments.items()]
        return self.edges, self.positional, self.node_types, tuple(names), tuple(tensors)

    def __call__(self, leading: Sequence[Tensor] = ()) -> Any:
        """Call the model, with its first arguments, or edge attributes, replaced."""
        places = [(name, tensor) for (name, *_), tensor in tensors_of(self.arguments) if not is_adjacency(tensor)]
        versions = [tensor._version for _, tensor in places]
        values = [(name, fresh(value)) for name, value in self.with_leading(leading).arguments.items()]
        args, kwargs = [value for _, value in values[: self.positional]], dict(values[self.positional :])
        try:
            output = self.model(*args, **kwargs)
        except (AttributeError, IndexError, RuntimeError, TypeError) as error:
            passes = self.edges or any(isinstance(module, MessagePassing) for module in self.model.modules())
            if passes or not leading or isinstance(error, UnsupportedModelError):
                raise
            raise UnsupportedModelError(
                f"{type(self.model).__name__} has no layer that derives from torch_geometric.nn.MessagePassing, so the "
                f"inputs {[list(value.shape) for value in leading]} were taken for its first arguments, with which it "
                f"fails ({type(error).__name__}: {error}). An edge mask needs message passing that can be seen."
            ) from error
        for (name, tensor), version in zip(places, versions, strict=True):
            if tensor._version != version:
                raise UnsupportedModelError(
                    f"The model changes its argument '{name}' in place, so the next call would see other values. Let "
                    f"its forward work on a copy."
                )
        return selected(output, self.output)

    def output_rows(self, leading: Sequence[Tensor] = ()) -> Any:
        """Call the model, with its first arguments replaced; an output of one number is one row."""
        output = self(leading)
        return output.view(1) if isinstance(output, Tensor) and output.dim() == 0 else output

    def with_leading(self, values: Sequence[Tensor]) -> GraphInputs:
        """Return the inputs with the first arguments, or edge attributes, replaced."""
        if not values:
            return self
        arguments = dict(self.arguments)
        if self.attributes is not None:
            (name, key), (*values, attributes) = self.attributes, values
            if key is not None:
                graph = copy(arguments[name])
                graph[key] = attributes
            arguments[name] = attributes if key is None else graph
        first: Sequence[Any] = values
        if self.node_types is not None and values:
            first = [dict(zip(self.node_types, values, strict=True))]
        return replace(self, arguments=arguments | dict(zip(arguments, first, strict=False)))

    def with_edges(self, kind: type[Tensor]) -> GraphInputs:
        """Return the inputs with all sets of edges as another class of tensors."""
        edges = {id(tensor): tensor.as_subclass(kind) for tensor in self.edge_sets}

        def changed(value: Any) -> Any:
            return tree_map_only(Tensor, lambda tensor: edges.get(id(tensor), tensor), value)

        arguments = {name: fresh(value) for name, value in self.arguments.items()}
        for name, value in arguments.items():
            if isinstance(value, BaseData):
                for store in value.stores:
                    store.update({key: changed(entry) for key, entry in store.items()})
            else:
                arguments[name] = edges.get(id(value)) if id(value) in edges else changed(value)
        return replace(self, arguments=arguments)

    def offsets(self, features: Sequence[Tensor]) -> tuple[int, ...] | None:
        """Return where the rows of each edge type's target nodes begin among all features; ``None`` without types."""
        if self.node_types is None or not features:
            return None
        ends = list(accumulate(map(len, features), initial=0))
        starts = dict(zip(self.node_types, ends, strict=False))  # nodes without features are behind all rows
        return tuple(starts.get(edges.key[-1], ends[-1]) for edges in self.edges)

    def copies(self, count: int) -> GraphInputs:
        """Return ``count`` copies of the graph side by side, as PyG would batch them."""
        if count == 1:
            return self
        return replace(self, arguments=side_by_side(self.model, self.arguments, self.edges, count))

    def check_finite(self, **others: Tensor) -> None:
        """Raise ValueError if an argument, a parameter or buffer, or one of ``others`` has infinite or nan entries."""
        own = (*self.model.named_parameters(), *self.model.named_buffers())
        places = [*others.items(), *((f"'{name}'", tensor) for (name, *_), tensor in tensors_of(self.arguments))]
        places += [(f"the model's '{name}'", tensor) for name, tensor in own]
        places = [(name, tensor.values() if is_adjacency(tensor) else tensor) for name, tensor in places]
        if wrong := dict.fromkeys(name for name, tensor in places if not tensor.isfinite().all()):
            raise ValueError(f"Expected finite numbers (got infinite or nan entries in {', '.join(wrong)}).")


def fresh(value: Any) -> Any:
    """Return an argument that a model may put other tensors into without changing the original."""
    if isinstance(value, BaseData):
        return copy(value)
    return tree_map_only(Tensor, lambda tensor: tensor, value) if isinstance(value, dict | list | tuple) else value


def selected(output: Any, selector: Selector) -> Any:
    """Return the part of a model's output that is explained."""
    if selector is None or callable(selector):
        return output if selector is None else selector(output)
    part = output
    for step in selector if isinstance(selector, tuple) else (selector,):
        try:
            part = getattr(part, step) if isinstance(step, str) and hasattr(part, step) else part[step]
        except (LookupError, TypeError) as error:
            raise ValueError(
                f"Expected output={selector!r} to be a part of the model's output ({_parts(output)})."
            ) from error
    return part


def tensor_output(output: Any) -> Tensor:
    """Return the model's output if it is one tensor of numbers, else raise ValueError."""
    if not isinstance(output, Tensor) or not output.is_floating_point():
        raise ValueError(
            f"Expected a model that returns one floating point tensor ({_parts(output)}). Choose a part of its output "
            f"with output=: a position, a key, or a function of the output."
        )
    return output


def _parts(output: Any) -> str:
    """Return what a model's output consists of, for messages."""

    def kind(part: Any) -> str:
        return f"{part.dtype} {list(part.shape)}" if isinstance(part, Tensor) else type(part).__name__

    if isinstance(output, list | tuple):
        parts = dict(enumerate(output))
    elif isinstance(output, dict):
        parts = output
    else:
        parts = {} if isinstance(output, Tensor) else getattr(output, "__dict__", {})
    return f"got {kind(output)}" + "".join(f", {key!r}: {kind(part)}" for key, part in parts.items())
