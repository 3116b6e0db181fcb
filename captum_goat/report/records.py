"""From explanations to what the page shows: graphs with their scores by method and class, as plain values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Batch, Data
from torch_geometric.explain import Explanation

from captum_goat.bulk.files import SavedAttributions
from captum_goat.metrics import select_edges
from captum_goat.metrics.reduced_graphs import logits_of, of_two_classes, output_of
from captum_goat.nodes.results import NodeExplanations
from captum_goat.plot.edge_scores import edge_scores, is_directed, magnitude_scale, strongest
from captum_goat.plot.molecule_graph import molecule_of
from captum_goat.report.drawing import graph_svg, molecule_svg

if TYPE_CHECKING:
    from numpy.typing import NDArray

SHARES = tuple(step / 20 for step in range(21))  # of kept edges, at which the curves are measured
RANDOM_ORDERS = 3  # whose mean is shown beside
MAX_DRAWN, TOP_DRAWN = 3000, 150  # edges; larger graphs are drawn as their strongest edges with some others around
MAX_AROUND = 350
BATCH_EDGES = 100_000  # in one pass of the model
DIGITS = 9  # significant digits of scores


@dataclass(frozen=True)
class Appearance:
    """How graphs are named and drawn; see :func:`~captum_goat.report.write_report`."""

    node_labels: Callable[[Data], Any] | Sequence[object] | None = None
    graph_names: Sequence[object] | None = None
    atoms: Callable[[Data], Any] | None = None
    bond_types: Callable[[Data], Any] | None = None
    directed: bool | None = None

    def labels(self, graph: Data) -> list[str] | None:
        """Return the labels of a graph's nodes; in parts of a larger graph, those of the nodes ``n_id``."""
        labels: Any = self.node_labels(graph) if callable(self.node_labels) else self.node_labels
        if labels is None:
            return None
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

    def molecule(self, graph: Data) -> Any:
        """Return the RDKit molecule of a graph, or ``None`` if nothing says that it is one."""
        if self.atoms is None and "z" not in graph and not isinstance(graph.get("smiles"), str):
            return None
        atoms = None if self.atoms is None else self.atoms(graph)
        bond_types = None if self.bond_types is None else self.bond_types(graph)
        return molecule_of(graph, graph.edge_index, atoms, bond_types)


def explanations_by_method(
    explanations: Any, graphs: Sequence[Data] | None = None, limit: int | None = None
) -> dict[str, list[Explanation]]:
    """Return the first explanations by method, from all that :func:`write_report` takes, checked to be alike."""
    given = (
        explanations if isinstance(explanations, Mapping) and not isinstance(explanations, Data) else {"": explanations}
    )
    methods = {str(name): _explanation_list(value, graphs, limit) for name, value in given.items()}
    lengths = {len(explained) for explained in methods.values()}
    if len(lengths) != 1 or lengths == {0}:
        raise ValueError(f"Expected one or more explanations, as many of every method (got {sorted(lengths)}).")
    first = next(iter(methods.values()))
    for name, explained in methods.items():
        for position, (one, other) in enumerate(zip(first, explained, strict=True)):
            if not torch.equal(one.edge_index.cpu(), other.edge_index.cpu()):
                raise ValueError(f"Expected explanations of the same graphs (got other edges in {name}, {position}).")
    return methods


def _explanation_list(explanations: Any, graphs: Sequence[Data] | None, limit: int | None) -> list[Explanation]:
    explained = [explanations] if isinstance(explanations, Data) else explanations
    numbers = range(len(explained))[:limit]
    if isinstance(explained, NodeExplanations):
        return [explained.subgraph(position) for position in numbers]
    if isinstance(explained, SavedAttributions):
        return [saved_explanation(explained, number, graphs) for number in numbers]
    explained = [explained[number] for number in numbers]
    for explanation in explained:
        if not isinstance(explanation, Data) or not isinstance(explanation.get("edge_mask"), Tensor):
            raise ValueError(
                "Expected explanations with edge_index and edge_mask, as explain_dataset, explain_nodes and PyG's "
                f"Explainer return them (got {explanation!r})."
            )
    return explained


