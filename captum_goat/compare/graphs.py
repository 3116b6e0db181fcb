"""What is explained: a model and graphs, or nodes of one, checked beforehand; and graphs with their classes."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy, deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Batch, Data

from captum_goat.inputs.arguments import signature_of
from captum_goat.inputs.targets import node_numbers
from captum_goat.masked_model import EdgeMaskedModel
from captum_goat.metrics import NodePolicy
from captum_goat.metrics.counted_edges import CountedEdges, description, edges_of, graph_of_nodes, number_of_graphs
from captum_goat.metrics.fidelity import class_per_graph, logits_of, model_arguments, of_two_classes, signed_logits
from captum_goat.models import RootClassifier
from captum_goat.wrapped_model import ExplainedModel

SPARSITIES = (0.5, 0.6, 0.7, 0.8, 0.9)
MAX_GRAPHS = 64  # in one batch
MAX_EDGES = 20_000  # in one batch; infidelity makes copies of it
RELATIVE, ABSOLUTE = 1e-3, 1e-4  # tolerances where outputs of a node are compared
# The largest number of edges in one call of a model, copies included: enough to be fast, few enough for any memory.
LARGEST_CALL = 400_000


@dataclass(frozen=True)
class Subject:
    """A model, graphs, the class of each graph to explain, and how explanations are measured."""

    model: Module  # in evaluation mode
    graphs: list[Data]
    target: Tensor  # the class of each graph, [G]
    notes: tuple[str, ...] = ()  # for the user
    sparsities: tuple[float, ...] = SPARSITIES  # shares of edges that are not selected, in ascending order
    node_policy: NodePolicy = "stay"
    seed: int = 0  # of explainers, robust fidelities and infidelity

    @classmethod
    def of(
        cls,
        model: Module,
        graphs: Iterable[Data] | Data,
        target: Tensor | Sequence[int] | int | None = None,
        nodes: Tensor | Sequence[int] | None = None,
        num_hops: int | None = None,
    ) -> Subject:
        """Check and copy the model and graphs of :func:`~captum_goat.compare.compare`."""
        if not isinstance(model, Module):
            raise ValueError(f"Expected a model, torch.nn.Module (got {type(model).__name__}).")
        ExplainedModel(model, "edge", None).check_evaluating()
        own, notes = deepcopy(model).eval(), []  # in PyG 2.6 a copy of its Linear layer is in training mode
        if nodes is None:
            checked = _checked(own, _sequence(graphs))
        else:
            whole, roots, cut = _of_nodes(graphs, nodes, num_hops)
            takes_graph = len(model_arguments(own, whole)) == 1
            own = _GraphRootClassifier(own) if takes_graph else RootClassifier(own)
            checked = _checked(own, cut)
            notes = _differences(own, checked, whole, roots)
        logits = of_two_classes(_logits(own, checked))
        classes = logits.argmax(dim=1) if target is None else class_per_graph(target, logits).clone()
        return cls(own, checked, classes, tuple(notes))

    def copied(self) -> Subject:
        """Return a copy, which an explainer may change."""
        graphs = [graph.clone() for graph in self.graphs]
        return replace(self, model=deepcopy(self.model).eval(), graphs=graphs, target=self.target.clone())


class _GraphRootClassifier(RootClassifier):
    """The same for a model that is called with the graph."""

    def forward(self, data: Data) -> Tensor:  # type: ignore[override]
        return self.of_roots(self.model(data), data.batch)


def batches(graphs: Sequence[Data]) -> Iterator[tuple[slice, Batch]]:
    """Split a sequence of graphs into batches of limited size, of one graph or more each."""
    first, edges = 0, 0
    for index, graph in enumerate(graphs):
        if index > first and (index - first == MAX_GRAPHS or edges + graph.num_edges > MAX_EDGES):
            yield slice(first, index), Batch.from_data_list(list(graphs[first:index]))
            first, edges = index, 0
        edges += graph.num_edges
    if first < len(graphs):
        yield slice(first, len(graphs)), Batch.from_data_list(list(graphs[first:]))


def _logits(model: Module, graphs: Sequence[Data]) -> Tensor:
    return torch.cat([logits_of(model, batch) for _, batch in batches(graphs)])


def _sequence(graphs: Any) -> list[Data]:
    if isinstance(graphs, Data) and not isinstance(graphs, Batch):
        raise ValueError("Expected a sequence of graphs (got one graph). Pass [graph], or nodes=... and num_hops=...")
    sequence: list[Data] = graphs.to_data_list() if isinstance(graphs, Batch) else list(graphs)
    if not sequence:
        raise ValueError("Expected one graph or more (got none).")
    return sequence


def _checked(model: Module, graphs: Sequence[Data]) -> list[Data]:
    """Return copies of graphs with the attributes that the model and the metrics need."""
    checked = [_plain(graph, index) for index, graph in enumerate(graphs)]
    inner = model.model if isinstance(model, RootClassifier) else model
    named = [name for name in signature_of(inner).parameters if any(name in graph for graph in checked)]
    missing = [(index, name) for index, graph in enumerate(checked) for name in named if name not in graph]
    if missing:
        index, name = missing[0]
        got = f"got graph {index} without, others with"
        raise ValueError(f"Expected {name}, which the model takes, in all graphs or in none ({got}).")
    everything = list(checked[0].keys())
    wanted = [*named, "x", "edge_index", "edge_label"] if "edge_index" in named else everything
    shared = [name for name in everything if name in wanted and all(name in graph for graph in checked)]
    return [Data(**{name: graph[name] for name in shared}) for graph in checked]


def _plain(graph: Any, index: int) -> Data:
    """Return a copy of a graph that explainers can use, or raise ValueError."""
    if not isinstance(graph, Data):
        raise ValueError(f"Expected graphs, torch_geometric.data.Data (got {type(graph).__name__} as graph {index}).")
    x, edge_index = graph.x, edges_of(graph)
    if not isinstance(x, Tensor) or x.dim() != 2 or not x.is_floating_point():
        raise ValueError(f"Expected floating-point node features x [N, F] (got {description(x)} in graph {index}).")
    if not edge_index.size(1):
        raise ValueError(
            f"Expected graphs with edges (got none in graph {index}). Pass those for which graph.num_edges > 0."
        )
    label = graph.edge_label if "edge_label" in graph else torch.zeros_like(edge_index[0], dtype=torch.bool)
    if not isinstance(label, Tensor) or label.dtype != torch.bool or label.shape != edge_index.shape[1:]:
        raise ValueError(
            f"Expected edge_label, the ground truth, as bool [E] (got {description(label)} in graph {index}). Delete "
            "it if it means something else."
        )
    plain = copy(graph)
    plain.edge_index = edge_index
    for name, value in plain:
        if isinstance(value, Tensor):  # autograd refuses inference tensors, so these are copied
            plain[name] = value.detach().clone() if value.is_inference() else value.detach()
    return plain


def _of_nodes(data: Any, nodes: Any, num_hops: int | None) -> tuple[Data, Tensor, list[Data]]:
    """Return a graph, the nodes to explain as integers, and their computation graphs."""
    if not isinstance(data, Data) or isinstance(data, Batch) or num_hops is None:
        got = "no num_hops" if isinstance(data, Data) else type(data).__name__
        raise ValueError(
            f"Expected one graph, torch_geometric.data.Data, and num_hops for nodes=... (got {got}). num_hops is the "
            "number of message-passing layers; one more if degrees matter, as in GCN."
        )
    if not isinstance(num_hops, int) or num_hops < 1:
        raise ValueError(f"Expected num_hops, the number of layers, to be 1 or more (got {num_hops!r}).")
    whole = _plain(data, 0)
    roots = node_numbers(nodes, whole.num_nodes, whole.x.device)
    graphs = computation_graphs(whole, roots, num_hops)
    isolated = [node for node, graph in zip(roots.tolist(), graphs, strict=True) if not graph.num_edges]
    if isolated:
        raise ValueError(
            f"Expected nodes with incoming edges (got {len(isolated)} without, such as {isolated[0]}). Leave them out."
        )
    return whole, roots, graphs


def computation_graphs(data: Data, nodes: Tensor | Sequence[int], num_hops: int) -> list[Data]:
    r"""Cut out the computation graph of each node, so that nodes can be explained as graphs are.

    The output of a node after ``num_hops`` message-passing layers depends on the edges that are that many steps away.
    The computation graph has these edges and their nodes, with the node as node 0. For layers that sum messages,
    :class:`~captum_goat.models.RootClassifier` then returns the row that the model returns for the node in the whole
    graph. Where degrees matter, as in GCN, that takes one more hop: nodes at the border lose edges. The graphs have the
    attributes of ``data``, of ``y`` only that of the node, and their nodes' and edges' indices: ``n_id``, ``e_id``.

    Examples:
        >>> from torch_geometric.data import Data
        >>> from captum_goat.compare import computation_graphs
        >>> path = torch.tensor([[0, 1, 2, 1, 2, 3], [1, 2, 3, 0, 1, 2]])  # 0 - 1 - 2 - 3, both directions
        >>> (graph,) = computation_graphs(Data(x=torch.ones(4, 1), edge_index=path), nodes=[3], num_hops=2)
        >>> graph.n_id, graph.e_id, graph.edge_index.tolist()
        (tensor([3, 1, 2]), tensor([1, 2, 5]), [[1, 2, 0], [2, 0, 2]])
    """
    if num_hops < 0:
        raise ValueError(f"Expected num_hops, the number of message-passing layers, to be 0 or more (got {num_hops}).")
    roots = torch.as_tensor(nodes, dtype=torch.long).view(-1)
    if len(roots):
        roots = node_numbers(roots, data.num_nodes)
    return [_computation_graph(data, root, num_hops) for root in roots]


def _computation_graph(data: Data, root: Tensor, num_hops: int) -> Data:
    source, target = data.edge_index
    has_node = torch.zeros(data.num_nodes, dtype=torch.bool, device=source.device)
    has_edge = torch.zeros_like(source, dtype=torch.bool)
    has_node[root] = True
    for _ in range(num_hops):
        has_edge = has_node[target]
        has_node[source[has_edge]] = True
    has_node[root] = False
    n_id, e_id = torch.cat([root.view(1), has_node.nonzero().view(-1)]), has_edge.nonzero().view(-1)
    graph = data.edge_subgraph(e_id).subgraph(n_id)
    graph.n_id, graph.e_id = n_id, e_id
    if isinstance(data.y, Tensor):
        graph.y = data.y[n_id[:1]]
    return graph


@torch.no_grad()
def _differences(rooted: RootClassifier, cut: list[Data], whole: Data, nodes: Tensor) -> list[str]:
    """Return a note if nodes have other outputs in their computation graphs than in the whole graph."""
    rows = rooted.model(*model_arguments(rooted.model, whole))
    if not isinstance(rows, Tensor) or rows.shape[:1] != (whole.num_nodes,):
        raise ValueError(
            f"Expected a model with one row for each of {whole.num_nodes} nodes (got {description(rows)}). For a graph "
            "classifier leave out nodes=..."
        )
    expected = rows[nodes].view(len(nodes), -1)
    logits = _logits(rooted, cut)
    if torch.allclose(logits, expected, RELATIVE, ABSOLUTE):
        return []
    changed = int((of_two_classes(logits).argmax(dim=1) != of_two_classes(expected).argmax(dim=1)).sum())
    largest = float((logits - expected).abs().max())
    return [
        f"Nodes have other outputs in their computation graphs than in the whole graph: logits differ by up to "
        f"{largest:.2g}, and {changed} of {len(nodes)} predicted classes change. The comparison is about the "
        "computation graphs. Where degrees matter, as in GCN, one more hop makes the outputs equal."
    ]


@dataclass(frozen=True)
class Graphs:
    """One graph, or several side by side as in a PyG batch, each with the class to explain."""

    data: Data  # with x, edge_index and batch
    target: Tensor  # the class of each graph, [G]
    model: Module | None = None  # whose arguments are ``inputs``; None for one called as model(x, edge_index, batch)
    x: Tensor = field(init=False)  #: The node features, ``[N, F]``.
    edge_index: Tensor = field(init=False)  #: The edges, ``[2, E]``.
    batch: Tensor = field(init=False)  #: The graph of each node, ``[N]``.

    def __post_init__(self) -> None:
        for name in ("x", "edge_index", "batch"):
            object.__setattr__(self, name, self.data[name])

    @classmethod
    def of(cls, data: Data | Batch, target: Any, model: Module | None = None) -> Graphs:
        """Read a graph or a batch of graphs; ``target`` is the class of all graphs, or one per graph."""
        edge_index, count = edges_of(data), number_of_graphs(data)
        classes = torch.as_tensor(target, dtype=torch.long, device=data.x.device).reshape(-1).expand(count)
        data = copy(data)
        data.edge_index, data.batch = edge_index, graph_of_nodes(data)
        return cls(data, classes, model)

    @property
    def inputs(self) -> tuple[Any, ...]:
        """The arguments of the model."""
        return (self.x, self.edge_index, self.batch) if self.model is None else model_arguments(self.model, self.data)

    @property
    def num_edges(self) -> int:
        """E, the number of columns of ``edge_index``."""
        return self.edge_index.size(1)

    @property
    def mask(self) -> Tensor:
        """An edge mask of ones, ``[E]``."""
        return self.x.new_ones(self.num_edges)

    @cached_property
    def edges(self) -> CountedEdges:
        """The edges as they are counted: both directions are one edge if every edge has its reverse."""
        return CountedEdges.of(self.data)

    def changed(self, **attributes: Tensor) -> Graphs:
        """Return the graphs with other features, edges, or other attributes."""
        return replace(self, data=copy(self.data).update(attributes))

    def shared(self, totals: Tensor) -> Tensor:
        """Share the score of each counted edge ``[M]`` equally among its columns ``[E]``."""
        return (totals / self.edges.number.bincount(minlength=len(totals)))[self.edges.number]

    def of_target(self, logits: Tensor) -> Tensor:
        """Select the target class: ``[..., G]`` from logits ``[..., G, C]``; of a single logit, it or its negative."""
        logits = signed_logits(logits)
        index = self.target.view(-1, 1).expand(*logits.shape[:-1], 1)
        return logits.gather(-1, index).squeeze(-1)

    def values(self, model: Module) -> Tensor:
        """Return the model's logit of each graph's target class, ``[G]``."""
        return self.of_target(model(*self.inputs).view(len(self.target), -1))

    def parts(self, copies: int = 1) -> Iterator[tuple[Graphs, Tensor]]:
        """Yield parts small enough for one call with some copies (0 for single graphs), with their columns of edges."""
        graph_of_column, count = self.edges.columns_graph, len(self.target)
        sizes = graph_of_column.bincount(minlength=count)
        before = sizes.cumsum(0) - sizes
        part = before * copies // LARGEST_CALL if copies else torch.arange(count, device=self.x.device)
        numbers = part.unique()
        if len(numbers) == 1:
            yield self, torch.arange(self.num_edges, device=self.x.device)
            return
        whole = Data.from_dict({name: value for name, value in self.data.to_dict().items() if name != "ptr"})
        for number in numbers:
            graphs = part == number
            cut = whole.subgraph(graphs[self.batch])
            cut.batch = (graphs.cumsum(0) - 1)[cut.batch]
            for name, value in whole:
                is_of_graphs = isinstance(value, Tensor) and value.dim() > 0 and len(value) == count
                if is_of_graphs and not (whole.is_node_attr(name) or whole.is_edge_attr(name)):
                    cut[name] = value[graphs]
            yield replace(self, data=cut, target=self.target[graphs]), graphs[graph_of_column].nonzero().view(-1)

    def seed(self, seed: int) -> int:
        """Return a seed that depends on the graphs, so that every graph has other random numbers."""
        checksum = 0
        for tensor in (self.edge_index, self.x):
            checksum = zlib.crc32(tensor.detach().cpu().contiguous().numpy().tobytes(), checksum)
        return (checksum + 7919 * seed) % 2**32


class MaskedTargets(Module):
    """The sum of the logits of the target classes, ``[B]``, as a function of edge masks ``[B, E]``.

    Graphs of a batch are disjoint: the gradient of the sum of their logits has the gradients of all of them.
    """

    def __init__(self, model: Module, graphs: Graphs, at: Literal["message", "adjacency"] = "message") -> None:
        super().__init__()
        self.graphs = graphs
        self.masked = EdgeMaskedModel(model, at)

    def logits(self, masks: Tensor) -> Tensor:
        """Return the logits for each of B masks, ``[B, G, C]`` from ``[B, E]``."""
        logits: Tensor = self.masked(masks, *self.graphs.inputs)
        return logits.view(len(masks), len(self.graphs.target), -1)

    def values(self, masks: Tensor) -> Tensor:
        """Return the logit of each graph's class for each of B masks, ``[B, G]`` from ``[B, E]``."""
        return self.graphs.of_target(self.logits(masks))

    def forward(self, masks: Tensor) -> Tensor:  # noqa: D102
        return self.values(masks).sum(-1)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the random numbers of Python, NumPy and torch, and restore their states afterwards."""
    python, numpy = random.getstate(), np.random.get_state()
    devices = range(torch.cuda.device_count()) if torch.cuda.is_available() else ()
    with torch.random.fork_rng(devices=devices):
        try:
            random.seed(seed)
            np.random.seed(seed)
            torch.manual_seed(seed)
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
