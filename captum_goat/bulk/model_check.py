"""Whether a model can be explained exactly, and what an attribution costs."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import HeteroData
from torch_geometric.data.data import BaseData

from captum_goat.attribution import GOAtAttribution
from captum_goat.bulk.dataset import edge_method, floating_tensor
from captum_goat.masked_model import EdgeMaskedModel
from captum_goat.tracking import UnsupportedModelError

Place: TypeAlias = Literal["message", "adjacency"]
PLACES: tuple[Place, ...] = ("message", "adjacency")
WIDTH = 100  # of the lines that are printed


@dataclass(frozen=True)
class MaskCheck:
    """Whether a model can be explained with one value of ``at``.

    Attributes:
        at: ``"message"`` or ``"adjacency"``, as for :class:`~captum_goat.GOAtAttribution`.
        reason: Which module and operation is unsupported and what to do; empty if the attributions are exact.
        total: The sum of the attributions.
        delta: The largest convergence delta.
        forward_passes: How many forward passes an attribution took.
        backward_passes: How many of them were followed by a backward pass.

    Examples::

        >>> from captum_goat.bulk import MaskCheck
        >>> MaskCheck("adjacency", "'conv.aggr_module' (MaxAggregation) ...").is_exact
        False
    """

    at: Place
    reason: str = ""
    total: float = float("nan")
    delta: float = float("nan")
    forward_passes: int = 0
    backward_passes: int = 0

    @property
    def is_exact(self) -> bool:
        """Whether the attributions are exact."""
        return not self.reason


@dataclass(frozen=True)
class ModelCheck:
    """The result of :func:`check`; ``str(...)`` is a table.

    Attributes:
        model: The name of the model's class.
        explained: What was explained.
        masks: The results for each value of ``at``.

    Examples::

        >>> from captum_goat.bulk import MaskCheck, ModelCheck
        >>> print(ModelCheck("GIN", "prediction for 1 graph(s)", (MaskCheck("message", "", 0.53, 1e-8, 2, 1),)))
        GIN, prediction for 1 graph(s)
        <BLANKLINE>
        at       result  convergence delta  sum   forward passes  backward passes
        message  exact   1.0e-08            0.53  2               1
    """

    model: str
    explained: str
    masks: tuple[MaskCheck, ...]

    @property
    def supported_at(self) -> tuple[str, ...]:
        """The values of ``at`` with which the model can be explained."""
        return tuple(mask.at for mask in self.masks if mask.is_exact)

    @property
    def is_exact(self) -> bool:
        """Whether attributions are exact with the default, ``at="message"``."""
        return "message" in self.supported_at

    def __str__(self) -> str:
        rows = [("at", "result", "convergence delta", "sum", "forward passes", "backward passes")]
        for mask in self.masks:
            figures = ("unsupported", *"----")
            if mask.is_exact:
                passes = str(mask.forward_passes), str(mask.backward_passes)
                figures = ("exact", f"{mask.delta:.1e}", f"{mask.total:.4g}", *passes)
            rows.append((mask.at, *figures))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [f"{self.model}, {self.explained}", ""]
        for row in rows:
            lines.append("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())
        for mask in self.masks:
            if mask.reason:
                lines += ["", *textwrap.wrap(f"at={mask.at!r}: {mask.reason}", WIDTH)]
        return "\n".join(lines)


def check(method: Any, data: BaseData, *, arguments: Callable[[Any], Any] | None = None) -> ModelCheck:
    """Check whether a model can be explained exactly, and count the passes that an attribution takes.

    The class that the model predicts for the graph (or for the node with most edges, if the model returns one row per
    node) is explained for each value of ``at``.

    Args:
        method: The model, or a :class:`~captum_goat.GOAtAttribution` that attributes edges.
        data: A graph, or a batch of graphs, for which to check.
        arguments: A function of ``data`` that returns the model's arguments as a tuple. By default, the model's
            parameters are looked up by name among the attributes of the graph.

    Returns:
        What is supported, and if not, which module and operation is the cause and what to do. Print it.

    Raises:
        ValueError: If the model is in training mode or the arguments do not fit together.

    Examples::

        >>> import torch
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
    checked = edge_method(method)
    goat = checked if isinstance(checked, GOAtAttribution) else GOAtAttribution(checked.model)
    inputs = data if arguments is None else arguments(data)
    mask, size = _ones(goat.model, data), f"{data.num_nodes} nodes, {data.num_edges} edges"
    try:
        target, explained = _target(goat.model, mask, inputs, data)
    except UnsupportedModelError as error:
        return ModelCheck(type(goat.model).__name__, size, tuple(MaskCheck(at, str(error)) for at in PLACES))
    masks = tuple(_check_at(at, goat, mask, target, inputs) for at in PLACES)
    return ModelCheck(type(goat.model).__name__, f"{explained}, {size}", masks)


def _check_at(at: Place, goat: GOAtAttribution, mask: Any, target: Any, inputs: Any) -> MaskCheck:
    """Attribute with masks that enter at one place."""
    method = GOAtAttribution(goat.model, goat.field, at=at, gates=goat.gates)
    try:
        with _counted(goat.model) as passes:
            attributions, delta = method.attribute(mask, target, inputs, return_convergence_delta=True)
    except UnsupportedModelError as error:
        return MaskCheck(at, str(error))
    total = sum(float(part.sum()) for part in (attributions.values() if isinstance(mask, dict) else [attributions]))
    return MaskCheck(at, "", total, float(delta.abs().max()), len(passes), sum(passes))


def _ones(model: Module, data: BaseData) -> Any:
    """Return an edge mask of ones, by edge type for a heterogeneous graph."""
    dtype = floating_tensor(model).dtype

    def ones(edges: Tensor) -> Tensor:
        return torch.ones(edges.size(1), dtype=dtype, device=edges.device)

    if isinstance(data, HeteroData):
        return {edge_type: ones(edges) for edge_type, edges in data.edge_index_dict.items()}
    return ones(data.edge_index)


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


@contextmanager
def _counted(model: Module) -> Iterator[list[bool]]:
    """Yield a list that has an entry for every forward pass: whether it is differentiated."""
    passes: list[bool] = []

    def note(module: Module, args: tuple[Tensor, ...]) -> None:
        passes.append(torch.is_grad_enabled())

    handle = model.register_forward_pre_hook(note)
    try:
        yield passes
    finally:
        handle.remove()
