from __future__ import annotations

from itertools import combinations
from math import factorial

import pytest
import torch
from captum.attr import NoiseTunnel
from torch import nn
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.nn import GCNConv, SAGEConv, SimpleConv, global_add_pool

from captum_goat import EdgeMaskedModel, GOAtAttribution, GuidedShapley
from captum_goat.models import GraphClassifier, NodeClassifier

ALL = 2000  # more than all coalitions of 10 players
CYCLE = torch.tensor([[0, 1, 2, 3, 4, 5, 0, 1], [1, 2, 3, 4, 5, 0, 3, 5]])  # undirected edges of a graph of 6 nodes


def enumerated(value, players):
    """Shapley values by their definition; ``value`` is a function of the set of players that take part."""
    shares = []
    for player in range(players):
        others = [other for other in range(players) if other != player]
        share = 0.0
        for size in range(players):
            weight = factorial(size) * factorial(players - size - 1) / factorial(players)
            for coalition in combinations(others, size):
                share += weight * (value({*coalition, player}) - value(set(coalition)))
        shares.append(share)
    return torch.tensor(shares, dtype=torch.double)


def both_ways(edges):
    return torch.cat([edges, edges.flip(0)], dim=1)


def graph(edges=CYCLE, seed=0, features=4):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(int(edges.max()) + 1, features, generator=generator, dtype=torch.double)
    return Data(x=x, edge_index=both_ways(edges))


def classifier(conv="gcn", seed=0, **options):
    torch.manual_seed(seed)
    return GraphClassifier(conv, 4, 8, 3, **options).double().eval()


def ones(data):
    return torch.ones(data.num_edges, dtype=torch.double)


def logit(model, data, kept, row, column):
    with torch.no_grad():
        return float(model(data.x, data.edge_index[:, kept])[row, column])


@pytest.mark.parametrize("conv", ["gcn", "sage", "gin"])
@pytest.mark.slow
def test_all_coalitions_give_exact_values_of_undirected_edges(conv):
    data, model = graph(), classifier(conv)
    player = torch.arange(8).repeat(2)
    expected = enumerated(lambda kept: logit(model, data, torch.isin(player, torch.tensor([*kept])), 0, 1), 8)
    shapley = GuidedShapley(model, n_samples=ALL)
    found, delta, errors = shapley.attribute(
        ones(data), 1, (data.x, data.edge_index), return_convergence_delta=True, return_standard_errors=True
    )
    assert torch.allclose(found, expected[player] / 2, rtol=0, atol=1e-8)
    assert delta.shape == (1,)
    assert delta.abs() < 1e-12
    assert not errors.any()


@pytest.mark.parametrize("conv", ["gcn", "gin"])
@pytest.mark.slow
def test_all_coalitions_give_exact_values_of_directed_edges_for_a_node(conv):
    torch.manual_seed(1)
    model = NodeClassifier(conv, 4, 8, 3, num_layers=2).double().eval()
    data = graph()
    data.edge_index = CYCLE
    expected = enumerated(lambda kept: logit(model, data, sorted(kept), 3, 2), 8)
    found = GuidedShapley(model, n_samples=ALL).attribute(ones(data), (3, 2), (data.x, data.edge_index))
    assert torch.allclose(found, expected, rtol=0, atol=1e-8)
    assert expected.abs().max() > 1e-3


def test_groups_of_a_feature_mask_are_players_and_each_edge_has_its_group_s_value():
    data, model = graph(), classifier("gin")
    groups = torch.tensor([0, 0, 4, 4, 7, 2, 2, 2, 1, 1, 1, 1, 7, 7, 0, 2])
    names = groups.unique()
    expected = enumerated(
        lambda kept: logit(model, data, torch.isin(groups, names[[*kept]].long() if kept else names[:0]), 0, 0), 5
    )
    found, delta = GuidedShapley(model, n_samples=ALL).attribute(
        ones(data), 0, (data.x, data.edge_index), feature_mask=groups, return_convergence_delta=True
    )
    assert torch.allclose(found, expected[torch.searchsorted(names, groups)], rtol=0, atol=1e-8)
    assert delta.abs() < 1e-12


