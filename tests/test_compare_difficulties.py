"""Comparisons under difficulties: what fails, is cut short, cannot be masked, or is cut out of a larger graph."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from comparison_subjects import GRAPHS, MODEL, Plain, Scored, Sources, compared, some_graphs, without_times
from conftest import make_gnn
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from benchmarks.explainers import EXPLAINERS
from captum_goat.compare import computation_graphs, run
from captum_goat.compare import graphs as subject
from captum_goat.compare.graphs import Subject
from captum_goat.compare.run import measure
from captum_goat.models import RootClassifier


@pytest.mark.slow
def test_what_cannot_be_measured_leaves_the_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(questions: Any, scores: Any) -> Any:
        if bool((scores[0] == scores[0][0]).all()):
            raise RuntimeError("out of memory")
        return measure(questions, scores)

    monkeypatch.setattr(run, "measure", failing)
    comparison = compared("goat", Scored("equal", lambda data: torch.ones(data.num_edges)), "random")
    assert list(comparison.scores) == ["goat", "random"]
    assert str(comparison.failed["equal"]) == "out of memory"


@pytest.mark.parametrize("batched", [False, True])
def test_scores_that_are_too_large_for_the_features(batched: bool) -> None:
    large = Scored("large", lambda data: torch.full((data.num_edges,), 1e300, dtype=torch.float64), batched=batched)
    comparison = compared("random", large)
    assert list(comparison.scores) == ["random"]
    assert "Expected finite scores" in str(comparison.failed["large"])


@pytest.mark.slow
def test_inference_mode() -> None:
    names = ("goat", "integrated_gradients", "random", "occlusion")
    expected = compared(*names)
    with torch.inference_mode():
        comparison = compared(*names)
        made_there = compared(*names, graphs=[graph.clone() for graph in GRAPHS])
    for name in names:
        assert without_times(comparison, name) == without_times(made_there, name) == without_times(expected, name)


def test_models_that_cannot_be_masked() -> None:
    """Explainers that need messages are skipped, and infidelity is left out; the rest is compared."""

    class Dense(nn.Module):
        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
            adjacency = x.new_zeros(len(x), len(x)).index_put((edge_index[1], edge_index[0]), x.new_ones(()))
            sent = adjacency @ x
            return x.new_zeros(int(batch.max()) + 1, 4).index_add_(0, batch, sent)

    comparison = compared("goat", "random", model=Dense().eval(), reference=None)
    assert list(comparison.scores) == ["random"]
    assert "goat" in comparison.skipped
    assert comparison.get("random", "infidelity") is None
    assert comparison.get("random", "area_gain") is not None


@pytest.mark.parametrize("hops", [3, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_nodes_are_their_computation_graphs(hops: int) -> None:
    (data,) = some_graphs(1)
    model, nodes = make_gnn("gcn", pool=None, dtype=torch.float32), data.edge_index[1].unique()[:3]
    comparison = compared("goat", "random", model=model, graphs=data, nodes=nodes, num_hops=hops)
    data.y = torch.zeros(data.num_nodes, dtype=torch.long)
    by_hand = compared("goat", "random", model=RootClassifier(model), graphs=computation_graphs(data, nodes, hops))
    for name in ("goat", "random"):
        assert without_times(comparison, name) == without_times(by_hand, name)
    mask = torch.zeros(data.num_nodes, dtype=torch.bool).index_fill_(0, nodes, True)
    masked = compared("goat", model=model, graphs=data, nodes=mask, num_hops=hops)
    assert all(torch.equal(*pair) for pair in zip(masked.scores["goat"], comparison.scores["goat"], strict=True))


def test_other_outputs_of_nodes_that_are_cut_out_are_noted() -> None:
    path = torch.tensor([[0, 1, 2, 3, 1, 2, 3, 4], [1, 2, 3, 4, 0, 1, 2, 3]])
    data = Data(x=GRAPHS[0].x[:5], edge_index=path)
    model = make_gnn("gcn", layers=1, pool=None, dtype=torch.float32)
    given = {"model": model, "graphs": data, "nodes": [0, 2]}
    (note,) = compared("goat", **given, num_hops=1).notes
    assert "of 2 predicted classes change" in note
    assert not compared("goat", **given, num_hops=2).notes


@pytest.mark.slow
def test_many_graphs_are_measured_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = compared("goat", "occlusion")
    monkeypatch.setattr(subject, "MAX_EDGES", 30)
    monkeypatch.setattr(subject, "MAX_GRAPHS", 2)
    comparison = compared("goat", "occlusion")
    for row in expected.rows:
        if row.metric.startswith(("area", "fid", "ground", "char", "compl")):
            other = comparison.get(row.explainer, row.metric, float(row.sparsity) if row.sparsity else None)
            assert other is not None
            assert (other.value, other.difference) == pytest.approx((row.value, row.difference), abs=1e-5, nan_ok=True)


@pytest.mark.slow
def test_budget_leaves_the_first_graphs() -> None:
    class Slow(Plain):
        def __call__(self, model: nn.Module, data: Data | Batch, target: Tensor) -> Tensor:
            end = time.process_time() + 0.5
            while time.process_time() < end:
                pass
            return torch.rand(data.num_edges)

    comparison = compared(Sources(), Slow(), budget=0.4, reference="sources")
    assert (len(comparison.scores["sources"]), len(comparison.scores["plain"])) == (5, 1)
    row, first = (
        comparison.get("plain", "area_gain"),
        [comparison.values[name]["area_gain", ""][0] for name in comparison.scores],
    )
    assert row is not None
    assert (row.n, row.verdict, row.difference) == (1, "", pytest.approx(float(first[1] - first[0]), abs=1e-6))
    assert "ran out of time" in str(comparison)


def test_an_explainer_with_a_time_limit_of_its_own_keeps_its_first_graphs() -> None:
    def limited(model: nn.Module, data: Data, target: Tensor) -> Tensor:
        if data.num_edges > GRAPHS[1].num_edges:
            raise TimeoutError("too slow")
        return torch.ones(data.num_edges)

    comparison = compared("random", limited, reference="random")
    assert len(comparison.scores["limited"]) == 2
    late = compared("random", limited, graphs=GRAPHS[2:], reference="random")
    assert isinstance(late.failed["limited"], TimeoutError)


def test_an_interrupt_keeps_what_was_done() -> None:
    def interrupted(model: nn.Module, data: Data, target: Tensor) -> Tensor:
        raise KeyboardInterrupt

    comparison = compared("random", interrupted, "goat", reference="random")
    assert list(comparison.scores) == ["random"]
    assert comparison.skipped == {"interrupted": "interrupted", "goat": "interrupted"}
    assert "- `goat`: interrupted" in str(comparison)
    with pytest.raises(KeyboardInterrupt):
        compared(interrupted, "random", reference="random")


@pytest.mark.parametrize("most", [2, 64])
@pytest.mark.slow
def test_random_numbers_do_not_depend_on_how_many_graphs_there_are(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "MAX_GRAPHS", most)
    given = Subject.of(MODEL, GRAPHS)
    scores = [graph.x[graph.edge_index[0], 0] for graph in GRAPHS]
    expected = measure(given, scores)
    for count in (1, 2, 3):
        measured = measure(given, scores[:count])
        assert measured.keys() == expected.keys()
        for key, values in measured.items():
            torch.testing.assert_close(values, expected[key][:count], msg=str(key))


@torch.no_grad()
def test_completeness_errors_are_measured_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    given, explainer = Subject.of(MODEL, GRAPHS), EXPLAINERS["goat"]()
    scores = [torch.ones(graph.num_edges) for graph in GRAPHS[:4]]
    expected, sizes = run.completeness_error(explainer, given, scores), []
    monkeypatch.setattr(subject, "MAX_GRAPHS", 3)
    given.model.register_forward_pre_hook(
        lambda _, args, names: sizes.append([*args, *names.values()][2]), with_kwargs=True
    )
    torch.testing.assert_close(run.completeness_error(explainer, given, scores), expected)
    assert {int(batch.max()) + 1 for batch in sizes} == {3, 1}


@pytest.mark.slow
def test_double_precision() -> None:
    comparison = compared("goat", "saliency", model=make_gnn("gcn"), graphs=some_graphs(dtype=torch.float64))
    assert {scores.dtype for scores in comparison.scores["goat"]} == {torch.float64}
    assert comparison.get("goat", "largest_completeness_error").value < 1e-10  # type: ignore[union-attr]
