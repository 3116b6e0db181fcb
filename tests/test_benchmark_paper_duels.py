"""Duels of the paper's experiments: verdicts by hand, and the page."""

from __future__ import annotations

import math

import pytest
import torch
from test_benchmark_paper_recipes import cell_of, study_of

from benchmarks.paper.duels import Duel, all_duels, corrected
from benchmarks.paper.measurements import Key
from benchmarks.paper.pages.duels import duels_page
from benchmarks.paper.result_cache import Cell


def cell(name: str, plus: list[float], minus: list[float]) -> Cell:
    """Return a cell with level curves, their gain, and robust fidelities of a tenth of both."""
    made, where = cell_of(name, plus, minus), ("stay", "fixed")
    made.measurements.values[Key("area_gain", *where)] = torch.tensor(plus) - torch.tensor(minus)
    made.measurements.values[Key("robust_fidelity_plus", *where, "0.7")] = torch.tensor(plus) / 10
    made.measurements.values[Key("robust_fidelity_minus", *where, "0.7")] = torch.tensor(minus) / 10
    return made


SEARCH = cell("edge_set_search", [0.5, 0.6, 0.7], [0.1, 0.1, 0.1])
OCCLUSION = cell("occlusion", [0.4, 0.6, 0.5], [0.3, 0.3, 0.3])
GUIDED = cell("guided_shapley_64", [0.1, 0.2, 0.3], [0.1, 0.2, 0.1])
GOAT = cell("goat", [0.3, 0.4], [0.1, 0.1])  # explained fewer graphs


def test_differences_by_hand() -> None:
    duels = {(duel.explainer, duel.other, duel.metric): duel for duel in all_duels([study_of(SEARCH, OCCLUSION)])}
    assert len(duels) == 4
    plus, minus = (duels["edge_set_search", "occlusion", f"fidelity_{side}"] for side in ("plus", "minus"))
    # 0.1, 0 and 0.2: mean 0.1, standard deviation 0.1
    assert (plus.difference, plus.difference_error) == (pytest.approx(0.1), pytest.approx(0.1 / math.sqrt(3)))
    assert plus.verdict == "alike"
    assert (minus.difference, minus.advantage, minus.verdict) == (pytest.approx(-0.2), pytest.approx(0.2), "better")
    assert duels["edge_set_search", "occlusion", "area_gain"].difference == pytest.approx(0.3)
    assert duels["edge_set_search", "occlusion", "robust_fidelity"].difference == pytest.approx(0.03)


def test_graphs_that_both_explained_count() -> None:
    (duel,) = (duel for duel in all_duels([study_of(GUIDED, GOAT)]) if duel.other == "goat")
    assert (duel.n, duel.value, duel.other_value) == (2, pytest.approx(0.0), pytest.approx(0.25))
    assert duel.difference == pytest.approx(-0.25)


def test_verdicts_after_holms_correction() -> None:
    """p-values of 0.017 and 0.35: twice the first is still below 0.05; three times it is not."""
    what = ("nci1", "gin", "guided_shapley_64", "goat", "area_gain", 0.5, 0.2)
    clear, unclear = Duel(*what, 0.3, 0.1, 9), Duel(*what, 0.1, 0.1, 9)
    assert corrected([clear, unclear]) == ["better", "alike"]
    assert corrected([clear, unclear, unclear]) == ["alike"] * 3
    assert [duel.verdict for duel in (clear, unclear)] == ["better", "alike"]
    assert Duel(*what, 0.0001, 0.0, 9).verdict == "alike", "too small to be seen"


def test_page() -> None:
    page = duels_page([study_of(SEARCH, OCCLUSION, GUIDED), study_of(GUIDED, OCCLUSION, gnn="gcn")], "duels.csv")
    counts = "| `guided_shapley_64` | `occlusion` | gain | 0 / 2 / 0 (0 / 2 / 0) | -0.133 | 3 |"
    lines = [line for line in page.splitlines() if line.startswith("| `guided_shapley_64` | `occlusion` | gain")]
    # the gains are 0, 0 and 0.2 against 0.1, 0.3 and 0.2: mean difference -0.133, standard error 0.088
    assert lines == [counts]
    assert "| NCI1, GIN | 0.067 | -0.133 ± 0.088 |" in page
    assert "**-0.200 ± 0.000**" in page, "a difference that is decided is bold"
    assert duels_page([study_of(GOAT)], "duels.csv") == ""
    lost = duels_page([study_of(cell("guided_shapley_64", [0.1] * 3, [0.3] * 3), OCCLUSION)], "duels.csv")
    assert "| NCI1, GIN | gain | -0.200 against 0.200 | -0.400 ± 0.058 | 3 |" in lost
