"""Follow the calls that touch edges, and let everything else in a model run at full speed.

A model that was followed once gets its edges as :class:`EdgeTensor`, which torch asks about every call with one. So are
all results that are made of edges, until a mask has entered. The calls are compared with those of the followed pass,
and other ones mean that the model is followed again. Inside of torch_geometric's own layers, which do nothing with
edges but passing messages, only the edges themselves are followed, and `propagate` gets ordinary tensors.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import count
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing

from captum_goat.tracking.program import (
    GivenRows,
    GivenTensor,
    Program,
    ProgramRecorder,
    ProgramRun,
    kind_of,
    leaves_of,
)
from captum_goat.tracking.row_graph import Edges
from captum_goat.tracking.row_tracker import RowTracker

# Functions that return properties of a tensor, not its values. Models call them more often than others.
_METHODS = "dim size numel nelement stride is_floating_point is_complex is_contiguous element_size"
_PROPERTIES = "shape dtype device layout ndim _version requires_grad is_cuda is_sparse is_quantized is_leaf itemsize"
QUESTIONS: frozenset[Any] = frozenset(
    [getattr(Tensor, name) for name in _METHODS.split()]
    + [getattr(Tensor, name).__get__ for name in _PROPERTIES.split()]
)

# Methods of layers that must be torch_geometric's, and hooks that a layer must not have.
_OWN = ("forward", "propagate", "message", "message_and_aggregate", "aggregate", "update", "edge_update")
_HOOKS = [f"_{name}_forward{when}_hooks" for name in _OWN[1:5] for when in ("_pre", "")]
_HOOKS += [
    "_forward_pre_hooks",
    "_forward_hooks",
    "_edge_update_forward_pre_hooks",
    "_edge_update_forward_hooks",
    *_OWN,
]

current = threading.local()  # its `run` is that of the thread
_FAR = 1 << 32
_first_numbers = count(_FAR, _FAR)  # tensors that are left of one pass have no number of another one


class EdgeTensor(Tensor):
    """Edges, or values made of them, in a pass that an :class:`EdgeRun` compares; an ordinary tensor after that."""

    origin = 0  # the number of the result that it is, or of the argument of the model

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Make a call, as one of the program if there is one."""
        with torch._C.DisableTorchFunctionSubclass():
            run = None if func in QUESTIONS else getattr(current, "run", None)
            if run is None:
                return func(*args, **kwargs) if kwargs else func(*args)
            return run.call(func, args, kwargs or {})


