"""The rules for operations of torch and torch_geometric, registered when the package is imported."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from types import FunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.utils import softmax

from captum_goat.rules.activation_gates import gated
from captum_goat.rules.call_arguments import input_of, is_inplace
from captum_goat.rules.registry import Keep, Rule, frozen_result, register, rule

Arguments = tuple[Any, ...]
Keywords = dict[str, Any]


def spellings(*names: str) -> tuple[Any, ...]:
    """Return the functions of these names, in place or not, wherever torch has them."""
    places = (torch, Tensor, F, torch.special, torch.linalg)
    found = [getattr(place, name + end, None) for place in places for name in names for end in ("", "_")]
    return tuple({each for each in found if callable(each)})


# Element-wise functions through the origin, with a kink there or not: out = P * in.
_ACTIVATIONS = """leaky_relu prelu elu selu celu gelu silu mish hardswish softsign tanh tanhshrink hardshrink
softshrink abs absolute relu6"""
# Smooth ones that are not 0 at 0: out = f(0) + P * in.
_SMOOTH = "hardsigmoid softplus"
# With bounds that decide what they are at 0.
_BOUNDED = "hardtanh clamp_max"

FROZEN = Rule(frozen_result, cuts=True)

register(spellings(*_ACTIVATIONS.split()), Rule(partial(gated, passes_zero=True), unary=True))
register(spellings(*_SMOOTH.split()), Rule(partial(gated, smooth=True), unary=True))
register(spellings("sigmoid", "expit", "logsigmoid"), Rule(partial(gated, smooth=True), squashes=True, unary=True))
register(spellings(*_BOUNDED.split()), Rule(gated, unary=True))
register(spellings("softmax", "_softmax"), Rule(frozen_result, squashes=True, cuts=True))
register(spellings("softmin"), FROZEN)
register(spellings("log_softmax"), Rule(None, squashes=True))


def relu(keep: Keep, func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> Tensor:
    """Rewrite a ReLU: P is 1 where it lets its input pass."""

    def gated(value: Tensor) -> Tensor:
        return value * keep(lambda: (value > 0).to(value.dtype), gate=True, reads=lambda: value)

    return relu_as(gated, func, args, kwargs)


def relu_as(gate: Callable[[Tensor], Tensor], func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> Tensor:
    """Do something else in place of a ReLU, in place if it is."""
    value: Tensor = input_of(args, kwargs)
    if is_inplace(func, args, kwargs):
        return value.copy_(gate(value.clone()))
    return gate(value)


def _clamp(keep: Keep, func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> Tensor:
    low = args[1] if len(args) > 1 else kwargs.get("min")
    high = args[2] if len(args) > 2 else kwargs.get("max")
    return (relu if _is_zero(low) and high is None else gated)(keep, func, args, kwargs)


def _threshold(keep: Keep, func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> Tensor:
    bounds = [*args[1:3], *(kwargs[key] for key in ("threshold", "value") if key in kwargs)]
    return (relu if all(_is_zero(bound) for bound in bounds) else gated)(keep, func, args, kwargs)


def _is_zero(bound: Any) -> bool:
    return isinstance(bound, int | float) and bound == 0


register((nn.ReLU, *spellings("relu")), Rule(relu, unary=True))
register(spellings("clamp", "clip", "clamp_min"), Rule(_clamp, unary=True))
register(spellings("threshold"), Rule(_threshold, unary=True))


def _rrelu(keep: Keep, func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> Tensor:
    if kwargs.get("training", args[3] if len(args) > 3 else False):
        result: Tensor = func(*args, **kwargs)  # random, and refused as such
        return result
    return gated(keep, func, args, kwargs, passes_zero=True)


register(spellings("rrelu"), Rule(_rrelu, unary=True))


@rule(F.glu)
def _glu(keep: Keep, input: Tensor, dim: int = -1) -> Tensor:
    value, open_ = input.chunk(2, dim)
    return value * gated(keep, torch.sigmoid, (open_,), {}, smooth=True)


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


@rule(F.scaled_dot_product_attention)
def _attention(
    keep: Keep,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    if enable_gqa:
        times = query.size(-3) // key.size(-3)
        key, value = (each.repeat_interleave(times, -3) for each in (key, value))

    def weights() -> Tensor:
        scores = query @ key.transpose(-2, -1) * (1 / math.sqrt(query.size(-1)) if scale is None else scale)
        allowed = attn_mask
        if is_causal:
            allowed = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        if allowed is not None and allowed.dtype == torch.bool:
            scores = scores.masked_fill(~allowed, -math.inf)
        elif allowed is not None:
            scores = scores + allowed
        return scores.softmax(-1)

    def reads() -> Tensor:
        seen = query.sum(-1, keepdim=True) + key.sum((-2, -1), keepdim=True)
        return seen if attn_mask is None or attn_mask.dtype == torch.bool else seen + attn_mask.sum(-1, keepdim=True)

    return keep(weights, reads=reads) @ value


def size_position(func: Callable[..., Any], args: Arguments, kwargs: Keywords, is_size: Sequence[bool]) -> int | None:
    """Return which argument of a multiplication or division is to be frozen, given which are sizes."""
    if len(args) != 2 or kwargs or sum(is_size) != 1:
        return None
    position = list(is_size).index(True)
    return None if _divides(func) and position == 0 else position


def frozen_size(keep: Keep, func: Callable[..., Any], args: Arguments, kwargs: Keywords, position: int) -> Tensor:
    """Multiply or divide by a size as by a constant."""
    size, other = args[position], args[1 - position]
    inplace = is_inplace(func, args, kwargs) or func.__name__.startswith("__i")
    out: Tensor = (other.clone() if inplace else other) * keep(lambda: 1 / size if _divides(func) else size)
    return args[0].copy_(out) if inplace else out


def _divides(func: Callable[..., Any]) -> bool:
    return "div" in func.__name__


FACTORS = Rule(None)
_PRODUCTS = "mul multiply __mul__ __rmul__ __imul__ div divide true_divide __truediv__ __itruediv__ __div__ __idiv__"
register(spellings(*_PRODUCTS.split()), FACTORS)
# The sparse softmax of torch_geometric is a division in the end; its parts would not do.
SOFTMAX = inspect.unwrap(softmax).__code__
# Where the presence of edges enters its sum, its exponentials are what is frozen, and its division is done.
EXPONENTIAL = Rule(frozen_result, cuts=True)
QUOTIENT = Rule(frozen_result, cuts=True)


# What takes values out of torch: seen, in case that the sum of the attributions is wrong.
LEAVES = Rule(None)
register(tuple(getattr(Tensor, name) for name in ("item", "tolist", "numpy", "__float__", "__int__")), LEAVES)


@cache
def stepped_into(func: Callable[..., Any]) -> Callable[..., Any] | None:
    """Return the body of a function that torch hides from function modes."""
    if func not in (F.normalize, F.multi_head_attention_forward):
        return None
    visible = {name: _nothing_overrides for name in func.__globals__ if name.startswith("has_torch_function")}
    body = FunctionType(func.__code__, func.__globals__ | visible, func.__name__, func.__defaults__, func.__closure__)
    body.__kwdefaults__ = func.__kwdefaults__
    return body


def _nothing_overrides(*_: Any) -> bool:
    return False
