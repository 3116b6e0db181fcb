"""Edges in torch's sparse matrices: one edge per stored entry, in the order of the matrix.

A sparse matrix has the trace of its edges. The rules here hand it on to the tensors of indices that are taken out of
the matrix, and from such tensors to matrices that are made of them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.utils import to_edge_index

from captum_goat.tracking.registry import REFUSED, Call, Result, aten, named, rule
from captum_goat.tracking.row_graph import Edges, Pointer


def is_adjacency(value: Any) -> bool:
    """Return whether a value is a square sparse matrix of torch, in COO or CSR layout."""
    layouts = (torch.sparse_coo, torch.sparse_csr)
    return isinstance(value, Tensor) and value.layout in layouts and value.dim() == 2 and value.size(0) == value.size(1)


def ends_of(edges: Tensor) -> Tensor:
    """Return sources and targets, ``[2, E]``, of edges or of the entries of a matrix, whose rows are targets."""
    return edges if edges.layout == torch.strided else to_edge_index(edges)[0].flip(0)


def num_edges(edges: Tensor) -> int:
    """Return the number of edges, or of the entries of a matrix."""
    return edges.size(1) if edges.layout == torch.strided else edges.values().size(0)


@rule(*named("indices _indices col_indices crow_indices values _values _coalesced"))
def _part(call: Call) -> Result:
    edges, name = call.trace(call.args[0]), call.operation.packet.__name__.strip("_")
    if not isinstance(edges, Edges) or name == "values":
        return None
    if name == "crow_indices":
        return Pointer(edges._replace(ids=edges.ids.reshape(-1)))
    return edges._replace(ids=edges.ids.reshape(-1)) if name == "col_indices" else edges


@rule(aten._coalesce)
def _coalesce(call: Call) -> Result:
    same = torch.equal(call.args[0]._indices(), call.out._indices())
    return call.trace(call.args[0]) if same else REFUSED


@rule(aten.repeat_interleave)
def _rows(call: Call) -> Result:
    trace = call.trace(call.args[0])
    return trace.edges if isinstance(trace, Pointer) and len(call.args) == 1 else REFUSED


@rule(*named("sparse_compressed_tensor _sparse_compressed_tensor_unsafe _sparse_coo_tensor_with_dims_and_tensors"))
def _matrix(call: Call) -> Result:
    made = [trace for value in call.args if isinstance(trace := call.trace(value), Edges)]
    if len(made) != 1:
        return None
    ids = made[0].ids
    if ids.dim() == 2 and ids.size(0) == 2:
        ids = torch.where(ids[0] == ids[1], ids[0], -1)
    return made[0]._replace(ids=ids.reshape(1, -1))
