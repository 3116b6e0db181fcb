"""Follow the rows of every tensor through one forward pass.

Every tensor that edges reach has ids of rows. Operations change them by :data:`captum_goat.tracking.registry.RULES`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.utils._python_dispatch import TorchDispatchMode
from torch_geometric.nn import MessagePassing

from captum_goat.tracking import unseen
from captum_goat.tracking.edge_values import HandMessages
from captum_goat.tracking.errors import NoPolynomialError, by_hand
from captum_goat.tracking.linear import pointwise
from captum_goat.tracking.registry import DEPENDS, MOVES, REFUSED, Call, Result, aten, by_rule, operation_of, tensors_in
from captum_goat.tracking.row_graph import (
    NO_ROW,
    Broken,
    Edges,
    Pointer,
    RowGraph,
    Rows,
    Trace,
    Traces,
    Unmasked,
    Unsupported,
)


class RowTracker(TorchDispatchMode):
    """Track edges and rows through every operation while it is entered."""

    def __init__(self, model: Module | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.graph = RowGraph()  # which rows read which
        self.set_aside = 0  # the depth of nested `propagate` calls of layers with `explain=False`
        self._model = model  # for the paths of modules in error messages
        self.leaked = False  # whether the model has read a number that depends on edges
        self._traces = Traces[Trace]()
        self.set = self._traces.set  # sets the trace of a tensor; `None` if no edge reaches it
        self.traced_views = self._traces.views  # returns the tensors with a trace that are views
        self.by_hand = HandMessages()  # messages that are passed outside of layers
        self._squashes, self._squashed = False, Traces[int]()
        self.squashed = self._squashed.get  # returns the number of the softmax or sigmoid call that a tensor comes from

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep torch from wrapping every call of the method below: that takes longer than the call."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run ``func`` and set the rows of its result by its rule."""
        kwargs = kwargs or {}
        if torch._C._is_torch_function_mode_enabled():  # TorchScript calls it: what is done here is not the model's
            with torch._C.DisableTorchFunction():
                return self.__torch_dispatch__(func, types, args, kwargs)
        out = func(*args, **kwargs)
        operation = operation_of(func)
        if self._squashes and args and isinstance(args[0], Tensor):
            self._follow_squashed(operation.packet, args[0], out, mutable=operation.mutable)
        read = args[1:] if operation.overwrites else args  # the result does not depend on what is overwritten
        traced = []
        for tensor in tensors_in((*read, *kwargs.values()) if kwargs else read):
            if (trace := self.get(tensor)) is not None:
                traced.append((tensor, trace))
        name = operation.packet.__name__
        if operation.random and _is_random(func, args, kwargs):
            self._assign(out, Unsupported(name, self.place()))
        elif traced:
            if isinstance(out, bool | int | float | complex):
                self.leaked |= any(isinstance(trace, Rows | Unsupported) for _, trace in traced)
            call = Call(func, operation, args, kwargs, out, self.graph, self.get)
            self._assign(out, None if operation.factory else self._infer(call, traced))
            if operation.mutable and isinstance(out, Tensor):
                self._spoil(out, name)
        elif operation.overwrites:
            self._overwrite(out, name)
        return out

    def lose(self, name: str, arguments: tuple[Any, ...], out: Any) -> None:
        """Note that nothing is known of what an operation has made of its arguments, if variables or edges reach these.

        Only the numbers of entries in the rows of a SparseTensor are known to be no messages.
        """
        traces = [trace for tensor in tensors_in(arguments) if (trace := self.get(tensor)) is not None]
        reached, outside = (Rows, Unsupported), not self.set_aside and not self.graph.propagating
        if name.startswith("torch_sparse.ind2ptr") and traces and isinstance(traces[0], Edges):
            self._assign(out, Pointer(traces[0]._replace(ids=traces[0].ids.reshape(-1))))
        elif name.startswith("torch_sparse.ptr2ind") and traces and isinstance(traces[0], Pointer):
            self._assign(out, traces[0].edges)
        elif any(isinstance(trace, reached) for trace in traces):
            before = (trace for trace in traces if isinstance(trace, Unsupported))
            self._assign(out, next(before, Unsupported(name, self.place())))
        elif traces and outside and not any(map(unseen.is_masked, traces)):
            self._assign(out, Unsupported(name, self.place(), by_hand=True))

    def set_squashed(self, tensor: Tensor, number: int) -> None:
        """Follow the result of a softmax or sigmoid, call ``number``, to see whether it is the output."""
        self._squashed.set(tensor, number)
        self._squashes = True

    def _follow_squashed(self, packet: Any, value: Tensor, out: Any, *, mutable: bool) -> None:
        if mutable:
            root = value if value._base is None else value._base
            for tensor in (root, *(view for view in self._squashed.views() if view._base is root)):
                self._squashed.set(tensor, None)
        elif (number := self.squashed(value)) is not None and (packet in MOVES or packet is aten._to_copy):
            for tensor in tensors_in([out]):
                if tensor.is_floating_point():
                    self._squashed.set(tensor, number)

    def _infer(self, call: Call, traced: list[tuple[Tensor, Trace]]) -> Result:
        traces = [trace for _, trace in traced]
        for trace in traces:
            if isinstance(trace, Unsupported):
                return trace
        broken = [(tensor, trace.broken) for tensor, trace in traced if isinstance(trace, Rows) and trace.broken]
        if not broken:
            return self._by_rule(call, call, traces)
        read: set[int] = set()

        def trace_of(argument: Any) -> Trace | None:
            read.add(id(argument))
            return self.get(argument)

        result = self._by_rule(call, call._replace(trace=trace_of), traces)
        for tensor, reason in broken:
            if id(tensor) not in read:  # an index for example, so that it is unknown what the result depends on
                return Unsupported(reason.operation, reason.place)
        return result

    def _by_rule(self, watched: Call, call: Call, traces: list[Trace]) -> Result:
        """Return the traces of results; message passing by hand is looked for in ``watched``, the same call."""
        delivers = not self.set_aside and not self.graph.propagating and unseen.delivers(watched)
        self.graph.propagating += delivers
        try:
            result = self._inferred(watched, call, traces)
            return Unmasked(unseen.DELIVERED, "scatter") if delivers and result is None else result
        finally:
            self.graph.propagating -= delivers

    def _inferred(self, watched: Call, call: Call, traces: list[Trace]) -> Result:
        if not self.set_aside and (what := unseen.misuse(watched, self._layer)) is not None:
            return Unsupported(what, self.place(), by_hand=True)
        if not self.set_aside and not self.graph.propagating and (what := self.by_hand.see(watched)) is not None:
            return Unsupported(what, self.place(), by_hand=True)
        if not self.set_aside and not any(isinstance(trace, Rows) for trace in traces):
            unmasked = unseen.infer(watched, self._layer)
            if unmasked is not unseen.BY_RULE:
                return unmasked
        result = by_rule(call, traces)
        if result is REFUSED:
            result = self._broken(call)
        return result if self.set_aside else unseen.marked(watched, result, self._layer)

    def _broken(self, call: Call) -> Result:
        """Return what the result of a nonlinear operation depends on."""
        packet = call.operation.packet
        rule = DEPENDS.get(packet, pointwise if call.operation.pointwise else None)
        result = REFUSED if rule is None else rule(call)
        results = result if isinstance(result, list) else [result]
        reason = Broken(packet.__name__, self.place())
        broken: list[Trace | None] = [
            rows._replace(broken=rows.broken or reason) for rows in results if isinstance(rows, Rows)
        ]
        if len(broken) != len(results):
            return Unsupported(packet.__name__, self.place())
        return broken if isinstance(result, list) else broken[0]

    def _assign(self, out: Any, result: Result) -> None:
        tensors = [out] if isinstance(out, Tensor) else tensors_in([out])
        results = result if isinstance(result, list) else [result] * len(tensors)
        for tensor, trace in zip(tensors, results, strict=True):
            self.set(tensor, trace)

    def _spoil(self, view: Tensor, operation: str) -> None:
        """Set the traces of the tensor behind a view that was written to, and of its other views."""
        base, written = view._base, self.get(view)
        if isinstance(written, Rows | Unsupported):
            self._write(view, written, operation)
        elif base is not None and not _still_edges(base, self.get(base), view, written):
            self.set(base, None)

    def _overwrite(self, out: Tensor, operation: str) -> None:
        """Set the traces of a tensor to which constants were written, and of the tensor behind it."""
        base = out._base
        if base is not None and isinstance(self.get(base), Rows | Unsupported):
            constants = torch.full([1] * out.dim(), NO_ROW, device=out.device)
            self._write(out, Rows(constants, frozenset(), 0, 0), operation)
        elif base is not None:
            self.set(base, None)
        self.set(out, None)

    def _write(self, view: Tensor, written: Rows | Unsupported, operation: str) -> None:
        root = view if view._base is None else view._base
        now = written if root is view else _written_to(root, self.get(root), view, written)
        spoilt = Unsupported(f"{operation} into a view of a tensor", self.place())
        for other in self.traced_views():
            if other is not view and other._base is root:
                self.set(other, None if isinstance(now, Rows) and root.is_contiguous() else spoilt)
        self.set(root, now or spoilt)

    def get(self, tensor: Any) -> Trace | None:
        """Return the trace of a tensor; ``None`` when no edge reaches it."""
        if not isinstance(tensor, Tensor):
            return None
        trace = self._traces.get(tensor)
        if trace is not None or (base := tensor._base) is None:
            return trace
        behind = self._traces.get(base)  # which may have been written to since the view was made
        if isinstance(behind, Rows) and base.is_contiguous():
            ids = behind.ids.expand(base.shape).contiguous()
            return behind._replace(ids=_without_channels(_ids_of_view(ids, base, tensor)))
        return behind if isinstance(behind, Unsupported) else None

    def rows(self, tensor: Tensor) -> Rows | None:
        """Return the rows of a tensor, if edges reach it.

        Raises:
            UnsupportedModelError: If it depends on an operation without a rule.
        """
        self.check_by_layers(tensor)
        trace = self.get(tensor)
        reason = trace.broken if isinstance(trace, Rows) else trace
        if isinstance(reason, Unsupported | Broken):
            raise NoPolynomialError(reason.operation, reason.place, getattr(reason, "call", None))
        return trace if isinstance(trace, Rows) else None

    def check_by_layers(self, tensor: Tensor) -> None:
        """Raise UnsupportedModelError if a tensor depends on messages that were passed outside of layers.

        Messages may depend on sums in their own layer: on the mean of edge features, say, at the loops that it adds.
        """
        trace = self.get(tensor)
        if self.graph.propagating and unseen.is_summed_in(trace, self._layer()):
            return
        if isinstance(trace, Unsupported) and trace.by_hand:
            raise by_hand(trace.operation, trace.place)
        if isinstance(trace, Rows) and unseen.is_summed(trace):
            raise by_hand("a sum over the edges outside of message passing", self.place())
        if isinstance(trace, Unmasked) and trace.kind == unseen.SUMMED:
            raise by_hand("a sum over the edges outside of message passing", trace.layer or self.place())

    def messages_by_hand(self, source: Any, index: Any, into: Any) -> tuple[Tensor, Tensor, range | None] | None:
        """Return the edges of messages that a scatter outside of layers delivers, and their nodes, if they are some.

        Where messages go to other edges, it is these edges, and all edges of their set.
        """
        if self.set_aside or self.graph.propagating:
            return None
        with self.paused():
            trace = self.get(index)
            found = self.by_hand.found(source, index, trace)
            # An index that is made of edges has the numbers of nodes.
            passed_on = self.by_hand.passed_on(source, index, into) if found is None and trace is None else None
        result = passed_on if found is None else (*found, None)
        return None if result is None or self._layer() else result  # looking for a layer keeps the frames' variables

    def delivers(self, source: Any, index: Any) -> bool:
        """Return whether a scatter outside of layers delivers messages that are masked already."""
        outside = not self.set_aside and not self.graph.propagating
        return outside and unseen.is_masked(self.get(source)) and isinstance(self.get(index), Edges)

    def set_delivered(self, sums: Tensor) -> None:
        """Note that a tensor is what messages that were passed outside of layers have brought together."""
        self.by_hand.set_sum(sums)
        self.mark_delivered(sums)

    def mark_delivered(self, sums: Tensor) -> None:
        """Note the same, but that the messages were declared: they may be anything, also denominators."""
        if self.get(sums) is None:
            self.set(sums, Unmasked(unseen.DELIVERED, "scatter"))

    def edges(self, edge_index: Tensor) -> Tensor | None:
        """Return the edge of each column of an ``edge_index`` (-1: none); ``None`` if that is unknown."""
        trace = self.get(edge_index)
        if not isinstance(trace, Edges):
            return None
        if edge_index.layout != torch.strided or trace.ids.shape == (1, edge_index.size(1)):
            return trace.ids.reshape(-1)
        source, target = trace.ids.expand(edge_index.shape).unbind()
        return source.where(source == target, -1)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Do not see operations."""
        with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
            yield

    def around_propagate(self, step: int, explained: bool) -> None:
        """Note that message passing begins (1) or ends (-1) in a layer, which may have ``explain=False``."""
        self.graph.propagating += step * explained
        self.set_aside += step * (not explained)

    @cached_property
    def names(self) -> dict[Module, str]:
        """The path of each module, for error messages."""
        return {} if self._model is None else {module: name for name, module in self._model.named_modules()}

    def _layer(self) -> str:
        return self._running(MessagePassing)

    def place(self) -> str:
        """Return the path of the innermost module of the model that is running."""
        return self._running() or "the model"

    def _running(self, kind: type[Module] = Module) -> str:
        frame = sys._getframe().f_back
        while frame is not None:
            module = frame.f_locals.get("self")
            if isinstance(module, kind) and module in self.names:
                name = self.names[module]
                return (f"'{name}'" if name else "the model") + f" ({type(module).__name__})"
            frame = frame.f_back
        return ""


def _is_random(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether a call draws random numbers; dropout inside of another operation may be switched off."""
    names = [argument.name for argument in func._schema.arguments]
    defaults = {argument.name: argument.default_value for argument in func._schema.arguments}
    values = defaults | dict(zip(names, args)) | kwargs  # noqa: B905
    return not any(name in values and not values[name] for name in ("dropout_p", "training", "train"))


