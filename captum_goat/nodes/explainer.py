"""Attributions for many nodes of one graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count, repeat
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.explain import Explanation

from captum_goat.attribution import GOAtAttribution
from captum_goat.bulk.dataset import TargetOption, edge_method, explained_classes, integer_labels, read_target
from captum_goat.bulk.files import check_format, joined_table, merge, starts
from captum_goat.bulk.part_folder import PartFolder, Ranks
from captum_goat.fields.small_fields import Owners
from captum_goat.hooks.global_state import outside_inference_mode, restores_state, switch_off_autocast
from captum_goat.inputs.targets import Choice, Target, node_numbers
from captum_goat.method.explain import GraphExplanation
from captum_goat.nodes.checked_cuts import CheckedCut, CheckedCuts, CutGraphs, cut_graphs
from captum_goat.runs import progress_bar
from captum_goat.search import EdgeSetSearch
from captum_goat.shapley import GuidedShapley
from captum_goat.wrapped_model import ExplainedModel, floating_tensor

MAX_EDGES = 250_000  # of the computation graphs that are explained together
_FIRST = 64  # how many nodes are tried first


def explain_nodes(
    method: Any,
    data: Data,
    nodes: Tensor | Sequence[int] | None = None,
    *,
    target: TargetOption = "predicted",
    check: bool | None = None,
    arguments: Callable[[Data], Any] | None = None,
    max_edges: int = MAX_EDGES,
    out: str | PathLike[str] | None = None,
    show_progress: bool = False,
) -> NodeExplanations:
    """Attribute the outputs for many nodes of one graph to its edges.

    The attributions are those that :class:`~captum_goat.GOAtAttribution` returns for ``target=(node, class)`` on the
    whole graph. But the computation graph of every node is cut out first, and many of them are explained side by side,
    so the cost of a node depends on the size of its computation graph alone. Models whose nodes have other outputs in
    the whole graph, as with norms over all nodes, raise UnsupportedModelError.

    Args:
        method: A model in evaluation mode with one row per node; or a :class:`~captum_goat.GOAtAttribution` with
            ``at="message"`` that attributes edges, or with ``mask_type="node_and_edge"`` also the features, the model's
            first argument; or a :class:`~captum_goat.GuidedShapley` or an :class:`~captum_goat.EdgeSetSearch`, which
            remove the edges around a node, one hop further than messages come from.
        data: The graph.
        nodes: The nodes, as numbers or as a mask ``[N]``; ``None`` for all.
        target: What to explain, as for :func:`~captum_goat.bulk.explain_dataset`, with nodes in place of graphs.
        check: Whether to compare all outputs with those for the whole graph, which takes one call of the model;
            ``None``: in graphs of up to half a million edges; in others a few nodes, with larger parts of the graph.
        arguments: A function of a graph that returns the model's arguments, as for
            :func:`~captum_goat.bulk.explain_dataset`; it is called with ``data`` and with what is cut out of it.
        max_edges: How many edges the computation graphs that are explained together may have.
        out: A file to write as well, as for :func:`~captum_goat.bulk.explain_dataset`, with the attributions of edges.
        show_progress: Whether to show a progress bar.

    Examples:
        >>> from torch_geometric.nn import GCN
        >>> from captum_goat.nodes import explain_nodes
        >>> from captum_goat.datasets import ba_2motifs
        >>> _ = torch.manual_seed(0)
        >>> model, (data,) = GCN(in_channels=10, hidden_channels=8, num_layers=2, out_channels=4).eval(), ba_2motifs(1)
        >>> explanations = explain_nodes(model, data, nodes=[20, 0])
        >>> edges, attributions = explanations[0]
        >>> torch.equal(explanations.edge_mask(0)[edges], attributions), explanations.subgraph(0).n_id[0]
        (True, tensor(20))
    """
    explainer = NodeExplainer(method, data, check=check, arguments=arguments)
    if out is not None:
        check_format(Path(out))
    explanations = explainer(nodes, target, max_edges=max_edges, show_progress=show_progress)
    if out is not None:
        known = target if isinstance(target, str | int) else None
        explanations.save(Path(out), {"target": known, "field": explainer.method.options.get("field")})
    return explanations


class NodeExplainer:
    """Explain nodes of one graph in several calls; the arguments are those of :func:`explain_nodes`.

    The edges are sorted, and the outputs compared, once: after that a node costs what its computation graph costs. The
    model and the graph must not change. ``num_hops`` is how far away, in edges, a node's output is computed from.

    Examples:
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
        self, method: Any, data: Data, *, check: bool | None = None, arguments: Callable[[Data], Any] | None = None
    ) -> None:
        self._features = isinstance(method, GOAtAttribution) and method.mask_type == "node_and_edge"
        self.method = method if self._features else edge_method(method)
        explained = ExplainedModel.of(self.method.forward_func)
        explained.check_evaluating()
        if explained.finish is not None or explained.metadata is not None:
            got = type(self.method.forward_func).__name__
            raise ValueError(f"Expected a model (got {got}). Call attribute of GOAtAttribution for others.")
        if isinstance(self.method, GOAtAttribution) and self.method.at != "message":
            raise ValueError(
                f"Expected at='message' (got {self.method.at!r}): what is cut out around a node lacks edges that count "
                f"in degrees. Explain nodes one by one with GOAtAttribution."
            )
        self._data, self._explained = data, explained
        with outside_inference_mode():
            switch_off_autocast(floating_tensor(explained.model).device)
            shared = not self._features  # which have one owner
            self._cuts = CheckedCuts(explained.model, data, arguments, check, shared=shared)
        self.num_hops = self._cuts.num_hops

    def __call__(
        self,
        nodes: Tensor | Sequence[int] | None = None,
        target: TargetOption = "predicted",
        *,
        max_edges: int = MAX_EDGES,
        show_progress: bool = False,
    ) -> NodeExplanations:
        """Explain some nodes; the arguments are those of :func:`explain_nodes`."""
        if max_edges < 1:
            raise ValueError(f"Expected max_edges of at least 1 (got {max_edges}).")
        self._explained.check_evaluating()
        chosen = node_numbers(nodes, self._data.num_nodes, self._data.edge_index.device)
        if isinstance(target, str) and target == "label":
            target = integer_labels(self._data.y, self._data.num_nodes, "node")[chosen]
        classes = read_target(target, len(chosen), "node")
        classes = classes.to(chosen.device) if isinstance(classes, Tensor) else classes
        parts: list[dict[str, Tensor]] = []
        begin, at_once = 0, _FIRST
        with progress_bar(len(chosen), "node", show_progress) as advance:
            while begin < len(chosen):
                own = classes[begin : begin + at_once] if isinstance(classes, Tensor) else classes
                parts.append(self._explain(chosen[begin : begin + at_once], own, max_edges))
                explained = len(parts[-1]["sizes"])
                begin += explained
                at_once = _FIRST if isinstance(self.method, GuidedShapley | EdgeSetSearch) else 2 * explained
                advance(explained)
        joined = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        ptr, features = starts(joined.pop("sizes")), None
        if "rows" in joined:
            features = starts(joined.pop("row_sizes")), joined.pop("rows"), joined.pop("features")
        explained_target = explained_classes(classes, joined["outputs"])
        return NodeExplanations(self._data, chosen, explained_target, ptr=ptr, features=features, **joined)

    @restores_state
    def _explain(self, nodes: Tensor, target: str | Tensor | None, max_edges: int) -> dict[str, Tensor]:
        """Explain as many of the nodes, from the first on, as have few enough edges."""

        def choice(cut: CutGraphs) -> Choice:
            return Choice(
                target if isinstance(target, str) else [target if target is None else target[: len(cut.roots)]]
            )

        def joined(tensors: Sequence[Tensor]) -> Tensor:
            return torch.stack(list(tensors), dim=-1) if target == "all" else tensors[0]

        with outside_inference_mode():
            switch_off_autocast(nodes.device)
            if isinstance(self.method, GuidedShapley | EdgeSetSearch):
                cut = cut_graphs(self._cuts.index("both"), nodes, self.num_hops + 1, max_edges=max_edges)
                result = self._without_edges(self.method, cut, choice(cut))
                output, deltas, features = result.output.detach(), result.deltas, list[Tensor]()
                attributions = [edges for (edges,) in result.attributions]
            else:
                checked = self._cuts.cut(nodes, max_edges)
                cut, goat = checked.cut, self.method.options
                options = {"repeated": goat["field"] == "repeated", "proportional": goat["gates"] == "proportional"}
                explanation = CutExplanation(checked, choice(cut), features=self._features, **options)
                results = explanation.record().attribute()
                output, deltas = explanation.output, [result.delta for result in results]
                attributions = [result.edges[: len(cut.owner)] for result in results]
                features = [result.features[0] for result in results if self._features]
        part = {
            "sizes": torch.bincount(cut.owner, minlength=len(cut.roots)),
            "outputs": output,
            "deltas": joined(deltas),
            "edges": cut.edges[: len(cut.owner)],
            "attributions": joined(attributions),
        }
        if features:
            part["row_sizes"] = torch.bincount(cut.row_owner, minlength=len(cut.roots))
            part |= {"rows": cut.nodes, "features": joined(features)}
        return part

    def _without_edges(self, method: GuidedShapley | EdgeSetSearch, cut: CutGraphs, choice: Choice) -> Any:
        """Explain the outputs for the roots of cut graphs, which are wider by a hop: a deleted edge changes degrees."""
        for name in ("guides", "starts"):
            if method.options.get(name):
                got = f"{type(method).__name__} with {name} of its own"
                raise ValueError(f"Expected a method with its default {name}, or none, to explain nodes (got {got}).")
        explained = ExplainedModel(method.model, "edge", lambda output: output[cut.roots])
        mask = torch.ones(len(cut.owner), dtype=floating_tensor(method.model).dtype, device=cut.owner.device)
        own = type(method)(explained, **method.options)
        return own._explain(mask, choice, self._cuts.arguments(cut), games=cut.owner)


