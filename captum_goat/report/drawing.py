"""Graphs and molecules as SVG without colours, which the page adds: every edge and node has its number."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from captum_goat.plot.layouts import edge_lines, node_positions, side_by_side
from captum_goat.plot.molecule_graph import rdkit_module, with_coordinates

if TYPE_CHECKING:
    from numpy.typing import NDArray

LENGTH = 40.0  # of an edge on average, the unit of all sizes below
MARGIN, MIN_SIZE = 24.0, 140.0  # of pictures
ROOM, CROWD = 30.0, 100  # in graphs of more nodes than that, every node has a square of this side
RADIUS, DOT = 9.0, 3.5  # of nodes with and without a label inside
MAX_INSIDE = 3  # letters; longer labels are beside the nodes
MAX_LABELLED = 60  # nodes; with more, nodes are dots and the table has the names
BOND = 1.5  # its length in RDKit's coordinates
BOND_GAP, TRIM = 5.5, 8.5  # between the lines of a double bond; before the letters of an atom
HEAD = np.array([[7.0, 0.0], [-4.0, 4.5], [-4.0, -4.5]])  # an arrowhead that points to the right
NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def graph_svg(
    edges: NDArray[Any],
    num_nodes: int,
    *,
    labels: Sequence[str] | None = None,
    layout: Any = None,
    directed: bool = False,
    root: int | None = None,
    numbers: NDArray[Any] | None = None,
    nodes: NDArray[Any] | None = None,
) -> str:
    """Return a picture of a graph, or of a part of it with the edges ``numbers`` and the nodes ``nodes``."""
    numbers = np.arange(len(edges)) if numbers is None else numbers
    nodes = np.arange(num_nodes) if nodes is None else nodes
    points = _fitted(node_positions(edges, num_nodes, layout), edges)
    inside = num_nodes <= MAX_LABELLED and max(map(len, labels or [""])) <= MAX_INSIDE
    texts = [str(node) for node in nodes] if labels is None else labels
    marks = []
    for number, line in zip(numbers, edge_lines(edges, points), strict=True):
        head = _closed(_head(line)) if directed else ""
        marks.append(_group("e", number, f'<path class="line" d="{_path(line)}"/>{head}'))
    for node, (x, y), text in zip(nodes, points, texts, strict=True):
        is_root = " root" if node == root else ""
        if inside:
            label = f'<text x="{x:.1f}" y="{y:.1f}">{_text(text)}</text>'
            marks.append(_group("n", node, f"{_circle(x, y, RADIUS)}{label}", is_root))
        else:
            label = f'<text class="beside" x="{x + 6:.1f}" y="{y - 6:.1f}">{_text(text)}</text>'
            shown = label if (labels is not None and num_nodes <= MAX_LABELLED) or is_root else ""
            marks.append(_group("n", node, _circle(x, y, DOT) + shown, f" dot{is_root}"))
    return _svg(points, marks)


def molecule_svg(molecule: Any, edges: NDArray[Any]) -> str:
    """Return a picture of an RDKit molecule, whose bonds are the edges."""
    molecule = with_coordinates(molecule)
    points = np.array(molecule.GetConformer().GetPositions()).reshape(-1, 3)[:, :2]
    parts = rdkit_module().GetMolFrags(molecule)
    if len(parts) > 1:  # RDKit puts them in one long row
        points = BOND * side_by_side(points / BOND, sorted(map(list, parts), key=len, reverse=True))
    points = _fitted(points, np.array([(b.GetBeginAtomIdx(), b.GetEndAtomIdx()) for b in molecule.GetBonds()]))
    texts = [_atom_text(atom) for atom in molecule.GetAtoms()]
    rings = [list(ring) for ring in molecule.GetRingInfo().AtomRings()]
    marks: list[str] = []
    bonds: list[str] = []
    for number, (edge, line) in enumerate(zip(edges.tolist(), edge_lines(edges, points), strict=True)):
        bond = None if edge[0] == edge[1] else molecule.GetBondBetweenAtoms(*edge)
        strokes = [] if bond is None else _bond_lines(line, bond, edge, texts, points, rings)
        bonds.extend(map(_path, strokes))
        marks.append(_group("e", number, f'<path class="band" d="{_path(line)}"/>', "bonded"))
    for node, ((x, y), text) in enumerate(zip(points, texts, strict=True)):
        label = f'<text class="atom" x="{x:.1f}" y="{y:.1f}">{_text(text)}</text>' if text else ""
        marks.append(_group("n", node, f'<circle class="atom-area" cx="{x:.1f}" cy="{y:.1f}" r="7"/>{label}'))
    return _svg(points, marks, f'<path class="bond" d="{"".join(bonds)}"/>')


def _atom_text(atom: Any) -> str:
    """Return the letters of an atom: none for carbon that has neighbours."""
    hydrogens, charge = atom.GetTotalNumHs(), atom.GetFormalCharge()
    if atom.GetAtomicNum() == 6 and atom.GetDegree() and not charge:
        return ""
    count = "" if hydrogens < 2 else str(hydrogens).translate(str.maketrans("23456789", "₂₃₄₅₆₇₈₉"))
    sign = "" if not charge else ("" if abs(charge) == 1 else str(abs(charge))) + "⁺⁻"[charge < 0]
    return f"{atom.GetSymbol()}{'H' if hydrogens else ''}{count}{sign}"


def _bond_lines(
    line: NDArray[Any], bond: Any, ends: list[int], texts: list[str], points: NDArray[Any], rings: list[list[int]]
) -> list[NDArray[Any]]:
    """Return the lines of a bond, which end before letters; the second line of a double bond is inside of its ring."""
    start, end = line[0], line[-1]
    along = (end - start) / (np.linalg.norm(end - start) or 1.0)
    gap = BOND_GAP * np.array([-along[1], along[0]])
    cut_start, cut_end = (TRIM if texts[node] else 0.0 for node in ends)
    middle = np.array([start + cut_start * along, end - cut_end * along])
    order = bond.GetBondTypeAsDouble()
    if order == 3:
        return [middle, middle + gap, middle - gap]
    if order != 2:
        return [middle]
    centres = [points[ring].mean(axis=0) for ring in rings if {*ends} <= {*ring}]
    if not centres:
        return [middle + gap / 2, middle - gap / 2]
    side = np.sign((centres[0] - (start + end) / 2) @ gap) or 1.0
    short = middle + 0.12 * LENGTH * np.array([along, -along])
    return [middle, short + side * gap]


def _fitted(points: NDArray[Any], edges: NDArray[Any]) -> NDArray[Any]:
    """Return points in a picture whose upper left corner is 0, with edges of a fixed mean length or room for nodes."""
    points = points * [1.0, -1.0]
    ends = points[edges.reshape(-1, 2).astype(int)]
    lengths = np.linalg.norm(ends[:, 0] - ends[:, 1], axis=1)
    size = lengths[lengths > 0].mean() if (lengths > 0).any() else 1.0
    room = np.sqrt(len(points) * ROOM**2 / max(np.ptp(points, axis=0).prod(), 1e-9)) if len(points) > CROWD else 0.0
    scaled = points * max(LENGTH / size, room)
    corner = scaled.min(axis=0) if len(scaled) else 0.0
    moved: NDArray[Any] = scaled - corner + MARGIN
    return moved


def _head(line: NDArray[Any]) -> NDArray[Any]:
    """Return an arrowhead past the middle of a line."""
    at = min(len(line) - 2, int(0.6 * (len(line) - 1)))
    step = line[at + 1] - line[at]
    direction = step / (np.linalg.norm(step) or 1.0)
    place = line[at] + (0.6 * step if len(line) == 2 else 0.0)
    head: NDArray[Any] = place + HEAD @ np.array([direction, [-direction[1], direction[0]]])
    return head


def _svg(points: NDArray[Any], marks: list[str], between: str = "") -> str:
    size = (points.max(axis=0) if len(points) else np.zeros(2)) + MARGIN
    (left, top), (width, height) = (size - size.clip(min=MIN_SIZE)) / 2, size.clip(min=MIN_SIZE)
    edges, nodes = ("".join(mark for mark in marks if f"data-{kind}=" in mark[:24]) for kind in "en")
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{left:.1f} {top:.1f} {width:.1f} {height:.1f}">'
    return f"{head}<g>{edges}</g>{between}<g>{nodes}</g></svg>"


def _group(kind: str, number: int, content: str, names: str = "") -> str:
    return f'<g data-{kind}="{number}"{f" class={names.strip()!r}" if names else ""}>{content}</g>'


def _path(line: NDArray[Any]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in line)


def _closed(line: NDArray[Any]) -> str:
    return f'<path class="head" d="{_path(line)}Z"/>'


def _circle(x: float, y: float, radius: float) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}"/>'


def _text(text: object) -> str:
    return escape(NOT_XML.sub("\ufffd", str(text)))
