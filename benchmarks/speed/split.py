"""How the time of an attribution splits into parts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import wraps
from importlib import import_module
from typing import Any, NamedTuple
from unittest.mock import patch

REST = "all else: reading arguments, adding up, checking"


class Place(NamedTuple):
    """A function whose time counts for a part of the work.

    Attributes:
        part: The part.
        owner: The module, or after a colon the class in it, that has the function.
        function: The name of the function.
    """

    part: str
    owner: str
    function: str

    def find(self) -> Any:
        """Return the module or class.

        Raises:
            AttributeError: If it does not have the function, because the code was changed and this list was not.
        """
        module, _, name = self.owner.partition(":")
        owner = getattr(import_module(module), name) if name else import_module(module)
        getattr(owner, self.function)
        return owner


PLACES = (
    Place("the recorded pass", "captum_goat.method.explain", "record"),
    Place("the pass without edges", "captum_goat.method.replay:ActivationPattern", "at_zero"),
    Place("replays, forward", "captum_goat.method.replay:ActivationPattern", "replay"),
    Place("replays, forward", "captum_goat.method.explain", "share_in_replicas"),
    Place("replays, backward", "torch.autograd", "grad"),
    Place("receptive fields", "captum_goat.fields.receptive_field:ReceptiveFields", "__init__"),
    Place("receptive fields", "captum_goat.fields.receptive_field:ReceptiveFields", "spread"),
    Place("receptive fields", "captum_goat.fields.small_fields:SmallFields", "__init__"),
    Place("receptive fields", "captum_goat.fields.small_fields:SmallFields", "spread"),
    Place("receptive fields", "captum_goat.method.explain", "owners_of"),
    Place("receptive fields", "captum_goat.fields.receptive_field:ReceptiveFields", "row_weights"),
)


class Stopwatch:
    """Seconds and calls of each part; what a part spends in another one counts for the other one only.

    Attributes:
        seconds: By part.
        calls: By part.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.calls: dict[str, int] = {}
        self._inside: list[float] = []  # for each part that is running, what others have spent in it

    @contextmanager
    def running(self, part: str) -> Iterator[None]:
        """Measure inside of the with statement."""
        self._inside.append(0.0)
        start = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            self.seconds[part] = self.seconds.get(part, 0.0) + spent - self._inside.pop()
            self.calls[part] = self.calls.get(part, 0) + 1
            if self._inside:
                self._inside[-1] += spent


def split_time(call: Callable[[], object], places: Sequence[Place] = PLACES) -> Stopwatch:
    """Call a function and return the time of each part.

    Args:
        call: The function.
        places: What belongs to which part; all else is :data:`REST`.

    Returns:
        Seconds and calls of each part, in the order of ``places``.
    """
    watch = Stopwatch()
    watch.seconds = dict.fromkeys([*(place.part for place in places), REST], 0.0)
    with ExitStack() as stack:
        for place in places:
            owner = place.find()
            counted = _counted(watch, place.part, getattr(owner, place.function))
            stack.enter_context(patch.object(owner, place.function, counted))
        with watch.running(REST):
            call()
    return watch


def _counted(watch: Stopwatch, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def counted(*args: Any, **kwargs: Any) -> Any:
        with watch.running(part):
            return function(*args, **kwargs)

    return counted