def saved_explanation(saved: SavedAttributions, number: int, graphs: Sequence[Data] | None = None) -> Explanation:
    """Return the attributions of a file as an explanation, with the attributes of its graph if the graphs are given."""
    entry = saved[number]
    attributes = {} if graphs is None or entry.edges is not None else graphs[number].to_dict()
    explanation = Explanation(**attributes | {"edge_index": entry.edge_index, "edge_mask": entry.attributions})
    if attributes and not torch.equal(graphs[number].edge_index.cpu(), entry.edge_index):  # type: ignore[index]
        raise ValueError(f"Expected the graphs that were explained (got other edges in graph {number}).")
    explanation.prediction, explanation.delta = entry.output.unsqueeze(0), entry.delta.unsqueeze(0)
    if entry.target is not None:
        explanation.target = entry.target.view(1)
    if entry.edges is not None:  # a node of a larger graph
        ends = torch.cat([torch.tensor([saved.meta["nodes"][number]]), entry.edge_index.reshape(-1)])
        nodes, ends = ends.unique(return_inverse=True)
        explanation.update({"n_id": nodes, "e_id": entry.edges, "index": int(ends[0])})
        explanation.edge_index = ends[1:].view(2, -1)
        explanation.num_nodes = len(nodes)
    elif "num_nodes" not in explanation and explanation.x is None:
        explanation.num_nodes = int(entry.edge_index.max()) + 1 if entry.edge_index.numel() else 0
    return explanation


def graph_record(methods: Mapping[str, Explanation], position: int, appearance: Appearance) -> dict[str, Any]:
    """Return what the page has of one graph, which is explained by one method or several."""
    graph = next(iter(methods.values()))
    directed = is_directed(graph.edge_index) if appearance.directed is None else appearance.directed
    molecule = appearance.molecule(graph)
    directed = directed and molecule is None
    views, edges = [], np.zeros((0, 2), dtype=int)
    for number, explanation in enumerate(methods.values()):
        for column, scores in columns_of(explanation):
            edges, merged, _ = edge_scores(scores, explanation.edge_index, directed=directed)
            views.append(_view(number, column, merged, explanation))
    labels = [atom.GetSymbol() for atom in molecule.GetAtoms()] if molecule is not None else None
    labels = appearance.labels(graph) or labels
    record = _prediction(graph) | {
        "name": appearance.name(graph, position),
        "size": graph.num_nodes,
        "directed": directed,
        "nodes": labels,
        "ids": graph.n_id.tolist() if "n_id" in graph else None,
        "edges": edges.T.tolist(),
        "views": views,
        "note": "",
    }
    if molecule is not None:
        return record | {"svg": molecule_svg(molecule, edges)}
    return record | _picture(graph, edges, np.array([view["scores"] for view in views]), labels, directed)


def columns_of(explanation: Explanation) -> list[tuple[int | None, Tensor]]:
    """Return the scores of every explained class, with the class."""
    mask = explanation.edge_mask.detach().cpu()
    if mask.dim() == 2 and mask.size(0) != explanation.edge_index.size(1) and len(mask) == 1:
        mask = mask[0]  # Captum's [1, E]
    if mask.dim() == 2:
        return [(column, mask[:, column]) for column in range(mask.size(1))]
    target = explanation.get("target")
    return [(None if target is None else int(torch.as_tensor(target).view(-1)[0]), mask)]


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
    if isinstance(delta, Tensor):
        deltas = delta.detach().cpu().double().view(-1)
        error = float(deltas[column or 0] if len(deltas) > 1 else deltas[0])
        view |= {"error": error, "difference": view["sum"] - error}
    return view


def _prediction(graph: Data) -> dict[str, Any]:
    """Return the probabilities of classes, or the output if there is only one number."""
    label = graph.get("y")
    known = isinstance(label, Tensor) and label.numel() == 1 and not label.is_floating_point()
    record: dict[str, Any] = {"label": int(label) if known else None}
    prediction = graph.get("prediction")
    logits = prediction.detach().cpu().double().view(-1) if isinstance(prediction, Tensor) else torch.empty(0)
    if logits.numel() > 1:
        probabilities = logits.softmax(dim=0)
        rounded = [round(float(probability), 6) for probability in probabilities]
        record |= {"probabilities": rounded, "predicted": int(probabilities.argmax())}
    elif logits.numel():
        record["output"] = float(logits)
    return record


