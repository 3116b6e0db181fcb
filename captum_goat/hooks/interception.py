"""Replace a model's operations and messages while it runs.

Everything that is put on the user's model comes off again, whether the model succeeded, raised or was interrupted.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import lru_cache
from types import FrameType, ModuleType
from typing import Any, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn import Module
from torch.overrides import TorchFunctionMode, handle_torch_function, has_torch_function
from torch.utils import checkpoint as checkpoints
from torch.utils._python_dispatch import TorchDispatchMode
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.models.rev_gnn import InvertibleModule

from captum_goat.hooks.global_state import DispatchFlags, ThreadState, close_interrupted
from captum_goat.hooks.model_state import ModelState, modules_of, path_of
from captum_goat.rules.attention import SOFTMAX, SOFTMAX_STEPS, softmax_step, stepped_into
from captum_goat.rules.messages import MESSAGES
from captum_goat.rules.operations import input_of, is_inplace, kernel_name
from captum_goat.rules.registry import Rule, find
from captum_goat.rules.registry import version as rules_version
from captum_goat.tracking import RowTracker, UnsupportedModelError
from captum_goat.tracking.edge_calls import QUESTIONS, EdgeRecorder, EdgeRun, current, is_trusted
from captum_goat.tracking.program import Following, ProgramRun, leaves_of
from captum_goat.tracking.tape import HAND_SCATTER

Result = TypeVar("Result")
# Called with the rule of an operation, the operation and its arguments; returns the result.
OnCall = Callable[[Rule, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
# Called with the layer, the `edge_index` of its `propagate` call and its messages; returns the messages.
OnMessage = Callable[[MessagePassing, Any, Tensor], Tensor]
# Called with a function that sums values at positions of an index, and its arguments; returns the result.
OnSum = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


class Scattered(NamedTuple):
    """Messages that a function scatters to nodes outside of message passing layers."""

    messages: Tensor
    places: Tensor  # the index by which they are scattered
    mask: Callable[[], Tensor] | None  # returns the messages with the mask; ``None`` if they have it
    # returns the arguments of the function with other messages
    arguments: Callable[[Tensor], tuple[tuple[Any, ...], dict[str, Any]]]
    done: Callable[[Any], None] | None = None  # called with the function's result


# Called with a function that scatters values, and its arguments; returns ``None`` if the values are no messages.
OnScatter = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Scattered | None]
# Called with a function that is declared to return messages, and its arguments; returns them, and what masks them.
OnDeclared = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], tuple[Any, Callable[[], Tensor] | None]]

_logger = logging.getLogger(__name__)
_CHECKPOINT = "_checkpoint_without_reentrant_generator"
_CheckpointFunction, _checkpoint_generator = checkpoints.CheckpointFunction, vars(checkpoints)[_CHECKPOINT]
_functorch: Any = torch._C._functorch
_script_call = torch.jit.ScriptFunction.__call__
_ABSENT: Any = object()  # in place of an attribute that a module did not have

_lock = threading.RLock()  # one thread at a time puts hooks on models
_unfinished: list[Changes] = []  # changes that are in use, or whose undoing was interrupted twice


def _after_fork() -> None:
    """Undo in a new process what threads were doing that exist only in the old one."""
    global _lock
    if _lock.acquire(blocking=False):  # it is free, or this thread holds it
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
    on_message: OnMessage | None = None,  # not called for layers with `explain=False`, as in PyG
    on_call: OnCall | None = None,
    on_layer: Callable[[tuple[Any, ...]], None] | None = None,  # called with the arguments of message passing layers
    around_propagate: Callable[[int, bool], None] | None = None,  # called with 1 and later -1, and `explain`
    steps: Following | None = None,  # sees all calls: functions of torch, messages, with `on_call` modules with a rule
    on_sum: OnSum | None = None,
    on_scatter: OnScatter | None = None,
    on_declared: OnDeclared | None = None,
    summing: frozenset[Any] = frozenset(),  # the functions that `on_sum` replaces and `on_scatter` looks at
    tracker: TorchDispatchMode | None = None,  # a mode that sees all operations
) -> Result:
    """Run a function with ``on_call`` in place of operations that have a rule and ``on_message`` after messages."""
    modules = modules_of(model)
    mode = _RuleMode(on_call, steps, on_sum, summing, on_scatter, around_propagate)
    mode.tracker, mode.on_declared = tracker, on_declared
    watches = any(callback is not None for callback in (on_call, on_sum, on_scatter, on_declared, steps))

    def run_changed(changes: Changes) -> Result:
        for module in modules:
            if isinstance(module, MessagePassing):
                _hook_layer(changes, model, module, mode, on_message, on_layer, around_propagate)
        _make_plain(changes, model, modules)
        for module in modules:
            rule = find(type(module))
            if rule is MESSAGES and on_declared is not None:
                _hook_messages(changes, module, mode)
            elif rule is None or rule is MESSAGES or (type(module) is nn.ReLU and rule is find(F.relu)):
                continue  # the mode sees ReLUs
            elif on_call is not None:
                _hook_module(changes, module, rule, mode, on_call)
            elif rule.cuts:
                changes.hook(
                    module, "_forward_pre_hooks", lambda _, *given: mode.set_aside(1, *given), with_kwargs=True
                )
                changes.hook(module, "_forward_hooks", lambda *_: mode.set_aside(-1))
        if watches:
            _show_scripted(changes)
        # The modes are not left here: `Changes.undo` pops them, also after an interrupt.
        if isinstance(steps, EdgeRun):
            changes.set(current, "run", steps)
        elif watches:
            mode.__enter__()  # type: ignore[no-untyped-call]
        if tracker is not None:
            tracker.__enter__()
        return run()

    with _lock:  # or the state of the model might be saved while another thread runs it
        _check(model, modules)
        result = changed(modules, run_changed)
    return result  # noqa: RET504 - an interrupt between the call and a return inside would keep the lock


def changed(modules: list[Module], run: Callable[[Changes], Result]) -> Result:
    """Run a function that changes a model with these modules, and undo its changes.

    This is not a context manager: an interrupt at the first instruction of its ``__exit__`` would leave the changes.
    """
    with _lock:
        if _unfinished:
            _remove_leftovers()
        changes = Changes(modules)
        try:
            try:
                _unfinished.append(changes)
                # torch.vmap repeats what it cannot batch, and would warn about that.
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
    """Run a function that calls a model, and restore the model's state."""

    def run_plainly(changes: Changes) -> Result:
        _make_plain(changes, model, modules)
        return run()

    modules = modules_of(model)
    return changed(modules, run_plainly)


