"""The steps of a forward pass, to tell whether another one takes the same.

Which rows read which is decided by the operations of a pass, by which results they are given, by integers and by
indices, not by the values of floating point tensors. So a pass with the same steps has the rows of the first one, and
needs not be followed again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from operator import is_
from typing import Any, NamedTuple
from weakref import ref

import torch
from torch import Tensor

from captum_goat.tracking.traces import Traces

# What another pass must have just so. Anything else, such as an array of numpy, may be an index that nobody compares.
_PLAIN = (str, int, float, type, type(None), type(...), torch.dtype, torch.device, torch.layout, torch.memory_format)


class OtherStepsError(Exception):
    """A pass does not take the steps of the one before."""


class Following(ABC):
    """Sees the steps of a pass, and where their arguments come from.

    Args:
        arguments: The tensors that the model is given.
    """

    def __init__(self, arguments: Sequence[Tensor]) -> None:
        self._origins = Traces[int]()  # the number of the result, or of the argument, that a tensor is
        self._count = 0
        for place, each in enumerate(arguments):
            self._origins.set(each, -1 - place)

    @abstractmethod
    def note(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """See a step: a function of torch or a module, and its arguments."""

    def made(self, result: Any) -> None:
        """See what a step returns."""
        if isinstance(result, Tensor):
            self._count += 1
            self._origins.set(result, self._count)
        elif isinstance(result, list | tuple):
            for each in result:
                self.made(each)


class _Floats(NamedTuple):
    """A floating point tensor: where it is from, or if that is nowhere the tensor itself; its size and type."""

    origin: int | None
    held: ref[Tensor] | None
    shape: torch.Size
    dtype: torch.dtype


class _Step(NamedTuple):
    function: Any
    arguments: list[Any]
    flat: bool  # whether no argument has others inside


class Steps(Following):
    """The steps of one pass."""

    def __init__(self, arguments: Sequence[Tensor] = ()) -> None:
        super().__init__(arguments)
        self._steps: list[_Step] = []
        self._versions: list[tuple[Tensor, int]] = []
        self._comparable = True

    def note(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Add a step."""
        leaves = _leaves(args, kwargs)
        arguments = [self._summary(each) for each in leaves]
        self._steps.append(_Step(function, arguments, len(leaves) == len(args) and all(map(is_, leaves, args))))

    def _summary(self, value: Any) -> Any:
        """Return what must be the same in another pass."""
        if not isinstance(value, Tensor):
            self._comparable &= isinstance(value, _PLAIN)
            return value
        origin = self._origins.get(value)
        if value.is_floating_point():
            return _Floats(origin, ref(value) if origin is None else None, value.shape, value.dtype)
        if origin is None:  # somebody holds it, and may write to it later
            return value.clone()
        self._versions.append((value, value._version))
        return value

    @property
    def settled(self) -> bool:
        """Whether steps can be compared with these: no index that was noted has been written to since."""
        return self._comparable and all(each._version == version for each, version in self._versions)

    def own(self) -> Steps:
        """Return the same steps, with copies of all indices: of the arguments, and of what shares their memory."""
        copies: dict[int, Tensor] = {}

        def copied(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            if id(value) not in copies:
                copies[id(value)] = value.clone()
            return copies[id(value)]

        found = Steps()
        found._steps = [step._replace(arguments=[copied(each) for each in step.arguments]) for step in self._steps]
        found._comparable = self.settled
        return found

    def again(self, arguments: Sequence[Tensor] = ()) -> Comparison:
        """Return what compares the steps of another pass with these.

        Args:
            arguments: The tensors that the model is given then.
        """
        return Comparison(self._steps, arguments)


class Comparison(Following):
    """Compares the steps of a pass with those of an earlier one. Indices are compared at the end, all together."""

    def __init__(self, steps: list[_Step], arguments: Sequence[Tensor]) -> None:
        super().__init__(arguments)
        self._remaining = iter(steps)
        self._indices: list[tuple[Tensor, Tensor, int]] = []

    def note(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Compare a step, but for its indices.

        Raises:
            OtherStepsError: If it is not the same.
        """
        step = next(self._remaining, None)
        if step is None or (step.function is not function and step.function != function):
            raise OtherStepsError
        leaves = args if step.flat and not kwargs else _leaves(args, kwargs)
        if len(leaves) != len(step.arguments):
            raise OtherStepsError
        for known, value in zip(step.arguments, leaves, strict=True):
            if not self._same(known, value):
                raise OtherStepsError

    def _same(self, known: Any, value: Any) -> bool:
        if not isinstance(value, Tensor):
            return type(known) is type(value) and bool(known == value)
        origin = self._origins.get(value)
        if type(known) is _Floats:
            same = origin == known.origin and (known.held is None or known.held() is value)
            return same and known.dtype == value.dtype and known.shape == value.shape
        if not isinstance(known, Tensor):
            return False
        self._indices.append((known, value, value._version))
        return True

    def check_done(self) -> None:
        """Compare what is left to compare.

        Raises:
            OtherStepsError: If indices differ, or steps are missing.
        """
        same = all(
            value._version == version and known.dtype == value.dtype and torch.equal(known, value)
            for known, value, version in self._indices
        )
        if not same or next(self._remaining, None) is not None:
            raise OtherStepsError


def _leaves(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    found: list[Any] = []
    for each in (*args, *kwargs.items()) if kwargs else args:
        if isinstance(each, list | tuple):
            found += [type(each), len(each), *_leaves(each, {})]  # x[[0, 1]] is not x[0, 1]
        elif isinstance(each, slice):
            found += [slice, *_leaves((each.start, each.stop, each.step), {})]
        else:
            found.append(each)
    return found
