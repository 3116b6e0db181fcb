"""The benchmark of speed on tiny sizes: what is measured, how, and the files that come out."""

from __future__ import annotations

import csv
import math
import sys
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
import torch

from benchmarks import __main__ as command
from benchmarks.datasets import GraphDataset, ba_shapes, load
from benchmarks.speed import Options, main, parse, run
from benchmarks.speed import scaling as growth
from benchmarks.speed.exponents import exponent, last_exponent
from benchmarks.speed.graphs import (
    FAMILIES,
    explained,
    graph_model,
    hub_graph,
    molecule,
    molecules,
    sparse_graph,
)
from benchmarks.speed.methods import METHODS
from benchmarks.speed.results import Check, Row
from benchmarks.speed.rounds import Times, in_turn
from benchmarks.speed.sections import nodes, sizes
from benchmarks.speed.split import PLACES, REST, Place, Stopwatch, split_time
from benchmarks.speed.subprocess_timing import TooLargeError, call_apart
from benchmarks.speed.tables import megabytes, table, times
from captum_goat.compare.graphs import Graphs

FEW = ("goat", "saliency", "unit")
MEGABYTE = 2**20


def allocating(before: int, during: int) -> Callable[[], int]:
    """Take and give back some megabytes first, then return what takes others."""
    torch.ones(before * MEGABYTE // 4)
    return lambda: int(torch.ones(during * MEGABYTE // 4).numel())


def failing() -> Callable[[], None]:
    raise ValueError("no such luck")


def sleeping() -> Callable[[], None]:
    return lambda: time.sleep(60)


def apart(prepare: Callable[..., Callable[[], object]], *arguments: int, seconds: float = 60.0) -> tuple[float, object]:
    measured = call_apart(prepare, arguments, threads=1, seconds=seconds, memory=400 * MEGABYTE)
    return measured.peak / MEGABYTE, measured.result


@pytest.mark.slow
def test_memory_of_a_call_is_what_the_call_takes() -> None:
    peak, result = apart(allocating, 300, 100)
    assert result == 100 * MEGABYTE // 4
    assert 99 < peak < 110
    assert apart(allocating, 0, 0)[0] < 10


@pytest.mark.slow
def test_calls_that_take_too_much_or_fail_are_told_apart() -> None:
    with pytest.raises(TooLargeError, match="out of memory"):
        apart(allocating, 0, 1000)
    with pytest.raises(TooLargeError, match="more than 1 seconds"):
        apart(sleeping, seconds=1.0)
    with pytest.raises(RuntimeError, match="ValueError: no such luck"):
        apart(failing)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("edges", [2, 4, 10, 501, 2000])
def test_graphs_have_the_asked_size_and_both_directions(family: str, edges: int) -> None:
    graph = FAMILIES[family](edges, 1)
    source, target = graph.edge_index
    assert graph.num_edges == edges // 2 * 2
    assert (source != target).all()
    assert int(graph.edge_index.max()) + 1 == graph.num_nodes == len(graph.edge_index.unique())
    assert sorted(zip(*graph.edge_index.tolist(), strict=True)) == sorted(
        zip(*graph.edge_index.flip(0).tolist(), strict=True)
    )
    assert not torch.equal(graph.x[:1], FAMILIES[family](edges, 2).x[:1])


def test_only_one_family_has_hubs() -> None:
    sparse, hubs = (int(make(20_000).edge_index[0].bincount().max()) for make in (sparse_graph, hub_graph))
    assert sparse < 20
    assert hubs > 50


def test_molecules_are_new_graphs_of_several_sizes() -> None:
    graphs = molecules(20)
    assert len({graph.num_nodes for graph in graphs}) > 5
    assert all(graph.num_nodes == 30 for graph in map(molecule, range(3)))
    assert not torch.equal(molecule(0).edge_index, molecule(5).edge_index)


@pytest.mark.slow
def test_every_method_scores_every_edge() -> None:
    model, graphs = graph_model("gin", 8), explained(molecule(3))
    assert not model.training
    scores = {name: method.prepare(model)(graphs) for name, method in METHODS.items()}
    for name, values in scores.items():
        assert values.shape == (graphs.num_edges,), name
        assert values.isfinite().all(), name
    torch.testing.assert_close(scores["unit"], scores["cheap_unit"])
    torch.testing.assert_close(scores["unit"].abs(), scores["saliency"])
    ways = (scores[name].detach().float() for name in ("integrated_gradients", "integrated_gradients_pyg"))
    torch.testing.assert_close(*ways, rtol=1e-3, atol=1e-6)
    assert all(not vars(module).get("explain") for module in model.modules()), "the model itself was masked"


def test_exponents_of_known_growth() -> None:
    values = {size: 3e-6 * size**1.25 for size in (1_000, 10_000, 100_000, 1_000_000)}
    assert math.isclose(exponent(values), 1.25)
    assert math.isclose(exponent(values | {10: 99.0}), 1.25), "small sizes do not count"
    assert math.isclose(last_exponent({1: 5.0, 10: 1.0, 20: 2.0}), 1.0)
    assert math.isnan(exponent({1_000: 1.0}))
    assert math.isnan(exponent({}))


def test_rounds_are_interleaved_and_have_their_own_graphs() -> None:
    seen: list[tuple[str, int]] = []

    def graphs(number: int) -> Graphs:
        return explained(sparse_graph(10 + 2 * number))

    def noting(name: str) -> Callable[[Graphs], None]:
        return lambda given: seen.append((name, (given.num_edges - 10) // 2))

    times = in_turn({"a": noting("a"), "b": noting("b")}, graphs, rounds=3)
    assert seen == [("a", 0), ("b", 0), ("b", 1), ("a", 1), ("b", 2), ("a", 2), ("a", 3), ("b", 3)]
    assert [len(seconds) for seconds in times.seconds.values()] == [3, 3]
    assert len(in_turn({"a": lambda _: None}, graphs, rounds=50, seconds=0.0).seconds["a"]) == 2


def test_ratios_are_taken_within_a_round() -> None:
    times = Times({"slow": [2.0, 40.0, 6.0], "quick": [1.0, 10.0, 2.0]})
    assert times.ratio("slow", "quick") == 3.0
    assert (times.median("slow"), times.least("slow")) == (6.0, 2.0)


def test_time_of_a_part_inside_of_another_counts_once() -> None:
    watch, start = Stopwatch(), time.perf_counter()
    with watch.running("outer"):
        with watch.running("inner"):
            time.sleep(0.05)
        time.sleep(0.01)
    total = time.perf_counter() - start
    assert watch.seconds["inner"] >= 0.05
    assert watch.seconds["outer"] >= 0.01
    assert sum(watch.seconds.values()) <= total


def test_all_parts_of_an_attribution_are_found_and_left_as_they_were() -> None:
    before = [getattr(place.find(), place.function) for place in PLACES]
    goat, graphs = METHODS["goat"].prepare(graph_model("gcn", 8)), explained(sparse_graph(20_000))
    watch = split_time(lambda: goat(graphs))
    assert [getattr(place.find(), place.function) for place in PLACES] == before
    assert list(watch.seconds) == [*dict.fromkeys(place.part for place in PLACES), REST]
    assert all(spent > 0 for spent in watch.seconds.values())
    with pytest.raises(AttributeError):
        split_time(lambda: None, [Place("a part", "captum_goat.method.explain", "no_such_function")])


def test_missing_cells_are_dashes() -> None:
    rows = [Row("sizes", "sparse", "gcn", 10, name, "seconds", 0.25) for name in FEW]
    rows += [Row("sizes", "sparse", "gcn", 1000, "goat", metric, 2.5e7) for metric in ("units", "peak_bytes")]
    text = sizes._tables(Options(Path(), sizes=(10, 1000)), rows, "sparse", "gcn")
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    assert ["GOAt", "250 ms", "-"] in lines
    assert ["GOAt", "-", "25 MB"] in lines
    assert len({len(line) for line in table(["a", "b"], [["long", "-"], ["x", "12345"]]).splitlines()}) == 1
    assert megabytes(math.nan) == megabytes(None) == times(None) == "-"
    assert megabytes(3.21e9) == "3.21 GB"


def test_checks_say_what_was_measured_and_what_should_be() -> None:
    assert str(Check("units", 7.123, 8.0, True, "units")) == "units: 7.12 units; target: at most 8 units: met"
    assert Check("speed-up", 7.0, 15.0, False).verdict == "missed"
    assert Check("speed-up", 15.0, 15.0, False).verdict == "met"
    assert Check("memory", math.nan, 4.0, True, note="too slow").verdict == "not measured"
    assert str(Check("difference", 3e-7, 1e-6, True)) == "difference: 3.0e-07; target: at most 1.0e-06: met"


def test_too_slow_methods_are_left_out_from_that_size_on(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []

    def pretended(prepare: object, arguments: tuple[object, ...], **limits: object) -> object:
        method, edges = str(arguments[4]), int(str(arguments[1]))
        asked.append((method, edges))
        if method == "saliency" and edges == 20_000:
            raise TooLargeError("out of memory")
        return growth.Apart(2.0 if method == "goat" and edges > 10 else 0.001, 5e6, None)

    monkeypatch.setattr(growth, "call_apart", pretended)
    monkeypatch.setattr(growth, "in_turn", lambda explain, *_: Times({name: [1.0, 2.0] for name in explain}))
    monkeypatch.setattr(growth, "METHODS", {name: METHODS[name] for name in FEW})
    options = Options(Path(), sizes=(10, 10_000, 20_000, 40_000), budget=5.0, goat_budget=1.0, hidden=8)
    measurement = growth.Growth(options, "sparse", "gcn")
    for edges in options.sizes:
        measurement.measure(edges)
    left_out = [(entry.method, entry.edges, entry.reason) for entry in measurement.left_out]
    assert left_out == [("goat", 10_000, "took 2.0 seconds"), ("saliency", 20_000, "out of memory")]
    assert asked.count(("goat", 10_000)) == 1
    assert ("goat", 20_000) not in asked
    check = sizes._check(options, measurement.rows, "sparse", "gcn", "seconds")
    assert check.verdict == "not measured"
    assert "larger graphs took too much" in check.note
    assert "GOAt, GCN, graphs sparse as molecules, from 10k edges on: took 2.0 seconds" in sizes._reasons(
        measurement.left_out
    )


def small_shapes(name: str, root: Path | None) -> GraphDataset:
    return GraphDataset(load(name, root).info, [ba_shapes(num_base=20, num_motifs=2)], "generated")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("speed")
    options = Options(
        out=folder,
        gnns=("gcn",),
        families=("sparse",),
        sizes=(10, 1_000, 20_000),
        threads=1,
        rounds=2,
        hidden=8,
        batch_size=4,
        alone=2,
        molecules=6,
        single_calls=2,
        large_nodes=200,
        progress=False,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nodes, "load", small_shapes)
        patch.setattr(growth, "METHODS", {name: METHODS[name] for name in ("goat", "unit")})
        assert run(options) == folder / "speed.md"
    return folder


@pytest.mark.slow
def test_report_has_every_part_and_links_files_that_are_there(finished: Path) -> None:
    text = (finished / "speed.md").read_text(encoding="utf-8")
    assert text.count("\n## ") == 7  # six parts, the machine
    linked = {part.split(")")[0] for part in text.split("](")[1:]}
    assert linked == {"speed/results.csv", "speed/seconds.png", "speed/peak_bytes.png"}
    for name in linked:
        assert 0 < (finished / name).stat().st_size < 150_000


@pytest.mark.slow
def test_table_of_numbers_has_its_schema_and_every_part(finished: Path) -> None:
    with (finished / "speed" / "results.csv").open(newline="", encoding="utf-8") as file:
        lines = list(csv.reader(file))
    assert lines[0] == [column.name for column in fields(Row)]
    assert {line[0] for line in lines[1:]} == {"sizes", "batches", "alone", "dataset", "nodes", "large"}
    assert all(math.isfinite(float(line[-1])) for line in lines[1:])
    assert len({tuple(line[:-1]) for line in lines[1:]}) == len(lines) - 1, "a number is named twice"
    memory = [float(line[-1]) for line in lines if line[0] == "sizes" and line[4:6] == ["goat", "peak_bytes"]]
    assert len(memory) == 3
    assert 0 <= memory[0] < memory[2] < 1e8
    spent = sum(
        float(line[-1]) for line in lines if line[0] == "batches" and line[4] in {REST, *(p.part for p in PLACES)}
    )
    (whole,) = [float(line[-1]) for line in lines if line[0] == "batches" and line[4:6] == ["goat", "units"]]
    assert math.isclose(spent, whole, rel_tol=0.3)


@pytest.mark.slow
def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    threads = torch.get_num_threads()
    main(
        [
            "--quick",
            "--parts",
            "single_graph",
            "--gnns",
            "sage",
            "--rounds",
            "1",
            "--threads",
            "1",
            "--out",
            str(tmp_path),
        ]
    )
    assert torch.get_num_threads() == threads
    printed = capsys.readouterr().out
    assert "speed-up over IntegratedGradients, GraphSAGE, a new graph: " in printed
    assert f"The report is in {tmp_path / 'speed.md'}." in printed
    assert "A quick run" in (tmp_path / "speed.md").read_text(encoding="utf-8")
    whole, quick = parse([]), parse(["--quick", "--memory", "3"])
    assert (whole.sizes[0], whole.sizes[-1], whole.threads, len(whole.parts)) == (10, 1_000_000, 2, 6)
    assert (quick.sizes[-1], quick.memory, quick.gnns) == (10_000, 3e9, whole.gnns)
    for wrong in (["--parts", "none"], ["--sizes", "1"], ["--threads", "0"]):
        with pytest.raises(SystemExit):
            parse(wrong)
    monkeypatch.setattr(sys, "argv", ["benchmark", "speed", "--help"])
    with pytest.raises(SystemExit):
        command.main()
    assert "python -m benchmarks speed" in capsys.readouterr().out
