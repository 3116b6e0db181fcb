from __future__ import annotations

from itertools import combinations, pairwise

import pytest
import torch
from torch import nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GCNConv, SAGEConv, global_mean_pool

from captum_goat import EdgeMaskedModel, EdgeSetSearch, GuidedShapley
from captum_goat.models import GraphClassifier, NodeClassifier

SHARES = (0.15, 0.3, 0.45)


class Textbook(nn.Module):
    """A GCN with degree normalisation; another convolution or number of outputs if wanted."""

    def __init__(self, conv=GCNConv, classes=3, **options):
        super().__init__()
        self.conv1, self.conv2 = conv(4, 8, **options), conv(8, 8, **options)
        self.last = nn.Linear(8, classes)

    def forward(self, x, edge_index, batch=None):
        x = self.conv2(self.conv1(x, edge_index).relu(), edge_index).relu()
        return self.last(global_mean_pool(x, batch))


def made(kind="gin", **options):
    torch.manual_seed(0)
    model = Textbook(**options) if kind == "textbook" else GraphClassifier(kind, 4, 8, 3)
    return decisive(model)


def decisive(model):
    """Scale the last layer, so that probabilities differ."""
    layer = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
    layer.requires_grad_(False).weight.mul_(30.0)
    return model.double().eval()


def graph(seed, nodes=9, more=4):
    """A random tree with some more edges, undirected."""
    generator = torch.Generator().manual_seed(seed)
    edges = {(int(torch.randint(0, node, (1,), generator=generator)), node) for node in range(1, nodes)}
    while len(edges) < nodes - 1 + more:
        edges.add(tuple(sorted(torch.randperm(nodes, generator=generator)[:2].tolist())))
    one_way = torch.tensor(sorted(edges)).t()
    x = 3.0 * torch.randn(nodes, 4, generator=generator, dtype=torch.double)
    return Data(x=x, edge_index=torch.cat([one_way, one_way.flip(0)], dim=1))


def batch_of(count=4):
    return Batch.from_data_list([graph(seed, nodes=8 + seed) for seed in range(count)])


def ones(data):
    return torch.ones(data.num_edges, dtype=torch.double)


def searched(model, data, target, n_passes=40, **options):
    search = EdgeSetSearch(model, n_passes, **options)
    return search.attribute(ones(data), target, (data.x, data.edge_index, data.batch), return_sets=True)


def probability(model, data, kept, target):
    with torch.no_grad():
        output = model(data.x, data.edge_index[:, kept], data.batch)
    return output.softmax(dim=1)[torch.arange(len(output)), torch.as_tensor(target)]


@pytest.mark.parametrize("kind", ["gin", "textbook"])
def test_what_is_returned_of_sets_is_what_the_model_says_without_the_other_edges(kind):
    model, data, target = made(kind), batch_of(), [0, 1, 2, 1]
    scores, sets = searched(model, data, target)
    of_graph = data.batch[data.edge_index[0]]
    counts = of_graph.bincount().double() / 2
    assert torch.equal(sets.sizes, torch.stack([(share * counts + 1e-6).long() for share in SHARES], dim=1))
    for number, size in enumerate(sets.sizes.t()):
        chosen = scores > 1 - (size / counts)[of_graph] + 1e-9
        assert torch.equal(of_graph[chosen].bincount(), 2 * size)
        assert torch.allclose(sets.sufficient[:, number], probability(model, data, chosen, target))
        assert torch.allclose(sets.necessary[:, number], probability(model, data, ~chosen, target))
    for number, count in enumerate(counts.long()):  # an order: every place once, for both directions
        both = scores[of_graph == number].view(2, -1)
        assert torch.allclose(both[0].sort().values, torch.arange(1, count + 1, dtype=torch.double) / count)
        assert torch.equal(both[0], both[1])


@pytest.mark.parametrize("kind", ["gin", "textbook"])
@pytest.mark.slow
def test_more_passes_are_never_worse_and_mostly_better(kind):
    model, data = made(kind), batch_of(6)

    def quality(n_passes):
        _, sets = searched(model, data, 1, n_passes)
        return (sets.sufficient - sets.necessary).mean(dim=1)

    qualities = [quality(n_passes) for n_passes in (0, 25, 50)]
    for before, after in pairwise(qualities):
        assert (after >= before - 1e-12).all()
    assert (qualities[-1] > 1.02 * qualities[0]).sum() >= 4


def test_the_start_is_the_best_of_the_given_orders():
    model, data, share = made(), graph(3), 0.5
    measured = []
    starts = [torch.randn(data.num_edges, generator=torch.Generator().manual_seed(seed)).double() for seed in range(5)]
    for start in starts:
        ranked = start.view(2, -1).sum(dim=0).argsort(descending=True)
        chosen = torch.isin(torch.arange(12), ranked[:6]).repeat(2)
        kept, removed = (probability(model, data, part, [2]) for part in (chosen, ~chosen))
        measured.append(kept - removed)
    _, sets = searched(model, data, [2], 0, shares=(share,), starts=starts)
    assert sets.sufficient - sets.necessary >= torch.stack(measured).max() - 1e-12


