"""From explanations to what the page shows: graphs with their scores by method and class, and their pictures.

Pictures are SVG without colours, which the page adds: every edge and node has its number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Batch, Data
from torch_geometric.data.data import BaseData
from torch_geometric.explain import Explanation

from captum_goat.bulk.files import SavedAttributions
from captum_goat.metrics import select_edges
from captum_goat.metrics.counted_edges import CountedEdges
from captum_goat.metrics.fidelity import logits_of, of_two_classes, output_of
from captum_goat.nodes.explainer import NodeExplanations
from captum_goat.plot.edge_scores import edge_scores, is_directed, magnitude_scale, strongest
from captum_goat.plot.graph import ARROW, arrow_places, edge_lines, given_points, node_positions
from captum_goat.plot.molecule import molecule_layout, molecule_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

SHARES = tuple(step / 20 for step in range(21))  # of kept edges, at which the curves are measured
RANDOM_ORDERS = 3  # whose mean is shown beside
MAX_DRAWN, TOP_DRAWN, MAX_AROUND = 3000, 150, 350  # edges; larger graphs: the strongest, and others at their nodes
INPUTS = ("x", "edge_index", "edge_attr", "edge_weight", "pos", "z")  # attributes that models read
DIGITS = 9  # significant digits of scores
LENGTH = 40.0  # of an edge on average, the unit of all sizes below
MARGIN, MIN_SIZE = 24.0, 115.0  # of pictures
ROOM, CROWD = 30.0, 100  # in graphs of more nodes than that, every node has a square of this side
RADIUS, DOT = 9.0, 3.5  # of nodes with and without a label inside
MAX_INSIDE = 3  # letters; longer labels are beside the nodes
MAX_LABELLED = 60  # nodes; with more, nodes are dots and the table has the names
ARROW_SIZE = 11.0
NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


@dataclass(frozen=True)
class Appearance:
    """How graphs are named and drawn; see :func:`~captum_goat.report.write_report`."""

    node_labels: Callable[[Data], Any] | Sequence[object] | None = None
    graph_names: Sequence[object] | None = None
    atoms: Callable[[Data], Any] | None = None
    bond_types: Callable[[Data], Any] | None = None
    directed: bool | None = None

    def molecule(self, graph: Data) -> Any:
        """Return the RDKit molecule of a graph, or ``None`` if nothing says that it is one."""
        if self.atoms is None and "z" not in graph and not isinstance(graph.get("smiles"), str):
            return None
        atoms, bond_types = (call and call(graph) for call in (self.atoms, self.bond_types))
        return molecule_of(graph, graph.edge_index, atoms, bond_types)

    def labels(self, graph: Data) -> list[str] | None:
        """Return the labels of a graph's nodes; in parts of a larger graph, those of the nodes ``n_id``."""
        labels: Any = self.node_labels(graph) if callable(self.node_labels) else self.node_labels
        if labels is None:
            molecule = self.molecule(graph)
            return None if molecule is None else [atom.GetSymbol() for atom in molecule.GetAtoms()]
        if "n_id" in graph and not callable(self.node_labels):
            labels = [labels[node] for node in graph.n_id.tolist()]
        texts = [str(label.item() if isinstance(label, Tensor) else label) for label in labels]
        if len(texts) != graph.num_nodes:
            raise ValueError(f"Expected node_labels for {graph.num_nodes} nodes (got {len(texts)}).")
        return texts

    def name(self, graph: Data, position: int) -> str:
        """Return the name of a graph: the given one, its ``name`` or ``smiles``, or its number."""
        if self.graph_names is not None:
            return str(self.graph_names[position])
        if "n_id" in graph and isinstance(graph.get("index"), int):
            return f"node {int(graph.n_id[graph.index])}"
        names = (graph.get(key) for key in ("name", "smiles"))
        return next((name for name in names if isinstance(name, str)), f"graph {position}")


def methods_of(
    explanations: Any, graphs: Sequence[Data] | None = None, limit: int | None = None
) -> dict[str, list[Explanation]]:
    """Return the first explanations by method, from all that :func:`write_report` takes, checked to be alike."""
    by_method = isinstance(explanations, Mapping) and not isinstance(explanations, BaseData)
    given = explanations if by_method else {"attributions": explanations}
    methods = {str(name): _explanation_list(value, graphs, limit) for name, value in given.items()}
    lengths = {name: len(explained) for name, explained in methods.items()}
    if len({*lengths.values()}) != 1 or not any(lengths.values()):
        got = lengths if any(lengths.values()) else "none"
        raise ValueError(f"Expected one or more explanations, as many of each method (got {got}).")
    for position, same_graph in enumerate(zip(*methods.values(), strict=True)):
        first = same_graph[0].edge_index
        if not all(torch.equal(first, explanation.edge_index) for explanation in same_graph):
            raise ValueError(f"Expected explanations of the same graphs (got other edges in number {position}).")
    return methods


