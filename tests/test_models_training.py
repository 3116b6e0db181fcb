from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Batch, Data

from benchmarks.datasets import ba_shapes
from benchmarks.paper_models import L2NodeClassifier
from benchmarks.trained_weights import fingerprint, train_once
from benchmarks.training import train_classifier
from captum_goat.datasets import ba_2motifs
from captum_goat.models import GraphClassifier, NodeClassifier, train_model


def classifier(conv: Any, hidden_channels: int = 16, **options: Any) -> GraphClassifier:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return GraphClassifier(conv, in_channels=10, hidden_channels=hidden_channels, num_classes=2, **options)


def node_classifier(conv: Any = "gin", seed: int = 0, level: Any = NodeClassifier, **options: Any) -> NodeClassifier:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return level(conv, in_channels=10, hidden_channels=16, num_classes=4, **options)


def weights(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([value.detach().double().flatten() for value in model.state_dict().values()])


@pytest.fixture(scope="module")
def graphs() -> list[Data]:
    return ba_2motifs(num_graphs=200)


@pytest.fixture(scope="module")
def shapes() -> Data:
    return ba_shapes(num_base=60, num_motifs=20)


@pytest.mark.slow
def test_training_learns_the_motifs() -> None:  # the other convolutions are trained in test_trained_models.py
    model = classifier("gin", hidden_channels=32)
    result = train_classifier(model, ba_2motifs(300), epochs=20, batch_size=32, show_progress=False)
    assert not model.training
    assert min(result.train_accuracy, result.validation_accuracy, result.test_accuracy) >= 0.95


@pytest.mark.slow
def test_training_learns_the_places_of_nodes() -> None:
    model, shapes = node_classifier(), ba_shapes(num_base=150, num_motifs=50)
    result = train_classifier(model, shapes, epochs=150, lr=0.01, show_progress=False)
    assert not model.training
    assert min(result.train_accuracy, result.validation_accuracy, result.test_accuracy) > 0.8  # 0.38 are class 0


@pytest.mark.parametrize("level", ["graph", "node"])
@pytest.mark.slow
def test_short_training_is_that_of_the_benchmark_with_its_defaults(
    level: str, graphs: list[Data], shapes: Data
) -> None:
    make, data = (classifier, graphs) if level == "graph" else (node_classifier, shapes)
    model, other, untrained = make("gin", dropout=0.5), make("gin", dropout=0.5), make("gin", dropout=0.5)
    torch.manual_seed(5)
    state = torch.get_rng_state()
    result = train_model(model, data, epochs=10, lr=0.01, seed=3, show_progress=False)
    assert torch.equal(torch.get_rng_state(), state)
    expected = train_classifier(other, data, epochs=10, lr=0.01, seed=3, show_progress=False)
    assert expected.best_epoch > 0
    assert torch.equal(weights(model), weights(other))
    assert not torch.equal(weights(model), weights(untrained))
    assert not model.training
    assert result.test_accuracy == expected.test_accuracy
    assert torch.equal(result.test_set, expected.split.test)


def test_reported_accuracies_are_those_of_the_weights_left_in_the_model(graphs: list[Data]) -> None:
    model = classifier("gin")
    result = train_classifier(model, graphs, epochs=3, show_progress=False)
    assert [len(part) for part in result.split] == [160, 20, 20]
    assert sorted(torch.cat(result.split).tolist()) == list(range(200))
    for part, accuracy in zip(result.split, result, strict=False):
        batch = Batch.from_data_list([graphs[index] for index in part.tolist()])
        with torch.no_grad():
            right = model(batch.x, batch.edge_index, batch.batch).argmax(dim=1) == batch.y
        assert float(right.float().mean()) == pytest.approx(accuracy)


def test_nodes_are_split_by_the_masks(shapes: Data) -> None:
    model = node_classifier()
    result = train_classifier(model, shapes, epochs=5, show_progress=False)
    with torch.no_grad():
        right = model(shapes.x, shapes.edge_index).argmax(dim=1) == shapes.y
    for name, part, accuracy in zip(("train_mask", "val_mask", "test_mask"), result.split, result, strict=False):
        assert part.tolist() == shapes[name].nonzero().view(-1).tolist()
        assert float(right[shapes[name]].float().mean()) == pytest.approx(accuracy)


def test_labels_of_other_nodes_are_not_learned_from(shapes: Data) -> None:
    other = shapes.clone()
    other.y = torch.where(shapes.test_mask, (shapes.y + 1) % 4, shapes.y)
    first, second = node_classifier(), node_classifier()
    train_classifier(first, shapes, epochs=5, show_progress=False)
    train_classifier(second, other, epochs=5, show_progress=False)
    assert torch.equal(weights(first), weights(second))


def test_best_weights_come_back_when_training_diverges(graphs: list[Data]) -> None:
    model = classifier("sage")
    before = weights(model)
    result = train_classifier(model, graphs, epochs=2, lr=1e3, show_progress=False)
    assert weights(model).abs().max() < 100  # steps of 1000 ruin the weights; those from before are the best
    torch.testing.assert_close(weights(model), before)
    assert result.best_epoch == 0


@pytest.mark.slow
def test_best_epoch_is_where_its_weights_are_from(shapes: Data) -> None:
    model, shorter = node_classifier(), node_classifier()
    best_epoch = train_classifier(model, shapes, epochs=40, lr=0.01, show_progress=False).best_epoch
    assert 0 < best_epoch <= 40
    train_classifier(shorter, shapes, epochs=best_epoch, lr=0.01, show_progress=False)
    assert torch.equal(weights(model), weights(shorter))


@pytest.mark.slow
def test_weight_decay_keeps_weights_small(shapes: Data) -> None:
    sizes = []
    for weight_decay in (0.0, 0.1):
        model = node_classifier("sage")
        train_classifier(model, shapes, epochs=60, lr=0.01, weight_decay=weight_decay, show_progress=False)
        sizes.append(float(weights(model).norm()))
    assert sizes[1] < sizes[0]


def trained_weights(graphs: list[Data], seed: int = 0) -> tuple[torch.Tensor, list[int]]:
    model = classifier("gin")
    before = weights(model)
    result = train_classifier(model, graphs, epochs=10, lr=0.01, batch_size=32, seed=seed, show_progress=False)
    assert not torch.equal(weights(model), before), "the best epoch is the untrained model: nothing is compared"
    return weights(model), result.split.test.tolist()


@pytest.mark.slow
def test_seeds_reproduce_and_differ(graphs: list[Data]) -> None:
    (first, first_test), (again, again_test), (other, other_test) = (
        trained_weights(graphs, seed) for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert first_test == again_test
    assert not torch.equal(first, other)
    assert first_test != other_test


@pytest.mark.slow
def test_global_random_state_is_neither_changed_nor_read(graphs: list[Data]) -> None:
    trained = []
    for global_seed in (5, 6):
        torch.manual_seed(global_seed)
        state = torch.get_rng_state()
        trained.append(trained_weights(graphs)[0])
        assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(*trained)


@pytest.mark.parametrize("train", [train_model, train_classifier])
def test_too_few_graphs(train: Any, graphs: list[Data]) -> None:
    with pytest.raises(ValueError, match=r"at least 10 graphs.*got 9"):
        train(classifier("gin"), graphs[:9], epochs=1)


@pytest.mark.parametrize("train", [train_model, train_classifier])
def test_no_masks(train: Any, shapes: Data) -> None:
    data = Data(x=shapes.x, edge_index=shapes.edge_index, y=shapes.y, train_mask=shapes.train_mask)
    with pytest.raises(ValueError, match=r"Expected a graph with train_mask, .*\(got one without val_mask\)"):
        train(node_classifier(), data, epochs=1)


def test_progress_bar(graphs: list[Data], capsys: pytest.CaptureFixture[str]) -> None:
    train_model(classifier("gcn"), graphs[:20], epochs=2, show_progress=True)
    assert "2/2" in capsys.readouterr().err
    train_model(classifier("gcn"), graphs[:20], epochs=2, show_progress=False)
    assert not capsys.readouterr().err


@pytest.mark.parametrize("level", ["graph", "node"])
@pytest.mark.slow
def test_cache_gives_the_same_weights_without_training(
    level: str, graphs: list[Data], shapes: Data, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make, data = (classifier, graphs) if level == "graph" else (node_classifier, shapes)
    first, second, third = make("gin"), make("gin"), make("gin")
    trained = train_once(first, data, tmp_path / "weights", epochs=12, lr=0.01, show_progress=False)
    (file,) = (tmp_path / "weights").iterdir()
    written = file.read_bytes()
    read = train_once(second, data, tmp_path / "weights", epochs=12, lr=0.01, show_progress=True)
    assert not capsys.readouterr().err  # no bar, as there is nothing to wait for
    train_classifier(third, data, epochs=12, lr=0.01, show_progress=False)
    assert torch.equal(weights(first), weights(second))
    assert torch.equal(weights(first), weights(third))
    assert not second.training
    assert read[:3] == trained[:3]
    assert read.best_epoch == trained.best_epoch
    assert all(torch.equal(one, two) for one, two in zip(read.split, trained.split, strict=True))
    assert file.read_bytes() == written


def test_cache_is_missed_when_anything_is_different(shapes: Data, tmp_path: Path) -> None:
    other = shapes.clone()
    other.y[0] = 2
    runs: list[tuple[NodeClassifier, Data, dict[str, Any]]] = [
        (node_classifier(), shapes, {}),
        (node_classifier(), other, {}),
        (node_classifier(seed=1), shapes, {}),
        (node_classifier(dropout=0.5), shapes, {}),
        (node_classifier("gcn", level=L2NodeClassifier), shapes, {}),
        (node_classifier("gcn"), shapes, {}),
        (node_classifier("sage"), shapes, {}),
        (node_classifier(), shapes, {"lr": 0.1}),
        (node_classifier(), shapes, {"epochs": 2}),
        (node_classifier(), shapes, {"seed": 1}),
        (node_classifier(), shapes, {"weight_decay": 0.1}),
    ]
    for model, data, options in runs:
        train_once(model, data, tmp_path, **{"epochs": 1, "show_progress": False} | options)
    assert len(list(tmp_path.iterdir())) == len(runs)


def test_fingerprints_tell_options_apart_that_are_not_weights(graphs: list[Data]) -> None:
    models = [classifier("gcn"), classifier("gcn", normalize=False), classifier("gcn", dropout=0.1)]
    assert len({fingerprint(model, graphs, {}) for model in models}) == 3
    assert fingerprint(models[0].eval(), graphs, {}) == fingerprint(classifier("gcn"), graphs, {})
    coarse = fingerprint(classifier("gcn").bfloat16(), graphs, {})
    assert coarse not in {fingerprint(model, graphs, {}) for model in models}


@pytest.mark.parametrize("damage", ["code", "other", "cut", "empty"])
def test_cached_files_hold_weights_and_no_code(damage: str, shapes: Data, tmp_path: Path) -> None:
    train_once(node_classifier(), shapes, tmp_path, epochs=1, show_progress=False)
    (file,) = tmp_path.iterdir()
    assert torch.load(file, weights_only=True)["settings"]["epochs"] == 1
    if damage in ("code", "other"):
        torch.save({"state_dict": Path("an object")} if damage == "code" else {}, file)
    else:
        file.write_bytes(file.read_bytes()[:100] if damage == "cut" else b"")
    with pytest.raises(ValueError, match=r"Expected trained weights in .*\.pt \(got something else\). Delete the file"):
        train_once(node_classifier(), shapes, tmp_path, epochs=1, show_progress=False)