@pytest.mark.slow
def test_directed_players_in_an_undirected_graph():
    data, model = graph(CYCLE[:, :4]), classifier()
    expected = enumerated(lambda kept: logit(model, data, sorted(kept), 0, 2), 8)
    found = GuidedShapley(model, n_samples=ALL).attribute(
        ones(data), 2, (data.x, data.edge_index), feature_mask=torch.arange(8)
    )
    assert torch.allclose(found, expected, rtol=0, atol=1e-8)


@pytest.mark.slow
def test_masked_messages_instead_of_deleted_edges():
    data, model = graph(CYCLE[:, :6]), classifier()
    masked = EdgeMaskedModel(model)

    def value(kept):
        mask = torch.isin(torch.arange(6), torch.tensor([*kept])).double().repeat(2)
        with torch.no_grad():
            return float(masked(mask, data.x, data.edge_index)[0, 1])

    expected = enumerated(value, 6).repeat(2) / 2
    arguments = (data.x, data.edge_index)
    deleted = GuidedShapley(model, n_samples=ALL).attribute(ones(data), 1, arguments)
    for method in (GuidedShapley(masked, n_samples=ALL), GuidedShapley(model, n_samples=ALL, at="message")):
        found = method.attribute(ones(data), 1, arguments)
        assert torch.allclose(found, expected, rtol=0, atol=1e-8)
        assert not torch.allclose(found, deleted, rtol=0, atol=1e-4)
    at_adjacency = GuidedShapley(EdgeMaskedModel(model, at="adjacency"), n_samples=ALL)
    assert torch.allclose(at_adjacency.attribute(ones(data), 1, arguments), deleted)


def test_margin_is_the_log_odds_of_the_class():
    data, model = graph(CYCLE[:, :5]), classifier()

    def value(kept):
        player = torch.arange(5).repeat(2)
        with torch.no_grad():
            probabilities = model(data.x, data.edge_index[:, torch.isin(player, torch.tensor([*kept]))]).softmax(1)[0]
        return float(torch.logit(probabilities[2]))

    expected = enumerated(value, 5).repeat(2) / 2
    found = GuidedShapley(model, n_samples=ALL, margin=True).attribute(ones(data), 2, (data.x, data.edge_index))
    assert torch.allclose(found, expected, rtol=0, atol=1e-8)


class LastSoftmax(GraphClassifier):
    def forward(self, x, edge_index, batch=None):
        return super().forward(x, edge_index, batch).softmax(dim=1)


@pytest.mark.parametrize("at", ["adjacency", "message"])
@pytest.mark.slow
def test_a_last_softmax_is_left_out(at):
    torch.manual_seed(0)
    model = LastSoftmax("gcn", 4, 8, 3).double().eval()
    plain = classifier()
    plain.load_state_dict(model.state_dict())
    data = graph()
    found, expected = (
        GuidedShapley(one, at=at).attribute(ones(data), 1, (data.x, data.edge_index)) for one in (model, plain)
    )
    assert torch.allclose(found, expected)


class Affinity(nn.Module):
    """A link predictor: the product of two nodes' embeddings."""

    def __init__(self):
        super().__init__()
        self.conv = GCNConv(4, 5)

    def forward(self, x, edge_index, edge_label_index):
        h = self.conv(x, edge_index).relu()
        return (h[edge_label_index[0]] * h[edge_label_index[1]]).sum(dim=1)


