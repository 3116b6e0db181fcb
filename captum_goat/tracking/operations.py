"""Properties of torch's operations, looked up once per operation."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

aten = torch.ops.aten


def named(names: str) -> frozenset[Any]:
    """Return the operations with these names, in place or not."""
    both = [name + end for name in names.split() for end in ("", "_")]
    return frozenset(getattr(aten, name) for name in both if hasattr(aten, name))


_KINDS = {  # the operations for which each of the last fields of an Operation is true
    "factory": named("zeros_like ones_like empty_like full_like new_zeros new_ones new_empty new_full")
    | {aten.new_empty_strided},
    "overwrites": frozenset({aten.copy_, aten.fill_, aten.zero_}),
    "puts": named("index_put"),
    "scatters": named("index_put scatter_add index_add scatter_reduce scatter index_copy"),
    "sums": named("scatter_add index_add scatter_reduce"),
    "gathers": named("index index_select gather"),
    "multiplies": named("mm bmm addmm baddbmm mv _sparse_mm _sparse_addmm _linalg_solve_ex linalg_solve_triangular"),
    "looks_up": named("_scaled_dot_product_flash_attention_for_cpu _embedding_bag _embedding_bag_forward_only"),
    "reduces": named("sum mean amax amin max min prod cumsum segment_reduce"),
    "masks": named("mul where masked_fill"),
    "adds": named("add sub"),
    "stores": named("indices _indices col_indices crow_indices values _values _coalesced _coalesce")
    | named("sparse_compressed_tensor _sparse_compressed_tensor_unsafe _sparse_coo_tensor_with_dims_and_tensors"),
}


class Operation(NamedTuple):
    """The properties of an operation."""

    packet: Any  # the operation with all its overloads
    pointwise: bool  # whether it works entry by entry
    mutable: bool  # whether it changes an argument
    random: bool  # whether it may draw random numbers
    factory: bool  # whether its result depends on shapes at most, not on values
    overwrites: bool  # whether it replaces its whole first argument
    puts: bool  # whether it is an ``index_put``
    scatters: bool  # whether it writes to positions that an index names
    sums: bool  # whether it adds at positions that an index names
    gathers: bool  # whether it reads from positions that an index names
    multiplies: bool  # whether it multiplies matrices
    looks_up: bool  # whether it multiplies matrices as a part of something else
    reduces: bool  # whether it reduces dimensions, by a sum for example
    masks: bool  # whether it can leave out entries, by a factor or a condition
    adds: bool  # whether it adds entry by entry
    stores: bool  # whether it makes a sparse matrix, or takes one apart


_known: dict[int, tuple[Any, Operation]] = {}  # by the id of the function, which is kept alive so that no other gets it


def operation_of(func: Any) -> Operation:
    """Return the properties of a function that a dispatch mode sees."""
    if (known := _known.get(id(func))) is not None:
        return known[1]
    packet, tags = func.overloadpacket, func.tags
    pointwise, random = torch.Tag.pointwise in tags, torch.Tag.nondeterministic_seeded in tags
    kinds = {kind: packet in operations for kind, operations in _KINDS.items()}
    operation = Operation(packet, pointwise, func._schema.is_mutable, random, **kinds)
    _known[id(func)] = func, operation
    return operation
