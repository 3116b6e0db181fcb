from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from test_shapley import CYCLE, classifier, graph, logit, ones
from torch_geometric.data import Batch

from captum_goat import EdgeGame, EdgeMaskedModel, GuidedShapley


def test_values_are_outputs_with_edges_deleted():
    model, data = classifier(), graph(CYCLE[:, :5])
    game = EdgeGame(model, data, 1, normalize=False)
    coalitions = np.random.default_rng(0).random((7, 5)) < 0.5
    values = game(coalitions)
    for members, value in zip(coalitions, values, strict=True):
        kept = torch.from_numpy(members)[game.players]
        assert logit(model, data, kept, 0, 1) == pytest.approx(value, abs=1e-12)
    assert game.player_names(data.edge_index) == ["0-1", "1-2", "2-3", "3-4", "4-5"]
    centred = EdgeGame(model, (data.x, data.edge_index), 1)
    assert np.allclose(centred(coalitions) + centred.normalization_value, values)
    assert centred.empty_coalition_value == 0.0
    assert float(centred(centred.grand_coalition)[0]) == pytest.approx(centred.grand_coalition_value)
    masked = EdgeGame(EdgeMaskedModel(model), data, 1, normalize=False)
    assert not np.allclose(masked(coalitions), values)


def test_wrong_arguments():
    model, data = classifier(), graph()
    with pytest.raises(ValueError, match="Expected coalitions of shape"):
        EdgeGame(model, data, 1)(np.ones((2, 3), dtype=bool))
    with pytest.raises(ValueError, match="Expected a target that selects one number"):
        EdgeGame(model, Batch.from_data_list([data, data]), 1)


@pytest.mark.slow
def test_shapiq_takes_the_game():
    shapiq = pytest.importorskip("shapiq")
    model, data = classifier("gin"), graph(CYCLE[:, :6])
    game = EdgeGame(model, data, 1)
    values = shapiq.ExactComputer(game, n_players=game.n_players)("SV")
    found = torch.tensor([values[(player,)] for player in range(6)])
    expected = GuidedShapley(model, n_samples=100).attribute(ones(data), 1, (data.x, data.edge_index))
    assert torch.allclose(found.double(), 2 * expected[:6], rtol=0, atol=1e-8)
    pairs = shapiq.KernelSHAPIQ(n=6, index="k-SII", max_order=2).approximate(64, game)
    assert len(pairs.values) >= 15


def test_the_documented_example_of_interactions(capsys):
    pytest.importorskip("shapiq")
    page = (Path(__file__).parents[1] / "docs" / "shapley.md").read_text(encoding="utf-8")
    code, printed = re.search(r"```python\n(import shapiq.*?)```\s+```text\n(.*?)```", page, re.DOTALL).groups()
    exec(compile(code, "shapley.md", "exec"), {})
    assert capsys.readouterr().out == printed