class _ClassAttributes:
    """The attributes of a class, to be set as those of a module."""

    def __init__(self, owner: type) -> None:
        self._owner = owner
        self.get = vars(owner).get

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self._owner, name, value)


class Changes:
    """The changes while a model runs: hooks and attributes of its modules, and the state of torch."""

    def __init__(self, modules: list[Module]) -> None:
        self.running = self.failed = True
        self._set: list[tuple[Any, str, Any, Any]] = []
        self._model, self._thread, self._flags = ModelState(modules), ThreadState(), DispatchFlags()

    def hook(
        self, module: Module, kind: str, hook: Callable[..., Any], *, first: bool = False, with_kwargs: bool = False
    ) -> None:
        """Add a hook to a dictionary of hooks, before or after the others, for calls in this thread only.

        The module gets a new dictionary, because other threads may be iterating over its own one.
        """
        owner = threading.get_ident()

        def guarded(*args: Any) -> Any:
            return hook(*args) if self.running and threading.get_ident() == owner else None

        hooks, own = vars(module)[kind], OrderedDict({guarded: guarded})
        self.set(module, kind, own | hooks if first else hooks | own)
        if with_kwargs:
            self.set(module, f"{kind}_with_kwargs", vars(module)[f"{kind}_with_kwargs"] | OrderedDict({guarded: True}))

    def set(self, module: Module | ModuleType | threading.local | type, name: str, value: Any) -> None:
        """Set an attribute of a module. The change is noted first, so that it can be undone at any moment."""
        attributes: Any = _ClassAttributes(module) if isinstance(module, type) else vars(module)
        self._set.append((attributes, name, attributes.get(name, _ABSENT), value))
        attributes[name] = value

    def undo(self) -> None:
        """Undo all changes, once."""
        if self.running:
            self._thread.restore()  # first, or modes that are still entered would see the rest
            self.remove()
            self._model.restore(failed=self.failed)
            self._flags.restore()
            self.running = False
        self._set.clear()  # the hooks keep tensors alive
        if self in _unfinished:
            _unfinished.remove(self)

    def remove(self) -> None:
        """Take off what was put on the model."""
        for attributes, name, before, after in reversed(self._set):
            if attributes.get(name) is after and before is _ABSENT:
                del attributes[name]
            elif attributes.get(name) is after:
                attributes[name] = before
        _functorch._set_vmap_fallback_warning_enabled(True)


