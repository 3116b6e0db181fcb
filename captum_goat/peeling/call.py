"""What peeling has to know of a call: the edges behind the mask, the graphs they belong to, and the output."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import torch
from captum.attr import Attribution
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Data
from torch_geometric.explain.algorithm.captum import CaptumModel

from captum_goat.attribution import GOAtAttribution
from captum_goat.hooks.global_state import restores_state
from captum_goat.inputs.arguments import named_arguments
from captum_goat.inputs.graph_inputs import GraphInputs
from captum_goat.inputs.targets import find_target
from captum_goat.masked_model import EdgeMaskedModel
from captum_goat.metrics.counted_edges import (
    CountedEdges,
    edges_of,
    graph_of_nodes,
    number_of_graphs,
    numbered_by_first,
)
from captum_goat.wrapped_model import ExplainedModel


def counted_edges(data: Data, undirected: bool | None, copies: int = 1) -> CountedEdges:
    """Count the edges of copies of graphs, the first copy first.

    Args:
        data: The graph, or the batch of graphs.
        undirected: Whether the two directions of an edge are one edge; ``None`` if they are where every edge of the
            graph has its reverse.
        copies: The number of copies.

    Examples::

        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from captum_goat.peeling.call import counted_edges
        >>> data = Data(edge_index=torch.tensor([[0, 1, 1], [1, 0, 2]]), num_nodes=3)
        >>> counted_edges(data, undirected=True, copies=2).number
        tensor([0, 0, 1, 2, 2, 3])
    """
    if undirected is None:
        edges = CountedEdges.of(data)
    else:
        edge_index = edges_of(data)
        source, target = edge_index.sort(dim=0).values if undirected else edge_index
        columns_graph = graph_of_nodes(data)[edge_index[0]]
        number, first = numbered_by_first(source * int(data.num_nodes) + target)
        edges = CountedEdges(number, columns_graph[first], number_of_graphs(data), columns_graph)
    copy = torch.arange(copies, device=edges.graph.device).view(-1, 1)
    graphs, total = edges.num_graphs, len(edges.graph)
    return CountedEdges(
        (edges.number + copy * total).view(-1),
        (edges.graph + copy * graphs).view(-1),
        graphs * copies,
        (edges.columns_graph + copy * graphs).view(-1),
    )


def find_graphs(method: Attribution, mask: Tensor, arguments: tuple[Any, ...]) -> Data:
    """Find the edges that are masked, and the graph of each node, among the arguments of a call.

    Args:
        method: The attribution method.
        mask: The edge mask, ``[E]`` or ``[B, E]``.
        arguments: The additional arguments. Graphs are told apart by one that is called ``batch``, or by a ``Batch``.
    """
    graphs = [each for each in arguments if isinstance(each, Data)]
    if not graphs:
        function, leading = _function_of(method)
        count = len(mask) if mask.dim() == 2 else 1
        try:
            inputs = GraphInputs.of(function, arguments, num_edges=[mask.size(-1)], leading=leading, count=count)
        except ValueError as error:
            raise ValueError(f"{error} Or pass the graph that the mask is of as graphs=data.") from error
        (edge_index,), batch = inputs.edge_sets, inputs.arguments.get("batch")
        batch = batch if isinstance(batch, Tensor) else None
        nodes = len(batch) if batch is not None else int(edge_index.max()) + 1 if edge_index.numel() else 0
        graphs = [Data(edge_index=edge_index, batch=batch, num_nodes=nodes)]
    return check_graphs(graphs[0], mask)


def argument_names(method: Attribution, arguments: tuple[Any, ...]) -> list[str]:
    """Return the names of the additional arguments of a method's function, in their order."""
    if any(isinstance(each, Data) for each in arguments):
        return [""] * len(arguments)
    function, leading = _function_of(method)
    named, _ = named_arguments(function, arguments, {}, leading)
    return list(named)[leading:]


def check_graphs(data: Any, mask: Tensor) -> Data:
    """Refuse what is not a graph with as many edges as the mask has."""
    if not isinstance(data, Data):
        raise ValueError(f"Expected graphs as a torch_geometric Data or Batch (got {type(data).__name__}).")
    columns = edges_of(data).size(1)
    if columns != mask.size(-1):
        raise ValueError(f"Expected a mask of {columns} edges, as the graph has them (got {mask.size(-1)}).")
    return data


@restores_state
def explained_values(method: Attribution, mask: Tensor, target: Any, arguments: tuple[Any, ...]) -> Tensor:
    """Return the numbers that a method explains, one per graph or mask: for GOAt logits, else the target's outputs."""
    if isinstance(goat := innermost(method), GOAtAttribution):
        return goat.explained_values(mask, target, arguments)
    with torch.no_grad():
        output = method.forward_func(mask, *arguments)
        output = output.view(1) if output.dim() == 0 else output
        return find_target(output, target)(output)


def as_tuple(arguments: Any) -> tuple[Any, ...]:
    """Return additional arguments, which may be none, or one, or a tuple of them."""
    return arguments if isinstance(arguments, tuple) else () if arguments is None else (arguments,)


def innermost(method: Attribution) -> Attribution:
    """Return the method inside of wrappers such as NoiseTunnel."""
    while isinstance(inside := getattr(method, "attribution_method", None), Attribution):
        method = inside
    return method


def _function_of(method: Attribution) -> tuple[Module, int]:
    """Return what names the arguments of the method's function, and how many masks it names among them."""
    function = method.forward_func
    if isinstance(goat := innermost(method), GOAtAttribution):
        return goat.model, 0
    if isinstance(getattr(function, "_orig_mod", function), EdgeMaskedModel | CaptumModel):
        return ExplainedModel.of(function).model, 0
    return function if isinstance(function, Module) else cast(Module, SimpleNamespace(forward=function)), 1
