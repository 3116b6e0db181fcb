"""The program of a model: the calls of one followed pass, and what each of them does to rows.

Which rows read which is decided by the calls of a pass, by the results that they are given, by integers and by indices,
never by the values of floating point numbers. So it is enough to follow a model once, operation by operation. On
another graph a :class:`ProgramRun` compares the calls with those of the program, and does to the rows of that graph
what the calls do, which takes nothing but its index tensors. A pass that makes other calls raises
:class:`OtherProgramError`; then the model is followed again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from operator import is_
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar
from weakref import ref

import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing

from captum_goat.tracking.direct_rules import DIRECT, FIRST_ONLY, LIGHT
from captum_goat.tracking.registry import REFUSED, Call, tensors_in
from captum_goat.tracking.row_graph import Edges, Rows, Trace, Unsupported
from captum_goat.tracking.row_tracker import RowTracker
from captum_goat.tracking.traces import Traces

# What other passes must have just so. Anything else, such as an array of numpy, may be an index that nobody compares.
_PLAIN = (str, bool, type, type(None), type(...), torch.dtype, torch.device, torch.layout, torch.memory_format)
# Numbers may differ from graph to graph: what is done to rows is done with those of the graph at hand.
_NUMBERS = (int, float)
_is_replicated: Any = torch._C._functorch.is_batchedtensor
_FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


class OtherProgramError(Exception):
    """A pass makes other calls than the program."""


class Following(ABC):
    """Sees the calls of a pass, and where their arguments come from.

    Args:
        arguments: The tensors that the model is given.
    """

    def __init__(self, arguments: Sequence[Tensor]) -> None:
        self._origins = Traces[int]()  # the number of the result, or of the argument, that a tensor is
        self._count = 0
        for place, argument in enumerate(arguments):
            self._origins.set(argument, -1 - place)

    @abstractmethod
    def note(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """See a call of a function of torch, of a module with a rule, or of a layer with its messages."""

    @abstractmethod
    def made(self, result: Any) -> None:
        """See what the call returns."""

    def enter(self, arguments: Sequence[Any]) -> None:  # noqa: B027
        """See what a message passing layer is given."""

    def _set_origins(self, results: Sequence[Tensor]) -> None:
        for result in results:
            self._count += 1
            self._origins.set(result, self._count)


class _Given(NamedTuple):
    """A tensor among the arguments of a call."""

    origin: int | None  # which result or argument of the model it is; ``None`` if it is from elsewhere
    held: ref[Tensor] | None  # then a floating point tensor must be the same object: a parameter, say
    values: Tensor | None  # and another one must have the same values
    dtype: torch.dtype  # its dtype
    # its sizes, with 2 for all above 1: where there is one entry only, other things happen to rows
    sizes: tuple[int, ...]


class _Step(NamedTuple):
    """One call of a program."""

    function: Any  # what is called
    arguments: list[Any]  # what it is given, see :func:`_leaves`
    flat: bool  # whether no argument has others inside
    watched: bool  # whether edges have to do with an argument or a result, so that sizes matter
    tracked: bool  # whether rows, or edges that are asked for later, are among them
    rewritten: bool  # whether a callback does the call, and says what is known of the results
    light: bool = False  # whether what is done to rows takes hardly any operations
    indexed: bool = False  # whether integers are among the arguments
    kinds: tuple[type[Trace] | None, ...] = ()  # what is known of each result: rows, edges or nothing


class Program(NamedTuple):
    """The calls of a pass, for other passes to be compared with."""

    steps: list[_Step]


class ProgramRecorder(Following):
    """Notes the calls of a pass that is followed.

    Args:
        arguments: The tensors that the model is given.
        tracker: Follows the pass.
    """

    def __init__(self, arguments: Sequence[Tensor], tracker: RowTracker) -> None:
        super().__init__(arguments)
        self._tracker = tracker
        self._steps: list[_Step] = []
        self._made_by: dict[int, int] = {}  # the step that made a result
        self._asked: set[int] = set()  # origins of the edges that layers are given
        self._usable = True
        self._broken: set[int] = set()  # steps whose results are no polynomials
        self._call: list[tuple[Tensor, Trace | None, int]] | None = None  # tensors, and what they are before the call

    def note(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Note a call that begins."""
        self._usable &= self._call is None  # a call inside of a call is not compared
        leaves = _leaves(args, kwargs)
        flat = len(leaves) == len(args) and all(map(is_, leaves, args))
        tensors = [(leaf, self._tracker.get(leaf), leaf._version) for leaf in leaves if isinstance(leaf, Tensor)]
        watched = any(trace is not None for _, trace, _ in tensors)
        tracked = any(isinstance(trace, Rows) for _, trace, _ in tensors)
        arguments = [self._summary(leaf) for leaf in leaves]
        self._steps.append(_Step(function, arguments, flat, watched, tracked, isinstance(function, MessagePassing)))
        self._call = tensors
        if isinstance(function, MessagePassing):
            self.enter(args)

    def rewritten(self) -> None:
        """Note that a callback does the call, and says what is known of the results."""
        self._steps[-1] = self._steps[-1]._replace(rewritten=True)

    @property
    def current(self) -> int:
        """The number of the call that has begun last."""
        return len(self._steps) - 1

    def _summary(self, value: Any) -> Any:
        """Return what must be the same in another pass."""
        if not isinstance(value, Tensor):
            self._usable &= isinstance(value, (*_PLAIN, *_NUMBERS, _Nest))
            return value
        origin, held, values = self._origins.get(value), None, None
        if origin is None:
            held, values = (ref(value), None) if value.is_floating_point() else (None, value.clone())
        return _Given(origin, held, values, value.dtype, _pattern(value))

    def enter(self, arguments: Sequence[Any]) -> None:
        """Note which edges will be asked for."""
        indices = [value for value in arguments if isinstance(value, Tensor) and not value.is_floating_point()]
        self._asked.update(origin for index in indices if (origin := self._origins.get(index)) is not None)

    def made(self, result: Any) -> None:
        """Note what a call has returned, and what is known of it."""
        if self._call is None:  # of a call with others inside
            return
        results, tensors, step = tensors_in([result]), self._call, self._steps[-1]
        traces = [self._tracker.get(tensor) for tensor in results]
        if any(isinstance(trace, Unsupported) or (isinstance(trace, Rows) and trace.broken) for trace in traces):
            self._broken.add(len(self._steps) - 1)
        kinds = tuple(map(_kind, traces))
        watched = step.watched or any(trace is not None for trace in traces)
        self._steps[-1] = step._replace(watched=watched, tracked=step.tracked or Rows in kinds, kinds=kinds)
        for tensor, trace, version in tensors:
            if tensor._version != version:
                self._usable &= self._is_rewritten_whole(tensor, trace, results)
        self._set_origins(results)
        for number in range(self._count - len(results), self._count):
            self._made_by[number + 1] = len(self._steps) - 1
        self._call = None

    def _is_rewritten_whole(self, tensor: Tensor, before: Trace | None, results: list[Tensor]) -> bool:
        """Return whether nothing but the result is known to have changed when a tensor was written to."""
        after = self._tracker.get(tensor)
        if before is None and after is None:
            return True
        if not results or results[0] is not tensor or tensor._base is not None or not tensor.is_floating_point():
            return False
        return not any(view._base is tensor for view in self._tracker.traced_views())

    def program(self, left_out: int | None = None) -> Program | None:
        """Return the program; ``None`` if other passes cannot be compared with this one.

        Args:
            left_out: The number of a call that a callback will leave out, so that its result is its argument.
        """
        if not self._usable or self._tracker.graph.by_values or self._broken - {left_out}:
            return None
        steps, waiting, seen = list(self._steps), [*self._asked], set[int]()
        if left_out is not None:
            steps[left_out] = steps[left_out]._replace(rewritten=True, tracked=True, kinds=(Rows,))
        while waiting:
            number = self._made_by.get(waiting.pop())
            if number is None or number in seen or not steps[number].watched:
                continue
            seen.add(number)
            steps[number] = step = steps[number]._replace(tracked=True)
            indices = [given for given in step.arguments if isinstance(given, _Given) and given.dtype not in _FLOATS]
            read = indices[:1] if step.function in FIRST_ONLY else indices
            waiting += [given.origin for given in read if given.origin is not None]
        for number, step in enumerate(steps):
            if number not in seen:  # nobody will ask for its edges
                kinds = tuple(kind if kind is Rows else None for kind in step.kinds)
                tracked = step.tracked and (Rows in kinds or step.function not in DIRECT)
                light = step.rewritten or step.function in LIGHT
                step = step._replace(kinds=kinds, tracked=tracked, light=light)
            indexed = any(isinstance(given, _Given) and given.dtype not in _FLOATS for given in step.arguments)
            steps[number] = step._replace(indexed=indexed)
        return Program(steps)


