"""The numbers that are frozen in a replay, call by call, and giving them back as the calls come again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from captum_goat.rules.call_arguments import input_of
from captum_goat.rules.registry import Rule
from captum_goat.rules.standard import frozen_size, relu, relu_as
from captum_goat.tracking import Rows, UnsupportedModelError


class Factors(NamedTuple):
    """Numbers of the recorded pass that are frozen in a replay.

    Attributes:
        values: The numbers; for the gates of a ReLU 1 where it let its input pass, else 0.
        rows: Their rows.
        variable: Which of the rows some edge or feature reaches; the others are constants.
        gates: Whether they are gates, which are variables; else they are constants.
    """

    values: Tensor
    rows: Rows
    variable: Tensor
    gates: bool

    @property
    def everywhere(self) -> bool:
        """Whether it is known that all rows are variable."""
        return self.rows.frozen < 0

    def scale(self, t: float) -> Tensor:
        """Return t for every row that is variable and 1 for the others."""
        return torch.ones_like(self.variable, dtype=self.values.dtype).masked_fill_(self.variable, t)


class KeptCall(NamedTuple):
    """One call of an operation with a rule, at which numbers were kept.

    Attributes:
        operation: Its name.
        kept: The numbers, in the order in which the rule asks for them; ``None`` for those that no variable reaches.
        position: For multiplications and divisions the argument that is frozen.
    """

    operation: str
    kept: tuple[Factors | None, ...]
    position: int | None


# Called with numbers of the recorded pass (``None``: constants) and what computes them anew.
OnKeep = Callable[[Factors | None, Callable[[], Tensor]], Tensor]
# Called with the gates of a ReLU and its input; returns its result.
OnGate = Callable[[Factors, Tensor], Tensor]


class KeptCalls:
    """The calls of operations with a rule, as they come again."""

    def __init__(self, calls: list[KeptCall | None], left_out: int | None, keep: OnKeep, gate: OnGate | None) -> None:
        self._calls = calls
        self._left_out = left_out
        self._keep = keep
        self._gate = gate
        self._number = -1

    def on_call(self, rule: Rule, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Do what the rule of an operation says, with what was kept at the same call of the recorded pass."""
        self._number += 1
        if self._number >= len(self._calls):
            raise changed_steps("more operations")
        if self._number == self._left_out:
            return input_of(args, kwargs).clone()  # which may still be written to
        call = self._calls[self._number]
        if call is None:
            return func(*args, **kwargs)
        kept = iter(call.kept)

        def keep(values: Callable[[], Tensor], **_: Any) -> Tensor:
            return self._keep(next(kept), values)

        if call.position is not None:
            return frozen_size(keep, func, args, kwargs, call.position)
        if rule.rewrite is None:
            raise changed_steps("other operations")
        if rule.rewrite is relu and self._gate is not None and (known := call.kept[0]) is not None:
            return relu_as(partial(self._gate, known), func, args, kwargs)
        return rule.rewrite(keep, func, args, kwargs)

    def check_done(self) -> None:
        """Refuse a pass that has ended too soon."""
        if self._number + 1 != len(self._calls):
            raise changed_steps("fewer operations")


def changed_steps(what: str) -> UnsupportedModelError:
    """Return the error for a model that does something else than when it was recorded."""
    return UnsupportedModelError(
        f"The model computed {what} when it was run again than when it was recorded. GOAt needs a model that takes the "
        f"same steps in every call, whatever the values of its edges and of earlier calls."
    )