def _explanation_list(explanations: Any, graphs: Sequence[Data] | None, limit: int | None) -> list[Explanation]:
    single = isinstance(explanations, BaseData | str | Tensor) or not isinstance(explanations, Sized)
    explained = [explanations] if single else explanations
    numbers = range(len(explained))[:limit]
    if isinstance(explained, NodeExplanations):
        return [explained.subgraph(position) for position in numbers]
    if isinstance(explained, SavedAttributions):
        return [_saved_explanation(explained, number, graphs) for number in numbers]
    for explanation in explained:
        if not isinstance(explanation, Data) or not isinstance(explanation.get("edge_mask"), Tensor):
            got = repr(explanation) if isinstance(explanation, BaseData) else type(explanation).__name__
            raise ValueError(
                "Expected explanations with edge_index and edge_mask, as explain_dataset, explain_nodes and PyG's "
                f"Explainer return them for homogeneous graphs (got {got})."
            )
    return [explained[number] for number in numbers]


def _saved_explanation(saved: SavedAttributions, number: int, graphs: Sequence[Data] | None) -> Explanation:
    """Return the attributions of a file as an explanation, with the attributes of its graph if the graphs are given."""
    entry = saved[number]
    if entry.edges is not None:  # a node of a larger graph
        ends = torch.cat([torch.tensor([saved.meta["nodes"][number]]), entry.edge_index.reshape(-1)])
        nodes, ends = ends.unique(return_inverse=True)
        explanation = Explanation(edge_index=ends[1:].view(2, -1), n_id=nodes, index=int(ends[0]), num_nodes=len(nodes))
    elif graphs is not None:
        explanation = Explanation(**graphs[number].to_dict())
        if not torch.equal(explanation.edge_index.cpu(), entry.edge_index):
            raise ValueError(f"Expected the graphs that were explained (got other edges in graph {number}).")
    else:
        count = int(entry.edge_index.max()) + 1 if entry.edge_index.numel() else 0
        explanation = Explanation(edge_index=entry.edge_index, num_nodes=count)
    added = {"edge_mask": entry.attributions, "prediction": entry.output[None], "delta": entry.delta}
    explanation.update(added | ({} if entry.target is None else {"target": entry.target}))
    return explanation


def graph_record(methods: Sequence[Explanation], position: int, appearance: Appearance) -> dict[str, Any]:
    """Return what the page has of one graph, which is explained by one method or several."""
    graph, views, edges = methods[0], [], np.zeros((0, 2), dtype=int)
    molecule = appearance.molecule(graph)
    directed = is_directed(graph.edge_index) if appearance.directed is None else appearance.directed
    directed = directed and molecule is None
    for number, explanation in enumerate(methods):
        for column, scores in columns_of(explanation):
            edges, merged, _ = edge_scores(scores, explanation.edge_index, directed=directed)
            views.append(_view(number, column, merged, explanation))
    labels, label = appearance.labels(graph), _own_row(graph, "y")
    is_class = label is not None and label.numel() == 1 and not label.is_floating_point()
    record = {
        "name": appearance.name(graph, position),
        "size": graph.num_nodes,
        "label": None if label is None or not is_class else int(label),
        "directed": directed,
        "nodes": labels,
        "ids": graph.n_id.tolist() if "n_id" in graph else None,
        "edges": edges.T.tolist(),
        "views": views,
        "note": "",
    }
    record |= _prediction(_own_row(graph, "prediction"))
    if molecule is not None:
        return record | {"svg": molecule_svg(molecule, edges)}
    return record | _picture(graph, edges, np.array([view["scores"] for view in views]), labels, directed)


def columns_of(explanation: Explanation) -> list[tuple[int | None, Tensor]]:
    """Return the scores of every explained class, with the class."""
    mask = explanation.edge_mask.detach().cpu()
    if mask.dim() == 2 and len(mask) == 1 != explanation.edge_index.size(1):
        mask = mask[0]  # Captum's [1, E]
    if mask.dim() == 2:
        return list(enumerate(mask.unbind(1)))
    target = _own_row(explanation, "target")
    return [(None if target is None else int(target), mask)]


def _own_row(explanation: Explanation, name: str) -> Tensor | None:
    """Return a value that has one row per graph or node, as PyG's ``Explainer`` adds them, of what is explained."""
    value, index = explanation.get(name), _index(explanation)
    if value is None:
        return None
    rows = torch.atleast_1d(torch.as_tensor(value).detach().cpu())
    is_node = index is not None and "n_id" not in explanation and len(rows) == explanation.num_nodes
    return rows[0] if len(rows) == 1 else rows[index] if is_node else None


def _index(explanation: Data) -> int | None:
    """Return the position of the explained node, if it is one."""
    index = explanation.get("index")
    return int(index) if isinstance(index, int) or (isinstance(index, Tensor) and index.numel() == 1) else None


