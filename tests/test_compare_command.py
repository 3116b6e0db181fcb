"""Explainers compared by the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from bulk_models import numbered_graphs, watched_model
from comparison_subjects import Sources
from conftest import run_command

from benchmarks.datasets import ba_shapes
from captum_goat.compare import compare
from captum_goat.models import NodeClassifier

SAVED = numbered_graphs(6)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with weights and graphs."""
    monkeypatch.chdir(tmp_path)
    torch.save(watched_model().state_dict(), "weights.pt")
    torch.save(SAVED, "graphs.pt")
    return tmp_path


def command(*more: str, **options: str) -> list[str]:
    given = {"model": "weights.pt", "class": "bulk_models:Watched", "data": "graphs.pt"} | options
    return ["compare", *(word for name, value in given.items() for word in (f"--{name}", value)), "--quiet", *more]


@pytest.mark.slow
def test_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = command("--explainers", "goat", "comparison_subjects:Sources", "--out", "out", "--target", "label")
    assert run_command(words) == 0
    printed = capsys.readouterr().out
    assert "| `sources`" in printed
    assert f"The table is in {Path('out/comparison.md')}." in printed
    order = torch.randperm(6, generator=torch.Generator().manual_seed(0)).tolist()
    graphs = [SAVED[number] for number in order if SAVED[number].num_edges]
    labels = [int(graph.y) for graph in graphs]
    expected = compare(watched_model(), graphs, ("goat", Sources()), target=labels, show_progress=False)
    line = next(line for line in str(expected).splitlines() if "`sources`" in line)
    assert line in printed.splitlines()
    assert (folder / "out" / "comparison.csv").is_file()


@pytest.mark.slow
def test_command_for_nodes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, arguments = ba_shapes(num_base=30, num_motifs=4), {"conv": "gcn", "hidden_channels": 4, "num_classes": 4}
    arguments |= {"in_channels": 10, "num_layers": 2}
    torch.save(NodeClassifier(**arguments).eval().state_dict(), "nodes.pt")  # type: ignore[arg-type]
    torch.save(data, "graph.pt")
    given = {"model": "nodes.pt", "class": "captum_goat.models:NodeClassifier", "data": "graph.pt"}
    given |= {"arguments": json.dumps(arguments), "explainers": "goat"}
    assert run_command(command("--nodes", "31", "7", "--hops", "3", **given)) == 0
    assert "on 2 graph(s)" in capsys.readouterr().out
    assert run_command(command("--nodes", "--hops", "3", "--limit", "4", "--target", "label", **given)) == 0
    assert "on 4 graph(s)" in capsys.readouterr().out
    assert run_command(command("--nodes", "31", **given)) == 1
    assert "(got no num_hops)" in capsys.readouterr().err
    assert run_command(command("--nodes", "9999", "--hops", "3", **given)) == 1
    assert "Expected nodes from 0 to 49 (got 9999 to 9999)" in capsys.readouterr().err
    assert run_command(command("--nodes", "1", "--hops", "3", **given | {"data": "graphs.pt"})) == 1
    assert "Expected one graph for --nodes (got 6)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"model": "none.pt"}, "Expected a model in none.pt (got no such file)"),
        ({"data": "nowhere"}, "Expected nowhere to be a file, or a folder"),
        ({"class": "bulk_models:Other"}, "Expected bulk_models:Other to be importable"),
        ({"explainers": "gaot"}, "(got 'gaot')"),
        ({"explainers": "bulk_models:Other"}, "Expected bulk_models:Other to be importable"),
        ({"explainers": "comparison_subjects:NeedsArguments"}, "that can be called without arguments (got: "),
        ({"explainers": "comparison_subjects:Unlucky"}, "(got errors from all: unlucky: RuntimeError: out of luck)"),
        ({"device": "cuda:99"}, "Expected an available device for --device (got cuda:99: "),
        ({"device": "gpu"}, "device string: gpu"),
        ({"out": "graphs.pt"}, "Expected a folder for --out (got graphs.pt, which is a file)"),
        ({"out": "graphs.pt/out", "model": "none.pt"}, "Expected a folder for --out (got graphs.pt, which is a file)"),
    ],
)
def test_refusals_of_the_command(
    wrong: dict[str, str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(command(**wrong)) == 1
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("words", [("--limit", "0"), ("--target", "best"), ("--node-policy", "go")])
def test_wrong_options(words: tuple[str, str], folder: Path) -> None:
    with pytest.raises(SystemExit):
        run_command(command(*words))


@pytest.mark.parametrize("target", ["all", "none"])
def test_one_target_per_graph(folder: Path, capsys: pytest.CaptureFixture[str], target: str) -> None:
    assert run_command(command("--explainers", "goat", "--target", target)) == 1
    assert "Expected predicted, label or a class for --target" in capsys.readouterr().err
