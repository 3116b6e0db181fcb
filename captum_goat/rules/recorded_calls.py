"""A call of the recorded pass as its rule sees it, and the numbers that are frozen at it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from captum_goat.rules.operations import Arguments, Keywords
from captum_goat.tracking import Rows, RowTracker, Unmasked, Unsupported, by_hand


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


class RecordedCall(NamedTuple):
    """A call of an operation with a rule while the model is recorded.

    Attributes:
        func: The function, or the forward of a module.
        args: Its arguments.
        kwargs: Its keyword arguments.
        tracker: Knows which rows reach a tensor.
        over_edges: Whether the presence of edges entered the last sum before the call.
        suspects: Where to note what may be the reason if attributions do not add up.
    """

    func: Callable[..., Any]
    args: Arguments
    kwargs: Keywords
    tracker: RowTracker
    over_edges: bool
    suspects: list[str]

    def is_reached(self, *, cuts: bool, unary: bool) -> bool:
        """Return whether variables reach the arguments, in a way that a rule can rewrite.

        Args:
            cuts: Whether the arguments need not be polynomials.
            unary: Whether only the first argument may depend on variables.
        """
        traces = [self.tracker.get(argument) for argument in (*self.args, *self.kwargs.values())]
        reached = [trace for trace in traces if isinstance(trace, Rows)]
        structure = any(isinstance(trace, Unmasked) and trace.kind == "structure" for trace in traces)
        if structure and not unary and reached:
            raise by_hand("with a matrix that is made of the edges", self.tracker.place())
        sound = all(rows.broken is None for rows in reached)
        sound = sound and not any(isinstance(trace, Unsupported) for trace in traces)
        if unary:
            sound = sound and len(reached) == 1 and isinstance(traces[0], Rows)
        return bool(reached) and (cuts or sound)
