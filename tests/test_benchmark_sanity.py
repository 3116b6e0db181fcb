"""Sanity checks of the benchmark: random scores fail them all, and every number is in the files."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import torch
from conftest import random_edges
from torch_geometric.data import Batch, Data
from torch_geometric.utils import to_undirected

from benchmarks.datasets import DATASETS, GraphDataset
from benchmarks.sanity import PASSES, Checked, check, main, null_model, table, with_shuffled_labels
from captum_goat.datasets import ba_2motifs
from captum_goat.models import GraphClassifier


@pytest.fixture
def batch() -> Batch:
    random = torch.Generator().manual_seed(0)
    edges = [to_undirected(random_edges(7, 9, seed=seed)) for seed in range(3)]
    return Batch.from_data_list([Data(x=torch.rand(7, 4, generator=random), edge_index=edge) for edge in edges])


def test_random_scores_fail_every_check(batch: Batch) -> None:
    torch.manual_seed(0)
    model, other = (GraphClassifier("sage", 4, 8, 2, num_layers=2).eval() for _ in range(2))
    goat, random = (check(name, model, other, batch, [], seeds=2) for name in ("goat", "random"))
    assert not any(passes(getattr(random, key)) for key, passes in PASSES.items())
    for key in ("null", "node_order", "ignored_features", "runs", "noise"):
        assert PASSES[key](getattr(goat, key)), key
    text = table([goat, random]).splitlines()
    assert text[2].startswith("| `goat` |")
    assert text[3].endswith("| 0 of 9 |")
    assert text[3].count("**") == 2 * len(PASSES)


def test_null_model_ignores_edges(batch: Batch) -> None:
    model = null_model(4)
    with_edges = model(batch.x, batch.edge_index, batch.batch)
    assert torch.allclose(with_edges, model(batch.x, batch.edge_index[:, :0], batch.batch))
    assert with_edges.std() > 0


def test_labels_are_shuffled_and_graphs_are_copies() -> None:
    dataset = GraphDataset(DATASETS["ba_2motifs"], ba_2motifs(20), "generated")
    before = [int(graph.y) for graph in dataset.graphs]
    shuffled = [int(graph.y) for graph in with_shuffled_labels(dataset, seed=0).graphs]
    assert shuffled != before
    assert sorted(shuffled) == sorted(before)
    assert [int(graph.y) for graph in dataset.graphs] == before


def test_copies_do_not_copy_the_storage_of_the_whole_dataset() -> None:
    """The graphs of a dataset in one file are slices of one tensor."""
    everything = torch.rand(500, 4)
    graphs = [Data(x=x, edge_index=torch.tensor([[0], [1]]), y=torch.tensor([1])) for x in everything.split(5)]
    copies = with_shuffled_labels(GraphDataset(DATASETS["nci1"], graphs, "published"), seed=0).graphs
    assert all(graph.x.untyped_storage().nbytes() == 5 * 4 * 4 for graph in copies)


@pytest.mark.slow
def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    few = GraphDataset(DATASETS["ba_2motifs"], ba_2motifs(40), "generated")
    monkeypatch.setattr("benchmarks.sanity.load", lambda *_, **__: few)
    options = ["--graphs", "3", "--epochs", "2", "--seeds", "1", "--out", str(tmp_path)]
    main(["--explainers", "integrated_gradients", "random", *options])
    with (tmp_path / "sanity_ba_2motifs_gin.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["explainer"] for row in rows] == ["integrated_gradients", "random"]
    assert list(rows[0]) == list(Checked.__dataclass_fields__)
    text = (tmp_path / "sanity_ba_2motifs_gin.md").read_text(encoding="utf-8")
    assert text in capsys.readouterr().out
