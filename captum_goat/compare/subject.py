"""The subject of a comparison: a model and graphs, or one graph and some of its nodes, checked beforehand."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Batch, Data

from captum_goat.inputs.node_selection import node_numbers
from captum_goat.metrics.counted_edges import description, edges_of
from captum_goat.metrics.reduced_graphs import class_per_graph, refuse_probabilities
from captum_goat.models import RootClassifier

MAX_GRAPHS = 64  # in one batch
MAX_EDGES = 20_000  # in one batch; infidelity makes copies of it
ARGUMENTS = ("x", "edge_index", "batch")
RELATIVE, ABSOLUTE = 1e-3, 1e-4  # tolerances where outputs of a node are compared


@dataclass(frozen=True)
class Subject:
    """A model, graphs, and the class of each graph to explain."""

    model: Module  # in evaluation mode, called as model(x, edge_index, batch)
    graphs: list[Data]
    training_graphs: list[Data]  # for explainers that have to learn
    target: Tensor  # the class of each graph, [G]
    notes: tuple[str, ...] = ()  # for the user

    @classmethod
    def of(
        cls,
        model: Module,
        graphs: Iterable[Data] | Data,
        target: Tensor | Sequence[int] | int | None = None,
        nodes: Tensor | Sequence[int] | None = None,
        num_hops: int | None = None,
        training_graphs: Iterable[Data] = (),
    ) -> Subject:
        """Check and copy the arguments of :func:`~captum_goat.compare.compare`."""
        _check_model(model)
        notes: tuple[str, ...] = ()
        if nodes is None:
            sequence = _sequence(graphs)
            plain = [_plain(graph, index) for index, graph in enumerate(sequence)]
            _check_signature(model, sequence[0])
            model = _copy(model)
        else:
            model, plain, notes = _of_nodes(model, graphs, nodes, num_hops)
        training = list(training_graphs)
        missing = [index for index, graph in enumerate(training) if nodes is not None and "n_id" not in graph]
        if missing:
            raise ValueError(
                f"Expected training_graphs for nodes=... to be computation graphs (got graph {missing[0]} without "
                "n_id). Make them with captum_goat.compare.computation_graphs(data, nodes, num_hops)."
            )
        logits = logits_of(model, plain)
        classes = logits.argmax(dim=1)
        if target is not None:
            classes = class_per_graph(torch.as_tensor(target), logits).clone()
        if not all("edge_label" in graph for graph in plain):
            plain = [Data(x=graph.x, edge_index=graph.edge_index) for graph in plain]
        return cls(model, plain, [_plain(graph, index) for index, graph in enumerate(training)], classes, notes)

    def copied(self) -> Subject:
        """Return a copy, which an explainer may change."""
        return replace(
            self,
            model=_copy(self.model),
            graphs=[graph.clone() for graph in self.graphs],
            training_graphs=[graph.clone() for graph in self.training_graphs],
            target=self.target.clone(),
        )


def _check_model(model: Any) -> None:
    if not isinstance(model, Module):
        raise ValueError(f"Expected a model, torch.nn.Module (got {type(model).__name__}).")
    training = [name or type(model).__name__ for name, module in model.named_modules() if module.training]
    if training:
        got = f"{training[0]} in training mode"
        raise ValueError(f"Expected a model in evaluation mode (got {got}). Call model.eval() first.")


def _copy(model: Module) -> Module:
    return deepcopy(model).eval()  # in PyG 2.6 a copy of its Linear layer is in training mode


def _check_signature(model: Module, graph: Data, *, with_batch: bool = True) -> None:
    """Raise ValueError if a model takes other arguments than explainers pass, or takes them in another order."""
    names = list(inspect.signature(model.forward).parameters)
    expected = _call(3 if with_batch else 2)
    signature = f"{type(model).__name__}.forward({', '.join(names)})"
    others = [name for name in names if name not in ARGUMENTS and name in graph]
    if others:
        raise ValueError(
            f"Expected a model that is called as {expected} (got {signature}, and graphs with {', '.join(others)}). "
            "Explainers do not pass these. Delete them from the graphs to compare on the model without them."
        )
    by_name = "batch" in names or ("x" in names and "edge_index" in names)
    if with_batch and by_name and len(names) > 2 and names[2] != "batch":
        raise ValueError(
            f"Expected a model that is called as {expected} (got {signature}). Wrap it in a module that is."
        )


def _call(count: int) -> str:
    return f"model({', '.join(ARGUMENTS[:count])})"


@torch.no_grad()
def logits_of(model: Module, graphs: Sequence[Data], *, of_nodes: bool = False) -> Tensor:
    """Return a model's logits, computed in batches of limited size: one row per graph, or per node of all graphs."""
    logits = []
    for part in chunks(graphs):
        batch = Batch.from_data_list(list(graphs[part]))
        call, count, rows = _call(2), batch.num_nodes, "nodes"
        if not of_nodes:
            call, count, rows = _call(3), batch.num_graphs, "graphs"
        try:
            output = model(batch.x, batch.edge_index, *(() if of_nodes else (batch.batch,)))
        except Exception as error:  # whatever a user's model raises
            got = f"{type(error).__name__}: {error}"
            raise ValueError(f"Expected a model that can be called as {call} with these graphs (got {got}).") from error
        shape = list(output.shape) if isinstance(output, Tensor) else []
        if len(shape) != 2 or shape[0] != count or shape[1] < 2:
            advice = "One logit z [G, 1] for two classes becomes torch.cat([torch.zeros_like(z), z], dim=1)."
            if not of_nodes and len(shape) == 2 and shape[0] == batch.num_nodes:
                advice = "For a node classifier pass one graph and nodes=..., num_hops=..."
            raise ValueError(
                f"Expected logits [{count}, C] of two or more classes from {call}, one row for each of {count} {rows} "
                f"(got {shape or type(output).__name__}). {advice}"
            )
        logits.append(output)
    joined = torch.cat(logits)
    refuse_probabilities(joined)
    return joined


