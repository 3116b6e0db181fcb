"""The README's first example, as it stands there."""

import re
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Batch

from captum_goat.datasets import ba_2motifs
from captum_goat.models import GraphClassifier

README = Path(__file__).parents[1] / "README.md"


def test_from_a_model_to_a_picture_in_ten_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    code = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)[0]
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    names = {"model": GraphClassifier("gin", 10, 8, 2), "data": Batch.from_data_list(ba_2motifs(2)[:1])}
    exec(code, names)
    assert names["attributions"].shape == (names["data"].num_edges,)
    assert (tmp_path / "explanation.png").read_bytes().startswith(b"\x89PNG")


def test_recipe_for_the_edges_that_count() -> None:
    codes = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    (code,) = [block for block in codes if "UpperHalfGradients" in block]
    torch.manual_seed(0)
    model, data = GraphClassifier("gcn", 10, 8, 2).eval(), Batch.from_data_list(ba_2motifs(3))
    names = {"model": model, "data": data, "edge_mask": torch.ones(data.num_edges)}
    exec(code, names)
    assert names["scores"].shape == (data.num_edges,)
    without = data.edge_index[:, :0]
    lost = model(data.x, data.edge_index, data.batch) - model(data.x, without, data.batch)
    torch.testing.assert_close(names["drops"].sum(dim=1), lost[:, 1].detach(), rtol=1e-3, atol=1e-5)
