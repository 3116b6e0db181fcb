"""Attributions as tables: node ids of the user's graph, names, merged directions, top k, columns of the dataset."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from bulk_models import numbered_graphs, watched_model
from test_bulk_nodes_exact import graph, model
from torch_geometric.data import Data

from captum_goat import explain_dataset, explain_nodes, load_attributions
from captum_goat.bulk import edge_table

pandas = pytest.importorskip("pandas")
GRAPHS = [Data(**data.to_dict(), smiles="C" * number) for number, data in enumerate(numbered_graphs(6))]


def test_rows_are_the_edges_of_the_graph() -> None:
    data = GRAPHS[3]
    scores = torch.randn(data.num_edges, generator=torch.Generator().manual_seed(0))
    names = [f"atom {node}" for node in range(data.num_nodes)]
    table = edge_table(scores, data, node_names=names)
    assert table["edge"].tolist() == list(range(data.num_edges))
    assert table[["source", "target"]].to_numpy().tolist() == data.edge_index.t().tolist()
    assert table["source_name"].tolist() == [names[node] for node in data.edge_index[0]]
    assert table["attribution"].tolist() == pytest.approx(scores.tolist())
    strongest = edge_table(scores.numpy(), data, top_k=2)
    assert strongest["edge"].tolist() == scores.abs().argsort(descending=True)[:2].tolist()
    assert list(edge_table(torch.ones(data.num_edges, 2), data).columns[3:]) == ["attribution_0", "attribution_1"]
    with pytest.raises(ValueError, match=r"Expected one attribution per edge, .* \(got \[2\]\)"):
        edge_table(torch.ones(2), data)


def test_merged_directions_add_up_once() -> None:
    data = GRAPHS[3]
    for undirected in (False, True):
        (explanation,) = explain_dataset(watched_model(), [data], undirected=undirected, show_progress=False)
        table = edge_table(explanation.edge_mask, data, undirected=True)
        assert table["attribution"].sum() == pytest.approx(float(explanation.edge_mask.sum()), abs=1e-5)
        assert len(table) == len(table.drop_duplicates(["source", "target"]))
        assert (table["source"] <= table["target"]).all()


@pytest.mark.parametrize("name", ["attributions.pt", "attributions.parquet"])
def test_tables_of_datasets(name: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"columns": ["y", "smiles"], "batch_size": 4, "show_progress": False}
    explanations = explain_dataset(watched_model(), GRAPHS, **options)
    saved = explain_dataset(watched_model(), GRAPHS, out=tmp_path / name, **options)
    table = saved.to_table()
    first = ["graph", "target_class", "y", "smiles", "edge", "source", "target", "attribution"]
    assert list(table.columns) == first
    pandas.testing.assert_frame_equal(table, explanations.to_table())
    assert table["graph"].tolist() == [k for k, data in enumerate(GRAPHS) for _ in range(data.num_edges)]
    assert table["attribution"].tolist() == torch.cat([part.attributions for part in saved]).tolist()
    third = table[table["graph"] == 3]
    assert third["target_class"].unique() == [int(saved[3].target)]
    assert (third["y"].unique(), third["smiles"].unique()) == ([int(GRAPHS[3].y)], ["CCC"])
    names = [[f"{number}:{node}" for node in range(data.num_nodes)] for number, data in enumerate(GRAPHS)]
    top = load_attributions(tmp_path / name).to_table(top_k=1, node_names=names)
    assert top["graph"].tolist() == [number for number, data in enumerate(GRAPHS) if data.num_edges]
    assert top["source_name"].tolist() == [f"{row.graph}:{row.source}" for row in top.itertuples()]
    if name.endswith("parquet"):
        assert pandas.read_parquet(tmp_path / name)["smiles"].nunique() == len(GRAPHS)


@pytest.mark.parametrize(("name", "got"), [("name", "missing"), ("edge", "missing"), ("pair", "tuple")])
def test_columns_that_cannot_be_had(name: str, got: str, tmp_path: Path) -> None:
    graphs = [Data(**data.to_dict(), pair=(1, 2)) for data in GRAPHS]
    with pytest.raises(ValueError, match=rf"Expected columns that are attributes of every graph.*{name}', {got}"):
        explain_dataset(watched_model(), graphs, columns=[name], out=tmp_path / "a.pt", show_progress=False)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["nodes.pt", "nodes.parquet"])
def test_tables_of_nodes_have_the_numbers_of_the_whole_graph(name: str, tmp_path: Path) -> None:
    data = graph(undirected=True)
    names = [f"n{node}" for node in range(data.num_nodes)]
    explanations = explain_nodes(model("gcn"), data, [31, 7], out=tmp_path / name)
    table = explanations.to_table(node_names=names)
    assert table["node"].unique().tolist() == [31, 7]
    assert data.edge_index[:, table["edge"].tolist()].t().tolist() == table[["source", "target"]].to_numpy().tolist()
    assert table["source_name"].tolist() == [names[node] for node in table["source"]]
    saved = load_attributions(tmp_path / name)
    for position, part in enumerate(saved):
        assert torch.equal(part.edges, explanations[position].edges)
    pandas.testing.assert_frame_equal(saved.to_table(node_names=names), table)
    if name == "nodes.parquet":
        columns = pandas.read_parquet(tmp_path / name)
        assert columns["node"].tolist() == table["node"].tolist()
        assert columns["edge"].tolist() == table["edge"].tolist()


def test_pandas_is_named_if_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"Tables need pandas: pip install captum-goat\[tables\]"):
        edge_table(torch.ones(GRAPHS[3].num_edges), GRAPHS[3])