class EdgeRecorder(ProgramRecorder):
    """Notes the calls that touch edges, or what is made of them."""

    def __init__(self, arguments: Sequence[Tensor], tracker: RowTracker) -> None:
        super().__init__(arguments, tracker)
        self._num_arguments = len(arguments)
        self.trusts = False  # whether the layer that runs is one of torch_geometric
        self._hidden = 0  # the depth of nested `propagate` calls that get ordinary tensors
        self._trusted: list[bool] = []  # for every step

    def note(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Note a call that begins."""
        tensors = [leaf for leaf in leaves_of(args, kwargs) if isinstance(leaf, Tensor) and self._touches(leaf)]
        known = [tensor for tensor in tensors if self._origins.get(tensor) is not None]
        self._usable &= self.trusts or len(known) == len(tensors)
        if known and not self._hidden:
            self._trusted.append(self.trusts)
            super().note(function, args, kwargs)

    def _touches(self, tensor: Tensor) -> bool:
        return kind_of(self._tracker.get(tensor)) is not None

    def _summary(self, value: Any) -> Any:
        """Return what must be equal in another pass: of tensors that are not made of edges dtypes and sizes only."""
        summary = super()._summary(value)
        if not isinstance(value, Tensor):
            return summary
        return summary._replace(origin=summary.origin if self._touches(value) else None, held=None, values=None)

    def begin_propagate(self, layer: MessagePassing, inputs: tuple[Any, ...]) -> None:
        """See that a layer passes messages."""
        self.note(layer, (layer.explain is not False, inputs[0], *inputs[2].values()), {})
        self.made(())
        self._hidden += self.trusts

    def end_propagate(self) -> None:
        """See that it has done so."""
        self._hidden -= self.trusts

    def program(self, left_out: int | None = None, tape: Any = None) -> Program | None:
        """Return the calls with tensors that are followed; ``None`` if they are not all that touch edges."""
        program = super().program()
        if program is None:
            return None
        steps, numbers, number = list[Any](), list[int](), 1
        followed: dict[int | None, Any] = dict.fromkeys(range(-self._num_arguments, 0), True)
        for step, trusted in zip(program.steps, self._trusted, strict=True):
            given = {place: value for place, value in enumerate(step.arguments) if isinstance(value, GivenTensor)}
            others = {place: value for place, value in given.items() if not followed.get(value.origin)}
            if not trusted and any(value.origin is not None for value in others.values()):
                return None
            kinds: tuple[Any, ...] = (None,) * len(step.kinds)
            if len(others) < len(given):
                kinds = tuple(kind if kind is Edges or not trusted else None for kind in step.kinds)
                free = {place: value._replace(origin=None) for place, value in others.items()}
                arguments = [free.get(place, value) for place, value in enumerate(step.arguments)]
                steps.append(step._replace(arguments=arguments, kinds=kinds))
                numbers.append(number)
            followed |= enumerate(kinds, number)
            number += len(kinds)
        return Program(steps, None, numbers)


class EdgeRun(ProgramRun):
    """Compares the calls that touch edges, which are :class:`EdgeTensor` among the ``arguments``, with a program."""

    def __init__(self, program: Program, arguments: Sequence[Tensor], tracker: GivenRows) -> None:
        super().__init__(program, (), tracker)
        self.trusts = False  # whether the layer that runs is one of torch_geometric
        self._first = first = next(_first_numbers)
        self._number_of = lambda value: value.origin - first if value.__class__ is EdgeTensor else None
        for place, argument in enumerate(arguments):
            if isinstance(argument, EdgeTensor):
                argument.origin = self._first - 1 - place

    def call(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Make a call; those of its results that are to be followed are of :class:`EdgeTensor`."""
        self.note(function, args, kwargs)
        result = function(*args, **kwargs)
        step, number = self._steps[self._number - 1], self._program.numbers[self._number - 1]
        results: list[Any] = [result] if isinstance(result, Tensor) else list(result) if any(step.kinds) else []
        if len(results) != len(step.kinds) and any(step.kinds):
            self.fail("other results")
        for place, kind in enumerate(step.kinds):
            if kind is not None:
                if results[place].__class__ is not EdgeTensor:
                    results[place] = results[place].as_subclass(EdgeTensor)
                results[place].origin = self._first + number + place
        if step.tracked:
            self._track(step, result, results)
        if isinstance(result, Tensor):
            return results[0]
        if not any(step.kinds):
            return result
        return iter(results) if function is Tensor.__iter__ else result.__class__(results)

    def made(self, result: Any) -> None:
        """Do nothing: what layers make of edges is masked."""

    def begin_propagate(self, layer: MessagePassing, inputs: tuple[Any, ...]) -> Any:
        """Compare the arguments of a `propagate` call; return them as ordinary tensors if the layer is trusted."""
        self.note(layer, (layer.explain is not False, inputs[0], *inputs[2].values()), {})
        return ordinary(inputs) if self.trusts else None

    def end_propagate(self) -> None:
        """Do nothing."""


def is_trusted(layer: MessagePassing) -> bool:
    """Return whether a layer is known to do nothing with edges but passing messages: one of torch_geometric."""
    kind: Any = type(layer)
    return _is_own(kind) and not any(map(vars(layer).get, _HOOKS))


@cache
def _is_own(kind: Any) -> bool:
    return all(getattr(kind, name).__module__.startswith("torch_geometric.") for name in _OWN)


def ordinary(value: Any) -> Any:
    """Return a value with ordinary tensors."""
    if isinstance(value, EdgeTensor):
        return value.as_subclass(Tensor)
    if isinstance(value, dict):
        return {name: ordinary(entry) for name, entry in value.items()}
    return tuple(map(ordinary, value)) if value.__class__ is tuple else value