def _remove_leftovers() -> None:
    """Take off what interrupted calls have left on models."""
    running: list[Changes] = []
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code is changed.__code__ and "changes" in frame.f_locals:
            running.append(frame.f_locals["changes"])
        frame = frame.f_back
    for changes in [changes for changes in _unfinished if changes not in running]:
        changes.running = False
        changes.remove()  # without the model's state, which the user may have changed since
        _unfinished.remove(changes)


def _make_plain(changes: Changes, model: Module, modules: list[Module]) -> None:
    """Let a model do everything in one pass: no caches, compiled parts, checkpoints, layers that recompute inputs."""
    changes.set(checkpoints, "CheckpointFunction", _NoCheckpoint)
    changes.set(checkpoints, _CHECKPOINT, _no_checkpoint)
    if (compiler := sys.modules.get("torch._dynamo.eval_frame")) is not None and hasattr(compiler, "_stance"):
        changes.set(compiler, "_stance", compiler.DynamoStance("force_eager"))
    for module in modules:
        if isinstance(module, InvertibleModule):
            changes.set(module, "disable", True)
        if not isinstance(module, MessagePassing):
            continue
        caches = [key for key in vars(module) if key == "cached" or key[:7] == "_cached"]
        if any(vars(module)[key] not in (None, False) for key in caches):
            _logger.info(
                "%s (%s) keeps edges for the next call; it runs without.", path_of(model, module), type(module).__name__
            )
            for key in caches:
                changes.set(module, key, False if key == "cached" else None)


def _show_scripted(changes: Changes) -> None:
    """Let modes see scripted functions that call kernels of packages, as they see the kernels themselves."""
    owner, original = threading.get_ident(), _script_call

    def call(function: Any, *args: Any, **kwargs: Any) -> Any:
        given, here = (*args, *kwargs.values()), changes.running and threading.get_ident() == owner
        if here and has_torch_function(given) and kernel_name(function) is not None:
            return handle_torch_function(function, given, *args, **kwargs)
        return original(function, *args, **kwargs)

    changes.set(torch.jit.ScriptFunction, "__call__", call)


def check_caches(model: Module, run: Callable[[], Any]) -> None:
    """Raise ValueError if a layer has cached another graph, so that the model returns the output for that one."""
    filled = [
        f"{path_of(model, layer)} ({type(layer).__name__})"
        for layer in modules_of(model)
        if isinstance(layer, MessagePassing)
        if any(key[:7] == "_cached" and value is not None for key, value in [*vars(layer).items()])  # other threads
    ]
    if not filled:
        return
    with torch.no_grad():
        own, plain = changed(list(model.modules()), lambda _: run()), unchanged(model, run)
    if own.shape != plain.shape or not torch.allclose(own, plain, rtol=1e-3, atol=1e-4 * float(plain.abs().max())):
        raise ValueError(
            f"Expected the graph that the model has cached in {', '.join(filled)} (got another one, for which the "
            f"model returns the output for the cached one). Set its caches to None."
        )


