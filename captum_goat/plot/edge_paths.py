"""The lines of edges between points: straight, bent apart, or round."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

LOOP_RADIUS, ARROW_LOOP_RADIUS = 0.05, 0.075  # a self-loop is a circle with this share of the layout's size as radius
BEND = 0.2  # two edges that run both ways part by this share of their length
CURVE_POINTS = 25


def edge_lines(edges: NDArray[Any], points: NDArray[Any], *, arrows: bool = False) -> list[NDArray[Any]]:
    """Return the lines from sources to targets, ``[points, 2]`` each; ``arrows`` leaves room for arrowheads.

    An edge that also runs the other way is bent to its left, so that the two part. A self-loop is a circle on the
    side of its node that faces away from the graph.

    Examples::

        >>> import numpy as np
        >>> from captum_goat.plot.edge_paths import edge_lines
        >>> (line,) = edge_lines(np.array([[0, 1]]), np.array([[0.0, 0.0], [2.0, 1.0]]))
        >>> line.tolist()
        [[0.0, 0.0], [2.0, 1.0]]
    """
    pairs = {(int(source), int(target)) for source, target in edges}
    size = float(np.ptp(points, axis=0).max()) if len(points) else 0.0
    radius = (ARROW_LOOP_RADIUS if arrows else LOOP_RADIUS) * (size or 1.0)
    lines = []
    for source, target in edges:
        if source == target:
            lines.append(_loop(points[source], points.mean(axis=0), radius))
        elif (int(target), int(source)) in pairs:
            lines.append(_curve(points[source], points[target]))
        else:
            lines.append(points[[source, target]])
    return lines


def _loop(point: NDArray[Any], centre: NDArray[Any], radius: float) -> NDArray[Any]:
    outward = point - centre if (point != centre).any() else np.array([0.0, 1.0])
    start = np.arctan2(*-outward[::-1])
    angles = start + np.linspace(0, 2 * np.pi, CURVE_POINTS)
    circle: NDArray[Any] = np.stack([np.cos(angles), np.sin(angles)], axis=1) - [np.cos(start), np.sin(start)]
    return point + radius * circle


def _curve(start: NDArray[Any], end: NDArray[Any]) -> NDArray[Any]:
    """Return a parabola to the left of the straight line, ``BEND / 2`` of its length away at the middle."""
    along = end - start
    left = np.array([-along[1], along[0]])
    share = np.linspace(0, 1, CURVE_POINTS)[:, None]
    curve: NDArray[Any] = start + share * along + 2 * BEND * share * (1 - share) * left
    return curve


def point_on(line: NDArray[Any], share: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the point at a share of a line's points, and the direction there (not normalised)."""
    index, rest = divmod(share * (len(line) - 1), 1)
    step = line[int(index) + 1] - line[int(index)]
    return line[int(index)] + rest * step, step
