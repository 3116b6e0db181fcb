"""Attributions for many nodes of one graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data

from captum_goat.attribution import GOAtAttribution
from captum_goat.bulk.dataset import edge_method
from captum_goat.bulk.targets import TargetOption, Targets, integer_labels
from captum_goat.hooks.global_state import outside_inference_mode, restores_state, switch_off_autocast
from captum_goat.inputs.node_selection import node_numbers
from captum_goat.method.spread import Attributions
from captum_goat.nodes.checked_cuts import CheckedCuts
from captum_goat.nodes.cut_graphs import CutGraphs
from captum_goat.nodes.explanation import CutExplanation
from captum_goat.nodes.graph_data import GraphData
from captum_goat.nodes.results import NodeExplanations
from captum_goat.nodes.shapley import shapley_of_nodes
from captum_goat.runs.progress import progress_bar
from captum_goat.shapley import GuidedShapley
from captum_goat.wrapped_model import ExplainedModel

MAX_EDGES = 250_000  # of the computation graphs that are explained together
_FIRST = 64  # how many nodes are tried first


def explain_nodes(
    method: Any,
    data: Data,
    nodes: Tensor | Sequence[int] | None = None,
    *,
    target: TargetOption = "predicted",
    num_hops: int | None = None,
    check: bool | None = None,
    arguments: Callable[[Data], Any] | None = None,
    batch_size: int | None = None,
    max_edges: int = MAX_EDGES,
    show_progress: bool = False,
) -> NodeExplanations:
    """Attribute the outputs for many nodes of one graph to its edges.

    The attributions are those that :class:`~captum_goat.GOAtAttribution` returns for ``target=(node, class)`` on the
    whole graph. But the computation graph of every node is cut out first, and many of them are explained side by side.
    The cost of a node depends on the size of its computation graph, not on that of the graph.

    Args:
        method: A :class:`~captum_goat.GOAtAttribution` that attributes edges with ``at="message"``; or a
            :class:`~captum_goat.GuidedShapley`, whose players are the edges around a node, one hop further than
            messages come from; or a model, for GOAt with its default options. The model is in evaluation mode and
            returns one row per node.
        data: The graph.
        nodes: The nodes, as numbers or as a mask ``[N]``; ``None`` for all.
        target: What to explain: ``"predicted"``, the class with the largest output; ``"label"``, the class ``y``;
            ``"all"``, every class; a class for all nodes, or one for each of ``nodes``; ``None`` for a model with one
            number per node.
        num_hops: From how far away, in edges, a node's output is computed; ``None`` to find out.
        check: Whether to compare all outputs with those that the model has for the whole graph, which takes one call of
            the model; ``None`` to do so in graphs of up to half a million edges, and to compare a few nodes with larger
            parts of the graph otherwise.
        arguments: A function of a graph, ``data`` or one cut out of it, that returns the model's arguments as a tuple.
            By default the model's parameters are looked up by name among the attributes of the graph; a model with one
            parameter of another name is given the graph.
        batch_size: How many nodes are explained together; ``None`` for as many as have few enough edges.
        max_edges: How many edges the computation graphs that are explained together may have.
        show_progress: Whether to show a progress bar (if tqdm is installed).

    Returns:
        The explanations of the nodes, in their order.

    Raises:
        ValueError: If the arguments do not fit together.
        UnsupportedModelError: If the model does something that cannot be explained exactly, or if nodes have other
            outputs in the whole graph, as with norms over all nodes.

    Examples::

        >>> import torch
        >>> from torch_geometric.nn import GCN
        >>> from captum_goat.nodes import explain_nodes
        >>> from captum_goat.datasets import ba_2motifs
        >>> _ = torch.manual_seed(0)
        >>> model, (data,) = GCN(in_channels=10, hidden_channels=8, num_layers=2, out_channels=4).eval(), ba_2motifs(1)
        >>> explanations = explain_nodes(model, data, nodes=[20, 0])
        >>> edges, attributions = explanations[0]
        >>> data.edge_index[:, edges[attributions.argmax()]].shape, explanations.targets.shape
        (torch.Size([2]), torch.Size([2]))
    """
    explainer = NodeExplainer(method, data, num_hops=num_hops, check=check, arguments=arguments)
    return explainer(nodes, target, batch_size=batch_size, max_edges=max_edges, show_progress=show_progress)


class NodeExplainer:
    """Explain nodes of one graph in several calls.

    The edges are sorted, and the outputs compared, once. After that a node costs what its computation graph costs,
    however large the graph is. The model and the graph must not change.

    Args:
        method: As for :func:`explain_nodes`, and so are the others.
        data: The graph.
        num_hops: The number of hops.
        check: Whether to compare outputs.
        arguments: Returns the model's arguments.

    Attributes:
        method: The method.
        num_hops: From how far away, in edges, a node's output is computed.

    Examples::

        >>> import torch
        >>> from torch_geometric.nn import GCN
        >>> from captum_goat.nodes import NodeExplainer
        >>> from captum_goat.datasets import ba_2motifs
        >>> model = GCN(in_channels=10, hidden_channels=8, num_layers=2, out_channels=2).eval()
        >>> explainer = NodeExplainer(model, ba_2motifs(1)[0])
        >>> explainer.num_hops, len(explainer([6])), len(explainer([7, 8], target=1))
        (2, 1, 2)
    """

    @restores_state
    def __init__(
        self,
        method: Any,
        data: Data,
        *,
        num_hops: int | None = None,
        check: bool | None = None,
        arguments: Callable[[Data], Any] | None = None,
    ) -> None:
        self.method = edge_method(method)
        explained = ExplainedModel.of(self.method.forward_func)
        explained.check_evaluating()
        if explained.finish is not None or explained.metadata is not None:
            raise ValueError(
                f"Expected a model, or GOAtAttribution of one (got {type(self.method.forward_func).__name__}). Call "
                f"attribute of GOAtAttribution for other models."
            )
        if isinstance(self.method, GOAtAttribution) and self.method.at != "message":
            raise ValueError(
                f"Expected at='message' (got {self.method.at!r}): what is cut out around a node lacks edges that count "
                f"in degrees. Explain nodes one by one with GOAtAttribution."
            )
        graph = GraphData(explained.model, data, arguments)
        self._data = data
        self._arguments = arguments
        self._explained = explained
        with outside_inference_mode():
            switch_off_autocast(data.edge_index.device)
            self._cuts = CheckedCuts(graph, num_hops, check)
        self.num_hops = self._cuts.num_hops

    def __call__(
        self,
        nodes: Tensor | Sequence[int] | None = None,
        target: TargetOption = "predicted",
        *,
        batch_size: int | None = None,
        max_edges: int = MAX_EDGES,
        show_progress: bool = False,
    ) -> NodeExplanations:
        """Explain some nodes; the arguments are those of :func:`explain_nodes`."""
        for name, number in (("batch_size", batch_size), ("max_edges", max_edges)):
            if number is not None and number < 1:
                raise ValueError(f"Expected {name} of at least 1 (got {number}).")
        self._explained.check_evaluating()
        chosen = node_numbers(nodes, self._data.num_nodes, self._data.edge_index.device)
        if isinstance(target, str) and target == "label":
            target = integer_labels(self._data.y, self._data.num_nodes, "node")[chosen]
        targets = Targets.of(target, len(chosen), "node")
        if isinstance(self.method, GuidedShapley):
            options: dict[str, Any] = {"arguments": self._arguments, "max_edges": max_edges}
            options |= {"show_progress": show_progress}
            return shapley_of_nodes(self.method, self._data, chosen, targets, self.num_hops, **options)
        parts: list[_Part] = []
        with progress_bar(len(chosen), "node", show_progress) as advance:
            for part in self._parts(chosen, targets, batch_size, max_edges):
                parts.append(part)
                advance(len(part.sizes))
        joined = {name: torch.cat(values) for name, values in zip(_Part._fields, zip(*parts, strict=True), strict=True)}
        sizes = joined.pop("sizes")
        ptr = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
        known = targets.known(range(len(chosen)), None, chosen.device)
        classes = targets.explained(joined["outputs"], known)
        return NodeExplanations(self._data, chosen, classes, ptr=ptr, **joined)

    def _parts(self, nodes: Tensor, targets: Targets, batch_size: int | None, max_edges: int) -> Iterator[_Part]:
        """Yield the explanations of as many nodes at once as have few enough edges."""
        begin, at_once = 0, min(_FIRST, batch_size or _FIRST)
        while begin < len(nodes):
            cut, explanation, results = self._explain(nodes[begin : begin + at_once], begin, targets, max_edges)
            end = begin + len(cut.roots)
            attributions = torch.stack([result.edges[: len(cut.owner)] for result in results], dim=-1)
            deltas = torch.stack([result.delta for result in results], dim=-1)
            if targets.target != "all":
                attributions, deltas = attributions.squeeze(-1), deltas.squeeze(-1)
            sizes = torch.bincount(cut.owner, minlength=len(cut.roots))
            yield _Part(sizes, explanation.output, deltas, cut.edges[: len(cut.owner)], attributions)
            begin, at_once = end, min(2 * len(cut.roots), batch_size or len(nodes))

    @restores_state
    def _explain(
        self, nodes: Tensor, begin: int, targets: Targets, max_edges: int
    ) -> tuple[CutGraphs, CutExplanation, list[Attributions]]:
        """Explain as many of the nodes, the first of which is number ``begin``, as have few enough edges."""
        with outside_inference_mode():
            switch_off_autocast(nodes.device)
            checked = self._cuts.cut(nodes, max_edges)
            cut, goat = checked.cut, self.method.options
            options = {"repeated": goat["field"] == "repeated", "proportional": goat["gates"] == "proportional"}
            known = targets.known(range(begin, begin + len(cut.roots)), None, nodes.device)

            def explain() -> tuple[CutExplanation, list[Attributions]]:
                choice, dtype = targets.choice(known), checked.output.dtype
                explanation = CutExplanation(checked.inputs, cut, choice, dtype=dtype, **options)
                return explanation, explanation.record().attribute()

            return cut, *checked.within(explain)


class _Part(NamedTuple):
    """The explanations of nodes that were explained together: how many edges each has, and what the result has."""

    sizes: Tensor
    outputs: Tensor
    deltas: Tensor
    edges: Tensor
    attributions: Tensor
