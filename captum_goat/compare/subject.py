"""What a user gives: a model and graphs, or a graph and some of its nodes; checked before any explainer runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Batch, Data

from captum_goat.compare.model_calls import check_call, logits_of
from captum_goat.datasets import computation_graphs
from captum_goat.inputs.node_selection import node_numbers
from captum_goat.metrics.counted_edges import edges_of
from captum_goat.metrics.reduced_graphs import class_per_graph
from captum_goat.models import RootClassifier

RELATIVE, ABSOLUTE = 1e-3, 1e-4  # differences that are taken for rounding where outputs of a node are compared


@dataclass(frozen=True)
class Given:
    """A model, graphs, and the classes to explain: :class:`~captum_goat.compare.questions.Questions` of a user's.

    Attributes:
        model: A copy of the user's model; one of nodes is a :class:`~captum_goat.models.RootClassifier`.
        graphs: The graphs, with ``x``, ``edge_index`` and, if all have it, ``edge_label``.
        training_graphs: Other such graphs, for explainers that have to learn.
        target: The class of each graph, ``[G]``.
        notes: What the user should know.
    """

    model: Module
    graphs: list[Data]
    training_graphs: list[Data]
    target: Tensor
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        model: Module,
        graphs: Iterable[Data] | Data,
        *,
        target: Tensor | Sequence[int] | int | None = None,
        nodes: Tensor | Sequence[int] | None = None,
        num_hops: int | None = None,
        training_graphs: Iterable[Data] = (),
    ) -> Given:
        """Look at what a user gives, as :func:`~benchmarks.compare` describes it.

        Raises:
            ValueError: If it cannot be compared on.
        """
        _check_model(model)
        notes: tuple[str, ...] = ()
        if nodes is None:
            sequence = _sequence(graphs)
            plain = [_plain(graph, number) for number, graph in enumerate(sequence)]
            check_call(model, sequence[0])
            model = _copied(model)
        else:
            model, plain, notes = _of_nodes(model, graphs, nodes, num_hops)
        learning = [_learnt(graph, number, cut=nodes is not None) for number, graph in enumerate(training_graphs)]
        logits = logits_of(model, plain)
        classes = logits.argmax(dim=1)
        if target is not None:
            classes = class_per_graph(torch.as_tensor(target), logits).clone()
        return cls(model, _alike(plain), learning, classes, notes)

    def copied(self) -> Given:
        """Return copies, for an explainer to do with them what it likes."""
        return replace(
            self,
            model=_copied(self.model),
            graphs=[graph.clone() for graph in self.graphs],
            training_graphs=[graph.clone() for graph in self.training_graphs],
            target=self.target.clone(),
        )


def _check_model(model: Any) -> None:
    if not isinstance(model, Module):
        raise ValueError(f"Expected a model, torch.nn.Module (got {type(model).__name__}).")
    training = [name or type(model).__name__ for name, module in model.named_modules() if module.training]
    if training:
        raise ValueError(
            f"Expected a model in evaluation mode (got {training[0]} in training mode). Call model.eval() first."
        )


def _copied(model: Module) -> Module:
    """Return a copy in evaluation mode: in PyG 2.6 a copy of its Linear layer is in training mode."""
    return deepcopy(model).eval()


def _sequence(graphs: Any) -> Sequence[Data]:
    if isinstance(graphs, Batch):
        single: list[Data] = graphs.to_data_list()
        return single
    if isinstance(graphs, Data):
        raise ValueError(
            "Expected a sequence of graphs (got one graph). Pass [graph] to explain it as a whole, or name the nodes "
            "to explain: nodes=..., num_hops=..."
        )
    found = list(graphs)
    if not found:
        raise ValueError("Expected one graph or more (got none).")
    return found


def _plain(graph: Any, number: int) -> Data:
    """Return what explainers and metrics need of a graph, and nothing that could get into their way."""
    if not isinstance(graph, Data):
        raise ValueError(f"Expected graphs, torch_geometric.data.Data (got {type(graph).__name__} as graph {number}).")
    x = graph.x
    if not isinstance(x, Tensor) or x.dim() != 2 or not x.is_floating_point():
        got = f"{x.dtype} {list(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(f"Expected node features x [N, F], floating point numbers (got {got} in graph {number}).")
    edge_index = edges_of(graph)
    if not edge_index.size(1):
        raise ValueError(
            f"Expected graphs with edges (got none in graph {number}). There is nothing to explain: leave it out, "
            "[graph for graph in graphs if graph.num_edges]."
        )
    plain = Data(x=_ordinary(x.detach()), edge_index=_ordinary(edge_index))
    if "edge_label" in graph:
        label = graph.edge_label
        if not isinstance(label, Tensor) or label.dtype != torch.bool or label.shape != edge_index.shape[1:]:
            raise ValueError(
                f"Expected edge_label as bool [E], the true edges (got something else in graph {number}). "
                "Delete it if it is not meant so."
            )
        plain.edge_label = _ordinary(label)
    return plain


def _ordinary(tensor: Tensor) -> Tensor:
    """Return a copy of a tensor that was made in inference mode, which autograd would refuse."""
    return tensor.clone() if tensor.is_inference() else tensor


def _learnt(graph: Any, number: int, *, cut: bool) -> Data:
    """Return a graph to learn from; for nodes, one that was cut out."""
    plain = _plain(graph, number)
    if cut and "n_id" not in graph:
        raise ValueError(
            f"Expected training_graphs for nodes=... that are cut out, one for each of some nodes (got graph {number} "
            "without n_id). Cut them: captum_goat.datasets.computation_graphs(data, nodes, num_hops)."
        )
    return plain


def _alike(graphs: list[Data]) -> list[Data]:
    """Return graphs of which all have the true edges, or none."""
    if all("edge_label" in graph for graph in graphs):
        return graphs
    return [Data(x=graph.x, edge_index=graph.edge_index) for graph in graphs]


def _of_nodes(model: Module, data: Any, nodes: Any, num_hops: int | None) -> tuple[Module, list[Data], tuple[str, ...]]:
    """Return a classifier of nodes as one of graphs, the nodes' computation graphs, and what there is to say."""
    if not isinstance(data, Data) or isinstance(data, Batch) or num_hops is None:
        got = "no num_hops" if isinstance(data, Data) else type(data).__name__
        raise ValueError(
            f"Expected one graph, torch_geometric.data.Data, and num_hops for nodes=... (got {got}). num_hops is the "
            "number of message passing layers; one more where degrees count, as in GCN."
        )
    if not isinstance(num_hops, int) or num_hops < 1:
        raise ValueError(
            f"Expected num_hops, the number of message passing layers, to be 1 or more (got {num_hops!r})."
        )
    whole = _plain(data, 0)
    check_call(model, data, with_batch=False)
    chosen = node_numbers(nodes, whole.num_nodes, whole.x.device)
    whole.y = chosen.new_zeros(whole.num_nodes)
    cut = computation_graphs(whole, chosen, num_hops)
    lonely = [node for node, graph in zip(chosen.tolist(), cut, strict=True) if not graph.num_edges]
    if lonely:
        raise ValueError(
            f"Expected nodes that edges lead to (got {len(lonely)} others, such as {lonely[0]}). Leave them out: there "
            "is nothing to explain."
        )
    rooted = RootClassifier(_copied(model))
    plain = [_plain(graph, number) for number, graph in enumerate(cut)]
    return rooted, plain, _differences(rooted, plain, whole, chosen)


def _differences(rooted: RootClassifier, cut: list[Data], whole: Data, nodes: Tensor) -> tuple[str, ...]:
    """Say whether nodes have other outputs in their computation graphs than in the whole graph."""
    expected = logits_of(rooted.model, [whole], rows=whole.num_nodes)[nodes]
    found = logits_of(rooted, cut)
    if torch.allclose(found, expected, RELATIVE, ABSOLUTE):
        return ()
    others = int((found.argmax(dim=1) != expected.argmax(dim=1)).sum())
    largest = float((found - expected).abs().max())
    return (
        f"Cut out of the graph, nodes have other outputs: they differ by up to {largest:.2g}, and {others} of "
        f"{len(nodes)} classes are others. What is compared are the nodes cut out. Where degrees count, as in GCN, one "
        "more hop makes them the same.",
    )
