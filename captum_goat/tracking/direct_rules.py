"""Rules for the functions of torch that models call most, so that their operations need not be followed.

A program (:mod:`captum_goat.tracking.program`) uses them when a model runs on another graph. They call the rules of the
operations inside, with the functions' own arguments. Other functions are followed operation by operation: slower.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from captum_goat.tracking.linear import with_constants
from captum_goat.tracking.registry import REFUSED, Call, Operation, Result, aten, by_names, by_rule, operation_of
from captum_goat.tracking.row_graph import Rows

# Called with a call of a function, whose ``operation`` is ``None``.
Direct = Callable[[Call], Result]
DIRECT: dict[Any, Direct] = {}
_direct = by_names(DIRECT)  # decorates the rule of the functions of these names

# The keyword arguments that these rules know. Others might be tensors, or the names of numpy, such as ``axis``.
NAMED = frozenset({"dim", "alpha", "p", "training", "inplace", "dtype", "device", "weight", "bias", "momentum", "eps"})

# Functions whose result has edges of the first argument only: the other arguments select among them.
FIRST_ONLY: frozenset[Any] = frozenset({Tensor.__getitem__, Tensor.index_select, torch.index_select})


@cache
def _operation(packet: Any) -> Operation:
    return operation_of(getattr(packet, packet.overloads()[0]))


def _by_operation(packet: Any, call: Call) -> Result:
    """Apply the rule of an operation to a function with the same arguments."""
    traces = [trace for value in call.args if (trace := call.trace(value)) is not None]
    return by_rule(call._replace(operation=_operation(packet)), traces)


for _packet, _names in {
    aten.index_select: "index_select",
    aten.scatter_add: "scatter_add scatter_add_",
    aten.cat: "cat",
    aten.view: "view view_as reshape flatten",
    aten.expand: "expand expand_as",
    aten.unsqueeze: "unsqueeze",
    aten.unbind: "unbind",
}.items():
    _direct(_names)(partial(_by_operation, _packet))


def _entrywise(packet: Any, call: Call) -> Result:
    """Apply the rule of an operation that works entry by entry; most often only one argument has rows."""
    rows = [trace for value in call.args[:2] if isinstance(trace := call.trace(value), Rows)]
    if len(rows) != 1 or rows[0].ids.dim() != call.out.dim() or len(call.args) != 2 or call.kwargs:
        return _by_operation(packet, call)
    if packet is aten.add:
        return with_constants(rows[0])
    return rows[0] if packet is aten.mul or call.trace(call.args[1]) is None else REFUSED


for _packet, _names in {
    aten.add: "add add_ sub sub_ __add__ __radd__ __iadd__ __sub__ __isub__",
    aten.mul: "mul mul_ __mul__ __rmul__ __imul__",
    aten.div: "div div_ __truediv__ __itruediv__",
}.items():
    _direct(_names)(partial(_entrywise, _packet))


@_direct("new_zeros new_ones new_empty new_full zeros_like ones_like empty_like full_like")
def _factory(_: Call) -> Result:
    return None


@_direct("__iter__")
def _iterate(call: Call) -> Result:
    return _by_operation(aten.unbind, call._replace(func=torch.unbind))


@_direct("__getitem__")
def _getitem(call: Call) -> Result:
    value, index = call.args
    if type(index) is int and index >= 0:
        return _by_operation(aten.select, call._replace(args=(value, 0, index)))
    indices = index if isinstance(index, tuple) else (index,)
    if all(isinstance(part, Tensor) or (isinstance(part, slice) and part == slice(None)) for part in indices):
        tensors = [part if isinstance(part, Tensor) else None for part in indices]
        return _by_operation(aten.index, call._replace(args=(value, tensors)))
    return REFUSED


@_direct("linear")
def _linear(call: Call) -> Result:
    rows = _rows_of_first(call)
    if rows is None or rows.ids.size(-1) != 1:
        return REFUSED
    return rows if call.argument(2, "bias") is None else with_constants(rows)


@_direct("batch_norm")
def _batch_norm(call: Call) -> Result:
    rows = _rows_of_first(call)
    return REFUSED if rows is None or call.argument(5, "training", False) else with_constants(rows)


@_direct("dropout")
def _dropout(call: Call) -> Result:
    rows = _rows_of_first(call)
    return REFUSED if rows is None or call.argument(2, "training", True) else rows


def _rows_of_first(call: Call) -> Rows | None:
    """Return the rows of the first argument; ``None`` if other arguments have traces."""
    others = (*call.args[1:], *call.kwargs.values())
    return None if any(call.trace(value) is not None for value in others) else call.rows(call.args[0])
