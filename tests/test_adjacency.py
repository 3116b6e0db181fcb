"""EdgeMaskedModel(at="adjacency"): masks of zeros and ones delete edges, degrees included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import captum.attr as ca
import pytest
import torch
from conftest import GNN, KINDS, make_gnn, random_edges, randomize, slow_unless
from hetero import hetero_gnn, hetero_graph
from torch import Tensor, nn
from torch_geometric import nn as gnn
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from captum_goat import EdgeMaskedModel, GOAtAttribution, UnsupportedModelError

NODES = 7
X = torch.randn(NODES, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
# Random directed edges with duplicates and loops among them; the second graph has a loop at every node as well.
GRAPHS = [
    random_edges(NODES, 16, seed=1),
    torch.cat([random_edges(NODES, 12, seed=2), torch.arange(NODES).repeat(2, 1), torch.ones(2, 2).long()], dim=1),
]


class Layer(nn.Module):
    """A layer that takes weights of the edges, or none."""

    def __init__(self, layer: nn.Module, *others: Any) -> None:
        super().__init__()
        self.layer, self.others = layer, others

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        weights = () if edge_weight is None else (edge_weight,)
        out: Tensor = self.layer(x, edge_index, *weights, *self.others)
        return out


WEIGHTED: dict[str, Callable[[], nn.Module]] = {
    "gcn": lambda: gnn.GCNConv(4, 3),
    "gcn_improved": lambda: gnn.GCNConv(4, 3, improved=True),
    "gcn_plain": lambda: gnn.GCNConv(4, 3, normalize=False),
    "gcn_without_loops": lambda: gnn.GCNConv(4, 3, add_self_loops=False),
    "graph_conv": lambda: gnn.GraphConv(4, 3),
    "graph_conv_mean": lambda: gnn.GraphConv(4, 3, aggr="mean"),
    "cheb": lambda: gnn.ChebConv(4, 3, K=3),
    "tag": lambda: gnn.TAGConv(4, 3),
    "appnp": lambda: gnn.APPNP(3, 0.1),
    "sg": lambda: gnn.SGConv(4, 3, K=2),
    "ssg": lambda: gnn.SSGConv(4, 3, alpha=0.1, K=2),
    "arma": lambda: gnn.ARMAConv(4, 3, num_stacks=2, num_layers=2),
    "lg": lambda: gnn.LGConv(),
    "le": lambda: gnn.LEConv(4, 3),
    "mixhop": lambda: gnn.MixHopConv(4, 3),
}
OTHERS: dict[str, Callable[[], nn.Module]] = {
    "sage_mean": lambda: gnn.SAGEConv(4, 3),
    "sage_sum": lambda: gnn.SAGEConv(4, 3, aggr="sum"),
    "sage_several": lambda: gnn.SAGEConv(4, 3, aggr=["mean", "sum", "std", "softmax", "powermean"]),
    "gin": lambda: gnn.GINConv(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3))),
    "cluster_gcn": lambda: gnn.ClusterGCNConv(4, 3, diag_lambda=0.5),
    "gat": lambda: gnn.GATConv(4, 3, heads=2),
    "gat_without_loops": lambda: gnn.GATConv(4, 3, heads=2, add_self_loops=False),
    "gatv2": lambda: gnn.GATv2Conv(4, 3, heads=2),
    "transformer": lambda: gnn.TransformerConv(4, 3, heads=2),
    "agnn": lambda: gnn.AGNNConv(),
    "gen": lambda: gnn.GENConv(4, 3),
    "eg": lambda: gnn.EGConv(4, 4, aggregators=["symnorm", "mean", "sum"], num_heads=2),
    "hypergraph": lambda: gnn.HypergraphConv(4, 3),
    "pna": lambda: gnn.PNAConv(4, 4, ["mean", "sum"], ["amplification", "attenuation"], torch.tensor([1, 3, 4, 2])),
    "dir_gnn": lambda: gnn.DirGNNConv(gnn.SAGEConv(4, 3)),
}
LAYERS = [(name, False) for name in [*WEIGHTED, *OTHERS]] + [(name, True) for name in WEIGHTED]
LAYER_IDS = [f"{name}{'_weighted' * weighted}" for name, weighted in LAYERS]


@pytest.fixture(autouse=True)
def _in_double_precision() -> Any:
    """Degrees are counted in the default precision."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def layer_of(name: str) -> Layer:
    layer = Layer((WEIGHTED | OTHERS)[name]())
    randomize(layer, 3)
    return layer


def weights_of(edge_index: Tensor) -> Tensor:
    return 0.2 + torch.rand(edge_index.size(1), generator=torch.Generator().manual_seed(4))


