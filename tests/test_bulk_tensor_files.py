"""Attributions of whole datasets in files of tensors: they have what lists have, and other files are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from bulk_dataset_subjects import NUM_GRAPHS, Column
from bulk_dataset_subjects import graphs as graphs
from bulk_models import watched_model
from torch_geometric.data import Data

from captum_goat.bulk import explain_dataset, load_attributions


@pytest.mark.parametrize("target", ["predicted", "all", None])
def test_files_have_what_lists_have(target: Any, graphs: list[Data], tmp_path: Path) -> None:
    model = Column() if target is None else watched_model()
    path = tmp_path / "new" / "attributions.pt"
    found = explain_dataset(model, graphs, target=target, batch_size=4, show_progress=False)
    saved = explain_dataset(model, graphs, target=target, batch_size=4, show_progress=False, out=path)
    assert [file.name for file in path.parent.iterdir()] == ["attributions.pt"]
    for each in (saved, load_attributions(str(path))):
        assert len(each) == NUM_GRAPHS
        assert [len(one.attributions) for one in each] == [graph.num_edges for graph in graphs]
        for one, other in zip(each, found, strict=True):
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
    assert repr(saved) == f"SavedAttributions(11 graphs, {content['meta']['edges']} edges)"


def test_files_of_graphs_without_any_edges(tmp_path: Path) -> None:
    graphs = [Data(x=torch.randn(2, 4), edge_index=torch.empty(2, 0, dtype=torch.long)) for _ in range(3)]
    saved = explain_dataset(watched_model(), graphs, show_progress=False, out=tmp_path / "none.pt")
    assert [each.attributions.shape for each in saved] == [(0,)] * 3


@pytest.mark.parametrize("content", [b"", b"text", {"weight": torch.ones(2)}])
def test_other_files_are_refused(content: Any, tmp_path: Path) -> None:
    path = tmp_path / "other.pt"
    path.write_bytes(content) if isinstance(content, bytes) else torch.save(content, path)
    with pytest.raises(ValueError, match=r"Expected attributions in .*other.pt \(got something else\)"):
        load_attributions(path)