def test_links():
    torch.manual_seed(0)
    model, data = Affinity().double().eval(), graph(CYCLE[:, :6])
    links = torch.tensor([[0, 2], [1, 4]])

    def value(kept):
        columns = torch.isin(torch.arange(6).repeat(2), torch.tensor([*kept]))
        with torch.no_grad():
            return float(model(data.x, data.edge_index[:, columns], links)[1])

    expected = enumerated(value, 6).repeat(2) / 2
    found = GuidedShapley(model, n_samples=ALL).attribute(ones(data), (1,), (data.x, data.edge_index, links))
    assert torch.allclose(found, expected, rtol=0, atol=1e-8)
    assert expected.abs().max() > 1e-3


class Papers(nn.Module):
    def __init__(self):
        super().__init__()
        self.writes = SAGEConv((3, 2), 4, aggr="sum")
        self.cites = SAGEConv(4, 4)
        self.last = nn.Linear(4, 2)

    def forward(self, x_dict, edge_index_dict):
        h = self.writes((x_dict["author"], x_dict["paper"]), edge_index_dict["author", "writes", "paper"])
        h = self.cites(h.relu(), edge_index_dict["paper", "cites", "paper"])
        return self.last(h.relu())


@pytest.mark.slow
def test_heterogeneous_graphs():
    torch.manual_seed(0)
    model = Papers().double().eval()
    writes, cites = torch.tensor([[0, 1, 1, 2], [0, 0, 1, 2]]), torch.tensor([[1, 2, 0], [0, 0, 2]])
    data = HeteroData()
    data["author"].x, data["paper"].x = torch.randn(3, 3).double(), torch.randn(3, 2).double()
    data["author", "writes", "paper"].edge_index, data["paper", "cites", "paper"].edge_index = writes, cites

    def value(kept):
        edges = {
            ("author", "writes", "paper"): writes[:, sorted(number for number in kept if number < 4)],
            ("paper", "cites", "paper"): cites[:, sorted(number - 4 for number in kept if number >= 4)],
        }
        with torch.no_grad():
            return float(model(data.x_dict, edges)[0, 1])

    expected = enumerated(value, 7)
    masks = {key: torch.ones(edges.size(1), dtype=torch.double) for key, edges in data.edge_index_dict.items()}
    for arguments in ((data.x_dict, data.edge_index_dict), data):
        found = GuidedShapley(model, n_samples=ALL).attribute(masks, (0, 1), arguments)
        assert list(found) == list(masks)
        assert torch.allclose(torch.cat([*found.values()]), expected, rtol=0, atol=1e-8)
    few = GuidedShapley(model, n_samples=8).attribute(masks, (0, 1), data)
    assert torch.allclose(torch.cat([*few.values()]).sum(), expected.sum())


SIZES = (3, 6, 8, 8, 7)


def batch_of_graphs():
    graphs = [graph(CYCLE[:, :size], seed=seed) for seed, size in enumerate(SIZES)]
    graphs[3].edge_index = both_ways(torch.tensor([[0, 1, 2, 3, 4, 0, 2, 1], [1, 2, 3, 4, 5, 2, 4, 5]]))
    return graphs, Batch.from_data_list(graphs)


@pytest.mark.parametrize("conv", ["gcn", "gin"])
@pytest.mark.parametrize("n_samples", [14, 64])
@pytest.mark.slow
def test_graphs_of_a_batch_have_the_values_that_they_have_alone(conv, n_samples):
    graphs, batch = batch_of_graphs()
    model, targets = classifier(conv), torch.tensor([0, 2, 1, 1, 0])
    shapley = GuidedShapley(model, n_samples=n_samples)
    options = {"return_convergence_delta": True, "return_standard_errors": True}
    arguments = (batch.x, batch.edge_index, batch.batch)
    found, delta, errors = shapley.attribute(ones(batch), targets, arguments, **options)
    parts = found.split([one.num_edges for one in graphs]), errors.split([one.num_edges for one in graphs])
    for number, (one, own, own_errors) in enumerate(zip(graphs, *parts, strict=True)):
        alone, _, alone_errors = shapley.attribute(ones(one), int(targets[number]), (one.x, one.edge_index), **options)
        assert torch.allclose(own, alone, atol=1e-10)
        assert torch.allclose(own_errors, alone_errors, atol=1e-7)
    assert delta.shape == (5,)
    assert delta.abs().max() < 1e-12
    with torch.no_grad():
        rows = torch.arange(5)
        lost = (model(*arguments) - model(batch.x, batch.edge_index[:, :0], batch.batch))[rows, targets]
    assert torch.allclose(torch.stack([part.sum() for part in parts[0]]), lost)
    assert torch.equal(shapley.attribute(ones(batch), targets, batch), found)


