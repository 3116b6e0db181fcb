"""Aggregations and pooling as readouts, norms and activations: each after a GCN layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch.nn.modules import activation
from torch.nn.utils import parametrizations
from torch_geometric.nn import aggr, norm, pool
from torch_geometric.typing import SparseTensor

from benchmarks.compat.check import Case
from benchmarks.compat.graphs import CHANNELS as C
from benchmarks.compat.graphs import NODES, Graph
from benchmarks.compat.networks import Network, Steps, graph_of_nodes, mlp

AGGREGATIONS, POOLING, NORMS, ACTIVATIONS = "Aggregations", "Pooling", "Norms", "Activations"
SECTIONS = (AGGREGATIONS, POOLING, NORMS, ACTIVATIONS)
_SIMPLE = ("Sum", "Mean", "Max", "Min", "Mul", "Var", "Std")
_HEADS = {"in_channels": C, "out_channels": C, "num_heads": 2}
_DEGREES = torch.tensor([1, 2, 4, 2, 1])


class _Function(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Tensor:
        return self.function(*args)


def _readout(n: Any, g: Graph) -> Tensor:
    return n.head(n.layer(n.start(g), graph_of_nodes(g)))  # type: ignore[no-any-return]


_AGGREGATIONS: list[tuple[str, str, Callable[[], nn.Module]]] = [
    *[(f"{name}Aggregation", "", getattr(aggr, f"{name}Aggregation")) for name in _SIMPLE],
    ("MultiAggregation", "mean, max, std", lambda: aggr.MultiAggregation(["mean", "max", "std"])),
    ("MultiAggregation", "mean, sum; mode=attn", lambda: aggr.MultiAggregation(["mean", "sum"], None, "attn", _HEADS)),
    ("SoftmaxAggregation", "", aggr.SoftmaxAggregation),
    ("SoftmaxAggregation", "learn", lambda: aggr.SoftmaxAggregation(learn=True, channels=C)),
    ("PowerMeanAggregation", "", aggr.PowerMeanAggregation),
    ("PowerMeanAggregation", "p=2", lambda: aggr.PowerMeanAggregation(2.0)),
    ("PowerMeanAggregation", "learn", lambda: aggr.PowerMeanAggregation(learn=True)),
    ("MedianAggregation", "", aggr.MedianAggregation),
    ("QuantileAggregation", "q=0.3", lambda: aggr.QuantileAggregation(0.3)),
    ("LSTMAggregation", "", lambda: aggr.LSTMAggregation(C, C)),
    ("GRUAggregation", "", lambda: aggr.GRUAggregation(C, C)),
    ("Set2Set", "", lambda: aggr.Set2Set(C, 2)),
    ("DegreeScalerAggregation", "mean", lambda: aggr.DegreeScalerAggregation(["mean"], ["amplification"], _DEGREES)),
    ("SortAggregation", "", lambda: aggr.SortAggregation(3)),
    ("GraphMultisetTransformer", "", lambda: aggr.GraphMultisetTransformer(C, 2, heads=2)),
    ("AttentionalAggregation", "", lambda: aggr.AttentionalAggregation(nn.Linear(C, 1))),
    ("AttentionalAggregation", "MLPs", lambda: aggr.AttentionalAggregation(mlp(C, C, 1), mlp(C, C, C))),
    ("EquilibriumAggregation", "", lambda: aggr.EquilibriumAggregation(C, C, [C])),
    ("MLPAggregation", "", lambda: aggr.MLPAggregation(C, C, NODES, num_layers=1)),
    ("DeepSetsAggregation", "", lambda: aggr.DeepSetsAggregation(mlp(C, C), mlp(C, C))),
    ("SetTransformerAggregation", "", lambda: aggr.SetTransformerAggregation(C, heads=2)),
    ("SetTransformerAggregation", "layer_norm", lambda: aggr.SetTransformerAggregation(C, heads=2, layer_norm=True)),
    ("LCMAggregation", "", lambda: aggr.LCMAggregation(C, C)),
    ("VariancePreservingAggregation", "", aggr.VariancePreservingAggregation),
    ("PatchTransformerAggregation", "", lambda: aggr.PatchTransformerAggregation(C, C, 2, C, heads=2)),
]


def _pooled_graph(n: Any, g: Graph) -> Tensor:
    """Pool the nodes, let a second GCN layer run on the smaller graph, and take the mean."""
    hidden, edge_index, batch = n.start(g), g.edge_index, graph_of_nodes(g)
    if isinstance(n.layer, pool.EdgePooling | pool.ClusterPooling):
        hidden, edge_index, batch, _ = n.layer(hidden, edge_index, batch)
    elif isinstance(n.layer, pool.ASAPooling):
        hidden, edge_index, _, batch, _ = n.layer(hidden, edge_index, None, batch)
    else:
        hidden, edge_index, _, batch, *_ = n.layer(hidden, edge_index, None, batch)
    return n.pooled(torch.relu(n.second(hidden, edge_index)), g._replace(batch=batch))  # type: ignore[no-any-return]


def _sparse_pooled(n: Any, g: Graph) -> Tensor:
    ones = torch.ones(g.edge_index.size(1))
    matrix = SparseTensor(row=g.edge_index[1], col=g.edge_index[0], value=ones)
    hidden, _, _, batch, *_ = n.layer(n.start(g), matrix, graph_of_nodes(g))
    return n.pooled(hidden, g._replace(batch=batch))  # type: ignore[no-any-return]


def _memory(n: Any, g: Graph) -> Tensor:
    return n.head(n.layer(n.start(g), graph_of_nodes(g))[0].mean(dim=1))  # type: ignore[no-any-return]


_POOLING: list[tuple[str, str, Callable[[], nn.Module], Steps]] = [
    ("global_add_pool", "", lambda: _Function(pyg.global_add_pool), _readout),
    ("global_mean_pool", "", lambda: _Function(pyg.global_mean_pool), _readout),
    ("global_max_pool", "", lambda: _Function(pyg.global_max_pool), _readout),
    ("TopKPooling", "", lambda: pool.TopKPooling(C), _pooled_graph),
    ("SAGPooling", "", lambda: pool.SAGPooling(C), _pooled_graph),
    ("EdgePooling", "", lambda: pool.EdgePooling(C), _pooled_graph),
    ("ClusterPooling", "", lambda: pool.ClusterPooling(C), _pooled_graph),
    ("ASAPooling", "", lambda: pool.ASAPooling(C), _pooled_graph),
    ("PANPooling", "", lambda: pool.PANPooling(C), _sparse_pooled),
    ("MemPooling", "", lambda: pool.MemPooling(C, C, 2, 2), _memory),
]


def _normed(*names: str) -> Steps:
    """Return the steps GCN, norm, ReLU, mean; ``names`` are what the norm is called with beside the rows."""

    def steps(n: Any, g: Graph) -> Tensor:
        hidden = n.layer(n.convolved(g), *(getattr(g, name) for name in names))
        return n.pooled(torch.relu(hidden), g)  # type: ignore[no-any-return]

    return steps


def _message_norm(n: Any, g: Graph) -> Tensor:
    hidden = n.start(g)
    return n.pooled(hidden + n.layer(hidden, n.second(hidden, g.edge_index)), g)  # type: ignore[no-any-return]


_NORMS: list[tuple[str, str, Callable[[], nn.Module], Steps]] = [
    ("BatchNorm", "", lambda: norm.BatchNorm(C), _normed()),
    ("HeteroBatchNorm", "", lambda: norm.HeteroBatchNorm(C, 2), _normed("node_type")),
    ("InstanceNorm", "", lambda: norm.InstanceNorm(C), _normed("batch")),
    ("InstanceNorm", "track_running_stats", lambda: norm.InstanceNorm(C, track_running_stats=True), _normed("batch")),
    ("LayerNorm", "mode=graph", lambda: norm.LayerNorm(C), _normed("batch")),
    ("LayerNorm", "mode=node", lambda: norm.LayerNorm(C, mode="node"), _normed("batch")),
    ("HeteroLayerNorm", "", lambda: norm.HeteroLayerNorm(C, 2), _normed("node_type")),
    ("GraphNorm", "", lambda: norm.GraphNorm(C), _normed("batch")),
    ("GraphSizeNorm", "", norm.GraphSizeNorm, _normed("batch")),
    ("PairNorm", "", norm.PairNorm, _normed("batch")),
    ("PairNorm", "scale_individually", lambda: norm.PairNorm(scale_individually=True), _normed("batch")),
    ("MeanSubtractionNorm", "", norm.MeanSubtractionNorm, _normed("batch")),
    ("MessageNorm", "", lambda: norm.MessageNorm(learn_scale=True), _message_norm),
    ("DiffGroupNorm", "", lambda: norm.DiffGroupNorm(C, 2), _normed()),
    ("torch.nn.BatchNorm1d", "", lambda: nn.BatchNorm1d(C), _normed()),
    ("torch.nn.LayerNorm", "", lambda: nn.LayerNorm(C), _normed()),
    ("torch.nn.RMSNorm", "", lambda: nn.RMSNorm(C), _normed()),
    ("torch.nn.GroupNorm", "", lambda: nn.GroupNorm(2, C), _normed()),
    ("torch.nn.InstanceNorm1d", "", lambda: nn.InstanceNorm1d(C), _normed()),
    ("torch.nn.functional.normalize", "", lambda: _Function(lambda x: nn.functional.normalize(x, dim=-1)), _normed()),
    ("weight_norm", "of a linear layer", lambda: parametrizations.weight_norm(nn.Linear(C, C)), _normed()),
    ("spectral_norm", "of a linear layer", lambda: parametrizations.spectral_norm(nn.Linear(C, C)), _normed()),
]
# Activations that cannot do without arguments, or of whose options others matter.
_OPTIONS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "Threshold": [("0, 0", {"threshold": 0.0, "value": 0.0}), ("0.1, 0.5", {"threshold": 0.1, "value": 0.5})],
    "ReLU": [("", {}), ("inplace", {"inplace": True})],
    "GELU": [("", {}), ("approximate=tanh", {"approximate": "tanh"})],
    "PReLU": [("", {}), ("num_parameters", {"num_parameters": C})],
    "Softmax": [("", {"dim": -1})],
    "Softmin": [("", {"dim": -1})],
    "LogSoftmax": [("", {"dim": -1})],
}
# Not functions of one row at a time.
_OTHERS = ("MultiheadAttention", "Softmax2d")


def _activated(n: Any, g: Graph) -> Tensor:
    """Apply the activation twice, after a GCN layer and after a linear one."""
    hidden = n.layer(n.convolved(g))
    return n.pooled(n.layer(n.second(hidden, g.edge_index)), g)  # type: ignore[no-any-return]


def cases() -> Iterator[Case]:
    """Yield the cases of all layers."""
    for name, variant, build in _AGGREGATIONS:
        yield _case(AGGREGATIONS, name, variant, build, _readout)
    for section, rows in ((POOLING, _POOLING), (NORMS, _NORMS)):
        for name, variant, build, steps in rows:
            yield _case(section, name, variant, build, steps)
    for name in activation.__all__:
        for variant, options in _OPTIONS.get(name, [("", {})]):
            if name not in _OTHERS:
                kind = getattr(activation, name)
                yield _case(ACTIVATIONS, name, variant, lambda k=kind, o=options: k(**o), _activated)  # type: ignore[misc]


def _case(section: str, name: str, variant: str, build: Callable[[], nn.Module], steps: Steps) -> Case:
    def network() -> nn.Module:
        inner = C // 2 if name == "GLU" else C
        return Network(steps, layer=build(), second=pyg.GCNConv(inner, C))

    return Case(section, name, variant, network, "few")
