"""The program of a model: the calls of one followed pass, and what each of them does to rows.

Which rows read which depends on the calls of a pass, on which results are their arguments, on integers and on indices,
never on floating point values. So it is enough to follow a model once, operation by operation. On another graph a
:class:`ProgramRun` compares the calls with the program, and does to the rows of that graph what the calls do, for which
it needs only the index tensors. After other calls, :class:`OtherProgramError`, the model is followed again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property, lru_cache
from operator import is_
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar
from weakref import ref

import torch
from torch import Tensor
from torch.nn import Module, Parameter
from torch_geometric.nn import MessagePassing

from captum_goat.tracking.direct_rules import DIRECT, FIRST_ONLY, NAMED, Direct
from captum_goat.tracking.registry import REFUSED, Call, functions, tensors_in
from captum_goat.tracking.row_graph import Edges, Rows, Trace, Traces, Unmasked, Unsupported
from captum_goat.tracking.row_tracker import RowTracker
from captum_goat.tracking.tape import HandScatter, Slot, Step, Tape, Zeros, constant, is_tensors, needed, with_constants
from captum_goat.tracking.unseen import MASKED

# Types of arguments that must be equal in other passes. Anything else, such as a numpy array, might be an index.
_PLAIN = (str, bool, type, type(None), type(...), torch.dtype, torch.device, torch.layout, torch.memory_format)
# Numbers may differ between graphs: the rules use those of the current graph.
_NUMBERS = (int, float)
_FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
_ZEROS = functions("zeros zeros_like new_zeros")
_FACTORIES = _ZEROS | functions("new_ones new_empty new_full new_tensor ones_like empty_like full_like")
_LIKE_ANOTHER = functions("expand_as view_as reshape_as type_as")  # which only the shape or dtype of another decides


class OtherProgramError(Exception):
    """A pass makes other calls than the program."""


class Following:
    """Sees the calls of a pass, which is called with the tensors ``arguments``, and where their arguments come from."""

    watches_layers = False  # whether `enter` does something

    def __init__(self, arguments: Sequence[Tensor]) -> None:
        self._origins = Traces[int]()  # the number of the result, or of the argument, that a tensor is
        self._count = 0
        for place, argument in enumerate(arguments):
            self._origins.set(argument, -1 - place)
        self.output: int | None = None  # the number of the result that is the model's output

    def note(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """See a call that begins: of a function of torch, of a module with a rule, or of a layer with its messages."""
        raise NotImplementedError

    def made(self, result: Any) -> None:
        """See what the call returns."""
        raise NotImplementedError

    def enter(self, arguments: Sequence[Any]) -> None:
        """See the arguments of a message passing layer."""

    def end(self, output: Tensor) -> None:
        """See the model's output."""
        self.output = self._origins.get(output)

    def _set_origins(self, results: Sequence[Tensor]) -> tuple[int, ...]:
        for result in results:
            self._count += 1
            self._origins.set(result, self._count)
        return tuple(range(self._count + 1 - len(results), self._count + 1))


class GivenTensor(NamedTuple):
    """A tensor among the arguments of a call."""

    origin: int | None  # which result or argument of the model it is; ``None`` if it is from elsewhere
    held: ref[Tensor] | None  # then a floating point tensor must be the same object, for example a parameter
    values: Tensor | None  # and another one must have the same values; neither is set if that does not matter
    dtype: torch.dtype  # its dtype
    sizes: tuple[int, ...]  # its sizes, with 2 for all above 1: rules treat dimensions of size one differently


class _Step(NamedTuple):
    """One call of a program."""

    function: Any  # what is called
    arguments: list[Any]  # its arguments, see :func:`leaves_of`
    flat: bool  # whether no argument contains others
    watched: bool  # whether an argument or a result has a trace, so that sizes matter
    tracked: bool  # whether an argument or a result has rows, or edges that a layer needs later
    rewritten: bool  # whether a callback makes the call, and sets the traces of the results
    taped: Step | None = None  # the same call on the tape, if it is there
    bare: bool = False  # whether that has no constants, which other passes may have other ones of
    kinds: tuple[type[Trace] | None, ...] = ()  # the kind of trace of each result: rows, edges or none


class Program(NamedTuple):
    """The calls of a pass, with which other passes are compared."""

    steps: list[_Step]
    output: int | None  # the number of the result that is the model's output
    numbers: Sequence[int] = ()  # the number of each step's first result, if steps were left out


class _Argument(NamedTuple):
    """A tensor with which a call begins."""

    tensor: Tensor
    version: int
    origin: int | None
    trace: Trace | None

    @property
    def is_written(self) -> bool:
        """Whether the call has written to it."""
        return self.tensor._version != self.version


