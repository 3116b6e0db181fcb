"""Every convolution of PyTorch Geometric, with its important options, between GCN, ReLU and ReLU, mean, linear."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn

from benchmarks.compat.check import Case
from benchmarks.compat.graphs import CHANNELS as C
from benchmarks.compat.graphs import EDGE_CHANNELS as E
from benchmarks.compat.graphs import METADATA, NODES, Graph
from benchmarks.compat.networks import HeteroNetwork, Network, SignedNetwork, mlp

SECTION = "Convolutions"
# How a convolution is called with the hidden rows: the names of the graph's parts that follow them, or a function.
Call = str | Callable[[Any, Tensor, Graph], Tensor]
Build = Callable[[Any], nn.Module]

_EDGES, _WEIGHT, _ATTR, _TYPE = "edge_index", "edge_index edge_weight", "edge_index edge_attr", "edge_index edge_type"
_BATCH, _POS, _TYPES = "edge_index batch", "pos edge_index", "edge_index node_type edge_type edge_attr"
_STATISTICS = ("sum", "mean", "max", "min", "std", "var")
_MODULATIONS, _PRODUCT = ("additive", "scaled", "f-additive", "f-scaled"), "multiplicative-self-attention"
_DEGREES = torch.tensor([1, 2, 4, 2, 1])
_ALL_SCALERS = ["identity", "amplification", "attenuation", "linear", "inverse_linear"]


class _OwnLayer(pyg.MessagePassing):
    """A layer as users write them."""

    def __init__(self) -> None:
        super().__init__(aggr="mean")
        self.lin = nn.Linear(2 * C, C)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return the sum of messages."""
        return self.propagate(edge_index, x=x)  # type: ignore[no-any-return]

    def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:
        """Return a message of both ends."""
        return torch.relu(self.lin(torch.cat([x_i, x_j - x_i], dim=-1)))


def _pna(conv: Any, *aggregators: str, **options: Any) -> nn.Module:
    options = {"scalers": ["identity"], **options}
    layer: nn.Module = conv(C, C, list(aggregators), deg=_DEGREES, **options)
    return layer


def _hyper(conv: Any, hidden: Tensor, graph: Graph) -> Tensor:
    """Use the node indices as hyperedge indices, too."""
    return conv(hidden, graph.edge_index, hyperedge_attr=graph.x, num_edges=NODES)  # type: ignore[no-any-return]


def _layers(conv: Any, hidden: Tensor, graph: Graph) -> Tensor:
    return conv(torch.stack([graph.x, hidden], dim=1), graph.edge_index)  # type: ignore[no-any-return]


def _split(conv: Any, hidden: Tensor, graph: Graph) -> Tensor:
    positive = graph.edge_type == 0
    edges = graph.edge_index
    return conv(hidden, edges[:, positive], edges[:, ~positive])  # type: ignore[no-any-return]


def _colours(conv: Any, hidden: Tensor, graph: Graph) -> Tensor:
    return conv(hidden.argmax(dim=1), graph.edge_index).to(hidden.dtype).view(-1, 1)  # type: ignore[no-any-return]


def _row(
    name: str, variant: str, build: Build, call: Call = _EDGES, family: str = "graphs", makes: bool = False
) -> Case:
    return Case(SECTION, name, variant, lambda: _network(name, build, call), family, makes)


def _each(
    name: str, option: str, values: Sequence[str], build: Callable[[str, Any], nn.Module], call: Call = _EDGES
) -> list[Case]:
    return [_row(name, f"{option}={value}", partial(build, value), call) for value in values]


def _network(name: str, build: Build, call: Call) -> nn.Module:
    conv = build(getattr(pyg.conv, name))
    if isinstance(call, str):
        names = call.split()
        return Network(lambda n, g: _finish(n, n.conv(n.start(g), *(getattr(g, name) for name in names)), g), conv=conv)
    return Network(lambda n, g: _finish(n, call(n.conv, n.start(g), g), g), conv=conv)


def _finish(network: Network, hidden: Tensor, graph: Graph) -> Tensor:
    return network.pooled(torch.relu(hidden), graph)


