"""The basic models of PyTorch Geometric with every jumping knowledge, norm and activation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch_geometric.nn.models as pyg
from torch import Tensor, nn
from torch_geometric.nn import GraphSizeNorm, MeanSubtractionNorm, MessageNorm

from benchmarks.compat.check import Case
from benchmarks.compat.graphs import CHANNELS as C
from benchmarks.compat.graphs import Graph
from benchmarks.compat.models import PNA
from benchmarks.compat.networks import Network

JUMPS, NORMS, ACTS = "Basic models: jumping knowledge", "Basic models: norm", "Basic models: activation"
SECTIONS = (JUMPS, NORMS, ACTS)
_MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "GCN": ("GCN", {}),
    "GraphSAGE": ("GraphSAGE", {}),
    "GIN": ("GIN", {}),
    "GAT": ("GAT", {"heads": 2}),
    "GATv2": ("GAT", {"heads": 2, "v2": True}),
    "PNA": ("PNA", PNA),
    "EdgeCNN": ("EdgeCNN", {}),
}
# Those without channels cannot be given by name.
_NORMS: dict[str, dict[str, Any]] = {
    "batch_norm": {},
    "layer_norm": {},
    "graph_norm": {},
    "graph_size_norm": {"norm": GraphSizeNorm()},
    "instance_norm": {},
    "pair_norm": {},
    "mean_subtraction_norm": {"norm": MeanSubtractionNorm()},
    "diff_group_norm": {"norm_kwargs": {"groups": 2}},
    "message_norm": {"norm": MessageNorm()},
    "hetero_batch_norm": {"norm_kwargs": {"num_types": 2}},
    "hetero_layer_norm": {"norm_kwargs": {"num_types": 2}},
}


def cases() -> Iterator[Case]:
    """Yield the cases: every model with every option."""
    for jump in (None, "last", "cat", "max", "lstm"):
        yield from _with_all(JUMPS, f"jk={jump}", jk=jump)
    for norm, options in _NORMS.items():
        yield from _with_all(NORMS, f"norm={norm}", **{"norm": norm, **options})
    for act in ("relu", "leaky_relu", "elu", "gelu", "silu", "tanh", "sigmoid"):
        yield from _with_all(ACTS, f"act={act}", act=act)


def _with_all(section: str, variant: str, **options: Any) -> Iterator[Case]:
    for name, (kind, own) in _MODELS.items():

        def network(kind: str = kind, own: dict[str, Any] = own) -> nn.Module:
            return Network(_steps, model=getattr(pyg, kind)(C, C, 2, **own, **options))

        # These have MLPs whose norms see all nodes of a batch as one graph.
        mixes = section == NORMS and name in ("GIN", "EdgeCNN")
        yield Case(section, name, variant, network, "loops" if mixes else "batch")


def _steps(network: Any, graph: Graph) -> Tensor:
    hidden = network.model(graph.x, graph.edge_index, batch=graph.batch)
    return network.pooled(hidden, graph)  # type: ignore[no-any-return]