@pytest.mark.slow
def test_masks_of_one_graph():
    data, model = graph(), classifier()
    masks = torch.ones(3, 16, dtype=torch.double)
    masks[1, [2, 10]] = 0.0
    shapley, arguments = GuidedShapley(model, n_samples=20), (data.x, data.edge_index)
    found, delta = shapley.attribute(masks, [0, 1, 1], arguments, return_convergence_delta=True)
    assert torch.allclose(found[0], shapley.attribute(masks[0], 0, arguments))
    assert torch.allclose(found[2], shapley.attribute(masks[2], 1, arguments))
    assert delta.abs().max() < 1e-12
    kept = masks[1] == 1
    exact = GuidedShapley(model, n_samples=ALL)
    without = exact.attribute(masks[1][kept], 1, (data.x, data.edge_index[:, kept]))
    assert torch.allclose(exact.attribute(masks, [0, 1, 1], arguments)[1][kept], without)
    assert not found[1][~kept].any()


@pytest.mark.slow
def test_masks_that_are_not_ones_enter_at_the_adjacency():
    data, model = graph(CYCLE[:, :4]), classifier()
    mask = torch.tensor([1.0, 0.3, 0.6, 1.0], dtype=torch.double).repeat(2)
    masked = EdgeMaskedModel(model, at="adjacency")

    def value(kept):
        on = torch.isin(torch.arange(4), torch.tensor([*kept])).repeat(2)
        with torch.no_grad():
            return float(masked(mask * on, data.x, data.edge_index)[0, 1])

    found = GuidedShapley(model, n_samples=ALL).attribute(mask, 1, (data.x, data.edge_index))
    assert torch.allclose(found, enumerated(value, 4).repeat(2) / 2, rtol=0, atol=1e-8)


@pytest.mark.slow
def test_the_seed_decides():
    data, model = graph(), classifier()
    arguments = {"target": 1, "additional_forward_args": (data.x, data.edge_index)}
    first = GuidedShapley(model, n_samples=16).attribute(ones(data), **arguments)
    torch.manual_seed(5)
    assert torch.equal(GuidedShapley(model, n_samples=16).attribute(ones(data), **arguments), first)
    other = GuidedShapley(model, n_samples=16, random_state=1).attribute(ones(data), **arguments)
    assert not torch.allclose(other, first)
    assert torch.allclose(other.sum(), first.sum())
    assert torch.equal(GuidedShapley(model).attribute(ones(data), **arguments, n_samples=16), first)


@pytest.mark.slow
def test_more_coalitions_come_closer_whatever_the_guides():
    data, model = graph(both_ways(CYCLE)[:, :8]), classifier("gin")
    data.edge_index = both_ways(
        torch.tensor([[0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 0, 1], [1, 2, 3, 4, 5, 0, 3, 5, 4, 5, 2, 4]])
    )
    arguments = (data.x, data.edge_index)
    exact = GuidedShapley(model, n_samples=4096).attribute(ones(data), 1, arguments)
    wrong = -GOAtAttribution(model).attribute(ones(data), 1, arguments)
    for guides in (None, (), (wrong,)):
        errors = [
            torch.stack(
                [
                    GuidedShapley(model, guides, n_samples, random_state=seed).attribute(ones(data), 1, arguments)
                    - exact
                    for seed in range(5)
                ]
            ).norm()
            for n_samples in (8, 64, 1024)
        ]
        assert errors[0] > errors[1] > errors[2]
        assert errors[2] < 0.1 * exact.norm() * 5**0.5


