"""Keep what a model sets on itself while it runs from staying there."""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from typing import Any

import torch
from torch.nn import Module


def modules_of(model: Module) -> dict[str, Module]:
    """Return the modules of a model by their paths: ``named_modules``, which takes its time in every call."""
    modules, seen, waiting = dict[str, Module](), set[int](), [("", model)]
    while waiting:
        path, module = waiting.pop()
        if id(module) not in seen:
            seen.add(id(module))
            modules[path] = module
            inside = module._modules.items()
            waiting += [(f"{path}.{name}" if path else name, child) for name, child in inside if child is not None][
                ::-1
            ]
    return modules


class ModelState:
    """The attributes and buffers of a model's modules.

    A forward may keep results for later, as a cache or for a look at them, and may count calls. Runs with masked edges
    must leave none of that behind. Modules with hooks are left alone: what hooks keep, such as those of Captum's
    DeepLift, is for whoever has put them there.

    Args:
        modules: All modules of the model.
    """

    def __init__(self, modules: Sequence[Module]) -> None:
        own = [module for module in modules if not module._forward_hooks and not module._forward_pre_hooks]
        self._attributes = [(module, dict(vars(module)), dict(module._buffers)) for module in own]
        buffers = {id(each): each for module in modules for each in module._buffers.values() if each is not None}
        self._values = [(buffer, buffer._version, buffer.detach().clone()) for buffer in buffers.values()]

    def restore(self, *, failed: bool) -> None:
        """Give attributes and buffers back the values that they had.

        Args:
            failed: Whether the model did not run to its end. Torch may not have noted then what was written to.
        """
        for module, before, tensors in self._attributes:
            _restore(vars(module), before)
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
