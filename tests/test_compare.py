"""Explainers compared on a model and graphs of one's own."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
import torch
from comparison_subjects import GRAPHS, MODEL, Failing, Plain, Sources, compared, some_graphs, without_times
from conftest import make_gnn
from torch_geometric.data import Batch, Data

from benchmarks.explainers import EXPLAINERS, ExplainerSkippedError
from captum_goat import EdgeMaskedModel
from captum_goat.compare.comparison import seconds, signed, verdict
from captum_goat.compare.graphs import batches, seeded
from captum_goat.datasets import ba_2motifs
from captum_goat.metrics import (
    area_under_curve,
    fidelity_curve,
    graph_infidelity,
    ground_truth_auc,
)

NAMES = ("goat", "integrated_gradients", "occlusion", "random")


@pytest.mark.parametrize("nodes", [pytest.param("stay", marks=pytest.mark.slow), "leave"])
@pytest.mark.slow
def test_numbers_are_those_of_the_metrics(nodes: Any) -> None:
    comparison = compared("goat", "occlusion", node_policy=nodes, sparsities=(0.3, 0.6, 0.9), target=1, seed=4)
    batch = Batch.from_data_list(GRAPHS)
    target = torch.ones(len(GRAPHS), dtype=torch.long)
    for name in ("goat", "occlusion"):
        scores = EXPLAINERS[name]()(MODEL, batch, target)
        torch.testing.assert_close(torch.cat(comparison.scores[name]), scores)
        curve = fidelity_curve(MODEL, batch, scores, (0.3, 0.6, 0.9), 1, nodes)
        area = {
            "area_plus": curve.plus,
            "area_minus": curve.minus,
            "area_gain": curve.plus - curve.minus,
        }
        expected = {key: area_under_curve(heights, curve.sparsities, normalize=True) for key, heights in area.items()}
        expected["ground_truth_auc"] = ground_truth_auc(batch, scores)
        random = torch.Generator().manual_seed(4)
        expected["infidelity"] = graph_infidelity(MODEL, batch, scores, 1, samples=20, normalize=True, generator=random)
        for metric, values in expected.items():
            row = comparison.get(name, metric)
            assert row is not None
            assert row.value == pytest.approx(float(values.mean()), abs=1e-6), metric
            assert row.error == pytest.approx(float(values.std()) / math.sqrt(len(GRAPHS)), abs=1e-6)
            assert row.n == len(GRAPHS)
            torch.testing.assert_close(comparison.values[name][metric, ""], values, msg=metric)
        at = comparison.get(name, "fidelity_plus", 0.6)
        assert at is not None
        assert at.value == pytest.approx(float(curve.plus[1].mean()), abs=1e-6)


@pytest.mark.slow
def test_differences_are_paired() -> None:
    comparison = compared("goat", "occlusion", "random")
    ours, theirs = (comparison.values[name]["area_minus", ""] for name in ("random", "goat"))
    row = comparison.get("random", "area_minus")
    assert row is not None
    assert row.difference == pytest.approx(float((ours - theirs).mean()), abs=1e-6)
    assert row.difference_error == pytest.approx(float((ours - theirs).std()) / math.sqrt(5), abs=1e-6)
    assert row.verdict == ("alike" if abs(row.difference) <= 2 * row.difference_error else "worse")
    assert row.difference > 0  # less is better
    assert all(
        math.isnan(goat_row.difference) and not goat_row.verdict
        for goat_row in comparison.rows
        if goat_row.explainer == "goat"
    )
    other = compared("goat", "occlusion", "random", reference="random").get("goat", "area_minus")
    assert other is not None
    assert other.difference == pytest.approx(-row.difference)
    none = compared("occlusion", "random")
    assert none.reference is None
    assert all(math.isnan(goat_row.difference) and not goat_row.verdict for goat_row in none.rows)
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
@pytest.mark.slow
def test_completeness_of_those_that_claim_it() -> None:
    comparison = compared(*NAMES, EXPLAINERS["goat_adjacency"]())
    batch = Batch.from_data_list(GRAPHS)
    whole = MODEL(batch.x, batch.edge_index, batch.batch)
    masked = EdgeMaskedModel(MODEL)(torch.zeros(batch.num_edges), batch.x, batch.edge_index, batch.batch)
    removed = MODEL(batch.x, batch.edge_index[:, :0], batch.batch)
    for name, nothing in (("goat", masked), ("integrated_gradients", masked), ("goat_adjacency", removed)):
        lost = (whole - nothing).gather(1, whole.argmax(dim=1, keepdim=True)).squeeze(1)
        errors = (torch.stack([graph_scores.sum() for graph_scores in comparison.scores[name]]) - lost).abs()
        row = comparison.get(name, "largest_completeness_error")
        assert row is not None
        assert row.value == pytest.approx(float(errors.max()), abs=1e-6)
    assert comparison.get("occlusion", "completeness_error") is None
    assert comparison.best("completeness_error") in ("goat", "goat_adjacency")


@pytest.mark.slow
def test_order_of_explainers_does_not_matter_and_nothing_is_touched() -> None:
    model = make_gnn("gcn", dtype=torch.float32)
    model.out.weight.grad = torch.ones_like(model.out.weight)
    model.register_forward_hook(lambda *_: None)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    hooks = [
        (len(module._forward_hooks), len(module._forward_pre_hooks), module.training) for module in model.modules()
    ]
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
        (len(module._forward_hooks), len(module._forward_pre_hooks), module.training) for module in model.modules()
    ] == hooks
    assert [name for name, parameter in model.named_parameters() if parameter.grad is not None] == ["out.weight"]
    assert torch.equal(model.out.weight.grad, torch.ones_like(model.out.weight))
    for graph, expected in zip(graphs, GRAPHS, strict=True):
        assert all(torch.equal(graph[key], expected[key]) for key in ("x", "edge_index", "edge_label"))


def test_explainers_of_ones_own() -> None:
    plain = Plain()
    comparison = compared(Sources(), plain, reference="sources")
    for scores, graph in zip(comparison.scores["sources"], GRAPHS, strict=True):
        assert torch.equal(scores, graph.x[graph.edge_index[0], 0])
    assert plain.calls == len(GRAPHS)
    assert comparison.get("plain", "seconds_in_batch") is None
    assert comparison.get("plain", "area_gain").verdict in ("better", "alike", "worse")  # type: ignore[union-attr]


@pytest.mark.slow
def test_skipped_and_failing_explainers() -> None:
    error = RuntimeError("out\nof luck")
    wrong = Sources()
    wrong.scores = lambda model, graphs: graphs.x[:, 0]  # type: ignore[method-assign]
    others = (
        Failing("inapplicable", ExplainerSkippedError("not for you")),
        Failing("uninstalled", ImportError("no module named luck")),
        Failing("broken", error),
    )
    comparison = compared("goat", EXPLAINERS["attention"](), EXPLAINERS["pg_explainer"](), *others, wrong)
    assert list(comparison.scores) == ["goat"]
    assert comparison.failed["broken"] is error
    assert "Expected scores of shape [12]" in str(comparison.failed["sources"])
    assert comparison.skipped["inapplicable"] == "not for you"
    assert "luck" in comparison.skipped["uninstalled"]
    assert "attention layers" in comparison.skipped["attention"]
    assert "to be fitted. Call fit(model, graphs)" in str(comparison.failed["pg_explainer"])
    text = str(comparison)
    assert "- `broken`: RuntimeError: out of luck" in text
    assert "- `inapplicable`: not for you" in text
    with pytest.raises(RuntimeError, match="errors from all: broken: RuntimeError: out") as raised:
        compared(EXPLAINERS["attention"](), Failing("broken", error))
    assert raised.value.__cause__ is error
    assert "attention layers" in str(compared(EXPLAINERS["attention"]()))


def test_numbers_as_text() -> None:
    assert (seconds(0.00123), seconds(2.5), seconds(12.34), seconds(None)) == ("1.23 ms", "2.50 s", "12.3 s", "-")
    assert (signed(0.25, 0.1), signed(-0.00002, 0.00001)) == ("+0.250 ± 0.100", "-2e-05 ± 1e-05")
    assert (signed(0.25, math.nan), signed(math.nan, 0.1)) == ("+0.250", "-")


def test_batches_are_of_limited_size() -> None:
    assert [part for part, _ in batches(ba_2motifs(100))] == [slice(0, 64), slice(64, 100)]
    large = Data(edge_index=torch.zeros(2, 15_000, dtype=torch.long), num_nodes=1)
    assert [batch.num_edges for _, batch in batches([large, large])] == [15_000, 15_000]


def test_random_numbers_depend_on_the_seed_alone() -> None:
    state = torch.get_rng_state()
    with seeded(3):
        first = torch.rand(2), random.random()
    with seeded(3):
        assert torch.equal(torch.rand(2), first[0])
        assert random.random() == first[1]
    assert torch.equal(torch.get_rng_state(), state)