def test_good_guides_help():
    data, model = graph(), classifier("gin")
    arguments = (data.x, data.edge_index)
    exact = GuidedShapley(model, n_samples=ALL).attribute(ones(data), 1, arguments)
    best = GuidedShapley(model, (exact,), n_samples=8).attribute(ones(data), 1, arguments)
    plain = GuidedShapley(model, (), n_samples=8).attribute(ones(data), 1, arguments)
    assert (best - exact).norm() < 0.3 * (plain - exact).norm()


def test_guides_may_be_methods():
    data, model = graph(), classifier()
    goat = GOAtAttribution(model)
    arguments = (data.x, data.edge_index)
    found = GuidedShapley(model, [goat], n_samples=16).attribute(ones(data), 1, arguments)
    given = GuidedShapley(model, [goat.attribute(ones(data), 1, arguments)], n_samples=16)
    assert torch.allclose(found, given.attribute(ones(data), 1, arguments))


@pytest.mark.slow
def test_standard_errors_tell_how_far_off_values_are():
    data, model = graph(), classifier("gin", seed=3)
    arguments = (data.x, data.edge_index)
    exact = GuidedShapley(model, n_samples=ALL).attribute(ones(data), 1, arguments)
    inside = []
    for seed in range(30):
        found, errors = GuidedShapley(model, n_samples=32, random_state=seed).attribute(
            ones(data), 1, arguments, return_standard_errors=True
        )
        assert (errors > 0).all()
        inside.append((found - exact).abs() <= 2 * errors)
    assert torch.stack(inside).double().mean() > 0.85


class Strongest(nn.Module):
    """A model that GOAt's adjacency masks do not allow: a maximum over messages."""

    def __init__(self):
        super().__init__()
        self.conv = SimpleConv(aggr="max")

    def forward(self, x, edge_index, batch=None):
        return global_add_pool(self.conv(x, edge_index), batch)


class NeedsEdges(GraphClassifier):
    def forward(self, x, edge_index, batch=None):
        if not edge_index.numel():
            raise IndexError("no edges")
        return super().forward(x, edge_index, batch)


def test_a_model_that_brings_edges_together_by_maxima_is_explained_by_deletion():
    data, model = graph(CYCLE[:, :5]), Strongest().eval()
    player = torch.arange(5).repeat(2)
    expected = enumerated(lambda kept: logit(model, data, torch.isin(player, torch.tensor([*kept])), 0, 1), 5)
    found = GuidedShapley(model, n_samples=ALL).attribute(ones(data), 1, (data.x, data.edge_index))
    assert torch.allclose(found, expected[player] / 2, rtol=0, atol=1e-8)
    few, delta = GuidedShapley(model, n_samples=8).attribute(
        ones(data), 1, (data.x, data.edge_index), return_convergence_delta=True
    )
    assert delta.abs() < 1e-12
    assert few.isfinite().all()


def test_a_model_that_does_not_run_without_edges_has_its_messages_masked():
    torch.manual_seed(0)
    model, data = NeedsEdges("gin", 4, 8, 3).double().eval(), graph()
    arguments = (data.x, data.edge_index)
    found = GuidedShapley(model).attribute(ones(data), 1, arguments)
    assert torch.allclose(found, GuidedShapley(model, at="message").attribute(ones(data), 1, arguments))
    with pytest.raises(Exception, match="does not run on the graph without some of its edges"):
        GuidedShapley(model, at="adjacency").attribute(ones(data), 1, arguments)


class MeanOverAll(GraphClassifier):
    """A model whose copies side by side are not independent."""

    def forward(self, x, edge_index, batch=None):
        h = self.embed(x, edge_index)
        return self.classifier((h - h.mean(dim=0)).square().mean(dim=0, keepdim=True))