@pytest.mark.parametrize(("name", "weighted"), LAYERS, ids=LAYER_IDS)
def test_masks_of_zeros_and_ones_delete_edges(name: str, weighted: bool) -> None:
    model = layer_of(name)
    for number, edge_index in enumerate(GRAPHS):
        masked, weights = EdgeMaskedModel(model, at="adjacency"), weights_of(edge_index)
        for share in (0.0, 0.3, 0.7, 1.0):
            kept = torch.rand(edge_index.size(1), generator=torch.Generator().manual_seed(number)) < share
            given, left = ((weights,), (weights[kept],)) if weighted else ((), ())
            output = masked(kept.double(), X, edge_index, *given)
            torch.testing.assert_close(output, model(X, edge_index[:, kept], *left), rtol=0, atol=1e-9)


@pytest.mark.parametrize(("name", "weighted"), slow_unless(lambda layer: layer in LAYERS[::6], LAYERS), ids=LAYER_IDS)
def test_gradients_match_finite_differences(name: str, weighted: bool) -> None:
    edge_index = GRAPHS[1]
    masked = EdgeMaskedModel(layer_of(name), at="adjacency")
    mask = 0.05 + 0.9 * torch.rand(edge_index.size(1), generator=torch.Generator().manual_seed(5))
    given = (weights_of(edge_index),) if weighted else ()
    assert torch.autograd.gradcheck(lambda mask: masked(mask, X, edge_index, *given), mask.requires_grad_())


@pytest.mark.parametrize("name", ["gcn", "gcn_without_loops", "sage_mean", "gat_without_loops", "cheb"])
def test_gradients_are_numbers_where_all_edges_are_masked(name: str) -> None:
    mask = torch.zeros(GRAPHS[0].size(1), requires_grad=True)
    out = EdgeMaskedModel(layer_of(name), at="adjacency")(mask, X, GRAPHS[0])
    (gradient,) = torch.autograd.grad(out.sum(), mask)
    assert gradient.isfinite().all()


def test_attention_of_absent_edges_does_not_matter_however_large() -> None:
    """An edge that was left out has by far the largest attention: what is left must not be rounded away."""
    model = Layer(gnn.GATConv(1, 1, add_self_loops=False, bias=False))
    model.requires_grad_(False)
    model.layer.lin.weight.fill_(1.0), model.layer.att_src.fill_(1.0), model.layer.att_dst.fill_(0.0)
    x, edge_index = torch.tensor([[1.0], [2.0], [2000.0], [0.0]]), torch.tensor([[0, 1, 2, 2], [3, 3, 3, 1]])
    kept = torch.tensor([True, True, False, False])
    output = EdgeMaskedModel(model, at="adjacency")(kept.double(), x, edge_index)
    torch.testing.assert_close(output, model(x, edge_index[:, kept]), rtol=0, atol=1e-12)


def test_what_lies_between_follows_the_layers_own_formulas() -> None:
    x, edge_index = torch.tensor([[1.0], [10.0], [100.0]]), torch.tensor([[0, 1], [2, 2]])
    mean = gnn.SimpleConv(aggr="mean")
    for mask, expected in (([1.0, 0.5], 6.0 / 1.5), ([0.5, 0.25], 3.0), ([0.5, 0.0], 0.5), ([0.0, 0.0], 0.0)):
        output = EdgeMaskedModel(mean, at="adjacency")(torch.tensor(mask), x, edge_index)[2]
        torch.testing.assert_close(output, torch.tensor([expected]))
    gcn = gnn.GCNConv(1, 1, bias=False).requires_grad_(False)
    gcn.lin.weight.fill_(1.0)
    output = EdgeMaskedModel(gcn, at="adjacency")(torch.tensor([0.5, 1.0]), x, edge_index)[2]
    torch.testing.assert_close(output, torch.tensor([(0.5 * 1 + 1.0 * 10) / 2.5**0.5 + 100 / 2.5]))


def test_a_loop_of_the_users_gives_way_to_the_layers_own() -> None:
    """GCN keeps the weight of the user's loop, and puts a loop of weight 1 where there is none."""
    edge_index, weights = torch.tensor([[0, 1, 1], [1, 1, 1]]), torch.tensor([1.0, 5.0, 3.0])
    model = layer_of("gcn")
    masked = EdgeMaskedModel(model, at="adjacency")
    for mask in ([1, 1, 1], [1, 1, 0], [1, 0, 1], [1, 0, 0]):
        kept = torch.tensor(mask) > 0
        output = masked(kept.double(), X[:2], edge_index, weights)
        torch.testing.assert_close(output, model(X[:2], edge_index[:, kept], weights[kept]))


