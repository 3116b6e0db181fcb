"""Attributions of a dataset as one Parquet file: one row per edge.

Columns: ``graph``, ``edge`` (its number in the graph), ``source``, ``target_node``, ``attribution`` (for all classes
``attribution_0``, ...), and, the same in all rows of a graph, ``target_class`` (if one was explained), ``output`` or
``output_0``, ... and ``delta`` or ``delta_0``, .... A graph without edges has one row, with nulls for what edges have.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from captum_goat.bulk.files import GraphAttributions, SavedAttributions, is_meta
from captum_goat.bulk.part_folder import PartFolder

KEY = b"captum_goat"  # of the options of the run in the file's metadata
ROWS_AT_ONCE = 2**17  # in a row group, if it takes several parts to fill it


class ParquetAttributions(SavedAttributions):
    """A Parquet file, of which one row group at a time is in memory.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        try:
            self._file = parquet.ParquetFile(path, memory_map=True)
            metadata = self._file.metadata
            self.meta = json.loads((metadata.metadata or {})[KEY])
            statistics = [metadata.row_group(group).column(0).statistics for group in range(metadata.num_row_groups)]
            self._starts = [column.min for column in statistics]
            ends = [column.max for column in statistics]
        except (AttributeError, KeyError, OSError, ValueError, pa.ArrowException) as error:
            raise ValueError(f"Expected attributions in {path} (got something else).") from error
        if not is_meta(self.meta) or not _is_complete(self._file.schema_arrow, self._starts, ends, self.meta["graphs"]):
            raise ValueError(f"Expected attributions in {path} (got something else).")
        self._loaded: tuple[int, Any] | None = None

    def _graph(self, number: int) -> GraphAttributions:
        from pyarrow import compute

        group = bisect_right(self._starts, number) - 1
        if self._loaded is None or self._loaded[0] != group:
            self._loaded = group, self._file.read_row_group(group)
        table = self._loaded[1]
        rows = table.filter(compute.equal(table["graph"], number))
        edges = rows.filter(compute.is_valid(rows["edge"]))
        target = _column(rows, "target_class")
        return GraphAttributions(
            _columns(edges, "attribution"),
            torch.stack([_columns(edges, name).long() for name in ("source", "target_node")]),
            None if target is None else target[0],
            _columns(rows, "output")[0],
            _columns(rows, "delta")[0],
        )


def _is_complete(schema: Any, starts: list[Any], ends: list[Any], graphs: int) -> bool:
    """Return whether a file has all columns, and row groups that cover the graphs in their order."""
    from pyarrow import types

    kinds = {column.name: column.type for column in schema}
    whole = all(name in kinds and types.is_integer(kinds[name]) for name in ("graph", "edge", "source", "target_node"))
    several = all(
        types.is_floating(kinds.get(name, kinds.get(f"{name}_0", schema.field(0).type)))
        for name in ("attribution", "output", "delta")
    )
    if not whole or not several or schema.names[0] != "graph":
        return False
    return [0, *(end + 1 for end in ends)] == [*starts, graphs]


def write(folder: PartFolder, count: int, meta: dict[str, Any], path: Path) -> None:
    """Merge parts into a Parquet file, with one row group at a time in memory."""
    import pyarrow as pa
    from pyarrow import parquet

    waiting: list[Any] = []
    with ExitStack() as stack:
        writer: Any = None
        for number, table in enumerate(_tables(folder, count)):
            waiting.append(table)
            if number < count - 1 and sum(waiting_table.num_rows for waiting_table in waiting) < ROWS_AT_ONCE:
                continue
            group = pa.concat_tables(waiting)
            if writer is None:
                schema = group.schema.with_metadata({KEY: json.dumps(meta).encode()})
                writer = stack.enter_context(parquet.ParquetWriter(path, schema))
            writer.write_table(group, row_group_size=max(1, group.num_rows))
            waiting = []


def _tables(folder: PartFolder, count: int) -> Iterator[Any]:
    graphs = 0
    for part in folder.read_all(count):
        yield _table(part, graphs)
        graphs += part["sizes"].size(0)


def _table(part: dict[str, Any], first: int) -> Any:
    """Return a part, whose first graph has number ``first``, as a table."""
    import pyarrow as pa

    sizes: Tensor = part["sizes"]
    rows = sizes.clamp(min=1)
    graph = torch.arange(len(sizes)).repeat_interleave(rows)
    edge = torch.arange(len(graph)) - (rows.cumsum(0) - rows)[graph]
    real = edge < sizes[graph]
    source, target_node = part["edge_index"]
    per_edge = {"source": source, "target_node": target_node, **_named("attribution", part["attributions"])}
    per_graph = {**_named("output", part["outputs"]), **_named("delta", part["deltas"])}
    if part["targets"] is not None:
        per_graph = {"target_class": part["targets"], **per_graph}
    missing = (~real).numpy()
    columns = {"graph": pa.array((graph + first).numpy()), "edge": pa.array(edge.int().numpy(), mask=missing)}
    for name, values in per_edge.items():
        spread = values.new_zeros(len(graph))
        spread[real] = values
        columns[name] = pa.array(spread.numpy(), mask=missing)
    columns |= {name: pa.array(values[graph].numpy()) for name, values in per_graph.items()}
    return pa.table(columns)


def _named(name: str, values: Tensor) -> dict[str, Tensor]:
    """Return the columns of a tensor by name, in a dtype that Parquet has."""
    plain = values if values.dtype in (torch.float32, torch.float64) else values.float()
    return {name: plain} if plain.dim() == 1 else {f"{name}_{k}": column for k, column in enumerate(plain.unbind(1))}


def _columns(table: Any, name: str) -> Tensor:
    """Return a column, or the columns ``<name>_0``, ``<name>_1``, ... side by side."""
    single = _column(table, name)
    if single is not None:
        return single
    columns: list[Tensor] = []
    while (column := _column(table, f"{name}_{len(columns)}")) is not None:
        columns.append(column)
    return torch.stack(columns, dim=1)


def _column(table: Any, name: str) -> Tensor | None:
    return torch.from_numpy(table[name].to_numpy().copy()) if name in table.column_names else None
