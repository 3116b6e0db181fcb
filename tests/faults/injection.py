"""Raise an exception at a chosen moment of a call, and tell what a call has left behind."""

from __future__ import annotations

import dis
import random
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from types import CodeType, FrameType
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.modules import module as torch_modules
from torch.overrides import TorchFunctionMode
from torch.utils import _python_dispatch

import captum_goat
from captum_goat.hooks import interception

# Where interrupts may do harm: the package, and what torch and Python enter and leave contexts with.
_WATCHED = (
    captum_goat.__path__[0],
    "contextlib.py",
    "torch/overrides.py",
    "torch/utils/_python_dispatch.py",
    "torch/utils/_contextlib.py",
    "torch/autograd/grad_mode.py",
)


class InjectedError(ZeroDivisionError):
    """An error that nobody expects."""


class CallFault(TorchFunctionMode):
    """Count the calls of torch functions and modules, and raise in one of them.

    Args:
        number: The number of the call; ``None`` for none.
        error: What is raised.
    """

    def __init__(self, number: int | None = None, error: type[BaseException] = InjectedError) -> None:
        super().__init__()
        self.number, self.error, self.count = number, error, 0
        self.sites: dict[tuple[CodeType, int], list[int]] = {}  # the calls from every line that calls

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._called()
        return func(*args, **(kwargs or {}))

    def __enter__(self) -> CallFault:
        self._handle = torch_modules.register_module_forward_pre_hook(lambda *_: self._called())
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._handle.remove()

    def numbers(self) -> list[int]:
        """Return the first and the last call from every line."""
        return sorted({calls[place] for calls in self.sites.values() for place in (0, -1)})

    def _called(self) -> None:
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and "/torch/" in frame.f_code.co_filename:
            frame = frame.f_back
        assert frame is not None
        self.sites.setdefault((frame.f_code, frame.f_lineno), []).append(self.count)
        if self.count == self.number:
            self.count += 1  # only once: what is called to clean up may call others
            raise self.error(f"in call {self.number}")
        self.count += 1


Moment = tuple[CodeType, int, int]  # an instruction, and how often it had been passed before


class Interrupt:
    """Note the moments at which Python handles signals, and raise KeyboardInterrupt at some of them.

    Python looks for signals at the beginning of functions, after calls, and when loops go round.

    Args:
        *moments: When to raise.

    Attributes:
        passed: How often each instruction at which signals are handled was passed.
        raised: How often KeyboardInterrupt was raised.
    """

    def __init__(self, *moments: Moment) -> None:
        self._moments = set(moments)
        self._codes = {code for code, _, _ in moments}
        self.passed: dict[tuple[CodeType, int], int] = {}
        self.raised = 0

    def __call__(self, run: Callable[[], Any]) -> Any:
        """Run a function."""
        before = sys.gettrace()
        sys.settrace(self._begin)
        try:
            return run()
        finally:
            sys.settrace(before)

    def moments(self) -> list[Moment]:
        """Return the first and the last time that each instruction was passed, in the order of the code."""
        moments = {(code, offset, time) for (code, offset), count in self.passed.items() for time in (0, count - 1)}
        return sorted(
            moments,
            key=lambda moment: (moment[0].co_filename, moment[0].co_firstlineno, moment[0].co_name, *moment[1:]),
        )

    def _begin(self, frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        if not any(folder in code.co_filename for folder in _WATCHED):
            return None
        if self._codes and (code not in self._codes or self.raised == len(self._moments)):
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        checks = _checks(code)

        def trace(frame: FrameType, event: str, argument: Any) -> Any:
            if event == "opcode" and frame.f_lasti in checks:
                self._pass(code, frame.f_lasti)
            return trace

        return trace

    def _pass(self, code: CodeType, offset: int) -> None:
        count = self.passed.get((code, offset), 0)
        self.passed[code, offset] = count + 1
        if (code, offset, count) in self._moments:
            self.raised += 1
            raise KeyboardInterrupt(f"at {code.co_filename}:{code.co_name}+{offset}")


_known_checks: dict[CodeType, frozenset[int]] = {}


def _checks(code: CodeType) -> frozenset[int]:
    """Return the instructions that follow one after which Python looks for signals."""
    if code not in _known_checks:
        instructions = list(dis.get_instructions(code))
        names = ("CALL", "RESUME", "JUMP_BACKWARD", "JUMP_ABSOLUTE")
        pairs = pairwise(instructions)
        _known_checks[code] = frozenset(after.offset for one, after in pairs if one.opname.startswith(names))
    return _known_checks[code]


def model_state(model: nn.Module) -> list[Any]:
    """Return everything about a model that an explanation might change."""
    state: list[Any] = []
    for name, module in model.named_modules():
        hooks = {key: dict(value) for key, value in vars(module).items() if "hooks" in key and value is not None}
        plain = {k: v for k, v in vars(module).items() if isinstance(v, bool | int | float | str | type(None))}
        state += [name, type(module), sorted(vars(module)), hooks, plain]
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        state += [name, id(tensor), tensor.requires_grad, tensor.grad is None, tensor.tolist()]
    return state


def global_state() -> dict[str, Any]:
    """Return everything of torch and Python that an explanation might change."""
    torch.autocast_increment_nesting()
    keys = (torch._C.DispatchKey.Python, torch._C.DispatchKey.PythonTLSSnapshot)
    return {
        "random numbers": (
            torch.get_rng_state().numpy().tobytes(),
            random.getstate(),
            np.random.get_state()[1].tobytes(),
        ),
        "gradients": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        "dtype": torch.get_default_dtype(),
        "autocast": (torch.is_autocast_enabled("cpu"), torch.autocast_decrement_nesting()),
        "function modes": torch.overrides._get_current_function_mode_stack(),
        "functions": (torch._C._is_torch_function_enabled(), torch._C._is_torch_function_all_disabled()),
        "dispatch modes": torch._C._len_torch_dispatch_stack(),
        "dispatch flags": {k: v for k, v in vars(_python_dispatch).items() if k.startswith("_is_in_")},
        "excluded": [torch._C._dispatch_tls_is_dispatch_key_excluded(key) for key in keys],
        "transforms": torch._C._functorch.maybe_current_level(),
        "warnings": (list(warnings.filters), warnings.showwarning),
        "hooks of all modules": {k: dict(v) for k, v in vars(torch_modules).items() if k.startswith("_global_forward")},
        "lock": _is_free(interception._lock),
        "unfinished": list(interception._unfinished),
    }


def _is_free(lock: Any) -> bool:
    raised: list[bool] = []

    def take() -> None:
        if lock.acquire(blocking=False):
            lock.release()
            raised.append(True)

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    return bool(raised)


@contextmanager
def nothing_left(model: nn.Module) -> Iterator[None]:
    """Check that the model and all global state are after a block what they were before."""
    before = model_state(model), global_state()
    yield
    after = model_state(model), global_state()
    changed = [name for name, value in before[1].items() if after[1][name] != value]
    assert not changed, f"{changed}: {[(before[1][name], after[1][name]) for name in changed]}"
    assert after[0] == before[0], "the model"
