"""Fidelity after training on reduced graphs: by hand, and against a slow implementation of its own."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch_geometric.data import Batch, Data

from benchmarks.datasets import DATASETS, GraphDataset
from benchmarks.in_distribution import (
    KEPT,
    TENTHS,
    bottom_only,
    edge_rank,
    ginx,
    main,
    top_only,
    without_top,
)
from captum_goat.datasets import ba_2motifs
from captum_goat.models import GraphClassifier


def path(scores: Sequence[float]) -> tuple[Data, Tensor]:
    """Return a path with an undirected edge for each score, and the scores, shared by directions unequally."""
    columns = [column for node in range(len(scores)) for column in ((node, node + 1), (node + 1, node))]
    shared = [share * score for score in scores for share in (0.25, 0.75)]
    x = torch.ones(len(scores) + 1, 2)
    return Data(x=x, edge_index=torch.tensor(columns).t(), y=torch.tensor([1])), torch.tensor(shared)


def bonds(graph: Data) -> list[int]:
    """Return the lower end of each undirected edge; both directions must be there."""
    columns = sorted(map(tuple, graph.edge_index.t().tolist()))
    assert sorted((target, source) for source, target in columns) == columns
    return [source for source, target in columns if source < target]


def test_reduced_graphs_by_hand() -> None:
    """Of five edges, 0.3 is 1.5, rounded to two; at least one stays where some are kept."""
    graph, scores = path([0.2, -3.0, 0.9, 0.5, 0.1])
    assert bonds(without_top(graph, scores, 0.0)) == [0, 1, 2, 3, 4]
    assert bonds(without_top(graph, scores, 0.3)) == [0, 1, 4]
    assert bonds(without_top(graph, scores, 1.0)) == []
    assert bonds(top_only(graph, scores, 0.3)) == [2, 3]
    assert bonds(top_only(graph, scores, 0.05)) == [2]
    assert bonds(bottom_only(graph, scores, 0.3)) == [1, 4]
    assert bonds(bottom_only(graph, scores, 0.05)) == [1]
    assert without_top(graph, scores, 0.3).num_nodes == 6
    assert graph.num_edges == 10


def test_edge_rank_by_hand() -> None:
    assert edge_rank([0.1] * 10) == 0.0
    assert edge_rank([0.0] + [0.5] * 9) == pytest.approx(0.5)
    assert edge_rank([0.0] * 9 + [0.5]) == pytest.approx(0.2 * 0.5)
    curve = [0.02, 0.1, 0.3, 0.25, 0.4, 0.4, 0.45, 0.5, 0.5, 0.48]
    by_hand = 0.08 + 0.9 * 0.2 - 0.8 * 0.05 + 0.7 * 0.15 + 0.5 * 0.05 + 0.4 * 0.05 - 0.2 * 0.02
    assert edge_rank(curve) == pytest.approx(by_hand)


def slow_ginx(
    model: nn.Module, graphs: list[Data], scores: list[Tensor], share: float, epochs: int, lr: float
) -> float:
    """Return GInX by loops over edges, with one step of Adam per epoch and the best weights on the validation set."""
    changed = []
    for graph, score in zip(graphs, scores, strict=True):
        totals: dict[frozenset[int], float] = {}
        for column, value in zip(graph.edge_index.t().tolist(), score.tolist(), strict=True):
            totals[frozenset(column)] = totals.get(frozenset(column), 0.0) + value
        ranked = sorted(totals, key=lambda edge: -totals[edge])
        gone = ranked[: math.floor(share * len(ranked) + 0.5)]
        kept = [column for column in graph.edge_index.t().tolist() if frozenset(column) not in gone]
        changed.append(Data(x=graph.x, edge_index=torch.tensor(kept).view(-1, 2).t(), y=graph.y))
    torch.manual_seed(0)
    order = torch.randperm(len(graphs)).tolist()
    tenth = len(graphs) // 10
    test, validation, train = (
        Batch.from_data_list([changed[index] for index in part])
        for part in (order[:tenth], order[tenth : 2 * tenth], order[2 * tenth :])
    )

    def logits(batch: Batch) -> Tensor:
        result: Tensor = model(batch.x, batch.edge_index, batch.batch)
        return result

    def score_of(batch: Batch) -> tuple[float, float]:
        model.eval()
        with torch.no_grad():
            output = logits(batch)
            right = (output.argmax(dim=1) == batch.y).float().mean()
            return float(right), -float(cross_entropy(output, batch.y))

    model = deepcopy(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    best, weights = score_of(validation), deepcopy(model.state_dict())
    for _ in range(epochs):
        model.train()
        optimizer.zero_grad()
        cross_entropy(logits(train), train.y).backward()
        optimizer.step()
        if score_of(validation) > best:
            best, weights = score_of(validation), deepcopy(model.state_dict())
    model.load_state_dict(weights)
    return 1.0 - score_of(test)[0]


@pytest.mark.parametrize("epochs", [0, 12])
def test_ginx_is_that_of_a_slow_implementation(epochs: int) -> None:
    torch.manual_seed(3)
    graphs = [Data(x=graph.x, edge_index=graph.edge_index, y=graph.y) for graph in ba_2motifs(60, seed=1)]
    model = GraphClassifier("sage", 10, 8, 2, num_layers=2).double().eval()
    for graph in graphs:
        graph.x = graph.x.double()
    scores = [torch.rand(graph.num_edges, dtype=torch.double) for graph in graphs]
    before = deepcopy(model.state_dict())
    results = []
    for share in (0.0, 0.3, 0.8):
        results.append(ginx(model, graphs, scores, share, epochs=epochs, lr=0.05, batch_size=100))
        assert results[-1] == pytest.approx(slow_ginx(model, graphs, scores, share, epochs, lr=0.05))
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    assert epochs == 0 or len(set(results)) > 1


@pytest.mark.slow
def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    few = GraphDataset(DATASETS["ba_2motifs"], ba_2motifs(40), "generated")
    monkeypatch.setattr("benchmarks.in_distribution.load", lambda *_, **__: few)
    options = ["--graphs", "30", "--seeds", "1", "--training", "2", "--fine-tuning", "1", "--out", str(tmp_path)]
    main(["--explainers", "random", *options])
    with (tmp_path / "in_distribution_ba_2motifs_gin.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {row["explainer"] for row in rows} == {"random", "motif"}
    assert len(rows) == 2 * (len(TENTHS) + 1 + 2 * len(KEPT))
    assert all(0.0 <= float(row["value"]) <= 1.0 for row in rows if row["metric"] != "edge_rank")
    assert (tmp_path / "in_distribution_ba_2motifs_gin.md").read_text(encoding="utf-8") in capsys.readouterr().out