class _NoCheckpoint:
    """Runs what a model wants to run again later, unless another thread asks."""

    @staticmethod
    def apply(function: Callable[..., Any], preserve: bool, *args: Any) -> Any:
        here = _lock._is_owned()  # type: ignore[attr-defined]
        return function(*args) if here else _CheckpointFunction.apply(function, preserve, *args)


def _no_checkpoint(*args: Any, **kwargs: Any) -> Iterator[None]:
    """Do the same for the other kind of checkpoints, whose body runs between the steps of a generator."""
    if _lock._is_owned():  # type: ignore[attr-defined]
        yield
    else:
        yield from _checkpoint_generator(*args, **kwargs)


def _check(model: Module, modules: list[Module]) -> None:
    """Raise UnsupportedModelError if a module cannot be watched or has masks."""
    for module in modules:
        if isinstance(module, torch.jit.ScriptModule):
            where = path_of(model, module)
            raise UnsupportedModelError(f"TorchScript hides the operations of {where}. Explain the original module.")
        if not isinstance(module, MessagePassing):
            continue
        if module.explain:
            raise UnsupportedModelError(
                f"An explainer of torch_geometric has left its edge mask on {path_of(model, module)}. Remove it with "
                f"torch_geometric.explain.algorithm.utils.clear_masks(model)."
            )


def check_context(device: str) -> None:
    """Raise UnsupportedModelError if the model, which is running, uses a context in which it cannot be explained."""
    if torch.is_autocast_enabled(device):
        raise UnsupportedModelError(
            "The model's forward uses torch.autocast, whose rounding hides the shares. Switch that off while you "
            "explain the model."
        )


def _hook_layer(
    changes: Changes,
    model: Module,
    layer: MessagePassing,
    mode: _RuleMode,
    on_message: OnMessage | None,
    on_layer: Callable[[tuple[Any, ...]], None] | None,
    around_propagate: Callable[[int, bool], None] | None,
) -> None:
    edge_indices: list[Any] = []
    explained, steps = layer.explain is not False, mode.steps
    calls = steps if isinstance(steps, EdgeRecorder | EdgeRun) else None
    trusted, forward, owner = calls is not None and is_trusted(layer), layer.forward, threading.get_ident()

    def run(*args: Any, **kwargs: Any) -> Any:
        if not changes.running or threading.get_ident() != owner:
            return forward(*args, **kwargs)
        with torch._C.DisableTorchFunction():
            if steps is not None:
                steps.enter((*args, *kwargs.values()))
            if on_layer is not None and explained:
                on_layer((*args, *kwargs.values()))
        if calls is None:
            return forward(*args, **kwargs)
        before, calls.trusts = calls.trusts, trusted
        try:
            return forward(*args, **kwargs)
        finally:
            calls.trusts = before

    def begin(_: MessagePassing, inputs: tuple[Any, ...]) -> Any:
        edge_indices.append(inputs[0])
        if around_propagate is not None:
            around_propagate(1, explained)
        if calls is None:
            return None
        with torch._C.DisableTorchFunction():
            return calls.begin_propagate(layer, inputs)

    def mask(_: MessagePassing, inputs: tuple[Any, ...], messages: Any) -> Any:
        return tuple(map(masked, messages)) if type(messages) is tuple else masked(messages)

    def masked(messages: Any) -> Tensor:
        assert on_message is not None
        if not isinstance(messages, Tensor):
            raise UnsupportedModelError(
                f"Expected messages that are a tensor, or a tuple of them (got {type(messages).__name__} from "
                f"{path_of(model, layer)}). Let `message` return tensors, or set `explain=False` on the layer."
            )
        with torch._C.DisableTorchFunction():
            notes = None if calls is not None and calls.trusts else steps
            if notes is not None:
                notes.note(layer, (messages, edge_indices[-1]), {})
            result = on_message(layer, edge_indices[-1], messages)
            if notes is not None:
                notes.made(result)
            return result

    def end(_: MessagePassing, inputs: tuple[Any, ...], out: Any) -> None:
        edge_indices.pop()
        if around_propagate is not None:
            around_propagate(-1, explained)
        if calls is not None:
            calls.end_propagate()

    changes.hook(layer, "_propagate_forward_pre_hooks", begin)
    if on_message is not None and explained:
        changes.hook(layer, "_message_forward_hooks", mask)
    changes.hook(layer, "_propagate_forward_hooks", end)
    changes.set(layer, "fuse", False)  # fused kernels have no messages to mask
    if calls is not None or (explained and (on_layer is not None or (steps is not None and steps.watches_layers))):
        changes.set(layer, "forward", run)