class ProgramRecorder(Following):
    """Notes the calls of a pass that ``tracker`` follows, and its tape; some tensors are attributed ``inputs``."""

    watches_layers = True

    def __init__(self, arguments: Sequence[Tensor], tracker: RowTracker, inputs: Sequence[Tensor] = ()) -> None:
        super().__init__([*arguments, *inputs])
        self._tracker = tracker
        self._inputs = tuple(-1 - len(arguments) - place for place in range(len(inputs)))
        self._variable = set(self._inputs)  # numbers of tensors that depend on attributed inputs
        self._steps: list[_Step] = []
        self._made_by: dict[int, int] = {}  # the step that made a result
        self._asked: set[int] = set()  # origins of the edges with which layers are called
        self._broken: set[int] = set()  # steps whose results are not polynomials
        self._usable = self._tape_usable = True
        self._call: list[_Argument] | None = None  # the tensors of the call that has begun
        self._open: Step | None = None  # the call, if it depends on attributed inputs
        self._taped: list[Step] = []
        self._constants: list[tuple[Tensor, int]] = []  # on the tape, with their versions
        self._zeros: set[int] = set()  # numbers of zeros
        self._masks = 0  # how many masks have entered

    def note(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Note a call that begins."""
        if self._call is not None:  # calls inside of calls are not supported
            self._usable = self._tape_usable = False
        leaves, origin_of, trace_of = leaves_of(args, kwargs), self._origins.get, self._tracker.get
        flat = not any(isinstance(leaf, _Nest) for leaf in leaves)
        self._call = [_Argument(t, t._version, origin_of(t), trace_of(t)) for t in leaves if isinstance(t, Tensor)]
        watched = any(argument.trace is not None for argument in self._call)
        tracked = any(isinstance(argument.trace, Rows) for argument in self._call)
        for argument in self._call:  # what depends on edges must come from calls that are on the tape
            if isinstance(argument.trace, Rows | Unsupported) and argument.origin not in self._variable:
                self._tape_usable = False
        arguments, masks = [self._summary(leaf) for leaf in leaves], isinstance(function, MessagePassing | HandScatter)
        self._steps.append(_Step(function, arguments, flat, watched, tracked, rewritten=masks))
        self._open = self._taped_step(function, args, kwargs)
        if masks:
            self.enter(args)

    def _taped_step(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Step | None:
        """Return a call as it stands on the tape; ``None`` if it does not depend on attributed inputs."""
        if function in _FACTORIES:
            return None
        step = Step(function, tuple(map(self._slotted, args)), {k: self._slotted(v) for k, v in kwargs.items()})
        if step.masks:
            self._masks += 1
            return step._replace(number=self._masks - 1)
        if function in _LIKE_ANOTHER and not isinstance(step.args[0], Slot):
            return None
        if not any(argument.origin in self._variable for argument in self._call or ()):
            return None
        return step._replace(function=torch.unbind) if function is Tensor.__iter__ else step

    def _slotted(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            number = self._origins.get(value)
            return Slot(number) if number in self._variable else constant(value)
        if type(value) in (list, tuple):
            return type(value)([self._slotted(entry) for entry in value])
        self._tape_usable &= not any(isinstance(leaf, Tensor | dict | set) for leaf in leaves_of((value,), {}))
        return value

    def rewrite(self, number: int, function: Callable[..., Any]) -> None:
        """Note that the call, of this function, is that of an operation with a rule."""
        if self._open is not None:
            self._open = self._open._replace(function=function, number=number)
            # The module of a user may have a state, which only a run of the whole model restores.
            owner = getattr(function, "__self__", None)
            self._tape_usable &= not isinstance(owner, Module) or type(owner).__module__.startswith("torch")

    def rewritten(self) -> None:
        """Note that a callback makes the call, and sets the traces of the results."""
        self._steps[-1] = self._steps[-1]._replace(rewritten=True)

    @property
    def current(self) -> int:
        """The number of the call that has begun last."""
        return len(self._steps) - 1

    def _summary(self, value: Any) -> Any:
        """Return what must be equal in another pass."""
        if not isinstance(value, Tensor):
            self._usable &= isinstance(value, (*_PLAIN, *_NUMBERS, _Nest, _Names))
            return value
        origin, held, values = self._origins.get(value), None, None
        if origin is None:
            held, values = (ref(value), None) if value.is_floating_point() else (None, value.clone())
        return GivenTensor(origin, held, values, value.dtype, _pattern(value.shape))

    def enter(self, arguments: Sequence[Any]) -> None:
        """Note which edges a layer needs."""
        indices = [value for value in arguments if isinstance(value, Tensor) and not value.is_floating_point()]
        self._asked.update(origin for index in indices if (origin := self._origins.get(index)) is not None)

    def made(self, result: Any) -> None:
        """Note the results of a call and their traces."""
        if self._call is None:  # the call had other calls inside
            return
        results, call, step, self._call = tensors_in([result]), self._call, self._steps[-1], None
        traces = [self._tracker.get(tensor) for tensor in results]
        if any(isinstance(trace, Unsupported) or (isinstance(trace, Rows) and trace.broken) for trace in traces):
            self._broken.add(self.current)
        kinds = tuple(map(kind_of, traces))
        watched = step.watched or any(trace is not None for trace in traces)
        self._steps[-1] = step._replace(watched=watched, tracked=step.tracked or Rows in kinds, kinds=kinds)
        if any(argument.is_written and not self._is_rewritten_whole(argument, results) for argument in call):
            self._usable = self._tape_usable = False
        numbers = self._set_origins(results)
        self._made_by.update(dict.fromkeys(numbers, self.current))
        if self._open is not None:
            self._add_to_tape(self._open._replace(results=numbers), call, result, results)
        elif step.function in _ZEROS:
            self._zeros.update(numbers)

    def _is_rewritten_whole(self, argument: _Argument, results: list[Tensor]) -> bool:
        """Return whether a write to a tensor has changed no trace but that of the result."""
        tensor = argument.tensor
        if argument.trace is None and self._tracker.get(tensor) is None:
            return True
        if not results or results[0] is not tensor or tensor._base is not None or not tensor.is_floating_point():
            return False
        return not any(view._base is tensor for view in self._tracker.traced_views())

    def _add_to_tape(self, step: Step, call: list[_Argument], result: Any, results: list[Tensor]) -> None:
        self._tape_usable &= is_tensors(result)
        written = [argument for argument in call if argument.is_written]
        if written:
            tensor, version, number, _ = written[0]
            self._tape_usable &= len(written) == 1 and len(results) == 1 and results[0] is tensor
            if number not in self._variable:
                self._tape_usable &= number in self._zeros and version == 0
                zeros = Zeros(tensor.shape, {"dtype": tensor.dtype, "device": tensor.device})
                step = step._replace(args=(zeros, *step.args[1:]))
            step = step._replace(writes=number in self._variable)
        constants = [argument for argument in call if not argument.is_written and argument.origin not in self._variable]
        self._constants += [(argument.tensor, argument.version) for argument in constants]
        self._variable.update(step.results)
        self._taped.append(step)

    def tape(self, calls: Sequence[int]) -> Tape | None:
        """Return the tape, which must have the calls with these numbers; ``None`` if it is not the whole pass."""
        changed = any(tensor._version != version for tensor, version in self._constants)
        if not self._tape_usable or changed or self.output not in self._variable or self.output is None:
            return None
        if not set(calls) <= {step.number for step in self._taped if not step.masks}:
            return None
        return Tape(self._inputs, needed(self._taped, {self.output, *self._inputs}), self.output)

    def program(self, left_out: int | None = None, tape: Tape | None = None) -> Program | None:
        """Return the program; ``None`` if other passes cannot follow it.

        A callback will replace the call ``left_out`` by its argument. With the ``tape`` of this pass, other passes make
        one of their own.
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
            read = _indices_of(step)[: 1 if step.function in FIRST_ONLY else None]
            waiting += [given.origin for given in read if given.origin is not None]
        for number, step in enumerate(steps):
            if number not in seen:  # no layer needs its edges
                kinds = tuple(Unmasked if kind is Edges else kind for kind in step.kinds)
                tracked = step.tracked and (Rows in kinds or step.function not in DIRECT)
                steps[number] = step = step._replace(kinds=kinds, tracked=tracked)
            if step.tracked and not step.rewritten and any(g.origin in self._variable for g in _indices_of(step)):
                return None  # an index depends on values
        for taped in [] if tape is None else tape.steps:
            number = self._made_by[taped.results[0]]
            given = (*taped.args, *taped.kwargs.values())
            bare = all(isinstance(value, Slot | bool | None) for value in given)
            steps[number] = steps[number]._replace(taped=taped.without_constants(), bare=bare)
        return Program(steps, self.output)


def _indices_of(step: _Step) -> list[GivenTensor]:
    return [given for given in step.arguments if isinstance(given, GivenTensor) and given.dtype not in _FLOATS]


class GivenRows(RowTracker):
    """The traces of the tensors of a pass that is not followed."""

    def get(self, tensor: Any) -> Trace | None:
        """Return the trace that was set for a tensor."""
        return self._traces.get(tensor) if isinstance(tensor, Tensor) else None

    def check_by_layers(self, tensor: Tensor) -> None:
        """Do nothing: that was checked when the program was recorded."""

    def paused(self) -> Any:
        """Make calls with ordinary tensors; no operation is seen."""
        return torch._C.DisableTorchFunctionSubclass()


class ProgramRun(Following):
    """Compares the calls of a pass with a program, and sets the edges and rows of their results in ``tracker``."""

    def __init__(
        self, program: Program, arguments: Sequence[Tensor], tracker: GivenRows, *, follows_rows: bool = True
    ) -> None:
        super().__init__(arguments)
        self._program, self._steps = program, program.steps
        self._number_of: Callable[[Any], int | None] = self._origins.get
        self._tracker = tracker
        self._follows_rows = follows_rows
        self._number = 0
        self._failed = False
        self._args: tuple[Sequence[Any], Mapping[str, Any]] = (), {}
        self._leaves: Sequence[Any] = ()  # the same, see :func:`leaves_of`
        self._taped: list[Step] = []
        self._constants: list[tuple[Tensor, int]] = []  # on the tape, with their versions
        # By function, the arguments of calls that compute edges, which layers do again and again, and their traces.
        self._edge_calls: dict[Any, list[tuple[list[Any], list[Trace | None], Any]]] = {}

    @cached_property
    def _follower(self) -> RowTracker:
        follower = RowTracker()
        follower.set_aside = 1  # message passing by hand was looked for when the program was recorded
        return follower

    def fail(self, reason: str = "") -> NoReturn:
        """Raise OtherProgramError, now and again at the end, because the model may catch it."""
        self._failed = True
        function = getattr(self._steps[self._number - 1].function, "__name__", "") if self._number else ""
        raise OtherProgramError(f"call {self._number} ({function}): {reason}")

    def note(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Raise OtherProgramError if a call that begins is not the one of the program."""
        if self._number == len(self._steps) or self._failed:
            self.fail("one call more")
        step = self._steps[self._number]
        self._number += 1
        if step.function is not function and step.function != function:
            self.fail(f"another function, {getattr(function, '__name__', function)}")
        leaves = _flat(args, kwargs) if step.flat else leaves_of(args, kwargs)
        if len(leaves) != len(step.arguments):
            self.fail("more or fewer arguments")
        origin_of, watched = self._number_of, step.watched
        for known, value in zip(step.arguments, leaves):  # noqa: B905
            if known.__class__ is GivenTensor:
                number, held, values, dtype, sizes = known
                origin = origin_of(value)
                if origin != number or (origin is None and not _is_held(held, values, value)):
                    self.fail("another tensor")
                if value.dtype is not dtype or (watched and _pattern(value.shape) != sizes):
                    self.fail("another kind of tensor")
            elif known.__class__ is not value.__class__ or (known != value and known.__class__ not in _NUMBERS):
                self.fail("another argument")
        self._args, self._leaves = (args, kwargs), leaves

    def made(self, result: Any) -> None:
        """Set the rows of results; raise OtherProgramError if they have other kinds of traces than in the program."""
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
        if (taped := step.taped) is not None:
            self._taped.append(taped if step.bare else with_constants(taped, *self._args, self._constants))
        if step.tracked and (self._follows_rows or Rows not in step.kinds):
            self._track(step, result, results)

    def _track(self, step: _Step, result: Any, results: list[Tensor]) -> None:
        """Set the traces of the results of a call."""
        (args, kwargs), tracker = self._args, self._tracker
        if not step.rewritten:
            traces: Any = REFUSED
            if (direct := DIRECT.get(step.function)) is not None and kwargs.keys() <= NAMED:
                none: Any = None
                call = Call(step.function, none, tuple(args), dict(kwargs), result, tracker.graph, tracker.get)
                traces = self._traces_of_edges(call, direct) if step.kinds == (Edges,) else direct(call)
            if traces is REFUSED:
                traces = self._followed(step.function)
            for tensor, trace in zip(results, traces if isinstance(traces, list) else [traces], strict=True):
                tracker.set(tensor, trace)
        for tensor, kind in zip(results, step.kinds):  # noqa: B905
            trace = tracker.get(tensor)
            if isinstance(trace, Rows) is not (kind is Rows) or (kind is Edges and not isinstance(trace, Edges)):
                self.fail("other rows")

    def _traces_of_edges(self, call: Call, direct: Direct) -> Any:
        """Return the edges of a result; those of an earlier call with equal arguments that have the same traces."""
        given = [call.trace(leaf) for leaf in self._leaves]
        calls = self._edge_calls.setdefault(call.func, [])
        for arguments, traces, result in calls:
            same = len(arguments) == len(self._leaves) and all(map(is_, traces, given))
            if same and all(map(_decides_alike, arguments, self._leaves)):
                return result
        calls.append(([_deciding(leaf) for leaf in self._leaves], given, direct(call)))
        return calls[-1][2]

    def _followed(self, function: Any) -> list[Trace | None]:
        """Return traces by following the call operation by operation, with zeros for floating point values."""
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

    def tape(self) -> Tape | None:
        """Return the tape of this pass; ``None`` if a constant was changed after a call that reads it."""
        if self.output is None or any(tensor._version != version for tensor, version in self._constants):
            return None
        return Tape((), self._taped, self.output)

    def check_done(self) -> None:
        """Raise OtherProgramError if calls of the program are missing or were different."""
        if self._failed or self._number != len(self._steps) or self.output != self._program.output:
            self.fail("fewer calls, or another output")


Known = TypeVar("Known")


class ProgramStore(Generic[Known]):
    """What is known about a model for each of its programs, the last one first; nothing of a graph is kept."""

    _MOST = 4

    def __init__(self) -> None:
        self._known: list[tuple[Hashable, Known]] = []
        self._misses = 0

    def __getstate__(self) -> dict[str, Any]:
        return {"_known": [], "_misses": 0}  # a copy can record its own programs

    def of(self, key: Hashable) -> list[Known]:
        """Return the programs that a pass may follow; after misses only in the first, second, fourth, ... pass."""
        if self._misses & (self._misses - 1):
            return []
        return [known for other, known in self._known if other == key]

    def hit(self) -> None:
        """Note that a pass has followed a program."""
        self._misses = 0

    def add(self, key: Hashable, known: Known | None) -> None:
        """Add what is known after the model was followed, because no program fitted."""
        self._misses += any(other == key for other, _ in self._known)
        if known is not None:
            self._known = [(key, known), *self._known[: self._MOST - 1]]


class _Nest(NamedTuple):
    """Marks that the next arguments are inside of another one: x[[0, 1]] is not x[0, 1]."""

    kind: type
    size: int


class _Names(tuple[str, ...]):
    """The names of the arguments that follow."""

    __slots__ = ()


_SINGLE = (Tensor, Parameter, int, float, str, bool, type(None), _Names)  # most arguments


def _flat(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[Any]:
    """Return the arguments of a call, none of which contains others, as :func:`leaves_of` does."""
    return (*args, _Names(kwargs), *kwargs.values()) if kwargs else args


def leaves_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Return the arguments of a call, and those inside of lists, tuples and slices."""
    leaves: list[Any] = []
    for value in _flat(args, kwargs):
        if value.__class__ in _SINGLE:
            leaves.append(value)
        elif isinstance(value, list | tuple):
            leaves += [_Nest(type(value), len(value)), *leaves_of(value, {})]
        elif isinstance(value, slice):
            leaves += [_Nest(slice, 3), *leaves_of((value.start, value.stop, value.step), {})]
        else:
            leaves.append(value)
    return leaves


def _deciding(value: Any) -> Any:
    """Return what of an argument decides rows: the shape of a tensor of numbers, and anything else itself."""
    if not isinstance(value, Tensor):
        return value
    return value.shape if value.dtype in _FLOATS else value.clone()


def _decides_alike(known: Any, value: Any) -> bool:
    """Return whether an argument decides the same rows as one of an earlier pass, given what decided these."""
    if not isinstance(value, Tensor):
        return known.__class__ is value.__class__ and bool(known == value)
    if value.dtype in _FLOATS:
        return bool(known == value.shape)
    return isinstance(known, Tensor) and known.dtype == value.dtype and torch.equal(known, value)


@lru_cache(4096)
def _pattern(shape: torch.Size) -> tuple[int, ...]:
    return tuple([size if size < 2 else 2 for size in shape])


def _is_held(held: ref[Tensor] | None, values: Tensor | None, value: Any) -> bool:
    """Return whether a tensor that is no result is the one of the program, see :class:`GivenTensor`."""
    if values is None:
        return isinstance(value, Tensor) if held is None else held() is value
    return isinstance(value, Tensor) and torch.equal(values, value)


def kind_of(trace: Trace | None) -> type[Trace] | None:
    """Return rows or edges; ``Unmasked`` for all else that is made of edges, unless a mask has entered."""
    if trace is None or isinstance(trace, Rows | Edges):
        return None if trace is None else type(trace)
    return None if isinstance(trace, Unmasked) and trace.kind == MASKED else Unmasked
