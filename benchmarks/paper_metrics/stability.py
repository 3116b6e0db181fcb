"""Stability: do a few explanations cover many graphs of a class?"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from benchmarks.paper_metrics.embeddings import check_classes
from captum_goat.metrics.counted_edges import (
    check_selected,
    edges_of,
    graph_of_nodes,
    number_of_graphs,
    numbered_by_first,
)


class TopExplanations(NamedTuple):
    """The most frequent explanations of each class, the most frequent first.

    Attributes:
        group: The number of the explanation ``[C, k]``.
        coverage: Its share of the class ``[C, k]``.
        example: The first sample that has it ``[C, k]``; -1 if the class has none.

    Examples::

        >>> import torch
        >>> from benchmarks.paper_metrics import top_explanations
        >>> top = top_explanations(torch.tensor([4, 7, 7]), k=2)  # one class of three samples
        >>> top.group.tolist(), top.example.tolist()
        ([[7, 4]], [[1, 0]])
    """

    group: Tensor
    coverage: Tensor
    example: Tensor


def distinct_explanations(data: Data | Batch, selected: Tensor, labels: Tensor | None = None) -> Tensor:
    """Number explanations so that two have the same number if and only if they are the same graph with the same labels.

    An explanation is the graph of its selected edges and their nodes. Two are the same if they are isomorphic as
    directed graphs with labelled nodes. Parallel edges count once; an explanation without edges is the empty graph.
    Explanations with the same Weisfeiler-Lehman hash are compared exactly. All by networkx.

    Args:
        data: The batch of G graphs; put all graphs to be compared into one.
        selected: The edges of the explanations, bool ``[E]``.
        labels: The label of each node, integers ``[N]``. By default nodes with equal features have equal labels.
            Give the explained node of a node classifier a label of its own to tell it apart.

    Returns:
        The number of each graph's explanation, ``[G]``, in the order in which they first appear.

    Raises:
        ImportError: If networkx is missing.

    Examples::

        >>> import torch
        >>> from torch_geometric.data import Batch, Data
        >>> from benchmarks.paper_metrics import distinct_explanations
        >>> path, x = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), torch.tensor([[0.0], [0.0], [1.0]])
        >>> batch = Batch.from_data_list([Data(x=x, edge_index=path), Data(x=x.flip(0), edge_index=path)])
        >>> distinct_explanations(batch, torch.tensor([True, True, False, False, False, False, True, True]))
        tensor([0, 0])
        >>> distinct_explanations(batch, torch.tensor([True, True, False, False, True, True, False, False]))
        tensor([0, 1])
    """
    networkx = _networkx()
    selected = check_selected(selected, data)
    alike = networkx.algorithms.isomorphism.categorical_node_match("label", None)
    known: dict[str, list[tuple[Any, int]]] = {}
    numbers: list[int] = []
    count = 0
    for graph in _explanations(networkx, data, selected, _node_labels(data, labels)):
        # The hash of the undirected graph: it is the same in all versions of networkx, and the comparison is exact.
        digest = networkx.weisfeiler_lehman_graph_hash(graph.to_undirected(), node_attr="label")
        candidates = known.setdefault(digest, [])
        number = next((number for other, number in candidates if networkx.is_isomorphic(graph, other, alike)), None)
        if number is None:
            number, count = count, count + 1
            candidates.append((graph, number))
        numbers.append(number)
    return torch.tensor(numbers, dtype=torch.long, device=selected.device)


def distinct_embeddings(embeddings: Tensor, tolerance: float = 1e-4) -> Tensor:
    """Number embeddings so that two have the same number if they are equal when rounded to multiples of a tolerance.

    This is how the authors' code tells explanations apart. It is quick, but explanations that look alike to the model
    count as one, and rounding may part two embeddings that are closer than the tolerance.

    Args:
        embeddings: One row per explanation, ``[M, H]``; see :func:`~benchmarks.paper_metrics.explanation_embeddings`.
        tolerance: What they are rounded to.

    Returns:
        The number of each embedding, ``[M]``, in the order in which they first appear.

    Examples::

        >>> import torch
        >>> from benchmarks.paper_metrics import distinct_embeddings
        >>> distinct_embeddings(torch.tensor([[0.5, 1.0], [0.5, 1.1], [0.50001, 1.00001]]))
        tensor([0, 1, 0])
    """
    if tolerance <= 0.0:
        raise ValueError(f"Expected a tolerance above 0 (got {tolerance}).")
    rounded = (embeddings.detach().double() / tolerance).round()
    return numbered_by_first(torch.unique(rounded, dim=0, return_inverse=True)[1])[0]


def top_explanations(groups: Tensor, classes: Tensor | None = None, k: int = 1) -> TopExplanations:
    """Return the most frequent explanations of each class.

    Args:
        groups: The number of each sample's explanation, ``[M]``, from :func:`distinct_explanations` or
            :func:`distinct_embeddings`.
        classes: The class of each sample, ``[M]``; ``None`` if all are of one class.
        k: How many explanations; fewer if there are fewer distinct ones altogether.

    Returns:
        Their numbers, the share of the class that each covers, and a sample that has it. Of equally frequent ones the
        lower number comes first.

    Examples::

        >>> import torch
        >>> from benchmarks.paper_metrics import top_explanations
        >>> top_explanations(torch.tensor([0, 1, 1, 0, 2]), torch.tensor([0, 0, 0, 1, 1]))
        TopExplanations(group=tensor([[1],
                [0]]), coverage=tensor([[0.6667],
                [0.5000]]), example=tensor([[1],
                [3]]))
    """
    classes = torch.zeros_like(groups) if classes is None else classes.to(groups.device)
    check_classes(classes, len(groups))
    if k < 1:
        raise ValueError(f"Expected k to be 1 or more (got {k}).")
    distinct, group = torch.unique(groups, return_inverse=True)
    sizes = torch.bincount(classes)
    cell, cells = classes * len(distinct) + group, len(sizes) * len(distinct)
    counts = torch.bincount(cell, minlength=cells).view(len(sizes), -1)
    position = torch.arange(len(groups), device=groups.device)
    first = position.new_full((cells,), len(groups)).scatter_reduce_(0, cell, position, "amin").view_as(counts)
    counts, order = torch.sort(counts, dim=1, descending=True, stable=True)
    counts, order = counts[:, :k], order[:, :k]
    example = torch.where(counts > 0, first.gather(1, order), -1)
    return TopExplanations(distinct[order], counts / sizes.unsqueeze(1), example)


def stability(groups: Tensor, classes: Tensor | None = None, k: int = 1) -> Tensor:
    r"""Return the coverage of the k most frequent explanations: the share of a class that has one of them.

    .. math:: \mathrm{coverage}_k(c) = \frac{1}{N_c} \max_{|T| = k} \left|\{i \in c : S_i \in T\}\right|

    Source: Lu et al., *GOAt*, ICLR 2024. Explanations are distinct up to isomorphism (:func:`distinct_explanations`),
    or by their embeddings as in the authors' code (:func:`distinct_embeddings`).

    Args:
        groups: The number of each sample's explanation, ``[M]``.
        classes: The class of each sample, ``[M]``; ``None`` if all are of one class.
        k: How many explanations.

    Returns:
        The coverage of each class, ``[C]``; nan for classes without samples.

    Examples::

        >>> import torch
        >>> from benchmarks.paper_metrics import stability
        >>> stability(torch.tensor([0, 1, 1, 0, 2, 2, 3]), torch.tensor([0, 0, 0, 1, 1, 1, 1]), k=2)
        tensor([1.0000, 0.7500])
    """
    return top_explanations(groups, classes, k).coverage.sum(dim=1)


def _networkx() -> Any:
    try:
        import networkx
    except ImportError as error:
        raise ImportError(
            "networkx is needed to compare explanations (or compare them by distinct_embeddings): "
            "pip install captum-goat[plot]"
        ) from error
    return networkx


def _node_labels(data: Data | Batch, labels: Tensor | None) -> list[int]:
    """Return a label for each node."""
    if labels is None:
        features: Tensor = data.x
        labels = torch.unique(features.reshape(len(features), -1), dim=0, return_inverse=True)[1]
    elif labels.is_floating_point() or labels.shape != (data.num_nodes,):
        raise ValueError(
            f"Expected labels as integers, one for each of {data.num_nodes} nodes (got {labels.dtype} "
            f"{list(labels.shape)})."
        )
    label_list: list[int] = labels.tolist()
    return label_list


def _explanations(networkx: Any, data: Data | Batch, selected: Tensor, labels: list[int]) -> list[Any]:
    """Return the graph of each explanation."""
    graphs = [networkx.DiGraph() for _ in range(number_of_graphs(data))]
    edges = edges_of(data)[:, selected]
    of_edges = graph_of_nodes(data)[edges[0]].tolist()
    for graph, source, target in zip(of_edges, *edges.tolist(), strict=True):
        graphs[graph].add_node(source, label=labels[source])
        graphs[graph].add_node(target, label=labels[target])
        graphs[graph].add_edge(source, target)
    return graphs