def _hook_module(changes: Changes, module: Module, rule: Rule, mode: _RuleMode, on_call: OnCall) -> None:
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def before(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        calls.append((args, kwargs))
        mode.passing += 1
        if rule.cuts:
            mode.set_aside(1, args, kwargs)
        with torch._C.DisableTorchFunction():
            if mode.steps is not None and mode.passing == 1:
                mode.steps.note(module, args, kwargs)
            if not is_inplace(module.forward, args, kwargs):
                return None
            # The module would overwrite the input that its gates need, so it gets a copy.
            copy = input_of(args, kwargs).detach().clone()
            return (copy, *args[1:]), {name: value for name, value in kwargs.items() if name != "input"}

    def after(module: Module, _: tuple[Any, ...], out: Any) -> Any:
        args, kwargs = calls.pop()
        with torch._C.DisableTorchFunction():
            result = on_call(rule, module.forward, args, kwargs)
            if mode.steps is not None and mode.passing == 1:
                mode.steps.made(result)
        if rule.cuts:
            mode.set_aside(-1)
        mode.passing -= 1
        return result

    changes.hook(module, "_forward_pre_hooks", before, with_kwargs=True)
    # Before all other hooks, so that the user's hooks get the rule's result.
    changes.hook(module, "_forward_hooks", after, first=True)


def _hook_messages(changes: Changes, module: Module, mode: _RuleMode) -> None:
    forward, owner = module.forward, threading.get_ident()

    def run(*args: Any, **kwargs: Any) -> Any:
        here = changes.running and threading.get_ident() == owner
        return mode.declared(forward, args, kwargs) if here else forward(*args, **kwargs)

    changes.set(module, "forward", run)


@lru_cache(512)
def _known_rule(func: Any, version: int) -> tuple[Rule | None] | None:
    """Return the rule of this version for a function, if any; ``None`` if it is known only when the function runs."""
    rule = find(func)
    special = rule is MESSAGES or func in SOFTMAX_STEPS or stepped_into(func) is not None
    return None if special or kernel_name(func) is not None or func is Tensor.__iter__ else (rule,)


class _RuleMode(TorchFunctionMode):
    """Run callbacks in place of functions that have a rule, and of sums."""

    def __init__(
        self,
        on_call: OnCall | None,
        steps: Following | None,
        on_sum: OnSum | None,
        summing: frozenset[Any],
        on_scatter: OnScatter | None,
        around: Callable[[int, bool], None] | None,
    ) -> None:
        super().__init__()
        self.on_scatter, self.around = on_scatter, around
        self.on_call, self.steps, self.on_sum, self.summing = on_call, steps, on_sum, summing
        self.differentiable = on_call is not None and torch.is_grad_enabled()
        self.replaces = on_call is not None or on_sum is not None
        # what compares all functions that only rules replace, and the version of these
        plainly = on_sum is None and on_scatter is None and not self.differentiable
        self.compared = steps if type(steps) is ProgramRun and plainly else None
        self.version = rules_version()
        self.tracker: TorchDispatchMode | None = None
        self.on_declared: OnDeclared | None = None
        self.passing = 0  # above 0 functions are left alone: in modules that have a rule, and in callbacks

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.passing or func in QUESTIONS:
            return func(*args, **kwargs) if kwargs else func(*args)
        kwargs = kwargs or {}
        if self.compared is not None and (known := _known_rule(func, self.version)) is not None:
            self.compared.note(func, args, kwargs)
            (rule,) = known
            if rule is None or self.on_call is None:
                result = func(*args, **kwargs)
            else:
                result = self.on_call(rule, func, args, kwargs)
            self.compared.made(result)
            return result
        if self.differentiable and not torch.is_grad_enabled():  # the model switched gradients off; shares need them
            torch._C._set_grad_enabled(True)
        if find(func) is MESSAGES:
            with self:
                return self.declared(func.__wrapped__, args, kwargs)
        if self.replaces and (inside := stepped_into(func)) is not None:
            with self:
                return inside(*args, **kwargs)
        if self.on_scatter is not None and func in self.summing:
            found = self.on_scatter(func, args, kwargs)
            if found is not None:
                return self._scattered(func, found)
        return self._noted(func, args, kwargs)

    def _scattered(self, func: Any, found: Scattered) -> Any:
        """Scatter messages as a layer does, with the mask."""
        masked = found.messages
        if found.mask is not None:
            masked = self._masked((found.messages, found.places), found.mask)
        args, kwargs = found.arguments(masked)
        if self.around is not None:
            self.around(1, True)
        try:
            result = self._noted(func, args, kwargs)
        finally:
            if self.around is not None:
                self.around(-1, True)
        if found.done is not None:
            found.done(result)
        return result

    def set_aside(self, step: int, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> None:
        """Note that a module begins (1) or ends (-1) whose result is frozen, whatever it sums up over edges."""
        if isinstance(self.tracker, RowTracker) and not self.tracker.graph.propagating:
            self.tracker.set_aside += step
            known = map(self.tracker.get, leaves_of(args, kwargs or {}))
            self.tracker.graph.by_values |= any(trace is not None for trace in known)  # which is not followed in it

    def declared(self, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Make a call whose result is declared to be messages, and mask them."""
        if self.on_declared is None:
            return func(*args, **kwargs)
        messages, mask = self.on_declared(func, args, kwargs)
        with torch._C.DisableTorchFunction():
            return messages if mask is None else self._masked((messages,), mask)

    def _masked(self, arguments: tuple[Tensor, ...], mask: Callable[[], Tensor]) -> Tensor:
        if self.steps is not None:
            self.steps.note(HAND_SCATTER, arguments, {})
        masked = mask()
        if self.steps is not None:
            self.steps.made(masked)
        return masked

    def _noted(self, func: Any, args: Any, kwargs: Any) -> Any:
        if self.steps is None:
            return self._result(func, args, kwargs)
        self.steps.note(func, args, kwargs)
        result = self._result(func, args, kwargs)
        if func is Tensor.__iter__:
            result = list(result)
        self.steps.made(result)
        return iter(result) if func is Tensor.__iter__ else result

    def _result(self, func: Any, args: Any, kwargs: Any) -> Any:
        if isinstance(self.tracker, RowTracker) and (name := kernel_name(func)) is not None:
            rule, rewrite = find(func), self.on_call
            result = func(*args, **kwargs) if rule is None or rewrite is None else rewrite(rule, func, args, kwargs)
            if self.tracker.get(result) is None:
                self.tracker.lose(name, (*args, *kwargs.values()), result)
            return result
        if not self.replaces:
            return func(*args, **kwargs)
        if self.on_sum is not None and func in self.summing:
            return self.on_sum(func, args, kwargs)
        rule = find(func)
        if func in SOFTMAX_STEPS and sys._getframe(3).f_code is SOFTMAX:
            rule, func = softmax_step(func, presence=self.on_sum is not None)
        if rule is not None and self.on_call is not None:
            return self.on_call(rule, func, args, kwargs)
        return func(*args, **kwargs)
