"""The steps of a forward pass, to tell whether another one takes the same.

Which rows read which is decided by the operations of a pass, their whole numbers and their indices, not by the values
of floating point tensors. So a pass with the same steps has the rows of the first one, and needs not be followed again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import is_
from typing import Any, NamedTuple

import torch
from torch import Tensor

# Called with every function of torch that a model calls, and its arguments.
OnStep = Callable[[Callable[..., Any], tuple[Any, ...], Mapping[str, Any]], None]


class OtherStepsError(Exception):
    """A pass does not take the steps of the one before."""


class _Step(NamedTuple):
    function: Callable[..., Any]
    arguments: list[Any]
    flat: bool  # whether no argument has others inside


class Steps:
    """The steps of one pass."""

    def __init__(self) -> None:
        self._steps: list[_Step] = []
        self._versions: list[tuple[Tensor, int]] = []

    def note(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Add a step."""
        leaves = _leaves(args, kwargs)
        arguments = [_summary(each) for each in leaves]
        flat = len(leaves) == len(args) and all(map(is_, leaves, args))
        self._steps.append(_Step(function, arguments, flat))
        self._versions += [(each, each._version) for each in arguments if isinstance(each, Tensor)]

    @property
    def settled(self) -> bool:
        """Whether no index that was noted has been written to since."""
        return all(each._version == version for each, version in self._versions)

    def again(self) -> Comparison:
        """Return what compares the steps of another pass with these."""
        return Comparison(self._steps)


class Comparison:
    """Compares the steps of a pass with those of an earlier one.

    Call it with every step. Indices are compared at the end, all together.
    """

    def __init__(self, steps: list[_Step]) -> None:
        self._remaining = iter(steps)
        self._indices: list[tuple[Tensor, Tensor, int]] = []

    def __call__(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
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
            if known is value:
                continue
            if isinstance(value, Tensor) and isinstance(known, Tensor) and not value.is_floating_point():
                self._indices.append((known, value, value._version))
            elif not _same(known, value):
                raise OtherStepsError

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
            found += _leaves(each, {})
        elif isinstance(each, slice):
            found += _leaves((each.start, each.stop, each.step), {})
        else:
            found.append(each)
    return found


def _summary(value: Any) -> Any:
    """Return what must be the same in another pass: indices and masks, the sizes of other tensors, and the rest."""
    if isinstance(value, Tensor):
        return value.shape if value.is_floating_point() else value
    return value if isinstance(value, str | int | float | type(None) | torch.dtype | torch.device) else type(value)


def _same(known: Any, value: Any) -> bool:
    summary = _summary(value)
    return type(known) is type(summary) and bool(known == summary)
