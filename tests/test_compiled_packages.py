"""Operations that packages add to torch: their kernels hide what they compute, so they have a rule or are refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import (
    GNNFF,
    DimeNet,
    DimeNetPlusPlus,
    GCNConv,
    GraphConv,
    MessagePassing,
    SchNet,
    SplineConv,
    ViSNet,
    global_mean_pool,
)

from captum_goat import EdgeMaskedModel, GOAtAttribution, MadeEdges, UnsupportedModelError

LIBRARY = torch.library.Library("hidden_in_scripts", "DEF")
LIBRARY.define("total(Tensor src) -> Tensor")


def _total(src: Tensor) -> Tensor:
    out = torch.empty(1, src.size(1), dtype=src.dtype)
    out.numpy()[:] = src.detach().numpy().sum(axis=0)
    return out


LIBRARY.impl("total", _total, "CompositeImplicitAutograd")


@torch.jit.script
def scripted(src: Tensor) -> Tensor:
    return torch.ops.hidden_in_scripts.total(src)


@torch.jit.script
def scripted_sum(src: Tensor) -> Tensor:
    return src.sum(dim=0, keepdim=True)


class Hidden(nn.Module):
    """Adds up the rows of nodes by a kernel that dispatch modes do not see."""

    def __init__(self, total: Any, of_input: bool) -> None:
        super().__init__()
        self.conv, self.total, self.of_input = GraphConv(3, 3), total, of_input

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        hidden = self.conv(x, edge_index).relu()
        if self.of_input:  # which no edge reaches
            return hidden.sum(dim=0, keepdim=True) + self.total(x)
        return self.total(hidden)


TOTALS = pytest.mark.parametrize("total", [torch.ops.hidden_in_scripts.total, scripted])
GRAPH = torch.tensor([[0, 1, 2, 3, 4, 1, 5], [1, 2, 3, 4, 5, 0, 1]])


def features(channels: int = 3) -> Tensor:
    return torch.randn(6, channels, dtype=torch.double, generator=torch.Generator().manual_seed(0))


def explain(total: Any, of_input: bool) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    goat = GOAtAttribution(Hidden(total, of_input).double().eval())
    return goat.attribute(torch.ones(7).double(), 1, (features(), GRAPH), return_convergence_delta=True)


@TOTALS
def test_an_operation_of_a_package_is_refused_by_name(total: Any) -> None:
    with pytest.raises(UnsupportedModelError, match=r"'hidden_in_scripts\.total' in the model \(Hidden\)"):
        explain(total, of_input=False)


@TOTALS
def test_on_constants_it_is_no_matter(total: Any) -> None:
    attributions, delta = explain(total, of_input=True)
    assert attributions.any()
    assert delta.abs() < 1e-12


def test_scripted_functions_of_torch_are_followed() -> None:
    before = torch.jit.ScriptFunction.__call__
    attributions, delta = explain(scripted_sum, of_input=False)
    assert attributions.any()
    assert delta.abs() < 1e-12
    assert torch.jit.ScriptFunction.__call__ is before or torch.jit.ScriptFunction.__call__ == before


class Pair(MessagePassing):
    """A layer whose messages are two tensors; with ``joined`` they are one."""

    def __init__(self, joined: bool) -> None:
        super().__init__()
        self.lin, self.joined = nn.Linear(6, 6), joined

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return torch.cat(self.propagate(edge_index, x=x), dim=1)

    def message(self, x_i: Tensor, x_j: Tensor) -> Any:
        messages = self.lin(torch.cat([x_i, x_j], dim=1)).relu()
        return messages if self.joined else (messages[:, :4], messages[:, 4:])

    def aggregate(self, inputs: Any, index: Tensor, dim_size: int) -> tuple[Tensor, ...]:
        parts = inputs.split([4, 2], dim=1) if self.joined else inputs
        return tuple(part.new_zeros(dim_size, part.size(1)).index_add(0, index, part) for part in parts)


def test_messages_of_two_tensors() -> None:
    torch.manual_seed(0)
    models = [nn.ModuleList([GCNConv(3, 3), Pair(joined)]).double().eval() for joined in (False, True)]
    models[1].load_state_dict(models[0].state_dict())

    class Two(nn.Module):
        def __init__(self, layers: nn.ModuleList) -> None:
            super().__init__()
            self.layers = layers

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.layers[1](self.layers[0](x, edge_index).relu(), edge_index)

    results = []
    for at in ("message", "adjacency"):
        for layers in models:
            goat = GOAtAttribution(Two(layers).eval(), at=at)
            results.append(goat.attribute(torch.ones(7).double(), (1, 5), (features(), GRAPH)))
        torch.testing.assert_close(results[-2], results[-1], rtol=0, atol=1e-14)
        assert results[-1].any()


# With the packages themselves, where they are installed: `make test-compiled`.


@pytest.fixture
def _double() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.mark.usefixtures("_double")
@pytest.mark.filterwarnings("ignore:We do not recommend using the non-optimized CPU version")
def test_splines() -> None:
    splines = pytest.importorskip("torch_spline_conv")

    class Plain(SplineConv):  # type: ignore[misc]
        def message(self, x_j: Tensor, edge_attr: Tensor) -> Tensor:
            basis, index = splines.spline_basis(edge_attr, self.kernel_size, self.is_open_spline, self.degree)
            return torch.einsum("ei,es,esio->eo", x_j, basis, self.weight[index])

    class Net(nn.Module):
        def __init__(self, layer: Any) -> None:
            super().__init__()
            self.first, self.second, self.third = GCNConv(3, 4), layer(4, 4, dim=2, kernel_size=3), layer(4, 2, 2, 3)

        def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
            x = self.second(self.first(x, edge_index).relu(), edge_index, edge_attr).relu()
            return self.third(x, edge_index, edge_attr).mean(dim=0, keepdim=True)

    torch.manual_seed(0)
    model, plain = Net(SplineConv).eval(), Net(Plain).eval()
    plain.load_state_dict(model.state_dict())
    arguments = features(), GRAPH, torch.rand(7, 2)
    attributions, delta = GOAtAttribution(model).attribute(torch.ones(7), 1, arguments, return_convergence_delta=True)
    assert delta.abs() < 1e-12
    expected = GOAtAttribution(plain).attribute(torch.ones(7), 1, arguments)
    torch.testing.assert_close(attributions, expected, rtol=0, atol=1e-14)
    with pytest.raises(UnsupportedModelError, match="spline_basis"):
        GOAtAttribution(model, mask_type="edge_attr").attribute(arguments[2], 1, arguments[:2])


class Sampled(nn.Module):
    """PointNet++: messages from all points to some of them."""

    def __init__(self) -> None:
        super().__init__()
        from torch_geometric.nn import PointNetConv

        local = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 4))
        self.conv, self.head = PointNetConv(local, add_self_loops=False), nn.Linear(4, 2)

    def forward(self, pos: Tensor, batch: Tensor) -> Tensor:
        from torch_cluster import radius

        chosen = torch.arange(0, len(pos), 2)
        row, col = radius(pos, pos[chosen], 2.0, batch, batch[chosen])
        x = self.conv((pos, None), (pos, pos[chosen]), torch.stack([col, row])).relu()
        return self.head(global_mean_pool(x, batch[chosen]))


class Clustered(nn.Module):
    def __init__(self, make: str, **options: Any) -> None:
        super().__init__()
        self.first, self.second, self.make, self.options = GCNConv(3, 4), GCNConv(4, 2), make, options

    def forward(self, pos: Tensor, batch: Tensor) -> Tensor:
        import torch_cluster

        size = 2 if self.make == "knn_graph" else 1.5
        edge_index = getattr(torch_cluster, self.make)(pos, size, batch, **self.options)
        return global_mean_pool(self.second(self.first(pos, edge_index).relu(), edge_index), batch)


class Dynamic(nn.Module):
    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, pos: Tensor, batch: Tensor) -> Tensor:
        for layer in self.layers:
            pos = layer(pos, batch).relu()
        return global_mean_pool(pos, batch)


def _layers(name: str) -> Dynamic:
    import torch_geometric.nn as pyg

    if name == "GravNetConv":
        return Dynamic(pyg.GravNetConv(3, 4, 2, 4, 3), pyg.GravNetConv(4, 2, 2, 4, 3))
    perceptrons = [nn.Sequential(nn.Linear(size, 4), nn.ReLU(), nn.Linear(4, 4)) for size in (6, 8)]
    return Dynamic(*(pyg.DynamicEdgeConv(perceptron, 3) for perceptron in perceptrons))


@pytest.mark.usefixtures("_double")
@pytest.mark.parametrize(
    "build",
    [
        Sampled,
        lambda: Clustered("knn_graph"),
        lambda: Clustered("knn_graph", loop=True, flow="target_to_source"),
        lambda: Clustered("radius_graph", loop=True),
        lambda: _layers("DynamicEdgeConv"),
        lambda: _layers("GravNetConv"),
        lambda: SchNet(4, 4, 2, 6, cutoff=2.0),
        lambda: ViSNet(hidden_channels=8, num_layers=2, num_heads=2, num_rbf=4, cutoff=2.0),
    ],
)
def test_edges_that_torch_cluster_makes(build: Any) -> None:
    pytest.importorskip("torch_cluster")
    torch.manual_seed(0)
    try:
        model = build().eval()
    except ImportError:
        pytest.skip("this PyG takes the kernels of pyg-lib")
    z, pos, batch = torch.arange(10) % 4, torch.randn(10, 3), torch.tensor([0] * 6 + [1] * 4)
    is_molecule = isinstance(model, SchNet | ViSNet)
    batch = torch.zeros_like(batch) if isinstance(model, ViSNet) else batch  # it adds 0 times a sum over all graphs
    arguments, output = ((z, pos) if is_molecule else (pos,)), 0 if isinstance(model, ViSNet) else None
    made = MadeEdges(model, num_sets=len(getattr(model, "layers", [None])))
    try:
        edges = made.edges(*arguments, batch)
    except ImportError:
        pytest.skip("this PyG takes the kernels of pyg-lib")
    optional = isinstance(model, SchNet)
    given = (*arguments, *edges, batch) if optional else (*arguments, batch, *edges)
    masks, own = tuple(torch.ones(part.size(1)) for part in edges), model(*arguments, batch)
    masked = EdgeMaskedModel(made, output=output)
    own = own[0] if isinstance(own, tuple) else own
    assert torch.equal(masked(*masks, *given), own)
    attributions = GOAtAttribution(made, output=output).attribute(masks if len(masks) > 1 else masks[0], 0, given)
    difference = own - masked(*(0 * mask for mask in masks), *given)
    total = sum(part.sum() for part in (attributions if len(masks) > 1 else [attributions]))
    torch.testing.assert_close(total, difference[:, 0].sum(), rtol=0, atol=1e-12)
    assert difference.abs().max() > 1e-6


@pytest.mark.usefixtures("_double")
@pytest.mark.parametrize(
    "build",
    [
        lambda: DimeNet(4, 3, 2, 2, 3, 2, cutoff=2.5),
        lambda: DimeNetPlusPlus(4, 3, 2, 4, 4, 4, 3, 2, cutoff=2.5),
        lambda: GNNFF(4, 4, 2, cutoff=2.5),
    ],
)
def test_pairs_of_edges(build: Any) -> None:
    """An edge with mask 0 is an edge that is not there."""
    pytest.importorskip("torch_cluster")
    pytest.importorskip("torch_sparse")
    pytest.importorskip("sympy")
    torch.manual_seed(0)
    model = build().eval()
    with torch.no_grad():
        for parameter in model.parameters():  # some are zeros
            parameter.copy_(0.5 * torch.randn_like(parameter))
    z, pos, batch = torch.arange(10) % 4, torch.randn(10, 3), torch.tensor([0] * 6 + [1] * 4)
    made = MadeEdges(model)
    try:
        (edge_index,) = made.edges(z, pos, batch)
    except ImportError:
        pytest.skip("this PyG takes the kernels of pyg-lib")
    arguments, ones = (z, pos, edge_index, batch), torch.ones(edge_index.size(1))
    masked = EdgeMaskedModel(made)
    assert torch.equal(masked(ones, *arguments), model(z, pos, batch))
    for _ in range(3):
        mask = (torch.rand_like(ones) < 0.8).double()
        without = made(z, pos, edge_index[:, mask.bool()], batch)
        torch.testing.assert_close(masked(mask, *arguments)[: len(without)], without, rtol=0, atol=1e-12)
    attributions = GOAtAttribution(made).attribute(ones, (0, 0), arguments)
    difference = masked(ones, *arguments) - masked(0 * ones, *arguments)
    torch.testing.assert_close(attributions.sum(), difference[0, 0], rtol=0, atol=1e-12)
    assert not attributions[batch[edge_index[0]] == 1].any()
    assert difference[0, 0].abs() > 1e-6
