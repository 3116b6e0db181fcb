"""Sparse tensors of torch-sparse, and kernels of packages over edges: exact or refused by name, never constants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, GraphConv, SAGEConv

from captum_goat import EdgeMaskedModel, GOAtAttribution, UnsupportedModelError


def _ring() -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(6, 3, dtype=torch.double), torch.stack([torch.arange(6), (torch.arange(6) + 1) % 6]).flip(1)


def _adjacency(edge_index: Tensor) -> Any:
    return pytest.importorskip("torch_sparse").SparseTensor(
        row=edge_index[1], col=edge_index[0], sparse_sizes=(6, 6), trust_data=True
    )


class Layers(nn.Module):
    """Two layers that take whatever PyG's layers take."""

    def __init__(self, conv: Callable[[int, int], nn.Module] = GraphConv) -> None:
        super().__init__()
        self.first, self.second = conv(3, 3), conv(3, 2)

    def forward(self, x: Tensor, adj_t: Any) -> Tensor:
        return self.second(self.first(x, adj_t).relu(), adj_t)


class InContainer(Layers):
    """The matrix beside edges, in a list or in a graph."""

    def forward(self, x: Tensor, edge_index: Tensor, others: Any) -> Tensor:
        matrix = others.adj_t if isinstance(others, Data) else others[0]
        return super().forward(matrix @ x, edge_index)


@pytest.mark.filterwarnings("ignore:.*[Ss]parse")  # torch and PyG have advice on sparse matrices
@pytest.mark.parametrize("conv", [GraphConv, GCNConv, SAGEConv])
def test_a_sparse_tensor_is_refused_with_what_to_do_which_is_exact(conv: Callable[[int, int], nn.Module]) -> None:
    x, edge_index = _ring()
    matrix, model, mask = _adjacency(edge_index), Layers(conv).double().eval(), torch.rand(6).double()
    for run in (
        lambda: GOAtAttribution(model).attribute(mask, (3, 1), (x, matrix)),
        lambda: GOAtAttribution(model).attribute(mask, (3, 1), Data(x=x, adj_t=matrix)),
        lambda: EdgeMaskedModel(model)(mask, x, matrix),
    ):
        with pytest.raises(ValueError, match="SparseTensor by its method to_torch_sparse_csr_tensor"):
            run()
    row, col, _ = matrix.coo()
    expected = GOAtAttribution(model).attribute(mask, (3, 1), (x, torch.stack([col, row])))
    found = GOAtAttribution(model).attribute(mask, (3, 1), (x, matrix.to_torch_sparse_csr_tensor(dtype=torch.double)))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("inside", [lambda matrix: [matrix], lambda matrix: Data(adj_t=matrix)])
def test_a_sparse_tensor_beside_the_edges_is_no_constant(inside: Callable[[Any], Any]) -> None:
    x, edge_index = _ring()
    arguments, model = (x, edge_index, inside(_adjacency(edge_index))), InContainer().double().eval()
    with pytest.raises(ValueError, match="SparseTensor by its method"):
        GOAtAttribution(model).attribute(torch.ones(6).double(), (3, 1), arguments)
    with pytest.raises(ValueError, match="SparseTensor by its method"):
        EdgeMaskedModel(model)(torch.ones(6).double(), *arguments)


def _largest(values: Tensor, index: Tensor) -> Tensor:
    return pytest.importorskip("torch_scatter").scatter_max(values, index, 0, dim_size=6)[0]


def _total(values: Tensor, index: Tensor) -> Tensor:
    return pytest.importorskip("torch_scatter").scatter(values, index, 0, dim_size=6, reduce="sum")


# What a model does with values of nodes and edges: the kernels of packages, and the same by torch.
KERNELS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "matrix product": lambda x, edge_index: _adjacency(edge_index) @ x,
    "largest": lambda x, edge_index: _largest(x[edge_index[0]], edge_index[1]),
    "the package's rows": lambda x, edge_index: torch.zeros_like(x).index_add(
        0, _adjacency(edge_index).storage.row(), x[_adjacency(edge_index).storage.col().flip(0)]
    ),
}


class ByKernel(nn.Module):
    """Passes messages by a kernel, before or after a layer."""

    def __init__(self, name: str, first: bool) -> None:
        super().__init__()
        self.conv, self.name, self.first = GraphConv(3, 3), name, first

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = x if self.first else self.conv(x, edge_index).relu()
        x = KERNELS[self.name](x, edge_index)
        return self.conv(x, edge_index) if self.first else x


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("name", KERNELS)
def test_messages_that_kernels_pass_are_refused(name: str, first: bool) -> None:
    (x, edge_index), model = _ring(), ByKernel(name, first).double().eval()
    with pytest.raises(UnsupportedModelError, match=r"torch_sparse|torch_scatter|by hand"):
        GOAtAttribution(model).attribute(torch.ones(6).double(), (3, 1), (x, edge_index))
    with pytest.raises(UnsupportedModelError, match=r"torch_sparse|torch_scatter|by hand"):
        EdgeMaskedModel(model)(torch.ones(6).double(), x, edge_index)


class BySums(nn.Module):
    """Sums of a package that are written in torch, and degrees of a matrix."""

    def __init__(self, own: bool) -> None:
        super().__init__()
        self.lin, self.own = nn.Linear(3, 3), own

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        source, target = edge_index
        if self.own:
            degrees = _adjacency(edge_index).sum(dim=1).to(x.dtype)
            sums = _total(self.lin(x)[source], target)
        else:
            degrees = torch.zeros(6).double().index_add(0, target, torch.ones(6).double())
            sums = torch.zeros_like(x).index_add(0, target, self.lin(x)[source])
        return (sums / degrees.clamp(min=1).unsqueeze(1)).relu()


def test_sums_of_packages_are_those_of_torch() -> None:
    x, edge_index = _ring()
    by_package, by_torch = BySums(True).double().eval(), BySums(False).double().eval()
    by_torch.load_state_dict(by_package.state_dict())
    mask = torch.rand(6).double()
    found, expected = (
        GOAtAttribution(model).attribute(mask, (3, 1), (x, edge_index)) for model in (by_package, by_torch)
    )
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
