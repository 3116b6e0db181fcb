"""What comparisons take and refuse, and the files that they write."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from comparison_subjects import GRAPHS, MODEL, Failing, Plain, compared, without_times
from conftest import make_gnn
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from benchmarks.explainers.pyg import PGExplainerOfPyG
from captum_goat.compare import compare, computation_graphs
from captum_goat.models import RootClassifier

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
        ({"model": make_gnn().train()}, "is in training mode). Call model.eval() first"),
        (
            {"model": Weighted().eval(), "graphs": [without(GRAPHS[0], edge_weight=torch.ones(12)), *GRAPHS[1:]]},
            "Expected edge_weight, which the model takes, in all graphs or in none (got graph 1 without, others with)",
        ),
        ({"model": NODES}, "compare takes it with nodes=... and num_hops=..."),
        ({"model": Wrapped(lambda out: out[:, 0].sigmoid()).eval()}, "Expected one logit per graph"),
        ({"model": Wrapped(lambda out: (out, 1)).eval()}, "(got tuple)"),
        ({"model": Wrapped(lambda out: out.softmax(1)).eval()}, "got probabilities"),
        (
            {"model": Wrapped(lambda out: out.log_softmax(1)).eval()},
            "Expected logits (got logarithms of probabilities). Return what goes into log_softmax.",
        ),
        (
            {"model": LogNodes().eval(), "nodes": [1], "graphs": WHOLE, "num_hops": 2},
            "(got logarithms of probabilities",
        ),
        ({"model": OtherName().eval()}, "OtherName.forward(x, edge_index, graph), by position (got graph missing)"),
        ({"graphs": WHOLE}, "(got one graph). Pass [graph]"),
        ({"graphs": []}, "Expected one graph or more (got none)"),
        ({"graphs": ["graph"]}, "(got str as graph 0)"),
        ({"graphs": [*GRAPHS, Data(edge_index=GRAPHS[0].edge_index)]}, "(got NoneType in graph 5)"),
        (
            {"graphs": [without(WHOLE, x=WHOLE.x.long())]},
            "floating-point node features x [N, F] (got torch.int64",
        ),
        ({"graphs": [without(WHOLE, edge_index=WHOLE.edge_index[:, :0])]}, "Expected graphs with edges"),
        ({"graphs": [without(WHOLE, edge_label=torch.ones(12))]}, "Expected edge_label, the ground truth, as bool [E]"),
        ({"target": 3}, "Expected target to be a class below 3"),
        ({"target": [0, 1]}, "one for each of 5 graphs"),
        ({"sparsities": (0.5,)}, "Expected two or more sparsities"),
        ({"sparsities": (0.9, 0.5)}, "from 0 to 1 in ascending order"),
        ({"node_policy": "go"}, "'stay' or 'leave' (got 'go')"),
        ({"budget": 0.0}, "more than 0 seconds"),
        ({"explainers": ()}, "Expected a sequence of one or more explainers (got ())"),
        ({"explainers": "goat"}, "Expected a sequence of one or more explainers"),
        ({"explainers": ("goat", "gaot")}, "(got 'gaot')"),
        ({"explainers": ("random", "goat", "random")}, "(got random more than once)"),
        ({"explainers": (Plain,)}, "(got the class Plain)"),
        ({"explainers": (Failing("a|b", ValueError()),)}, "one line without | (got 'a|b')"),
        ({"explainers": (Failing("a\nb", ValueError()),)}, "one line without | (got 'a\\nb')"),
        ({"explainers": (Failing("", ValueError()),)}, "one line without | (got '')"),
        ({"explainers": (Failing("a\n", ValueError()),)}, "one line without | (got 'a\\n')"),
        ({"node_policy": "leave", "nodes": [1], "graphs": WHOLE, "num_hops": 2}, "node_policy='stay' for nodes (got"),
        ({"nodes": [1.0], "graphs": WHOLE, "num_hops": 2}, "integers or as a mask (got torch.float32)"),
        ({"nodes": ["one"], "graphs": WHOLE, "num_hops": 2}, "integers or as a mask (got ['one'])"),
        ({"nodes": [-1, 0], "graphs": WHOLE, "num_hops": 2}, "Expected nodes from 0 to 4 (got -1 to 0)"),
        ({"nodes": [1], "graphs": WHOLE, "num_hops": 0}, "to be 1 or more (got 0)"),
        ({"nodes": [1], "graphs": WHOLE, "num_hops": 1.5}, "to be 1 or more (got 1.5)"),
        ({"explainers": (MODEL,)}, "that returns one score per edge (got an object of GNN)"),
        ({"reference": "gaot"}, "Expected reference to be one of the explainers, random (got 'gaot')"),
        ({"nodes": [0], "num_hops": 3}, "Expected one graph, torch_geometric.data.Data, and num_hops"),
        ({"nodes": [0], "graphs": WHOLE, "model": NODES}, "(got no num_hops)"),
        ({"nodes": [9], "graphs": WHOLE, "model": NODES, "num_hops": 2}, "Expected nodes from 0 to 4"),
        ({"nodes": [], "graphs": WHOLE, "model": NODES, "num_hops": 2}, "Expected one node or more"),
        ({"nodes": [True, False], "graphs": WHOLE, "model": NODES, "num_hops": 2}, "Expected a mask of 5 nodes"),
        (
            {"nodes": [1], "graphs": WHOLE, "model": MODEL, "num_hops": 2},
            "for each of 5 nodes (got torch.float32 [1, 3])",
        ),
        (
            {"nodes": [0, 4], "graphs": Data(x=WHOLE.x, edge_index=WHOLE.edge_index[:, :0] + 1), "num_hops": 2},
            "Expected graphs with edges",
        ),
        (
            {"nodes": [0, 1], "graphs": Data(x=WHOLE.x, edge_index=torch.tensor([[0], [1]])), "num_hops": 2},
            "Expected nodes with incoming edges (got 1 without, such as 0)",
        ),
    ],
)
def test_refusals(wrong: dict[str, Any], message: str) -> None:
    given = {"model": MODEL, "graphs": GRAPHS, "explainers": ("random",), "show_progress": False} | wrong
    if "nodes" in wrong and "model" not in wrong:
        given["model"] = NODES
    with pytest.raises(ValueError, match=re.escape(message)):
        compare(**given)


@pytest.mark.parametrize("model", [ByPosition(), Rest(), pytest.param(Anything(), marks=pytest.mark.slow)])
@pytest.mark.slow
def test_models_with_other_names_are_called_by_position(model: nn.Module) -> None:
    comparison, expected = compared("goat", "random", model=model.eval()), compared("goat", "random")
    for name in ("goat", "random"):
        assert without_times(comparison, name) == without_times(expected, name)


@pytest.mark.slow
def test_models_whose_copies_are_in_training_mode() -> None:
    """As copies of PyG's Linear are in PyG 2.6."""

    class Forgetful(nn.Linear):
        def __deepcopy__(self, memo: dict[int, Any]) -> nn.Linear:
            copy = Forgetful(self.in_features, self.out_features)
            copy.load_state_dict(self.state_dict())
            return copy

    model = make_gnn("gcn", dtype=torch.float32)
    model.out = Forgetful(8, 3).eval()
    assert compared("goat", "random", model=model).failed == {}