class CutExplanation(GraphExplanation):
    """The explanation of one number per root, or of several; which edges belong to which root is known beforehand."""

    def __init__(self, checked: CheckedCut, choice: Choice, *, features: bool, **options: Any) -> None:
        cut, arguments = checked.cut, list(checked.inputs.arguments.values())
        mask = torch.ones(cut.edge_index.size(1), dtype=checked.output.dtype, device=cut.edge_index.device)
        owners = [cut.owner, cut.owner.new_full((len(mask) - len(cut.owner),), -1)]
        if features:
            if not isinstance(arguments[0], Tensor) or len(arguments[0]) != len(cut.nodes):
                raise ValueError(
                    f"Expected a model whose first argument are node features, to attribute them (got "
                    f"{type(arguments[0]).__name__}). Pass such arguments by arguments=..., or mask_type='edge'."
                )
            owners, options = [*owners, cut.row_owner], options | {"features": arguments[:1]}
        self._owner = torch.cat(owners)
        super().__init__(checked.inputs, choice, mask=mask, finish=lambda output: output[cut.roots], **options)

    def _find_owners(self, target: Target) -> tuple[Tensor, Owners | None]:
        return self._owner, super()._find_owners(target)[1]


class NodeAttributions(NamedTuple):
    """The attributions, ``[edges]`` or ``[edges, C]`` for all classes, of the edges of one node's computation graph."""

    edges: Tensor  # as numbers in the whole graph, in ascending order
    attributions: Tensor


