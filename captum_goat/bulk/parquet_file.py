"""Attributions of a dataset as one Parquet file: one row per edge.

Columns: ``graph``, ``edge`` (its number in the graph), ``source``, ``target_node``, ``attribution``, and, the same in
all rows of a graph, ``target_class`` (if one was explained), ``output``, ``delta`` and columns of the dataset; for
several classes ``attribution_0``, ... Where nodes of one graph are explained, ``graph`` counts them, ``node`` is the
node, and ``edge`` is the number in the whole graph. A graph without edges has one row, with nulls.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from pyarrow import compute, parquet
from torch import Tensor

from captum_goat.bulk.files import named_columns, starts
from captum_goat.bulk.part_folder import PartFolder

KEY = b"captum_goat"  # of the options of the run in the file's metadata


def read_meta(path: Path) -> dict[str, Any]:
    """Read the options of the run alone."""
    return dict(json.loads((parquet.read_schema(path).metadata or {})[KEY]))


def read_table(path: Path) -> dict[str, Any]:
    """Read a file to what a ``.pt`` file has; raise some error or other for other files."""
    table, meta = parquet.read_table(path), read_meta(path)
    graphs, rows = torch.unique_consecutive(_column(table, "graph"), return_counts=True)
    if not torch.equal(graphs, torch.arange(len(graphs))):
        raise ValueError("Expected the rows of graphs 0, 1, ... in this order.")
    edges = table.filter(compute.is_valid(table["edge"]))
    first = table.take(starts(rows)[:-1].numpy())
    return {
        "attributions": _columns(edges, "attribution"),
        "edge_index": torch.stack([_column(edges, name) for name in ("source", "target_node")]),
        "targets": _column(first, "target_class") if "target_class" in table.column_names else None,
        "outputs": _columns(first, "output"),
        "deltas": _columns(first, "delta"),
        "edges": _column(edges, "edge").long() if "node" in table.column_names else None,
        "ptr": starts(torch.bincount(_column(edges, "graph"), minlength=len(graphs))),
        "columns": first.select(meta.get("columns", [])).to_pylist(),
        "meta": meta,
    }


def write_table(folder: PartFolder, meta: dict[str, Any], path: Path) -> None:
    """Merge the parts of a run into a file, with one row group per part."""
    graphs = 0
    with ExitStack() as stack:
        for part in folder.read_all():
            table = _table(part, graphs, meta.get("nodes"))
            if not graphs:
                schema = table.schema.with_metadata({KEY: json.dumps(meta).encode()})
                writer = stack.enter_context(parquet.ParquetWriter(path, schema))
            writer.write_table(table)
            graphs += len(part["sizes"])


def _table(part: dict[str, Any], first: int, nodes: list[int] | None) -> Any:
    """Return a part, whose first graph has number ``first``, as a table; ``nodes`` if these are explained."""
    sizes: Tensor = part["sizes"]
    rows = sizes.clamp(min=1)
    graph = torch.arange(len(sizes)).repeat_interleave(rows)
    edge = torch.arange(len(graph)) - starts(rows)[graph]
    real = edge < sizes[graph]
    source, target_node = part["edge_index"].unbind(1)
    per_edge = {"source": source, "target_node": target_node} | _named("attribution", part["attributions"])
    per_graph = {} if part["targets"] is None else {"target_class": part["targets"]}
    per_graph |= _named("output", part["outputs"]) | _named("delta", part["deltas"])
    missing = (~real).numpy()
    columns = {"graph": pa.array((graph + first).numpy())}
    if nodes is None:
        columns["edge"] = pa.array(edge.int().numpy(), mask=missing)
    else:
        columns["node"] = pa.array(torch.tensor(nodes)[graph + first].numpy())
        per_edge = {"edge": part["edges"], **per_edge}
    for name, values in per_edge.items():
        spread = values.new_zeros(len(graph)).masked_scatter_(real, values)
        columns[name] = pa.array(spread.numpy(), mask=missing)
    columns |= {name: pa.array(values[graph].numpy()) for name, values in per_graph.items()}
    extra = pa.Table.from_pylist(part["columns"]).take(pa.array(graph.numpy()))
    return pa.table(columns | dict(zip(extra.column_names, extra.columns, strict=True)))


def _named(name: str, values: Tensor) -> dict[str, Tensor]:
    """Return the columns of a tensor by name, in a dtype that Parquet has."""
    return named_columns(name, values if values.dtype in (torch.float32, torch.float64) else values.float())


def _columns(table: Any, name: str) -> Tensor:
    """Return a column, or the columns ``<name>_0``, ``<name>_1``, ... side by side."""
    if name in table.column_names:
        return _column(table, name)
    count = sum(column.startswith(f"{name}_") for column in table.column_names)
    return torch.stack([_column(table, f"{name}_{number}") for number in range(count)], dim=1)


def _column(table: Any, name: str) -> Tensor:
    return torch.from_numpy(table[name].to_numpy().copy())