@pytest.mark.slow
def test_sparsities_of_any_kind() -> None:
    expected = compared("goat", sparsities=(0.5, 0.7))
    comparison = compared("goat", sparsities=torch.tensor([0.5, 0.7]))
    assert comparison.sparsities == pytest.approx((0.5, 0.7))
    assert all(type(sparsity) is float for sparsity in comparison.sparsities)
    for sparsity in (0.5, 0.7):
        row, other = (result.get("goat", "fidelity_plus", sparsity) for result in (comparison, expected))
        assert row is not None
        assert other is not None
        assert row.value == other.value
    assert comparison.get("goat", "fidelity_plus", 0.6) is None
    assert comparison.get("goat", "fidelity_plus") is None
    assert compared("goat", sparsities=(0, 1)).get("goat", "fidelity_plus", 1.0) is not None


def test_learning_from_nodes() -> None:
    data = without(WHOLE, y=torch.zeros(5, dtype=torch.long))
    nodes = data.edge_index[1].unique()[:2]
    explainer = PGExplainerOfPyG(epochs=1)
    explainer.fit(RootClassifier(NODES), computation_graphs(data, nodes, 2))
    assert "pg_explainer" in compared(explainer, model=NODES, graphs=data, nodes=nodes, num_hops=2).scores


@pytest.mark.slow
def test_small_differences_are_shown() -> None:
    comparison = compared("goat", "random")
    rows = tuple(
        replace(row, difference=2e-5, difference_error=1e-6, verdict="better") if row.explainer == "random" else row
        for row in comparison.rows
    )
    assert "+2e-05 ± 1e-06 | better" in str(replace(comparison, rows=rows))


