"""The paper's experiments on a tiny configuration: the files that come out, and going on after an interruption."""

from __future__ import annotations

import csv
import math
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch

from captum_goat.benchmark.explainers import EXPLAINERS
from captum_goat.benchmark.explainers.simple import EdgeOcclusion
from captum_goat.benchmark.paper.options import GNNS, Options, parse
from captum_goat.benchmark.paper.results import Row, read_rows
from captum_goat.benchmark.paper.run import run
from captum_goat.benchmark.paper.study import Results

NAMES = ("goat", "random", "occlusion", "integrated_gradients")
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
        epochs=2,
        whole=False,
        progress=False,
    )
    return replace(options, **changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("benchmark")
    run(tiny(folder))
    return folder


def without_times(folder: Path) -> list[Row]:
    return [row for row in read_rows(folder / "benchmark" / "results.csv") if row.metric not in TIMES]


def test_report_mentions_every_explainer_and_links_files_that_are_there(finished: Path) -> None:
    text = (finished / "benchmark.md").read_text(encoding="utf-8")
    for name in NAMES:
        assert f"`{name}`" in text
    linked = {part.split(")")[0] for part in text.split("](")[1:]}
    assert linked >= {"benchmark/results.csv", "benchmark/times.png", "benchmark/fidelity_ba_shapes_stay.png"}
    for name in linked:
        assert 0 < (finished / name).stat().st_size < 150_000


def test_table_has_its_schema_and_every_part(finished: Path) -> None:
    with (finished / "benchmark" / "results.csv").open(newline="", encoding="utf-8") as file:
        lines = list(csv.reader(file))
    assert lines[0] == [each.name for each in fields(Row)]
    assert all(len(line) == len(lines[0]) for line in lines)
    results = Results(read_rows(finished / "benchmark" / "results.csv"))
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
    results = Results(read_rows(finished / "benchmark" / "results.csv"))
    for dataset in ("ba_2motifs", "ba_shapes"):
        error = results.get(dataset, "gcn", "goat", "largest_completeness_error")
        assert error is not None
        assert error.value < 1e-3
        assert results.get(dataset, "gcn", "random", "largest_completeness_error") is None
    assert all(math.isnan(row.difference) for row in results.rows if row.explainer == "goat" and row.error == row.error)


def test_run_goes_on_after_an_exception(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scores, explained = EdgeOcclusion.scores, []

    def interrupted(self: EdgeOcclusion, *args: object) -> torch.Tensor:
        raise KeyboardInterrupt

    monkeypatch.setattr(EdgeOcclusion, "scores", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(tiny(tmp_path))
    assert not (tmp_path / "benchmark.md").exists()
    monkeypatch.setattr(EdgeOcclusion, "scores", scores)
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


def test_failures_end_the_run_or_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(self: EdgeOcclusion, *args: object) -> torch.Tensor:
        raise RuntimeError("out of luck")

    monkeypatch.setattr(EdgeOcclusion, "scores", failing)
    options = tiny(tmp_path, datasets=("ba_2motifs",), explainers=("goat", "occlusion"), limit=3)
    with pytest.raises(RuntimeError, match="out of luck"):
        run(options)
    text = run(replace(options, keep_going=True)).read_text(encoding="utf-8")
    assert "`occlusion` on BA-2Motifs, GCN: failed: RuntimeError: out of luck" in text


def test_command_line() -> None:
    everything = parse([])
    assert (len(everything.datasets), everything.gnns, everything.explainers) == (6, GNNS, tuple(EXPLAINERS))
    quick = parse(["--quick", "--out", "here", "--limit", "5"])
    assert (quick.data, quick.limit, quick.cache) == (None, 5, Path("here/cache"))
    assert set(quick.datasets) <= {"ba_2motifs", "ba_shapes"}
    with pytest.raises(SystemExit):
        parse(["--datasets", "no_such_set"])