def chunks(graphs: Sequence[Data]) -> Iterator[slice]:
    """Split a sequence of graphs into slices of limited size, of one graph or more each."""
    first, edges = 0, 0
    for index, graph in enumerate(graphs):
        if index > first and (index - first == MAX_GRAPHS or edges + graph.num_edges > MAX_EDGES):
            yield slice(first, index)
            first, edges = index, 0
        edges += graph.num_edges
    if first < len(graphs):
        yield slice(first, len(graphs))


def _sequence(graphs: Any) -> Sequence[Data]:
    if isinstance(graphs, Batch):
        return list(graphs.to_data_list())
    if isinstance(graphs, Data):
        raise ValueError(
            "Expected a sequence of graphs (got one graph). Pass [graph] to explain it as a whole, or pass the nodes "
            "to explain: nodes=..., num_hops=..."
        )
    sequence = list(graphs)
    if not sequence:
        raise ValueError("Expected one graph or more (got none).")
    return sequence


def _plain(graph: Any, index: int) -> Data:
    """Return a graph with only the attributes that explainers and metrics need."""
    if not isinstance(graph, Data):
        raise ValueError(f"Expected graphs, torch_geometric.data.Data (got {type(graph).__name__} as graph {index}).")
    x = graph.x
    if not isinstance(x, Tensor) or x.dim() != 2 or not x.is_floating_point():
        raise ValueError(f"Expected floating-point node features x [N, F] (got {description(x)} in graph {index}).")
    edge_index = edges_of(graph)
    if not edge_index.size(1):
        raise ValueError(
            f"Expected graphs with edges (got none in graph {index}). Pass those for which graph.num_edges > 0."
        )
    tensors = {"x": x.detach(), "edge_index": edge_index}
    if "edge_label" in graph:
        label = tensors["edge_label"] = graph.edge_label
        if not isinstance(label, Tensor) or label.dtype != torch.bool or label.shape != edge_index.shape[1:]:
            raise ValueError(
                f"Expected edge_label, the ground truth, as bool [E] (got {description(label)} in graph {index}). "
                "Delete it if it means something else."
            )
    # Autograd refuses inference tensors, so these are copied.
    return Data(**{name: value.clone() if value.is_inference() else value for name, value in tensors.items()})


