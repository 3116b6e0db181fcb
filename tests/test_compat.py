"""The table of what is explained exactly holds for every case in it, and misses no class of PyG."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from torch_geometric.nn import aggr as pyg_aggregations
from torch_geometric.nn import conv as pyg_convs
from torch_geometric.nn import models as pyg_models
from torch_geometric.nn import norm as pyg_norms

from benchmarks.compat import convs, layers, models, table
from benchmarks.compat.__main__ import all_cases, main
from benchmarks.compat.check import EXACT, NOT_HERE, REFUSED, WRONG, Case, Result, check, first_sentence

TEXT = (Path(__file__).parent.parent / "docs" / "compat.md").read_text(encoding="utf-8")
RESULTS = table.read_results(TEXT)
STATUS = table.read(TEXT)
CASES = list(all_cases())
FAST_KEYS = {  # every third convolution and model; other layers have tests of their own
    case.key
    for case in list({(case.section, case.name): case for case in reversed(CASES)}.values())[::3]
    if case.section in (convs.SECTION, models.SECTION)
}


def _exact(section: str, names: list[str]) -> int:
    results = [(case, Result(STATUS[case.key])) for case in CASES if case.key in STATUS]
    return table.counts(results, section, names)[EXACT]


def marks(number: int, case: Case) -> list[pytest.MarkDecorator]:
    """Return the marks of a case: of PyG's basic models with every norm, activation and kind of jumps, few are run."""
    if case.section.startswith("Basic models") and number % 5:
        return [pytest.mark.exhaustive]
    return [] if case.key in FAST_KEYS else [pytest.mark.slow]


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=marks(number, case)) for number, case in enumerate(CASES)],
    ids=[" ".join(filter(None, case.key)) for case in CASES],
)
def test_the_table_holds(case: Case) -> None:
    result = check(case)
    assert result.status != WRONG, result.detail
    elsewhere = re.search(r"\(torch_geometric (\S+)\)$", RESULTS[case.key].detail)
    versions = table.versions_of(TEXT) if elsewhere is None else f"torch_geometric {elsewhere[1]} "
    if not table.versions().startswith(versions):
        pytest.skip(f"the row is not of {table.versions()}")
    assert result.status == STATUS[case.key], result.detail


def test_the_table_has_every_case_and_no_other() -> None:
    assert len({case.key for case in CASES}) == len(CASES)
    assert set(STATUS) == {case.key for case in CASES}
    assert WRONG not in STATUS.values()


@pytest.mark.parametrize(
    ("section", "names"),
    [
        (convs.SECTION, pyg_convs.__all__),
        (models.SECTION, pyg_models.__all__),
        (layers.AGGREGATIONS, [name for name in pyg_aggregations.__all__ if name != "Aggregation"]),
        (layers.NORMS, pyg_norms.__all__),
    ],
)
def test_the_table_has_every_class_of_pyg(section: str, names: list[str]) -> None:
    assert set(names) <= {case.name for case in CASES if case.section == section}


def test_most_classes_are_exact() -> None:
    assert _exact(convs.SECTION, pyg_convs.__all__) >= 60
    assert _exact(models.SECTION, pyg_models.__all__) >= 35


def test_what_is_written_is_read_back() -> None:
    results = [(case, Result(REFUSED, "a | b")) for case in CASES]
    assert table.read(table.write(results)) == {case.key: REFUSED for case in CASES}


@pytest.mark.slow
def test_the_command_prints_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "LGConv"]) == 0
    assert "| LGConv |  | exact |" in capsys.readouterr().out
    assert main(["--only", "LGConv", "--write", str(tmp_path / "table.md")]) == 0
    assert "| LGConv |  | exact |" in (tmp_path / "table.md").read_text(encoding="utf-8")
    with pytest.raises(SystemExit):
        main(["--only", "NoSuchConv"])


def test_rows_of_other_versions_stand_for_what_is_not_here() -> None:
    case, other = CASES[0], CASES[1]
    there = table.write([(case, Result(EXACT, "gates: relu")), (other, Result(REFUSED))]).replace(
        table.versions(), "torch_geometric 1.0.0 (torch 1.0.0) with torch-cluster 1.0"
    )
    here = table.with_others([(case, Result(NOT_HERE, "ImportError")), (other, Result(EXACT, "linear"))], there)
    assert [result for _, result in here] == [
        Result(EXACT, "gates: relu (torch_geometric 1.0.0)"),
        Result(EXACT, "linear"),
    ]
    text = table.write(here, table.versions_of(there))
    assert "tried with torch_geometric 1.0.0 (torch 1.0.0) with torch-cluster 1.0; those rows" in text
    assert table.read_results(text)[case.key] == here[0][1]


def test_errors_are_cut_after_their_first_sentence() -> None:
    assert first_sentence("'a.b' is\nnot linear. Use c.") == "'a.b' is not linear."
    assert first_sentence("no end") == "no end"
