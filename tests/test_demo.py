from __future__ import annotations

import re
from pathlib import Path

import matplotlib
import pytest
import torch
from torch_geometric.data import Data

from benchmarks import demo
from benchmarks.demo import Explained, Explanation, completeness_error, examples, explained_outputs, motif_scores
from captum_goat.datasets import ba_2motifs
from captum_goat.models import GraphClassifier

matplotlib.use("Agg")


@pytest.fixture(scope="module")
def graphs() -> list[Data]:
    return ba_2motifs(num_graphs=6)


@pytest.fixture(scope="module")
def model() -> GraphClassifier:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return GraphClassifier("gin", in_channels=10, hidden_channels=8, num_classes=2).eval()


def test_demo_prints_the_table_and_saves_the_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "a" / "b"
    demo.main(["--output", str(folder), "--graphs", "60", "--epochs", "2", "--seed", "1"])
    printed = capsys.readouterr().out
    assert re.search(r"test accuracy [01]\.\d{3} \(6 graphs\)", printed)
    header, *rows = [line for line in printed.splitlines() if line.startswith(("method", "GOAt", "Integrated"))]
    assert [row.split()[0] for row in rows] == ["GOAt", "IntegratedGradients"]
    assert len({len(line) for line in (header, *rows)}) == 1  # aligned
    errors = [float(row.split()[2]) for row in rows]
    assert errors[0] < 1e-4
    picture = folder / "ba_2motifs.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 20_000
    assert str(picture) in printed


def test_integrated_gradients_in_one_call_equal_those_of_single_graphs(
    graphs: list[Data], model: GraphClassifier
) -> None:
    together = demo.integrated_gradients(model, explained_outputs(model, graphs))
    singles = [demo.integrated_gradients(model, explained_outputs(model, [graph])) for graph in graphs]
    torch.testing.assert_close(together, torch.cat(singles), rtol=1e-4, atol=1e-6)


def test_differences_are_what_the_edges_add(graphs: list[Data], model: GraphClassifier) -> None:
    explained = explained_outputs(model, graphs)
    nothing = torch.empty(2, 0, dtype=torch.long)
    for graph, predicted, difference in zip(graphs, explained.predicted, explained.differences, strict=True):
        with torch.no_grad():
            expected = (model(graph.x, graph.edge_index) - model(graph.x, nothing))[0, predicted]
        torch.testing.assert_close(difference, expected)


def test_completeness_error_is_the_worst_graph() -> None:
    explanation = Explanation("by hand", [torch.tensor([1.0, 2.0]), torch.tensor([5.0])], seconds=0.0)
    assert completeness_error(explanation, torch.tensor([3.0, 4.5])) == 0.5


def test_motif_scores_of_good_bad_and_negative_attributions(graphs: list[Data]) -> None:
    def scores(*attributions: torch.Tensor) -> tuple[float, ...]:
        return motif_scores(Explanation("by hand", list(attributions), seconds=0.0), graphs[: len(attributions)])

    truth = [graph.edge_label.float() for graph in graphs]
    assert scores(truth[0], truth[1]) == (1, 1, 1)
    assert scores(-truth[0], -truth[1]) == (0, 0, 1)
    assert scores(truth[0], -truth[1]) == (0.5, 0.5, 1)


def test_directions_are_added_before_ranking(graphs: list[Data]) -> None:
    graph = graphs[0]
    forward = graph.edge_index[0] < graph.edge_index[1]
    # Large numbers of both signs on the base's edges cancel out; small ones on the motif's do not.
    attributions = torch.where(graph.edge_label, 0.1, torch.where(forward, 9.0, -9.0))
    assert motif_scores(Explanation("by hand", [attributions], seconds=0.0), [graph]) == (1, 1, 1)


def test_examples_are_correctly_classified_if_possible(graphs: list[Data], model: GraphClassifier) -> None:
    batch = explained_outputs(model, graphs).batch

    def chosen(*predicted: int) -> list[int]:
        return examples(Explained(graphs, batch, torch.tensor(predicted), torch.zeros(6)))

    assert batch.y.tolist() == [0, 1, 0, 1, 0, 1]
    assert chosen(0, 1, 0, 1, 0, 1) == [0, 1]
    assert chosen(1, 0, 0, 0, 0, 1) == [2, 5]
    assert chosen(1, 1, 1, 1, 1, 1) == [0, 1]
