"""A literal, slow GOAt for smooth gates and frozen factors: every scalar product is written out and shared by hand.

The sister of ``oracle.py``, for models with other activations than ReLU, norms, attention and max aggregation. Every
number of the network is a sum of scalar products, each kept with its value in the recorded pass and with its factors:

- *edges*: the mask's entry, which multiplies every message of the edge;
- *gates*: an activation f becomes out = f(0) + P * in, and the number P is the gate;
- *frozen factors*: the scale of a norm, an attention coefficient, the share of a message in a maximum.

Edges and gates are the variables. A gate or frozen factor that no edge can reach is a constant, and no factor at all.
It knows nothing of the package, so that an agreement of the two is evidence for both.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from oracle_rules_factors import Cell, FactorRows, chosen, divided, weighted, with_norm
from oracle_rules_products import Product, Row, Table, add, linear, sum_of, times, value
from oracle_rules_rows import ACTIVATIONS, NOWHERE, Field, Stage
from torch import Tensor, nn
from torch_geometric.explain.algorithm.utils import clear_masks, set_masks
from torch_geometric.nn import GATConv, GCNConv, GraphConv, SAGEConv, global_max_pool, global_mean_pool


class Message(NamedTuple):
    """What a node sends to another; ``edge`` is None for a loop that the layer adds itself, which is a constant."""

    source: int
    target: int
    edge: int | None


class Oracle(FactorRows):
    """One graph on its way through the network: its layers, and the messages between its rows."""

    def apply(self, stage: Stage) -> None:
        """Go through one layer."""
        self.operations += 1
        for function, ways in ACTIVATIONS.values():
            if stage in ways:
                return self.activation(function)
        if isinstance(stage, nn.Linear):
            self.table = linear(self.table, stage.weight, stage.bias)
            return None
        if isinstance(stage, nn.LayerNorm):
            return self.layer_norm(stage)
        if isinstance(stage, Cell):
            return self.recur(stage)
        steps = {F.normalize: self.normalize, global_mean_pool: self.mean_pool, global_max_pool: self.max_pool}
        steps |= {divided: self.divide, weighted: self.weight, with_norm: self.norm_value, chosen: self.choose}
        if stage in steps:
            return steps[stage]()
        return {GraphConv: self.graph_conv, SAGEConv: self.sage, GCNConv: self.gcn, GATConv: self.gat}[type(stage)](
            stage
        )

    # Message passing

    def messages(self, *, loops: bool) -> list[Message]:
        """List the messages; with ``loops`` a layer adds a loop wherever the user has none."""
        messages = [Message(source, target, e) for e, (source, target) in enumerate(self.edges)]
        looped = {source for source, target in self.edges if source == target}
        if loops:
            messages += [Message(node, node, None) for node in range(len(self.table)) if node not in looped]
        return messages

    def sent(self, message: Message, row: Row, number: float = 1.0, factor: Product = ()) -> Row:
        """Multiply a row by the message's edge and by a number that is a constant or the value of a factor."""
        if message.edge is not None:
            number, factor = number * self.mask[message.edge], (*factor, ("edge", message.edge))
        return [times(entry, number, factor) for entry in row]

    def inputs_field(self, messages: Sequence[Message]) -> Field:
        """Collect the edges that can change some of the messages."""
        edges = NOWHERE.union(*(self.fields[message.source] for message in messages))
        return edges | {message.edge for message in messages if message.edge is not None}

    def arrivals(self, messages: Sequence[Message], node: int) -> list[int]:
        """List the numbers of the messages to a node."""
        return [number for number, message in enumerate(messages) if message.target == node]

    def collect(self, messages: Sequence[Message], rows: Table, channels: int, aggregation: str) -> Table:
        """Aggregate the messages, ``rows``, at every node: "add", "mean" or "max"."""
        result: Table = []
        for node in range(len(self.table)):
            own = self.arrivals(messages, node)
            arrived = [rows[number] for number in own]
            if not own:
                result.append([{} for _ in range(channels)])
            elif aggregation == "max":
                field = self.inputs_field([messages[number] for number in own])
                result.append(self.maximum(node, arrived, field))
            else:
                share = 1 / len(own) if aggregation == "mean" else 1.0
                result.append([add((share, entry) for entry in column) for column in zip(*arrived, strict=True)])
        return result

    def deepen(self, messages: Sequence[Message], *, own: bool) -> None:
        """Find the edges that can change each node's new row, made of its messages and, if ``own``, of its old row."""
        self.fields = [
            self.inputs_field([messages[number] for number in self.arrivals(messages, node)])
            | (self.fields[node] if own else NOWHERE)
            for node in range(len(self.fields))
        ]

    def graph_conv(self, conv: GraphConv) -> None:
        """GraphConv: a linear layer of the aggregated messages plus one of the node's own row."""
        self.neighbours_and_root(conv.aggr, conv.lin_rel, conv.lin_root)

    def sage(self, conv: SAGEConv) -> None:
        """GraphSAGE: the same; the mean divides by the full in-degree, whatever the mask."""
        self.neighbours_and_root(conv.aggr, conv.lin_l, conv.lin_r)
        if conv.normalize:
            self.normalize()

    def neighbours_and_root(self, aggregation: str, neighbours: nn.Linear, root: nn.Linear) -> None:
        """Return neighbours(aggregate) + root(own row)."""
        messages = self.messages(loops=False)
        rows = [self.sent(message, self.table[message.source]) for message in messages]
        collected = self.collect(messages, rows, len(self.table[0]), aggregation)
        self.table = sum_of(
            linear(collected, neighbours.weight, neighbours.bias), linear(self.table, root.weight, root.bias)
        )
        self.deepen(messages, own=True)

    def gcn(self, conv: GCNConv) -> None:
        """GCN: symmetrically normalised by the full degrees, whatever the mask."""
        self.table = linear(self.table, conv.lin.weight, None)
        messages = self.messages(loops=True)
        degrees = [len(self.arrivals(messages, node)) for node in range(len(self.table))]
        rows = [
            self.sent(message, self.table[message.source], 1 / math.sqrt(degrees[message.source] * degrees[node]))
            for message in messages
            for node in [message.target]
        ]
        collected = self.collect(messages, rows, len(self.table[0]), conv.aggr)
        biases: Row = [{(): bias} for bias in conv.bias.tolist()]
        self.table = sum_of(collected, [biases] * len(collected))
        self.deepen(messages, own=False)

    def attention_field(self, readers: Sequence[Message], message: Message) -> Field:
        """Collect the edges that can change a coefficient: through all rows that its softmax reads; not the masks."""
        rows = {message.target, *(reader.source for reader in readers)}
        return NOWHERE.union(*(self.fields[row] for row in rows))

    def gat(self, conv: GATConv) -> None:
        """GAT: every message is multiplied by its attention coefficient, one per head."""
        self.table = linear(self.table, conv.lin.weight, None)
        messages = self.messages(loops=conv.add_self_loops)
        heads, channels = conv.heads, conv.out_channels
        rows: Table = [[] for _ in messages]
        for head in range(heads):
            part = slice(head * channels, (head + 1) * channels)
            values = [[value(entry) for entry in row[part]] for row in self.table]
            as_source, as_target = (
                [math.fsum(a * b for a, b in zip(weights, row, strict=True)) for row in values]
                for weights in (conv.att_src[0, head].tolist(), conv.att_dst[0, head].tolist())
            )
            logits = [as_source[message.source] + as_target[message.target] for message in messages]
            powers = [math.exp(logit if logit > 0 else conv.negative_slope * logit) for logit in logits]
            for number, message in enumerate(messages):
                rivals = self.arrivals(messages, message.target)
                coefficient = powers[number] / math.fsum(powers[rival] for rival in rivals)
                field = self.attention_field([messages[rival] for rival in rivals], message)
                factor = self.factor("frozen", (number, head), field)
                rows[number] += self.sent(message, self.table[message.source][part], coefficient, factor)
        collected = self.collect(messages, rows, heads * channels, conv.aggr)
        biases: Row = [{(): bias} for bias in conv.bias.tolist()]
        self.table = sum_of(collected, [biases] * len(collected))
        self.deepen(messages, own=False)


