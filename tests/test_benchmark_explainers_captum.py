"""The benchmark's adapters of Captum against Captum called directly, and occlusion against a loop."""

from __future__ import annotations

from typing import Any

import captum.attr as ca
import numpy as np
import pytest
import torch
from conftest import GNN, make_gnn, randomize
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GINConv
from torch_geometric.utils import to_undirected

from benchmarks.explainers import EXPLAINERS
from benchmarks.explainers.relu_modules import WithReLUModules
from captum_goat import EdgeMaskedModel, GOAtAttribution, undirected_feature_mask
from captum_goat.compare.graphs import Graphs

X = torch.rand(6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
EDGES = to_undirected(torch.tensor([[0, 0, 1, 2, 3, 1], [1, 2, 2, 3, 4, 4]]))  # node 5 has none
DATA = Data(x=X, edge_index=EDGES)
MASK = torch.ones(1, EDGES.size(1), dtype=torch.float64)
CLASS = 2


def explained(name: str, model: nn.Module, **options: Any) -> Tensor:
    return EXPLAINERS[name](**options)(model, DATA, torch.tensor([CLASS]))


def direct(method: type, model: nn.Module, **options: Any) -> Tensor:
    mask = MASK.clone().requires_grad_()
    attributions = method(EdgeMaskedModel(model)).attribute(
        mask, target=CLASS, additional_forward_args=(X, EDGES), **options
    )
    return attributions[0].detach()


@pytest.mark.parametrize("kind", ["gcn", "gin", "sage_mean"])
@pytest.mark.parametrize(
    ("name", "method", "options"),
    [
        ("saliency", ca.Saliency, {}),
        ("input_x_gradient", ca.InputXGradient, {}),
        ("integrated_gradients", ca.IntegratedGradients, {}),
        ("goat", None, {}),
        ("goat_repeated", None, {"field": "repeated"}),
    ],
)
def test_gradients(name: str, method: type | None, options: dict[str, Any], kind: str) -> None:
    model = make_gnn(kind)
    if method is None:
        expected = GOAtAttribution(model, **options).attribute(MASK[0], CLASS, (X, EDGES))
    else:
        expected = direct(method, model, **options)
    torch.testing.assert_close(explained(name, model), expected)


def test_gradient_shap() -> None:
    model = make_gnn("gcn")
    np.random.seed(3)
    torch.manual_seed(3)
    expected = direct(ca.GradientShap, model, baselines=torch.zeros_like(MASK), n_samples=7)
    torch.testing.assert_close(explained("gradient_shap", model, samples=7, seed=3), expected)


@pytest.mark.parametrize(
    ("name", "method"), [("shapley_value_sampling", ca.ShapleyValueSampling), ("kernel_shap", ca.KernelShap)]
)
def test_shapley(name: str, method: type) -> None:
    graphs = Graphs.of(DATA, torch.tensor([CLASS]))
    model, players, seed = make_gnn("gcn"), graphs.edges.number, graphs.seed(1)
    torch.manual_seed(seed)
    np.random.seed(seed)
    with torch.no_grad():
        expected = direct(method, model, feature_mask=players.unsqueeze(0), n_samples=9, perturbations_per_eval=64)
    torch.testing.assert_close(explained(name, model, samples=9, seed=1), expected.double() / 2)


@pytest.mark.slow
def test_shapley_values_are_right() -> None:
    """On two edges the Shapley values can be written down."""
    model, edges = make_gnn("gcn"), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    x = X[:3]

    def value(*mask: float) -> Tensor:
        return EdgeMaskedModel(model)(torch.tensor(mask, dtype=torch.float64), x, edges)[0, CLASS]

    gain = (value(1, 1, 0, 0) - value(0, 0, 0, 0) + value(1, 1, 1, 1) - value(0, 0, 1, 1)) / 2
    other = value(1, 1, 1, 1) - value(0, 0, 0, 0) - gain
    expected = torch.stack([gain, gain, other, other]).detach() / 2
    for name, near in (("shapley_value_sampling", 0.2), ("kernel_shap", 0.02)):
        scores = EXPLAINERS[name](samples=50)(model, Data(x=x, edge_index=edges), torch.tensor([CLASS]))
        torch.testing.assert_close(scores, expected, rtol=0.0, atol=near * float(expected.abs().max()))


class ModularGNN(GNN):
    """The tests' GNN with a module for every ReLU."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.relus = nn.ModuleList(nn.ReLU() for _ in range(4))

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        for conv, relu in zip(self.convs, self.relus, strict=False):
            x = relu(conv(x, edge_index))
        return self.out(self.relus[-1](self.hidden(x.mean(0, keepdim=True))))


@pytest.mark.filterwarnings("ignore:Setting backward hooks")
@pytest.mark.parametrize("kind", ["gcn", "gin"])
@pytest.mark.parametrize(
    ("name", "method"), [("guided_backprop", ca.GuidedBackprop), ("deconvolution", ca.Deconvolution)]
)
def test_relu_gradients(name: str, method: type, kind: str) -> None:
    """Captum sees ReLUs that are modules; the adapters see them in any spelling."""
    spelled = make_gnn(kind)
    modular = ModularGNN(kind).double().eval()
    modular.load_state_dict(spelled.state_dict())
    expected = direct(method, modular)
    torch.testing.assert_close(explained(name, modular), expected)
    torch.testing.assert_close(explained(name, spelled), expected)
    assert not torch.allclose(expected, explained("input_x_gradient", spelled))


def test_relu_in_place() -> None:
    class InPlace(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            x = x * 1
            x.relu_()  # what it returns is dropped
            return torch.nn.functional.relu(x - 1, inplace=True)

    x = torch.tensor([-1.0, 0.5, 3.0])
    function = WithReLUModules(InPlace(), x)
    assert len(function.relus) == 2
    assert function(x).tolist() == [0.0, 0.0, 2.0]


@pytest.mark.parametrize("kind", ["gcn", "gcn_plain", "gin", "sage_sum", "sage_mean"])
def test_occlusion(kind: str) -> None:
    """Against a loop that masks one edge after the other; both directions of an undirected one."""
    model = make_gnn(kind)
    masked = EdgeMaskedModel(model)
    directed = Data(x=X, edge_index=torch.tensor([[0, 0, 1, 2, 3, 3], [1, 1, 0, 3, 4, 3]]))
    for data, players in (
        (DATA, undirected_feature_mask(EDGES)),
        (directed, torch.tensor([0, 0, 1, 2, 3, 4])),  # no edge from 3 to 2: all are directed; the first is double
    ):
        whole = model(X, data.edge_index)[0, 1]
        expected = torch.zeros(data.num_edges, dtype=torch.float64)
        for player in players.unique():
            mask = (players != player).double()
            drop = whole - masked(mask, X, data.edge_index)[0, 1]
            expected[players == player] = drop.detach() / (players == player).sum()
        scores = EXPLAINERS["occlusion"]()(model, data, torch.tensor([1]))
        torch.testing.assert_close(scores, expected)


def test_occlusion_removes_edges() -> None:
    """Where nothing depends on degrees, masking an edge is removing it."""
    model, columns = make_gnn("sage_sum"), undirected_feature_mask(EDGES)
    scores = explained("occlusion", model)
    for edge in columns.unique():
        rest = model(X, EDGES[:, columns != edge])[0, CLASS]
        torch.testing.assert_close(scores[columns == edge].sum(), model(X, EDGES)[0, CLASS] - rest)


def test_weights_of_a_normalized_gcn() -> None:
    """Integrated gradients on edge weights, written down with dense matrices."""
    model = make_gnn("gcn", layers=2)

    def dense(weights: Tensor) -> Tensor:
        adjacency = torch.eye(6, dtype=torch.float64).index_put((EDGES[1], EDGES[0]), weights, accumulate=True)
        norm = adjacency.sum(1).rsqrt()
        x = X
        for conv in model.convs:
            x = (norm[:, None] * adjacency * norm @ x @ conv.lin.weight.t() + conv.bias).relu()
        return model.out(torch.relu(model.hidden(x.mean(0))))[CLASS]

    points, shares = np.polynomial.legendre.leggauss(50)
    expected = torch.zeros(EDGES.size(1), dtype=torch.float64)
    for point, share in zip(points, shares, strict=True):
        weights = torch.full((EDGES.size(1),), (point + 1) / 2, dtype=torch.float64, requires_grad=True)
        expected += torch.autograd.grad(dense(weights), weights)[0] * share / 2
    scores = explained("integrated_gradients_weights", model)
    torch.testing.assert_close(scores, expected)
    assert not torch.allclose(scores, explained("integrated_gradients", model))


def test_weights_are_the_mask_without_normalization() -> None:
    model = make_gnn("gcn_plain")
    expected = explained("integrated_gradients", model)
    torch.testing.assert_close(explained("integrated_gradients_weights", model), expected)


def test_random_differs_between_graphs_and_seeds() -> None:
    model, other = make_gnn("gcn"), Data(x=X.flip(0), edge_index=EDGES)
    batch = Batch.from_data_list([DATA, other])
    first, second = EXPLAINERS["random"]()(model, batch, torch.tensor([0, 0])).view(2, -1)
    assert not torch.equal(first, second)
    assert not torch.equal(first, explained("random", model, seed=1))
    assert bool((first >= 0).all() and (first < 1).all())


def test_conv_with_modules_inside_is_hooked() -> None:
    """GIN's ReLUs are modules inside of the layer: none is counted twice."""
    model = randomize(GNN("gin").double(), seed=1)
    assert any(isinstance(module, GINConv) for module in model.modules())
    targets = EdgeMaskedModel(model)
    function = WithReLUModules(_Called(targets), MASK)
    assert len(function.relus) == 3 + 3 + 1  # inside of the layers, after them, in the classifier


class _Called(nn.Module):
    def __init__(self, masked: EdgeMaskedModel) -> None:
        super().__init__()
        self.masked = masked

    def forward(self, mask: Tensor) -> Tensor:
        return self.masked(mask, X, EDGES)
