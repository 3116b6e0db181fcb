"""The metrics once more, slowly: one graph at a time, plain loops, and networkx. Nothing of captum_goat is used."""

from __future__ import annotations

from itertools import permutations, product
from math import exp, floor, nan

import networkx as nx
import torch
from conftest import GNN
from torch import Tensor
from torch_geometric.data import Batch, Data

# What the edges of a random graph are like.
FORMS = ("directed", "undirected", "duplicates", "undirected duplicates", "self-loops", "no edges", "isolated", "mixed")


def random_graph(form: str, seed: int, nodes: int = 6) -> Data:
    """Return a graph with features of a few kinds, random true edges and a class."""
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randint(0, nodes, (2, 7), generator=generator)
    if form == "isolated":
        edges, nodes = edges % 3, nodes + 2
    if form != "self-loops" and form != "mixed":
        edges = edges[:, edges[0] != edges[1]]
    if form == "self-loops":
        edges = torch.cat([edges, torch.tensor([[2, 4], [2, 4]])], dim=1)
    if form in ("undirected", "isolated", "undirected duplicates", "self-loops"):
        edges = torch.cat([edges, edges.flip(0)], dim=1)
    if form == "undirected" or form == "directed":
        edges = edges.unique(dim=1)
    if "duplicates" in form:
        edges = torch.cat([edges, edges[:, ::3]], dim=1)
    if form == "no edges":
        edges = edges[:, :0]
    edges = edges[:, torch.randperm(edges.size(1), generator=generator)]
    label = torch.rand(edges.size(1), generator=generator) < 0.4
    x = torch.eye(4, dtype=torch.float64)[torch.randint(0, 3, (nodes,), generator=generator)]
    return Data(x=x, edge_index=edges, edge_label=label, y=torch.randint(0, 3, (1,), generator=generator))


def random_graphs(seed: int) -> list[Data]:
    """Return graphs of all forms."""
    return [random_graph(form, 100 * seed + index) for index, form in enumerate(FORMS)]


def random_scores(data: Data, seed: int) -> Tensor:
    """Return signed scores with many ties."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-3, 4, (data.edge_index.size(1),), generator=generator).double() / 2


def per_graph(graphs: list[Data], values: Tensor) -> list[Tensor]:
    """Cut what belongs to the edges of a batch into what belongs to each graph's."""
    return list(values.split([graph.edge_index.size(1) for graph in graphs]))


def counted(graph: Data) -> list[list[int]]:
    """Return the columns of each edge, the edges in the order of their first columns."""
    structure = nx.MultiDiGraph()
    structure.add_edges_from(graph.edge_index.t().tolist())
    undirected = all(structure.has_edge(target, source) for source, target in structure.edges())
    columns_of: dict[tuple[int, ...], list[int]] = {}
    for column, (source, target) in enumerate(graph.edge_index.t().tolist()):
        key = tuple(sorted((source, target))) if undirected else (source, target)
        columns_of.setdefault(key, []).append(column)
    return list(columns_of.values())


def ranked(graph: Data, scores: Tensor) -> list[list[int]]:
    """Return the edges, each as its columns, from the highest score to the lowest."""
    return sorted(counted(graph), key=lambda columns: (-sum(float(scores[column]) for column in columns), columns[0]))


def budget(graph: Data, sparsity: float) -> int:
    edges = len(counted(graph))
    number = floor(round((1 - sparsity) * edges, 9))
    return number if sparsity == 1 else min(max(number, 1), edges)


def chosen(graph: Data, scores: Tensor, number: int) -> list[bool]:
    top = {column for columns in ranked(graph, scores)[:number] for column in columns}
    return [column in top for column in range(graph.edge_index.size(1))]


def sparsity(graph: Data, selected: list[bool]) -> float:
    edges = counted(graph)
    left_out = [columns for columns in edges if not any(selected[column] for column in columns)]
    return len(left_out) / len(edges) if edges else nan


def logits(model: GNN, graph: Data, keep: list[bool], nodes: str) -> list[float]:
    """Return what the model makes of a graph of its own that has the kept edges only."""
    edges = [edge for edge, kept in zip(graph.edge_index.t().tolist(), keep, strict=True) if kept]
    remaining = list(range(graph.num_nodes))
    if nodes == "leave":
        remaining = sorted({node for edge in edges for node in edge})
    if not remaining:  # the mean over no nodes is zero
        pooled = torch.zeros(1, model.hidden.in_features, dtype=torch.float64)
        return model.out(model.hidden(pooled).relu())[0].tolist()
    number = {node: index for index, node in enumerate(remaining)}
    edge_index = torch.tensor([[number[source], number[target]] for source, target in edges], dtype=torch.long)
    return model(graph.x[remaining], edge_index.view(-1, 2).t(), torch.zeros(len(remaining), dtype=torch.long))[
        0
    ].tolist()


