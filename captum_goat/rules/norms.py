"""Rules for norms: the scale that depends on the input is frozen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from captum_goat.rules.operations import Arguments, Keywords, input_of, ratio
from captum_goat.rules.registry import Keep, Rule, register, rule


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


@rule(F.layer_norm, torch.layer_norm)
def _layer_norm(
    keep: Keep,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    dims = list(range(-len(normalized_shape), 0))
    return _affine(_standardized(keep, input, dims, eps), weight, bias)


@rule(F.rms_norm, torch.rms_norm)
def _rms_norm(
    keep: Keep, input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    dims = list(range(-len(normalized_shape), 0))
    least = torch.finfo(input.dtype).eps if eps is None else eps
    return _affine(input * keep(lambda: (input.square().mean(dims, keepdim=True) + least).rsqrt()), weight, None)


@rule(F.group_norm, torch.group_norm)
def _group_norm(
    keep: Keep,
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:
    groups = input.reshape(input.size(0), num_groups, -1)
    normal = _standardized(keep, groups, [-1], eps).reshape(input.shape)
    return _affine(normal, _per_channel(weight, input), _per_channel(bias, input))


_INSTANCES = (F.instance_norm, torch.instance_norm)


def _given(func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> Keywords:
    """Return the arguments of a batch or instance norm by their names."""
    statistics, parameters = ("running_mean", "running_var"), ("weight", "bias")
    functional = func in (F.batch_norm, F.instance_norm)
    order = (*statistics, *parameters) if functional else (*parameters, *statistics)
    return dict(zip(("input", *order, "training", "momentum", "eps"), args, strict=False)) | kwargs


def _computes_statistics(func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> bool:
    """Return whether a norm computes statistics of its input; with running ones it is linear."""
    given = _given(func, args, kwargs)
    return bool(given.get("training", given.get("use_input_stats", func in _INSTANCES)))


def _statistics_norm(keep: Keep, func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> Tensor:
    """Rewrite a batch or instance norm with a frozen scale."""
    given = _given(func, args, kwargs)
    value = given["input"]
    dims = [d for d in range(value.dim()) if d != 1 and not (func in _INSTANCES and d == 0)]
    normal = _standardized(keep, value, dims, given.get("eps", 1e-5))
    return _affine(normal, _per_channel(given.get("weight"), value), _per_channel(given.get("bias"), value))


register((*_INSTANCES, F.batch_norm, torch.batch_norm), Rule(_statistics_norm, when=_computes_statistics))


def _standardized(keep: Keep, value: Tensor, dims: list[int], eps: float) -> Tensor:
    """Return the value less its mean, over its frozen standard deviation."""
    centred = value - value.mean(dims, keepdim=True)
    return centred * keep(lambda: (centred.square().mean(dims, keepdim=True) + eps).rsqrt())


def _per_channel(parameter: Tensor | None, value: Tensor) -> Tensor | None:
    return None if parameter is None else parameter.view([-1] + [1] * (value.dim() - 2))


def _affine(value: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    value = value if weight is None else value * weight
    return value if bias is None else value + bias
