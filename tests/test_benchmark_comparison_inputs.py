"""What comparisons take and refuse, the files that they write, and their command line."""

from __future__ import annotations

import csv
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from bulk_models import numbered_graphs, watched_model
from comparison_subjects import GRAPHS, MODEL, Failing, Plain, Sources, compared, without_times
from conftest import make_gnn
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from captum_goat.benchmark import __main__ as benchmark
from captum_goat.benchmark.comparison import command_line, compare
from captum_goat.datasets import ba_shapes, computation_graphs
from captum_goat.models import NodeClassifier

PAGE = Path(__file__).parents[1] / "docs" / "compare.md"
WHOLE = Data(x=GRAPHS[0].x, edge_index=GRAPHS[0].edge_index)
NODES = make_gnn("gcn", pool=None, dtype=torch.float32)


class Wrapped(nn.Module):
    """A model whose output is changed."""

    def __init__(self, change: Any) -> None:
        super().__init__()
        self.model, self.change = MODEL, change

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Any:
        return self.change(self.model(x, edge_index, batch))


class LogNodes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.model = NODES

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.model(x, edge_index).log_softmax(1)


class Weighted(nn.Module):
    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None, batch: Any = None) -> Tensor:
        raise AssertionError


class OtherName(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.model = MODEL

    def forward(self, x: Tensor, edge_index: Tensor, graph: Tensor) -> Tensor:
        return self.model(x, edge_index, graph)


class Rest(OtherName):
    def forward(self, x: Tensor, edge_index: Tensor, *rest: Tensor) -> Tensor:  # type: ignore[override]
        return self.model(x, edge_index, *rest)


class ByPosition(OtherName):
    def forward(self, h: Tensor, edges: Tensor, graph: Tensor) -> Tensor:
        return self.model(h, edges, graph)


class Anything(OtherName):
    def forward(self, *args: Tensor) -> Tensor:
        return self.model(*args)


def without(graph: Data, **changes: Any) -> Data:
    changed = graph.clone()
    for name, value in changes.items():
        changed[name] = value
    return changed


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"model": "gin"}, "Expected a model, torch.nn.Module (got str)"),
        ({"model": make_gnn().train()}, "(got GNN in training mode). Call model.eval()"),
        ({"model": Weighted().eval()}, "(x, edge_index, edge_weight, batch)). Wrap it"),
        (
            {"model": Weighted().eval(), "graphs": [without(GRAPHS[0], edge_weight=torch.ones(12))]},
            "graphs with edge_weight). Explainers would leave that out. Delete it",
        ),
        ({"model": NODES}, "For a classifier of nodes pass one graph and nodes=..., num_hops=..."),
        ({"model": Wrapped(lambda out: out[:, :1]).eval()}, "(got [5, 1]). One logit z"),
        ({"model": Wrapped(lambda out: (out, 1)).eval()}, "(got tuple)"),
        ({"model": Wrapped(lambda out: out.softmax(1)).eval()}, "got probabilities"),
        (
            {"model": Wrapped(lambda out: out.log_softmax(1)).eval()},
            "Expected logits (got logarithms of probabilities: their exponentials add up to 1). Return what goes into "
            "log_softmax.",
        ),
        (
            {"model": LogNodes().eval(), "nodes": [1], "graphs": WHOLE, "num_hops": 2},
            "(got logarithms of probabilities",
        ),
        ({"model": OtherName().eval()}, "(got OtherName.forward(x, edge_index, graph)). Wrap it"),
        ({"model": Rest().eval()}, "(got Rest.forward(x, edge_index, rest)). Wrap it"),
        ({"model": make_gnn()}, "can be called as model(x, edge_index, batch) with these graphs (got RuntimeError: "),
        ({"graphs": WHOLE}, "(got one graph). Pass [graph]"),
        ({"graphs": []}, "Expected one graph or more (got none)"),
        ({"graphs": ["graph"]}, "(got str as graph 0)"),
        ({"graphs": [*GRAPHS, Data(edge_index=GRAPHS[0].edge_index)]}, "(got NoneType in graph 5)"),
        ({"graphs": [without(WHOLE, x=WHOLE.x.long())]}, "floating point numbers (got torch.int64"),
        ({"graphs": [without(WHOLE, edge_index=WHOLE.edge_index[:, :0])]}, "Expected graphs with edges"),
        ({"graphs": [without(WHOLE, edge_label=torch.ones(12))]}, "Expected edge_label as bool [E]"),
        ({"target": 3}, "Expected target to be a class below 3"),
        ({"target": [0, 1]}, "one for each of 5 graphs"),
        ({"sparsities": (0.5,)}, "Expected two sparsities or more"),
        ({"sparsities": (0.9, 0.5)}, "in ascending order"),
        ({"node_policy": "go"}, "'stay' or 'leave' (got 'go')"),
        ({"budget": 0.0}, "more than 0 seconds"),
        ({"explainers": ()}, "one or more (got ())"),
        ({"explainers": "goat"}, "Expected a sequence of explainers"),
        ({"explainers": ("goat", "gaot")}, "(got 'gaot')"),
        ({"explainers": ("random", "goat", "random")}, "(got random more than once)"),
        ({"explainers": (Plain,)}, "(got the class Plain)"),
        ({"explainers": (Failing("a|b", ValueError()),)}, "one line without | (got 'a|b')"),
        ({"explainers": (Failing("a\nb", ValueError()),)}, "one line without | (got 'a\\nb')"),
        ({"explainers": (Failing("", ValueError()),)}, "one line without | (got '')"),
        ({"explainers": (Failing("a\n", ValueError()),)}, "one line without | (got 'a\\n')"),
        ({"node_policy": "leave", "nodes": [1], "graphs": WHOLE, "num_hops": 2}, "node_policy='stay' for nodes (got"),
        (
            {"training_graphs": [WHOLE], "nodes": [1], "graphs": WHOLE, "num_hops": 2},
            "(got graph 0 without n_id). Cut them: captum_goat.datasets.computation_graphs",
        ),
        ({"nodes": [1.0], "graphs": WHOLE, "num_hops": 2}, "whole numbers, or as a mask (got torch.float32)"),
        ({"nodes": ["one"], "graphs": WHOLE, "num_hops": 2}, "whole numbers, or as a mask (got ['one'])"),
        ({"nodes": [-1, 0], "graphs": WHOLE, "num_hops": 2}, "Expected nodes from 0 to 4 (got -1 to 0)"),
        ({"nodes": [1], "graphs": WHOLE, "num_hops": 0}, "to be 1 or more (got 0)"),
        ({"nodes": [1], "graphs": WHOLE, "num_hops": 1.5}, "to be 1 or more (got 1.5)"),
        ({"explainers": (print,)}, "without name, complete, fit)"),
        ({"nodes": [0], "num_hops": 3}, "Expected one graph, torch_geometric.data.Data, and num_hops"),
        ({"nodes": [0], "graphs": WHOLE, "model": NODES}, "(got no num_hops)"),
        ({"nodes": [9], "graphs": WHOLE, "model": NODES, "num_hops": 2}, "Expected nodes from 0 to 4"),
        ({"nodes": [], "graphs": WHOLE, "model": NODES, "num_hops": 2}, "Expected one node or more"),
        ({"nodes": [True, False], "graphs": WHOLE, "model": NODES, "num_hops": 2}, "Expected a mask of 5 nodes"),
        ({"nodes": [1], "graphs": WHOLE, "model": MODEL, "num_hops": 2}, "one row for each of 5 nodes (got [1, 3])"),
        (
            {"nodes": [0, 4], "graphs": Data(x=WHOLE.x, edge_index=WHOLE.edge_index[:, :0] + 1), "num_hops": 2},
            "Expected graphs with edges",
        ),
        (
            {"nodes": [0, 1], "graphs": Data(x=WHOLE.x, edge_index=torch.tensor([[0], [1]])), "num_hops": 2},
            "Expected nodes that edges lead to (got 1 others, such as 0)",
        ),
    ],
)
def test_refusals(wrong: dict[str, Any], message: str) -> None:
    given = {"model": MODEL, "graphs": GRAPHS, "explainers": ("random",), "progress": False} | wrong
    if "nodes" in wrong and "model" not in wrong:
        given["model"] = NODES
    with pytest.raises(ValueError, match=re.escape(message)):
        compare(**given)