class GivenRows(RowTracker):
    """What is known of the tensors of a pass that is not followed."""

    def get(self, tensor: Any) -> Trace | None:
        """Return what was said of a tensor."""
        return self._traces.get(tensor) if isinstance(tensor, Tensor) else None


def at_once(action: Callable[[], Any]) -> Any:
    """Call a function, where there are no replicas."""
    return action()


class ProgramRun(Following):
    """Compares the calls of a pass with a program, and does to rows what they do.

    Args:
        program: The program.
        arguments: The tensors that the model is given.
        tracker: Is told the rows of every tensor.
        apart: Calls a function where tensors are what they are, not replicas.
    """

    def __init__(
        self,
        program: Program,
        arguments: Sequence[Tensor],
        tracker: GivenRows,
        apart: Callable[[Callable[[], Any]], Any] = at_once,
    ) -> None:
        super().__init__(arguments)
        self._steps = program.steps
        self._tracker = tracker
        self._apart = apart
        self._follower = RowTracker({})
        self._follower.set_aside = 1  # what is done by hand was looked for when the program was recorded
        self._number = 0
        self._failed = False
        self._args: tuple[Sequence[Any], Mapping[str, Any]] = (), {}

    def fail(self, reason: str = "") -> NoReturn:
        """Raise OtherProgramError, now and at the end: the model may catch it."""
        self._failed = True
        function = getattr(self._steps[self._number - 1].function, "__name__", "") if self._number else ""
        raise OtherProgramError(f"call {self._number} ({function}): {reason}")

    def note(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Compare a call that begins.

        Raises:
            OtherProgramError: If it is not the one of the program.
        """
        if self._number == len(self._steps) or self._failed:
            self.fail("one call more")
        step = self._steps[self._number]
        self._number += 1
        if step.function is not function and step.function != function:
            self.fail(f"another function, {getattr(function, '__name__', function)}")
        leaves = args if step.flat and not kwargs else _leaves(args, kwargs)
        if len(leaves) != len(step.arguments):
            self.fail("more or fewer arguments")
        origin_of = self._origins.get
        for known, value in zip(step.arguments, leaves):  # noqa: B905
            if known.__class__ is _Given:
                origin = origin_of(value)
                if origin != known.origin or (origin is None and not _is_held(known, value)):
                    self.fail("another tensor")
                if value.dtype is not known.dtype or (step.watched and not _has_sizes(value, known.sizes)):
                    self.fail("another kind of tensor")
            elif known.__class__ is not value.__class__ or (known != value and known.__class__ not in _NUMBERS):
                self.fail("another argument")
        self._args = args, kwargs

    def made(self, result: Any) -> None:
        """Do to rows what a call does.

        Raises:
            OtherProgramError: If something else becomes of them than in the program.
        """
        step = self._steps[self._number - 1]
        if result.__class__ is Tensor:
            results = [result]
            self._count += 1
            self._origins.set(result, self._count)
        else:
            results = tensors_in([result])
            self._set_origins(results)
        if len(results) != len(step.kinds):
            self.fail("more or fewer results")
        if step.tracked:
            if step.light:
                self._track(step, result, results)
            else:
                self._apart(partial(self._track, step, result, results))

    def _track(self, step: _Step, result: Any, results: list[Tensor]) -> None:
        tracker = self._tracker
        if not step.rewritten:
            if step.indexed and any(_is_replicated(index) for index in _indices(*self._args)):
                self.fail("an index that depends on edges")
            for tensor, trace in zip(results, self._traces_of(step.function, result), strict=True):
                tracker.set(tensor, trace)
        for tensor, kind in zip(results, step.kinds):  # noqa: B905
            trace = tracker.get(tensor)
            if isinstance(trace, Rows) is not (kind is Rows) or (kind is Edges and not isinstance(trace, Edges)):
                self.fail("other rows")

    def _traces_of(self, function: Any, result: Any) -> list[Trace | None]:
        """Return what is known of the results of a call."""
        (args, kwargs), tracker = self._args, self._tracker
        if (direct := DIRECT.get(function)) is not None:
            nothing: Any = None
            traces = direct(Call(function, nothing, tuple(args), dict(kwargs), result, tracker.graph, tracker.get))
            if traces is not REFUSED:
                return traces if isinstance(traces, list) else [traces]
        return self._followed(function)

    def _followed(self, function: Any) -> list[Trace | None]:
        """Return the same, found by following the call operation by operation, on zeros for floating point numbers."""
        (args, kwargs), follower = self._args, self._follower
        stand_ins: dict[int, Tensor] = {}

        def stand_in(value: Any) -> Any:
            if isinstance(value, list | tuple):
                return type(value)([stand_in(entry) for entry in value])
            if not isinstance(value, Tensor):
                return value
            if id(value) not in stand_ins:
                kind: dict[str, Any] = {"dtype": value.dtype, "device": value.device}
                new = torch.zeros(value.shape, **kind) if value.is_floating_point() else value.clone()
                follower.set(new, self._tracker.get(value))
                stand_ins[id(value)] = new
            return stand_ins[id(value)]

        given = stand_in(list(args)), {name: stand_in(value) for name, value in kwargs.items()}
        follower.graph = self._tracker.graph
        with torch._C.DisableTorchFunction(), follower:
            out = function(*given[0], **given[1])
        traces = [follower.get(tensor) for tensor in tensors_in([out])]
        if any(isinstance(trace, Rows) and trace.broken is not None for trace in traces):
            self.fail("something that is not linear")
        return traces

    def check_done(self) -> None:
        """Raise OtherProgramError if calls of the program are missing, or were others."""
        if self._failed or self._number != len(self._steps):
            self.fail("fewer calls")


Known = TypeVar("Known")


class ProgramStore(Generic[Known]):
    """What is known of a model by its programs, the last one first.

    A model that takes other steps from graph to graph has several programs. Nothing of a graph is kept.
    """

    _MOST = 4

    def __init__(self) -> None:
        self._known: list[tuple[Hashable, Known]] = []
        self._misses = 0

    def __getstate__(self) -> dict[str, Any]:
        return {"_known": [], "_misses": 0}  # nothing that a copy would miss

    def of(self, key: Hashable) -> list[Known]:
        """Return what a pass may follow; after misses only in the next pass, the second, the fourth, ..."""
        if self._misses & (self._misses - 1):
            self._misses += 1
            return []
        return [known for other, known in self._known if other == key]

    def hit(self) -> None:
        """Say that a pass has followed a program."""
        self._misses = 0

    def add(self, key: Hashable, known: Known | None) -> None:
        """Add what was found by following the model, because no program was of use."""
        self._misses += any(other == key for other, _ in self._known)
        if known is not None:
            self._known = [(key, known), *self._known[: self._MOST - 1]]


class _Nest(NamedTuple):
    """Where arguments are inside of another one: x[[0, 1]] is not x[0, 1]."""

    kind: type
    size: int


def _leaves(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Return the arguments of a call, and what is inside of lists, tuples and slices."""
    leaves: list[Any] = []
    for value in (*args, *kwargs.items()) if kwargs else args:
        if isinstance(value, list | tuple):
            leaves += [_Nest(type(value), len(value)), *_leaves(value, {})]
        elif isinstance(value, slice):
            leaves += [_Nest(slice, 3), *_leaves((value.start, value.stop, value.step), {})]
        else:
            leaves.append(value)
    return leaves


def _indices(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Tensor]:
    """Return the tensors of integers among arguments."""
    return [value for value in _leaves(args, kwargs) if isinstance(value, Tensor) and value.dtype not in _FLOATS]


def _pattern(tensor: Tensor) -> tuple[int, ...]:
    return tuple([size if size < 2 else 2 for size in tensor.shape])


def _has_sizes(tensor: Tensor, pattern: tuple[int, ...]) -> bool:
    """Return whether a tensor has the pattern."""
    shape = tensor.shape
    if len(shape) == len(pattern) and 1 not in shape and 0 not in shape:  # most tensors
        return 1 not in pattern and 0 not in pattern
    return _pattern(tensor) == pattern


def _is_held(known: _Given, value: Any) -> bool:
    """Return whether a tensor from elsewhere is the one that the program has."""
    if known.values is None:
        return known.held is not None and known.held() is value
    return isinstance(value, Tensor) and torch.equal(known.values, value)


def _kind(trace: Trace | None) -> type[Trace] | None:
    return type(trace) if isinstance(trace, Rows | Edges) else None