@pytest.mark.parametrize("kind", KINDS)
def test_batches_rows_of_masks_and_graphs_as_data(kind: str, batch_of_graphs: tuple[Tensor, Tensor, Tensor]) -> None:
    x, edge_index, batch = batch_of_graphs
    model = make_gnn(kind)
    masked = EdgeMaskedModel(model, at="adjacency")
    kept = torch.rand(3, edge_index.size(1), generator=torch.Generator().manual_seed(0)) < 0.6
    expected = torch.stack([model(x, edge_index[:, kept_edges], batch) for kept_edges in kept])
    torch.testing.assert_close(masked(kept.double(), x, edge_index, batch), expected)
    data = Data(x=x, edge_index=edge_index, batch=batch)
    torch.testing.assert_close(masked(kept[1].double(), data), expected[1])


def test_models_with_batch_norms_and_dropout() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = gnn.GCNConv(4, 5), gnn.SAGEConv(5, 3)
            self.norm, self.drop = gnn.BatchNorm(5), nn.Dropout(0.5)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            out: Tensor = self.second(self.drop(self.norm(self.first(x, edge_index)).relu()), edge_index)
            return out

    model = randomize(Net(), 2)
    kept = torch.arange(GRAPHS[0].size(1)) % 3 != 0
    output = EdgeMaskedModel(model, at="adjacency")(kept.double(), X, GRAPHS[0])
    torch.testing.assert_close(output, model(X, GRAPHS[0][:, kept]))


def test_heterogeneous_graphs() -> None:
    torch.set_default_dtype(torch.float32)
    data, model = hetero_graph(), hetero_gnn()
    edges = data.edge_index_dict
    kept = {key: torch.arange(edge_index.size(1)) % 2 == 0 for key, edge_index in edges.items()}
    masks = {key: kept_edges.double() for key, kept_edges in kept.items()}
    left = {key: edges[key][:, kept_edges] for key, kept_edges in kept.items()}
    output = EdgeMaskedModel(model, at="adjacency")(masks, data.x_dict, edges)
    torch.testing.assert_close(output, model(data.x_dict, left))


