from __future__ import annotations

import sys
from importlib import util
from pathlib import Path
from typing import Any

import pytest
import torch
from bulk_models import numbered_graphs, watched_model
from torch_geometric.data import Data

from captum_goat.bulk import explain_dataset, load_attributions

GRAPHS = [
    Data(**graph.to_dict(), smiles=f"C{number}", sizes=torch.tensor([1.5, number]))
    for number, graph in enumerate(numbered_graphs(11))
]
needs_pyarrow = pytest.mark.skipif(util.find_spec("pyarrow") is None, reason="needs pyarrow")


def test_pyarrow_is_needed_before_anything_is_explained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"captum-goat\[parquet\]"):
        explain_dataset(watched_model(), GRAPHS, out=tmp_path / "attributions.parquet")
    assert not list(tmp_path.iterdir())


@needs_pyarrow
@pytest.mark.parametrize("target", ["predicted", "all"])
def test_the_same_as_in_tensors(target: Any, tmp_path: Path) -> None:
    tensors, table = (
        explain_dataset(
            watched_model(),
            GRAPHS,
            target=target,
            batch_size=4,
            columns=["y", "smiles", "sizes"],
            show_progress=False,
            out=tmp_path / name,
        )
        for name in ("attributions.pt", "attributions.parquet")
    )
    assert sorted(file.name for file in tmp_path.iterdir()) == ["attributions.parquet", "attributions.pt"]
    assert table.meta == tensors.meta
    for each in (table, load_attributions(tmp_path / "attributions.parquet")):
        for number, (one, other) in enumerate(zip(each, tensors, strict=True)):
            assert (one.target is None) == (target == "all")
            columns = {"y": int(GRAPHS[number].y), "smiles": f"C{number}", "sizes": [1.5, number]}
            assert one.columns == other.columns == columns
            for name in one._fields[:-1]:
                found, expected = getattr(one, name), getattr(other, name)
                assert found is expected or torch.equal(found, expected)


@needs_pyarrow
def test_one_row_per_edge(tmp_path: Path) -> None:
    from pyarrow import parquet

    path = tmp_path / "attributions.parquet"
    found = explain_dataset(watched_model(), GRAPHS, batch_size=4, show_progress=False)
    explain_dataset(watched_model(), GRAPHS, batch_size=4, show_progress=False, out=path)
    columns = parquet.read_table(path).to_pydict()
    assert list(columns) == [
        *("graph", "edge", "source", "target_node", "attribution", "target_class"),
        *("output_0", "output_1", "output_2", "delta"),
    ]
    sizes = [max(1, graph.num_edges) for graph in GRAPHS]
    assert columns["graph"] == [number for number, size in enumerate(sizes) for _ in range(size)]
    for number, (graph, each) in enumerate(zip(GRAPHS, found, strict=True)):
        rows = [row for row, graph in enumerate(columns["graph"]) if graph == number]
        edges = list(range(graph.num_edges)) or [None]
        assert [columns["edge"][row] for row in rows] == edges
        assert [columns["source"][row] for row in rows] == (graph.edge_index[0].tolist() or [None])
        assert [columns["target_node"][row] for row in rows] == (graph.edge_index[1].tolist() or [None])
        assert [columns["attribution"][row] for row in rows] == (each.edge_mask.tolist() or [None])
        assert [columns["target_class"][row] for row in rows] == [int(each.target)] * len(rows)
        assert [columns["output_1"][row] for row in rows] == [float(each.prediction[0, 1])] * len(rows)


@needs_pyarrow
def test_other_tables_are_refused(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.table({"graph": [1]}), tmp_path / "other.parquet")
    with pytest.raises(ValueError, match=r"Expected attributions in .*other.parquet \(got something else\)"):
        load_attributions(tmp_path / "other.parquet")
