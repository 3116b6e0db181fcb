"""Whether a model can be explained exactly, and what an attribution costs."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import HeteroData
from torch_geometric.data.data import BaseData

from captum_goat.attribution import GOAtAttribution
from captum_goat.bulk.dataset import edge_method
from captum_goat.inputs.targets import Choice
from captum_goat.masked_model import EdgeMaskedModel
from captum_goat.tracking import UnsupportedModelError
from captum_goat.wrapped_model import floating_tensor

PLACES: tuple[Literal["message", "adjacency"], ...] = ("message", "adjacency")


class _MaskCheck(NamedTuple):
    at: str
    reason: str = ""
    total: float = float("nan")
    delta: float = float("nan")
    forward_passes: int = 0
    backward_passes: int = 0  # how many of them were followed by a backward pass


@dataclass(frozen=True)
class ModelCheck:
    """The result of :func:`check`; ``str(...)`` is a table.

    ``masks`` has the results for each value of ``at``: ``reason`` (which operation is unsupported and what to do; empty
    if the attributions are exact), ``total`` (their sum), ``delta``, ``forward_passes`` and ``backward_passes``.
    """

    model: str
    explained: str
    masks: tuple[_MaskCheck, ...]

    @property
    def supported_at(self) -> tuple[str, ...]:
        """The values of ``at`` with which the model can be explained."""
        return tuple(mask.at for mask in self.masks if not mask.reason)

    @property
    def is_exact(self) -> bool:
        """Whether attributions are exact with the default, ``at="message"``."""
        return "message" in self.supported_at

    def __str__(self) -> str:
        line, reasons = "{:9}  {:11}  {:17}  {:9}  {:14}  {}", list[str]()
        titles = ("at", "result", "convergence delta", "sum", "forward passes", "backward passes")
        lines = [f"{self.model}, {self.explained}", "", line.format(*titles)]
        for at, reason, total, delta, *passes in self.masks:
            values = ("unsupported", *"----") if reason else ("exact", f"{delta:.1e}", f"{total:.4g}", *passes)
            lines.append(line.format(at, *values))
            reasons += ["", *textwrap.wrap(f"at={at!r}: {reason}", 100)] if reason else []
        return "\n".join([*lines, *reasons])


def check(method: Any, data: BaseData, *, arguments: Callable[[Any], Any] | None = None) -> ModelCheck:
    """Check whether a model can be explained exactly, and count the passes of an attribution; print the result.

    The class that the model predicts for the graph (or for the node with most edges, if the model returns one row per
    node) is explained for each value of ``at``. ``method`` is the model, or a :class:`~captum_goat.GOAtAttribution`
    that attributes edges. ``arguments`` is a function of ``data``, a graph or a batch of graphs, that returns the
    model's arguments as a tuple; by default they are looked up by name.

    Examples:
        >>> from torch_geometric.nn import GCN
        >>> from captum_goat import check
        >>> from captum_goat.datasets import ba_2motifs
        >>> (graph,) = ba_2motifs(1)
        >>> result = check(GCN(10, 8, num_layers=2, out_channels=2).eval(), graph)
        >>> result.supported_at, result.masks[0].delta < 1e-5
        (('message', 'adjacency'), True)
        >>> result = check(GCN(10, 8, num_layers=2, out_channels=2, act=torch.sin).eval(), graph)
        >>> result.is_exact, result.masks[0].reason.split(" is applied")[0]
        (False, "'sin' in the model (GCN)")
    """
    if not isinstance(data, HeteroData) and not isinstance(getattr(data, "edge_index", None), Tensor):
        got = "one without" if isinstance(data, BaseData) else type(data).__name__
        raise ValueError(
            f"Expected one graph, or a Batch of graphs, with edge_index (got {got}). If the model makes its edges "
            f"itself, wrap it: captum_goat.MadeEdges(model)."
        )
    goat = edge_method(method)
    name, size = type(goat.model).__name__, f"{data.num_nodes} nodes, {data.num_edges} edges"
    inputs, like = data if arguments is None else arguments(data), floating_tensor(goat.model)
    mask: Any = like.new_ones(data.num_edges)
    if isinstance(data, HeteroData):
        mask = {edge_type: like.new_ones(edges.size(1)) for edge_type, edges in data.edge_index_dict.items()}
    try:
        target, explained = _target(goat.model, mask, inputs, data)
    except UnsupportedModelError as error:
        return ModelCheck(name, size, tuple(_MaskCheck(at, str(error)) for at in PLACES))
    checks = []
    for at in PLACES:
        options = {name: goat.options[name] for name in ("field", "gates") if name in goat.options}
        try:
            result = GOAtAttribution(goat.model, at=at, **options)._explain(mask, Choice([target]), inputs)
        except UnsupportedModelError as error:
            checks.append(_MaskCheck(at, str(error)))
            continue
        total, delta = sum(float(part.sum()) for part in result.attributions[0]), float(result.deltas[0].abs().max())
        checks.append(_MaskCheck(at, "", total, delta, result.details + 2, result.details))  # recorded, without edges
    return ModelCheck(name, f"{explained}, {size}", tuple(checks))


@torch.no_grad()
def _target(model: Module, mask: Any, inputs: Any, data: BaseData) -> tuple[Any, str]:
    """Return what to explain, as the target of ``attribute`` and in words."""
    output = EdgeMaskedModel(model)(mask, *(inputs if isinstance(inputs, tuple) else (inputs,)))
    graphs = getattr(data, "num_graphs", 1)
    if output.dim() == 0 or len(output) == graphs:
        return output.argmax(dim=1) if output.dim() > 1 else None, f"prediction for {graphs} graph(s)"
    row = 0
    if not isinstance(data, HeteroData) and len(output) == data.num_nodes and data.num_edges:
        row = int(torch.bincount(data.edge_index[1]).argmax())
    return (row,) if output.dim() == 1 else (row, int(output[row].argmax())), f"prediction of row {row} of the output"
