"""The tensors of a replay whose gradients are shares, and products that take no more memory than they must.

A tensor of more than some megabytes takes longer to allocate than to fill: the system hands out pages that it clears
first, and takes them back when the tensor is gone.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from captum_goat.tracking.tape import Tape


class ScaledLeaf(NamedTuple):
    """A tensor of a replay whose gradient tells the shares of variables that are its factors.

    It is the variables themselves, scaled by t. Or it is a result that has them as factors: then the derivative with
    respect to their scale is that with respect to the result, times the result, divided by t.
    """

    tensor: Tensor
    shape: torch.Size | None = None  # of the variables, if it is a result
    t: float = 1.0


@cache
def keep_freed_memory() -> None:
    """Let glibc keep the memory that replays free, so that the next replay need not get it from the system again.

    The system clears all memory that it hands out, which can take a quarter of the time of an explanation. glibc
    returns free memory above a limit: twice the size of the largest block that was ever freed, if that was at most
    32 MB. Freeing one large block, which is never written to, raises the limit for the life of the process.
    """
    torch.empty(31 << 20, dtype=torch.uint8, device="cpu")


class Buffers:
    """Memory that is used again in all replays of a tape."""

    def __init__(self, tape: Tape | None) -> None:
        keep_freed_memory()
        self._memory: dict[torch.dtype, Tensor] = {}
        self.overwritable = frozenset[int]() if tape is None else tape.overwritable()

    def add_share(
        self, total: Tensor | None, gradient: Tensor | None, leaf: ScaledLeaf, weight: float, dtype: torch.dtype
    ) -> Tensor | None:
        """Add shares to their total: derivatives with respect to variables, or to their scales, times a weight."""
        if gradient is None:
            return total
        if leaf.shape is None:
            part = gradient.to(dtype) * weight
            return part if total is None else total.add_(part)
        memory = self._memory.get(gradient.dtype)
        if memory is None or memory.numel() < gradient.numel():
            memory = self._memory[gradient.dtype] = gradient.new_empty(gradient.numel())
        product = torch.mul(gradient, leaf.tensor.detach(), out=memory[: gradient.numel()].view(gradient.shape))
        part = product.sum_to_size(leaf.shape).to(dtype)
        weight /= leaf.t
        return part * weight if total is None else total.add_(part, alpha=weight)


def as_leaf(tensor: Tensor) -> Tensor:
    """Return a tensor, which is a leaf of the replay if nothing that it depends on is one."""
    return tensor if tensor.requires_grad else tensor.requires_grad_()


def gated(value: Tensor, gates: Tensor, scale: Tensor | float, *, in_place: bool) -> Tensor:
    """Return the product of values, gates and scales; ``in_place`` if nothing else needs the values."""
    product: Tensor = _Gated.apply(value, gates, scale, in_place and value.shape == gates.shape)  # type: ignore[no-untyped-call]
    return product


class _Gated(torch.autograd.Function):
    """The product, with one new tensor at most."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, gates: Tensor, scale: Tensor | float, in_place: bool) -> Tensor:
        ctx.save_for_backward(gates)
        ctx.scale = scale
        if in_place:
            ctx.mark_dirty(value)
        return _product(value, gates, scale, out=value if in_place else None)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        return _product(gradient, ctx.saved_tensors[0], ctx.scale), None, None, None


def _product(value: Tensor, gates: Tensor, scale: Tensor | float, out: Tensor | None = None) -> Tensor:
    """Return the product, in one pass over the values if they all have the same scale."""
    if isinstance(scale, Tensor):
        return torch.mul(value, gates, out=out).mul_(scale)
    return torch.addcmul(value.new_zeros(()), value, gates, value=scale, out=out)
