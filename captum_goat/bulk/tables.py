"""Attributions as pandas tables: one row per edge."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from captum_goat.inputs.feature_masks import undirected_feature_mask

TAKEN = ("graph", "node", "edge", "source", "target", "target_node", "target_class", "attribution", "output", "delta")


def edge_table(
    attributions: Any,
    data: Any,
    *,
    node_names: Sequence[Any] | None = None,
    top_k: int | None = None,
    undirected: bool = False,
) -> Any:
    """Return the attributions of a graph's edges, ``[E]`` or ``[E, C]``, as a :class:`pandas.DataFrame`.

    The columns are ``edge``, ``source``, ``target``, with ``node_names`` also ``source_name`` and ``target_name``, then
    ``attribution``, or ``attribution_0``, ... for several classes. If ``data`` is a part of a larger graph, with
    ``n_id`` and ``e_id``, nodes and edges have the numbers of the larger graph, in ``node_names`` as well. ``top_k``
    keeps only so many edges, those of largest magnitude first. ``undirected`` makes one row of the directions of an
    edge (and of parallel edges), with the sum of their attributions and the number of the first of them.

    Examples:
        >>> from torch_geometric.data import Data
        >>> from captum_goat.bulk import edge_table
        >>> data = Data(edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
        >>> scores = torch.tensor([0.25, 0.5, 1.0, -2.0])
        >>> print(edge_table(scores, data, node_names=["C", "N", "O"], undirected=True, top_k=1).to_csv(index=False))
        edge,source,target,source_name,target_name,attribution
        2,1,2,N,O,-1.0
        <BLANKLINE>
    """
    return as_table(_columns(attributions, data, node_names, top_k, undirected))


def _columns(
    attributions: Any,
    data: Any,
    node_names: Sequence[Any] | None,
    top_k: int | None = None,
    undirected: bool = False,
) -> dict[str, list[Any]]:
    if not hasattr(data, "edge_index"):
        raise ValueError(f"Expected the graph that was explained, with edge_index (got {type(data).__name__}).")
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
    source, target = (ends if nodes is None else nodes.cpu()[ends]).tolist()
    edges = edges if numbers is None else numbers.cpu()[edges]
    columns: dict[str, list[Any]] = {"edge": edges.tolist(), "source": source, "target": target}
    if node_names is not None:
        if (last := max(source + target, default=-1)) >= len(node_names):
            raise ValueError(f"Expected node_names for all nodes, up to node {last} (got {len(node_names)} names).")
        for name, end in (("source_name", source), ("target_name", target)):
            columns[name] = [node_names[node] for node in end]
    return columns | {name: values.tolist() for name, values in named_columns("attribution", scores).items()}


def named_columns(name: str, values: Tensor) -> dict[str, Tensor]:
    """Return a column as it is, and several as ``<name>_0``, ``<name>_1``, ..."""
    return {name: values} if values.dim() == 1 else {f"{name}_{k}": column for k, column in enumerate(values.unbind(1))}


def plain_attributes(graph: Any, names: Sequence[str]) -> dict[str, Any]:
    """Return attributes of a graph as numbers, strings or lists of numbers."""
    plain = {}
    for name in names:
        value = graph.get(name)
        value = value.squeeze().tolist() if isinstance(value, Tensor) else value
        if name in TAKEN or not isinstance(value, bool | int | float | str | list):
            raise ValueError(
                f"Expected columns that are attributes of every graph, numbers or strings, with other names than "
                f"{', '.join(TAKEN)} (got {name!r}, {'missing' if value is None else type(value).__name__})."
            )
        plain[name] = value
    return plain


def joined_table(
    unit: str, rows: Iterable[tuple[int, Any, Mapping[str, Any], Any, Any]], node_names: Any = None, **options: Any
) -> Any:
    """Return the tables of several graphs or nodes, one below the other.

    ``unit`` is ``"graph"`` or ``"node"``. Each row has the number of one, the explained class or ``None``, more
    columns, the attributions, and the graph. ``node_names`` are those of one graph if nodes are explained.
    """
    columns: dict[str, list[Any]] = {}
    for number, target, extra, attributions, data in rows:
        names = node_names
        if names is not None and unit == "graph":
            names = node_names[number] if number < len(node_names) else None
            if names is None or isinstance(names, str):
                got = f"{'none' if names is None else repr(names)} for graph {number}"
                raise ValueError(f"Expected node_names to be one list of names per graph (got {got}).")
        part = _columns(attributions, data, names, **options)
        labels = {unit: number} | ({} if target is None else {"target_class": int(target)}) | dict(extra)
        part = {name: [value] * len(part["edge"]) for name, value in labels.items()} | part
        for name, values in part.items():
            columns.setdefault(name, []).extend(values)
    return as_table(columns)


def as_table(rows: Any) -> Any:
    """Return rows, or columns, as a DataFrame."""
    try:
        from pandas import DataFrame
    except ImportError as error:
        raise ImportError("Tables need pandas: pip install captum-goat[tables]") from error
    return DataFrame(rows)
