"""Attributions of a dataset as one Parquet file: one row per edge.

Columns: ``graph``, ``edge`` (its number in the graph), ``source``, ``target_node``, ``attribution``, and, the same in
all rows of a graph, ``target_class`` (if one was explained), ``output``, ``delta`` and columns of the dataset; for
several classes ``attribution_0``, ... Where nodes of one graph are explained, ``graph`` counts them, ``node`` is the
node, and ``edge`` is the number in the whole graph. A graph without edges has one row, with nulls.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from pyarrow import compute, parquet, types
from torch import Tensor

from captum_goat.bulk.files import GraphAttributions, SavedAttributions, is_meta
from captum_goat.bulk.part_folder import PartFolder
from captum_goat.bulk.tables import named_columns

KEY = b"captum_goat"  # of the options of the run in the file's metadata
NUMBERS = ("graph", "edge", "source", "target_node")  # columns of integers
ROWS_AT_ONCE = 2**17  # in a row group, if it takes several parts to fill it


class ParquetFile(SavedAttributions):
    """A Parquet file, of which one row group at a time is in memory."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = parquet.ParquetFile(path, memory_map=True)
            metadata = self._file.metadata
            self.meta = json.loads((metadata.metadata or {})[KEY])
            groups = [metadata.row_group(group).column(0).statistics for group in range(metadata.num_row_groups)]
            self._starts, ends = [group.min for group in groups], [group.max for group in groups]
        except (AttributeError, KeyError, OSError, ValueError, pa.ArrowException) as error:
            raise ValueError(f"Expected attributions in {path} (got something else).") from error
        is_ours = is_meta(self.meta) and _has_columns(self._file.schema_arrow)
        if not is_ours or [0, *(end + 1 for end in ends)] != [*self._starts, self.meta["graphs"]]:
            raise ValueError(f"Expected attributions in {path} (got something else).")
        self._loaded: tuple[int, Any] | None = None

    def _graph(self, number: int) -> GraphAttributions:
        group = bisect_right(self._starts, number) - 1
        if self._loaded is None or self._loaded[0] != group:
            self._loaded = group, self._file.read_row_group(group)
        table = self._loaded[1]
        rows = table.filter(compute.equal(table["graph"], number))
        edges = rows.filter(compute.is_valid(rows["edge"]))
        return GraphAttributions(
            _columns(edges, "attribution"),
            torch.stack([_column(edges, name).long() for name in ("source", "target_node")]),
            _column(rows, "target_class")[0] if "target_class" in rows.column_names else None,
            _columns(rows, "output")[0],
            _columns(rows, "delta")[0],
            _column(edges, "edge").long() if "node" in rows.column_names else None,
            rows.select(self.meta.get("columns", [])).slice(0, 1).to_pylist()[0],
        )

    @staticmethod
    def _write(folder: PartFolder, meta: dict[str, Any], path: Path) -> None:
        writer, waiting, graphs, rows = None, [], 0, 0
        with ExitStack() as stack:
            for number, part in enumerate(folder.read_all()):
                waiting.append(_table(part, graphs, meta.get("nodes")))
                graphs, rows = graphs + len(part["sizes"]), rows + waiting[-1].num_rows
                if number == folder.count - 1 or rows >= ROWS_AT_ONCE:
                    group = pa.concat_tables(waiting)
                    if writer is None:
                        schema = group.schema.with_metadata({KEY: json.dumps(meta).encode()})
                        writer = stack.enter_context(parquet.ParquetWriter(path, schema))
                    writer.write_table(group, row_group_size=max(1, rows))
                    waiting, rows = [], 0


def _has_columns(schema: Any) -> bool:
    kinds = {column.name: column.type for column in schema}
    numbers = [schema.names[0] == "graph", *(types.is_integer(kinds.get(name, pa.null())) for name in NUMBERS)]
    return all(numbers) and all(
        types.is_floating(kinds.get(name, kinds.get(f"{name}_0", pa.null())))
        for name in ("attribution", "output", "delta")
    )


def _table(part: dict[str, Any], first: int, nodes: list[int] | None) -> Any:
    """Return a part, whose first graph has number ``first``, as a table; ``nodes`` if these are explained."""
    sizes: Tensor = part["sizes"]
    rows = sizes.clamp(min=1)
    graph = torch.arange(len(sizes)).repeat_interleave(rows)
    edge = torch.arange(len(graph)) - (rows.cumsum(0) - rows)[graph]
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
