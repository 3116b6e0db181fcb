"""Peeling against occlusion on one large graph: the graph, the model, and the page."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch_geometric.utils import contains_self_loops, is_undirected, to_networkx

from benchmarks import __main__ as command
from benchmarks import large_graph_recipes as recipes
from benchmarks.explainers import EXPLAINERS
from benchmarks.large_graphs import large_graph, training_graphs
from captum_goat.metrics import fidelity_plus, select_edges
from captum_goat.models import GraphClassifier


@pytest.mark.parametrize("num_edges", [27, 100, 1003])
def test_graph_has_the_edges_asked_for(num_edges: int) -> None:
    graph = large_graph(num_edges)
    assert graph.num_edges == 2 * num_edges
    assert is_undirected(graph.edge_index)
    assert not contains_self_loops(graph.edge_index)
    assert graph.num_edges == graph.edge_index.unique(dim=1).size(1)
    assert len(graph.x) == int(graph.edge_index.max()) + 1


def test_graph_is_one_piece_with_the_share_of_motifs() -> None:
    networkx = pytest.importorskip("networkx")
    graph = to_networkx(large_graph(1350), to_undirected=True)
    assert networkx.is_connected(graph)
    houses = sum(networkx.triangles(graph).values()) // 3  # which have one each, and nothing else has
    assert houses == 35  # 0.7 of 50 units
    cycles = to_networkx(large_graph(1350, label=0), to_undirected=True)
    assert sum(networkx.triangles(cycles).values()) // 3 == 15


def test_graph_follows_its_seed() -> None:
    assert torch.equal(large_graph(200, seed=3).edge_index, large_graph(200, seed=3).edge_index)
    assert not torch.equal(large_graph(200, seed=3).edge_index, large_graph(200, seed=4).edge_index)
    with pytest.raises(ValueError, match="27 edges or more"):
        large_graph(26)


def test_training_graphs_are_balanced() -> None:
    graphs = training_graphs(20)
    assert [int(graph.y) for graph in graphs] == [0, 1] * 10
    assert {graph.num_nodes // 25 for graph in graphs} <= set(range(4, 13))


@pytest.mark.slow
def test_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "docs" / "recipes.md"
    words = ["benchmarks", "large_graph_recipes", "--edges", "60", "--epochs", "1", "--out", str(page)]
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.setattr("benchmarks.large_graphs.training_graphs", lambda seed: training_graphs(40, seed))
    threads = torch.get_num_threads()
    command.main()
    assert torch.get_num_threads() == threads
    text = page.read_text(encoding="utf-8")
    assert text in capsys.readouterr().out
    assert "One graph of 60 undirected edges" in text
    assert "`occlusion` | 60 forward passes" in text
    assert "`goat_peeled` | 5 attributions" in text
    assert "1 thread(s)" in text
    for name in recipes.METHODS:
        assert text.count(f"| `{name}` |") == 3


def test_figures_are_those_of_the_metrics() -> None:
    torch.manual_seed(0)
    model = GraphClassifier("gin", 10, 8, 2, num_layers=3).double().eval()
    graph = large_graph(60)
    graph.x = graph.x.double()
    target = torch.tensor([1])
    measured = recipes.measure("occlusion", model, graph, target)
    scores = EXPLAINERS["occlusion"]()(model, graph, target)
    expected = fidelity_plus(model, graph, select_edges(graph, scores, 0.9), target)
    assert float(measured.plus[recipes.SPARSITIES.index(0.9)]) == pytest.approx(float(expected))
    assert measured.seconds > 0


def test_command_line_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        recipes.main(["--edges", "5"])
    assert "expected 27 edges" in capsys.readouterr().err
