"""Models that make their edges themselves: the edges become an argument of the model, so that they can be masked."""

from __future__ import annotations

import inspect
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from types import ModuleType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn import Module
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves
from torch_geometric.nn import pool
from torch_geometric.nn.models import dimenet

from captum_goat.hooks.interception import unchanged
from captum_goat.inputs.arguments import describe, is_edge_index, signature_of
from captum_goat.inputs.graph_inputs import GraphInputs
from captum_goat.tracking import UnsupportedModelError

# Kernels that return the targets of edges before their sources, and functions that return edges as layers take them.
_KERNELS = [(package, name) for package in ("pyg", "torch_cluster") for name in ("knn", "radius")]
_FUNCTIONS = ("knn_graph", "radius_graph")
_TRIPLETS = dimenet.triplets
# Names of an only argument that is a whole graph.
_GRAPHS = ("data", "batch", "graph", "g", "batch_data", "batched_data")
_lock = threading.RLock()  # one thread at a time replaces functions


class _Maker(NamedTuple):
    """A function that makes edges, and where it is looked up."""

    function: Callable[..., Any]
    places: list[tuple[dict[str, Any], str]]
    turned: bool = False  # whether it returns targets before sources


# The makers of each wrapper: no part of it, or copies of it would copy the modules in which functions are looked up.
_makers: WeakKeyDictionary[Module, list[_Maker]] = WeakKeyDictionary()


