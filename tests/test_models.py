from __future__ import annotations

import builtins
from typing import Any

import pytest
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GCNConv, GINConv, SAGEConv

from captum_goat.datasets import ba_2motifs
from captum_goat.models import GraphClassifier, train_classifier


def classifier(conv: Any, hidden_channels: int = 16, **options: Any) -> GraphClassifier:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return GraphClassifier(conv, in_channels=10, hidden_channels=hidden_channels, num_classes=2, **options)


def weights(model: GraphClassifier) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@pytest.fixture(scope="module")
def graphs() -> list[Data]:
    return ba_2motifs(num_graphs=200)


@pytest.mark.parametrize(("conv", "layer"), [("gcn", GCNConv), ("sage", SAGEConv), ("gin", GINConv)])
def test_layers_and_logits_of_a_batch(conv: str, layer: type, graphs: list[Data]) -> None:
    model = classifier(conv, num_layers=2).eval()
    assert [type(each) for each in model.convs] == [layer, layer]
    batch = Batch.from_data_list(graphs[:3])
    together = model(batch.x, batch.edge_index, batch.batch)
    assert together.shape == (3, 2)
    one_by_one = torch.cat([model(graph.x, graph.edge_index) for graph in graphs[:3]])
    torch.testing.assert_close(together, one_by_one)


def test_options_of_the_layers() -> None:
    assert [conv.normalize for conv in classifier("gcn").convs] == [True] * 3
    assert [conv.normalize for conv in classifier("gcn", normalize=False).convs] == [False] * 3
    assert [conv.aggr for conv in classifier("sage").convs] == ["sum"] * 3
    assert all(conv.eps.requires_grad for conv in classifier("gin").convs)


def test_unknown_convolution() -> None:
    with pytest.raises(ValueError, match=r"Expected conv to be 'gcn', 'sage' or 'gin' \(got 'gat'\)"):
        classifier("gat")


@pytest.mark.parametrize(
    ("conv", "num_graphs", "epochs", "batch_size"), [("gin", 300, 20, 32), ("sage", 300, 60, 16), ("gcn", 1000, 60, 64)]
)
def test_training_learns_the_motifs(conv: str, num_graphs: int, epochs: int, batch_size: int) -> None:
    model = classifier(conv, hidden_channels=32, normalize=False)
    result = train_classifier(model, ba_2motifs(num_graphs), epochs=epochs, batch_size=batch_size, progress=False)
    assert not model.training
    assert min(result.train_accuracy, result.validation_accuracy, result.test_accuracy) >= 0.95


def test_reported_accuracies_are_those_of_the_weights_left_in_the_model(graphs: list[Data]) -> None:
    model = classifier("gin")
    result = train_classifier(model, graphs, epochs=3, progress=False)
    batch = Batch.from_data_list(result.test_graphs)
    with torch.no_grad():
        right = model(batch.x, batch.edge_index, batch.batch).argmax(dim=1) == batch.y
    assert len(result.test_graphs) == 20
    assert float(right.float().mean()) == pytest.approx(result.test_accuracy)


def test_best_weights_come_back_when_training_diverges(graphs: list[Data]) -> None:
    model = classifier("sage")
    before = weights(model)
    train_classifier(model, graphs, epochs=2, lr=1e3, progress=False)
    assert weights(model).abs().max() < 100  # steps of 1000 ruin the weights; those from before are the best
    torch.testing.assert_close(weights(model), before)


def trained_weights(graphs: list[Data], seed: int = 0) -> tuple[torch.Tensor, list[int]]:
    model = classifier("gin")
    before = weights(model)
    tested = train_classifier(model, graphs, epochs=10, lr=0.01, batch_size=32, seed=seed, progress=False).test_graphs
    assert not torch.equal(weights(model), before), "the best epoch is the untrained model: nothing is compared"
    return weights(model), [id(graph) for graph in tested]


def test_seeds_reproduce_and_differ(graphs: list[Data]) -> None:
    (first, first_test), (again, again_test), (other, other_test) = (
        trained_weights(graphs, seed) for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert first_test == again_test
    assert not torch.equal(first, other)
    assert first_test != other_test


def test_global_random_state_is_neither_changed_nor_read(graphs: list[Data]) -> None:
    trained = []
    for global_seed in (5, 6):
        torch.manual_seed(global_seed)
        state = torch.get_rng_state()
        trained.append(trained_weights(graphs)[0])
        assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(*trained)


def test_too_few_graphs(graphs: list[Data]) -> None:
    with pytest.raises(ValueError, match=r"at least 10 graphs.*got 9"):
        train_classifier(classifier("gin"), graphs[:9], epochs=1)


def test_progress_bar(graphs: list[Data], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    train_classifier(classifier("gcn"), graphs[:20], epochs=2, progress=True)
    assert "2/2" in capsys.readouterr().err
    train_classifier(classifier("gcn"), graphs[:20], epochs=2, progress=False)
    assert not capsys.readouterr().err

    real_import = builtins.__import__

    def without_tqdm(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "tqdm":
            raise ImportError(name)
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_tqdm)
    train_classifier(classifier("gcn"), graphs[:20], epochs=2, progress=True)
    assert not capsys.readouterr().err
