"""The layout of Kamada and Kawai: distances on paper are close to distances in the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

STARTS, STEPS = 10, 200  # the best of several layouts is taken,
PAIRS = 100_000  # of fewer if they would have more pairs of nodes than this


def kamada_kawai(graph: Any) -> NDArray[Any]:
    """Lay out a connected graph of networkx with nodes 0 to N - 1: ``[N, 2]``.

    This is the energy of Kamada and Kawai, which weights squared errors by 1 / distance^2, minimised by majorisation
    (Gansner, Koren, North: *Graph Drawing by Stress Majorization*, 2004). networkx minimises it with SciPy, whose
    threads slow it down a lot on a busy machine, and from one start, which often leads to folded shapes.
    """
    wanted = _path_lengths(graph)
    weights = np.divide(1.0, wanted**2, out=np.zeros_like(wanted), where=wanted > 0)
    inverse = np.linalg.pinv(np.diag(weights.sum(axis=1)) - weights)
    starts = max(1, min(STARTS, PAIRS // max(1, len(wanted) ** 2)))
    points = wanted.max(initial=1) * np.random.default_rng(0).random((starts, len(wanted), 2))
    for _ in range(STEPS):
        pulls = weights * wanted / np.maximum(_pairwise(points), 1e-9)
        points = inverse @ (pulls.sum(axis=-1, keepdims=True) * points - pulls @ points)
    energies = (weights * (_pairwise(points) - wanted) ** 2).sum(axis=(1, 2))
    best: NDArray[Any] = points[energies.argmin()]
    return best


def _pairwise(points: NDArray[Any]) -> NDArray[Any]:
    """Return the distances between the points of every layout: ``[layouts, N, 2]`` to ``[layouts, N, N]``."""
    x, y = points[..., 0], points[..., 1]
    distances: NDArray[Any] = np.hypot(x[:, :, None] - x[:, None], y[:, :, None] - y[:, None])
    return distances


def _path_lengths(graph: Any) -> NDArray[Any]:
    """Return the lengths of shortest paths, ``[N, N]``."""
    import networkx

    lengths = np.zeros((len(graph), len(graph)))
    for node, found in networkx.all_pairs_shortest_path_length(graph):
        lengths[node, list(found)] = list(found.values())
    return lengths