@dataclass(frozen=True)
class NodeExplanations:
    """The explanations of some nodes of one graph: ``explanations[k]`` is that of ``nodes[k]``.

    ``targets`` has their explained classes, ``[K]``, or is ``None``; ``outputs`` the model's outputs without a last
    softmax or sigmoid, and ``deltas`` the convergence deltas. Only the edges of computation graphs are kept, as no
    other edge has an attribution: ``edges``, as numbers in the whole graph, and their ``attributions``, ``[M]`` or
    ``[M, C]``, of node k from ``ptr[k]`` to ``ptr[k + 1]``; ``explanations[k]`` is a named tuple of both. If the
    method attributes node features as well, ``features`` has these of the nodes in computation graphs, in the same way:
    ``(ptr, nodes, attributions)``.
    """

    data: Data
    nodes: Tensor
    targets: Tensor | None
    outputs: Tensor
    deltas: Tensor
    ptr: Tensor
    edges: Tensor
    attributions: Tensor
    features: tuple[Tensor, Tensor, Tensor] | None = None

    def __len__(self) -> int:
        return self.nodes.numel()

    def __getitem__(self, position: int) -> NodeAttributions:
        if not -len(self) <= position < len(self):
            raise IndexError(f"Expected the position of one of {len(self)} explained nodes (got {position}).")
        begin, end = self.ptr[position % len(self) :][:2].tolist()
        return NodeAttributions(self.edges[begin:end], self.attributions[begin:end])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} nodes, {self.edges.numel()} edges)"

    def edge_mask(self, position: int) -> Tensor:
        """Return one node's attributions of all edges of the graph, ``[E]`` or ``[E, C]``."""
        edges, attributions = self[position]
        mask = attributions.new_zeros(self.data.edge_index.size(1), *attributions.shape[1:])
        return mask.index_copy_(0, edges, attributions)

    def node_mask(self, position: int) -> Tensor:
        """Return one node's attributions of the features of all nodes, ``[N, F]`` or ``[N, F, C]``.

        Raises:
            ValueError: If features were not attributed.
        """
        if self.features is None:
            advice = "Explain with GOAtAttribution(model, mask_type='node_and_edge')."
            raise ValueError(f"Expected attributions of features (got none). {advice}")
        ptr, nodes, attributions = self.features
        own = slice(*ptr[position % len(self) :][:2].tolist())
        mask = attributions.new_zeros(self.data.num_nodes, *attributions.shape[1:])
        return mask.index_copy_(0, nodes[own], attributions[own])

    def subgraph(self, position: int) -> Explanation:
        """Return one node's explanation on its computation graph, in which it is node 0 (``index``).

        Nodes and edges have the numbers ``n_id`` and ``e_id`` in the whole graph.
        """
        edges, attributions = self[position]
        root = self.nodes[position].view(1)
        ends = self.data.edge_index[:, edges]
        others = torch.unique(ends)
        nodes = torch.cat([root, others[others != root]])
        order = nodes.argsort()
        edge_index = order[torch.searchsorted(nodes[order], ends)]
        explanation = Explanation(edge_index=edge_index, edge_mask=attributions, n_id=nodes, e_id=edges, index=0)
        explanation.num_nodes = len(nodes)
        explanation.prediction, explanation.delta = self.outputs[position][None], self.deltas[position][None]
        if self.data.x is not None:
            explanation.x = self.data.x[nodes]
        if self.targets is not None:
            explanation.target = self.targets[position].view(1)
        if self.features is not None:
            explanation.node_mask = self.node_mask(position)[nodes]
        return explanation

    def to_table(self, *, node_names: Sequence[Any] | None = None, **options: Any) -> Any:
        """Return the attributions of all nodes as a table; see :func:`~captum_goat.bulk.edge_table`.

        The columns ``node`` and ``target_class`` (if one was explained) come first.
        """
        targets: Any = repeat(None) if self.targets is None else self.targets.tolist()
        rows: Any = (
            (node, target, {}, own.attributions, Data(edge_index=self.data.edge_index[:, own.edges], e_id=own.edges))
            for node, target, own in zip(self.nodes.tolist(), targets, map(self.__getitem__, count()), strict=False)
        )
        return joined_table("node", rows, node_names, **options)

    def save(self, path: Path, options: dict[str, Any]) -> None:
        """Write the edges' attributions to a file, as those of graphs are, with ``options`` in its ``meta``."""
        folder = PartFolder(path, {**options, "graphs": len(self), "nodes": self.nodes.tolist()}, count=1)
        names = ("attributions", "targets", "outputs", "deltas", "edges")
        part = {name: None if (value := getattr(self, name)) is None else value.cpu() for name in names}
        edges = self.data.edge_index.cpu()[:, self.edges.cpu()].int().t()
        with folder.claimed(Ranks()):
            folder.prepare(resume=False)
            folder.write(0, part | {"edge_index": edges, "sizes": self.ptr.cpu().diff(), "columns": [{}] * len(self)})
            merge(folder)
