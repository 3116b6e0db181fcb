"""Follow the rows of every tensor through one forward pass.

Nothing is guessed from shapes: every tensor that the edges can reach carries the ids of its rows, and every
operation moves, merges or makes rows by its rule in :data:`captum_goat.tracking.registry.RULES`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary
from torch_geometric.nn import MessagePassing

from captum_goat.tracking import nonlinear, unseen
from captum_goat.tracking.errors import by_hand, no_rule
from captum_goat.tracking.memory import seen_through, still_edges, written_to
from captum_goat.tracking.operations import Operation, aten, operation_of
from captum_goat.tracking.registry import (
    DEPENDENCE,
    MOVES,
    REFUSED,
    RULES,
    Call,
    Result,
    edges_of_pointwise,
    tensors_in,
)
from captum_goat.tracking.row_graph import NO_ROW, Broken, Edges, RowGraph, Rows, Trace, Unmasked, Unsupported
from captum_goat.tracking.traces import Traces


class RowTracker(TorchDispatchMode):
    """Track edges and rows through every operation while it is entered.

    Args:
        names: The path of each module, for messages.

    Attributes:
        graph: Which rows read which, as far as is known.
        set_aside: The depth of nested ``propagate`` calls of layers with ``explain=False``.
    """

    def __init__(self, names: Mapping[Module, str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.graph = RowGraph()
        self.set_aside = 0
        self.names = names
        self._traces = Traces[Trace]()
        self._squashes = False
        self._squashed: Any = WeakTensorKeyDictionary()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep torch from wrapping every call below, which would take longer than the call."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run ``func`` and give its result the rows that its rule says."""
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        operation = operation_of(func)
        if self._squashes and args and isinstance(args[0], Tensor):
            self._follow_squashed(operation, args[0], out)
        # What is overwritten has no part in the result.
        read = args[1:] if operation.overwrites else args
        traced = []
        for each in tensors_in((*read, *kwargs.values()) if kwargs else read):
            if (trace := self.get(each)) is not None:
                traced.append((each, trace))
        if operation.random and _is_random(func, args, kwargs):
            self._assign(out, Unsupported(operation.packet.__name__, self.place()))
        elif traced:
            call = Call(func, operation, args, kwargs, out, self.graph, self.get)
            self._assign(out, None if operation.factory else self._infer(call, traced))
            if operation.mutable and isinstance(out, Tensor):
                self._spoil(out, operation)
        elif operation.overwrites:
            self._overwrite(out, operation)
        return out

    def set_squashed(self, tensor: Tensor, number: int) -> None:
        """Follow the result of a softmax or sigmoid, the call of this number, to see whether it is the output."""
        self._squashed[tensor] = number
        self._squashes = True

    def squashed(self, tensor: Tensor) -> int | None:
        """Return the number of the softmax or sigmoid of which a tensor is a part, or the whole."""
        number: int | None = self._squashed.get(tensor)
        return number

    def _follow_squashed(self, operation: Operation, value: Tensor, out: Any) -> None:
        if operation.mutable:
            root = value if value._base is None else value._base
            for each in [each for each in self._squashed if each is root or each._base is root]:
                del self._squashed[each]
        elif (number := self.squashed(value)) is not None:
            for each in tensors_in([out]):
                if each.is_floating_point() and (operation.packet in MOVES or operation.packet is aten._to_copy):
                    self._squashed[each] = number

    def _infer(self, call: Call, traced: list[tuple[Tensor, Trace]]) -> Result:
        for _, trace in traced:
            if isinstance(trace, Unsupported):
                return trace
        traces = [trace for _, trace in traced]
        broken = [(each, trace.broken) for each, trace in traced if isinstance(trace, Rows) and trace.broken]
        if not broken:
            return self._by_rule(call, traces)
        read: set[int] = set()

        def trace_of(argument: Any) -> Trace | None:
            read.add(id(argument))
            return self.get(argument)

        result = self._by_rule(call._replace(trace=trace_of), traces)
        for each, reason in broken:
            if id(each) not in read:  # it was an index, say: what the result depends on is not known
                return Unsupported(reason.operation, reason.place)
        return result

    def _by_rule(self, call: Call, traces: list[Trace]) -> Result:
        if self.set_aside:
            return self._by_rule_alone(call, traces)
        watched = call if call.trace == self.get else call._replace(trace=self.get)
        if (what := unseen.misuse(watched, self._layer)) is not None:
            return Unsupported(what, self.place(), by_hand=True)
        if not any(isinstance(trace, Rows) for trace in traces):
            found = unseen.infer(watched, self._layer)
            return self._by_rule_alone(call, traces) if found is unseen.BY_RULE else found
        return unseen.marked(watched, self._by_rule_alone(call, traces), self._layer)

    def _by_rule_alone(self, call: Call, traces: list[Trace]) -> Result:
        only_edges = not any(isinstance(trace, Rows) for trace in traces)
        if only_edges and call.operation.pointwise:
            return edges_of_pointwise(traces, call.out, call.graph)
        rule = RULES.get(call.operation.packet)
        result = REFUSED if rule is None else rule(call)
        if result is REFUSED:
            return None if only_edges else self._broken(call)
        return result

    def _broken(self, call: Call) -> Result:
        """Return what the result of an operation that is not linear depends on."""
        operation = call.operation.packet
        if operation in DEPENDENCE:
            result = DEPENDENCE[operation](call)
        else:
            result = nonlinear.pointwise(call) if call.operation.pointwise else REFUSED
        results = result if isinstance(result, list) else [result]
        if not all(isinstance(each, Rows) for each in results):
            return Unsupported(operation.__name__, self.place())
        scale = nonlinear.is_scale(call)
        found: list[Trace | None] = []
        for each in results:
            assert isinstance(each, Rows)
            reason = each.broken or Broken(operation.__name__, self.place(), scale)
            found.append(each._replace(broken=reason._replace(scale=reason.scale and scale)))
        return found if isinstance(result, list) else found[0]

    def _assign(self, out: Any, result: Result) -> None:
        if isinstance(out, Tensor) and not isinstance(result, list):
            self.set(out, result)
            return
        tensors = tensors_in([out])
        for tensor, trace in zip(tensors, result if isinstance(result, list) else [result] * len(tensors), strict=True):
            self.set(tensor, trace)

    def _spoil(self, view: Tensor, operation: Operation) -> None:
        """Say what became of the tensor behind a view that was written to, and of its other views."""
        base, written = view._base, self.get(view)
        if isinstance(written, Rows | Unsupported):
            self._write(view, written, operation)
        elif base is not None and not still_edges(base, self.get(base), view, written):
            self.set(base, None)

    def _overwrite(self, out: Tensor, operation: Operation) -> None:
        """Say what became of a tensor that constants were written to, and of what is behind it."""
        base, constants = out._base, torch.full([1] * out.dim(), NO_ROW, device=out.device)
        if base is not None and isinstance(self.get(base), Rows | Unsupported):
            self._write(out, Rows(constants, frozenset(), 0, 0), operation)
        elif base is not None:
            self.set(base, None)
        self.set(out, None)

    def _write(self, view: Tensor, written: Rows | Unsupported, operation: Operation) -> None:
        root = view if view._base is None else view._base
        now = written if root is view else written_to(root, self.get(root), view, written)
        spoilt = Unsupported(f"{operation.packet.__name__} into a view of a tensor", self.place())
        for other in self.traced_views():
            if other is not view and other._base is root:
                self.set(other, None if isinstance(now, Rows) and root.is_contiguous() else spoilt)
        self.set(root, now or spoilt)

    def get(self, tensor: Any) -> Trace | None:
        """Return what is known of a tensor; ``None`` when no edge reaches it."""
        if not isinstance(tensor, Tensor):
            return None
        trace = self._traces.get(tensor)
        if trace is None and (base := tensor._base) is not None:  # which may have been written to since
            return seen_through(base, self._traces.get(base), tensor)
        return trace

    def traced_views(self) -> Iterator[Tensor]:
        """Return the views among the tensors of which something is known."""
        return self._traces.views()

    def set(self, tensor: Tensor, trace: Trace | None) -> None:
        """Say what a tensor is made of."""
        self._traces.set(tensor, trace)

    def rows(self, tensor: Tensor) -> Rows | None:
        """Return the rows of a tensor; ``None`` when no edge reaches it.

        Raises:
            UnsupportedModelError: If an operation without a rule had a part in it.
        """
        self.check_by_layers(tensor)
        trace = self.get(tensor)
        reason = trace.broken if isinstance(trace, Rows) else trace
        if isinstance(reason, Unsupported | Broken):
            raise no_rule(reason.operation, reason.place)
        return trace if isinstance(trace, Rows) else None

    def check_by_layers(self, tensor: Tensor) -> None:
        """Raise UnsupportedModelError for what is made of messages that no layer has passed."""
        trace = self.get(tensor)
        if isinstance(trace, Unsupported) and trace.by_hand:
            raise by_hand(trace.operation, trace.place)
        if isinstance(trace, Rows) and unseen.is_summed(trace):
            raise by_hand("a sum over the edges outside of message passing", self.place())
        if isinstance(trace, Unmasked) and trace.kind == unseen.SUMMED:
            raise by_hand(f"{trace.operation} over the edges outside of message passing", self.place())

    def edges(self, edge_index: Tensor) -> Tensor | None:
        """Return the edge of each column of an ``edge_index`` (-1: none); ``None`` when it was not tracked."""
        trace = self.get(edge_index)
        if not isinstance(trace, Edges):
            return None
        source, target = trace.ids.expand(edge_index.shape).unbind()
        return source.where(source == target, -1)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let operations pass unseen."""
        with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
            yield

    def around_propagate(self, step: int, explained: bool) -> None:
        """Note that message passing begins (1) or ends (-1), in a layer that is explained or set aside."""
        if explained:
            self.graph.propagating += step
        else:
            self.set_aside += step

    def place(self) -> str:
        """Return the path of the innermost module of the model that is running."""
        module = self._running()
        return "the model" if module is None else self.name_of(module)

    def name_of(self, module: Module) -> str:
        """Return the path and the class of a module."""
        name, kind = self.names[module], type(module).__name__
        return f"'{name}' ({kind})" if name else f"the model ({kind})"

    def _running(self, kind: type[Module] = Module) -> Module | None:
        frame = sys._getframe().f_back
        while frame is not None:
            module = frame.f_locals.get("self")
            if isinstance(module, kind) and module in self.names:
                return module
            frame = frame.f_back
        return None

    def _layer(self) -> str:
        module = self._running(MessagePassing)
        return "" if module is None else self.name_of(module)


def _is_random(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether a call does draw random numbers; dropout inside of another operation may be switched off."""
    names = [each.name for each in func._schema.arguments]
    given = {each.name: each.default_value for each in func._schema.arguments} | dict(zip(names, args)) | kwargs  # noqa: B905
    return not any(name in given and not given[name] for name in ("dropout_p", "training", "train"))
