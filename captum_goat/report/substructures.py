"""What many explanations have in common: the connected parts of their strongest edges, counted up to isomorphism."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
from torch_geometric.data import Data

from captum_goat.bulk.files import as_table
from captum_goat.plot.edge_scores import edge_scores, strongest
from captum_goat.plot.graph import networkx_module
from captum_goat.report.records import Appearance, columns_of, methods_of

EXAMPLES = 3


def summarize(
    explanations: Any,
    *,
    sparsity: float = 0.7,
    node_labels: Any = None,
    top: int = 10,
    atoms: Any = None,
    graphs: Sequence[Data] | None = None,
) -> Any:
    """Return the substructures that are frequent in explanations: what a model looks at.

    Of every graph, the strongest edges by magnitude are selected. The connected parts of those that support the class,
    and of those that oppose it, are counted up to isomorphism with labels; both directions of an edge are one.

    ``sparsity`` is the share of edges that are not selected, ``top`` the number of substructures of each class and
    sign, ``node_labels`` a function that returns the labels of a graph's nodes. The others are as for
    :func:`write_report`, with explanations of one method.

    Returns:
        A :class:`pandas.DataFrame`, the most frequent first, by ``target_class`` and ``sign``: ``pattern``, the labels
        of its edges; ``count``, how many of the class's ``graphs`` have it; ``mean_share``, the sum of its scores as a
        share of the graph's summed magnitudes; ``coverage``, the share of the class's graphs that have it or one before
        it; ``examples``, positions of graphs.

    Examples:
        >>> import torch
        >>> from torch_geometric.explain import Explanation
        >>> from captum_goat.report import summarize
        >>> path = torch.tensor([[0, 1, 2], [1, 2, 3]])
        >>> explanations = [Explanation(edge_index=path, edge_mask=torch.tensor([2.0, 1.0, -1.0]), num_nodes=4)] * 5
        >>> table = summarize(explanations, sparsity=0.3, node_labels=lambda graph: "CNOH")
        >>> table.loc[0, "pattern"], int(table.loc[0, "count"]), float(table.loc[0, "mean_share"])
        ('C-N, N-O', 5, 0.75)
    """
    methods = methods_of(explanations, graphs)
    if len(methods) > 1:
        raise ValueError(f"Expected explanations of one method (got {', '.join(methods)}).")
    if not 0 <= sparsity < 1:
        raise ValueError(f"Expected a sparsity from 0 to less than 1 (got {sparsity}).")
    (explained,), appearance = methods.values(), Appearance(node_labels=node_labels, atoms=atoms)
    return as_table([row for row, _ in frequent_parts(explained, appearance, sparsity, top)])


def frequent_parts(
    explanations: Sequence[Data], appearance: Appearance, sparsity: float, top: int
) -> list[tuple[dict[str, Any], Any]]:
    """Return the rows of :func:`summarize`, each with its pattern as a networkx graph."""
    networkx = networkx_module()
    groups: dict[Any, list[tuple[Any, dict[int, float]]]] = {}  # patterns, and their shares of graphs' magnitudes
    classes: Counter[int | None] = Counter()
    for position, explanation in enumerate(explanations):
        columns = columns_of(explanation)
        predicted = len(columns) > 1 and explanation.get("prediction") is not None
        column, scores = columns[int(explanation.prediction.argmax()) if predicted else 0]
        classes[column] += 1
        for sign, part, share in _parts(explanation, scores, appearance, sparsity):
            code = networkx.weisfeiler_lehman_graph_hash(part, node_attr="label")
            alike = groups.setdefault((column, sign, code), [])
            known = (shares for other, shares in alike if networkx.is_isomorphic(other, part, dict.__eq__))
            shares = next(known, None)
            if shares is None:
                alike.append((part, shares := {}))
            shares[position] = shares.get(position, 0.0) + share
    rows = []
    for column, sign in product(sorted(classes, key=lambda value: -1 if value is None else value), "+-"):
        parts = [part for key, alike in groups.items() if key[:2] == (column, sign) for part in alike]
        covered: set[int] = set()
        for pattern, shares in sorted(parts, key=lambda part: -len(part[1]))[:top]:
            covered |= shares.keys()
            row = {
                "target_class": column,
                "sign": sign,
                "pattern": _text(pattern),
                "count": len(shares),
                "graphs": classes[column],
                "mean_share": float(np.mean([*shares.values()])),
                "coverage": len(covered) / classes[column],
                "examples": [*shares][:EXAMPLES],
            }
            rows.append((row, pattern))
    return rows


def _parts(explanation: Data, scores: Any, appearance: Appearance, sparsity: float) -> Iterator[tuple[str, Any, float]]:
    """Yield the connected parts of the selected edges, with their sign and their share of the summed magnitudes."""
    networkx = networkx_module()
    edges, merged, _ = edge_scores(scores, explanation.edge_index)
    selected = strongest(merged, max(1, int((1 - sparsity) * len(merged) + 1e-6)))
    labels = appearance.labels(explanation) or [""] * int(explanation.num_nodes or 0)
    total = np.abs(merged).sum() or 1.0
    for sign, side in (("+", selected & (merged > 0)), ("-", selected & (merged < 0))):
        graph = networkx.Graph()
        graph.add_weighted_edges_from([(*edges[edge].tolist(), merged[edge]) for edge in np.flatnonzero(side)])
        networkx.set_node_attributes(graph, {node: labels[node] for node in graph}, "label")
        for nodes in sorted(map(sorted, networkx.connected_components(graph))):
            part = graph.subgraph(nodes)
            yield sign, part, part.size(weight="weight") / total


def _text(pattern: Any) -> str:
    """Return the labels of the edges, such as ``C-N, 2 N-O``, or the size of a pattern without labels."""
    labels = dict(pattern.nodes(data="label"))
    if not any(labels.values()):
        return f"{len(pattern)} nodes, {pattern.number_of_edges()} edges"
    pairs = Counter("-".join(sorted((labels[source], labels[target]))) for source, target in pattern.edges)
    return ", ".join(f"{count} {pair}" if count > 1 else pair for pair, count in sorted(pairs.items()))