def run(stages: Iterable[Stage], x: Tensor, edge_index: Tensor, mask: Tensor, kind: type[Oracle] = Oracle) -> Oracle:
    """Take one graph through the network; the oracle's table is then the output."""
    oracle = kind(x, edge_index, mask)
    for stage in stages:
        oracle.apply(stage)
    return oracle


def attributions(explained: Oracle, empty: Oracle, target: tuple[int, int]) -> Tensor:
    """Return a number per edge: its shares, minus those of the network without edges."""
    pairs = zip(explained.shares(target), empty.shares(target), strict=True)
    every = set(range(len(explained.edges)))
    sharing = set(explained.fields[target[0]]) | set(empty.fields[target[0]]) or every  # in what other choices change
    rest = explained.constant_change(empty, target) / max(len(sharing), 1)
    values = [share - calibration + rest * (edge in sharing) for edge, (share, calibration) in enumerate(pairs)]
    return torch.tensor(values, dtype=torch.float64)


def masked_output(model: nn.Module, x: Tensor, edge_index: Tensor, mask: Tensor) -> Tensor:
    """Judge the oracle: run the real model with PyG's own edge masks, which multiply messages.

    GCN and GAT move the loops to the end, one per node; PyG would not mask the user's loops among them.
    """
    set_masks(model, mask, edge_index, apply_sigmoid=False)
    is_loop = edge_index[0] == edge_index[1]
    loops = mask.new_ones(len(x)).index_put((edge_index[0, is_loop],), mask[is_loop])
    for module in model.modules():
        if isinstance(module, (GCNConv, GATConv)) and module.add_self_loops:
            module._edge_mask = torch.cat([mask[~is_loop], loops])
    try:
        with torch.no_grad():
            output: Tensor = model(x, edge_index)
            return output
    finally:
        clear_masks(model)
