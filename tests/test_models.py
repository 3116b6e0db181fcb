from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import randomize
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GCNConv, GINConv, SAGEConv

from captum_goat import EdgeMaskedModel, GOAtAttribution
from captum_goat.datasets import ba_2motifs
from captum_goat.models import GraphClassifier, NodeClassifier, RootClassifier

PAPER_GCN = {"conv": "gcn", "normalize": False, "l2_normalize": True}
ALL = [{"conv": "gcn"}, PAPER_GCN, {"conv": "sage"}, {"conv": "gin"}]


def classifier(conv: Any, kind: Any = GraphClassifier, **options: Any) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return kind(conv, in_channels=10, hidden_channels=16, num_classes=2, **options)


@pytest.fixture(scope="module")
def graphs() -> list[Data]:
    graphs = ba_2motifs(num_graphs=3)
    for index, graph in enumerate(graphs):
        graph.x = torch.randn(25, 10, generator=torch.Generator().manual_seed(index))
    return graphs


@pytest.mark.parametrize(("conv", "layer"), [("gcn", GCNConv), ("sage", SAGEConv), ("gin", GINConv)])
def test_layers_and_logits_of_a_batch(conv: str, layer: type, graphs: list[Data]) -> None:
    model = classifier(conv, num_layers=2).eval()
    assert [type(conv) for conv in model.convs] == [layer, layer]
    batch = Batch.from_data_list(graphs)
    together = model(batch.x, batch.edge_index, batch.batch)
    assert together.shape == (3, 2)
    one_by_one = torch.cat([model(graph.x, graph.edge_index) for graph in graphs])
    torch.testing.assert_close(together, one_by_one)


def test_options_of_the_layers() -> None:
    assert [conv.normalize for conv in classifier("gcn").convs] == [True] * 3
    assert [conv.normalize for conv in classifier("gcn", normalize=False).convs] == [False] * 3
    assert [conv.aggr for conv in classifier("sage").convs] == ["sum"] * 3
    for conv in classifier("gin").convs:
        assert conv.eps.requires_grad
        kinds = [type(layer) for layer in conv.nn]
        assert kinds == [nn.Linear, nn.ReLU, nn.Linear, nn.ReLU, nn.BatchNorm1d]
    assert [module.p for module in classifier("gin", dropout=0.5).modules() if isinstance(module, nn.Dropout)] == [0.5]


def by_hand(model: Any, kind: str, x: Tensor, adjacency: Tensor) -> Tensor:
    """Compute a classifier of one graph with matrices; ``adjacency[i, j]`` is 1 for an edge from j to i."""
    for conv in model.convs:
        if kind == "gcn":  # the authors': no self-loops, no degrees, but features of length 1
            x = adjacency @ (x / x.norm(dim=1, keepdim=True).clamp(min=1e-12)) @ conv.lin.weight.T + conv.bias
            x = x.clamp(min=0)
        elif kind == "gcn_textbook":
            looped = adjacency + torch.eye(len(x), dtype=x.dtype)
            scale = looped.sum(dim=1).rsqrt()
            x = (scale.view(-1, 1) * looped * scale @ x @ conv.lin.weight.T + conv.bias).clamp(min=0)
        elif kind == "sage":
            x = (adjacency @ x @ conv.lin_l.weight.T + conv.lin_l.bias + x @ conv.lin_r.weight.T).clamp(min=0)
        else:
            x = (1 + conv.eps) * x + adjacency @ x
            first, _, second, _, norm = conv.nn
            x = (x @ first.weight.T + first.bias).clamp(min=0)
            x = (x @ second.weight.T + second.bias).clamp(min=0)
            x = (x - norm.running_mean) / (norm.running_var + norm.eps).sqrt() * norm.weight + norm.bias
    if isinstance(model, GraphClassifier):
        x = x.mean(dim=0, keepdim=True)
    first, _, _, second = model.classifier
    return (x @ first.weight.T + first.bias).clamp(min=0) @ second.weight.T + second.bias


