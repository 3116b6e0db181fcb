"""A call of the recorded pass as its rule sees it, and the numbers that are frozen at it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from captum_goat.rules.operations import Arguments, Keywords
from captum_goat.tracking import Rows, RowTracker, Unmasked, Unsupported, by_hand
from captum_goat.tracking.registry import tensors_in


class Factors(NamedTuple):
    """Numbers of the recorded pass that are frozen in a replay."""

    values: Tensor  # for the gates of a ReLU 1 where it let its input pass, else 0
    rows: Rows
    variable: Tensor  # which of the rows some edge or feature reaches; the others are constants
    gates: bool  # whether they are gates, which are variables; else they are constants

    @property
    def everywhere(self) -> bool:
        """Whether it is known that all rows are variable."""
        return self.rows.frozen < 0

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
