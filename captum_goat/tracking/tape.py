"""The calls of a pass that depend on masks or other attributed inputs, to be made again with other values.

What does not depend on them, such as degrees and indices, is kept as it was, and the model's own code does not run
again. That is allowed because nothing that the calls computed has left torch: a model that reads a number of a tensor,
to choose a branch for example, has no tape.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing

from captum_goat.tracking.registry import functions, tensors_in

# Functions whose results are no views, and whose gradients need their arguments at most.
_FRESH = functions("linear matmul __matmul__ batch_norm add __add__ __radd__ sub __sub__ index_select index_add")
_FRESH |= functions("scatter_add scatter_add_")
_ADD = functions("add __add__ __radd__")


class HandScatter:
    """Stands in calls for a mask that enters messages which are scattered outside of layers."""


HAND_SCATTER = HandScatter()


class Slot(NamedTuple):
    """Stands for a tensor that depends on attributed inputs."""

    number: int  # the number of the result, or of the input, that it is


class Zeros(NamedTuple):
    """Stands for new zeros, to which a call writes."""

    size: torch.Size
    kind: dict[str, Any]  # dtype and device

    def make(self) -> Tensor:
        """Return the zeros."""
        return torch.zeros(self.size, **self.kind)


class Step(NamedTuple):
    """One call."""

    function: Any
    args: tuple[Any, ...]  # with slots for tensors that depend on attributed inputs
    kwargs: dict[str, Any]
    writes: bool = False  # whether it writes to its first argument
    number: int | None = None  # its number among the calls of operations with a rule, or among masks that enter
    results: tuple[int, ...] = ()  # the numbers of the results
    dropped: tuple[int, ...] = ()  # the numbers of results that no later call needs

    @property
    def masks(self) -> bool:
        """Whether it is no call, but a mask that enters messages, the first argument."""
        return isinstance(self.function, MessagePassing | HandScatter)

    def first(self, values: Mapping[int, Tensor]) -> Any:
        """Return the first argument."""
        return values[self.args[0].number] if isinstance(self.args[0], Slot) else self.args[0]

    def may_overwrite(self, numbers: Collection[int]) -> bool:
        """Return whether the first argument is a result with one of these numbers."""
        return bool(self.args) and isinstance(self.args[0], Slot) and self.args[0].number in numbers

    def arguments(self, value_of: Callable[[int], Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments with values in place of slots; what the call writes to is a copy."""
        args = tuple(
            [value_of(value.number) if value.__class__ is Slot else _filled(value, value_of) for value in self.args]
        )
        if self.writes:
            args = (args[0].clone(), *args[1:])
        return args, _filled(self.kwargs, value_of) if self.kwargs else {}

    def without_constants(self) -> Step:
        """Return the step with ``None`` for tensors that do not depend on attributed inputs."""
        return self._replace(args=_bare(self.args), kwargs={k: _bare(value) for k, value in self.kwargs.items()})


class Tape(NamedTuple):
    """Calls in their order."""

    inputs: tuple[int, ...]  # the numbers of attributed inputs
    steps: list[Step]
    output: int  # the number of the result that is the model's output

    def fixed_by(self, masks: Collection[int]) -> set[int]:
        """Return the numbers of results that are constants if these masks are 0, and that other calls read."""
        fixed, read_by_others = set[int](), {self.output}
        for step in self.steps:
            read = _slots((*step.args, *step.kwargs.values()))
            if step.number in masks if step.masks else step.number is None and read <= fixed:
                fixed.update(step.results)
            else:
                read_by_others |= read
        return set() if self.output in fixed else fixed & read_by_others

    def overwritable(self) -> frozenset[int]:
        """Return the numbers of results in memory of their own, which autograd does not keep and one call reads."""
        read = Counter(number for step in self.steps for number in _reads(step))
        made = {number for step in self.steps if step.function in _FRESH for number in step.results}
        return frozenset(number for number in made if read[number] == 1 and number != self.output)

    def with_fixed(self, fixed: Mapping[int, Tensor]) -> Tape:
        """Return the tape with constants in place of some results."""
        steps = [
            step._replace(args=_fixed(step.args, fixed), kwargs={k: _fixed(v, fixed) for k, v in step.kwargs.items()})
            for step in self.steps
        ]
        return Tape(self.inputs, needed(steps, {self.output, *self.inputs}, frozen=False), self.output)

    def run(
        self,
        inputs: Sequence[Tensor],
        call: Callable[[Step, Mapping[int, Tensor]], Any],
        seen: dict[int, Tensor] | None = None,
    ) -> Tensor:
        """Return the output; ``call`` makes one call, given the values of slots. Results in ``seen`` are updated."""
        values = dict(zip(self.inputs, inputs, strict=True))
        for step in self.steps:
            result = call(step, values)
            if result.__class__ is Tensor and len(step.results) == 1:
                values[step.results[0]] = result
            else:
                values.update(zip(step.results, tensors_in([result]), strict=True))
            if seen:
                seen.update((number, values[number]) for number in step.results if number in seen)
            for number in step.dropped:
                del values[number]
        return values[self.output]


