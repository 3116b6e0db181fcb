"""Step into a model's activations and messages while it runs, and leave no trace.

Everything that is put on the user's model comes off again, whether the model succeeded, raised or was interrupted.
"""

from __future__ import annotations

import inspect
import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import Module
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
from torch_geometric.nn import MessagePassing

from captum_goat.hooks.global_state import DispatchFlags, ThreadState, close_interrupted
from captum_goat.hooks.model_state import ModelState, modules_of
from captum_goat.rules.attention import SOFTMAX, SOFTMAX_STEPS, softmax_step, stepped_into
from captum_goat.rules.operations import input_of, is_inplace
from captum_goat.rules.registry import Rule, find
from captum_goat.tracking import UnsupportedModelError
from captum_goat.tracking.program import Following

Result = TypeVar("Result")
# Called with the rule of an operation, the operation and its arguments; returns the result.
OnCall = Callable[[Rule, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
# Called with the layer, the `edge_index` of its `propagate` call and its messages; returns the messages.
OnMessage = Callable[[MessagePassing, Any, Tensor], Tensor]
# Called with a function that brings values together at places of an index, and its arguments; returns the result.
OnSum = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]

_functorch: Any = torch._C._functorch
_CHECKPOINT = inspect.unwrap(checkpoint).__code__

# Functions that tell what kind of tensor one is, and nothing of its values. Models call them more often than others.
_QUESTIONS: frozenset[Any] = frozenset(
    [getattr(Tensor, name) for name in ("dim", "size", "numel", "stride", "is_floating_point", "is_complex")]
    + [getattr(Tensor, name).__get__ for name in ("shape", "dtype", "device", "layout", "ndim", "_version")]
)

_lock = threading.RLock()  # two threads that explain at once would trip over each other's hooks
_unfinished: list[Changes] = []  # that are not undone: models run with them, or undoing was interrupted twice


def _after_fork() -> None:
    """Free a new process of what the threads that it does not have were about to do."""
    global _lock
    if _lock.acquire(blocking=False):  # it is free, or held by the thread that lives on
        _lock.release()
        return
    _lock = threading.RLock()
    _remove_leftovers()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def intercepted(
    run: Callable[[], Result],
    model: Module,
    *,
    on_message: OnMessage | None = None,
    on_call: OnCall | None = None,
    on_layer: Callable[[tuple[Any, ...]], None] | None = None,
    around_propagate: Callable[[int, bool], None] | None = None,
    steps: Following | None = None,
    on_sum: OnSum | None = None,
    summing: frozenset[Any] = frozenset(),
    tracker: TorchDispatchMode | None = None,
) -> Result:
    """Run a function, with ``on_call`` in place of every operation with a rule and ``on_message`` after every message.

    Args:
        run: Calls the model.
        model: The user's model.
        on_message: See :data:`OnMessage`; layers with ``explain=False`` are left alone, as in PyG.
        on_call: See :data:`OnCall`; ``None`` leaves operations alone.
        on_layer: Called with the arguments of every message passing layer before it runs.
        around_propagate: Called with 1 when message passing begins and with -1 when it ends, and with whether the layer
            is explained.
        steps: Sees every call of the model: functions of torch, messages, and with ``on_call`` modules with a rule.
        on_sum: See :data:`OnSum`; ``None`` leaves sums alone.
        summing: The functions in whose place ``on_sum`` is called.
        tracker: A mode that sees all operations.

    Returns:
        What ``run`` returns.
    """
    modules = modules_of(model)
    watched = any(seen is not None for seen in (on_call, on_sum, steps))
    mode = _RuleMode(on_call, steps, on_sum, summing) if watched else None

    def run_changed(changes: Changes) -> Result:
        for name, module in modules.items():
            if isinstance(module, MessagePassing):
                explained = module.explain is not False
                masked = _seen(mode, on_message) if explained else None
                _hook_messages(changes, name, module, masked, around_propagate)
                if explained and on_layer is not None:
                    _hook_layer(changes, module, _unseen(mode, on_layer), steps)
        if on_call is not None and mode is not None:
            for module in modules.values():
                if (rule := find(type(module))) is not None:
                    _hook_module(changes, module, rule, mode, on_call)
        # The modes are never left: who undoes the changes pops them, wherever they are by then.
        for each in (mode, tracker):
            if each is not None:
                each.__enter__()  # type: ignore[no-untyped-call]
        return run()

    with _lock:  # what the model keeps while another thread runs it is none of ours
        _check(modules)
        return changed(list(modules.values()), run_changed)


def changed(modules: list[Module], run: Callable[[Changes], Result]) -> Result:
    """Run a function that changes a model, and undo what it has changed.

    This is no context manager, because none is left safely: an interrupt at the first instruction of its ``__exit__``
    would leave everything on the model.

    Args:
        modules: All modules of the model.
        run: The function. It is given what makes changes.

    Returns:
        What ``run`` returns.
    """
    with _lock:
        if _unfinished:
            _remove_leftovers()
        changes = Changes(modules)
        try:
            try:
                _unfinished.append(changes)
                # What torch.vmap cannot batch it repeats, and would warn of that.
                _functorch._set_vmap_fallback_warning_enabled(False)
                result = run(changes)
                changes.failed = False
                return result
            except BaseException as error:
                close_interrupted(error)
                raise
            finally:
                changes.undo()
        finally:
            changes.undo()


def unchanged(model: Module, run: Callable[[], Result]) -> Result:
    """Run a function that calls a model as it is, and leave no trace of the call on the model."""
    return changed(list(model.modules()), lambda _: run())


class Changes:
    """What is changed while a model runs: hooks and attributes of its modules, and the state of torch.

    Args:
        modules: All modules of the model.
    """

    def __init__(self, modules: list[Module]) -> None:
        self.running = self.failed = True
        self._set: list[tuple[dict[str, Any], str, Any, Any]] = []
        self._model, self._thread, self._flags = ModelState(modules), ThreadState(), DispatchFlags()

    def hook(
        self, module: Module, kind: str, hook: Callable[..., Any], *, first: bool = False, with_kwargs: bool = False
    ) -> None:
        """Add a hook to a module, for this thread only.

        The module is given another dictionary of hooks, because other threads may be going through its own one.

        Args:
            module: The module.
            kind: The name of the dictionary.
            hook: The hook. What the model does in other threads, for somebody else, is kept from it.
            first: Whether it comes before all other hooks.
            with_kwargs: Whether it is given keyword arguments, too.
        """
        owner = threading.get_ident()

        def guarded(*args: Any) -> Any:
            return hook(*args) if self.running and threading.get_ident() == owner else None

        hooks, own = vars(module)[kind], OrderedDict({guarded: guarded})
        self.set(module, kind, own | hooks if first else hooks | own)
        if with_kwargs:
            self.set(module, f"{kind}_with_kwargs", vars(module)[f"{kind}_with_kwargs"] | OrderedDict({guarded: True}))

    def set(self, module: Module, name: str, value: Any) -> None:
        """Set an attribute of a module. That is noted first: there is no moment in which nobody could undo it."""
        attributes = vars(module)
        self._set.append((attributes, name, attributes[name], value))
        attributes[name] = value

    def undo(self) -> None:
        """Undo all changes, unless that has been done."""
        if self.running:
            self._thread.restore()  # first, or modes that were left would see what follows
            self.remove()
            self._model.restore(failed=self.failed)
            self._flags.restore()
            self.running = False
        self._set.clear()  # or what the hooks have seen would live on
        if self in _unfinished:
            _unfinished.remove(self)

    def remove(self) -> None:
        """Take off what was put on the model."""
        for attributes, name, before, after in reversed(self._set):
            if attributes.get(name) is after:
                attributes[name] = before
        _functorch._set_vmap_fallback_warning_enabled(True)


def _remove_leftovers() -> None:
    """Take off what was left on models by calls that are over."""
    running: list[Changes] = []
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code is changed.__code__ and "changes" in frame.f_locals:
            running.append(frame.f_locals["changes"])
        frame = frame.f_back
    for changes in [each for each in _unfinished if each not in running]:
        changes.running = False
        changes.remove()  # attributes may have been changed since, by the user
        _unfinished.remove(changes)


def _check(modules: dict[str, Module]) -> None:
    """Raise UnsupportedModelError if the inside of the model cannot be seen or is not its own."""
    for name, module in modules.items():
        where = f"'{name}'" if name else "the model"
        if isinstance(module, torch.jit.ScriptModule):
            raise UnsupportedModelError(
                f"TorchScript hides what happens inside of {where}. Explain the original torch.nn.Module."
            )
        if isinstance(module, MessagePassing) and (getattr(module, "cached", False) or _cache_names(module)):
            raise UnsupportedModelError(
                f"{where} ({type(module).__name__}) keeps the edges of one call for the next, so they cannot be "
                f"masked. Set its `cached` to False and {', '.join(_cache_names(module)) or 'its cache'} to None."
            )
        if isinstance(module, MessagePassing) and module.explain:
            raise UnsupportedModelError(
                f"An explainer of torch_geometric has left its edge mask on {where}. Take it off with "
                f"torch_geometric.explain.algorithm.utils.clear_masks(model)."
            )


def check_context(device: str, *, differentiable: bool = False) -> None:
    """Raise UnsupportedModelError if the model computes where or how it cannot be watched; called while it runs.

    Args:
        device: The type of device that it runs on.
        differentiable: Whether gradients are wanted.
    """
    reason = None
    if torch.is_autocast_enabled(device):
        reason = "torch.autocast, whose rounding hides the shares"
    frame: FrameType | None = sys._getframe()
    while frame is not None and reason is None:
        if frame.f_code is _CHECKPOINT:
            reason = "torch.utils.checkpoint, which runs parts of it again where they cannot be watched"
        frame = frame.f_back
    if reason is None and differentiable and not torch.is_grad_enabled():
        reason = "torch.no_grad, so that no gradients can be taken"
    if reason is not None:
        raise UnsupportedModelError(f"The model's forward uses {reason}. Switch that off while you explain the model.")


def _unseen(mode: _RuleMode | None, callback: Any) -> Any:
    """Keep what a callback of ours computes out of the mode that looks for the model's operations."""
    if mode is None or callback is None:
        return callback

    def unseen(*args: Any) -> Any:
        mode.passing += 1
        try:
            return callback(*args)
        finally:
            mode.passing -= 1

    return unseen


def _seen(mode: _RuleMode | None, on_message: OnMessage | None) -> OnMessage | None:
    """Let the steps have messages, and what becomes of them, for one step; what is computed for that is none."""
    steps = None if mode is None else mode.steps
    if on_message is None or steps is None:
        masked: OnMessage | None = _unseen(mode, on_message)
        return masked

    def step(layer: MessagePassing, propagated: Any, values: Tensor) -> Tensor:
        steps.note(layer, (values, propagated), {})
        masked = on_message(layer, propagated, values)
        steps.made(masked)
        return masked

    seen: OnMessage = _unseen(mode, step)
    return seen


def _cache_names(module: Module) -> list[str]:
    return [f"`{key}`" for key, value in vars(module).items() if key.startswith("_cached") and value is not None]


def _hook_messages(
    changes: Changes,
    name: str,
    layer: MessagePassing,
    on_message: OnMessage | None,
    around_propagate: Callable[[int, bool], None] | None,
) -> None:
    edge_indices: list[Any] = []

    def begin(_: MessagePassing, inputs: tuple[Any, ...]) -> None:
        edge_indices.append(inputs[0])
        if around_propagate is not None:
            around_propagate(1, layer.explain is not False)

    def mask(_: MessagePassing, inputs: tuple[Any, ...], messages: Any) -> Tensor:
        assert on_message is not None
        if not isinstance(messages, Tensor):
            raise UnsupportedModelError(
                f"GOAt masks messages that are one tensor (got {type(messages).__name__} from '{name}')."
            )
        return on_message(layer, edge_indices[-1], messages)

    def end(_: MessagePassing, inputs: tuple[Any, ...], out: Any) -> None:
        edge_indices.pop()
        if around_propagate is not None:
            around_propagate(-1, layer.explain is not False)

    changes.hook(layer, "_propagate_forward_pre_hooks", begin)
    if on_message is not None:
        changes.hook(layer, "_message_forward_hooks", mask)
    changes.hook(layer, "_propagate_forward_hooks", end)
    changes.set(layer, "fuse", False)  # fused kernels have no messages to mask


def _hook_layer(
    changes: Changes, layer: MessagePassing, on_layer: Callable[[tuple[Any, ...]], None], steps: Following | None
) -> None:
    def begin(_: MessagePassing, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        arguments = (*args, *kwargs.values())
        if steps is not None:
            steps.enter(arguments)
        on_layer(arguments)

    changes.hook(layer, "_forward_pre_hooks", begin, with_kwargs=True)


def _hook_module(changes: Changes, module: Module, rule: Rule, mode: _RuleMode, on_call: OnCall) -> None:
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    # What a ReLU itself computes is not needed, if nobody else looks at it.
    spared = type(module) is nn.ReLU and not (module._forward_hooks or module._forward_pre_hooks)

    def before(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        calls.append((args, kwargs))
        mode.passing += 1
        if mode.steps is not None and mode.passing == 1:
            mode.steps.note(module, args, kwargs)
        if spared:
            return (input_of(args, kwargs).new_empty(0),), {}
        if not is_inplace(module.forward, args, kwargs):
            return None
        # The module would overwrite the input that its gates need: let it have a copy.
        return (input_of(args, kwargs).detach().clone(), *args[1:]), {k: v for k, v in kwargs.items() if k != "input"}

    def after(module: Module, _: tuple[Any, ...], out: Any) -> Any:
        args, kwargs = calls.pop()
        result = on_call(rule, module.forward, args, kwargs)
        if mode.steps is not None and mode.passing == 1:
            mode.steps.made(result)
        mode.passing -= 1
        return result

    changes.hook(module, "_forward_pre_hooks", before, with_kwargs=True)
    # First of all hooks, so that what the user's own hooks do to the output is done to the rule's result.
    changes.hook(module, "_forward_hooks", after, first=True)


class _RuleMode(TorchFunctionMode):
    """Run callbacks in place of every function that has a rule, and of sums."""

    def __init__(
        self, on_call: OnCall | None, steps: Following | None, on_sum: OnSum | None, summing: frozenset[Any]
    ) -> None:
        super().__init__()
        self.on_call = on_call
        self.steps = steps
        self.on_sum = on_sum
        self.summing = summing
        self.passing = 0  # inside of a module that has a rule itself

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.passing or func in _QUESTIONS:
            return func(*args, **kwargs)
        if self.steps is None:
            return self._result(func, args, kwargs)
        self.steps.note(func, args, kwargs)
        result = self._result(func, args, kwargs)
        if func is Tensor.__iter__:
            result = list(result)
            self.steps.made(result)
            return iter(result)
        self.steps.made(result)
        return result

    def _result(self, func: Any, args: Any, kwargs: Any) -> Any:
        if self.on_call is None and self.on_sum is None:
            return func(*args, **kwargs)
        if (inside := stepped_into(func)) is not None:
            with self:
                return inside(*args, **kwargs)
        if self.on_sum is not None and func in self.summing:
            return self.on_sum(func, args, kwargs)
        rule = find(func)
        if func in SOFTMAX_STEPS and sys._getframe(2).f_code is SOFTMAX:
            rule, func = softmax_step(func, presence=self.on_sum is not None)
        if rule is not None and self.on_call is not None:
            return self.on_call(rule, func, args, kwargs)
        return func(*args, **kwargs)
