"""Attributions as tables: one row per edge."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from captum_goat.inputs.feature_masks import undirected_feature_mask


def edge_table(
    attributions: Any,
    data: Any,
    *,
    node_names: Sequence[Any] | None = None,
    top_k: int | None = None,
    undirected: bool = False,
) -> Any:
    """Return the attributions of a graph's edges, ``[E]`` or ``[E, C]``, as a table.

    The columns are ``edge``, ``source``, ``target``, with ``node_names`` also ``source_name`` and ``target_name``, then
    ``attribution``, or ``attribution_0``, ... for several classes. It is a :class:`pandas.DataFrame`, or a list of
    dictionaries if pandas is not installed. If ``data`` is a part of a larger graph, with ``n_id`` and ``e_id``, nodes
    and edges have the numbers of the larger graph, in ``node_names`` as well. ``top_k`` keeps only so many edges, those
    of largest magnitude first. ``undirected`` makes one row of the directions of an edge (and of parallel edges), with
    the sum of their attributions and the number of the first of them.

    Examples:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from captum_goat.bulk import edge_table
        >>> data = Data(edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
        >>> scores = torch.tensor([0.25, 0.5, 1.0, -2.0])
        >>> table = edge_table(scores, data, node_names=["C", "N", "O"], undirected=True, top_k=1)
        >>> row = table[0] if isinstance(table, list) else table.iloc[0]
        >>> row["source_name"], row["target_name"], float(row["attribution"])
        ('N', 'O', -1.0)
    """
    return as_table(edge_rows(attributions, data, node_names=node_names, top_k=top_k, undirected=undirected))


def edge_rows(
    attributions: Any,
    data: Any,
    *,
    node_names: Sequence[Any] | None = None,
    top_k: int | None = None,
    undirected: bool = False,
) -> list[dict[str, Any]]:
    """Return the rows of :func:`edge_table`."""
    scores: Tensor = torch.as_tensor(attributions).detach().cpu()
    ends: Tensor = torch.as_tensor(data.edge_index).cpu()
    if scores.dim() not in (1, 2) or len(scores) != ends.size(1):
        expected = f"[{ends.size(1)}] or [{ends.size(1)}, classes]"
        raise ValueError(f"Expected one attribution per edge, {expected} (got {list(scores.shape)}).")
    edges = torch.arange(len(scores))
    if undirected and len(edges):
        feature = undirected_feature_mask(ends)
        count = int(feature.max()) + 1
        scores = scores.new_zeros(count, *scores.shape[1:]).index_add_(0, feature, scores)
        edges = torch.full((count,), len(edges)).scatter_reduce_(0, feature, edges, "amin")
        ends = ends[:, edges].sort(dim=0).values
    if top_k is not None:
        size = scores.abs() if scores.dim() == 1 else scores.abs().sum(dim=1)
        order = size.sort(descending=True, stable=True).indices[:top_k]
        scores, edges, ends = scores[order], edges[order], ends[:, order]
    nodes, numbers = getattr(data, "n_id", None), getattr(data, "e_id", None)
    ends = ends if nodes is None else nodes.cpu()[ends]
    edges = edges if numbers is None else numbers.cpu()[edges]
    rows = []
    for edge, source, target, score in zip(*map(Tensor.tolist, (edges, *ends, scores)), strict=True):
        row = {"edge": edge, "source": source, "target": target}
        if node_names is not None:
            row |= {"source_name": node_names[source], "target_name": node_names[target]}
        values = {"attribution": score} if scores.dim() == 1 else {f"attribution_{k}": s for k, s in enumerate(score)}
        rows.append(row | values)
    return rows


def labels(unit: str, number: int, target: Tensor | None) -> dict[str, int]:
    """Return what the rows of a graph or node begin with: its number, and the explained class if there is one."""
    return {unit: number} if target is None else {unit: number, "target_class": int(target)}


def as_table(rows: list[dict[str, Any]]) -> Any:
    """Return rows as a DataFrame if pandas is installed, else as they are."""
    if find_spec("pandas") is None:
        return rows
    from pandas import DataFrame

    return DataFrame(rows)


def write_table(table: Any, path: str | PathLike[str]) -> None:
    r"""Write a table of :func:`edge_table` or a method ``to_table`` to a ``.csv`` or ``.parquet`` file (needs pyarrow).

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from captum_goat.bulk import write_table
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_table([{"edge": 0, "attribution": 0.5}], f"{folder}/table.csv")
        ...     Path(f"{folder}/table.csv").read_text()
        'edge,attribution\n0,0.5\n'
    """
    rows: list[Mapping[str, Any]] = table if isinstance(table, list) else table.to_dict("records")
    columns = list(rows[0]) if rows else list(getattr(table, "columns", []))
    if Path(path).suffix == ".csv":
        with Path(path).open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    elif Path(path).suffix == ".parquet":
        import pyarrow as pa
        from pyarrow import parquet

        parquet.write_table(pa.table({name: [row[name] for row in rows] for name in columns}), path)
    else:
        raise ValueError(f"Expected a file that ends in .csv or .parquet (got {Path(path).name}).")
