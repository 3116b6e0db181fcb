"""Where the presence of edges enters a model: in every sum over the edges.

A model knows its edges by what it sums up over them: the messages, the degrees by which messages are normalised, the
number of messages in a mean, the denominator of attention. Leaving an edge out leaves its summand out of each. So a
mask that multiplies the summands of every such sum is the edges' presence: with 0 for an edge, the model is what it is
without the edge. There is no code for particular layers; what brings edges together in another way is refused.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from captum_goat.rules.attention import SOFTMAX
from captum_goat.rules.operations import spellings
from captum_goat.tracking import Edges, Rows, RowTracker, Unmasked, UnsupportedModelError

# The arguments of functions that bring values together at places which an index names.
_ARGUMENTS = {
    "scatter_add": ("into", "dim", "index", "source"),
    "index_add": ("into", "dim", "index", "source"),
    "scatter_reduce": ("into", "dim", "index", "source", "reduce"),
    "index_reduce": ("into", "dim", "index", "source", "reduce"),
    "scatter": ("into", "dim", "index", "source", "reduce"),
    "index_copy": ("into", "dim", "index", "source"),
    "index_put": ("into", "index", "source", "accumulate"),
    "__setitem__": ("into", "index", "source"),
    "bincount": ("index",),
}
_OTHER_NAMES = {"input": "into", "src": "source", "value": "source", "values": "source", "indices": "index"}
SUMMING: frozenset[Any] = frozenset({Tensor.__setitem__, *spellings(*_ARGUMENTS)})


class Gathering(NamedTuple):
    """A call that brings values together at places which an index names."""

    # "sum"; "max", which a softmax subtracts; "put", values that replace others; else what presence cannot enter
    kind: str
    into: Any  # where the values go
    index: Any  # the places
    source: Any  # the values
    dim: int  # the dimension along which the places are counted
    call: Callable[[Any], Any]  # makes the call with other values
    arguments: Callable[[Any], tuple[tuple[Any, ...], dict[str, Any]]]  # returns those of the call with other values

    @classmethod
    def of(cls, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Gathering:
        """Read the arguments of one of the functions :data:`SUMMING`."""
        name = func.__name__ if func.__name__ in _ARGUMENTS else func.__name__.removesuffix("_")
        names = _ARGUMENTS[name]
        by_name = {key: _OTHER_NAMES.get(key, key) for key in kwargs}
        given = dict(zip(names, args, strict=False)) | {by_name[key]: value for key, value in kwargs.items()}

        def arguments(source: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
            changed = [source if key == "source" else value for key, value in zip(names, args, strict=False)]
            others = {key: source if by_name[key] == "source" else value for key, value in kwargs.items()}
            return (*changed, *args[len(names) :]), others

        def call(source: Any) -> Any:
            changed, others = arguments(source)
            return func(*changed, **others)

        index = given.get("index")
        index = index[0] if isinstance(index, list | tuple) and len(index) == 1 else index
        values, dim = given.get("source"), given.get("dim", 0)
        return cls(_kind(name, given), given.get("into"), index, values, dim, call, arguments)

    def totals(self, values: Tensor) -> Tensor:
        """Return for each of the values the sum of all that go to the same place."""
        index = self.index
        if index.dim() < values.dim():
            shape = [-1 if d == self.dim % values.dim() else 1 for d in range(values.dim())]
            index = index.view(shape).expand_as(values)
        size = list(values.shape)
        size[self.dim] = self.into.size(self.dim)
        return values.new_zeros(size).scatter_add(self.dim, index, values).gather(self.dim, index)


def _kind(name: str, given: dict[str, Any]) -> str:
    reduce = given.get("reduce")
    if name in ("scatter_add", "index_add") or reduce in ("sum", "add") or given.get("accumulate"):
        return "sum"
    if name in ("index_put", "__setitem__"):
        return "put"
    return "max" if name == "scatter_reduce" and reduce == "amax" and in_softmax() else str(reduce or name)


def in_softmax() -> bool:
    """Return whether torch_geometric's softmax is among the callers."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(12):
        if frame is None or frame.f_code is SOFTMAX:
            return frame is not None
        frame = frame.f_back
    return False


