"""Recipes in the paper's experiments: areas and verdicts by hand, and models that are not the paper's in a report."""

from __future__ import annotations

import csv
import math
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from benchmark_runs import quick_runs
from torch import Tensor
from torch_geometric.data import Data

from benchmarks.explainers import EXPLAINERS
from benchmarks.paper.explaining import Explanations
from benchmarks.paper.measurements import Key, Measurements
from benchmarks.paper.options import Options, parse
from benchmarks.paper.pages.recipes import all_trials, by_task, everywhere, in_words, recipes_page
from benchmarks.paper.recipes import (
    COMPARED,
    RECIPES,
    Area,
    Trial,
    areas_of_graphs,
    attributions_of,
    best_of,
    trials_of,
)
from benchmarks.paper.result_cache import Cell
from benchmarks.paper.run import run
from benchmarks.paper.study import Study
from benchmarks.paper.tasks import Task
from benchmarks.training import Split, TrainingResult
from captum_goat.models import GraphClassifier

SPARSITIES = (0.5, 0.6, 0.7, 0.8, 0.9)


def task_of(num_graphs: int, gnn: str = "gin", held_out: bool = True) -> Task:
    labels = torch.zeros(num_graphs, dtype=torch.long)
    graphs = [Data(x=torch.ones(2, 4), edge_index=torch.tensor([[0], [1]]))] * num_graphs
    training = TrainingResult(1.0, 0.9, 0.875, Split(labels, labels, labels), 1)
    model = GraphClassifier("gin", 4, 4, 2).eval()
    return Task("nci1", gnn, "generated", model, graphs, [], labels, labels, training, held_out)


def cell_of(name: str, plus: list[float], minus: list[float]) -> Cell:
    """Return a cell with level curves, whose area by their width is their height."""
    count = len(plus)
    explanation = Explanations([torch.zeros(0)] * count, torch.ones(1), 0.1, torch.full((count,), torch.nan))
    values = {
        Key(metric, "stay", "fixed", str(sparsity)): torch.tensor(heights)
        for metric, heights in (("fidelity_plus", plus), ("fidelity_minus", minus))
        for sparsity in SPARSITIES
    }
    return Cell(name, explanation, Measurements(values))


def study_of(*cells: Cell, gnn: str = "gin") -> Study:
    return Study(task_of(3, gnn), cells)


GOAT = cell_of("goat", [0.3, 0.3, 0.3], [0.2, 0.2, 0.2])
OCCLUSION = cell_of("occlusion", [0.4, 0.5, 0.6], [0.2, 0.3, 0.1])


def trial(name: str, plus: tuple[float, float], minus: tuple[float, float], value: float = 0.5) -> Trial:
    what = ("nci1", "gin", name, 1)
    return Trial(
        Area(*what, "fidelity_plus", value, 0.1, 9, "occlusion", *plus),
        Area(*what, "fidelity_minus", 0.0, 0.1, 9, "goat", *minus),
    )


def test_area_under_a_curve_by_hand() -> None:
    heights: dict[Key, Tensor] = {}
    for number, sparsity in enumerate(SPARSITIES):  # one graph's curve is level, the other's falls from 0.8 to 0
        heights[Key("fidelity_plus", "stay", "fixed", str(sparsity))] = torch.tensor([0.5, 0.8 - 0.2 * number])
        heights[Key("fidelity_plus", "leave", "fixed", str(sparsity))] = torch.tensor([9.0, 9.0])
    cell = Cell("goat", None, Measurements(heights))
    assert areas_of_graphs(cell, "fidelity_plus").tolist() == pytest.approx([0.5, 0.4])


def test_differences_are_paired_with_occlusion_and_with_goat() -> None:
    peeled = cell_of("goat_peeled", [0.5, 0.6, 0.7], [0.2, 0.1, 0.3])
    trials = {trial.explainer: trial for trial in trials_of(study_of(GOAT, OCCLUSION, peeled))}
    plus, minus = trials["goat_peeled"].plus, trials["goat_peeled"].minus
    assert (plus.reference, minus.reference, plus.attributions) == ("occlusion", "goat", 5)
    assert (plus.value, plus.difference, plus.difference_error) == (
        pytest.approx(0.6),
        pytest.approx(0.1),
        pytest.approx(0.0, abs=1e-7),
    )
    # 0, -0.1 and 0.1: mean 0, standard deviation 0.1
    assert minus.difference == pytest.approx(0.0, abs=1e-7)
    assert minus.difference_error == pytest.approx(0.1 / math.sqrt(3))
    assert trials["goat_peeled"].verdict == "by the mean"
    assert trials["goat"].verdict == "no"
    assert math.isnan(trials["goat"].minus.difference)
    assert math.isnan(trials["occlusion"].plus.difference)


