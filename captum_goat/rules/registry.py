"""The register of rules, how users add their own, and the recorded calls that rules rewrite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import Module

from captum_goat.rules.operations import Arguments, Keywords, kernel_name
from captum_goat.tracking import Rows, RowTracker, Unmasked, Unsupported, by_hand
from captum_goat.tracking.registry import tensors_in


class Factors(NamedTuple):
    """Numbers of the recorded pass that are frozen in a replay."""

    values: Tensor  # for the gates of a ReLU 1 where it let its input pass, else 0
    rows: Rows
    variable: Tensor  # which of the rows some edge or feature reaches; the others are constants
    gates: bool  # whether they are gates, which are variables; else they are constants
    full: bool = False  # whether it is known that all rows are variable

    def scale(self, t: float) -> Tensor:
        """Return t for every row that is variable and 1 for the others."""
        return torch.ones_like(self.variable, dtype=self.values.dtype).masked_fill_(self.variable, t)


class Chosen(NamedTuple):
    """Indices of the recorded pass that are frozen in a replay."""

    values: Tensor


Kept = Factors | Chosen | None  # what is kept at a call; ``None`` for values that no variable reaches


class RecordedCall(NamedTuple):
    """A call of an operation with a rule while the model is recorded."""

    func: Callable[..., Any]  # a function, or the forward of a module
    args: Arguments
    kwargs: Keywords
    tracker: RowTracker  # knows which rows reach a tensor
    over_edges: bool  # whether the presence of edges entered the last sum before the call
    suspects: list[str]  # where to note what may be the reason if attributions do not add up
    number: int  # the number of the call
    as_value: bool  # whether the result of a root or power is a value, not a factor or divisor of others

    def is_reached(self, *, cuts: bool, unary: bool) -> bool:
        """Return whether variables reach the arguments, in a way that a rule (see :class:`Rule`) can rewrite."""
        traces = [self.tracker.get(argument) for argument in tensors_in((*self.args, *self.kwargs.values()))]
        reached = [trace for trace in traces if isinstance(trace, Rows)]
        structure = any(isinstance(trace, Unmasked) and trace.kind == "structure" for trace in traces)
        if structure and not unary and reached:
            raise by_hand("with a matrix that is made of the edges", self.tracker.place())
        if cuts or not reached:
            return bool(reached)
        broken = any(isinstance(trace, Unsupported) for trace in traces) or any(rows.broken for rows in reached)
        return not broken and (not unary or (len(reached) == 1 and isinstance(traces[0], Rows)))


class Keep(Protocol):
    """Keeps numbers of the recorded pass, and gives them back in every replay.

    A function with a :func:`rule` is given one. To try the function out, anything will do that computes the numbers.

    Examples:
        >>> import torch
        >>> def halved(keep, x):
        ...     return x * keep(lambda: 1 / (2 * torch.ones_like(x)))
        >>> halved(lambda values, **options: values(), torch.tensor([3.0]))
        tensor([1.5000])
    """

    def __call__(
        self,
        values: Callable[[], Tensor],
        *,
        gate: bool = False,
        reads: Callable[[], Tensor] | None = None,
        index: bool = False,
    ) -> Tensor:
        """Return frozen numbers, by which something must be multiplied, or an index.

        Args:
            values: Computes them; not called in replays.
            gate: Whether they are gates, else constants.
            reads: Computes a tensor that broadcasts to the values and depends on the same inputs, where that is cheaper
                to follow; ``None`` to follow ``values``.
            index: Whether they are an index, and no factors.
        """


# Called with a Keep, the operation, its arguments and its keyword arguments; returns the result.
Rewrite = Callable[[Keep, Callable[..., Any], Arguments, Keywords], Any]


class Rule(NamedTuple):
    """How an operation is replayed.

    Attributes:
        rewrite: Called with a :class:`Keep`, the operation and its arguments; returns its result. ``None`` leaves the
            operation as it is.
        squashes: Whether the operation is left out where it is the very last step of a model.
        cuts: Whether the result is a constant, so that the arguments need not be polynomials.
        unary: Whether only the first argument may depend on variables.
        when: Called with the operation and its arguments; returns whether the call is to be rewritten. ``None`` for
            every call.
        is_relu: Whether the rule keeps gates that are 1 where the input is positive, else 0, and nothing else. Replays
            then need not compute anything to apply them.

    Examples:
        >>> from captum_goat.rules import Rule
        >>> Rule(rewrite=None, squashes=True)  # stays as it is, but is left out where it is the last step
        Rule(rewrite=None, squashes=True, cuts=False, unary=False, when=None, is_relu=False)
    """

    rewrite: Rewrite | None
    squashes: bool = False
    cuts: bool = False
    unary: bool = False
    when: Callable[[Callable[..., Any], Arguments, Keywords], bool] | None = None
    is_relu: bool = False

    def rewrite_for(self, call: RecordedCall) -> Rewrite | None:
        """Return what rewrites a call of the recorded pass, and of replays; ``None`` to leave it as it is."""
        if self.rewrite is None or (self.when is not None and not self.when(call.func, call.args, call.kwargs)):
            return None
        return self.rewrite if call.is_reached(cuts=self.cuts, unary=self.unary) else None

    def settle(self, call: RecordedCall, out: Any, kept: list[Kept]) -> list[Kept]:
        """Say more of the result of a recorded call, if there is more to say, and return what was kept at it."""
        return kept


class FrozenCall(NamedTuple):
    """One call of an operation with a rule, at which numbers were kept."""

    operation: str
    rule: Rule
    rewrite: Rewrite  # what the rule has chosen to rewrite the call
    kept: tuple[Kept, ...]  # in the order in which the rule asks for them


_RULES: dict[Any, Rule] = {}
KERNELS: dict[str, Rule] = {}  # of packages that need not be installed
_changes = 0


def version() -> int:
    """Return a number that changes with every change of the register."""
    return _changes


def register(operations: tuple[Any, ...], new: Rule) -> None:
    """Give operations a rule, in place of the one that they may have."""
    global _changes
    _changes += 1
    for operation in operations:
        if not callable(operation):
            raise TypeError(f"Expected a function of torch or a class of modules (got {operation!r}).")
        if isinstance(operation, Module):
            raise TypeError(f"Expected the class of a module (got a {type(operation).__name__} itself).")
        _RULES[operation] = new


def find(operation: Any) -> Rule | None:
    """Return the rule of a function or of a class of modules; that of a package's kernel by its name, too."""
    known = _RULES.get(operation)
    return known if known is not None or (name := kernel_name(operation)) is None else KERNELS.get(name)


