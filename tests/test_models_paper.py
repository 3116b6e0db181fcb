from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks.datasets import DATASETS, GraphDataset, ba_shapes
from benchmarks.paper_models import (
    PAPER_ACCURACIES,
    PAPER_SETTINGS,
    L2NodeClassifier,
    Settings,
    paper_model,
    train_paper_model,
)
from captum_goat.datasets import ba_2motifs
from captum_goat.models import GraphClassifier, NodeClassifier

GNNS = ("gcn", "sage", "gin", "gcn_textbook")


@pytest.mark.parametrize("gnn", GNNS)
@pytest.mark.parametrize("name", DATASETS)
def test_every_model_of_every_dataset(name: str, gnn: str) -> None:
    info = DATASETS[name]
    model = paper_model(info, gnn).eval()
    assert isinstance(model, GraphClassifier if info.task_level == "graph" else NodeClassifier)
    assert len(model.convs) == 3
    assert model.classifier[0].out_features == (64 if name in ("mutagenicity", "nci1") else 32)
    x, edge_index = torch.ones(4, info.num_features), torch.tensor([[0, 1], [1, 0]])
    assert model(x, edge_index).shape == (1 if info.task_level == "graph" else 4, info.num_classes)


def test_the_paper_s_gcn_and_the_textbook_s() -> None:
    paper, textbook = (paper_model(DATASETS["ba_shapes"], gnn) for gnn in ("gcn", "gcn_textbook"))
    assert isinstance(paper, L2NodeClassifier)
    assert not isinstance(textbook, L2NodeClassifier)
    assert not any(conv.normalize or conv.add_self_loops for conv in paper.convs)
    assert all(conv.normalize and conv.add_self_loops for conv in textbook.convs)


def test_accuracies_are_of_twelve_models() -> None:
    assert len(PAPER_ACCURACIES) == 12
    assert PAPER_ACCURACIES.keys() <= PAPER_SETTINGS.keys()


def test_seeds_decide_the_weights_and_the_global_state_stays() -> None:
    state = torch.get_rng_state()
    first, again, other = (paper_model(DATASETS["nci1"], "sage", seed=seed).convs[0] for seed in (0, 0, 1))
    assert torch.equal(first.lin_l.weight, again.lin_l.weight)
    assert not torch.equal(first.lin_l.weight, other.lin_l.weight)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.slow
def test_training_by_name(tmp_path: Path) -> None:
    settings = replace(PAPER_SETTINGS["ba_2motifs", "gin"], epochs=30, batch_size=16, dropout=0.0)
    dataset = GraphDataset(DATASETS["ba_2motifs"], ba_2motifs(200), "generated")
    model, result = train_paper_model(dataset, "gin", settings=settings, cache=tmp_path, show_progress=False)
    assert not model.training
    assert result.train_accuracy > 0.9
    (file,) = tmp_path.iterdir()
    written = file.stat()
    again, _ = train_paper_model(dataset, "gin", settings=settings, cache=tmp_path, show_progress=False)
    assert [path.stat() for path in tmp_path.iterdir()] == [written]  # nothing was trained and written again
    assert all(torch.equal(one, two) for one, two in zip(model.parameters(), again.parameters(), strict=True))


@pytest.mark.slow
def test_training_of_nodes_by_name() -> None:
    dataset = GraphDataset(DATASETS["ba_shapes"], [ba_shapes(60, 20)], "generated")
    settings = Settings(epochs=100, lr=0.01, hidden_channels=8)
    model, result = train_paper_model(dataset, "gcn", settings=settings, seed=2, show_progress=False)
    assert isinstance(model, NodeClassifier)
    assert result.train_accuracy > 0.7


def test_unknown_model() -> None:
    with pytest.raises(ValueError, match=r"Expected gnn to be one of gcn, sage, gin, gcn_textbook \(got 'gat'\)"):
        paper_model(DATASETS["nci1"], "gat")