def test_occlusion_by_deletion_comes_first() -> None:
    deleted = cell_of("occlusion_adjacency", [0.9] * 3, [0.1] * 3)
    trials = {trial.explainer: trial for trial in trials_of(study_of(GOAT, OCCLUSION, deleted))}
    assert {trial.plus.reference for trial in trials.values()} == {"occlusion_adjacency"}
    assert trials["occlusion"].plus.difference == pytest.approx(-0.4)
    assert math.isnan(trials["occlusion_adjacency"].plus.difference)


def test_fewer_graphs_are_compared_with_the_first_of_the_others() -> None:
    peeled = cell_of("goat_peeled", [0.5], [0.1])
    (trial,) = [
        candidate for candidate in trials_of(study_of(GOAT, OCCLUSION, peeled)) if candidate.explainer == "goat_peeled"
    ]
    assert (trial.plus.n, trial.plus.difference) == (1, pytest.approx(0.1))
    assert math.isnan(trial.plus.difference_error)
    assert trial.meets()


def test_nothing_to_compare_with() -> None:
    assert not list(trials_of(study_of(GOAT)))
    assert not list(trials_of(study_of(OCCLUSION)))
    assert not list(trials_of(Study(task_of(3, held_out=False), [GOAT, OCCLUSION])))
    assert recipes_page([study_of(GOAT, OCCLUSION)], "recipes.csv") == ""


@pytest.mark.parametrize(
    ("plus", "minus", "verdict"),
    [
        ((0.1, 0.1), (-0.1, 0.1), "by the mean"),
        ((0.0, 0.0), (0.0, 0.0), "by the mean"),
        ((-1e-7, 1e-9), (1e-7, 1e-9), "by the mean"),  # rounding
        ((-0.1, 0.06), (-0.1, 0.1), "within two errors"),
        ((0.1, 0.1), (0.1, 0.06), "within two errors"),
        ((-0.1, 0.04), (-0.1, 0.1), "no"),
        ((0.1, 0.1), (0.1, 0.04), "no"),
        ((-0.1, math.nan), (0.0, math.nan), "no"),
    ],
)
def test_both_conditions(plus: tuple[float, float], minus: tuple[float, float], verdict: str) -> None:
    assert trial("goat_peeled", plus, minus).verdict == verdict


def test_best_meets_most_and_then_gains_most() -> None:
    far = trial("goat_peeled", (-0.1, 0.01), (0.0, 0.1), value=0.9)
    near = trial("goat_adjacency", (-0.1, 0.06), (0.0, 0.1), value=0.8)
    met = trial("ig_half_peeled_both", (0.1, 0.1), (0.0, 0.1), value=0.5)
    more = trial("goat_adjacency_peeled", (0.1, 0.1), (0.0, 0.1), value=0.6)
    assert best_of([far, near]) is near
    assert best_of([far, near, met, more]) is more
    same = trial("ig_half_adjacency_peeled_both", (0.1, 0.1), (0.0, 0.1), value=0.5 + 1e-9)
    assert best_of([met, same]) is met


def test_no_recipe_takes_more_than_eight_attributions() -> None:
    assert set(COMPARED) <= set(EXPLAINERS)
    assert {name: attributions_of(name) for name in COMPARED} == {
        "goat": 1,
        "goat_adjacency": 1,
        "goat_adjacency_proportional": 1,
        "goat_peeled": 5,
        "goat_adjacency_peeled": 5,
        "ig_half_peeled_both": 8,
        "ig_half_adjacency_peeled_both": 8,
        "ig_half_peeled_2_1": 8,
        "ig_half_adjacency_peeled_2_1": 8,
        "occlusion_adjacency": 0,
        "occlusion": 0,
        "random_peeled": 0,
        "random": 0,
    }


def test_section_counts_tasks_and_says_where_none_meets_both() -> None:
    good = cell_of("goat_peeled", [0.5, 0.6, 0.7], [0.1, 0.1, 0.1])
    bad = cell_of("goat_peeled", [0.2, 0.3, 0.4], [0.1, 0.1, 0.1])
    controls = [cell_of("random", [0.1, 0.2, 0.3], [0.5] * 3), cell_of("random_peeled", [0.3, 0.2, 0.2], [0.6] * 3)]
    studies = [
        study_of(GOAT, OCCLUSION, good, *controls),
        study_of(GOAT, OCCLUSION, bad, *controls, gnn="gcn_textbook"),
    ]
    trials = all_trials(studies)
    assert (
        "| `goat_peeled` | 5 | 1 of 2 | 1 of 2 | 1 of 2 | 1 of 2 | 2 of 2 | 2 of 2 | -0.050 | -0.100 |"
        in everywhere(trials)
    )
    lines = by_task(trials, studies).splitlines()
    assert lines[2].startswith("| NCI1, GIN | 0.88 | `goat_peeled` | none | `goat_peeled` | 5 | +0.100")
    assert lines[3].startswith("| NCI1, GCN (textbook) | 0.88 | none | none | none; nearest `goat_peeled` | 5 | -0.200")
    words = in_words(trials)
    assert words.startswith("On 1 of 2 tasks a recipe meets both conditions by the mean, on 0 more")
    assert "**No recipe does on 1.**" in words
    assert "NCI1, GCN (textbook): `goat_peeled` has fid+ -0.200" in words
    section = recipes_page(studies, "benchmark/recipes.csv")
    for phrase in ('removal="cut"', 'order="both"', "upper half", "chosen on graphs\nof these same datasets"):
        assert phrase in section
    # fid+: 0.2, 0 and -0.1 in both tasks, fid-: 0.1 each, without a doubt
    assert "differs in fid+ by +0.033 on average over 2 tasks, and by more than two standard errors on 0" in section
    assert "The wrapper itself is not flattered" in section
    assert "in fid- by +0.100 on average over 2 tasks, and by more than two standard errors on 2" in section