def _view(method: int, column: int | None, scores: NDArray[Any], explanation: Explanation) -> dict[str, Any]:
    """Return one method's scores for one class, and whether they add up."""
    view: dict[str, Any] = {
        "method": method,
        "class": column,
        "scores": [float(f"{score:.{DIGITS}g}") for score in scores],
        "sum": float(scores.sum()),
        "scale": magnitude_scale(scores, 2.0),
    }
    delta = explanation.get("delta")
    if isinstance(delta, Tensor) and bool(delta.isfinite().all()):
        error = float(delta.view(-1)[column or 0] if delta.numel() > 1 else delta)
        view |= {"error": error, "difference": view["sum"] - error}
    return view


def _prediction(output: Tensor | None) -> dict[str, Any]:
    """Return the probabilities of classes, or the output if there is only one number."""
    logits = torch.empty(0) if output is None or not output.isfinite().all() else output.cpu().double().view(-1)
    if logits.numel() > 1:
        return {"probabilities": logits.softmax(0).round(decimals=6).tolist(), "predicted": int(logits.argmax())}
    return {"output": float(logits)} if logits.numel() else {}


def _picture(
    graph: Data, edges: NDArray[Any], scores: NDArray[Any], labels: Sequence[str] | None, directed: bool
) -> dict[str, str]:
    """Return the picture of a graph; of a large one, that of its strongest edges and of some at the same nodes."""
    root, pos = _index(graph), graph.get("pos")
    layout = pos if isinstance(pos, Tensor) and pos.shape[1:] == (2,) else None
    numbers, nodes, note = np.arange(len(edges)), np.arange(graph.num_nodes or 0), ""
    if len(edges) > MAX_DRAWN:
        strength = np.abs(scores).max(axis=0)
        top = strongest(strength, TOP_DRAWN)
        around = np.flatnonzero(np.isin(edges, edges[top]).any(axis=1) & ~top)
        around = around[np.argsort(-strength[around], kind="stable")[:MAX_AROUND]]
        numbers = np.union1d(np.flatnonzero(top), around)
        nodes = np.union1d(edges[numbers], [] if root is None else [root]).astype(int)
        note = f"The {TOP_DRAWN} strongest of {len(edges)} edges, and {len(around)} at their nodes; the table has all."
    picture = graph_svg(
        np.searchsorted(nodes, edges[numbers]),
        numbers,
        nodes,
        labels=None if labels is None else [labels[node] for node in nodes],
        layout=None if layout is None else layout[nodes],
        directed=directed,
        root=root,
    )
    return {"svg": picture, "note": note}


@torch.no_grad()
def add_curves(records: Sequence[dict[str, Any]], methods: Sequence[Sequence[Explanation]], model: Module) -> None:
    """Add fid+ and fid- over the shares of kept edges to the views of all graphs, beside those of random orders."""
    parts = [
        Data(**{key: graph[key] for key in INPUTS if key in graph}, num_nodes=graph.num_nodes) for graph in methods[0]
    ]
    batch = Batch.from_data_list(parts).to(next(model.parameters(), torch.empty(0)).device)
    logits = logits_of(model, batch, logarithms_too=False)
    original, generator = of_two_classes(logits).softmax(dim=1), torch.Generator().manual_seed(0)

    def drops(scores: Tensor) -> Tensor:  # [fid+ and fid-, shares, graphs, classes]
        curves = []
        for share in SHARES:
            selected = select_edges(batch, scores.to(original), sparsity=1 - share)
            kept = [of_two_classes(output_of(model, batch, keep)).softmax(dim=1) for keep in (~selected, selected)]
            curves.append(original - torch.stack(kept))
        return torch.stack(curves, dim=1).cpu().double().round(decimals=4)

    orders = torch.rand(RANDOM_ORDERS, batch.num_edges, generator=generator)
    random = torch.stack([drops(order) for order in orders]).mean(dim=0)
    edges = CountedEdges.of(batch)
    sizes = edges.totals(torch.ones(batch.num_edges, device=edges.number.device))
    for number, explained in enumerate(methods):
        for place, columns in enumerate(zip(*map(columns_of, explained), strict=True)):
            scores = torch.cat([values for _, values in columns]).to(original)
            magnitudes = (edges.totals(scores).abs() / sizes)[edges.number]  # whose sums over an edge are its magnitude
            curves = {"score": drops(scores), "size": drops(magnitudes), "random": random}
            for position, (record, (column, _)) in enumerate(zip(records, columns, strict=True)):
                view = [view for view in record["views"] if view["method"] == number][place]
                row = 1 if logits.size(1) == 1 else column
                if row is not None and bool(curves["size"].isfinite().all()):
                    view["curves"] = {name: values[:, :, position, row].tolist() for name, values in curves.items()}
    for record, output in zip(records, logits, strict=True):
        record.update(_prediction(output))


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
