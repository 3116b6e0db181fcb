"""Graphs and molecules as SVG without colours, which the page adds: every edge and node has its number."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from captum_goat.plot.layouts import ARROW, arrow_places, edge_lines, given_points, node_positions
from captum_goat.plot.molecule import molecule_layout

if TYPE_CHECKING:
    from numpy.typing import NDArray

LENGTH = 40.0  # of an edge on average, the unit of all sizes below
MARGIN, MIN_SIZE = 24.0, 115.0  # of pictures
ROOM, CROWD = 30.0, 100  # in graphs of more nodes than that, every node has a square of this side
RADIUS, DOT = 9.0, 3.5  # of nodes with and without a label inside
MAX_INSIDE = 3  # letters; longer labels are beside the nodes
MAX_LABELLED = 60  # nodes; with more, nodes are dots and the table has the names
ARROW_SIZE = 11.0
NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def graph_svg(
    edges: NDArray[Any],
    numbers: NDArray[Any],
    nodes: NDArray[Any],
    *,
    labels: Sequence[str] | None = None,
    layout: Any = None,
    directed: bool = False,
    root: int | None = None,
) -> str:
    """Return a picture of a graph, or of a part of it: its edges ``[M, 2]`` have ``numbers``, as its ``nodes`` do."""
    points = node_positions(edges, len(nodes)) if layout is None else given_points(layout, len(nodes))
    points = _fitted(points, _scale(points, edges))
    is_small = len(nodes) <= MAX_LABELLED
    inside = is_small and max(map(len, labels or [""])) <= MAX_INSIDE
    lines, edge_marks, node_marks = edge_lines(edges, points), [], []
    for number, line, (point, turn) in zip(numbers, lines, arrow_places(lines), strict=True):
        head = f'<path class="head" d="{_path(point + ARROW_SIZE * ARROW @ turn)}Z"/>' if directed else ""
        edge_marks.append(_group("e", number, f'<path class="line" d="{_path(line)}"/>{head}'))
    for node, (x, y), text in zip(nodes, points, nodes if labels is None else labels, strict=True):
        names = ("" if inside else "dot ") + ("root" if node == root else "")
        label = ""
        if inside or (labels is not None and is_small) or node == root:
            label = _label(x, y, text) if inside else _label(x + 6, y - 6, text, "beside")
        circle = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS if inside else DOT}"/>'
        node_marks.append(_group("n", node, circle + label, names))
    return _svg(points, edge_marks, node_marks)


def molecule_svg(molecule: Any, edges: NDArray[Any]) -> str:
    """Return a picture of an RDKit molecule, whose bonds are the edges."""
    layout = molecule_layout(molecule)
    corner, points = _corner(layout.points), _fitted(layout.points)
    bands = [
        _group("e", number, f'<path class="band" d="{_path(line)}"/>', "bonded")
        for number, line in enumerate(edge_lines(edges, points))
    ]
    atoms = []
    for node, ((x, y), text) in enumerate(zip(points, layout.texts, strict=True)):
        area = f'<circle class="atom-area" cx="{x:.1f}" cy="{y:.1f}" r="7"/>'
        atoms.append(_group("n", node, area + (_label(x, y, text, "atom") if text else "")))
    strokes = "".join(_path(LENGTH * (stroke * [1, -1] - corner) + MARGIN) for stroke in layout.strokes)
    return _svg(points, bands, atoms, f'<path class="bond" d="{strokes}"/>')


def _corner(points: NDArray[Any]) -> NDArray[Any]:
    """Return the upper left corner of points whose y points up, with y pointing down."""
    return np.array((points * [1, -1]).min(axis=0) if len(points) else np.zeros(2))


def _fitted(points: NDArray[Any], scale: float = 1.0) -> NDArray[Any]:
    """Return points in a picture whose upper left corner is 0."""
    fitted: NDArray[Any] = LENGTH * scale * (points * [1, -1] - _corner(points)) + MARGIN
    return fitted


def _scale(points: NDArray[Any], edges: NDArray[Any]) -> float:
    """Return the factor with which edges have a mean length of 1, or more if many nodes need more room."""
    lengths = np.linalg.norm(points[edges[:, 0]] - points[edges[:, 1]], axis=1)
    scale = 1 / lengths[lengths > 0].mean() if (lengths > 0).any() else 1.0
    if len(points) > CROWD:
        scale = max(scale, ROOM / LENGTH * np.sqrt(len(points) / max(np.ptp(points, axis=0).prod(), 1e-9)))
    return float(scale)


def _svg(points: NDArray[Any], edges: list[str], nodes: list[str], between: str = "") -> str:
    size = points.max(axis=0, initial=0) + MARGIN
    (left, top), (width, height) = (size - size.clip(min=MIN_SIZE)) / 2, size.clip(min=MIN_SIZE)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{left:.1f} {top:.1f} {width:.1f} {height:.1f}">'
    return f"{head}<g>{''.join(edges)}</g>{between}<g>{''.join(nodes)}</g></svg>"


def _group(kind: str, number: int, content: str, names: str = "") -> str:
    return f'<g data-{kind}="{number}"{f" class={names.strip()!r}" if names else ""}>{content}</g>'


def _path(line: NDArray[Any]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in line)


def _label(x: float, y: float, text: object, name: str = "inside") -> str:
    shown = escape(NOT_XML.sub("\ufffd", str(text)))
    return f'<text class="{name}" x="{x:.1f}" y="{y:.1f}">{shown}</text>'