@pytest.mark.parametrize("level", [GraphClassifier, NodeClassifier])
@pytest.mark.parametrize(
    ("kind", "options"), [("gcn", PAPER_GCN), ("gcn_textbook", ALL[0]), ("sage", ALL[2]), ("gin", ALL[3])]
)
def test_against_matrices(level: type, kind: str, options: dict[str, Any]) -> None:
    generator = torch.Generator().manual_seed(0)
    adjacency = (torch.rand(7, 7, generator=generator) < 0.3).double().triu(1)
    adjacency = adjacency + adjacency.T
    x = torch.randn(7, 10, generator=generator, dtype=torch.float64)
    model = randomize(classifier(kind=level, **options).double(), seed=3)
    with torch.no_grad():
        output = model(x, adjacency.nonzero().T.contiguous())
        torch.testing.assert_close(output, by_hand(model, kind, x, adjacency))


def test_nodes_have_a_row_each_and_do_not_care_for_batches(graphs: list[Data]) -> None:
    model = classifier("gin", NodeClassifier).eval()
    batch = Batch.from_data_list(graphs)
    rows = model(batch.x, batch.edge_index)
    assert rows.shape == (75, 2)
    assert torch.equal(model(batch.x, batch.edge_index, batch.batch), rows)


def test_both_levels_have_the_same_parameters() -> None:
    first, second = (classifier("gin", level).state_dict() for level in (GraphClassifier, NodeClassifier))
    assert all(torch.equal(first[name], second[name]) for name in first.keys() | second.keys())


def test_roots(graphs: list[Data]) -> None:
    model = classifier("sage", NodeClassifier).eval()
    rooted, batch = RootClassifier(model), Batch.from_data_list([graphs[0], graphs[1].subgraph(torch.arange(3))])
    assert not rooted.training
    rows = model(batch.x, batch.edge_index)
    assert torch.equal(rooted(batch.x, batch.edge_index, batch.batch), rows[[0, 25]])
    assert torch.equal(rooted(batch.x, batch.edge_index), rows[:1])
    assert RootClassifier(classifier("sage", NodeClassifier)).training


@pytest.mark.parametrize("options", ALL, ids=["gcn_textbook", "gcn", "sage", "gin"])
@pytest.mark.parametrize("level", [GraphClassifier, NodeClassifier])
def test_all_models_are_explained_exactly(level: type, options: dict[str, Any], graphs: list[Data]) -> None:
    model = randomize(classifier(kind=level, **options).double(), seed=3)
    model = model if level is GraphClassifier else RootClassifier(model)
    batch = Batch.from_data_list(graphs)
    arguments, mask = (batch.x.double(), batch.edge_index, batch.batch), torch.ones(batch.num_edges).double()
    attributions = GOAtAttribution(model).attribute(mask, 1, arguments)
    sums = torch.zeros(3).double().index_add(0, batch.batch[batch.edge_index[0]], attributions)
    with torch.no_grad():
        without = EdgeMaskedModel(model)(torch.zeros_like(mask), *arguments)
        torch.testing.assert_close(sums, (model(*arguments) - without)[:, 1])


def test_dropout_in_training_only(graphs: list[Data]) -> None:
    model, graph = classifier("sage", dropout=0.5), graphs[0]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        outputs = {tuple(model(graph.x, graph.edge_index)[0].tolist()) for _ in range(10)}
        assert len(outputs) > 1
        assert len({tuple(model.eval()(graph.x, graph.edge_index)[0].tolist()) for _ in range(10)}) == 1


def test_scaled_features_make_no_difference_to_the_paper_s_gcn(graphs: list[Data]) -> None:
    model, graph = classifier(**PAPER_GCN).eval(), graphs[0]
    torch.testing.assert_close(model(5 * graph.x, graph.edge_index), model(graph.x, graph.edge_index))
    torch.testing.assert_close(model(F.normalize(graph.x), graph.edge_index), model(graph.x, graph.edge_index))


def test_unknown_convolution() -> None:
    with pytest.raises(ValueError, match=r"Expected conv to be 'gcn', 'sage' or 'gin' \(got 'gat'\)"):
        classifier("gat")
