"""The most frequent explanations of each class, drawn, with the share of the class that has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor
from torch_geometric.data import Data

try:
    import networkx
except ImportError as error:
    raise ImportError("The benchmark's pictures need networkx: pip install captum-goat[plot]") from error

from benchmarks.figure_style import new_figure, save
from benchmarks.paper.measurements import PAPER_SPARSITY, Key
from benchmarks.paper.result_cache import Cell
from benchmarks.paper.study import Study
from benchmarks.paper.tables import title
from benchmarks.paper.tasks import Task
from benchmarks.paper_metrics import top_explanations

TOP = 3
# One-hot columns of Mutagenicity's atoms; elsewhere nodes are drawn without names.
ATOMS = {"mutagenicity": ("C", "O", "Cl", "H", "N", "F", "Br", "S", "P", "I", "Na", "K", "Li", "Ca")}


def draw_motifs(study: Study, explainer: str, path: Path) -> Path | None:
    """Draw an explainer's most frequent explanations of correctly predicted graphs, with the searched prefix.

    Args:
        study: What the explainers did on a task of graphs.
        explainer: The explainer.
        path: Where to write.

    Returns:
        The path; ``None`` if the explainer was skipped or the task is one of nodes.
    """
    cell, key = study.cell(explainer), Key("coverage", "leave", "search", str(PAPER_SPARSITY))
    if cell is None or key not in cell.measurements.groups:
        return None
    task, groups = study.task, cell.measurements.groups[key]
    correct = task.correct[: len(groups)].nonzero().squeeze(1)
    classes = task.predicted[correct]
    labels = classes.unique().tolist()
    figure, axes = new_figure(max(1, len(labels)), TOP, 2.0, 1.9)
    for row, label in enumerate(labels):
        of_class = correct[classes == label]
        top = top_explanations(groups[of_class], k=TOP)
        for column in range(TOP):
            axis = axes[row][column]
            axis.set_axis_off()
            if column < top.group.size(1) and int(top.example[0, column]) >= 0:
                index = int(of_class[top.example[0, column]])
                _draw(axis, task, index, _selected(task, cell, key, index))
                axis.set_title(f"class {label}: {100 * float(top.coverage[0, column]):.1f} %", fontsize=9)
    figure.suptitle(f"{title(task.dataset, task.gnn)}: {explainer}", fontsize=9)
    return save(figure, path)


def _selected(task: Task, cell: Cell, key: Key, index: int) -> Tensor:
    """Return the explanation of one graph, bool ``[edges]``."""
    before = sum(graph.num_edges for graph in task.graphs[:index])
    selected = cell.measurements.selected[key._replace(metric="")]
    return selected[before : before + task.graphs[index].num_edges]


def _draw(axis: Any, task: Task, index: int, selected: Tensor) -> None:
    data: Data = task.graphs[index]
    graph = networkx.Graph()
    graph.add_edges_from(data.edge_index[:, selected].t().tolist())
    atoms = ATOMS.get(task.dataset)
    kinds = data.x.argmax(dim=1)
    names = {node: atoms[int(kinds[node])] if atoms else "" for node in graph}
    alike = bool((data.x == data.x[0]).all())
    colours = ["lightsteelblue" if alike else f"C{int(kinds[node]) % 10}" for node in graph]
    places = _layout(graph)
    networkx.draw_networkx(
        graph, places, ax=axis, labels=names, node_color=colours, node_size=90, font_size=7, edge_color="dimgrey"
    )


def _layout(graph: Any) -> dict[int, tuple[float, float]]:
    """Lay out the components of a graph side by side, without crossings where that is possible."""
    places: dict[int, tuple[float, float]] = {}
    left = 0.0
    for nodes in sorted(networkx.connected_components(graph), key=len, reverse=True):
        part = graph.subgraph(nodes)
        start = networkx.planar_layout(part) if networkx.check_planarity(part)[0] else None
        positions = networkx.kamada_kawai_layout(part, pos=start, scale=len(nodes) ** 0.5)
        shift = left - min(x for x, _ in positions.values())
        places |= {node: (x + shift, y) for node, (x, y) in positions.items()}
        left = max(x for x, _ in places.values()) + 2.0
    return places