@pytest.mark.slow
def test_small_graphs_reach_what_an_enumeration_of_all_sets_finds():
    reached = []
    for seed in range(6):
        data = graph(seed, nodes=7, more=3)
        torch.manual_seed(seed)
        model = decisive(GraphClassifier("gin", 4, 8, 2))
        _, sets = searched(model, data, [0], 80, shares=(1 / 3,))
        differences = []
        for chosen in combinations(range(9), 3):
            kept = torch.isin(torch.arange(9), torch.tensor(chosen)).repeat(2)
            differences.append(probability(model, data, kept, [0]) - probability(model, data, ~kept, [0]))
        best, found = max(differences), sets.sufficient[0] - sets.necessary[0]
        assert found <= best + 1e-12
        reached.append(bool(found > best - 1e-9))
    assert sum(reached) >= 5


@pytest.mark.slow
def test_graphs_are_searched_alone_as_in_a_batch_and_always_alike():
    model, data = made(), batch_of()
    scores, sets = searched(model, data, 0)
    again, _ = searched(model, data, 0)
    assert torch.equal(scores, again)
    for number, single in enumerate(data.to_data_list()):
        alone, sets_alone = searched(model, single, 0)
        assert torch.equal(alone, scores[data.batch[data.edge_index[0]] == number])
        assert torch.allclose(sets_alone.sufficient[0], sets.sufficient[number])


@pytest.mark.slow
def test_masks_of_one_graph_and_edges_that_are_absent():
    model, data = made(), graph(1)
    masks = torch.ones(2, data.num_edges, dtype=torch.double)
    masks[1, [0, 12]] = 0.0
    scores = EdgeSetSearch(model).attribute(masks, [0, 1], (data.x, data.edge_index))
    assert torch.equal(scores[0], searched(model, data, [0], 30)[0])
    assert scores[1, [0, 12]].tolist() == [0.0, 0.0]
    smaller = Data(x=data.x, edge_index=data.edge_index[:, masks[1] == 1])
    assert torch.equal(scores[1, masks[1] == 1], searched(model, smaller, [1], 30)[0])


@pytest.mark.parametrize("options", [{"conv": SAGEConv, "aggr": "max"}, {"classes": 1}])
def test_models_that_take_no_masks_at_the_adjacency_and_models_with_one_logit(options):
    model, data = made("textbook", **options), graph(2)
    scores, sets = searched(model, data, [0], shares=(0.5,))
    chosen = scores > 0.5
    with torch.no_grad():
        outputs = [model(data.x, data.edge_index[:, part]) for part in (chosen, ~chosen)]
    kept, removed = (
        output.sigmoid().view(-1) if "classes" in options else output.softmax(dim=1)[:, 0] for output in outputs
    )
    assert torch.allclose(torch.stack([sets.sufficient[0], sets.necessary[0]]), torch.stack([kept, removed]))


def test_masked_messages_groups_of_edges_nodes_and_further_starts():
    torch.manual_seed(1)
    model, data = NodeClassifier("gcn", 4, 8, 3, num_layers=2).double().eval(), graph(5)
    groups = torch.arange(12).repeat(2) // 3  # four groups
    search = EdgeSetSearch(EdgeMaskedModel(model), shares=(0.5,), starts=(GuidedShapley(model, n_samples=8),))
    scores, sets = search.attribute(ones(data), (3, 2), (data.x, data.edge_index), groups, return_sets=True)
    assert sorted(set(scores.tolist())) == [0.25, 0.5, 0.75, 1.0]
    assert all(len(set(scores[groups == group].tolist())) == 1 for group in range(4))
    with torch.no_grad():
        output = EdgeMaskedModel(model)((scores > 0.5).double(), data.x, data.edge_index)
    assert torch.allclose(sets.sufficient[0, 0], output.softmax(dim=1)[3, 2])
    assert search.at == "message"
    assert not search.has_convergence_delta()


def test_a_graph_without_edges_has_no_scores():
    data = Data(x=torch.randn(3, 4).double(), edge_index=torch.zeros(2, 0, dtype=torch.long))
    scores, sets = EdgeSetSearch(made()).attribute(ones(data), 0, (data.x, data.edge_index), return_sets=True)
    assert scores.shape == (0,)
    assert sets.sizes.tolist() == [[0, 0, 0]]


def test_bad_arguments_are_named():
    model, data = made(), graph(0)
    for shares in ((), (0.5, 0.3), (0.0, 0.5), (0.5, 1.0), (0.5, 0.5)):
        with pytest.raises(ValueError, match="Expected ascending shares between 0 and 1"):
            EdgeSetSearch(model, shares=shares)
    for n_passes in (-1, 2.5, True):
        with pytest.raises(ValueError, match="Expected n_passes to be an integer from 0 on"):
            EdgeSetSearch(model, n_passes)
    with pytest.raises(TypeError, match=r"Expected starts that are captum Attributions or tensors \(got str\)"):
        EdgeSetSearch(model, starts=("goat",))
    with pytest.raises(ValueError, match="Expected guides of the masks' shapes"):
        searched(model, data, [0], starts=(torch.ones(3),))
    with pytest.raises(ValueError, match="evaluation mode"):
        searched(made().train(), data, [0])