def test_section_says_if_rounds_alone_help() -> None:
    controls = [cell_of("random", [0.1, 0.2, 0.3], [0.5] * 3), cell_of("random_peeled", [0.2, 0.3, 0.4], [0.5] * 3)]
    section = recipes_page([study_of(GOAT, OCCLUSION, cell_of("goat_peeled", [0.5] * 3, [0.1] * 3), *controls)], "")
    assert "The wrapper itself is flattered" in section


def test_tasks_without_anything_to_explain_are_not_counted() -> None:
    idle = [cell_of(name, [1e-6] * 3, [1e-5] * 3) for name in ("goat", "occlusion", "goat_peeled")]
    peeled = cell_of("goat_peeled", [0.5, 0.6, 0.7], [0.1, 0.1, 0.1])
    studies = [study_of(*idle, gnn="gcn_textbook"), study_of(GOAT, OCCLUSION, peeled)]
    section = recipes_page(studies, "benchmark/recipes.csv")
    assert "Not counted is what has nothing to explain: NCI1, GCN (textbook). Predictions hardly" in section
    assert "On 1 of 1 tasks" in section
    assert "| `goat_peeled` | 5 | 1 of 1 |" in section
    assert "Not counted" not in recipes_page(studies[1:], "benchmark/recipes.csv")


@pytest.mark.slow
def test_report_with_a_model_that_is_not_the_papers(tmp_path: Path) -> None:
    """It is among the recipes, and nowhere where methods are counted over tasks."""
    few = ("goat", "occlusion", "goat_adjacency")
    options = Options(
        datasets=("ba_2motifs",),
        gnns=("gcn", "gcn_textbook"),
        explainers=(*few, "saliency"),
        data=None,
        out=tmp_path,
        cache=tmp_path / "cache",
        limit=3,
        epochs=1,
        whole=False,
        progress=False,
        other_explainers=(*few, "goat_adjacency_peeled"),
    )
    with quick_runs(num_graphs=100):
        first, textbook = run(options), "GCN (textbook)"
    pages = {path.stem: path.read_text(encoding="utf-8") for path in (first, *(tmp_path / "benchmark").glob("*.md"))}
    assert "of 1 pairs of dataset and model" in pages["benchmark"]
    assert textbook in pages["benchmark"].split("## Accuracies of the models")[1]
    assert textbook not in pages["benchmark"].split("## Accuracies of the models")[0]
    paper, other = pages["fidelity"].split(f"## {textbook}")
    assert textbook not in paper
    assert "`goat_adjacency`" not in paper
    assert "| `goat_adjacency` |" in other
    named = {name: {page for page in pages if name in pages[page]} for name in (textbook, "`goat_adjacency`")}
    assert named[textbook] - {"benchmark"} == named["`goat_adjacency`"] == {"recipes", "times", "protocol", "fidelity"}
    assert "`goat_adjacency_peeled`" in pages["recipes"]
    with (tmp_path / "benchmark" / "recipes.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == [column.name for column in fields(Area)]
    row_of = {(row["gnn"], row["explainer"], row["metric"]): row for row in rows}
    assert len(row_of) == len(rows) == 2 * (3 + 4)
    # This model only sums over its edges.
    for metric in ("fidelity_plus", "fidelity_minus"):
        assert row_of["gcn", "goat_adjacency", metric]["value"] == row_of["gcn", "goat", metric]["value"]


def test_options_have_explainers_for_other_models() -> None:
    given = parse(["--gnns", "gin", "gcn_textbook", "--other-explainers", "goat", "occlusion"])
    assert given.explainers_of("gcn_textbook") == ("goat", "occlusion")
    assert given.explainers_of("gin") == tuple(EXPLAINERS)
    assert parse([]).explainers_of("gcn_textbook") == tuple(EXPLAINERS)
    assert set(RECIPES) <= set(EXPLAINERS)
