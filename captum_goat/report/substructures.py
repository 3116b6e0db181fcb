"""What many explanations have in common: the connected parts of their strongest edges, counted up to isomorphism."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch_geometric.data import Data

from captum_goat.bulk.tables import as_table
from captum_goat.plot.edge_scores import edge_scores, strongest
from captum_goat.plot.layouts import networkx_module
from captum_goat.report.records import Appearance, columns_of, explanations_by_method

EXAMPLES = 3


@dataclass
class Substructure:
    """Parts of explanations that are isomorphic, with labels, and have the same sign and class."""

    target_class: int | None
    sign: str
    pattern: Any  # a networkx graph
    shares: dict[int, float] = field(default_factory=dict)  # of the summed magnitudes, by graph
    of: int = 0  # graphs of the class
    coverage: float = 0.0  # share of them that have this part or a more frequent one

    @property
    def text(self) -> str:
        """The labels of the edges, such as ``C-N, 2 N-O``, or the size of a pattern without labels."""
        labels = self.pattern.nodes(data="label")
        if not any(label for _, label in labels):
            return f"{len(self.pattern)} nodes, {self.pattern.number_of_edges()} edges"
        pairs = Counter("-".join(sorted((labels[source], labels[target]))) for source, target in self.pattern.edges)
        return ", ".join(f"{count} {pair}" if count > 1 else pair for pair, count in sorted(pairs.items()))


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

    Args:
        explanations: Explanations of graphs, as :func:`write_report` takes them, of one method.
        sparsity: The share of edges that are not selected.
        node_labels: A function that returns the labels of a graph's nodes; for molecules the default is the elements.
        top: The number of substructures of each class and sign.
        atoms: The ``atoms`` of :func:`write_report`.
        graphs: The ``graphs`` of :func:`write_report`.

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
        >>> row = table.iloc[0]
        >>> row["pattern"], int(row["count"]), float(row["mean_share"])
        ('C-N, N-O', 5, 0.75)
    """
    methods = explanations_by_method(explanations, graphs)
    if len(methods) > 1:
        raise ValueError(f"Expected explanations of one method (got {', '.join(methods)}).")
    (explained,) = methods.values()
    if not 0 <= sparsity < 1:
        raise ValueError(f"Expected a sparsity from 0 to less than 1 (got {sparsity}).")
    rows = [
        {
            "target_class": part.target_class,
            "sign": part.sign,
            "pattern": part.text,
            "count": len(part.shares),
            "graphs": part.of,
            "mean_share": float(np.mean([*part.shares.values()])),
            "coverage": part.coverage,
            "examples": [*part.shares][:EXAMPLES],
        }
        for part in frequent_parts(explained, Appearance(node_labels=node_labels, atoms=atoms), sparsity, top)
    ]
    return as_table(rows)


def frequent_parts(
    explanations: Sequence[Data], appearance: Appearance, sparsity: float, top: int
) -> list[Substructure]:
    """Return the most frequent substructures of each class and sign, with their coverage."""
    networkx = networkx_module()
    groups: dict[Any, list[Substructure]] = {}
    classes: Counter[int | None] = Counter()
    for position, explanation in enumerate(explanations):
        column, scores = columns_of(explanation)[0]
        if explanation.edge_mask.dim() == 2 and explanation.get("prediction") is not None:
            column, scores = columns_of(explanation)[int(explanation.prediction.view(-1).argmax())]
        classes[column] += 1
        for sign, pattern, share in _parts(explanation, scores, appearance, sparsity):
            code = networkx.weisfeiler_lehman_graph_hash(pattern, node_attr="label")
            alike = groups.setdefault((column, sign, code), [])
            same = (part for part in alike if networkx.is_isomorphic(part.pattern, pattern, _same_label))
            part = next(same, None)
            if part is None:
                part = Substructure(column, sign, pattern)
                alike.append(part)
            part.shares[position] = part.shares.get(position, 0.0) + share
    found = sorted((part for alike in groups.values() for part in alike), key=lambda part: -len(part.shares))
    chosen: list[Substructure] = []
    for column in sorted(classes, key=lambda value: -1 if value is None else value):
        for sign in "+-":
            covered: set[int] = set()
            for part in [part for part in found if (part.target_class, part.sign) == (column, sign)][:top]:
                covered |= part.shares.keys()
                part.of, part.coverage = classes[column], len(covered) / classes[column]
                chosen.append(part)
    return chosen


def _same_label(one: dict[str, str], other: dict[str, str]) -> bool:
    return one["label"] == other["label"]


def _parts(explanation: Data, scores: Any, appearance: Appearance, sparsity: float) -> Iterator[tuple[str, Any, float]]:
    """Yield the connected parts of the selected edges: the sign, the labelled graph, and the share of the scores."""
    networkx = networkx_module()
    edges, merged, _ = edge_scores(scores, explanation.edge_index)
    selected = strongest(merged, max(1, int((1 - sparsity) * len(merged) + 1e-6)))
    molecule = appearance.molecule(explanation) if appearance.node_labels is None else None
    labels = appearance.labels(explanation) or (
        [""] * int(explanation.num_nodes or 0)
        if molecule is None
        else [atom.GetSymbol() for atom in molecule.GetAtoms()]
    )
    total = np.abs(merged).sum() or 1.0
    for sign, side in (("+", merged > 0), ("-", merged < 0)):
        graph = networkx.Graph()
        for (source, target), score in zip(edges[selected & side].tolist(), merged[selected & side], strict=True):
            graph.add_edge(source, target, score=score)
        for nodes in sorted(map(sorted, networkx.connected_components(graph))):
            part = graph.subgraph(nodes)
            networkx.set_node_attributes(part, {node: labels[node] for node in nodes}, "label")
            yield sign, part, sum(score for *_, score in part.edges(data="score")) / total
