"""Explainers compared on a model and graphs of one's own."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest
import torch
from comparison_subjects import GRAPHS, MODEL, Failing, Plain, Scored, Sources, compared, some_graphs, without_times
from conftest import make_gnn
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from captum_goat import EdgeMaskedModel
from captum_goat.benchmark import explanations
from captum_goat.benchmark.comparison import parts, run
from captum_goat.benchmark.comparison.given import Given
from captum_goat.benchmark.comparison.measures import Conditions, measure
from captum_goat.benchmark.comparison.rows import verdict
from captum_goat.benchmark.explainers import EXPLAINERS, ExplainerSkippedError
from captum_goat.benchmark.time_limit import time_limit
from captum_goat.datasets import computation_graphs
from captum_goat.metrics import (
    area_under_curve,
    characterization_score,
    fidelity_curve,
    ground_truth_auc,
    infidelity,
    robust_fidelity,
    select_edges,
)
from captum_goat.models import RootClassifier

NAMES = ("goat", "integrated_gradients", "occlusion", "random")


@pytest.mark.parametrize("nodes", ["stay", "leave"])
def test_numbers_are_those_of_the_metrics(nodes: Any) -> None:
    found = compared("goat", "occlusion", node_policy=nodes, sparsities=(0.3, 0.6, 0.9), target=1, seed=4)
    batch = Batch.from_data_list(GRAPHS)
    target = torch.ones(len(GRAPHS), dtype=torch.long)
    for name in ("goat", "occlusion"):
        scores = EXPLAINERS[name]()(MODEL, batch, target)
        torch.testing.assert_close(torch.cat(found.scores[name]), scores)
        curve = fidelity_curve(MODEL, batch, scores, (0.3, 0.6, 0.9), 1, nodes)
        area = {
            "area_plus": curve.plus,
            "area_minus": curve.minus,
            "area_gain": curve.plus - curve.minus,
            "characterization_score": characterization_score(curve.plus, curve.minus),
        }
        expected = {key: area_under_curve(each, curve.sparsities, normalize=True) for key, each in area.items()}
        random = torch.Generator().manual_seed(4)
        robust = robust_fidelity(MODEL, batch, select_edges(scores, batch, 0.6), 1, nodes, generator=random)
        expected |= {"robust_fidelity_plus": robust.plus, "robust_fidelity_minus": robust.minus}
        expected |= {"robust_gain": robust.delta, "ground_truth_auc": ground_truth_auc(scores, batch)}
        random.manual_seed(4)
        expected["infidelity"] = infidelity(MODEL, batch, scores, 1, samples=20, normalize=True, generator=random)
        for metric, values in expected.items():
            row = found.get(name, metric)
            assert row is not None
            assert row.value == pytest.approx(float(values.mean()), abs=1e-6), metric
            assert row.error == pytest.approx(float(values.std()) / math.sqrt(len(GRAPHS)), abs=1e-6)
            assert row.n == len(GRAPHS)
            torch.testing.assert_close(found.values[name][metric, ""], values, msg=metric)
        at = found.get(name, "fidelity_plus", 0.6)
        assert at is not None
        assert at.value == pytest.approx(float(curve.plus[1].mean()), abs=1e-6)


def test_differences_are_paired() -> None:
    found = compared("goat", "occlusion", "random")
    ours, theirs = (found.values[name]["area_minus", ""] for name in ("random", "goat"))
    row = found.get("random", "area_minus")
    assert row is not None
    assert row.difference == pytest.approx(float((ours - theirs).mean()), abs=1e-6)
    assert row.difference_error == pytest.approx(float((ours - theirs).std()) / math.sqrt(5), abs=1e-6)
    assert row.verdict == ("alike" if abs(row.difference) <= 2 * row.difference_error else "worse")
    assert row.difference > 0  # less is better
    assert all(math.isnan(each.difference) and not each.verdict for each in found.rows if each.explainer == "goat")
    other = compared("goat", "occlusion", "random", reference="random").get("goat", "area_minus")
    assert other is not None
    assert other.difference == pytest.approx(-row.difference)
    none = compared("occlusion", "random")
    assert none.reference is None
    assert all(math.isnan(each.difference) and not each.verdict for each in none.rows)
    assert "no differences: the reference `goat`" in str(none)


@pytest.mark.parametrize(
    ("metric", "difference", "error", "expected"),
    [
        ("area_gain", 0.21, 0.1, "better"),
        ("area_gain", -0.21, 0.1, "worse"),
        ("area_gain", 0.19, 0.1, "alike"),
        ("infidelity", -0.21, 0.1, "better"),
        ("fidelity_minus", 0.21, 0.1, "worse"),
        ("area_gain", 0.0, 0.0, "alike"),
        ("area_gain", 1e-8, 0.0, "alike"),  # rounding
        ("area_gain", 0.5, math.nan, ""),
    ],
)
def test_verdicts(metric: str, difference: float, error: float, expected: str) -> None:
    assert verdict(metric, difference, error) == expected


@torch.no_grad()
def test_completeness_of_those_that_claim_it() -> None:
    found = compared(*NAMES, "goat_adjacency")
    batch = Batch.from_data_list(GRAPHS)
    whole = MODEL(batch.x, batch.edge_index, batch.batch)
    masked = EdgeMaskedModel(MODEL)(torch.zeros(batch.num_edges), batch.x, batch.edge_index, batch.batch)
    removed = MODEL(batch.x, batch.edge_index[:, :0], batch.batch)
    for name, nothing in (("goat", masked), ("integrated_gradients", masked), ("goat_adjacency", removed)):
        lost = (whole - nothing).gather(1, whole.argmax(dim=1, keepdim=True)).squeeze(1)
        errors = (torch.stack([each.sum() for each in found.scores[name]]) - lost).abs()
        row = found.get(name, "largest_completeness_error")
        assert row is not None
        assert row.value == pytest.approx(float(errors.max()), abs=1e-6)
    assert found.get("occlusion", "completeness_error") is None
    assert found.best("completeness_error") in ("goat", "goat_adjacency")


def test_order_of_explainers_does_not_matter_and_nothing_is_touched() -> None:
    model = make_gnn("gcn", dtype=torch.float32)
    model.out.weight.grad = torch.ones_like(model.out.weight)
    model.register_forward_hook(lambda *_: None)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    hooks = [(len(each._forward_hooks), len(each._forward_pre_hooks), each.training) for each in model.modules()]
    graphs, numbers = some_graphs(), torch.get_rng_state()
    given = {"model": model, "graphs": graphs}
    first = compared(Plain(), *NAMES, Sources(), **given)
    second = compared(Sources(), *reversed(NAMES), Plain(), **given)
    for name in (*NAMES, "plain", "sources"):
        assert without_times(first, name) == without_times(second, name)
        assert all(torch.equal(*pair) for pair in zip(first.scores[name], second.scores[name], strict=True))
    assert torch.equal(torch.get_rng_state(), numbers)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [
        (len(each._forward_hooks), len(each._forward_pre_hooks), each.training) for each in model.modules()
    ] == hooks
    assert [name for name, each in model.named_parameters() if each.grad is not None] == ["out.weight"]
    assert torch.equal(model.out.weight.grad, torch.ones_like(model.out.weight))
    for graph, expected in zip(graphs, GRAPHS, strict=True):
        assert all(torch.equal(graph[key], expected[key]) for key in ("x", "edge_index", "edge_label"))


def test_explainers_of_ones_own() -> None:
    plain = Plain()
    found = compared(Sources(), plain, reference="sources")
    for scores, graph in zip(found.scores["sources"], GRAPHS, strict=True):
        assert torch.equal(scores, graph.x[graph.edge_index[0], 0])
    assert plain.calls == len(GRAPHS)
    assert found.get("plain", "seconds_in_batch") is None
    assert found.get("plain", "area_gain").verdict in ("better", "alike", "worse")  # type: ignore[union-attr]


def test_skipped_and_failing_explainers() -> None:
    error = RuntimeError("out\nof luck")
    wrong = Sources()
    wrong.scores = lambda model, graphs: graphs.x[:, 0]  # type: ignore[method-assign]
    others = (
        Failing("inapplicable", ExplainerSkippedError("not for you")),
        Failing("uninstalled", ImportError("no module named luck")),
        Failing("broken", error),
    )
    found = compared("goat", "attention", "pg_explainer", *others, wrong)
    assert list(found.scores) == ["goat"]
    assert found.failed["broken"] is error
    assert "finite scores from 'sources'" in str(found.failed["sources"])
    assert found.skipped["inapplicable"] == "not for you"
    assert "luck" in found.skipped["uninstalled"]
    assert "attention layers" in found.skipped["attention"]
    assert "Pass training_graphs" in found.skipped["pg_explainer"]
    text = str(found)
    assert "- `broken`: RuntimeError: out of luck" in text
    assert "- `inapplicable`: not for you" in text
    with pytest.raises(RuntimeError, match="none, but errors: broken: RuntimeError: out") as raised:
        compared("attention", Failing("broken", error))
    assert raised.value.__cause__ is error
    assert "attention layers" in str(compared("attention"))


def test_what_cannot_be_measured_leaves_the_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(questions: Any, scores: Any, conditions: Any) -> Any:
        if bool((scores[0] == scores[0][0]).all()):
            raise RuntimeError("out of memory")
        return measure(questions, scores, conditions)

    monkeypatch.setattr(run, "measure", failing)
    found = compared("goat", Scored("equal", lambda data: torch.ones(data.num_edges)), "random")
    assert list(found.scores) == ["goat", "random"]
    assert str(found.failed["equal"]) == "out of memory"


@pytest.mark.parametrize("batched", [False, True])
def test_scores_that_are_too_large_for_the_features(batched: bool) -> None:
    large = Scored("large", lambda data: torch.full((data.num_edges,), 1e300, dtype=torch.float64), batched=batched)
    found = compared("random", large)
    assert list(found.scores) == ["random"]
    assert "Expected finite scores" in str(found.failed["large"])


def test_inference_mode() -> None:
    names = ("goat", "integrated_gradients", "random", "occlusion")
    expected = compared(*names)
    with torch.inference_mode():
        found = compared(*names)
        made_there = compared(*names, graphs=[graph.clone() for graph in GRAPHS])
    for name in names:
        assert without_times(found, name) == without_times(made_there, name) == without_times(expected, name)


def test_trained_explainers_learn_from_other_graphs() -> None:
    learned: list[int] = []

    class Learner(Sources):
        trained = True

        def fit(self, model: nn.Module, graphs: Any) -> None:
            learned.append(len(graphs))

    assert list(compared(Learner(), training_graphs=iter(some_graphs(7))).scores) == ["sources"]
    assert learned == [7]


def test_models_that_cannot_be_masked() -> None:
    """Explainers that need messages are skipped, and infidelity is left out; the rest is compared."""

    class Dense(nn.Module):
        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
            sent = x.new_zeros(x.shape).index_add_(0, edge_index[1], x[edge_index[0]])
            return x.new_zeros(int(batch.max()) + 1, 4).index_add_(0, batch, sent)

    found = compared("goat", "random", model=Dense().eval(), reference=None)
    assert list(found.scores) == ["random"]
    assert "goat" in found.skipped
    assert found.get("random", "infidelity") is None
    assert found.get("random", "area_gain") is not None


@pytest.mark.parametrize("hops", [3, 4])
def test_nodes_are_their_computation_graphs(hops: int) -> None:
    (data,) = some_graphs(1)
    model, nodes = make_gnn("gcn", pool=None, dtype=torch.float32), data.edge_index[1].unique()[:3]
    found = compared("goat", "random", model=model, graphs=data, nodes=nodes, num_hops=hops)
    data.y = torch.zeros(data.num_nodes, dtype=torch.long)
    by_hand = compared("goat", "random", model=RootClassifier(model), graphs=computation_graphs(data, nodes, hops))
    for name in ("goat", "random"):
        assert without_times(found, name) == without_times(by_hand, name)
    mask = torch.zeros(data.num_nodes, dtype=torch.bool).index_fill_(0, nodes, True)
    masked = compared("goat", model=model, graphs=data, nodes=mask, num_hops=hops)
    assert all(torch.equal(*pair) for pair in zip(masked.scores["goat"], found.scores["goat"], strict=True))


def test_other_outputs_of_nodes_that_are_cut_out_are_noted() -> None:
    path = torch.tensor([[0, 1, 2, 3, 1, 2, 3, 4], [1, 2, 3, 4, 0, 1, 2, 3]])
    data = Data(x=GRAPHS[0].x[:5], edge_index=path)
    model = make_gnn("gcn", layers=1, pool=None, dtype=torch.float32)
    given = {"model": model, "graphs": data, "nodes": [0, 2]}
    (note,) = compared("goat", **given, num_hops=1).notes
    assert "of 2 classes are others" in note
    assert not compared("goat", **given, num_hops=2).notes


def test_many_graphs_are_measured_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = compared("goat", "occlusion")
    monkeypatch.setattr(parts, "MOST_EDGES", 30)
    monkeypatch.setattr(parts, "MOST_GRAPHS", 2)
    found = compared("goat", "occlusion")
    for row in expected.rows:
        if row.metric.startswith(("area", "fid", "ground", "char", "compl")):
            other = found.get(row.explainer, row.metric, float(row.sparsity) if row.sparsity else None)
            assert other is not None
            assert (other.value, other.difference) == pytest.approx((row.value, row.difference), abs=1e-5, nan_ok=True)


def test_budget_leaves_the_first_graphs() -> None:
    class Slow(Plain):
        def __call__(self, model: nn.Module, data: Data | Batch, target: Tensor) -> Tensor:
            end = time.process_time() + 0.5
            while time.process_time() < end:
                pass
            return torch.rand(data.num_edges)

    found = compared(Sources(), Slow(), budget=0.4, reference="sources")
    assert (len(found.scores["sources"]), len(found.scores["plain"])) == (5, 1)
    row, first = found.get("plain", "area_gain"), [found.values[name]["area_gain", ""][0] for name in found.scores]
    assert row is not None
    assert (row.n, row.verdict, row.difference) == (1, "", pytest.approx(float(first[1] - first[0]), abs=1e-6))
    assert "its time was over" in str(found)
    assert "took over 0 s" in compared(Sources(), Slow(), budget=0.1).skipped["plain"]


@pytest.mark.parametrize("most", [2, 64])
def test_random_numbers_do_not_depend_on_how_many_graphs_there_are(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "MOST_GRAPHS", most)
    given, conditions = Given.of(MODEL, GRAPHS), Conditions()
    scores = [graph.x[graph.edge_index[0], 0] for graph in GRAPHS]
    expected = measure(given, scores, conditions)
    for count in (1, 2, 3):
        found = measure(given, scores[:count], conditions)
        assert found.keys() == expected.keys()
        for key, values in found.items():
            torch.testing.assert_close(values, expected[key][:count], msg=str(key))


@torch.no_grad()
def test_completeness_errors_are_measured_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    given, explainer = Given.of(MODEL, GRAPHS), EXPLAINERS["goat"]()
    scores = torch.cat([torch.ones(graph.num_edges) for graph in GRAPHS[:4]])
    expected, sizes = explanations.completeness_error(explainer, given, scores, 4), []
    monkeypatch.setattr(explanations, "LARGEST_BATCH", 3)
    given.model.register_forward_pre_hook(
        lambda _, args, names: sizes.append([*args, *names.values()][2]), with_kwargs=True
    )
    torch.testing.assert_close(explanations.completeness_error(explainer, given, scores, 4), expected)
    assert {int(batch.max()) + 1 for batch in sizes} == {3, 1}


def test_short_calls_can_be_timed_while_their_time_is_limited() -> None:
    start, seen = time.perf_counter(), set()
    with time_limit(60.0):
        while time.perf_counter() < start + 0.2:
            seen.add(time.process_time())
    assert len(seen) > 100


def test_double_precision() -> None:
    found = compared("goat", "saliency", model=make_gnn("gcn"), graphs=some_graphs(dtype=torch.float64))
    assert {each.dtype for each in found.scores["goat"]} == {torch.float64}
    assert found.get("goat", "largest_completeness_error").value < 1e-10  # type: ignore[union-attr]
