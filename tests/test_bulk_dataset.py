from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest
import torch
from bulk_models import numbered_graphs, watched_model
from conftest import make_gnn, randomize
from torch import Tensor, nn
from torch.utils.data import Subset
from torch_geometric.data import Data, HeteroData, InMemoryDataset
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GraphConv, global_add_pool

from captum_goat import GOAtAttribution, undirected_feature_mask
from captum_goat.bulk import GraphAttributions, explain_dataset, load_attributions

NUM_GRAPHS = 11


@pytest.fixture(scope="module")
def graphs() -> list[Data]:
    return numbered_graphs(NUM_GRAPHS)


class Column(nn.Module):
    """A model with one number per graph."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = watched_model()
        self.eval()

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        return self.inner(x, edge_index, batch)[:, 1]


def one_by_one(model: nn.Module, graphs: list[Data], targets: list[Any], **options: Any) -> list[Tensor]:
    """Return the attributions that single graphs get."""
    goat = GOAtAttribution(model)
    return [
        goat.attribute(torch.ones(graph.num_edges), target, (graph.x, graph.edge_index), **options)
        for graph, target in zip(graphs, targets, strict=True)
    ]


def assert_same(found: list[Tensor], expected: list[Tensor]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def predictions(model: nn.Module, graphs: list[Data]) -> list[int]:
    with torch.no_grad():
        return [int(model(graph.x, graph.edge_index).argmax()) for graph in graphs]


def test_predicted_classes_are_explained_as_one_by_one(graphs: list[Data]) -> None:
    model = watched_model()
    found = explain_dataset(model, graphs, batch_size=4, progress=False)
    targets = predictions(model, graphs)
    assert [int(each.target) for each in found] == targets
    assert len(set(targets)) > 1
    assert_same([each.edge_mask for each in found], one_by_one(model, graphs, targets))
    for graph, each in zip(graphs, found, strict=True):
        assert each.validate()
        assert each.x is graph.x
        assert each.edge_index is graph.edge_index
        torch.testing.assert_close(each.prediction, model(graph.x, graph.edge_index).detach(), rtol=1e-4, atol=1e-5)
        assert each.delta.shape == (1,)
        assert each.delta.abs() < 1e-4


@pytest.mark.parametrize("kind", ["label", "int", "list", "tensor"])
def test_chosen_classes(kind: str, graphs: list[Data]) -> None:
    model, chosen = watched_model(), [(3 * number) % 5 % 3 for number in range(NUM_GRAPHS)]
    target = {"label": "label", "int": 2, "list": chosen, "tensor": torch.tensor(chosen)}[kind]
    expected = {"label": [int(graph.y) for graph in graphs], "int": [2] * NUM_GRAPHS}.get(kind, chosen)
    found = explain_dataset(model, graphs, target=target, batch_size=4, progress=False)
    assert [int(each.target) for each in found] == expected
    assert_same([each.edge_mask for each in found], one_by_one(model, graphs, expected))


def test_all_classes(graphs: list[Data]) -> None:
    model = watched_model()
    found = explain_dataset(model, graphs, target="all", batch_size=4, progress=False)
    assert all("target" not in each for each in found)
    assert all(each.delta.shape == (1, 3) for each in found)
    for target in range(3):
        expected = one_by_one(model, graphs, [target] * NUM_GRAPHS)
        assert_same([each.edge_mask[:, target] for each in found], expected)


@pytest.mark.parametrize("target", [None, "predicted"])
def test_one_number_per_graph(target: Any, graphs: list[Data]) -> None:
    found = explain_dataset(Column(), graphs, target=target, progress=False)
    assert found[0].prediction.shape == (1,)
    assert "target" not in found[0]
    assert_same([each.edge_mask for each in found], one_by_one(watched_model(), graphs, [1] * NUM_GRAPHS))


def test_both_directions_of_edges(graphs: list[Data]) -> None:
    model = watched_model()
    found = explain_dataset(model, graphs, target="all", undirected=True, batch_size=4, progress=False)
    for target in range(3):
        for graph, each in zip(graphs, found, strict=True):
            mask = undirected_feature_mask(graph.edge_index)
            (expected,) = one_by_one(model, [graph], [target], feature_mask=mask)
            torch.testing.assert_close(each.edge_mask[:, target], expected, rtol=1e-4, atol=1e-5)


def test_repeated_fields(graphs: list[Data]) -> None:
    model = watched_model()
    found, distinct = (
        torch.cat([each.edge_mask for each in explain_dataset(model, graphs, target=1, field=field, progress=False)])
        for field in ("repeated", "distinct")
    )
    expected = [
        GOAtAttribution(model, "repeated").attribute(torch.ones(graph.num_edges), 1, (graph.x, graph.edge_index))
        for graph in graphs
    ]
    torch.testing.assert_close(found, torch.cat(expected), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(found, distinct, rtol=1e-2)


@pytest.mark.parametrize("kind", ["dataset", "subset", "loader", "workers"])
def test_kinds_of_data_sets(kind: str, graphs: list[Data]) -> None:
    model, dataset = watched_model(), InMemoryDataset()
    dataset.data, dataset.slices = InMemoryDataset.collate(graphs)
    given = {
        "dataset": dataset,
        "subset": Subset(graphs, range(NUM_GRAPHS)),  # type: ignore[arg-type]
        "loader": DataLoader(graphs, batch_size=3),
        "workers": DataLoader(dataset, batch_size=6, num_workers=1),
    }[kind]
    found = explain_dataset(model, given, progress=False)
    expected = explain_dataset(model, graphs, batch_size=4, progress=False)
    assert_same([each.edge_mask for each in found], [each.edge_mask for each in expected])
    assert_same([each.edge_index for each in found], [graph.edge_index for graph in graphs])


class Weighted(nn.Module):
    """Takes more than the usual arguments, under names of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = GraphConv(4, 3)

    def forward(self, x: Tensor, edges: Tensor, weight: Tensor, graph: Tensor) -> Tensor:
        return global_add_pool(self.conv(x, edges, weight).relu(), graph)


