"""Attributions as tables: node ids of the user's graph, names, merged directions, top k; CSV and Parquet."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
import torch
from bulk_models import numbered_graphs, watched_model
from test_bulk_nodes_exact import graph, model

from captum_goat import explain_dataset, explain_nodes, load_attributions
from captum_goat.bulk import edge_table, tables, write_table

GRAPHS = numbered_graphs(6)


@pytest.fixture(params=["pandas", "records"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "records":
        monkeypatch.setattr(tables, "find_spec", lambda name: None)
    else:
        pytest.importorskip("pandas")
    return str(request.param)


def records(table: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table if isinstance(table, list) else table.to_dict("records")
    return found


def test_rows_are_the_edges_of_the_graph(kind: str) -> None:
    data = GRAPHS[3]
    scores = torch.randn(data.num_edges, generator=torch.Generator().manual_seed(0))
    names = [f"atom {node}" for node in range(data.num_nodes)]
    table = edge_table(scores, data, node_names=names)
    assert isinstance(table, list) == (kind == "records")
    rows = records(table)
    assert [row["edge"] for row in rows] == list(range(data.num_edges))
    assert [[row["source"], row["target"]] for row in rows] == data.edge_index.t().tolist()
    assert [row["source_name"] for row in rows] == [names[node] for node in data.edge_index[0]]
    assert [row["attribution"] for row in rows] == pytest.approx(scores.tolist())
    strongest = records(edge_table(scores, data, top_k=2))
    assert [row["edge"] for row in strongest] == scores.abs().argsort(descending=True)[:2].tolist()


def test_merged_directions_add_up_once(kind: str) -> None:
    data = GRAPHS[3]
    for undirected in (False, True):
        (explanation,) = explain_dataset(watched_model(), [data], undirected=undirected, show_progress=False)
        total = float(explanation.edge_mask.sum())
        rows = records(edge_table(explanation.edge_mask, data, undirected=True))
        assert sum(row["attribution"] for row in rows) == pytest.approx(total, abs=1e-5)
        assert len({(row["source"], row["target"]) for row in rows}) == len(rows)
        assert all(row["source"] <= row["target"] for row in rows)


@pytest.mark.parametrize("name", ["attributions.pt", "attributions.parquet"])
def test_tables_of_files(name: str, kind: str, tmp_path: Path) -> None:
    saved = explain_dataset(watched_model(), GRAPHS, target="predicted", out=tmp_path / name, show_progress=False)
    rows = records(saved.to_table())
    assert [row["graph"] for row in rows] == [k for k, data in enumerate(GRAPHS) for _ in range(data.num_edges)]
    assert [row["attribution"] for row in rows] == torch.cat([part.attributions for part in saved]).tolist()
    assert {row["target_class"] for row in rows if row["graph"] == 3} == {int(saved[3].target)}
    write_table(saved.to_table(top_k=1), tmp_path / "top.csv")
    with (tmp_path / "top.csv").open() as file:
        assert len(list(csv.DictReader(file))) == sum(data.num_edges > 0 for data in GRAPHS)


@pytest.mark.parametrize("name", ["nodes.pt", "nodes.parquet"])
def test_tables_of_nodes_have_the_numbers_of_the_whole_graph(name: str, kind: str, tmp_path: Path) -> None:
    data = graph(undirected=True)
    explanations = explain_nodes(model("gcn"), data, [31, 7], out=tmp_path / name)
    rows = records(explanations.to_table(node_names=[f"n{node}" for node in range(data.num_nodes)]))
    assert {row["node"] for row in rows} == {31, 7}
    for row in rows:
        assert data.edge_index[:, row["edge"]].tolist() == [row["source"], row["target"]]
        assert row["source_name"] == f"n{row['source']}"
    saved = load_attributions(tmp_path / name)
    for position, part in enumerate(saved):
        assert torch.equal(part.edges, explanations[position].edges)
    assert records(saved.to_table()) == records(explanations.to_table())
    if name == "nodes.parquet":
        from pyarrow import parquet

        columns = parquet.read_table(tmp_path / name).to_pydict()
        assert columns["node"] == [row["node"] for row in rows]
        assert columns["edge"] == [row["edge"] for row in rows]


def test_parquet_tables_and_refusals(tmp_path: Path) -> None:
    from pyarrow import parquet

    table = edge_table(torch.ones(GRAPHS[3].num_edges, 2), GRAPHS[3])
    write_table(table, tmp_path / "table.parquet")
    assert parquet.read_table(tmp_path / "table.parquet").column_names == list(records(table)[0])
    with pytest.raises(ValueError, match=r"Expected a file that ends in .csv or .parquet \(got table.txt\)"):
        write_table(table, tmp_path / "table.txt")
    with pytest.raises(ValueError, match=r"Expected one attribution per edge, .* \(got \[2\]\)"):
        edge_table(torch.ones(2), GRAPHS[3])