@pytest.mark.slow
def test_batches_and_graphs_with_other_things_are_taken() -> None:
    expected = compared("goat")
    assert without_times(compared("goat", graphs=Batch.from_data_list(GRAPHS)), "goat") == without_times(
        expected, "goat"
    )
    mixed = [without(graph, name=str(place), y=torch.ones(place)) for place, graph in enumerate(GRAPHS)]
    del mixed[0].edge_label
    comparison = compared("goat", graphs=iter(mixed))
    assert comparison.get("goat", "ground_truth_auc") is None
    assert comparison.get("goat", "area_gain") == expected.get("goat", "area_gain")


@pytest.mark.slow
def test_files(tmp_path: Path) -> None:
    comparison = compared("goat", "random")
    assert repr(comparison) == "Comparison(goat, random: 5 graphs)"
    page = comparison.write(tmp_path / "new" / "folder")
    text = page.read_text(encoding="utf-8")
    assert str(comparison) in text
    with (page.parent / "comparison.csv").open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert (
        len(lines)
        == len(comparison.rows)
        == len({(row.explainer, row.metric, row.sparsity) for row in comparison.rows})
    )
    assert float(lines[0]["value"]) == pytest.approx(comparison.rows[0].value, rel=1e-3)
    assert sorted(path.name for path in page.parent.iterdir()) == ["comparison.csv", "comparison.md"]


@pytest.mark.slow
def test_best() -> None:
    comparison = compared("goat", "random")
    gains = {name: comparison.get(name, "area_gain").value for name in comparison.scores}  # type: ignore[union-attr]
    assert comparison.best() == max(gains, key=lambda name: gains[name])
    # Of explainers that take batches, some graphs are timed alone; that does not make them explain fewer.
    faster = tuple(
        replace(row, value=1.0 if row.explainer == "goat" else 2.0, n=1 if row.explainer == "goat" else 5)
        for row in comparison.rows
    )
    assert replace(comparison, rows=faster).best("seconds_alone") == "goat"
    fewer = {"goat": comparison.scores["goat"][:3], "random": comparison.scores["random"]}
    assert replace(comparison, rows=faster, scores=fewer).best("seconds_alone") == "random"
    with pytest.raises(ValueError, match=r"measured: area_gain, .*\(got 'gain'\)"):
        comparison.best("gain")


@pytest.mark.slow
def test_page_of_the_documentation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its examples run, with less training and fewer graphs."""
    codes = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(codes) == 3
    code = "".join(codes).replace("ba_2motifs(500)", "ba_2motifs(30)").replace("epochs=30", "epochs=1")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(code + "\ncomparison = compare(model, graphs[:3], (Similarity(),), show_progress=False)", names)
    assert (tmp_path / "comparison" / "comparison.md").is_file()
    assert names["comparison"].scores["similarity"][0].abs().max() <= 1.0 + 1e-6
