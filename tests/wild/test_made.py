"""Edges that a model makes itself are explained as the same edges of a model that is given them."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch_geometric.typing
from captum.attr import IntegratedGradients
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import (
    DynamicEdgeConv,
    GCNConv,
    GraphConv,
    GravNetConv,
    SchNet,
    global_add_pool,
    global_mean_pool,
    knn_graph,
    radius_graph,
)

from captum_goat import EdgeMaskedModel, GOAtAttribution, MadeEdges, UnsupportedModelError, check, explain_dataset
from tests.wild import made as models
from tests.wild.cases import CHANNELS as C
from tests.wild.cases import CLASSES, mlp, randomized
from tests.wild.made import (
    Bonds,
    Directional,
    FromData,
    GivenMolecule,
    GivenPoints,
    Molecule,
    Points,
    cloud,
    near,
    pairs,
    within,
)

NEAR = 1e-9


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def assert_exact(
    made: MadeEdges, own: Any, arguments: tuple[Any, ...], masks: tuple[Tensor, ...], **options: Any
) -> Any:
    """Assert that masks of ones leave the model as it is, and that the attributions add up; return them."""
    inputs, masked = masks if len(masks) > 1 else masks[0], EdgeMaskedModel(made, **options)
    ones, zeros = masked(*masks, *arguments), masked(*(0 * mask for mask in masks), *arguments)
    assert torch.equal(ones, own)
    attributions, delta = GOAtAttribution(made, **options).attribute(
        inputs, 0, arguments, return_convergence_delta=True
    )
    total = sum(part.sum() for part in (attributions if len(masks) > 1 else [attributions]))
    assert delta.abs().max() < NEAR
    assert (ones - zeros).abs().max() > 1e-6
    torch.testing.assert_close(total, (ones - zeros)[:, 0].sum(), rtol=0, atol=NEAR)
    return attributions


def test_two_sets_of_edges_are_those_of_a_model_that_is_given_them() -> None:
    data, model = cloud(), randomized(Points())
    made = MadeEdges(model, num_sets=2, makers=[near])
    edges = made.edges(data.pos, data.batch)
    assert torch.equal(edges[0], near(data.pos, data.batch))
    masks, arguments = tuple(torch.ones(part.size(1)) for part in edges), (data.pos, data.batch, *edges)
    attributions = assert_exact(made, model(data.pos, data.batch), arguments, masks)
    expected = GOAtAttribution(GivenPoints(model).eval()).attribute(masks, 0, arguments)
    assert all(torch.equal(*pair) for pair in zip(attributions, expected, strict=True))
    halves = tuple(mask / 2 for mask in masks)
    assert torch.equal(
        EdgeMaskedModel(made)(*halves, *arguments), EdgeMaskedModel(GivenPoints(model))(*halves, *arguments)
    )
    by_name = GOAtAttribution(made).attribute(dict(zip(made.names, masks, strict=True)), 0, arguments)
    assert torch.equal(by_name["edge_index_2"], attributions[1])


@pytest.mark.parametrize(
    ("maker", "at"), [("function", "message"), ("function", "adjacency"), ("module", "message"), ("method", "message")]
)
def test_edges_with_lengths(maker: str, at: Any) -> None:
    data, model = cloud(), randomized(Molecule())
    made = MadeEdges(model, makers=[{"function": within, "module": model.graph, "method": model.graph.forward}[maker]])
    assert str(inspect.signature(made)).startswith("(z: 'Tensor', pos: 'Tensor', edge_index, batch")
    (edge_index,) = made.edges(data)
    arguments, mask = (data.z, data.pos, edge_index, data.batch), torch.ones(edge_index.size(1))
    attributions = assert_exact(made, model(data.z, data.pos, data.batch), arguments, (mask,), at=at)
    given = GivenMolecule(model).eval()
    torch.testing.assert_close(
        attributions, GOAtAttribution(given, at=at).attribute(mask, 0, arguments), rtol=0, atol=1e-12
    )


def test_what_else_takes_models() -> None:
    """Batches of masks, a graph explained later, integrated gradients, datasets and checks."""
    data, model = cloud(), randomized(Molecule())
    made = MadeEdges(model, makers=[within])
    (data.edge_index,) = made.edges(data)
    goat, mask = GOAtAttribution(made), torch.ones(data.num_edges)
    expected = GOAtAttribution(GivenMolecule(model).eval()).attribute(mask, 1, data)
    assert torch.equal(goat.attribute(mask, 1, data), expected)
    alone = Data(z=data.z[:7], pos=data.pos[:7], edge_index=data.edge_index[:, data.edge_index[0] < 7])
    several = goat.attribute(torch.ones(3, alone.num_edges), [0, 1, 0], alone)
    torch.testing.assert_close(several[1], expected[data.edge_index[0] < 7], rtol=0, atol=1e-12)
    later = cloud(seed=1, first=4)
    (later.edge_index,) = made.edges(later)
    attributions = goat.attribute(torch.ones(later.num_edges), 1, later)  # by the program of the first graph
    torch.testing.assert_close(attributions, GOAtAttribution(made).attribute(torch.ones(later.num_edges), 1, later))
    gradients = IntegratedGradients(EdgeMaskedModel(made, data=alone)).attribute(
        torch.ones(1, alone.num_edges), target=0, n_steps=200
    )
    difference = made(alone.z, alone.pos, alone.edge_index) - model(alone.z, 1e3 * alone.pos)
    torch.testing.assert_close(gradients.sum(), difference[0, 0], rtol=0, atol=1e-2)
    assert check(made, alone).is_exact
    graphs = [Data(z=alone.z, pos=alone.pos, edge_index=alone.edge_index)] * 2
    assert len(explain_dataset(made, graphs, target=0)) == 2


def test_node_features() -> None:
    data, model = cloud(), randomized(Points())
    made = MadeEdges(model, num_sets=2, makers=[near])
    arguments = (data.batch, *made.edges(data))
    _, delta = GOAtAttribution(made, mask_type="node").attribute(data.pos, 0, arguments, return_convergence_delta=True)
    assert delta.abs().max() < NEAR


def test_a_model_with_edges_of_its_own() -> None:
    data, model = cloud(), randomized(Bonds())
    bonds = near(data.x, data.batch, k=1)
    made = MadeEdges(model, makers=[model.connect])
    own = (data.x, bonds, data.pos, data.batch)
    edges = made.edges(*own)
    assert made.names == ["edge_index_1"]
    assert_exact(made, model(*own), (*own, *edges), (torch.ones(bonds.size(1)), torch.ones(edges[0].size(1))))
    assert "connect" not in vars(model)


@pytest.mark.parametrize("loops", [False, True])
def test_a_model_that_takes_a_graph(loops: bool) -> None:
    data, model = Batch.from_data_list([cloud(), cloud(1)]), randomized(FromData())
    made = MadeEdges(model, makers=[near])
    edges = made.edges(data)
    data.edge_index = torch.cat([*edges, torch.tensor([[0, 1], [0, 1]])], dim=1) if loops else edges[0]
    expected = made(data) if loops else model(data)
    assert_exact(made, expected, (data,), (torch.ones(data.num_edges),))
    data.edge_index = torch.tensor([[0, 5, 6], [6, 0, 1]])
    with pytest.raises(UnsupportedModelError, match="returns something else"):
        MadeEdges(randomized(FromData(bonds=True)), makers=[near]).edges(data)


def test_messages_from_edges_to_edges() -> None:
    data, model = cloud(), randomized(Directional())
    made = MadeEdges(model, makers=[pairs])
    (edge_index,) = made.edges(data)
    arguments, mask = (data.z, data.pos, data.batch, edge_index), torch.rand(edge_index.size(1))
    masked, parts = EdgeMaskedModel(made), pairs(data.pos, data.batch)
    torch.testing.assert_close(
        masked(mask, *arguments), model.masked(data.z, data.pos, data.batch, parts, mask), rtol=0, atol=1e-12
    )
    attributions = assert_exact(made, model(*arguments[:3]), arguments, (torch.ones_like(mask),))
    assert attributions.all()
    gradients = [
        torch.autograd.grad(run(mask.requires_grad_()).sum(), mask)[0]
        for run in (lambda m: masked(m, *arguments), lambda m: model.masked(*arguments[:3], parts, m))
    ]
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-12)
    turned = randomized(Directional(reversed=True))  # which are no messages along edges
    with pytest.raises(UnsupportedModelError, match="by hand"):
        GOAtAttribution(MadeEdges(turned, makers=[pairs])).attribute(torch.ones_like(mask), 0, arguments)


def test_copies_and_pickles() -> None:
    data, model = cloud(), randomized(Molecule())
    made = MadeEdges(model, makers=[model.graph])
    edges = made.edges(data)
    for copied in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert copied.model is not model
        assert torch.equal(copied(data.z, data.pos, *edges, data.batch), model(data.z, data.pos, data.batch))
        assert torch.equal(copied.edges(data)[0], edges[0])


def test_nothing_is_left() -> None:
    data, before = cloud(), models.near
    made = MadeEdges(randomized(Points()), num_sets=2, makers=[near])
    edges = made.edges(data.pos, data.batch)
    with pytest.raises(ValueError, match="infinite or nan"):
        GOAtAttribution(made).attribute(
            tuple(torch.ones(e.size(1)) for e in edges), 0, (data.pos / 0, data.batch, *edges)
        )
    with pytest.raises(RuntimeError):
        made(data.pos[:, :2], data.batch, *edges)
    assert models.near is before


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda model, _: MadeEdges(near), "Expected a model"),
        (lambda model, _: MadeEdges(model, num_sets=0), "at least 1"),
        (lambda model, data: MadeEdges(model).edges(data), r"Points called none of them.*makers="),
        (lambda model, data: MadeEdges(model, makers=[near]).edges(data), "made some 2 time"),
        (lambda model, data: MadeEdges(model, makers=[near])(data.pos, data.batch, data.z.expand(2, -1)), "2 time"),
        (lambda model, data: MadeEdges(model, makers=[lambda x: x]).edges(data), "which no module has"),
        (lambda model, data: MadeEdges(model, makers=[global_mean_pool]).edges(data), "'global_mean_pool' to return"),
        (lambda model, data: check(model, data), r"with edge_index \(got one without\).*MadeEdges"),
        (
            lambda model, data: GOAtAttribution(model).attribute(torch.ones(9), 0, (data.pos, data.batch)),
            r"wrap it: captum_goat\.MadeEdges\(model\)",
        ),
    ],
)  # fmt: skip
def test_refusals_say_what_to_do(act: Any, message: str) -> None:
    with pytest.raises((UnsupportedModelError, ValueError, TypeError), match=message):
        act(randomized(Points()), cloud())


def test_made_edges_beside_given_ones_are_refused_without_the_wrapper() -> None:
    data = cloud()
    bonds = near(data.x, data.batch)
    with pytest.raises(UnsupportedModelError, match=r"'contacts' .* wrap it: captum_goat\.MadeEdges\(model\)"):
        GOAtAttribution(randomized(Bonds())).attribute(
            torch.ones(bonds.size(1)), 0, (data.x, bonds, data.pos, data.batch)
        )


def test_other_edges_than_those_whose_lengths_are_returned() -> None:
    data, model = cloud(), randomized(Molecule())
    made = MadeEdges(model, makers=[model.graph])
    (edge_index,) = made.edges(data)
    with pytest.raises(UnsupportedModelError, match=r"'Neighbours\.forward' makes \(got others\)"):
        made(data.z, data.pos, edge_index[:, 1:], data.batch)


# The kernels of pyg-lib, which tests/test_extensions.py tries where they are installed.


def _knn(x: Tensor, y: Tensor, ptr_x: Any, ptr_y: Any, k: int, cosine: bool, workers: int) -> Tensor:
    distances = torch.cdist(y, x)
    if ptr_x is not None:
        graphs = [torch.bucketize(torch.arange(len(v)), p[1:], right=True) for v, p in ((y, ptr_y), (x, ptr_x))]
        distances = distances.masked_fill(graphs[0].view(-1, 1) != graphs[1], torch.inf)
    chosen = distances.topk(k, largest=False)
    rows = torch.arange(len(y)).view(-1, 1).expand_as(chosen.indices)
    return torch.stack([rows, chosen.indices])[:, chosen.values.isfinite()]


def _radius(
    x: Tensor, y: Tensor, ptr_x: Any, ptr_y: Any, r: float, most: int, workers: int, ignore_same: bool
) -> Tensor:
    edges = _knn(x, y, ptr_x, ptr_y, len(x), False, 1)
    edges = edges[:, (y[edges[0]] - x[edges[1]]).norm(dim=1) < r]
    return edges[:, edges[0] != edges[1]] if ignore_same else edges


@pytest.fixture
def _kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    if not hasattr(torch_geometric.typing, "WITH_KNN"):
        pytest.skip("this PyG takes the kernels of torch-cluster")
    for name, kernel in (("knn", _knn), ("radius", _radius)):
        monkeypatch.setattr(torch_geometric.typing, f"WITH_{name.upper()}", True)
        monkeypatch.setattr(torch.ops.pyg, name, kernel, raising=False)


class Layers(nn.Module):
    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers, self.head = nn.ModuleList(layers), nn.Linear(C, CLASSES)

    def forward(self, x: Tensor, batch: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, batch).relu()
        return self.head(global_mean_pool(x, batch))


class OnGraph(nn.Module):
    def __init__(self, conv: nn.Module, make: Any, **options: Any) -> None:
        super().__init__()
        self.conv, self.make, self.options = conv, make, options

    def forward(self, x: Tensor, batch: Tensor) -> Tensor:
        edge_index = (
            knn_graph(x, 2, batch, **self.options)
            if self.make == "knn"
            else radius_graph(x, 2.5, batch, **self.options)
        )
        x = self.conv(x, edge_index).relu()
        return global_add_pool(self.conv(x, edge_index).relu(), batch)


@pytest.mark.usefixtures("_kernels")
@pytest.mark.parametrize(
    ("build", "loops"),
    [
        (lambda: Layers(DynamicEdgeConv(mlp(2 * C, C, C), 3)), True),
        (lambda: Layers(DynamicEdgeConv(mlp(2 * C, C, C), 3), DynamicEdgeConv(mlp(2 * C, C, C), 2, aggr="mean")), True),
        (lambda: Layers(GravNetConv(C, C, 2, C, 3), GravNetConv(C, C, 2, C, 3)), True),
        (lambda: OnGraph(GCNConv(C, C), "knn"), False),
        (lambda: OnGraph(GCNConv(C, C), "knn", loop=True), True),
        (lambda: OnGraph(GraphConv(C, C, flow="target_to_source"), "knn", flow="target_to_source"), False),
        (lambda: OnGraph(GraphConv(C, C), "radius"), False),
        (lambda: OnGraph(GraphConv(C, C), "radius", loop=True, flow="target_to_source"), True),
    ],
)
def test_layers_of_pyg_that_make_edges(build: Any, loops: bool) -> None:
    data, model = cloud(), randomized(build())
    made = MadeEdges(model, num_sets=len(getattr(model, "layers", [1])))
    edges = made.edges(data)
    assert all(bool((part[0] == part[1]).any()) == loops for part in edges)
    masks = tuple(torch.ones(part.size(1)) for part in edges)
    assert_exact(made, model(data.x, data.batch), (data.x, data.batch, *edges), masks)


@pytest.mark.usefixtures("_kernels")
@pytest.mark.parametrize("at", ["message", "adjacency"])
def test_schnet(at: Any) -> None:
    data, model = cloud(), randomized(SchNet(C, C, 2, 6, cutoff=2.0))
    made = MadeEdges(model)
    (edge_index,) = made.edges(data)
    arguments = (data.z, data.pos, edge_index, data.batch)
    assert_exact(made, model(data.z, data.pos, data.batch), arguments, (torch.ones(edge_index.size(1)),), at=at)
