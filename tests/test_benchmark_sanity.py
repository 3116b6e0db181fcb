"""Sanity checks of the benchmark: random scores fail them all, and every number is in the files."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import random_edges
from torch_geometric.data import Batch, Data
from torch_geometric.utils import to_undirected

from benchmarks.datasets import DATASETS, GraphDataset
from benchmarks.sanity import (
    CHANGING,
    PASSES,
    Checked,
    check,
    main,
    null_model,
    structural_similarity,
    table,
    with_shuffled_labels,
)
from captum_goat.datasets import ba_2motifs
from captum_goat.models import GraphClassifier


@pytest.fixture
def batch() -> Batch:
    random = torch.Generator().manual_seed(0)
    edges = [to_undirected(random_edges(7, 9, seed=seed)) for seed in range(3)]
    return Batch.from_data_list([Data(x=torch.rand(7, 4, generator=random), edge_index=edge) for edge in edges])


@pytest.mark.slow
def test_random_scores_fail_every_check(batch: Batch) -> None:
    torch.manual_seed(0)
    model, other = (GraphClassifier("sage", 4, 8, 2, num_layers=2).eval() for _ in range(2))
    goat, random = (check(name, model, other, batch, [], seeds=2) for name in ("goat", "random"))
    assert not any(passes(getattr(random, key)) for key, passes in PASSES.items())
    for key in ("null", "node_order", "ignored_features", "runs", "noise"):
        assert PASSES[key](getattr(goat, key)), key
    lines = [line for line in table([goat, random]).splitlines() if line.startswith("| `")]
    assert [line.split("`")[1] for line in lines] == ["goat", "random", "goat", "random"]
    assert lines[3].endswith("| 0 of 9 |")
    assert sum(line.count("**") for line in lines[1::2]) == 2 * len(PASSES)
    for key in CHANGING:  # random scores do not know the model
        assert getattr(random, f"{key}_ssim") == pytest.approx(1.0)
        assert getattr(goat, f"{key}_ssim") < 0.95


def literal_ssim(one: list[float], other: list[float]) -> float:
    """Return the formula of 2004 with NumPy, for values from 0 to 1 after scaling."""
    a, b = (np.array(values) / max(abs(value) for value in values) / 2 + 0.5 for values in (one, other))
    (variance_a, covariance), (_, variance_b) = np.cov(a, b, bias=True)
    luminance = (2 * a.mean() * b.mean() + 0.01**2) / (a.mean() ** 2 + b.mean() ** 2 + 0.01**2)
    return float(luminance * (2 * covariance + 0.03**2) / (variance_a + variance_b + 0.03**2))


def test_structural_similarity_by_hand() -> None:
    """Scores 1 and -1 against 1 and 0, as 1 and 0 against 1 and 1/2: means 1/2 and 3/4, variances 1/4 and 1/16."""
    data = Data(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
    (similarity,) = structural_similarity(data, torch.tensor([3.0, -3.0]), torch.tensor([2.0, 0.0])).tolist()
    assert similarity == pytest.approx(0.7501 / 0.8126 * 0.2509 / 0.3134)
    (opposite,) = structural_similarity(data, torch.tensor([3.0, -3.0]), torch.tensor([-1.0, 1.0])).tolist()
    assert opposite == pytest.approx(-0.4991 / 0.5009), "not 1, though both means change their signs"


def test_structural_similarity_by_another_implementation(batch: Batch) -> None:
    """Graph by graph, with both directions of an edge added up; zeros are like zeros."""
    random = torch.Generator().manual_seed(1)
    scores, others = (torch.rand(batch.num_edges, generator=random) - 0.3 for _ in range(2))
    expected = []
    for graph, a, b in zip(batch.to_data_list(), scores.split(sizes(batch)), others.split(sizes(batch)), strict=True):
        totals = []
        for values in (a, b):
            by_edge: dict[tuple[int, ...], float] = {}
            for ends, value in zip(graph.edge_index.T.tolist(), values.tolist(), strict=True):
                by_edge[tuple(sorted(ends))] = by_edge.get(tuple(sorted(ends)), 0.0) + value
            totals.append(list(by_edge.values()))
        expected.append(literal_ssim(*totals))
    assert structural_similarity(batch, scores, others).tolist() == pytest.approx(expected, rel=1e-5)
    nothing = torch.zeros(batch.num_edges)
    assert structural_similarity(batch, nothing, nothing).tolist() == pytest.approx([1.0] * 3)


def sizes(batch: Batch) -> list[int]:
    return [graph.num_edges for graph in batch.to_data_list()]


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