def _picture(
    graph: Data, edges: NDArray[Any], scores: NDArray[Any], labels: Sequence[str] | None, directed: bool
) -> dict[str, str]:
    """Return the picture of a graph; of a large one, that of its strongest edges and of some at the same nodes."""
    root, pos = graph.get("index"), graph.get("pos")
    root = root if isinstance(root, int) else None
    layout = pos if isinstance(pos, Tensor) and pos.shape[1:] == (2,) else None
    if len(edges) <= MAX_DRAWN:
        return {
            "svg": graph_svg(edges, int(graph.num_nodes), labels=labels, layout=layout, directed=directed, root=root)
        }
    strength = np.abs(scores).max(axis=0)
    top = strongest(strength, TOP_DRAWN)
    around = np.flatnonzero(np.isin(edges, edges[top]).any(axis=1) & ~top)
    around = around[np.argsort(-strength[around], kind="stable")[:MAX_AROUND]]
    numbers = np.union1d(np.flatnonzero(top), around)
    nodes = np.union1d(edges[numbers].ravel(), [] if root is None else [root]).astype(int)
    picture = graph_svg(
        np.searchsorted(nodes, edges[numbers]),
        len(nodes),
        labels=None if labels is None else [labels[node] for node in nodes],
        layout=None if layout is None else layout[nodes],
        directed=directed,
        root=root,
        numbers=numbers,
        nodes=nodes,
    )
    note = f"The {TOP_DRAWN} strongest of {len(edges)} edges, and {len(around)} at their nodes; the table has all."
    return {"svg": picture, "note": note}


@torch.no_grad()
def add_curves(records: Sequence[dict[str, Any]], methods: Mapping[str, Sequence[Explanation]], model: Module) -> None:
    """Add fid+ and fid- over the shares of kept edges to the views of all graphs, and those of random orders."""
    graphs = next(iter(methods.values()))
    first = 0
    while first < len(graphs):
        last, edges = first + 1, graphs[first].num_edges
        while last < len(graphs) and edges + graphs[last].num_edges <= BATCH_EDGES:
            edges, last = edges + graphs[last].num_edges, last + 1
        _add_curves(records[first:last], {name: explained[first:last] for name, explained in methods.items()}, model)
        first = last


def _add_curves(records: Sequence[dict[str, Any]], methods: Mapping[str, Sequence[Explanation]], model: Module) -> None:
    graphs = next(iter(methods.values()))
    keys = ("x", "edge_index", "edge_attr", "edge_weight", "pos", "z")
    parts = [Data(**{key: graph[key] for key in keys if key in graph}, num_nodes=graph.num_nodes) for graph in graphs]
    parameter = next(model.parameters(), torch.empty(0))
    batch = Batch.from_data_list(parts).to(parameter.device)
    original = of_two_classes(logits_of(model, batch, logarithms_too=False)).softmax(dim=1)
    logits = output_of(model, batch)

    def drops(scores: Tensor) -> Tensor:  # [2, shares, graphs, classes]
        curves = []
        for share in SHARES:
            selected = select_edges(batch, scores, sparsity=1 - share)
            kept = [of_two_classes(output_of(model, batch, keep)).softmax(dim=1) for keep in (~selected, selected)]
            curves.append(torch.stack([original - probabilities for probabilities in kept]))
        return torch.stack(curves, dim=1).cpu()

    generator = torch.Generator().manual_seed(0)
    random = torch.stack(
        [drops(torch.rand(batch.num_edges, generator=generator).to(batch.x)) for _ in range(RANDOM_ORDERS)]
    ).mean(dim=0)
    for number, explained in enumerate(methods.values()):
        columns = [columns_of(explanation) for explanation in explained]
        for place in range(max(map(len, columns))):
            scores = torch.cat([own[min(place, len(own) - 1)][1] for own in columns]).to(batch.x)
            orders = {"score": drops(scores), "size": drops(_magnitudes(batch, scores))}
            for position, record in enumerate(records):
                own = [view for view in record["views"] if view["method"] == number][place : place + 1]
                for view in own:
                    column = 1 if logits.size(1) == 1 else view["class"]
                    if column is not None:
                        view["curves"] = {
                            name: values[:, :, position, column].double().round(decimals=4).tolist()
                            for name, values in (orders | {"random": random}).items()
                        }
    for record, row in zip(records, logits.cpu(), strict=True):
        record |= _prediction(Data(prediction=row)) | {"label": record["label"]}


def _magnitudes(batch: Batch, scores: Tensor) -> Tensor:
    """Return scores whose sums over the columns of an edge are the magnitudes of the edges' scores."""
    from captum_goat.metrics.counted_edges import CountedEdges, sums

    edges = CountedEdges.of(batch)
    columns = sums(torch.ones_like(scores), edges.number, len(edges.graph))
    return (edges.totals(scores).abs() / columns)[edges.number]


def finite(value: Any) -> Any:
    """Return plain values for JSON, with ``None`` in place of what is not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(entry) for key, entry in value.items()}
    return [finite(entry) for entry in value] if isinstance(value, list | tuple) else value
