"""A model's arguments for a large graph, and for graphs that are cut out of it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Data
from torch_geometric.data.data import BaseData
from torch_geometric.utils import is_sparse

from captum_goat.hooks.interception import intercepted, unchanged
from captum_goat.inputs.arguments import attributes_for
from captum_goat.inputs.graph_inputs import GraphInputs, tensor_output
from captum_goat.nodes.cut_graphs import CutGraphs
from captum_goat.rules.operations import input_of
from captum_goat.rules.registry import Rule

_LEFT_OUT = ("edge_index", "num_nodes", "ptr")  # what cut graphs have of their own, or not at all


class GraphData:
    """A model and the graph on which it classifies nodes.

    Attributes of the graph with one row per node or per edge are cut along with it; others stay as they are.

    Args:
        model: The model.
        data: The graph.
        arguments: Returns the model's arguments for a graph, ``data`` or a part of it; ``None`` to look them up by
            name.

    Attributes:
        left_out: The number of the call of a softmax or sigmoid that is the model's last step, and is left out of
            outputs because it would hide differences; ``None`` if there is none.
    """

    def __init__(self, model: Module, data: Data, arguments: Callable[[Data], Any] | None = None) -> None:
        if not isinstance(data, Data) or not isinstance(data.edge_index, Tensor):
            raise TypeError(
                f"Expected one homogeneous graph, a torch_geometric Data with an edge_index (got "
                f"{data if isinstance(data, BaseData) else type(data).__name__}). Explain nodes of other graphs with "
                f"GOAtAttribution."
            )
        self.model = model
        self.data = data
        self.left_out: int | None = None
        self._arguments = arguments
        names = list(data.keys()) if arguments is not None else attributes_for(model, data)
        self._names = [name for name in names if name not in _LEFT_OUT and not is_sparse(data[name])]

    def whole(self) -> GraphInputs:
        """Return the model's arguments for the graph as it is."""
        return self._inputs(self.data)

    def cut(self, cut: CutGraphs) -> GraphInputs:
        """Return the model's arguments for graphs that were cut out."""
        graph = Data(edge_index=cut.edge_index, num_nodes=len(cut.nodes))
        for name in self._names:
            graph[name] = self._rows(name, cut)
        return self._inputs(graph)

    @torch.no_grad()
    def output(self, inputs: GraphInputs, num_nodes: int) -> Tensor:
        """Return the model's output for such arguments."""
        calls = count()

        def on_call(rule: Rule, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return input_of(args, kwargs).clone() if next(calls) == self.left_out else func(*args, **kwargs)

        plain = self.left_out is None
        result = unchanged(self.model, inputs) if plain else intercepted(inputs, self.model, on_call=on_call)
        output = tensor_output(result)
        if output.dim() not in (1, 2) or len(output) != num_nodes:
            raise ValueError(
                f"Expected one row of output per node, [num_nodes, classes] or [num_nodes] (got {list(output.shape)} "
                f"for {num_nodes} nodes)."
            )
        return output

    def _inputs(self, graph: Data) -> GraphInputs:
        given = graph if self._arguments is None else self._arguments(graph)
        given = given if isinstance(given, tuple) else (given,)
        return GraphInputs.of(self.model, given, num_edges=[graph.edge_index.size(1)])

    def _rows(self, name: str, cut: CutGraphs) -> Any:
        """Return an attribute for the nodes, or edges, of cut graphs if it is one of nodes, or edges."""
        value = self.data[name]
        if not isinstance(value, Tensor):
            return value
        dim = self.data.__cat_dim__(name, value)
        if self.data.is_edge_attr(name):
            return value.index_select(dim, cut.edges)
        return value.index_select(dim, cut.nodes) if self.data.is_node_attr(name) else value