def _written_to(base: Tensor, before: Trace | None, view: Tensor, written: Rows | Unsupported) -> Trace | None:
    """Return the trace of a tensor after a write to a view of it; ``None`` if it is unknown."""
    if view.shape == base.shape and view.stride() == base.stride():
        return written
    if isinstance(written, Unsupported) or isinstance(before, Edges | Unsupported) or not base.is_contiguous():
        return None
    ids = torch.full(base.shape, NO_ROW, device=base.device)
    if isinstance(before, Rows):
        ids.copy_(before.ids.expand(base.shape))
    _ids_of_view(ids, base, view).copy_(written.ids.expand(view.shape))
    rows = [before, written] if isinstance(before, Rows) else [written]
    return Rows.joined(rows, _without_channels(ids), constants=len(rows) < 2)


def _still_edges(base: Tensor, before: Trace | None, view: Tensor, written: Trace | None) -> bool:
    """Return whether columns belong to the same edges after a write to a view, as where indices are shifted."""
    if not isinstance(before, Edges) or not isinstance(written, Edges) or not base.is_contiguous():
        return not isinstance(before, Edges) and written is None
    ids = before.ids.expand(base.shape).contiguous()
    return torch.equal(_ids_of_view(ids, base, view), written.ids.expand(view.shape))


def _ids_of_view(ids: Tensor, base: Tensor, view: Tensor) -> Tensor:
    return ids.as_strided(view.shape, view.stride(), view.storage_offset() - base.storage_offset())


def _without_channels(ids: Tensor) -> Tensor:
    """Return ids with size one in every dimension along which they do not change."""
    for d, size in enumerate(ids.shape):
        if size > 1 and bool((ids == (first := ids.narrow(d, 0, 1))).all()):
            ids = first
    return ids
