"""Rules for norms: the scale that depends on the input is frozen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from captum_goat.rules.operations import Arguments, Keywords, bind, input_of, ratio
from captum_goat.rules.registry import Keep, Rule, register


def scale(*operations: Any) -> None:
    """Make ``out / in`` a frozen factor: for norms that only scale their input.

    Args:
        *operations: Classes of modules, or functions of torch, with what is scaled as first argument.

    Examples:
        >>> import torch
        >>> from captum_goat import rules
        >>> class SoftNorm(torch.nn.Module):
        ...     def forward(self, x):
        ...         return x / torch.log1p(x.square().sum(dim=-1, keepdim=True).exp())
        >>> rules.scale(SoftNorm)
        >>> rules.forget(SoftNorm)
    """

    def rewrite(keep: Keep, func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> Any:
        value = input_of(args, kwargs)
        return value * keep(lambda: ratio(func(*args, **kwargs), value))

    register(operations, Rule(rewrite))


def _layer_norm(keep: Keep, func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> Tensor:
    """Rewrite a layer norm or, if the mean is not subtracted, an RMS norm."""
    centred = "rms" not in func.__name__
    names = ("weight", "bias", "eps") if centred else ("weight", "eps")
    given = bind(("input", "normalized_shape", *names), args, kwargs)
    value, eps = given["input"], given.get("eps")
    least = eps if eps is not None else 1e-5 if centred else torch.finfo(value.dtype).eps
    dims = list(range(-len(given["normalized_shape"]), 0))
    return _affine(_standardized(keep, value, dims, least, centred=centred), given.get("weight"), given.get("bias"))


def _group_norm(keep: Keep, func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> Tensor:
    given = bind(("input", "num_groups", "weight", "bias", "eps"), args, kwargs)
    value = given["input"]
    groups = value.reshape(value.size(0), given["num_groups"], -1)
    normal = _standardized(keep, groups, [-1], given.get("eps", 1e-5)).reshape(value.shape)
    return _affine(normal, *_per_channel(given))


_INSTANCES = (F.instance_norm, torch.instance_norm)


def _given(func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> Keywords:
    """Return the arguments of a batch or instance norm by their names."""
    statistics, parameters = ("running_mean", "running_var"), ("weight", "bias")
    functional = func in (F.batch_norm, F.instance_norm)
    order = (*statistics, *parameters) if functional else (*parameters, *statistics)
    return bind(("input", *order, "training", "momentum", "eps"), args, kwargs)


def _computes_statistics(func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> bool:
    """Return whether a norm computes statistics of its input; with running ones it is linear."""
    given = _given(func, args, kwargs)
    return bool(given.get("training", given.get("use_input_stats", func in _INSTANCES)))


def _statistics_norm(keep: Keep, func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> Tensor:
    """Rewrite a batch or instance norm with a frozen scale."""
    given = _given(func, args, kwargs)
    value = given["input"]
    dims = [d for d in range(value.dim()) if d != 1 and not (func in _INSTANCES and d == 0)]
    return _affine(_standardized(keep, value, dims, given.get("eps", 1e-5)), *_per_channel(given))


register((F.layer_norm, torch.layer_norm, F.rms_norm, torch.rms_norm), Rule(_layer_norm))
register((F.group_norm, torch.group_norm), Rule(_group_norm))
register((*_INSTANCES, F.batch_norm, torch.batch_norm), Rule(_statistics_norm, when=_computes_statistics))


def _standardized(keep: Keep, value: Tensor, dims: list[int], eps: float, *, centred: bool = True) -> Tensor:
    """Return the value less its mean, over its frozen standard deviation."""
    value = value - value.mean(dims, keepdim=True) if centred else value
    return value * keep(lambda: (value.square().mean(dims, keepdim=True) + eps).rsqrt())


def _per_channel(given: Keywords) -> list[Tensor | None]:
    """Return the weight and bias of a norm whose channels are dimension 1."""
    shape = [-1] + [1] * (given["input"].dim() - 2)
    parameters = given.get("weight"), given.get("bias")
    return [None if parameter is None else parameter.view(shape) for parameter in parameters]


def _affine(value: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    value = value if weight is None else value * weight
    return value if bias is None else value + bias
