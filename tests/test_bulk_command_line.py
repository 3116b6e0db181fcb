from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from bulk_models import numbered_graphs, watched_model
from conftest import run_command
from torch import nn
from torch_geometric.data import Batch, Data, InMemoryDataset

import captum_goat
from benchmarks.datasets import ba_shapes
from captum_goat import GOAtAttribution, explain_nodes
from captum_goat.bulk import explain_dataset, load_attributions
from captum_goat.cli.saved_files import load_graphs, load_model
from captum_goat.models import GraphClassifier, NodeClassifier

GRAPHS = numbered_graphs(6)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with weights and graphs."""
    monkeypatch.chdir(tmp_path)
    torch.save(watched_model().state_dict(), "weights.pt")
    torch.save(GRAPHS, "graphs.pt")
    return tmp_path


def command(*more: str, out: str = "attributions.pt", **options: str) -> list[str]:
    given = {"model": "weights.pt", "class": "bulk_models:Watched", "data": "graphs.pt", "out": out} | options
    return ["explain", *(word for name, value in given.items() for word in (f"--{name}", value)), "--quiet", *more]


def test_attributions_of_a_saved_model(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(command("--batch-size", "4")) == 0
    summary = capsys.readouterr().out
    assert "6 graphs in" in summary
    assert "graphs per second), largest completeness error" in summary
    expected = explain_dataset(watched_model(), GRAPHS, batch_size=4, show_progress=False)
    for one, other in zip(load_attributions("attributions.pt"), expected, strict=True):
        assert torch.equal(one.attributions, other.edge_mask)


@pytest.mark.parametrize(("text", "target"), [("label", "label"), ("all", "all"), ("2", 2)])
def test_options(text: str, target: Any, folder: Path) -> None:
    assert run_command(command("--target", text, "--field", "repeated", "--undirected")) == 0
    options: Any = {"target": target, "undirected": True, "show_progress": False}
    expected = explain_dataset(GOAtAttribution(watched_model(), "repeated"), GRAPHS, **options)
    for one, other in zip(load_attributions("attributions.pt"), expected, strict=True):
        assert torch.equal(one.attributions, other.edge_mask)


def test_interrupted_runs(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("WATCHED_RAISE", "4")
        assert run_command(command("--batch-size", "2")) == 130
    assert "Call again to continue" in capsys.readouterr().err
    assert run_command(command("--batch-size", "3")) == 1
    assert "differs in batch_size" in capsys.readouterr().err
    assert run_command(command("--batch-size", "3", "--restart")) == 0


@pytest.mark.slow
def test_nodes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, arguments = ba_shapes(num_base=30, num_motifs=4), {"conv": "gcn", "hidden_channels": 4, "num_classes": 4}
    arguments |= {"in_channels": 10, "num_layers": 2}
    model = NodeClassifier(**arguments).eval()  # type: ignore[arg-type]
    torch.save(model.state_dict(), "nodes.pt")
    torch.save(data, "graph.pt")
    given = {"model": "nodes.pt", "class": "captum_goat.models:NodeClassifier", "data": "graph.pt"}
    given |= {"arguments": json.dumps(arguments)}
    assert run_command(command("--nodes", "31", "7", **given)) == 0
    assert "2 nodes in" in capsys.readouterr().out
    saved, expected = load_attributions("attributions.pt"), explain_nodes(model, data, [31, 7])
    assert saved.meta["nodes"] == [31, 7]
    for position, each in enumerate(saved):
        edges, attributions = expected[position]
        assert torch.equal(each.attributions, attributions)
        assert torch.equal(each.edge_index, data.edge_index[:, edges])
    assert run_command(command("--nodes", **given)) == 0
    assert len(load_attributions("attributions.pt")) == data.num_nodes
    assert run_command(command("--nodes", "31", "7", "--max-edges", "10", **given)) == 0
    torch.testing.assert_close(load_attributions("attributions.pt")[1].attributions, expected[1].attributions)
    assert run_command(command("--nodes", "1", **given | {"data": "graphs.pt"})) == 1
    assert "Expected one graph" in capsys.readouterr().err
    assert run_command(command("--nodes", "1", "--batch-size", "4", **given)) == 1
    assert "without --undirected, --columns and --batch-size (got --batch-size)" in capsys.readouterr().err
    assert run_command(command("--max-edges", "4")) == 1
    assert "Expected --max-edges with --nodes" in capsys.readouterr().err


def test_columns(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(command("--columns", "y")) == 0
    assert [part.columns for part in load_attributions("attributions.pt")] == [{"y": int(graph.y)} for graph in GRAPHS]
    assert run_command(command("--columns", "smiles")) == 1
    assert "(got 'smiles', missing). (In graph 0 of the dataset.)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"out": "attributions.csv"}, "ends in .pt or .parquet"),
        ({"model": "none.pt"}, "Expected a model in none.pt (got no such file)"),
        ({"model": "graphs.pt"}, "Expected a state_dict() in graphs.pt (got list)"),
        ({"data": "weights.pt"}, "Expected graphs, torch_geometric.data.Data, in weights.pt (got OrderedDict)"),
        ({"data": "nowhere"}, "Expected nowhere to be a file, or a folder"),
        ({"class": "bulk_models"}, "Expected a class as module:ClassName (got 'bulk_models')"),
        ({"class": "bulk_models:Other"}, "Expected bulk_models:Other to be importable"),
        ({"class": "no_such_module:Other"}, "No module named 'no_such_module'"),
        (
            {"class": "torch:ones", "arguments": "[2]"},
            "Expected torch:ones to be a class (got a builtin_function_or_method). It was not called.",
        ),
        ({"class": "torch.nn:Linear", "arguments": "[2, 3]"}, "Expected the weights of torch.nn:Linear in weights.pt"),
        ({"class": "torch.nn:Linear", "arguments": '{"size": 3}'}, "unexpected keyword argument"),
        ({"arguments": "{"}, "Expected --arguments in JSON"),
        ({"arguments": "3"}, "Expected --arguments that bulk_models:Watched takes (got 3)"),
    ],
)
def test_refusals(wrong: dict[str, str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(command(**wrong)) == 1
    assert message in capsys.readouterr().err
    assert sorted(file.name for file in folder.iterdir()) == ["graphs.pt", "weights.pt"]


def test_wrong_targets(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run_command(command("--target", "best"))
    assert "expected predicted, label, all, none or a class (got 'best')" in capsys.readouterr().err


def test_pickled_models_are_read_when_trusted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save(watched_model(), "model.pt")
    options = [word for word in command(model="model.pt") if word not in ("--class", "bulk_models:Watched")]
    assert run_command(options) == 1
    assert "--trust-pickle if the file has the whole model" in capsys.readouterr().err
    assert run_command([*options, "--trust-pickle"]) == 0
    assert "Warning: --trust-pickle executes whatever code" in capsys.readouterr().err
    with pytest.raises(ValueError, match=r"Expected a whole model in .*weights.pt \(got OrderedDict\)"):
        load_model(folder / "weights.pt", trust_pickle=True)


def test_programs_are_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.export.save(torch.export.export(nn.Linear(2, 2), (torch.ones(1, 2),)), "model.pt2")
    assert run_command(command(model="model.pt2")) == 1
    assert "Expected weights and nothing else in model.pt2 (got something else). Save" in capsys.readouterr().err


def test_weights_in_checkpoints(folder: Path) -> None:
    arguments = ["gin", 4, 8, 3]
    model = GraphClassifier(*arguments)  # type: ignore[arg-type]
    torch.save({"epoch": 3, "state_dict": model.state_dict()}, "checkpoint.pt")
    name = "captum_goat.models:GraphClassifier"
    loaded = load_model(folder / "checkpoint.pt", name, json.dumps(arguments))
    assert not loaded.training
    for name, weight in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], weight)


def assert_graphs(found: Any, expected: list[Data]) -> None:
    assert len(found) == len(expected)
    for number, graph in enumerate(expected):
        assert sorted(found[number].keys()) == sorted(graph.keys())
        for name in graph.keys():  # noqa: SIM118
            assert torch.equal(found[number][name], graph[name])


def test_kinds_of_graph_files(tmp_path: Path) -> None:
    file, folder = tmp_path / "graphs.pt", tmp_path / "root"
    for content in (GRAPHS, InMemoryDataset.collate(GRAPHS)):
        torch.save(content, file)
        assert_graphs(load_graphs(file), GRAPHS)
    (folder / "processed").mkdir(parents=True)
    for graphs in (GRAPHS, GRAPHS[:1]):
        InMemoryDataset.save(graphs, str(folder / "processed" / "data.pt"))
        assert_graphs(load_graphs(folder), graphs)
    torch.save(GRAPHS[0], file)
    assert_graphs(load_graphs(file), GRAPHS[:1])
    torch.save(Batch.from_data_list(GRAPHS), file)
    with pytest.raises(ValueError, match=r"got torch_geometric.data.batch.DynamicInheritanceGetter.*to_data_list"):
        load_graphs(file)
    assert_graphs(load_graphs(file, trust_pickle=True), GRAPHS)


@pytest.mark.parametrize("inside", ["raw", "."])
def test_text_files_of_the_tu_collection(inside: str, tmp_path: Path) -> None:
    from torch_geometric.datasets import TUDataset

    raw = tmp_path / "TOY" / inside
    raw.mkdir(parents=True)
    lines = {
        "A": ["1, 2", "2, 1", "3, 4", "4, 3", "4, 5"],
        "graph_indicator": [1, 1, 2, 2, 2],
        "graph_labels": [1, -1],
        "node_labels": [0, 2, 1, 1, 0],
        "node_attributes": [0.5, 1.5, 2.5, 3.5, 4.5],
        "edge_labels": [0, 0, 1, 1, 0],
    }
    for name, numbers in lines.items():
        (raw / f"TOY_{name}.txt").write_text("\n".join(map(str, numbers)) + "\n")
    found = list(load_graphs(tmp_path / "TOY"))
    assert [graph.x.argmax(dim=1).tolist() for graph in found] == [[0, 2], [1, 1, 0]]
    assert [graph.edge_index.tolist() for graph in found] == [[[0, 1], [1, 0]], [[0, 1, 1], [1, 0, 2]]]
    if inside == "raw":
        expected = list(TUDataset(str(tmp_path), "TOY"))  # which also writes processed/data.pt
        assert_graphs(found, expected)
        assert_graphs(load_graphs(tmp_path / "TOY"), expected)


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["--help"], 0, "compare"),
        (["--version"], 0, captum_goat.__version__),
        (["play"], 2, "play"),
        (["explain", "--help"], 0, "--trust-pickle"),
    ],
)
def test_commands(
    words: list[str], code: int, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["captum_goat", *words])
    with pytest.raises(SystemExit) as ended:
        run_command()
    assert ended.value.code == code
    captured = capsys.readouterr()
    assert text in captured.out + captured.err


def test_no_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command([]) == 0
    printed = capsys.readouterr().out
    assert all(f"    {name} " in printed for name in ("check", "compare", "explain"))


def test_errors_leave_nothing_that_blocks_the_corrected_command(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graphs = numbered_graphs(6)
    del graphs[4].edge_index
    torch.save(graphs, "wrong.pt")
    assert run_command(command("--batch-size", "6", data="wrong.pt")) == 1
    said = capsys.readouterr().err
    assert "Expected graphs with an edge_index (got Data(x=[3, 4], y=[1]) as graph 4 of the dataset)" in said
    assert said.count("\n") == 1
    assert run_command(command("--target", "7")) == 1
    assert not list(folder.glob("*.parts"))
    assert run_command(command()) == 0


def nan(graphs: list[Data]) -> None:
    graphs[3].x[0, 1] = torch.nan


def wide(graphs: list[Data]) -> None:
    graphs[2].x = torch.ones(5, 7)


def dangling(graphs: list[Data]) -> None:
    graphs[1].edge_index[0, 0] = 99


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (nan, "got infinite or nan entries in 'x'). (In graph 3 of the dataset.)"),
        (wide, "Expected graphs that can be batched (got graphs 0 to 5 of the dataset: "),
        (dangling, "(In graph 1 of the dataset.)"),
    ],
)
def test_errors_name_the_graph(
    spoil: Callable[[list[Data]], None], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graphs = numbered_graphs(6)
    spoil(graphs)
    torch.save(graphs, "wrong.pt")
    assert run_command(command(data="wrong.pt")) == 1
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_hints_name_flags(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("WATCHED_RAISE", "4")
        assert run_command(command("--batch-size", "2")) == 130
    assert run_command(command("--batch-size", "3")) == 1
    assert "Pass --restart to delete them" in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_devices_that_are_not_there(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(command("--device", "cuda")) == 1
    said = capsys.readouterr().err
    assert "Expected an available device for --device (got cuda: " in said
    assert said.count("\n") == 1


def test_the_root_of_a_dataset(tmp_path: Path) -> None:
    for name in ("ONE", "TWO"):
        (tmp_path / name / "processed").mkdir(parents=True)
        torch.save(GRAPHS, tmp_path / name / "processed" / "data.pt")
        if name == "ONE":
            assert_graphs(load_graphs(tmp_path), GRAPHS)
    with pytest.raises(FileNotFoundError, match=r"one with several of them; choose one of .*ONE.*, .*TWO.*\)"):
        load_graphs(tmp_path)