@pytest.mark.parametrize("model", [ByPosition(), Anything()])
def test_models_with_other_names_are_called_by_position(model: nn.Module) -> None:
    found, expected = compared("goat", "random", model=model.eval()), compared("goat", "random")
    for name in ("goat", "random"):
        assert without_times(found, name) == without_times(expected, name)


def test_sparsities_of_any_kind() -> None:
    expected = compared("goat", sparsities=(0.5, 0.7))
    found = compared("goat", sparsities=torch.tensor([0.5, 0.7]))
    assert found.sparsities == pytest.approx((0.5, 0.7))
    assert all(type(each) is float for each in found.sparsities)
    for sparsity in (0.5, 0.7):
        row, other = (each.get("goat", "fidelity_plus", sparsity) for each in (found, expected))
        assert row is not None
        assert other is not None
        assert row.value == other.value
    assert found.get("goat", "fidelity_plus", 0.6) is None
    assert found.get("goat", "fidelity_plus") is None
    assert compared("goat", sparsities=(0, 1)).get("goat", "fidelity_plus", 1.0) is not None


def test_learning_from_nodes() -> None:
    data = without(WHOLE, y=torch.zeros(5, dtype=torch.long))
    nodes = data.edge_index[1].unique()[:2]
    given = {"model": NODES, "graphs": data, "nodes": nodes, "num_hops": 2}
    assert (
        "pg_explainer" in compared("pg_explainer", **given, training_graphs=computation_graphs(data, nodes, 2)).scores
    )


