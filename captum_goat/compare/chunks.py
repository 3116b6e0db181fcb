"""Graphs a few at a time, so that any number of them can be measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch_geometric.data import Data

MOST_GRAPHS = 64
MOST_EDGES = 20_000  # of which infidelity takes some copies


def parts_of(graphs: Sequence[Data]) -> Iterator[slice]:
    """Cut a sequence of graphs into parts with few enough graphs and edges, though one graph at least.

    Examples::

        >>> from captum_goat.compare.chunks import parts_of
        >>> from captum_goat.datasets import ba_2motifs
        >>> list(parts_of(ba_2motifs(100)))
        [slice(0, 64, None), slice(64, 100, None)]
    """
    first, edges = 0, 0
    for number, graph in enumerate(graphs):
        if number > first and (number - first == MOST_GRAPHS or edges + graph.num_edges > MOST_EDGES):
            yield slice(first, number)
            first, edges = number, 0
        edges += graph.num_edges
    if first < len(graphs):
        yield slice(first, len(graphs))