def _of_nodes(model: Module, data: Any, nodes: Any, num_hops: int | None) -> tuple[Module, list[Data], tuple[str, ...]]:
    """Return a node classifier as a graph classifier, the nodes' computation graphs, and notes."""
    if not isinstance(data, Data) or isinstance(data, Batch) or num_hops is None:
        got = "no num_hops" if isinstance(data, Data) else type(data).__name__
        raise ValueError(
            f"Expected one graph, torch_geometric.data.Data, and num_hops for nodes=... (got {got}). num_hops is the "
            "number of message-passing layers; one more if degrees matter, as in GCN."
        )
    if not isinstance(num_hops, int) or num_hops < 1:
        raise ValueError(f"Expected num_hops, the number of layers, to be 1 or more (got {num_hops!r}).")
    whole = _plain(data, 0)
    _check_signature(model, data, with_batch=False)
    roots = node_numbers(nodes, whole.num_nodes, whole.x.device)
    graphs = computation_graphs(whole, roots, num_hops)
    isolated = [node for node, graph in zip(roots.tolist(), graphs, strict=True) if not graph.num_edges]
    if isolated:
        raise ValueError(
            f"Expected nodes with incoming edges (got {len(isolated)} without, such as {isolated[0]}). Leave them out."
        )
    rooted = RootClassifier(_copy(model))
    plain = [_plain(graph, index) for index, graph in enumerate(graphs)]
    return rooted, plain, _differences(rooted, plain, whole, roots)


def computation_graphs(data: Data, nodes: Tensor | Sequence[int], num_hops: int) -> list[Data]:
    r"""Cut out the computation graph of each node, so that nodes can be explained as graphs are.

    The output of node :math:`v` after :math:`L` message-passing layers depends on the edges :math:`\{(j \to i) : d(i,
    v) \le L - 1\}`, where :math:`d(i, v)` is the number of steps along edges from :math:`i` to :math:`v`. The
    computation graph has these edges and their nodes, with :math:`v` as node 0. For layers that sum messages,
    :class:`~captum_goat.models.RootClassifier` then returns the row that the model returns for :math:`v` in the whole
    graph. Where degrees matter, as in GCN, that takes one more hop: nodes at the border lose edges.

    ``data`` has ``x``, ``edge_index`` and, optionally, labels ``y`` ``[N]`` and ``edge_label`` ``[E]``; ``num_hops`` is
    :math:`L`. The graphs have these, too, and the indices of their nodes and edges in ``data``: ``n_id``, ``e_id``.

    Examples:
        >>> import torch
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
    position = torch.zeros_like(has_node, dtype=torch.long).index_copy_(0, n_id, torch.arange(len(n_id)).to(n_id))
    graph = Data(x=data.x[n_id], edge_index=position[data.edge_index[:, e_id]], n_id=n_id, e_id=e_id)
    if data.y is not None:
        graph.y = data.y[n_id[:1]]
    if "edge_label" in data:
        graph.edge_label = data.edge_label[e_id]
    return graph


def _differences(rooted: RootClassifier, cut: list[Data], whole: Data, nodes: Tensor) -> tuple[str, ...]:
    """Return a note if nodes have other outputs in their computation graphs than in the whole graph."""
    expected = logits_of(rooted.model, [whole], of_nodes=True)[nodes]
    logits = logits_of(rooted, cut)
    if torch.allclose(logits, expected, RELATIVE, ABSOLUTE):
        return ()
    changed = int((logits.argmax(dim=1) != expected.argmax(dim=1)).sum())
    largest = float((logits - expected).abs().max())
    return (
        f"Nodes have other outputs in their computation graphs than in the whole graph: logits differ by up to "
        f"{largest:.2g}, and {changed} of {len(nodes)} predicted classes change. The comparison is about the "
        "computation graphs. Where degrees matter, as in GCN, one more hop makes the outputs equal.",
    )
