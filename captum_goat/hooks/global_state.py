"""Restore torch's state after a call, wherever the call is interrupted.

Ctrl-C can come between any two instructions, for example after a mode was pushed and before the ``with`` statement that
pops it has begun. So context managers are not enough. The state is saved before a call and restored after it: twice,
because the interrupt can come while it is restored the first time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

import torch

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

_functorch: Any = torch._C._functorch
_python_dispatch: Any = torch.utils._python_dispatch
_DEVICES = [device for device in ("cpu", "cuda", "xpu", "mps", "hpu") if torch.amp.is_autocast_available(device)]
_PYTHON_KEYS = (torch._C.DispatchKey.Python, torch._C.DispatchKey.PythonTLSSnapshot)
_GeneratorContext = contextlib._GeneratorContextManager
_CONTEXT_CODE = (_GeneratorContext.__enter__.__code__, _GeneratorContext.__exit__.__code__)

# A context without inference mode. `torch.inference_mode` is entered and left in Python, where it can be interrupted.
outside_inference_mode = partial(torch._C._InferenceMode, False)


def _function_modes() -> list[Any]:
    return [torch._C._get_function_stack_at(place) for place in range(torch._C._len_torch_function_stack())]


class ThreadState:
    """The state of torch in this thread: gradients, autocast, modes and transforms."""

    def __init__(self) -> None:
        self._gradients = torch.is_grad_enabled()
        self._autocast = [torch.is_autocast_enabled(device) for device in _DEVICES]
        self._function_modes = _function_modes()
        self._dispatch_modes = torch._C._len_torch_dispatch_stack()
        self._transforms = _functorch.maybe_current_level() or 0
        self._excluded = [torch._C._dispatch_tls_is_dispatch_key_excluded(key) for key in _PYTHON_KEYS]
        # Its exit, which may be called several times, restores whether functions could be overridden at its entry.
        self._overridable = torch._C.DisableTorchFunction()
        with self._overridable:
            pass
        self._restored = False

    def restore(self) -> None:
        """Restore the state, once."""
        if self._restored:
            return
        if _function_modes() != self._function_modes:  # some may be missing that were popped for a moment
            while torch._C._len_torch_function_stack():
                torch._C._pop_torch_function_stack()
            for mode in self._function_modes:
                torch._C._push_on_torch_function_stack(mode)
        while torch._C._len_torch_dispatch_stack() > self._dispatch_modes:
            torch._C._pop_torch_dispatch_stack(None)
        while (_functorch.maybe_current_level() or 0) > self._transforms:
            _functorch.pop_dynamic_layer_stack()
        self._overridable.__exit__(None, None, None)
        for key, excluded in zip(_PYTHON_KEYS, self._excluded, strict=True):
            torch._C._dispatch_tls_set_dispatch_key_excluded(key, excluded)
        for device, enabled in zip(_DEVICES, self._autocast, strict=True):
            torch.set_autocast_enabled(device, enabled)
        torch._C._set_grad_enabled(self._gradients)
        self._restored = True


def switch_off_autocast(device: torch.device) -> None:
    """Switch off autocast until a function with :func:`restores_state` ends."""
    if torch.is_autocast_enabled(device.type):
        torch.set_autocast_enabled(device.type, False)


class DispatchFlags:
    """The flags about dispatch modes that torch has for the whole process; other threads must not use any."""

    def __init__(self) -> None:
        self._flags = {name: flag for name, flag in vars(_python_dispatch).items() if name.startswith("_is_in_")}

    def restore(self) -> None:
        """Restore the flags."""
        vars(_python_dispatch).update(self._flags)
        if (flag := self._flags.get("_is_in_any_mode_without_ignore_compile_internals")) is not None:
            _python_dispatch.set_is_in_mode_without_ignore_compile_internals(flag)


def close_interrupted(error: BaseException) -> None:
    """Close the generators of context managers that an error has stopped while they were entered or left.

    They would go on when the traceback is collected, any time later, and pop or push a mode.
    """
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code in _CONTEXT_CODE:
            traceback.tb_frame.f_locals["self"].gen.close()
        traceback = traceback.tb_next


def restores_state(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Decorate a function that restores the state of torch in its thread."""

    @wraps(function)
    def guarded(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        state = ThreadState()
        try:
            try:
                return function(*args, **kwargs)
            except BaseException as error:
                close_interrupted(error)
                raise
            finally:
                state.restore()
        finally:
            state.restore()

    return guarded
