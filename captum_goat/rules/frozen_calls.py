"""The calls at which numbers were frozen, and the return of these numbers when the calls come again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from torch import Tensor

from captum_goat.rules.activations import relu_as
from captum_goat.rules.operations import Arguments, Keywords, input_of
from captum_goat.rules.recorded_calls import Chosen, Factors, Kept
from captum_goat.rules.registry import Rewrite, Rule
from captum_goat.tracking import UnsupportedModelError


class FrozenCall(NamedTuple):
    """One call of an operation with a rule, at which numbers were kept."""

    operation: str
    rule: Rule
    rewrite: Rewrite  # what the rule has chosen to rewrite the call
    kept: tuple[Kept, ...]  # in the order in which the rule asks for them


# Called with numbers of the recorded pass (``None``: constants) and what computes them anew.
OnKeep = Callable[[Factors | None, Callable[[], Tensor]], Tensor]
# Called with the gates of a ReLU and its input; returns its result.
OnGate = Callable[[Factors, Tensor], Tensor]


class ReplayedCalls:
    """The calls of operations with a rule, as they come again."""

    def __init__(self, calls: list[FrozenCall | None], left_out: int | None, keep: OnKeep, gate: OnGate | None) -> None:
        self._calls = calls
        self._left_out = left_out
        self._keep = keep
        self._gate = gate
        self._number = -1

    def on_call(self, rule: Rule, func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> Any:
        """Do what the rule of an operation says, with what was kept at the same call of the recorded pass."""
        self._number += 1
        if self._number >= len(self._calls):
            raise changed_steps("more operations")
        call = self._calls[self._number]
        if call is not None and rule is not call.rule:
            raise changed_steps("other operations")
        return self.replay(self._number, func, args, kwargs)

    def replay(self, number: int, func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> Any:
        """Do the same for the call of a number."""
        if number == self._left_out:
            return input_of(args, kwargs).clone()  # which may still be written to
        call = self._calls[number]
        if call is None:
            return func(*args, **kwargs)
        if call.rule.is_relu and self._gate is not None and isinstance(gates := call.kept[0], Factors):
            return relu_as(partial(self._gate, gates), func, args, kwargs)
        kept = iter(call.kept)

        def keep(values: Callable[[], Tensor], **_: Any) -> Tensor:
            known = next(kept)
            return known.values if isinstance(known, Chosen) else self._keep(known, values)

        return call.rewrite(keep, func, args, kwargs)

    def check_done(self) -> None:
        """Raise UnsupportedModelError if the pass has ended too soon."""
        if self._number + 1 != len(self._calls):
            raise changed_steps("fewer operations")


def changed_steps(what: str) -> UnsupportedModelError:
    """Return the error for a model that does something else than when it was recorded."""
    return UnsupportedModelError(
        f"The model computed {what} when it was run again than when it was recorded. GOAt needs a model that does the "
        f"same operations in every call, whatever the values of its edges and of earlier calls."
    )
