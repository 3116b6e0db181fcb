"""Restore the attributes and buffers that a model changes while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from typing import Any

import torch
from torch.nn import Module


def modules_of(model: Module) -> list[Module]:
    """Return the modules of a model: a fast ``modules()``."""
    modules, waiting = dict[Module, None](), [model]
    while waiting:
        module = waiting.pop()
        if module not in modules:
            modules[module] = None
            if children := module._modules:
                waiting += [child for child in reversed(children.values()) if child is not None]
    return list(modules)


def path_of(model: Module, module: Module) -> str:
    """Return the path of a module in a model, for messages."""
    path = next((name for name, other in model.named_modules() if other is module), "")
    return f"'{path}'" if path else "the model"


class ModelState:
    """The attributes and buffers of a model's modules.

    A forward may cache results and count calls, which runs with masked edges must not change. Attributes of modules
    with hooks are not restored: hooks such as those of Captum's DeepLift keep values there on purpose.
    """

    def __init__(self, modules: Sequence[Module]) -> None:
        own = [module for module in modules if not module._forward_hooks and not module._forward_pre_hooks]
        self._attributes = [(module, dict(vars(module)), dict(module._buffers)) for module in own]
        tensors = [buffer for module in modules for buffer in module._buffers.values() if buffer is not None]
        buffers = {id(buffer): buffer for buffer in tensors}
        with torch.no_grad():
            self._values = [(buffer, buffer._version, buffer.clone()) for buffer in buffers.values()]

    def restore(self, *, failed: bool) -> None:
        """Restore the values; an operation that failed may have changed a buffer but not its version."""
        for module, before, tensors in self._attributes:
            _restore(vars(module), before)
            if tensors or module._buffers:
                _restore(module._buffers, tensors)
        with torch.no_grad():
            for buffer, version, value in self._values:
                if buffer._version != version or (failed and not torch.equal(buffer, value)):
                    buffer.copy_(value)


def _restore(now: dict[str, Any], before: dict[str, Any]) -> None:
    if len(now) == len(before) and all(map(is_, now.values(), before.values())):
        return
    for name in [name for name in now if name not in before]:
        del now[name]
    for name, value in before.items():
        if now.get(name) is not value or name not in now:
            now[name] = value
