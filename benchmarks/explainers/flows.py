"""FlowX, first stage: marginal contributions of message flows, added up to scores of edges."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.nn import MessagePassing

from benchmarks.explainers.graph_copies import repeat_graphs
from captum_goat.compare.explainers import Explainer, ExplainerSkippedError
from captum_goat.compare.graphs import LARGEST_CALL, Graphs
from captum_goat.models import RootClassifier

MOST_FLOWS = 1_000_000


class FlowXMarginals(Explainer):
    r"""The sampled Shapley values of message flows, without the learned mask that follows in the paper.

    A flow is a walk of T steps, one per layer: along an edge, or staying at its node. A *layer edge* is an edge in one
    layer. In each of several random orders the layer edges are removed one after the other. What the target's logit
    loses at a step is shared equally among the flows that this step interrupts; the score of a flow is its mean share
    over the orders. All flows together have what the logit loses without messages. The score of an edge is

    .. math:: s_e = \sum_{t=1}^{T} \; \sum_{\text{flows } F \text{ with step } t \text{ on } e} \varphi_F .

    Steps that stay at a node are not removed, because only edges get scores. Of nodes, flows end at the explained node.

    Args:
        orders: The number of random orders.
        steps: The largest number of steps in an order; larger graphs lose several layer edges at once, as in the
            authors' code.
        seed: Where the random numbers start.
    """

    name = "flowx_marginals"
    citation = (
        "Gui, Yuan, Wang, Lao, Li, Ji: FlowX: Towards Explainable Graph Neural Networks via Message Flows, TPAMI 2024; "
        "here its first stage, marginal contributions"
    )

    def __init__(self, orders: int = 30, steps: int = 100, seed: int = 0) -> None:
        self.orders = orders
        self.steps = steps
        self.seed = seed

    def scores(self, model: Module, graphs: Graphs) -> Tensor:
        """Return the scores of one graph's edges."""
        count = graphs.num_edges
        calls: list[Any] = []
        with _hooked(model, lambda *arguments: calls.append(arguments[0])):
            model(*graphs.inputs)
        layers = len(calls)
        flows = message_flows(graphs, layers, at_root=of_root(model))
        on_edge = flows < count
        layer_edges = flows + torch.arange(layers, device=flows.device) * count  # numbered layer by layer
        used = layer_edges[on_edge].unique()
        if not len(used):
            return graphs.x.new_zeros(count)
        random = torch.Generator().manual_seed(graphs.seed(self.seed))
        size = min(self.steps, len(used))
        step_of = torch.full((self.orders, layers * count), size, device=flows.device)  # those not in use stay
        for order in step_of:
            place = torch.randperm(len(used), generator=random).to(flows.device)
            order[used] = place * size // len(used)
        # masks[o, k] has the layer edges that are left before step k; the last has none of those in use.
        masks = step_of.unsqueeze(1) >= torch.arange(size + 1, device=flows.device).view(1, -1, 1)
        values = layer_values(model, graphs, masks.view(-1, layers, count)).view(self.orders, size + 1)
        losses = values[:, :-1] - values[:, 1:]
        shares = graphs.x.new_zeros(len(flows))
        for order, loss in zip(step_of, losses, strict=True):
            steps = torch.where(on_edge, order[layer_edges.clamp(max=layers * count - 1)], size).amin(dim=1)
            interrupted = steps.bincount(minlength=size + 1)[:size].clamp(min=1)
            shares += torch.cat([loss / interrupted, loss.new_zeros(1)])[steps] / self.orders
        totals = graphs.x.new_zeros(count + graphs.x.size(0))
        return totals.index_add_(0, flows.view(-1), shares.repeat_interleave(layers))[:count]


def of_root(model: Module) -> bool:
    """Return whether a graph's output is that of its first node."""
    return any(isinstance(module, RootClassifier) for module in model.modules())


def message_flows(graphs: Graphs, layers: int, *, at_root: bool) -> Tensor:
    """Return all walks of ``layers`` steps, ``[flows, layers]``: numbers of edges, or E + v for staying at node v.

    Args:
        graphs: One graph.
        layers: The number of steps.
        at_root: Whether flows end at the first node; else at any.

    Examples::

        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from benchmarks.explainers.flows import message_flows
        >>> from captum_goat.compare.graphs import Graphs
        >>> edge = Graphs.of(Data(x=torch.ones(2, 1), edge_index=torch.tensor([[1], [0]])), torch.tensor([0]))
        >>> message_flows(edge, 2, at_root=True)  # edge 0 and stay at node 0, stay at node 1 and edge 0, stay at node 0
        tensor([[0, 1],
                [1, 1],
                [2, 0]])
    """
    nodes = torch.arange(graphs.x.size(0), device=graphs.x.device)
    source, target = (torch.cat([ends, nodes]) for ends in graphs.edge_index)
    by_target = target.argsort(stable=True)
    degree = target.bincount(minlength=len(nodes))
    first = degree.cumsum(0) - degree
    # Backwards: all steps into the node at which the flows begin so far.
    begin = nodes[:1] if at_root else nodes
    flows = begin.new_empty(len(begin), 0)
    for _ in range(layers):
        repeats = degree[begin]
        if int(repeats.sum()) > MOST_FLOWS:
            raise ExplainerSkippedError(f"Expected at most {MOST_FLOWS:,} message flows (got {int(repeats.sum()):,}).")
        index = torch.arange(len(begin), device=begin.device).repeat_interleave(repeats)
        place = torch.arange(len(index), device=begin.device) - (repeats.cumsum(0) - repeats)[index]
        step = by_target[first[begin[index]] + place]
        flows, begin = torch.cat([step.view(-1, 1), flows[index]], dim=1), source[step]
    return flows[torch.argsort(flows[:, 0], stable=True)]


@contextmanager
def _hooked(model: Module, hook: Any) -> Iterator[None]:
    """Call a hook with the messages of every message passing layer, in the order of the forward pass."""
    with ExitStack() as hooks, torch.no_grad():
        for layer in model.modules():
            if isinstance(layer, MessagePassing):
                hooks.callback(layer.register_message_forward_hook(hook).remove)
        yield


def layer_values(model: Module, graphs: Graphs, masks: Tensor) -> Tensor:
    """Return the target's logit of one graph with messages masked layer by layer, ``[K]`` from ``[K, layers, E]``."""
    values = []
    for part in masks.split(max(1, LARGEST_CALL // graphs.num_edges)):
        copies, waiting = repeat_graphs(graphs, len(part)), list(part.to(graphs.x.dtype).transpose(0, 1).flatten(1))
        with _hooked(model, partial(_mask_next, waiting, copies.x.size(0))):
            values.append(copies.values(model))
    return torch.cat(values)


def _mask_next(waiting: list[Tensor], nodes: int, layer: MessagePassing, _: Any, messages: Tensor) -> Tensor:
    """Multiply messages by the next mask."""
    mask = waiting.pop(0)
    loops = messages.size(layer.node_dim) - len(mask)  # self-loops that a layer adds come last
    if loops not in (0, nodes):
        raise ExplainerSkippedError("Expected one message per edge, and perhaps one per node (got other messages).")
    return messages * torch.cat([mask, mask.new_ones(loops)]).view(-1, *[1] * (-layer.node_dim - 1))
