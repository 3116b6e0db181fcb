"""Only messages that can still reach a root: fewer from layer to layer, and almost none in the last one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn import Module
from torch_geometric.nn import MessagePassing

from captum_goat.hooks.interception import Changes, Result, changed
from captum_goat.tracking import RowGraph


def hops_behind(graph: RowGraph, sources: frozenset[int]) -> list[int]:
    """Return, for every call of a message function, how many more hops there may be between it and an output.

    Args:
        graph: Which rows read which.
        sources: The blocks of the output's rows.
    """
    behind = [0 if number in sources else -1 for number in range(len(graph.blocks))]
    for number in reversed(range(len(graph.blocks))):
        block = graph.blocks[number]
        for source in block.sources if behind[number] >= 0 else ():
            behind[source] = max(behind[source], behind[number] + block.crosses)
    return [hops for hops, block in zip(behind, graph.blocks, strict=True) if block.crosses]


class TrimmedLayers:
    """A model whose layers leave out messages to nodes that are too far from every root for what they are told.

    A node that is d hops away from a root is listened to in a layer only if d hops or more follow. What a layer
    computes from all edges before it passes messages, degrees and attention above all, stays as it is.

    Args:
        model: The model.
        hops_behind: How many more hops there are behind every call of a layer.
        distance: How far every node is from a root.
    """

    def __init__(self, model: Module, hops_behind: list[int], distance: Tensor) -> None:
        self._model = model
        self._hops_behind = hops_behind
        self._distance = distance
        self._kept: list[Tensor] = []  # the messages of each call, found in the first forward pass
        self._calls = 0

    def __call__(self, run: Callable[[], Result]) -> Result:
        """Run a function, with the model's layers trimmed."""

        def begin(model: Module, inputs: Any) -> None:
            self._calls = 0

        def trim(layer: MessagePassing, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
            return self._trimmed(layer, *inputs)

        def run_trimmed(changes: Changes) -> Result:
            changes.hook(self._model, "_forward_pre_hooks", begin)
            for module in modules:
                if isinstance(module, MessagePassing) and module.explain is not False:
                    changes.hook(module, "_propagate_forward_pre_hooks", trim)
            return run()

        modules = list(self._model.modules())
        return changed(modules, run_trimmed)

    def _trimmed(self, layer: MessagePassing, edges: Tensor, size: Any, given: dict[str, Any]) -> tuple[Any, ...]:
        call = self._calls
        self._calls += 1
        if call == len(self._kept):
            target = edges[1 if layer.flow == "source_to_target" else 0]
            self._kept.append((self._distance[target] <= max(self._hops_behind[call], 0)).nonzero().view(-1))
        kept, names = self._kept[call], inspect.signature(layer.message).parameters
        found = {}
        for name, value in given.items():
            of_nodes = f"{name}_i" in names or f"{name}_j" in names or name not in names
            of_edges = not of_nodes and isinstance(value, Tensor) and value.dim() and len(value) == edges.size(1)
            found[name] = value.index_select(0, kept) if of_edges else value
        return edges.index_select(1, kept), size, found