def forget(*operations: Any) -> None:
    """Take the rules of operations away.

    Args:
        *operations: Classes of modules, or functions of torch. Those without a rule are passed over.

    Examples:
        >>> import torch
        >>> from captum_goat import rules
        >>> class Snake(torch.nn.Module):
        ...     def forward(self, x):
        ...         return x + torch.sin(x) ** 2
        >>> rules.gate(Snake)
        >>> rules.forget(Snake)  # its models are refused again
    """
    global _changes
    _changes += 1
    for operation in operations:
        _RULES.pop(operation, None)


def rule(*operations: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function ``(keep, *arguments)`` that rewrites an operation; a module is its own first argument.

    Args:
        *operations: Classes of modules, or functions of torch.

    Returns:
        A decorator, which leaves the function as it is.

    Examples:
        >>> import torch
        >>> from captum_goat import rules
        >>> class Squared(torch.nn.Module):
        ...     def forward(self, x):
        ...         return x * x.abs()
        >>> @rules.rule(Squared)
        ... def squared(keep, module, x):
        ...     return x * keep(lambda: x.abs(), gate=True)
        >>> rules.forget(Squared)
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        def rewrite(keep: Keep, func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> Any:
            owner = getattr(func, "__self__", None)
            return function(keep, *((owner,) if isinstance(owner, Module) else ()), *args, **kwargs)

        register(operations, Rule(rewrite))
        return function

    return decorate