def test_a_model_of_single_graphs_runs_one_coalition_after_another():
    torch.manual_seed(0)
    model, data = MeanOverAll("gin", 4, 8, 3).double().eval(), graph(CYCLE[:, :5])
    player = torch.arange(5).repeat(2)
    expected = enumerated(lambda kept: logit(model, data, torch.isin(player, torch.tensor([*kept])), 0, 1), 5)
    found = GuidedShapley(model, (), n_samples=ALL).attribute(ones(data), 1, (data.x, data.edge_index))
    assert torch.allclose(found, expected[player] / 2, rtol=0, atol=1e-8)


def test_graphs_with_one_edge_or_none():
    model = classifier("gin")
    graphs = [graph(CYCLE[:, :1]), graph(CYCLE[:, :1]), graph(CYCLE[:, :4])]
    graphs[0].edge_index = graphs[0].edge_index[:, :0]
    batch = Batch.from_data_list(graphs)
    found, delta = GuidedShapley(model, n_samples=4).attribute(
        ones(batch), 1, (batch.x, batch.edge_index, batch.batch), return_convergence_delta=True
    )
    assert delta.abs().max() < 1e-12
    assert torch.allclose(found[0], found[1])
    lone = graphs[0]
    assert GuidedShapley(model).attribute(ones(lone), 1, (lone.x, lone.edge_index)).shape == (0,)