def test_small_differences_are_shown() -> None:
    found = compared("goat", "random")
    rows = tuple(
        replace(row, difference=2e-5, difference_error=1e-6, verdict="better") if row.explainer == "random" else row
        for row in found.rows
    )
    assert "+2e-05 ± 1e-06 | better" in str(replace(found, rows=rows))


def test_batches_and_graphs_with_other_things_are_taken() -> None:
    expected = compared("goat")
    assert without_times(compared("goat", graphs=Batch.from_data_list(GRAPHS)), "goat") == without_times(
        expected, "goat"
    )
    mixed = [without(graph, name=str(place), y=torch.ones(place)) for place, graph in enumerate(GRAPHS)]
    del mixed[0].edge_label
    found = compared("goat", graphs=iter(mixed))
    assert found.get("goat", "ground_truth_auc") is None
    assert found.get("goat", "area_gain") == expected.get("goat", "area_gain")


def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = compared("goat", "random")
    assert repr(found) == "Comparison(goat, random: 5 graphs)"
    page = found.write(tmp_path / "new" / "folder")
    text = page.read_text(encoding="utf-8")
    assert str(found) in text
    assert "(fidelity.png)" in text
    assert (page.parent / "fidelity.png").read_bytes().startswith(b"\x89PNG")
    with (page.parent / "comparison.csv").open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == len(found.rows) == len({(each.explainer, each.metric, each.sparsity) for each in found.rows})
    assert float(lines[0]["value"]) == pytest.approx(found.rows[0].value, rel=1e-3)
    monkeypatch.setitem(sys.modules, "captum_goat.benchmark.comparison.curves", None)
    assert "fidelity.png" not in found.write(tmp_path).read_text(encoding="utf-8")
    assert sorted(each.name for each in tmp_path.glob("*.*")) == ["comparison.csv", "comparison.md"]


def test_best() -> None:
    found = compared("goat", "random")
    gains = {name: found.get(name, "area_gain").value for name in found.scores}  # type: ignore[union-attr]
    assert found.best() == max(gains, key=lambda name: gains[name])
    # Of explainers that take batches, some graphs are timed alone; that does not make them explain fewer.
    faster = tuple(
        replace(row, value=1.0 if row.explainer == "goat" else 2.0, n=1 if row.explainer == "goat" else 5)
        for row in found.rows
    )
    assert replace(found, rows=faster).best("seconds_alone") == "goat"
    fewer = {"goat": found.scores["goat"][:3], "random": found.scores["random"]}
    assert replace(found, rows=faster, scores=fewer).best("seconds_alone") == "random"
    with pytest.raises(ValueError, match=r"got 'gain'\). There is area_gain"):
        found.best("gain")


