"""What is known of the operations of torch, looked up once for each of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

aten = torch.ops.aten


def named(names: str) -> frozenset[Any]:
    """Return the operations of these names, in place or not."""
    both = [name + end for name in names.split() for end in ("", "_")]
    return frozenset(getattr(aten, name) for name in both if hasattr(aten, name))


# Results that depend on the shape of the argument at most, not on its values.
_FACTORIES = frozenset(
    {
        *(getattr(aten, f"{kind}_like") for kind in ("zeros", "ones", "empty", "full")),
        *(getattr(aten, f"new_{kind}") for kind in ("zeros", "ones", "empty", "full", "empty_strided")),
    }
)
# Operations that replace the whole of their first argument.
_OVERWRITES = frozenset({aten.copy_, aten.fill_, aten.zero_})

_PUTS = named("index_put")
_SCATTERS = _PUTS | named("scatter_add index_add scatter_reduce scatter index_copy")
_SUMS = named("scatter_add index_add scatter_reduce")
_GATHERS = named("index index_select gather")
_MATRIX_PRODUCTS = named("mm bmm addmm baddbmm mv _sparse_mm _sparse_addmm _linalg_solve_ex linalg_solve_triangular")
_LOOKUPS = named("_scaled_dot_product_flash_attention_for_cpu _embedding_bag _embedding_bag_forward_only")
_REDUCTIONS = named("sum mean amax amin max min prod cumsum segment_reduce")
_MASKINGS = named("mul where masked_fill")
_ADDITIONS = named("add sub")


class Operation(NamedTuple):
    """What is known of an operation."""

    packet: Any  # the operation, whatever its arguments
    pointwise: bool  # whether it works entry by entry
    mutable: bool  # whether it changes an argument
    random: bool  # whether it may draw random numbers
    factory: bool  # whether its result depends on shapes at most
    overwrites: bool  # whether it replaces the whole of its first argument
    puts: bool  # whether it is an ``index_put``
    scatters: bool  # whether it writes to places that an index names
    sums: bool  # whether it adds up at places that an index names
    gathers: bool  # whether it reads from places that an index names
    multiplies: bool  # whether it multiplies matrices
    looks_up: bool  # whether it does so on the way to something else
    reduces: bool  # whether it sums up, or the like, along dimensions
    masks: bool  # whether it can leave entries out, by a factor or a condition
    adds: bool  # whether it adds entry by entry


_known: dict[int, tuple[Any, Operation]] = {}  # with the function, so that its id stays its own


def operation_of(func: Any) -> Operation:
    """Return what is known of a function that a dispatch mode sees."""
    if (found := _known.get(id(func))) is not None:
        return found[1]
    packet = func.overloadpacket
    operation = Operation(
        packet,
        pointwise=torch.Tag.pointwise in func.tags,
        mutable=func._schema.is_mutable,
        random=torch.Tag.nondeterministic_seeded in func.tags,
        factory=packet in _FACTORIES,
        overwrites=packet in _OVERWRITES,
        puts=packet in _PUTS,
        scatters=packet in _SCATTERS,
        sums=packet in _SUMS,
        gathers=packet in _GATHERS,
        multiplies=packet in _MATRIX_PRODUCTS,
        looks_up=packet in _LOOKUPS,
        reduces=packet in _REDUCTIONS,
        masks=packet in _MASKINGS,
        adds=packet in _ADDITIONS,
    )
    _known[id(func)] = func, operation
    return operation