class Presence(NamedTuple):
    r"""One place at which the presence of edges enters.

    Along the path from no edges to the graph, presence grows as :math:`t\,m`, with m the mask. But a weight such as
    1 / degree has no limit where nothing is left to be summed up. So a sum for a normalisation that has no summands but
    edges starts at 1, where PyG's mean does too, or at its own value if that is less: presence grows as
    :math:`m\,(s + t\,(1 - s))`.
    """

    edges: Tensor  # of each summand (-1: none, a constant), shaped to multiply the summands
    dtype: torch.dtype  # of the summands
    linear: bool  # whether it is a sum of messages, else one for a normalisation
    start: Tensor | None = None  # the s of each summand; None for 0

    def factor(self, mask: Tensor, t: float = 1.0) -> Tensor:
        """Return the presence of each summand's edge at t (1 for constants)."""
        padded = torch.cat([mask.to(self.dtype), mask.new_ones(1, dtype=self.dtype)])  # the edge -1 is the last entry
        grown = t if self.start is None else self.start + t * (1 - self.start)
        return torch.where(self.edges < 0, 1.0, padded[self.edges] * grown)

    def along_path(self, gradient: Tensor | None) -> Tensor | None:
        """Return the derivative along the path, but for the mask, given that with respect to the factor."""
        if gradient is None:
            return None
        along = gradient if self.start is None else gradient * (1 - self.start)
        return along.sum_to_size(self.edges.shape)

    def started(self, call: Gathering, mask: Tensor) -> Presence:
        """Return the place with the start of its path, given the mask at its end."""
        if self.linear or call.kind != "sum":
            return self
        source = call.source.detach()
        total = call.totals(source * self.factor(mask.detach()))
        alone = call.totals(source * (self.edges < 0)) == 0
        start = torch.where(total > 1, 1 / total, 1.0).where(alone, 0.0)
        return self._replace(start=start) if alone.any() else self


def find_presence(call: Gathering, tracker: RowTracker) -> Presence | None:
    """Return the presence that enters in a call; ``None`` if no edges are brought together."""
    indices = call.index if isinstance(call.index, list | tuple) else [call.index]
    indices = [index for index in indices if isinstance(index, Tensor) and index.dtype != torch.bool]
    traces = [trace for index in indices if isinstance(trace := tracker.get(index), Edges)]
    if not traces or tracker.set_aside:
        return None
    if call.kind not in ("sum", "max", "put"):
        raise unknown(tracker, f"brings edges together by '{call.kind}'")
    source = call.source
    if not isinstance(call.index, Tensor) or not isinstance(source, Tensor) or not source.is_floating_point():
        raise unknown(tracker, "counts edges in integers, or makes a matrix of them")
    shape = list(traces[0].ids.shape)
    if call.index.dim() == 1 and source.dim() > 1:
        shape = [-1 if d == call.dim % source.dim() else 1 for d in range(source.dim())]
    elif call.index.shape != source.shape:
        raise unknown(tracker, "sums up a part of what it has for the edges")
    trace = tracker.get(source)
    marks = trace.marks if isinstance(trace, Rows) else {trace.kind} if isinstance(trace, Unmasked) else set()
    of_messages = call.kind == "sum" and "masked" in marks and not in_softmax()
    return Presence(traces[0].ids.reshape(shape), source.dtype, linear=of_messages)


def unknown(tracker: RowTracker, what: str) -> UnsupportedModelError:
    """Return the error for a model that does something with edges for which their presence has no meaning."""
    return UnsupportedModelError(
        f"{tracker.place()} {what}, so it is not known what it would do without an edge. Use at='message', which masks "
        f"messages and leaves degrees as they are."
    )


def entered(call: Gathering, factor: Tensor) -> Any:
    """Make a call with the presence of edges in it."""
    source = call.source
    if call.kind == "sum":
        summands = source * factor
        if summands.requires_grad:
            # Where nothing is left to be summed up, torch_geometric sets 1 / 0 to 0; its derivative is not a number.
            summands.register_hook(lambda gradient: gradient if gradient is None else gradient.nan_to_num(0.0))
        return call.call(summands)
    if call.kind == "max":
        absent = (factor == 0).expand_as(source)
        others = call.totals((~absent).to(source.dtype)) > 0
        return call.call(source.masked_fill(absent & others, torch.finfo(source.dtype).min))
    return call.call(_replaced(call.into, call.index, source, factor))


def _replaced(into: Tensor, index: Tensor, values: Tensor, presence: Tensor) -> Tensor:
    """Return what is put to each place: a mean of what is there and of the last value for it, weighted by presence."""
    bears_gradient = torch.zeros_like(presence, dtype=torch.bool)
    for number, turn in enumerate(_turns(index)):
        place = index[turn]
        before = into[place]
        into = into.index_put((place,), before + presence[turn] * (values[turn] - before))
        bears_gradient[turn] = number == 0  # once for each place, which all its values will be put to
    result = into[index]
    return result.where(bears_gradient, result.detach())


def _turns(index: Tensor) -> Iterator[Tensor]:
    """Yield positions in an index, first ones first, so that no place comes twice in a turn."""
    order = torch.argsort(index, stable=True)
    while order.numel():
        first = torch.ones_like(order, dtype=torch.bool)
        first[1:] = index[order[1:]] != index[order[:-1]]
        yield order[first]
        order = order[~first]