def test_page_of_the_documentation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its examples run, with less training and fewer graphs."""
    codes = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(codes) == 3
    code = "".join(codes).replace("ba_2motifs(500)", "ba_2motifs(30)").replace("epochs=30", "epochs=1")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(code + "\nfound = compare(model, graphs[:3], (Similarity(),), progress=False)", names)
    assert (tmp_path / "comparison" / "comparison.md").is_file()
    assert names["found"].scores["similarity"][0].abs().max() <= 1.0 + 1e-6


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
    return [*(word for name, value in given.items() for word in (f"--{name}", value)), "--quiet", *more]


def test_command(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    words = command("--explainers", "goat", "comparison_subjects:Sources", "--out", "out", "--target", "label")
    monkeypatch.setattr(sys, "argv", ["benchmark", "compare", *words])
    benchmark.main()
    printed = capsys.readouterr().out
    assert "| `sources`" in printed
    assert f"The table is in {Path('out/comparison.md')}." in printed
    order = torch.randperm(6, generator=torch.Generator().manual_seed(0)).tolist()
    graphs = [SAVED[number] for number in order if SAVED[number].num_edges]
    labels = [int(graph.y) for graph in graphs]
    expected = compare(watched_model(), graphs, ("goat", Sources()), target=labels, progress=False)
    line = next(line for line in str(expected).splitlines() if "`sources`" in line)
    assert line in printed.splitlines()
    assert (folder / "out" / "comparison.csv").is_file()


def test_command_for_nodes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, arguments = ba_shapes(num_base=30, num_motifs=4), {"conv": "gcn", "hidden_channels": 4, "num_classes": 4}
    arguments |= {"in_channels": 10, "num_layers": 2}
    torch.save(NodeClassifier(**arguments).eval().state_dict(), "nodes.pt")  # type: ignore[arg-type]
    torch.save(data, "graph.pt")
    given = {"model": "nodes.pt", "class": "captum_goat.models:NodeClassifier", "data": "graph.pt"}
    given |= {"arguments": json.dumps(arguments), "explainers": "goat"}
    assert command_line.main(command("--nodes", "31", "7", "--hops", "3", **given)) == 0
    assert "on 2 graph(s)" in capsys.readouterr().out
    assert command_line.main(command("--nodes", "--hops", "3", "--limit", "4", "--target", "label", **given)) == 0
    assert "on 4 graph(s)" in capsys.readouterr().out
    assert command_line.main(command("--nodes", "31", **given)) == 1
    assert "(got no num_hops)" in capsys.readouterr().err
    assert command_line.main(command("--nodes", "9999", "--hops", "3", **given)) == 1
    assert "Expected nodes from 0 to 49 (got 9999 to 9999)" in capsys.readouterr().err
    assert command_line.main(command("--nodes", "1", "--hops", "3", **given | {"data": "graphs.pt"})) == 1
    assert "Expected one graph for --nodes (got 6)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"model": "none.pt"}, "Expected a model in none.pt (got no such file)"),
        ({"data": "nowhere"}, "Expected nowhere to be a file, or a folder"),
        ({"class": "bulk_models:Other"}, "Expected bulk_models:Other to be importable"),
        ({"explainers": "gaot"}, "(got 'gaot')"),
        ({"explainers": "bulk_models:Other"}, "Expected bulk_models:Other to be importable"),
        ({"training-data": "nowhere"}, "Expected nowhere to be a file, or a folder"),
        ({"explainers": "comparison_subjects:NeedsArguments"}, "that can be called without arguments (got: "),
        ({"explainers": "comparison_subjects:Unlucky"}, "(got none, but errors: unlucky: RuntimeError: out of luck)"),
        ({"device": "cuda:99"}, "Expected a device that is there for --device (got cuda:99: "),
        ({"device": "gpu"}, "device string: gpu"),
        ({"out": "graphs.pt"}, "Expected a folder for --out (got graphs.pt, which is a file)"),
        ({"out": "graphs.pt/out", "model": "none.pt"}, "Expected a folder for --out (got graphs.pt, which is a file)"),
    ],
)
def test_refusals_of_the_command(
    wrong: dict[str, str],
    message: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmark", "compare", *command(**wrong)])
    with pytest.raises(SystemExit) as raised:
        benchmark.main()
    assert raised.value.code == 1
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("words", [("--limit", "0"), ("--target", "best"), ("--node-policy", "go")])
def test_wrong_options(words: tuple[str, str], folder: Path) -> None:
    with pytest.raises(SystemExit):
        command_line.main(command(*words))


def test_training_data_of_the_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = {"explainers": "pg_explainer", "limit": "2"}
    assert command_line.main(command(**options)) == 0
    assert "Pass training_graphs" in capsys.readouterr().out
    assert command_line.main(command(**options, **{"training-data": "graphs.pt"})) == 0
    assert "| `pg_explainer` |" in capsys.readouterr().out
