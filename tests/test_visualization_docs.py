"""The pictures in the documentation, and the script that draws them."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import matplotlib
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from captum_goat.datasets import ba_2motifs
from captum_goat.models import GraphClassifier

matplotlib.use("Agg")

FOLDER = Path(__file__).parents[1] / "docs" / "images"
SCRIPT = FOLDER / "make_pictures.py"
pytestmark = pytest.mark.skipif(not SCRIPT.is_file(), reason="the documentation is not here")


def formaldehyde_oxime() -> Data:
    """A molecule as Mutagenicity has them: H2C=N-O, with its features."""
    edge_index = to_undirected(torch.tensor([[0, 0, 0, 1], [1, 3, 4, 2]]))
    double = (edge_index < 2).all(dim=0)
    return Data(
        x=torch.eye(14)[[0, 4, 1, 3, 3]],
        edge_index=edge_index,
        edge_attr=torch.nn.functional.one_hot(double.long(), 3).float(),
        edge_label=(edge_index == 2).any(dim=0),
        y=torch.tensor([0]),
    )


def test_pictures_are_small() -> None:
    pictures = sorted(FOLDER.glob("*.png"))
    assert {"graph_attr", "hero", "methods", "molecule_attr"} <= {path.stem for path in pictures}
    for path in pictures:
        assert path.read_bytes().startswith(b"\x89PNG")
        assert 8_000 < path.stat().st_size < 150_000


@pytest.mark.slow
def test_script_draws_them_from_explanations(tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    script: dict[str, Any] = runpy.run_path(str(SCRIPT))
    examples = []
    for graph in (ba_2motifs(2)[1], formaldehyde_oxime()):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = GraphClassifier("gin", graph.num_features, 8, 2).eval()
            graph.y = model(graph.x, graph.edge_index).argmax(dim=1)  # it is to be classified correctly
        examples.append(script["example"](model, [graph], lambda graph: True))
        total = float(examples[-1].attributions["GOAt"].sum())
        assert total == pytest.approx(examples[-1].output, abs=1e-4)
    figures = dict(script["pictures"](*examples))
    assert figures.keys() == {"hero", "methods", "molecule_attr", "graph_attr", "adjacency_attr"}
    assert [len(figures[name].axes) for name in ("hero", "methods", "molecule_attr")] == [8, 5, 2]
    nitro = Data(x=torch.eye(14)[[0, 4, 1, 1]], edge_index=to_undirected(torch.tensor([[0, 1, 1], [1, 2, 3]])))
    assert script["has_nitro_group"](nitro)
    assert not script["has_nitro_group"](examples[1].graph)  # one oxygen
    with pytest.raises(StopIteration):
        script["example"](model, [graph], lambda graph: True, least_probability=1.0)
    script["save"](figures["graph_attr"], tmp_path / "graph.png")
    assert (tmp_path / "graph.png").read_bytes().startswith(b"\x89PNG")
