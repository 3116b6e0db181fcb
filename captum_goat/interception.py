"""Step into a model's activations and messages while it runs, and leave no trace.

This is the only module that puts anything on the user's model, and everything comes off when the context ends,
whether the model succeeded or raised.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Module
from torch.overrides import TorchFunctionMode
from torch_geometric.nn import MessagePassing

from captum_goat.tracking import UnsupportedModelError

# Called with the input of a ReLU; returns its output.
OnGate = Callable[[Tensor], Tensor]
# Called with a softmax, log-softmax or sigmoid and its arguments; returns its output.
OnSquash = Callable[[Callable[..., Tensor], tuple[Any, ...], dict[str, Any]], Tensor]
# Called with the layer, the `edge_index` of its `propagate` call and its messages; returns the messages.
OnMessage = Callable[[MessagePassing, Any, Tensor], Tensor]

# Two threads that explain at once would trip over each other's hooks.
_one_at_a_time = threading.RLock()

_RELUS = frozenset({F.relu, torch.relu, torch.relu_, Tensor.relu, Tensor.relu_})
_CLAMPS = frozenset(
    {
        *(getattr(torch, name) for name in ("clamp", "clamp_", "clip", "clip_")),
        *(getattr(Tensor, name) for name in ("clamp", "clamp_", "clip", "clip_")),
    }
)
_INPLACE = {F.relu: 1, F.threshold: 3}  # where these take `inplace`
_CLAMP_MINS = frozenset({torch.clamp_min, torch.clamp_min_, Tensor.clamp_min, Tensor.clamp_min_})
_SQUASHES = frozenset(
    {
        *(getattr(F, name) for name in ("softmax", "log_softmax", "sigmoid", "logsigmoid")),
        *(getattr(torch, name) for name in ("softmax", "log_softmax", "sigmoid")),
        *(getattr(Tensor, name) for name in ("softmax", "log_softmax", "sigmoid")),
        torch.special.softmax,
        torch.special.log_softmax,
        torch.special.expit,
    }
)


@contextmanager
def intercepted(
    model: Module,
    *,
    on_message: OnMessage | None = None,
    on_gate: OnGate | None = None,
    on_squash: OnSquash | None = None,
    on_layer: Callable[[tuple[Any, ...]], None] | None = None,
    around_propagate: Callable[[int], None] | None = None,
) -> Iterator[None]:
    """Run ``on_gate`` in place of every ReLU and ``on_message`` after every message function of the model.

    Args:
        model: The user's model.
        on_message: See :data:`OnMessage`; layers with ``explain=False`` are left alone, as in PyG.
        on_gate: See :data:`OnGate`; ``None`` leaves ReLUs alone.
        on_squash: See :data:`OnSquash`; only together with ``on_gate``.
        on_layer: Called with the arguments of every message passing layer before it runs.
        around_propagate: Called with 1 when message passing begins and with -1 when it ends.
    """
    _check(model)
    with _one_at_a_time, ExitStack() as stack:
        for name, module in model.named_modules():
            if isinstance(module, MessagePassing) and module.explain is not False:
                _hook_messages(stack, name, module, on_message, around_propagate)
                if on_layer is not None:
                    _hook_layer(stack, module, on_layer)
        if on_gate is not None:
            mode = _GateMode(on_gate, on_squash)
            for module in model.modules():
                if type(module) is torch.nn.ReLU:
                    _hook_relu(stack, module, mode)
            stack.enter_context(mode)
        yield


def _check(model: Module) -> None:
    """Refuse models whose inside cannot be seen or is not their own."""
    for name, module in model.named_modules():
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


def _in_this_thread(hook: Callable[..., Any]) -> Callable[..., Any]:
    """Keep a hook out of what the model does in other threads, for somebody else."""
    owner = threading.get_ident()

    def guarded(*args: Any) -> Any:
        return hook(*args) if threading.get_ident() == owner else None

    return guarded


def _cache_names(module: Module) -> list[str]:
    return [f"`{key}`" for key, value in vars(module).items() if key.startswith("_cached") and value is not None]


def _hook_messages(
    stack: ExitStack,
    name: str,
    layer: MessagePassing,
    on_message: OnMessage | None,
    around_propagate: Callable[[int], None] | None,
) -> None:
    edge_indices: list[Any] = []

    @_in_this_thread
    def begin(_: MessagePassing, inputs: tuple[Any, ...]) -> None:
        edge_indices.append(inputs[0])
        if around_propagate is not None:
            around_propagate(1)

    @_in_this_thread
    def mask(_: MessagePassing, inputs: tuple[Any, ...], messages: Any) -> Tensor:
        assert on_message is not None
        if not isinstance(messages, Tensor):
            raise UnsupportedModelError(
                f"GOAt masks messages that are one tensor (got {type(messages).__name__} from '{name}')."
            )
        return on_message(layer, edge_indices[-1], messages)

    @_in_this_thread
    def end(_: MessagePassing, inputs: tuple[Any, ...], out: Any) -> None:
        edge_indices.pop()
        if around_propagate is not None:
            around_propagate(-1)

    stack.callback(layer.register_propagate_forward_pre_hook(begin).remove)
    if on_message is not None:
        stack.callback(layer.register_message_forward_hook(mask).remove)
    stack.callback(layer.register_propagate_forward_hook(end).remove)
    stack.callback(setattr, layer, "fuse", layer.fuse)
    layer.fuse = False  # fused kernels have no messages to mask


def _hook_layer(stack: ExitStack, layer: MessagePassing, on_layer: Callable[[tuple[Any, ...]], None]) -> None:
    @_in_this_thread
    def begin(_: MessagePassing, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        on_layer((*args, *kwargs.values()))

    stack.callback(layer.register_forward_pre_hook(begin, with_kwargs=True).remove)


def _hook_relu(stack: ExitStack, relu: torch.nn.ReLU, mode: _GateMode) -> None:
    inputs: list[Tensor] = []

    @_in_this_thread
    def before(module: torch.nn.ReLU, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        value = args[0] if args else kwargs["input"]
        inputs.append(value)
        mode.passing += 1
        # An in-place ReLU would overwrite the input that its gates need: let it have a copy.
        return (value.detach().clone() if module.inplace else value,), {}

    @_in_this_thread
    def after(module: torch.nn.ReLU, args: tuple[Any, ...], out: Tensor) -> Tensor:
        value = inputs.pop()
        gated = mode.on_gate(value)
        mode.passing -= 1
        return value.copy_(gated) if module.inplace else gated

    stack.callback(relu.register_forward_pre_hook(before, with_kwargs=True).remove)
    # First of all hooks, so that what the user's own hooks do to the output is done to the gates' output.
    stack.callback(relu.register_forward_hook(after, prepend=True).remove)


class _GateMode(TorchFunctionMode):
    """Run callbacks in place of every functional spelling of ReLU, and of what squashes outputs."""

    def __init__(self, on_gate: OnGate, on_squash: OnSquash | None) -> None:
        super().__init__()
        self.on_gate = on_gate
        self.on_squash = on_squash
        self.passing = 0  # inside an nn.ReLU, whose hooks do the work

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.on_squash is not None and func in _SQUASHES:
            return self.on_squash(func, args, kwargs)
        if self.passing or not is_relu(func, args, kwargs):
            return func(*args, **kwargs)
        tensor = args[0] if args else kwargs["input"]
        gated = self.on_gate(tensor)
        position = _INPLACE.get(func)
        inplace = func.__name__[-1] == "_"
        if position is not None:
            inplace = args[position] if len(args) > position else kwargs.get("inplace", False)
        # In place means in place: some code goes on with the tensor and drops what is returned.
        return tensor.copy_(gated) if inplace else gated


def is_relu(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether a call of a torch function is a ReLU in some spelling."""
    if func in _RELUS:
        return True
    if func in _CLAMP_MINS:
        return _is_zero(args[1] if len(args) > 1 else kwargs.get("min"))
    if func in _CLAMPS:
        low = args[1] if len(args) > 1 else kwargs.get("min")
        high = args[2] if len(args) > 2 else kwargs.get("max")
        return _is_zero(low) and high is None and "out" not in kwargs
    if func is F.threshold:
        bounds = [*args[1:3], *(kwargs[key] for key in ("threshold", "value") if key in kwargs)]
        return all(_is_zero(bound) for bound in bounds)
    return False


def _is_zero(bound: Any) -> bool:
    return isinstance(bound, int | float) and bound == 0