_ROWS = [
    _row("MessagePassing", "own layer", lambda _: _OwnLayer()),
    *_each("SimpleConv", "aggr", ("sum", "mean", "max", "min", "mul", "var"), lambda a, c: c(aggr=a)),
    _row("SimpleConv", "aggr=[sum, max]", lambda c: c(aggr=["sum", "max"])),
    _row("SimpleConv", "aggr=median", lambda c: c(aggr="median"), _EDGES, "loops"),
    _row("SimpleConv", "combine_root=self_loop", lambda c: c(combine_root="self_loop")),
    _row("GCNConv", "", lambda c: c(C, C)),
    _row("GCNConv", "improved", lambda c: c(C, C, improved=True)),
    _row("GCNConv", "normalize=False", lambda c: c(C, C, normalize=False)),
    _row("GCNConv", "add_self_loops=False", lambda c: c(C, C, add_self_loops=False)),
    _row("GCNConv", "edge_weight", lambda c: c(C, C), _WEIGHT),
    _row("GCNConv", "cached", lambda c: c(C, C, cached=True), family="batch"),
    _row("GCNConv", "aggr=max", lambda c: c(C, C, aggr="max")),
    _row("GCNConv", "flow=target_to_source", lambda c: c(C, C, flow="target_to_source")),
    _row("ChebConv", "K=3", lambda c: c(C, C, K=3)),
    _row("ChebConv", "K=1", lambda c: c(C, C, K=1)),
    _row("ChebConv", "K=2, rw, edge_weight", lambda c: c(C, C, K=2, normalization="rw"), _WEIGHT),
    *_each("SAGEConv", "aggr", ("mean", "sum", "max", "std", "softmax"), lambda a, c: c(C, C, aggr=a)),
    _row("SAGEConv", "aggr=median", lambda c: c(C, C, aggr="median"), _EDGES, "loops"),
    _row("SAGEConv", "aggr=lstm", lambda c: c(C, C, aggr="lstm"), _EDGES, "sorted"),
    _row("SAGEConv", "project", lambda c: c(C, C, project=True)),
    _row("SAGEConv", "normalize", lambda c: c(C, C, normalize=True)),
    _row("SAGEConv", "root_weight=False", lambda c: c(C, C, root_weight=False)),
    _row("CuGraphSAGEConv", "", lambda c: c(C, C)),
    _row("GraphConv", "", lambda c: c(C, C)),
    _row("GraphConv", "edge_weight", lambda c: c(C, C), _WEIGHT),
    _row("GraphConv", "aggr=mean", lambda c: c(C, C, aggr="mean")),
    _row("GraphConv", "aggr=max", lambda c: c(C, C, aggr="max")),
    _row("GravNetConv", "", lambda c: c(C, C, 3, 3, k=2), "batch", makes=True),
    _row("GatedGraphConv", "", lambda c: c(C, 2)),
    _row("ResGatedGraphConv", "", lambda c: c(C, C)),
    _row("ResGatedGraphConv", "edge_dim", lambda c: c(C, C, edge_dim=E), _ATTR),
    _row("ResGatedGraphConv", "act=Tanh", lambda c: c(C, C, act=nn.Tanh())),
    _row("GATConv", "", lambda c: c(C, C)),
    _row("GATConv", "heads=2", lambda c: c(C, C, heads=2)),
    _row("GATConv", "heads=2, concat=False", lambda c: c(C, C, heads=2, concat=False)),
    _row("GATConv", "edge_dim", lambda c: c(C, C, edge_dim=E), _ATTR),
    _row("GATConv", "add_self_loops=False", lambda c: c(C, C, add_self_loops=False)),
    _row("GATConv", "residual", lambda c: c(C, C, residual=True)),
    _row("CuGraphGATConv", "", lambda c: c(C, C)),
    _row("FusedGATConv", "", lambda c: c(C, C, add_self_loops=False)),
    _row("GATv2Conv", "", lambda c: c(C, C)),
    _row("GATv2Conv", "heads=2", lambda c: c(C, C, heads=2)),
    _row("GATv2Conv", "heads=2, concat=False", lambda c: c(C, C, heads=2, concat=False)),
    _row("GATv2Conv", "edge_dim", lambda c: c(C, C, edge_dim=E), _ATTR),
    _row("GATv2Conv", "share_weights", lambda c: c(C, C, share_weights=True)),
    _row("GATv2Conv", "residual", lambda c: c(C, C, residual=True)),
    _row("TransformerConv", "", lambda c: c(C, C)),
    _row("TransformerConv", "heads=2, beta", lambda c: c(C, C, heads=2, beta=True)),
    _row("TransformerConv", "heads=2, concat=False", lambda c: c(C, C, heads=2, concat=False)),
    _row("TransformerConv", "edge_dim", lambda c: c(C, C, edge_dim=E), _ATTR),
    _row("AGNNConv", "", lambda c: c()),
    _row("AGNNConv", "add_self_loops=False", lambda c: c(add_self_loops=False)),
    _row("TAGConv", "", lambda c: c(C, C)),
    _row("TAGConv", "edge_weight", lambda c: c(C, C), _WEIGHT),
    _row("GINConv", "", lambda c: c(mlp(C, C, C))),
    _row("GINConv", "train_eps", lambda c: c(mlp(C, C, C), train_eps=True)),
    _row("GINConv", "BatchNorm", lambda c: c(nn.Sequential(nn.Linear(C, C), nn.BatchNorm1d(C), nn.ReLU()))),
    _row("GINEConv", "", lambda c: c(mlp(C, C, C), edge_dim=E), _ATTR),
    _row("ARMAConv", "", lambda c: c(C, C)),
    _row("ARMAConv", "num_stacks=2, num_layers=2", lambda c: c(C, C, num_stacks=2, num_layers=2)),
    _row("SGConv", "", lambda c: c(C, C)),
    _row("SGConv", "K=3", lambda c: c(C, C, K=3)),
    _row("SGConv", "cached", lambda c: c(C, C, cached=True), family="batch"),
    _row("SSGConv", "", lambda c: c(C, C, alpha=0.1, K=2)),
    _row("APPNP", "", lambda c: c(K=3, alpha=0.1)),
    _row("APPNP", "edge_weight", lambda c: c(K=3, alpha=0.1), _WEIGHT),
    _row("MFConv", "", lambda c: c(C, C)),
    _row("RGCNConv", "", lambda c: c(C, C, 2), _TYPE),
    _row("RGCNConv", "num_bases=2", lambda c: c(C, C, 2, num_bases=2), _TYPE),
    _row("RGCNConv", "num_blocks=2", lambda c: c(C, C, 2, num_blocks=2), _TYPE),
    _row("RGCNConv", "aggr=sum", lambda c: c(C, C, 2, aggr="sum"), _TYPE),
    _row("RGCNConv", "aggr=max", lambda c: c(C, C, 2, aggr="max"), _TYPE),
    _row("FastRGCNConv", "", lambda c: c(C, C, 2), _TYPE),
    _row("FastRGCNConv", "num_bases=2", lambda c: c(C, C, 2, num_bases=2), _TYPE),
    _row("FastRGCNConv", "num_blocks=2", lambda c: c(C, C, 2, num_blocks=2), _TYPE),
    _row("CuGraphRGCNConv", "", lambda c: c(C, C, 2), _TYPE),
    _row("RGATConv", "", lambda c: c(C, C, 2), _TYPE),
    _row("RGATConv", "heads=2, multiplicative", lambda c: c(C, C, 2, heads=2, attention_mode=_PRODUCT), _TYPE),
    _row("RGATConv", "within-relation", lambda c: c(C, C, 2, attention_mechanism="within-relation"), _TYPE),
    *_each("RGATConv", "mod", _MODULATIONS, lambda m, c: c(C, C, 2, mod=m), _TYPE),
    _row("SignedConv", "edges split in the model", lambda c: c(C, C, first_aggr=True), _split),
    _row("DNAConv", "", lambda c: c(C), _layers),
    _row("DNAConv", "heads=2, groups=2", lambda c: c(C, heads=2, groups=2), _layers),
    _row("PointNetConv", "", lambda c: c(mlp(C + 3, C), mlp(C, C)), _POS),
    _row("PointNetConv", "aggr=mean", lambda c: c(mlp(C + 3, C), mlp(C, C), aggr="mean"), _POS),
    _row("GMMConv", "", lambda c: c(C, C, E, 2), _ATTR),
    _row("GMMConv", "separate_gaussians", lambda c: c(C, C, E, 2, separate_gaussians=True), _ATTR),
    _row("SplineConv", "", lambda c: c(C, C, E, 2), _ATTR),
    _row("NNConv", "", lambda c: c(C, C, mlp(E, C, C * C)), _ATTR),
    _row("NNConv", "aggr=max", lambda c: c(C, C, mlp(E, C, C * C), aggr="max"), _ATTR),
    _row("CGConv", "", lambda c: c(C)),
    _row("CGConv", "dim, batch_norm", lambda c: c(C, E, batch_norm=True), _ATTR),
    *_each("EdgeConv", "aggr", ("max", "mean", "sum"), lambda a, c: c(mlp(2 * C, C, C), aggr=a)),
    _row("DynamicEdgeConv", "", lambda c: c(mlp(2 * C, C, C), k=2), "batch", makes=True),
    _row("XConv", "", lambda c: c(C, C, dim=3, kernel_size=2), "pos batch", makes=True),
    _row("PPFConv", "", lambda c: c(mlp(C + 4, C), mlp(C, C)), "pos normal edge_index"),
    _row("FeaStConv", "", lambda c: c(C, C)),
    _row("FeaStConv", "heads=2", lambda c: c(C, C, heads=2)),
    _row("PointTransformerConv", "", lambda c: c(C, C), _POS),
    _row("PointTransformerConv", "MLPs", lambda c: c(C, C, mlp(3, C, C), mlp(C, C, C)), _POS),
    _row("HypergraphConv", "", lambda c: c(C, C), _hyper),
    _row("HypergraphConv", "use_attention", lambda c: c(C, C, use_attention=True), _hyper),
    _row("HypergraphConv", "use_attention, heads=2", lambda c: c(C, C, use_attention=True, heads=2), _hyper),
    _row("HypergraphConv", "attention_mode=edge", lambda c: c(C, C, True, "edge"), _hyper),
    _row("LEConv", "", lambda c: c(C, C)),
    _row("PNAConv", "mean, min, max, std", lambda c: _pna(c, "mean", "min", "max", "std", scalers=_ALL_SCALERS[:3])),
    *_each("PNAConv", "aggregators", _STATISTICS, lambda a, c: _pna(c, a)),
    _row("PNAConv", "mean, all scalers", lambda c: _pna(c, "mean", scalers=_ALL_SCALERS)),
    _row("PNAConv", "mean, edge_dim, towers=2", lambda c: _pna(c, "mean", edge_dim=E, towers=2), _ATTR),
    _row("PNAConv", "mean, pre_layers=2, post_layers=2", lambda c: _pna(c, "mean", pre_layers=2, post_layers=2)),
    _row("ClusterGCNConv", "", lambda c: c(C, C)),
    _row("ClusterGCNConv", "diag_lambda=1", lambda c: c(C, C, diag_lambda=1.0)),
    *_each("GENConv", "aggr", ("softmax", "powermean", "mean", "max", "add"), lambda a, c: c(C, C, aggr=a)),
    _row("GENConv", "edge_dim", lambda c: c(C, C, edge_dim=E), _ATTR),
    _row("GENConv", "aggr=mean, msg_norm", lambda c: c(C, C, aggr="mean", msg_norm=True, learn_msg_scale=True)),
    _row("GENConv", "aggr=mean, norm=layer", lambda c: c(C, C, aggr="mean", norm="layer")),
    _row("GENConv", "learn_t", lambda c: c(C, C, learn_t=True)),
    _row("GENConv", "aggr=powermean, learn_p", lambda c: c(C, C, aggr="powermean", learn_p=True)),
    _row("GCN2Conv", "", lambda c: c(C, alpha=0.1), "x edge_index"),
    _row("GCN2Conv", "theta, layer, own weights", lambda c: c(C, 0.1, 0.5, 2, shared_weights=False), "x edge_index"),
    _row("PANConv", "", lambda c: c(C, C, 2), lambda c, h, g: c(h, g.edge_index)[0]),
    _row("WLConv", "", lambda c: c(), _colours),
    _row("WLConvContinuous", "", lambda c: c()),
    _row("FiLMConv", "", lambda c: c(C, C)),
    _row("FiLMConv", "num_relations=2", lambda c: c(C, C, 2), _TYPE),
    _row("FiLMConv", "act=Tanh", lambda c: c(C, C, act=nn.Tanh())),
    _row("SuperGATConv", "MX", lambda c: c(C, C, heads=2)),
    _row("SuperGATConv", "SD", lambda c: c(C, C, heads=2, attention_type="SD")),
    _row("FAConv", "", lambda c: c(C), "x edge_index"),
    _row("EGConv", "", lambda c: c(C, C)),
    *_each("EGConv", "aggregators", _STATISTICS, lambda a, c: c(C, C, [a])),
    _row("PDNConv", "", lambda c: c(C, C, E, C), _ATTR),
    _row("PDNConv", "normalize=False", lambda c: c(C, C, E, C, normalize=False), _ATTR),
    _row("GeneralConv", "", lambda c: c(C, C)),
    _row("GeneralConv", "in_edge_channels", lambda c: c(C, C, E), _ATTR),
    _row("GeneralConv", "attention, heads=2", lambda c: c(C, C, attention=True, heads=2)),
    _row("GeneralConv", "attention, dot_product", lambda c: c(C, C, attention=True, attention_type="dot_product")),
    _row("GeneralConv", "l2_normalize", lambda c: c(C, C, l2_normalize=True)),
    _row("GeneralConv", "skip_linear, directed_msg=False", lambda c: c(C, C, skip_linear=True, directed_msg=False)),
    _row("HEATConv", "", lambda c: c(C, C, 2, 2, 4, E, 4), _TYPES),
    _row("HEATConv", "heads=2", lambda c: c(C, C, 2, 2, 4, E, 4, heads=2), _TYPES),
    _row("LGConv", "", lambda c: c()),
    _row("LGConv", "normalize=False", lambda c: c(normalize=False)),
    _row("PointGNNConv", "", lambda c: c(mlp(C, 3), mlp(C + 3, C), mlp(C, C)), _POS),
    _row("GPSConv", "", lambda c: c(C, pyg.GCNConv(C, C), heads=2), _BATCH),
    _row("GPSConv", "norm=None", lambda c: c(C, pyg.GCNConv(C, C), heads=2, norm=None), _BATCH),
    _row("GPSConv", "norm=layer_norm", lambda c: c(C, pyg.GCNConv(C, C), heads=2, norm="layer_norm"), _BATCH),
    _row("GPSConv", "attn_type=performer", lambda c: c(C, pyg.GCNConv(C, C), heads=2, attn_type="performer"), _BATCH),
    _row("AntiSymmetricConv", "", lambda c: c(C)),
    _row("AntiSymmetricConv", "num_iters=2, act=relu", lambda c: c(C, num_iters=2, act="relu")),
    _row("DirGNNConv", "GCNConv", lambda c: c(pyg.GCNConv(C, C))),
    _row("DirGNNConv", "SAGEConv", lambda c: c(pyg.SAGEConv(C, C))),
    _row("DirGNNConv", "GATConv", lambda c: c(pyg.GATConv(C, C, add_self_loops=False))),
    _row("MixHopConv", "", lambda c: c(C, C)),
    _row("MixHopConv", "powers=[0, 3], edge_weight", lambda c: c(C, C, [0, 3]), _WEIGHT),
    _row("MeshCNNConv", "", lambda c: c(C, C), _EDGES, "mesh"),
]


