"""Operations that packages add to torch: their kernels hide what they compute, so they are refused by name."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import GraphConv

from captum_goat import GOAtAttribution, UnsupportedModelError

LIBRARY = torch.library.Library("hidden_kernels", "DEF")
LIBRARY.define("total(Tensor src) -> Tensor")


def _total(src: Tensor) -> Tensor:
    out = torch.empty(1, src.size(1), dtype=src.dtype)
    out.numpy()[:] = src.detach().numpy().sum(axis=0)
    return out


LIBRARY.impl("total", _total, "CompositeImplicitAutograd")


class Hidden(nn.Module):
    """Adds up the rows of nodes by a kernel that dispatch modes do not see."""

    def __init__(self, of_input: bool) -> None:
        super().__init__()
        self.conv, self.of_input = GraphConv(3, 3), of_input

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        hidden = self.conv(x, edge_index).relu()
        if self.of_input:  # which no edge reaches
            return hidden.sum(dim=0, keepdim=True) + torch.ops.hidden_kernels.total(x)
        return torch.ops.hidden_kernels.total(hidden)


def explain(of_input: bool) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    graph = torch.randn(4, 3, dtype=torch.double), torch.tensor([[0, 1, 2], [1, 2, 3]])
    goat = GOAtAttribution(Hidden(of_input).double().eval())
    return goat.attribute(torch.ones(3).double(), 1, graph, return_convergence_delta=True)


def test_an_operation_of_a_package_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedModelError, match=r"'hidden_kernels\.total' in the model \(Hidden\)"):
        explain(of_input=False)


def test_on_constants_it_is_no_matter() -> None:
    attributions, delta = explain(of_input=True)
    assert attributions.any()
    assert delta.abs() < 1e-12
