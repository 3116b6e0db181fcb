"""A model, graphs and PyG's Explainer around GOAtExplainer, in all settings."""

from __future__ import annotations

from typing import Any

import torch
from conftest import random_edges, randomize
from torch import Tensor, nn
from torch_geometric.explain import Explainer
from torch_geometric.nn import GCNConv, global_add_pool

from captum_goat import GOAtExplainer

MULTICLASS, BINARY = "multiclass_classification", "binary_classification"
LEVELS = ("graph", "node", "edge")
RETURN_TYPES = {MULTICLASS: ("raw", "probs", "log_probs"), BINARY: ("raw", "probs"), "regression": ("raw",)}
SETTINGS = [(mode, return_type) for mode, return_types in RETURN_TYPES.items() for return_type in return_types]
NODE_MASK_TYPES = ("object", "attributes", "common_attributes")


class GCN(nn.Module):
    """Two layers, one row per graph, node or link, and the return type's last operation."""

    def __init__(self, mode: str = MULTICLASS, level: str = "node", return_type: str = "raw") -> None:
        super().__init__()
        self.mode, self.level, self.return_type = mode, level, return_type
        self.conv1, self.conv2 = GCNConv(3, 6), GCNConv(6, {MULTICLASS: 4, BINARY: 1, "regression": 2}[mode])
        randomize(self.double(), seed=3)

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_weight: Any = None, batch: Any = None, edge_label_index: Any = None
    ) -> Tensor:
        x = self.conv2(self.conv1(x, edge_index, edge_weight).relu(), edge_index, edge_weight)
        if self.level == "graph":
            x = global_add_pool(x, batch)
        elif self.level == "edge":
            x = x[edge_label_index[0]] + 2 * x[edge_label_index[1]]
        if self.return_type == "log_probs":
            return x.log_softmax(dim=-1)
        if self.return_type == "probs":
            return x.softmax(dim=-1) if self.mode == MULTICLASS else x.sigmoid()
        return x


X = torch.randn(15, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
EDGE_INDEX = torch.cat([random_edges(5, 9, seed=1, first=first) for first in (0, 5, 10)], dim=1)
LINKS, BATCH = torch.tensor([[0, 1, 7], [2, 3, 11]]), torch.arange(3).repeat_interleave(5)
KWARGS = {"edge_label_index": LINKS, "batch": BATCH}  # not in the order of GCN.forward, and without edge_weight


def make(
    mode: str = MULTICLASS, level: str = "node", return_type: str = "raw", field: Any = "distinct", **options: Any
) -> Explainer:
    masks = {"edge_mask_type": "object"} if "node_mask_type" not in options else {}
    return Explainer(
        options.pop("model", None) or GCN(mode, level, return_type),
        algorithm=GOAtExplainer(field, **{name: options.pop(name) for name in ("at", "gates") if name in options}),
        model_config={"mode": mode, "task_level": level, "return_type": return_type},
        **{"explanation_type": "model", **masks, **options},
    )


def assert_same(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)