def cases() -> Iterator[Case]:
    """Yield the cases of all convolutions, in PyG's order."""
    order = {name: number for number, name in enumerate(pyg.conv.__all__)}
    cases = [*_of_several_edge_sets(), *_ROWS]
    yield from sorted(cases, key=lambda case: order.get(case.name, len(order)))


def _of_several_edge_sets() -> Iterator[Case]:
    conv = pyg.conv

    def signed() -> nn.Module:
        return SignedNetwork(conv.SignedConv(C, C, first_aggr=True), conv.SignedConv(C, C, first_aggr=False))

    yield Case(SECTION, "SignedConv", "two sets of edges", signed, "signed")
    for name, variant, build in (
        ("HeteroConv", "SAGEConv", lambda: conv.HeteroConv({kind: pyg.SAGEConv(C, C) for kind in METADATA[1]})),
        (
            "HeteroConv",
            "GATConv, aggr=max",
            lambda: conv.HeteroConv(
                {kind: pyg.GATConv((C, C), C, add_self_loops=False) for kind in METADATA[1]}, aggr="max"
            ),
        ),
        ("HGTConv", "", lambda: conv.HGTConv(C, C, METADATA, heads=2)),
        ("HANConv", "", lambda: conv.HANConv(C, C, METADATA, heads=2)),
    ):

        def network(build: Callable[[], nn.Module] = build) -> nn.Module:
            return HeteroNetwork(lambda parts, x, edges: parts["conv"](x, edges), conv=build())

        yield Case(SECTION, name, variant, network, "hetero")
