"""The paper's experiments on a tiny configuration: the files that come out, and going on after an interruption."""

from __future__ import annotations

import csv
import gzip
import math
import shutil
from collections.abc import Iterator
from dataclasses import astuple, fields, replace
from pathlib import Path

import pytest
import torch
from benchmark_runs import quick_runs

from benchmarks.explainers import EXPLAINERS
from benchmarks.paper.options import GNNS, Options, parse
from benchmarks.paper.results import Row, read_rows
from benchmarks.paper.run import run
from benchmarks.paper.study import Results

NAMES = ("goat", "random", "occlusion", "integrated_gradients")
pytestmark = pytest.mark.slow
TIMES = ("seconds_alone", "seconds_in_batch", "seconds_to_fit")


def tiny(folder: Path, **changes: object) -> Options:
    options = Options(
        datasets=("ba_2motifs", "ba_shapes"),
        gnns=("gcn",),
        explainers=NAMES,
        data=None,
        out=folder,
        cache=folder / "cache",
        limit=6,
        epochs=10,  # so that both classes are predicted
        whole=False,
        progress=False,
    )
    return replace(options, **changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("benchmark")
    with quick_runs(pictures=True):
        run(tiny(folder))
    return folder


@pytest.fixture(autouse=True)
def quick(finished: Path, tmp_path: Path) -> Iterator[None]:
    """Give other runs the trained models of the finished one, which has also drawn every picture."""
    shutil.copytree(finished / "cache" / "models", tmp_path / "cache" / "models")
    with quick_runs():
        yield


def without_times(folder: Path) -> list[Row]:
    return [row for row in read_rows(folder / "benchmark" / "results.csv.gz") if row.metric not in TIMES]


def test_every_page_is_linked_and_every_link_leads_to_a_file(finished: Path) -> None:
    pages = sorted((finished / "benchmark").glob("*.md"))
    first = finished / "benchmark.md"
    linked = set(links(first))
    assert linked == {"benchmark/results.csv.gz"} | {f"benchmark/{page.name}" for page in pages}
    names = {page.stem for page in pages}
    assert names == {"protocol", "fidelity", "search", "truth", "discriminability", "stability", "times"}
    pictures = {name for page in pages for name in links(page)}
    assert pictures == {path.name for path in (finished / "benchmark").glob("*.png")}
    assert {"times.png", "fidelity_ba_shapes_stay.png", "coverage_ba_2motifs_gcn.png"} <= pictures
    for path in [finished / name for name in linked] + [finished / "benchmark" / name for name in pictures]:
        assert 0 < path.stat().st_size < 150_000


def links(page: Path) -> list[str]:
    return [part.split(")")[0] for part in page.read_text(encoding="utf-8").split("](")[1:]]


def test_first_page_and_tables_have_every_explainer(finished: Path) -> None:
    for page in ("benchmark.md", "benchmark/fidelity.md", "benchmark/search.md", "benchmark/times.md"):
        text = (finished / page).read_text(encoding="utf-8")
        for name in NAMES:
            assert f"`{name}`" in text, page
    first = (finished / "benchmark.md").read_text(encoding="utf-8")
    assert f"\n\n{len(NAMES)} explainers on 2 pair(s) of dataset and model, 6 graphs each" in first
    text = (finished / "benchmark" / "discriminability.md").read_text(encoding="utf-8")
    assert "*original graphs*" in text


def test_table_has_its_schema_and_every_part(finished: Path) -> None:
    with gzip.open(finished / "benchmark" / "results.csv.gz", "rt", newline="", encoding="utf-8") as file:
        lines = list(csv.reader(file))
    assert lines[0] == [column.name for column in fields(Row)]
    assert all(len(line) == len(lines[0]) for line in lines)
    results = Results(read_rows(finished / "benchmark" / "results.csv.gz"))
    assert len(results._found) == len(results.rows), "a row is named twice"
    assert results.values("dataset") == ["ba_2motifs", "ba_shapes"]
    assert tuple(results.values("explainer")) == NAMES
    assert set(results.values("protocol")) == {"predicted", "correct"}
    assert set(results.values("nodes")) == {"stay", "leave"}
    for name in NAMES:
        for metric in ("fidelity_plus", "fidelity_minus"):
            for sparsity in ("0.5", "0.6", "0.7", "0.8", "0.9"):
                where = {"selection": "fixed", "sparsity": sparsity}
                row = results.get("ba_2motifs", "gcn", name, metric, nodes="stay", **where)
                assert row is not None
                assert row.n == 6
                assert results.get("ba_2motifs", "gcn", name, metric, nodes="leave", protocol="correct", **where)
        searched = results.get(
            "ba_2motifs", "gcn", name, "fidelity_plus", nodes="stay", selection="search", sparsity="0.7"
        )
        assert searched is not None
        assert results.get("ba_shapes", "gcn", name, "ground_truth_auc") is not None
        assert results.get("ba_shapes", "gcn", name, "seconds_alone") is not None


def test_goat_is_complete_and_not_compared_with_itself(finished: Path) -> None:
    results = Results(read_rows(finished / "benchmark" / "results.csv.gz"))
    for dataset in ("ba_2motifs", "ba_shapes"):
        error = results.get(dataset, "gcn", "goat", "largest_completeness_error")
        assert error is not None
        assert error.value < 1e-3
        assert results.get(dataset, "gcn", "random", "largest_completeness_error") is None
    assert all(math.isnan(row.difference) for row in results.rows if row.explainer == "goat" and row.error == row.error)


def test_device(finished: Path, tmp_path: Path) -> None:
    """Another name of the same device takes every step of a run on a GPU, with the same results."""
    run(tiny(tmp_path, datasets=("ba_shapes",), device="cpu:0"))
    expected = {row[:9]: row[9:] for row in map(astuple, without_times(finished)) if row[0] == "ba_shapes"}
    rows = {row[:9]: row[9:] for row in map(astuple, without_times(tmp_path))}
    assert rows.keys() == expected.keys()
    for key, values in rows.items():
        assert values == pytest.approx(expected[key], nan_ok=True, abs=1e-6), key
    assert "on cpu:0" in (tmp_path / "benchmark" / "protocol.md").read_text(encoding="utf-8")
    assert parse(["--device", "cpu"]).device == "cpu"
    with pytest.raises(SystemExit):
        parse(["--device", "cuda:77"])


def test_run_goes_on_after_an_exception(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    explained: list[int] = []

    def interrupted(*args: object) -> torch.Tensor:
        raise KeyboardInterrupt

    monkeypatch.setattr(EXPLAINERS["occlusion"], "scores", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(tiny(tmp_path))
    assert not (tmp_path / "benchmark.md").exists()
    monkeypatch.undo()
    of_goat = EXPLAINERS["goat"].scores
    monkeypatch.setattr(EXPLAINERS["goat"], "scores", lambda *args: (explained.append(1), of_goat(*args))[1])
    run(tiny(tmp_path, datasets=("ba_2motifs",)))
    assert not explained, "GOAt had been finished before the interruption"
    monkeypatch.undo()
    run(tiny(tmp_path))
    assert repr(without_times(tmp_path)) == repr(without_times(finished))


def test_other_options_do_not_take_old_results(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    explained = []
    of_goat = EXPLAINERS["goat"].scores
    monkeypatch.setattr(EXPLAINERS["goat"], "scores", lambda *args: (explained.append(1), of_goat(*args))[1])
    other = {"datasets": ("ba_2motifs",), "explainers": ("goat",), "out": finished / "other"}
    run(tiny(finished, **other))
    assert not explained
    run(tiny(finished, **other, limit=3, cache=finished / "cache"))
    assert explained


def test_an_explainer_that_ran_out_of_time_goes_on_when_it_has_more(tmp_path: Path) -> None:
    options = tiny(tmp_path, datasets=("ba_2motifs",), explainers=("random",), budget=0.0)

    def explained(**changes: object) -> list[int]:
        run(replace(options, **changes))  # type: ignore[arg-type]
        results = Results(read_rows(tmp_path / "benchmark" / "results.csv.gz"))
        optional_rows = [
            results.get("ba_2motifs", "gcn", "random", metric) for metric in ("seconds_alone", "ground_truth_auc")
        ]
        return [row.n for row in optional_rows if row is not None]

    assert explained() == [1, 1]
    assert explained(budget=60.0) == [6, 6]
    assert explained(budget=0.0) == [6, 6], "what was found with more time is no worse"


def test_a_larger_sample_of_a_slow_explainer_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.paper.run.SLOW", {"saliency"})
    options = tiny(tmp_path, datasets=("ba_2motifs",), explainers=("saliency",))
    for limit in (2, 4, 3):
        run(replace(options, slow_limit=limit))
        row = Results(read_rows(tmp_path / "benchmark" / "results.csv.gz")).get(
            "ba_2motifs", "gcn", "saliency", "area_gain", nodes="stay", selection="fixed"
        )
        assert row is not None
        assert row.n == limit


def test_other_scores_are_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = tiny(tmp_path, datasets=("ba_2motifs",), explainers=("saliency",))

    def gain() -> float:
        run(options)
        row = Results(read_rows(tmp_path / "benchmark" / "results.csv.gz")).get(
            "ba_2motifs", "gcn", "saliency", "area_gain", nodes="stay", selection="fixed"
        )
        assert row is not None
        return row.value

    before, of_saliency = gain(), EXPLAINERS["saliency"].scores
    for path in (tmp_path / "cache" / "cells").rglob("*.explanation.pt"):
        path.unlink()
    monkeypatch.setattr(EXPLAINERS["saliency"], "scores", lambda *args: -of_saliency(*args))
    assert gain() != before


def test_report_of_what_cannot_be_compared(tmp_path: Path) -> None:
    """Only GOAt; and an explainer that applies to none of the models."""
    first = run(tiny(tmp_path, datasets=("ba_2motifs",), explainers=("goat",)))
    assert "There is nothing to compare with GOAt." in first.read_text(encoding="utf-8")
    options = tiny(tmp_path / "none", datasets=("ba_2motifs",), gnns=("sage",), epochs=1)
    first = run(replace(options, explainers=("integrated_gradients_weights",)))
    assert "BA-2Motifs, GraphSAGE" in first.read_text(encoding="utf-8")


def test_report_from_the_cache_alone(tmp_path: Path) -> None:
    """What was not run, and what does not apply, is told apart, and nothing is written to the cache."""
    options = tiny(tmp_path, datasets=("ba_2motifs",), explainers=("goat",), limit=3)
    run(options)
    cells = sorted((tmp_path / "cache" / "cells").rglob("*.pt"))
    run(replace(options, explainers=("goat", "occlusion", "attention"), only_report=True))
    assert sorted((tmp_path / "cache" / "cells").rglob("*.pt")) == cells
    text = (tmp_path / "benchmark" / "protocol.md").read_text(encoding="utf-8")
    assert "- `occlusion` on BA-2Motifs, GCN: not run" in text
    assert "- `attention` on BA-2Motifs, GCN: Expected a model with attention layers" in text
    assert "python -m benchmarks paper --datasets ba_2motifs \\\n    --gnns gcn \\\n" in text
    assert parse(["--only-report"]).only_report


def test_failures_end_the_run_or_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*args: object) -> torch.Tensor:
        raise RuntimeError("out of luck")

    monkeypatch.setattr(EXPLAINERS["occlusion"], "scores", failing)
    options = tiny(tmp_path, datasets=("ba_2motifs",), explainers=("goat", "occlusion"), limit=3)
    with pytest.raises(RuntimeError, match="out of luck"):
        run(options)
    run(replace(options, keep_going=True))
    text = (tmp_path / "benchmark" / "protocol.md").read_text(encoding="utf-8")
    assert "`occlusion` on BA-2Motifs, GCN: failed: RuntimeError: out of luck" in text


def test_command_line() -> None:
    everything = parse([])
    assert (len(everything.datasets), everything.gnns, everything.explainers) == (6, GNNS, tuple(EXPLAINERS))
    quick = parse(["--quick", "--out", "here", "--limit", "5"])
    assert (quick.data, quick.limit, quick.cache) == (None, 5, Path("here/cache"))
    assert set(quick.datasets) <= {"ba_2motifs", "ba_shapes"}
    for wrong in (["--datasets", "no_such_set"], ["--limit", "0"], ["--slow-limit", "0"]):
        with pytest.raises(SystemExit):
            parse(wrong)