class OfGraphs(Weighted):
    def forward(self, data: Data) -> Tensor:
        return super().forward(data.x, data.edge_index, data.edge_weight, data.batch)


class ByName(Weighted):
    def forward(self, x: Tensor, edge_weight: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return super().forward(x, edge_index, edge_weight, batch)


@pytest.fixture
def weighted_graphs(graphs: list[Data]) -> list[Data]:
    return [Data(**graph.to_dict(), edge_weight=torch.rand(graph.num_edges)) for graph in graphs]


def test_arguments_of_models(weighted_graphs: list[Data]) -> None:
    models = [model().eval() for model in (Weighted, OfGraphs, ByName)]
    for model in models:
        randomize(model, seed=0)
    first, second, third = (
        explain_dataset(model, weighted_graphs, arguments=arguments, progress=False)
        for model, arguments in zip(
            models, [lambda batch: (batch.x, batch.edge_index, batch.edge_weight, batch.batch), None, None], strict=True
        )
    )
    assert_same([each.edge_mask for each in first], [each.edge_mask for each in second])
    assert_same([each.edge_mask for each in first], [each.edge_mask for each in third])
    with pytest.raises(ValueError, match=r"Expected graphs with edges, weight, graph, which Weighted.forward needs"):
        explain_dataset(models[0], weighted_graphs, progress=False)


def test_graphs_without_any_edges() -> None:
    graphs = [Data(x=torch.randn(2, 4), edge_index=torch.empty(2, 0, dtype=torch.long)) for _ in range(3)]
    found = explain_dataset(watched_model(), graphs, progress=False)
    assert [each.edge_mask.shape for each in found] == [(0,)] * 3


def test_models_of_single_graphs_need_batches_of_one(graphs: list[Data]) -> None:
    class Single(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = watched_model()

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.inner(x, edge_index)

    model = Single().eval()
    found = explain_dataset(model, graphs, target=1, batch_size=1, progress=False)
    assert_same([each.edge_mask for each in found], one_by_one(watched_model(), graphs, [1] * NUM_GRAPHS))
    with pytest.raises(ValueError, match=r"one row of output per graph \(got output \[1, 3\] for 11 graphs\)"):
        explain_dataset(model, graphs, progress=False)


def test_device_moves_the_model(graphs: list[Data]) -> None:
    model = watched_model()
    assert explain_dataset(model, graphs, device="cpu", progress=False)[0].edge_mask.device.type == "cpu"


def test_doubles_stay_doubles(graphs: list[Data]) -> None:
    doubles = [Data(x=graph.x.double(), edge_index=graph.edge_index) for graph in graphs]
    found = explain_dataset(make_gnn("gin"), doubles, progress=False)
    assert found[0].edge_mask.dtype == torch.float64
    assert max(float(each.delta.abs()) for each in found) < 1e-9


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"dataset": []}, "at least one graph"),
        ({"dataset": Data()}, r"Expected a data set, a list of graphs or a DataLoader.*\(got Data\)"),
        ({"dataset": [HeteroData()]}, r"Expected graphs that are .*Data \(got HeteroData\)"),
        ({"dataset": [Data(x=torch.ones(2, 4))]}, "with an edge_index"),
        ({"dataset": DataLoader([Data()], shuffle=True)}, "in order.*RandomSampler"),
        ({"batch_size": 0}, "batch_size 0"),
        ({"target": "best"}, r"one of 'predicted', 'label', 'all'.*\(got 'best'\)"),
        ({"target": 1.5}, "got 1.5"),
        ({"target": [0, 1]}, r"one class per graph, 11 whole numbers \(got torch.int64 \[2\]\)"),
        ({"field": "some"}, "field"),
        ({"out": "attributions.csv"}, r"ends in .pt or .parquet \(got attributions.csv\)"),
    ],
)
def test_refusals(wrong: dict[str, Any], message: str, graphs: list[Data]) -> None:
    options = {"dataset": graphs, "progress": False} | wrong
    with pytest.raises((ValueError, TypeError), match=message):
        explain_dataset(watched_model(), **options)