def test_float32_and_bound_graphs_and_noise_tunnels():
    data = graph()
    model, x = classifier().float(), data.x.float()
    bound = EdgeMaskedModel(model, at="adjacency", data=(x, data.edge_index))
    shapley = GuidedShapley(bound, n_samples=16)
    found = shapley.attribute(torch.ones(16), target=1)
    assert found.dtype == torch.float32
    smooth = NoiseTunnel(shapley).attribute(torch.ones(1, 16), nt_samples=2, stdevs=0.0, target=1)
    assert torch.allclose(smooth[0], found, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_samples": 1}, "Expected n_samples to be an integer from 2 on"),
        ({"n_samples": 8.0}, "Expected n_samples to be an integer from 2 on"),
        ({"regularization": 0.0}, "Expected regularization to be a positive number"),
        ({"at": "edges"}, "Expected at to be 'message' or 'adjacency'"),
        ({"guides": [1.0]}, "Expected guides that are captum Attributions or tensors"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        GuidedShapley(classifier(), **options)


def test_wrong_arguments():
    data, model = graph(), classifier()
    arguments = (data.x, data.edge_index)
    with pytest.raises(ValueError, match="Expected a model in evaluation mode"):
        GuidedShapley(classifier().train()).attribute(ones(data), 1, arguments)
    with pytest.raises(ValueError, match="Expected guides of the masks' shapes"):
        GuidedShapley(model, [torch.ones(3)]).attribute(ones(data), 1, arguments)
    with pytest.raises(ValueError, match="Expected finite guides"):
        GuidedShapley(model, [torch.full((16,), torch.nan)]).attribute(ones(data), 1, arguments)
    with pytest.raises(ValueError, match="Expected a feature mask that is a tensor of integers"):
        GuidedShapley(model).attribute(ones(data), 1, arguments, feature_mask=ones(data))
    with pytest.raises(ValueError, match="Expected a feature mask that fits"):
        GuidedShapley(model).attribute(ones(data), 1, arguments, feature_mask=torch.arange(3))
    with pytest.raises(ValueError, match="Expected n_samples to be an integer from 2 on"):
        GuidedShapley(model).attribute(ones(data), 1, arguments, n_samples=0)
    nodes = NodeClassifier("gcn", 4, 8, 3).double().eval()
    with pytest.raises(ValueError, match="Choose one row of the output"):
        GuidedShapley(nodes).attribute(ones(data), 1, arguments)
    with pytest.raises(ValueError, match="Expected a graph with edges among the arguments"):
        GuidedShapley(nn.Linear(2, 2).eval()).attribute(torch.ones(3, 2), 1)


def test_large_graphs_are_explained_by_groups_and_add_up():
    torch.manual_seed(0)
    edges = torch.stack([torch.arange(1, 1201), (torch.rand(1200) * torch.arange(1, 1201)).long()])
    large, model = graph(edges), classifier("gin")
    batch = Batch.from_data_list([large, graph()])
    arguments = (batch.x, batch.edge_index, batch.batch)
    found, delta, errors = GuidedShapley(model, n_samples=20).attribute(
        ones(batch), 1, arguments, return_convergence_delta=True, return_standard_errors=True
    )
    assert delta.abs().max() < 1e-10
    assert len(found[:1200].unique()) > 1000  # guides tell edges of a group apart
    assert (errors >= 0).all()
    alone = GuidedShapley(model, n_samples=20).attribute(ones(large), 1, (large.x, large.edge_index))
    assert torch.allclose(found[:2400], alone, atol=1e-10)
    equal = GuidedShapley(model, (), n_samples=20).attribute(ones(large), 1, (large.x, large.edge_index))
    assert len(equal.unique()) <= 256


@pytest.mark.parametrize("conv", ["gcn", "gin"])
@pytest.mark.slow
def test_the_order_of_nodes_and_edges_does_not_matter(conv):
    edges = both_ways(torch.tensor([[0, 0, 1, 2, 3, 4, 5, 6, 6, 2, 1, 7], [1, 2, 2, 3, 4, 5, 6, 7, 8, 9, 5, 10]]))
    generator = torch.Generator().manual_seed(3)
    x, model = torch.randn(11, 4, generator=generator, dtype=torch.double), classifier(conv)
    shapley = GuidedShapley(model, n_samples=20)
    found, errors = shapley.attribute(torch.ones(24).double(), 1, (x, edges), return_standard_errors=True)
    for _ in range(5):
        nodes, columns = torch.randperm(11, generator=generator), torch.randperm(24, generator=generator)
        again, again_errors = shapley.attribute(
            torch.ones(24).double(), 1, (x[nodes], nodes.argsort()[edges][:, columns]), return_standard_errors=True
        )
        assert torch.allclose(again, found[columns], rtol=0, atol=1e-6)
        assert torch.allclose(again_errors, errors[columns], rtol=0, atol=1e-6)


def test_the_order_of_nodes_does_not_matter_in_heterogeneous_graphs():
    torch.manual_seed(0)
    model, generator = Papers().double().eval(), torch.Generator().manual_seed(0)
    writes, cites = torch.tensor([[0, 1, 1, 2, 3, 3], [0, 0, 1, 2, 1, 2]]), torch.tensor([[1, 2, 0, 3], [0, 0, 2, 0]])
    authors, papers = torch.randn(4, 3).double(), torch.randn(4, 2).double()
    shapley = GuidedShapley(model, n_samples=20)

    def attributed(first, second, row):
        edges = {
            ("author", "writes", "paper"): torch.stack([first.argsort()[writes[0]], second.argsort()[writes[1]]]),
            ("paper", "cites", "paper"): second.argsort()[cites],
        }
        masks = {key: torch.ones(columns.size(1)).double() for key, columns in edges.items()}
        found = shapley.attribute(masks, (row, 1), ({"author": authors[first], "paper": papers[second]}, edges))
        return torch.cat([*found.values()])

    expected = attributed(torch.arange(4), torch.arange(4), 0)
    for _ in range(5):
        first, second = torch.randperm(4, generator=generator), torch.randperm(4, generator=generator)
        found = attributed(first, second, int(second.argsort()[0]))
        assert torch.allclose(found, expected, rtol=0, atol=1e-6)