def probability(model: GNN, graph: Data, keep: list[bool] | None, target: int, nodes: str) -> float:
    everything = [True] * graph.edge_index.size(1)
    outputs = logits(model, graph, everything, "stay") if keep is None else logits(model, graph, keep, nodes)
    return exp(outputs[target]) / sum(exp(output) for output in outputs)


def predicted(model: GNN, graph: Data) -> int:
    outputs = logits(model, graph, [True] * graph.edge_index.size(1), "stay")
    return outputs.index(max(outputs))


def fidelities(model: GNN, graph: Data, selected: list[bool], target: int, nodes: str) -> tuple[float, float]:
    whole = probability(model, graph, None, target, nodes)
    without = probability(model, graph, [not is_selected for is_selected in selected], target, nodes)
    return whole - without, whole - probability(model, graph, selected, target, nodes)


def best_prefix(
    model: GNN, graph: Data, scores: Tensor, longest: int, target: int, nodes: str, shortest: int, enough: float | None
) -> tuple[int, float]:
    """Return the length of the best prefix and its gain."""
    best, gain = -1, -2.0
    for length in range(min(shortest, longest), longest + 1):
        plus, minus = fidelities(model, graph, chosen(graph, scores, length), target, nodes)
        if plus - minus > gain + 1e-12:
            best, gain = length, plus - minus
        if enough is not None and gain > enough:
            break
    return best, gain


def exact_robust_fidelities(
    model: GNN, graph: Data, selected: list[bool], target: int, alpha1: float, alpha2: float
) -> tuple[float, float]:
    """Return the expectations over all subsets of edges."""
    edges, whole = counted(graph), probability(model, graph, None, target, "stay")
    plus = minus = 0.0
    for drawn in product([False, True], repeat=len(edges)):
        columns = {column for edge, is_drawn in zip(edges, drawn, strict=True) if is_drawn for column in edge}
        first, second = 1.0, 1.0
        for is_drawn in drawn:
            first, second = first * (alpha1 if is_drawn else 1 - alpha1), second * (alpha2 if is_drawn else 1 - alpha2)
        removed = [not (is_selected and column in columns) for column, is_selected in enumerate(selected)]
        kept = [is_selected or column in columns for column, is_selected in enumerate(selected)]
        plus += first * (whole - probability(model, graph, removed, target, "stay"))
        minus += second * (whole - probability(model, graph, kept, target, "stay"))
    return plus, minus


def auc(graph: Data, scores: Tensor) -> float:
    """Return the share of pairs of a true and a false edge that are in order."""
    totals: dict[bool, list[float]] = {True: [], False: []}
    for columns in counted(graph):
        totals[any(bool(graph.edge_label[column]) for column in columns)].append(
            sum(float(scores[column]) for column in columns)
        )
    wins = [1.0 if a > b else 0.5 if a == b else 0.0 for a in totals[True] for b in totals[False]]
    return sum(wins) / len(wins) if wins else nan


def precision(graph: Data, scores: Tensor, k: int | None) -> float:
    true = [any(bool(graph.edge_label[column]) for column in columns) for columns in ranked(graph, scores)]
    top = true[: sum(true) if k is None else k]
    return sum(top) / len(top) if top else nan


def same_explanation(first: Data, chosen_first: list[bool], second: Data, chosen_second: list[bool]) -> bool:
    """Try every way to put the nodes of one explanation onto those of the other."""
    one, other = (
        {tuple(edge) for edge, kept in zip(graph.edge_index.t().tolist(), selected, strict=True) if kept}
        for graph, selected in ((first, chosen_first), (second, chosen_second))
    )
    nodes, places = (sorted({node for edge in edges for node in edge}) for edges in (one, other))
    if len(nodes) != len(places) or len(one) != len(other):
        return False
    for order in permutations(places):
        to = dict(zip(nodes, order, strict=True))
        labels_agree = all(torch.equal(first.x[node], second.x[to[node]]) for node in nodes)
        if labels_agree and {(to[source], to[target]) for source, target in one} == other:
            return True
    return False


def batched(graphs: list[Data]) -> Batch:
    return Batch.from_data_list(graphs)