class MadeEdges(Module):
    r"""A model that makes edges itself, as a model that is given these edges.

    Point clouds and molecules often have no edges: the model connects near nodes in its forward, by ``knn``,
    ``knn_graph``, ``radius`` or ``radius_graph`` of torch_geometric or torch_cluster. :meth:`edges` returns the edges
    that were made for one graph, or for a batch. The wrapped model takes them as one more argument and uses them where
    the original one would choose its neighbours, so that they have masks and attributions as all other edges. The
    choice of neighbours is frozen, as the winners of a maximum are: masks do not change it.

    The argument is called ``edge_index`` and follows the required arguments of the model's own forward; ``SchNet(z,
    pos, batch=None)`` becomes ``(z, pos, edge_index, batch=None)``. A model that makes edges several times, as one with
    two layers of DynamicEdgeConv, gets ``edge_index_1``, ``edge_index_2``, ... and has a mask for each. So does a model
    that has an ``edge_index`` of its own. If the model's only argument is a graph, the edges are attributes of it.

    Args:
        model: The model.
        num_sets: How many times the model makes edges.
        makers: What else makes edges: functions, operations of ``torch.ops``, modules in the model, or methods of
            modules. They return edges ``[2, E]``, or a tuple or list with edges in it; in the latter case the edges
            must not depend on other edges, because the rest of what they return belongs to them.

    Examples:
        >>> import torch
        >>> from torch_geometric.nn import GraphConv
        >>> from captum_goat import GOAtAttribution, MadeEdges
        >>> def nearest(pos):  # the edge from the nearest other node to each node
        ...     distances = torch.cdist(pos, pos).fill_diagonal_(torch.inf)
        ...     return torch.stack([distances.argmin(dim=1), torch.arange(len(pos))])
        >>> class Cloud(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.conv, self.nearest = GraphConv(1, 1), nearest
        ...
        ...     def forward(self, pos):
        ...         return self.conv(pos, self.nearest(pos))
        >>> model = Cloud().eval()
        >>> made, pos = MadeEdges(model, makers=[nearest]), torch.tensor([[0.0], [1.0], [3.0]])
        >>> (edge_index,) = made.edges(pos)
        >>> edge_index
        tensor([[1, 0, 1],
                [0, 1, 2]])
        >>> attributions = GOAtAttribution(made).attribute(torch.ones(3), (2, 0), (pos, edge_index))
        >>> torch.allclose(attributions, model.conv.lin_rel.weight[0] * torch.tensor([0.0, 0.0, 1.0]))
        True
    """

    __signature__: inspect.Signature

    def __init__(self, model: Module, num_sets: int = 1, makers: Sequence[Callable[..., Any]] = ()) -> None:
        if not isinstance(model, Module):
            raise TypeError(f"Expected a model, torch.nn.Module (got {type(model).__name__}).")
        if num_sets < 1:
            raise ValueError(f"Expected num_sets to be at least 1 (got {num_sets}).")
        super().__init__()
        self.model = getattr(model, "_orig_mod", model)  # the module behind torch.compile
        self.training = self.model.training
        self.makers = list(makers)
        own = list(signature_of(self.model).parameters.values())
        positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        required = [one for one in own if one.kind in positional and one.default is one.empty]
        self._takes_graph = len(required) == 1 and _is_graph(required[0])
        single = num_sets == 1 and all(one.name != "edge_index" for one in own)
        self.names = ["edge_index"] if single else [f"edge_index_{number + 1}" for number in range(num_sets)]
        added = [] if self._takes_graph else [inspect.Parameter(name, positional[1]) for name in self.names]
        self.__signature__ = inspect.Signature([*own[: len(required)], *added, *own[len(required) :]])
        self._mixed = [True] * num_sets  # whether what makes the edges may return more than edges

    def edges(self, *args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
        """Run the model and return the edges that it made, one tensor ``[2, E]`` for each time.

        Args:
            *args: The model's own arguments; a :class:`~torch_geometric.data.Data` may stand for them.
            **kwargs: The model's own keyword arguments.

        Raises:
            UnsupportedModelError: If the model made no edges, or returns something else if it is given them.
            ValueError: If it made edges more or less often than ``num_sets`` times.
        """
        made: list[Tensor] = []
        mixed: list[bool] = []

        def note(maker: _Maker, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
            result = maker.function(*arguments, **options)
            position = _position(result, maker)
            edges: Tensor = result if position is None else result[position]
            mixed.append(position is not None)
            made.append(edges.flip(0) if maker.turned else edges.clone())
            return result

        name, graph = type(self.model).__name__, GraphInputs.of(self.model, args, kwargs)
        with torch.no_grad():
            output = unchanged(self.model, lambda: self._replacing(note, graph))
        if not made:
            raise UnsupportedModelError(
                f"Expected a model that makes edges by knn, knn_graph, radius or radius_graph of torch_geometric or "
                f"torch_cluster (but {name} called none of them). Name the function or module that makes its edges: "
                f"MadeEdges(model, makers=[...])."
            )
        self._check_number(len(made), len(made) == len(self.names))
        self._mixed = mixed
        if self._takes_graph:
            (key, data), *others = graph.arguments.items()
            data = copy(data).update(dict(zip(self.names, made, strict=True)))
            graph = replace(graph, arguments={key: data, **dict(others)})
        with torch.no_grad():
            again = unchanged(self.model, lambda: self._given(made, graph))
        pairs = zip(tree_leaves(output), tree_leaves(again), strict=True)
        if not all(torch.allclose(one, other) for one, other in pairs if isinstance(one, Tensor)):
            raise UnsupportedModelError(
                f"{name} returns something else if it is given the edges that it makes. It may be random, as fps is by "
                f"default (random_start=False), or use the edges of the graph, too: then let its forward take the "
                f"tensors of the graph, and not the graph itself."
            )
        return tuple(made)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model, with the given edges where it would make them."""
        arguments = self.__signature__.bind(*args, **kwargs).arguments
        source = next(iter(arguments.values())) if self._takes_graph else arguments
        edges = [source[name] for name in self.names]
        if not self._takes_graph:
            arguments = {name: value for name, value in arguments.items() if name not in self.names}
        own = inspect.BoundArguments(signature_of(self.model), OrderedDict(arguments))
        return self._given(edges, lambda: self.model(*own.args, **own.kwargs))

    def _given(self, edges: list[Tensor], run: Callable[[], Any]) -> Any:
        """Run the model with edges in place of those that it would make."""
        used = 0

        def give(maker: _Maker, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
            nonlocal used
            used += 1
            self._check_number(used, used <= len(edges))
            given, result, position = edges[used - 1], None, None
            if self._mixed[used - 1]:
                result = maker.function(*arguments, **options)
                position = _position(result, maker)
            if result is None or position is None:
                return given.flip(0) if maker.turned else given
            if not torch.equal(result[position], given):
                raise UnsupportedModelError(
                    f"Expected the edges that '{_name(maker.function)}' makes (got others), because it returns more "
                    f"than edges. Let it return nothing but edges."
                )
            return type(result)(given if number == position else part for number, part in enumerate(result))

        output = self._replacing(give, run)
        self._check_number(used, used == len(edges))
        return output

    def _check_number(self, made: int, as_expected: bool) -> None:
        """Raise ValueError if the model made edges another number of times than expected."""
        if not as_expected:
            raise ValueError(
                f"Expected a model that makes edges {len(self.names)} time(s) (but {type(self.model).__name__} made "
                f"some {made} time(s)). Pass MadeEdges(model, num_sets=...), and a mask for each time."
            )

    def _replacing(
        self, answer: Callable[[_Maker, tuple[Any, ...], dict[str, Any]], Any], run: Callable[[], Any]
    ) -> Any:
        """Run a function, with ``answer`` in place of all that makes edges in this thread."""
        owner, inside = threading.get_ident(), False

        def stand_in(maker: _Maker) -> Callable[..., Any]:
            def replacement(*args: Any, **kwargs: Any) -> Any:
                nonlocal inside
                if inside or threading.get_ident() != owner:
                    return maker.function(*args, **kwargs)
                inside = True
                try:
                    return answer(maker, args, kwargs)
                finally:
                    inside = False

            return replacement

        def triplets(maker: _Maker) -> Callable[..., Any]:
            def replacement(edge_index: Tensor, num_nodes: int) -> tuple[Tensor, ...]:
                """Return the ends of pairs of edges as ends of edges; its kernels would hide that."""
                with torch._C.DisableTorchFunction(), _disable_current_modes():
                    *_, first, second = maker.function(edge_index.as_subclass(Tensor), num_nodes)
                row, col = edge_index
                return col, row, col[second], row[second], row[first], first, second

            return replacement

        with _lock:
            if self not in _makers:
                _makers[self] = _find_makers(self.model, self.makers)
            replaced: list[tuple[dict[str, Any], str, Any]] = []

            def restore() -> None:
                for place, name, before in reversed(replaced):
                    if before is not None:
                        place[name] = before
                    else:
                        place.pop(name, None)

            try:
                try:
                    for maker in _makers[self]:
                        replacement = (triplets if maker.function is _TRIPLETS else stand_in)(maker)
                        for place, name in maker.places:
                            before = place.get(name)  # none, if it is a method; another one, if the user has changed it
                            if before is None or before is maker.function:
                                replaced.append((place, name, before))
                                place[name] = replacement
                    return run()
                finally:
                    restore()
            finally:
                restore()  # again, if that was interrupted


def _find_makers(model: Module, makers: Sequence[Callable[..., Any]]) -> list[_Maker]:
    """Return all that may make edges, with every place where modules look it up."""
    packages = [vars(pool), vars(sys.modules.get("torch_cluster", pool))]
    functions = {id(package[name]): _Maker(package[name], []) for package in packages for name in _FUNCTIONS}
    functions[id(_TRIPLETS)] = _Maker(_TRIPLETS, [])
    kernels = [getattr(getattr(torch.ops, package), name, None) for package, name in _KERNELS]
    functions |= {id(kernel): _Maker(kernel, [], turned=True) for kernel in kernels if kernel is not None}
    methods = []
    for function in makers:
        function = function.forward if isinstance(function, Module) else function
        if inspect.ismethod(function) and isinstance(function.__self__, Module):
            methods.append(_Maker(function, [(vars(function.__self__), function.__name__)]))
        else:
            functions.setdefault(id(function), _Maker(function, []))
    modules = [*sys.modules.values(), *vars(torch.ops).values()]
    places = [vars(module) for module in modules if isinstance(module, ModuleType)]
    for place in (*places, *map(vars, model.modules())):
        for name, value in list(place.items()):
            if id(value) in functions:
                functions[id(value)].places.append((place, name))
    for function in makers:
        if id(function) in functions and not functions[id(function)].places:
            raise ValueError(
                f"Expected functions of modules as makers (got '{_name(function)}', which no module has). Define it "
                f"outside of other functions, or make it an attribute of the model."
            )
    return [*functions.values(), *methods]


def _is_graph(parameter: inspect.Parameter) -> bool:
    """Return whether the only required parameter of a model is a graph."""
    annotation = getattr(parameter.annotation, "__name__", str(parameter.annotation)).split(".")[-1]
    return parameter.name in _GRAPHS or annotation in ("BaseData", "Batch", "Data", "HeteroData")


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", str(function))


def _position(result: Any, maker: _Maker) -> int | None:
    """Return where edges are in the tuple or list that a function has returned; ``None`` if the result is edges."""
    parts = result if isinstance(result, tuple | list) else (result,)
    positions = [number for number, part in enumerate(parts) if is_edge_index(part) and part.size(0) == 2]
    if len(positions) != 1:
        raise UnsupportedModelError(
            f"Expected '{_name(maker.function)}' to return edges of shape [2, num_edges], or a tuple or list with one "
            f"such tensor (got {describe({str(number): part for number, part in enumerate(parts)})})."
        )
    return positions[0] if parts is result else None
