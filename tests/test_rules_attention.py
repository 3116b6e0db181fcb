"""Rules for attention: its coefficients are frozen, in softmax, transformers and GAT."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import randomize
from rule_models import BATCH, EDGES, MASK, Model, Transformer, X, check_complete, check_complete_alone
from torch import Tensor, nn
from torch_geometric.nn import GATConv, global_max_pool
from torch_geometric.utils import softmax

from captum_goat.method.record import record
from captum_goat.method.replay import Subject

ATTENTION: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax over channels": lambda x: x * x.softmax(-1),
    "F.softmax": lambda x: x * F.softmax(x, dim=-1),
    "softmin": lambda x: x * F.softmin(x, dim=-1),
    "sparse softmax": lambda x: x * softmax(x.sum(-1, keepdim=True), BATCH),
    "attention from broken values": lambda x: x * F.softmax(x.exp().log1p(), dim=-1),
}


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_coefficients(name: str) -> None:
    check_complete(randomize(Model(torch.relu, ATTENTION[name]).double(), seed=1))
    check_complete(randomize(Model(ATTENTION[name], torch.relu).double(), seed=1))


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("options", [{}, {"bias": False}, {"kdim": 6, "vdim": 6}, {"add_bias_kv": True}], ids=str)
def test_multihead_attention(need_weights: bool, options: dict[str, Any]) -> None:
    for between, after in ((torch.relu, Transformer(**options)), (Transformer(**options), torch.relu)):
        model = Model(between, after)
        for module in (model.between, model.after):
            if isinstance(module, Transformer):
                module.need_weights = need_weights
        check_complete(randomize(model.double(), seed=1))


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.3}], ids=str)
def test_scaled_dot_product_attention_is_that_of_torch(options: dict[str, Any]) -> None:
    def attend(x: Tensor) -> Tensor:
        heads = x.view(1, 9, 2, 3).transpose(1, 2)
        return F.scaled_dot_product_attention(heads, heads, heads, **options).transpose(1, 2).reshape(9, 6)

    check_complete_alone(randomize(Model(attend).double(), seed=1))
    check_complete_alone(randomize(Model(torch.relu, attend).double(), seed=1))


def test_a_transformer_encoder_layer() -> None:
    layer = nn.TransformerEncoderLayer(6, 2, 8, batch_first=True, norm_first=True)

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x.unsqueeze(0)).squeeze(0)

    check_complete_alone(randomize(Model(torch.relu, Encoder()).double(), seed=1))


class GATs(nn.Module):
    """Attention without any ReLU: some products have coefficients of attention and no variable."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.convs = nn.ModuleList([GATConv(4, 6, **options), GATConv(6, 6, **options), GATConv(6, 3, **options)])

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        skip = self.convs[0].lin(x)
        for conv in self.convs[:2]:
            x = conv(x, edge_index)
        return global_max_pool(self.convs[2](x + skip, edge_index), batch)


def test_products_of_frozen_factors_alone() -> None:
    model = randomize(GATs().double(), seed=1)
    pattern = record(Subject(model, lambda _: model(X, EDGES, BATCH), (), (EDGES,), torch.ones_like(MASK)))
    assert pattern.rows is not None
    assert pattern.rows.frozen > 0
    check_complete(model)
