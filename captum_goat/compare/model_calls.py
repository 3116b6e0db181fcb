"""How a user's model is called, and what it returns."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Batch, Data

from captum_goat.compare.chunks import parts_of
from captum_goat.metrics.reduced_graphs import refuse_probabilities

USUAL = ("x", "edge_index", "batch")


def check_call(model: Module, graph: Data, *, with_batch: bool = True) -> None:
    """Refuse a model that takes other things than explainers give it, or takes them in another order.

    Args:
        model: The model.
        graph: One of its graphs.
        with_batch: Whether it is called as ``model(x, edge_index, batch)``, else as ``model(x, edge_index)``.

    Raises:
        ValueError: If the graph has something else that the model takes, or if ``batch`` is not what it takes third. (A
            model that names ``x`` and ``edge_index`` is given ``batch`` by its name, too; any other one by position.)
    """
    names = list(inspect.signature(model.forward).parameters)
    usual = f"model({', '.join(USUAL if with_batch else USUAL[:2])})"
    signature = f"{type(model).__name__}.forward({', '.join(names)})"
    others = [name for name in names if name not in USUAL and name in graph]
    if others:
        raise ValueError(
            f"Expected a model that is called as {usual} (got {signature}, and graphs with {', '.join(others)}). "
            "Explainers would leave that out. Delete it from the graphs to compare on the model without it."
        )
    by_name = "batch" in names or ("x" in names and "edge_index" in names)
    if with_batch and by_name and len(names) > 2 and names[2] != "batch":
        raise ValueError(
            f"Expected a model that is called as {usual} (got {signature}). Wrap it in a module whose forward takes "
            "the three in this order, under these names."
        )


@torch.no_grad()
def logits_of(model: Module, graphs: Sequence[Data], rows: int | None = None) -> Tensor:
    """Return a model's logits for graphs, a few graphs at a time.

    Args:
        model: The model.
        graphs: The graphs.
        rows: How many rows it is to return for one graph; ``None`` for one per graph.

    Returns:
        The logits ``[G, C]``, or ``[rows, C]``.

    Raises:
        ValueError: If the model cannot be called, or returns something else.
    """
    logits = torch.cat([_logits(model, graphs[part], rows) for part in parts_of(graphs)])
    refuse_probabilities(logits)
    return logits


def _logits(model: Module, graphs: Sequence[Data], rows: int | None) -> Tensor:
    batch = Batch.from_data_list(list(graphs))
    given = [batch.x, batch.edge_index, batch.batch][: 3 if rows is None else 2]
    usual = f"model({', '.join(USUAL[: len(given)])})"
    try:
        output: Tensor = model(*given)
    except Exception as error:
        raise ValueError(
            f"Expected a model that can be called as {usual} with these graphs (got {type(error).__name__}: {error})."
        ) from error
    count, what = (len(graphs), "graphs") if rows is None else (rows, "nodes")
    if not isinstance(output, Tensor) or output.dim() != 2 or len(output) != count or output.size(1) < 2:
        got = list(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise ValueError(
            f"Expected logits [{count}, C] of two classes or more from {usual}, one row for each of {count} {what} "
            f"(got {got}). {_advice(output, int(batch.num_nodes), rows is None)}"
        )
    return output


def _advice(output: object, num_nodes: int, of_graphs: bool) -> str:
    if of_graphs and isinstance(output, Tensor) and output.dim() == 2 and len(output) == num_nodes:
        return "For a classifier of nodes pass one graph and nodes=..., num_hops=..."
    return "One logit z [G, 1] of a class and its opposite is torch.cat([torch.zeros_like(z), z], dim=1)."
