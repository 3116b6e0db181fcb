"""The parts of the paper's experiments, on numbers that can be checked by hand."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from scipy.stats import ttest_rel
from torch import Tensor
from torch_geometric.data import Batch, Data

from benchmarks.explainers import EXPLAINERS
from benchmarks.paper import verdicts
from benchmarks.paper.csv_files import write_csv
from benchmarks.paper.explaining import Explanations, TimeLimitError, explain_task, time_limit
from benchmarks.paper.matrix import verdict_matrix
from benchmarks.paper.measurements import Key, Measurements, measure, searched
from benchmarks.paper.result_cache import Cell
from benchmarks.paper.results import Row, read_rows, rows_of
from benchmarks.paper.study import Results
from benchmarks.paper.tasks import Task, in_turn
from benchmarks.paper_metrics import search_prefix
from benchmarks.training import Split, TrainingResult
from captum_goat.compare.comparison import mean_and_error
from captum_goat.compare.run import explain
from captum_goat.datasets import ba_2motifs
from captum_goat.models import GraphClassifier

KEY = Key("area_gain", "leave", "fixed")


def task_of(num_graphs: int, wrong: tuple[int, ...] = ()) -> Task:
    torch.manual_seed(0)
    graphs = in_turn(ba_2motifs(num_graphs), seed=0)
    labels = torch.cat([graph.y for graph in graphs])
    predicted = labels.clone()
    predicted[list(wrong)] = 1 - predicted[list(wrong)]
    training = TrainingResult(1.0, 0.9, 0.8, Split(labels, labels, labels), 1)
    model = GraphClassifier("gin", 10, 8, 2).eval()
    return Task("ba_2motifs", "gin", "generated", model, graphs, [], labels, predicted, training)


def cell_of(name: str, values: Tensor, groups: Tensor | None = None) -> Cell:
    count = len(values)
    nothing = torch.full((count,), torch.nan)
    explanation = Explanations([torch.zeros(0)] * count, torch.tensor([0.3, 0.1, 0.2]), 0.05, nothing)
    coverage = {} if groups is None else {Key("coverage", "leave", "search", "0.7"): groups}
    return Cell(name, explanation, Measurements({KEY: values}, {}, coverage))


def found_row(rows: list[Row], name: str, protocol: str, metric: str, label: str = "all") -> Row:
    (row,) = [
        row for row in rows if (row.explainer, row.protocol, row.metric, row.label) == (name, protocol, metric, label)
    ]
    return row


def test_paired_differences_by_hand() -> None:
    task = task_of(4, wrong=(3,))
    goat, other = torch.tensor([0.5, 0.7, 0.9, 0.1]), torch.tensor([0.6, 0.9, 0.9, 0.0])
    rows = list(rows_of(task, [cell_of("goat", goat), cell_of("occlusion", other)]))

    # Differences are 0.1, 0.2, 0 and -0.1: mean 0.05, variance (0.05^2 + 0.15^2 + 0.05^2 + 0.15^2) / 3 = 0.05 / 3.
    row = found_row(rows, "occlusion", "predicted", "area_gain")
    assert (row.value, row.n) == (pytest.approx(0.6), 4)
    assert row.difference == pytest.approx(0.05)
    assert row.difference_error == pytest.approx(math.sqrt(0.05 / 3) / 2)
    # The fourth graph is predicted wrongly: 0.1, 0.2 and 0 are left, variance 0.02 / 2.
    row = found_row(rows, "occlusion", "correct", "area_gain")
    assert (row.value, row.n) == (pytest.approx(0.8), 3)
    assert row.difference == pytest.approx(0.1)
    assert row.difference_error == pytest.approx(math.sqrt(0.01 / 3))
    assert math.isnan(found_row(rows, "goat", "predicted", "area_gain").difference)


def test_slow_methods_are_compared_on_their_own_graphs() -> None:
    task = task_of(4)
    goat, other = torch.tensor([0.5, 0.7, 0.9, 0.1]), torch.tensor([0.6, 0.9])
    rows = list(rows_of(task, [cell_of("goat", goat), cell_of("occlusion", other)]))
    row = found_row(rows, "occlusion", "predicted", "area_gain")
    assert (row.n, row.difference) == (2, pytest.approx(0.15))
    assert row.difference_error == pytest.approx(0.05)


def test_without_goat_there_are_no_differences() -> None:
    rows = list(rows_of(task_of(2), [cell_of("occlusion", torch.tensor([0.5, 0.7]))]))
    assert math.isnan(found_row(rows, "occlusion", "predicted", "area_gain").difference)


def test_coverage_by_hand() -> None:
    task = task_of(8, wrong=(7,))  # classes take turns: 0, 1, 0, 1, ...; the last, of class 1, is predicted as 0
    groups = torch.tensor([0, 5, 0, 5, 1, 6, 2, 9])
    rows = list(rows_of(task, [cell_of("goat", torch.zeros(8), groups)]))
    assert found_row(rows, "goat", "correct", "top1_coverage", "0").value == pytest.approx(0.5)
    assert found_row(rows, "goat", "correct", "top3_coverage", "0").value == pytest.approx(1.0)
    assert found_row(rows, "goat", "correct", "top1_coverage", "1").value == pytest.approx(2 / 3)
    assert found_row(rows, "goat", "correct", "top1_coverage", "1").n == 3


def test_times_are_medians() -> None:
    rows = list(rows_of(task_of(2), [cell_of("goat", torch.zeros(2))]))
    assert found_row(rows, "goat", "predicted", "seconds_alone").value == pytest.approx(0.2)
    assert found_row(rows, "goat", "predicted", "seconds_in_batch").value == pytest.approx(0.05)


def test_mean_and_error() -> None:
    assert mean_and_error(torch.tensor([1.0, 2.0, 3.0, torch.nan])) == (2.0, pytest.approx(1 / math.sqrt(3)), 3)
    mean, error, count = mean_and_error(torch.tensor([torch.nan]))
    assert math.isnan(mean)
    assert math.isnan(error)
    assert count == 0


@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz"])
def test_rows_survive_the_file(tmp_path: Path, name: str) -> None:
    rows = [
        Row(
            "nci1",
            "gcn",
            "goat",
            "correct",
            "all",
            "leave",
            "fixed",
            "0.7",
            "fidelity_plus",
            0.25,
            0.5,
            7,
            -0.125,
            0.25,
        ),
        Row("nci1", "gcn", "", "", "all", "", "", "", "test_accuracy", 0.75),
    ]
    write_csv(tmp_path / name, rows, Row)
    assert repr(read_rows(tmp_path / name)) == repr(rows)
    content = (tmp_path / name).read_bytes()
    assert content.startswith(b"\x1f\x8b") == name.endswith(".gz")
    write_csv(tmp_path / f"other_{name}", rows, Row)
    assert (tmp_path / f"other_{name}").read_bytes() == content, "the same table is the same file"


def row_of(name: str, difference: float, error: float = 0.05, metric: str = "area_gain", **where: str) -> Row:
    place = {"nodes": "stay", "selection": "fixed", "sparsity": "", "label": "all", "dataset": "nci1"} | where
    what = (place["dataset"], "gcn", name, "predicted", place["label"], place["nodes"], place["selection"])
    return Row(
        *what, place["sparsity"], metric, value=0.5 + difference, n=9, difference=difference, difference_error=error
    )


def test_holm_by_hand() -> None:
    """Four p-values: 0.005 * 4, 0.01 * 3, 0.03 * 2 and 0.04, which must not become smaller than 0.06."""
    assert verdicts.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert verdicts.holm([0.6, 0.9]) == [1.0, 1.0]
    assert verdicts.holm([]) == []


def test_p_values_are_those_of_a_paired_test() -> None:
    values, others = torch.rand(2, 12, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    difference, error, n = mean_and_error(values - others)
    row = replace(row_of("occlusion", difference, error), n=n)
    assert verdicts.p_value(row) == pytest.approx(float(ttest_rel(values, others).pvalue))
    assert verdicts.p_value(replace(row, difference_error=0.0)) == 0.0
    assert verdicts.p_value(replace(row, difference=0.0, difference_error=0.0)) == 1.0
    assert math.isnan(verdicts.p_value(replace(row, n=1)))


def test_many_comparisons_are_corrected() -> None:
    """A difference of three standard errors is decided alone (p = 0.017), and not among ten."""
    row, others = row_of("occlusion", 0.3, 0.1), [row_of(f"other{number}", 0.0, 0.1) for number in range(9)]
    assert verdicts.judge([row])[row] == "better"
    assert verdicts.judge([row, *others])[row] == "alike"
    tiny = row_of("degree", 0.0004, 0.00001)
    assert verdicts.judge([tiny])[tiny] == "alike"


def test_verdicts() -> None:
    rows = [row_of("goat", 0.0), row_of("occlusion", 0.3), row_of("saliency", 0.1), row_of("random", -0.3)]
    assert [verdicts.judge(rows).get(row) for row in rows] == [None, "better", "alike", "worse"]
    results = Results(rows)
    assert "| NCI1, GCN | 0.500 | `occlusion` (+0.300) | `saliency` | `random` |" in verdicts.by_task(results, "stay")
    best = verdicts.best_by_task(results, "stay")
    assert "| NCI1, GCN | 0.500 | 3 of 4 | 1 / 1 / 1 | `occlusion` (+0.300 ± 0.050) |" in best
    of_class = [replace(row, label="1", n=4 if row.explainer == "saliency" else 9) for row in rows]
    best = verdicts.best_by_task(Results([*rows, *of_class]), "stay", per_class=True)
    assert best.splitlines()[2:] == [
        "| NCI1, GCN, class 1 | 0.500 | 2 of 3 | 1 / 1 / 1 | `occlusion` (+0.300 ± 0.050) |"
    ]
    lines = verdicts.by_explainer(results, ["stay"]).splitlines()[2:]
    assert lines == [
        "| `occlusion` | 1 / 0 / 0 | +0.300 | - |",
        "| `saliency` | 0 / 1 / 0 | +0.100 | - |",
        "| **`goat`** | - | - | - |",
        "| `random` | 0 / 0 / 1 | -0.300 | - |",
    ]
    unsure = row_of("kernel_shap", 0.4, 0.3)
    best = verdicts.best_by_task(Results([*rows, unsure]), "stay")
    assert "| 4 of 5 | 1 / 2 / 1 | `occlusion` (+0.300 ± 0.050) |" in best, "the best is one that is surely better"
    best = verdicts.best_by_task(Results([rows[0], *rows[2:]]), "stay")
    assert "| 2 of 3 | 0 / 1 / 1 | none is better |" in best
    words = verdicts.in_words(results, "stay")
    assert words.startswith("On 0 of 1 pairs")
    assert "`occlusion` on 1" in words


def test_matrix_has_criteria_with_figures_only(tmp_path: Path) -> None:
    rows = [row_of("goat", 0.0), row_of("occlusion", 0.3), row_of("occlusion", -0.3, dataset="mutagenicity")]
    plain = verdict_matrix(Results(rows), tmp_path).splitlines()
    assert plain[0] == "| explainer | fidelity |"
    assert plain[2:] == ["| **`goat`** | - |", "| `occlusion` | [1 / 0 / 1](benchmark/fidelity.md) |"]
    rows.append(row_of("occlusion", 0.2, metric="ground_truth_auc", nodes="", selection=""))
    rows.append(row_of("goat", 1e-6, metric="largest_completeness_error", nodes="", selection=""))
    rows.append(replace(row_of("goat", 0.25, metric="top1_coverage", nodes="leave", label="0"), protocol="correct"))
    (tmp_path / "white_box.csv").write_text(
        "case,explainer,auc\na,goat,1.0\nb,goat,0.5\nb,goat,0.5\na,occlusion,0.25\n"
    )
    (tmp_path / "in_distribution_ba_2motifs_gin.csv").write_text(
        "explainer,seed,metric,share,value\ngoat,0,edge_rank,,0.25\ngoat,1,edge_rank,,0.5\ngoat,0,ginx,0.1,9\n"
    )
    header = "explainer,weights,last_layer,target,labels,null,node_order,ignored_features,runs,noise"
    (tmp_path / "benchmark").mkdir()
    for name in ("nci1_gin", "ba_2motifs_gin"):
        (tmp_path / "benchmark" / f"sanity_{name}.csv").write_text(
            f"{header}\ngoat,0.1,0.9,0,0,0,0,0,1,1\nrandom,1,1,1,1,1,1,1,0,0\n"
        )
    lines = [line.strip("| ").split(" | ") for line in verdict_matrix(Results(rows), tmp_path).splitlines()]
    goat, occlusion = (dict(zip(lines[0], cells, strict=True)) for cells in lines[2:])
    assert goat == {
        "explainer": "**`goat`**",
        "fidelity": "-",
        "motif AUC": "-",
        "white-box AUC": "[0.75](white_box.md)",
        "sanity, ba_2motifs gin": "[8 of 9](benchmark/sanity_ba_2motifs_gin.md)",
        "sanity, nci1 gin": "[8 of 9](benchmark/sanity_nci1_gin.md)",
        "EdgeRank": "[0.38](in_distribution_ba_2motifs_gin.md)",
        "stability": "[75 %](benchmark/stability.md)",
        "adds up to": "[5e-01](benchmark/times.md)",
    }
    assert occlusion["fidelity"] == "[1 / 0 / 1](benchmark/fidelity.md)"
    assert occlusion["motif AUC"] == "[1 / 0 / 0](benchmark/truth.md)"
    assert occlusion["sanity, nci1 gin"] == "-"


def test_order_has_classes_in_turn_and_nothing_without_edges() -> None:
    graphs = ba_2motifs(9)
    graphs.append(Data(x=torch.ones(2, 10), edge_index=torch.empty(2, 0, dtype=torch.long), y=torch.tensor([1])))
    ordered = in_turn(graphs, seed=1)
    assert [int(graph.y) for graph in ordered] == [0, 1, 0, 1, 0, 1, 0, 1, 0]
    assert [graph.edge_index.tolist() for graph in ordered] == [
        graph.edge_index.tolist() for graph in in_turn(graphs, seed=1)
    ]


@pytest.mark.parametrize("name", ["goat", "random", "integrated_gradients"])
def test_explanations_are_those_of_single_graphs(name: str) -> None:
    task = task_of(3)
    explainer = EXPLAINERS[name]()
    told: list[int] = []
    found = explain_task(explainer, task, 2, advance=told.append)
    assert (len(found.scores), sum(told)) == (2, 2)
    pairs = zip(task.graphs[:2], task.predicted, strict=False)
    single = torch.cat([explainer(task.model, graph, target.view(1)) for graph, target in pairs])
    torch.testing.assert_close(torch.cat(found.scores), single, atol=1e-5, rtol=1e-4)
    assert bool(found.completeness_error.isnan().all()) == (not explainer.complete)


def test_budget_ends_explaining_after_one_graph() -> None:
    task = task_of(4)
    assert len(explain(EXPLAINERS["random"](), task.subject(4), budget=0.0).scores) == 1
    assert len(explain(EXPLAINERS["goat"](), task.subject(4), budget=0.0).scores) == 1


def test_search_by_size_is_the_search_of_all_together(monkeypatch: pytest.MonkeyPatch) -> None:
    task = task_of(5)
    batch = Batch.from_data_list([task.graphs[0], *task.graphs])
    target = torch.cat([task.predicted[:1], task.predicted])
    scores = torch.rand(batch.num_edges, generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr("benchmarks.paper.measurements.SEARCHED_AT_ONCE", 2)
    for nodes in task.policies:
        expected = search_prefix(task.model, batch, scores, 0.7, target, nodes).selected
        assert torch.equal(searched(task, batch, scores, target, nodes), expected)


def test_measurements_have_one_number_per_graph() -> None:
    task = task_of(4)
    scores = torch.rand(sum(graph.num_edges for graph in task.graphs[:3]), generator=torch.Generator().manual_seed(0))
    measurements = measure(task, scores, 3)
    assert all(values.shape == (3,) for values in [*measurements.values.values(), *measurements.groups.values()])
    assert all(values.shape == (3, 8) for values in measurements.embeddings.values())
    policies = {key.nodes for key in measurements.values if key.metric == "fidelity_plus"}
    assert policies == {"stay", "leave"}


def test_a_graph_that_takes_too_long_is_given_up() -> None:
    start = time.process_time()

    def work() -> None:
        with time_limit(0.05):
            while time.process_time() < start + 5:
                pass

    with pytest.raises(TimeLimitError):
        work()
    assert time.process_time() < start + 4
    with time_limit(0.05):
        pass
    with time_limit(float("inf")):
        pass


def test_a_task_whose_first_graph_takes_too_long_is_given_up() -> None:
    class Slow(type(EXPLAINERS["random"]())):  # type: ignore[misc]
        def scores(self, model: object, graphs: object) -> Tensor:
            end = time.process_time() + 5
            while time.process_time() < end:
                pass
            raise AssertionError

    with pytest.raises(TimeLimitError, match=r"one graph with \d+ edges took over 0 s"):
        explain_task(Slow(), task_of(2), 2, budget=0.02)


def test_short_calls_can_be_timed_while_their_time_is_limited() -> None:
    start, seen = time.perf_counter(), set()
    with time_limit(60.0):
        while time.perf_counter() < start + 0.2:
            seen.add(time.process_time())
    assert len(seen) > 100