def with_constants(
    step: Step, args: Sequence[Any], kwargs: Mapping[str, Any], constants: list[tuple[Tensor, int]]
) -> Step:
    """Return a step with the constants of a call in another pass, which are added to ``constants``."""
    pairs = zip(step.args, args)  # noqa: B905
    merged = [known if known.__class__ is Slot else _merged(known, value, constants) for known, value in pairs]
    named = {name: _merged(known, kwargs[name], constants) for name, known in step.kwargs.items()} if kwargs else {}
    return Step(step.function, tuple(merged), named, *step[3:])


def constant(value: Tensor) -> Tensor:
    """Return a tensor of which a tape needs no gradient, as of weights."""
    return value.detach() if value.requires_grad else value


def _merged(known: Any, value: Any, constants: list[tuple[Tensor, int]]) -> Any:
    """Return an argument of a call in another pass, with slots and zeros where they are known."""
    if known.__class__ is Slot:
        return known
    if known.__class__ is Zeros:
        return known._replace(size=value.shape)
    if isinstance(value, Tensor):
        constants.append((value, value._version))
        return constant(value)
    if value.__class__ in (list, tuple):
        return type(value)([_merged(*pair, constants) for pair in zip(known, value, strict=True)])
    return value


def _bare(value: Any) -> Any:
    if type(value) in (list, tuple):
        return type(value)(map(_bare, value))
    return None if isinstance(value, Tensor) else value


def needed(steps: Sequence[Step], needed: set[int], *, frozen: bool = True) -> list[Step]:
    """Return the steps whose results are needed, and with ``frozen`` all at which values are frozen."""
    kept: list[Step] = []
    for step in reversed(steps):
        if needed.isdisjoint(step.results) and (not frozen or step.number is None):
            continue
        read = _slots((*step.args, *step.kwargs.values()))
        kept.append(step._replace(dropped=tuple((read | {*step.results}) - needed)))
        needed = needed | read
    return kept[::-1]


def call_again(step: Step, args: tuple[Any, ...], kwargs: dict[str, Any], overwritable: Collection[int]) -> Any:
    """Make a call again. A sum overwrites its first argument if that is allowed and has its shape and dtype."""
    if step.function in _ADD and step.may_overwrite(overwritable) and len(args) == 2 and kwargs.keys() <= {"alpha"}:
        value, other = args
        if not isinstance(other, Tensor) or (other.dtype == value.dtype and other.shape == value.shape):
            return value.add_(other, **kwargs)
    return step.function(*args, **kwargs)


def rows_of_index(index: Tensor) -> Tensor | None:
    """Return the one row to which an index sends all entries of each row; ``None`` if it sends them to several."""
    if any(size > 1 and stride for size, stride in zip(index.shape[1:], index.stride()[1:], strict=True)):
        return None
    for _ in index.shape[1:]:
        index = index.select(-1, 0)
    return index


def is_tensors(result: Any) -> bool:
    """Return whether a result is tensors, nothing that a model's own code could look at."""
    if isinstance(result, list | tuple):
        return all(map(is_tensors, result))
    return result is None or isinstance(result, Tensor)


def _filled(value: Any, value_of: Callable[[int], Any]) -> Any:
    """Return arguments with values in place of slots."""
    kind = value.__class__
    if kind is Slot:
        return value_of(value.number)
    if kind is Zeros:
        return value.make()
    if kind in (list, tuple):
        return kind([_filled(entry, value_of) for entry in value])
    return {name: _filled(entry, value_of) for name, entry in value.items()} if kind is dict else value


def _fixed(value: Any, fixed: Mapping[int, Tensor]) -> Any:
    """Return arguments with constants in place of some slots."""
    if isinstance(value, Slot):
        return fixed.get(value.number, value)
    return type(value)([_fixed(entry, fixed) for entry in value]) if type(value) in (list, tuple) else value


def _slots(values: Sequence[Any]) -> set[int]:
    numbers = {value.number for value in values if isinstance(value, Slot)}
    return numbers.union(*(_slots(value) for value in values if type(value) in (list, tuple)))


def _reads(step: Step) -> Iterator[int]:
    """Return the numbers of results that a call reads, each as often as it does."""
    waiting = [*step.args, *step.kwargs.values()]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Slot):
            yield value.number
        elif type(value) in (list, tuple):
            waiting += value