class TakesData(nn.Module):
    """A model that is given the whole graph, with weights of its edges."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = gnn.GCNConv(4, 3)

    def forward(self, data: Data) -> Tensor:
        out: Tensor = self.conv(data.x, data.edge_index, data.edge_weight)
        return out


def test_models_that_take_the_graph_itself() -> None:
    model, edge_index, weights = TakesData().eval(), GRAPHS[0], weights_of(GRAPHS[0])
    kept = torch.arange(edge_index.size(1)) % 3 != 0
    left = Data(x=X, edge_index=edge_index[:, kept], edge_weight=weights[kept])
    data = Data(x=X, edge_index=edge_index, edge_weight=weights)
    torch.testing.assert_close(EdgeMaskedModel(model, at="adjacency")(kept.double(), data), model(left))


class Extreme(GNN):
    """A GNN whose layers take maxima."""

    def __init__(self) -> None:
        super().__init__("gin")
        self.convs = nn.ModuleList([gnn.SAGEConv(4, 8, aggr="max")])


class Undirected(GNN):
    """A GNN that turns edges round where the user has only one of two."""

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        return super().forward(x, to_undirected(edge_index), batch)


class ByNumberOfEdges(GNN):
    """A GNN that looks at how many edges there are."""

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        return super().forward(x, edge_index, batch) / (1 + edge_index.size(1))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Extreme(), r"'convs.0.aggr_module' \(MaxAggregation\) brings edges together by 'amax'"),
        (Layer(gnn.MFConv(4, 3)), r"'layer' \(MFConv\) counts edges in integers"),
        (Layer(gnn.SAGEConv(4, 3, aggr="median")), r"MedianAggregation\) brings edges together by 'bincount'"),
        (Undirected("gin"), "is not what it is without"),
        (ByNumberOfEdges("gin"), "is not what it is without"),
    ],
    ids=["max", "whole numbers", "median", "undirected", "number of edges"],
)
def test_what_is_not_known_is_refused(model: nn.Module, message: str) -> None:
    model = randomize(model.double(), 1)
    mask = torch.ones(GRAPHS[0].size(1))
    with pytest.raises(UnsupportedModelError, match=message):
        EdgeMaskedModel(model, at="adjacency")(mask, X, GRAPHS[0])
    with pytest.raises(UnsupportedModelError, match=message):
        GOAtAttribution(model, at="adjacency").attribute(mask, (0, 0), (X, GRAPHS[0]))
    assert EdgeMaskedModel(model)(mask, X, GRAPHS[0]).isfinite().all()


class DividesByEdges(GNN):
    """A GNN that divides by the number of edges, if there are enough of them."""

    least = 1

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        out: Tensor = super().forward(x, edge_index, batch)
        return out / edge_index.size(1) if edge_index.size(1) >= self.least else out


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("edges", [0, 1])
def test_graphs_are_checked_until_one_proves_something(edges: int, dtype: torch.dtype) -> None:
    """A graph without edges, and one whose only edge may be divided by, prove nothing."""
    torch.set_default_dtype(dtype)
    model, x, first = randomize(DividesByEdges("gin").to(dtype), 1), X.to(dtype), GRAPHS[0][:, :edges]
    masked, goat = EdgeMaskedModel(model, at="adjacency"), GOAtAttribution(model, at="adjacency")
    masked(torch.ones(edges), x, first)
    goat.attribute(torch.ones(edges), 0, (x, first))
    mask = torch.ones(GRAPHS[0].size(1))
    with pytest.raises(UnsupportedModelError, match="is not what it is without"):
        masked(mask, x, GRAPHS[0])
    with pytest.raises(UnsupportedModelError, match="is not what it is without"):
        goat.attribute(mask, 0, (x, GRAPHS[0]))


def test_attributions_of_every_graph_add_up_to_what_deleting_all_its_edges_does() -> None:
    """Even if the model has proved well-behaved on a graph before."""
    model = randomize(DividesByEdges("gin").double(), 1)
    model.least = 12
    goat = GOAtAttribution(model, at="adjacency")
    small, large = (GRAPHS[0][:, :count] for count in (11, 14))
    attributions = goat.attribute(torch.ones(11), 0, (X, small))
    torch.testing.assert_close(attributions.sum(), (model(X, small) - model(X, small[:, :0]))[0, 0])
    with pytest.raises(UnsupportedModelError, match="is not what it is without"):
        goat.attribute(torch.ones(14), 0, (X, large))


@pytest.mark.parametrize("least", [1, 9])
def test_models_that_need_their_edges_are_refused(least: int) -> None:
    class NeedsEdges(GNN):
        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
            if edge_index.size(1) < least:
                raise RuntimeError("too few edges")
            return super().forward(x, edge_index, batch)

    model, mask = randomize(NeedsEdges("gin").double(), 1), torch.ones(GRAPHS[0].size(1))
    for _ in range(2):
        with pytest.raises(UnsupportedModelError, match=r"NeedsEdges does not run .* \(RuntimeError: too few edges\)"):
            GOAtAttribution(model, at="adjacency").attribute(mask, 0, (X, GRAPHS[0]))
    if least > 1:
        with pytest.raises(UnsupportedModelError, match="too few edges"):
            EdgeMaskedModel(model, at="adjacency")(mask, X, GRAPHS[0])


def test_wrong_arguments_are_reported_as_such() -> None:
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        EdgeMaskedModel(layer_of("gcn"), at="adjacency")(torch.ones(GRAPHS[0].size(1)), X[:, :3], GRAPHS[0])


def test_the_model_is_left_as_it_was() -> None:
    model = layer_of("gat")
    before = model(X, GRAPHS[0])
    EdgeMaskedModel(model, at="adjacency")(torch.rand(GRAPHS[0].size(1)), X, GRAPHS[0])
    torch.testing.assert_close(model(X, GRAPHS[0]), before, rtol=0, atol=0)
    assert not model.layer._message_forward_hooks


@pytest.mark.parametrize(("name", "near"), [("gcn", 1e-6), ("gat", 1e-6), ("sage_mean", 0.02)])
def test_methods_of_captum(name: str, near: float) -> None:
    """Integrated gradients add up, where the formulas have kinks (the mean's, where one edge is left) nearly so."""
    masked = EdgeMaskedModel(layer_of(name), at="adjacency")
    mask, others = torch.ones(1, GRAPHS[0].size(1)), (X, GRAPHS[0])
    attributions, delta = ca.IntegratedGradients(masked).attribute(
        mask, target=(0, 0), additional_forward_args=others, return_convergence_delta=True
    )
    assert attributions.shape == mask.shape
    assert delta.abs() < near
    assert ca.Saliency(masked).attribute(mask.requires_grad_(), (0, 0), additional_forward_args=others).isfinite().all()


def test_other_places_are_refused() -> None:
    with pytest.raises(ValueError, match=r"Expected at to be 'message' or 'adjacency' \(got 'edge'\)"):
        EdgeMaskedModel(make_gnn(), at="edge")  # type: ignore[arg-type]
