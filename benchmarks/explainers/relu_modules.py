"""ReLU modules in place of a model's ReLU functions, so that module hooks see them."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Module, ModuleList, ReLU
from torch.overrides import TorchFunctionMode

from captum_goat.rules.operations import input_of, is_inplace

RELUS = frozenset({F.relu, F.relu_, torch.relu, torch.relu_, Tensor.relu, Tensor.relu_})


class WithReLUModules(Module):
    """A function in which every ReLU is a call of an ``nn.ReLU`` module of its own.

    Args:
        function: A module; called as it is.
        example: An argument for it, to count its ReLUs.

    Examples::

        >>> import torch
        >>> from benchmarks.explainers.relu_modules import WithReLUModules
        >>> class Twice(torch.nn.Module):
        ...     def forward(self, x):
        ...         return torch.relu(x.relu() - 1)
        >>> function = WithReLUModules(Twice(), torch.ones(2))
        >>> function.relus
        ModuleList(
          (0-1): 2 x ReLU()
        )
        >>> function(torch.tensor([3.0, 0.5]))
        tensor([2., 0.])
    """

    def __init__(self, function: Module, example: Tensor) -> None:
        super().__init__()
        self.function = function
        self.relus = ModuleList()
        mode = _ReLUMode(self.relus)
        with torch.no_grad(), mode:
            function(example)
        self.relus.extend(ReLU() for _ in range(mode.calls))

    def forward(self, *args: Any) -> Any:
        """Call the function."""
        with _ReLUMode(self.relus):
            return self.function(*args)


class _ReLUMode(TorchFunctionMode):
    """Replace calls of ReLU functions by calls of modules in order; only count the calls if there are none."""

    def __init__(self, modules: ModuleList) -> None:
        super().__init__()
        self.modules = modules
        self.calls = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func not in RELUS:
            return func(*args, **kwargs)
        number, value = self.calls, input_of(args, kwargs)
        self.calls += 1
        if not self.modules:
            return func(*args, **kwargs)
        # A function may start over (a masked model does, if a recorded program does not fit): any module serves a call.
        out = self.modules[number % len(self.modules)](value)
        return value.copy_(out) if is_inplace(func, args, kwargs) else out