def test_labels_are_needed_for_labels(graphs: list[Data]) -> None:
    unlabelled = [Data(x=graph.x, edge_index=graph.edge_index) for graph in graphs]
    with pytest.raises(ValueError, match=r"one whole number y per graph.*\(got none\)"):
        explain_dataset(watched_model(), unlabelled, target="label", progress=False)


@pytest.mark.parametrize("target", ["predicted", "all", None])
def test_files_have_what_lists_have(target: Any, graphs: list[Data], tmp_path: Path) -> None:
    model = Column() if target is None else watched_model()
    path = tmp_path / "new" / "attributions.pt"
    found = explain_dataset(model, graphs, target=target, batch_size=4, progress=False)
    saved = explain_dataset(model, graphs, target=target, batch_size=4, progress=False, out=path)
    assert [file.name for file in path.parent.iterdir()] == ["attributions.pt"]
    for each in (saved, load_attributions(str(path))):
        assert len(each) == NUM_GRAPHS
        assert [len(one.attributions) for one in each] == [graph.num_edges for graph in graphs]
        for one, other in zip(each, found, strict=True):
            assert isinstance(one, GraphAttributions)
            assert torch.equal(one.attributions, other.edge_mask)
            assert torch.equal(one.edge_index, other.edge_index)
            assert torch.equal(one.output, other.prediction[0])
            assert torch.equal(one.delta, other.delta[0])
            assert one.target is None if target != "predicted" else one.target == other.target[0]
    assert torch.equal(saved[-1].output, saved[NUM_GRAPHS - 1].output)
    assert [len(one.attributions) for one in saved[2:5]] == [graph.num_edges for graph in graphs[2:5]]
    with pytest.raises(IndexError, match="11 graphs"):
        saved[NUM_GRAPHS]
    content = torch.load(path, weights_only=True)
    assert content["ptr"].tolist() == [0, *torch.tensor([graph.num_edges for graph in graphs]).cumsum(0).tolist()]
    assert content["meta"]["edges"] == sum(graph.num_edges for graph in graphs)
    assert content["meta"]["largest_error"] == max(float(each.delta.abs().max()) for each in found)
    assert repr(saved) == f"TensorFile(11 graphs, {content['meta']['edges']} edges)"


def test_files_of_graphs_without_any_edges(tmp_path: Path) -> None:
    graphs = [Data(x=torch.randn(2, 4), edge_index=torch.empty(2, 0, dtype=torch.long)) for _ in range(3)]
    saved = explain_dataset(watched_model(), graphs, progress=False, out=tmp_path / "none.pt")
    assert [each.attributions.shape for each in saved] == [(0,)] * 3


@pytest.mark.parametrize("content", [b"", b"text", {"weight": torch.ones(2)}])
def test_other_files_are_refused(content: Any, tmp_path: Path) -> None:
    path = tmp_path / "other.pt"
    path.write_bytes(content) if isinstance(content, bytes) else torch.save(content, path)
    with pytest.raises(ValueError, match=r"Expected attributions in .*other.pt \(got something else\)"):
        load_attributions(path)


def test_logits_stand_for_probabilities(graphs: list[Data]) -> None:
    class Probabilities(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = watched_model()

        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
            return self.inner(x, edge_index, batch).softmax(dim=-1)

    for target in ("predicted", "label", "all"):
        found = explain_dataset(Probabilities().eval(), graphs, target=target, progress=False)
        expected = explain_dataset(watched_model(), graphs, target=target, progress=False)
        assert_same([each.prediction for each in found], [each.prediction for each in expected])
        assert_same([each.edge_mask for each in found], [each.edge_mask for each in expected])


def test_progress_bar(graphs: list[Data], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    explain_dataset(watched_model(), graphs, progress=True)
    assert "11/11" in capsys.readouterr().err
    explain_dataset(watched_model(), graphs, progress=False)
    assert not capsys.readouterr().err
    real_import = builtins.__import__

    def without_tqdm(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "tqdm":
            raise ImportError(name)
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_tqdm)
    assert len(explain_dataset(watched_model(), graphs, progress=True)) == NUM_GRAPHS
    assert not capsys.readouterr().err
