"""Rules for rows: models whose rows cannot be followed are refused."""

from __future__ import annotations

import pytest
import torch
from conftest import randomize
from row_rule_models import CHANNELS, EDGES, MASK, Model, X
from torch import Tensor
from torch_geometric.nn import PDNConv, SGConv

from captum_goat import GOAtAttribution, UnsupportedModelError


def test_values_that_leave_the_graph_of_gradients_are_refused() -> None:
    for body, operation in (
        (lambda x, f, s: s.detach().relu(), "detach"),
        (lambda x, f, s: s.long().double(), "_to_copy"),
    ):
        model = randomize(Model(body).double(), seed=8)
        with pytest.raises(UnsupportedModelError, match=operation):
            GOAtAttribution(model).attribute(MASK, 1, (X, EDGES))


def test_models_that_take_other_steps_the_next_time_are_refused() -> None:
    kept: list[Tensor] = []

    def remembering(x: Tensor, first: Tensor, second: Tensor) -> Tensor:
        second.sum().item()  # so that the model runs again
        kept[:] = kept or [second.relu()]
        return kept[0]

    model = randomize(Model(remembering).double(), seed=8)
    with pytest.raises(UnsupportedModelError, match="fewer"):
        GOAtAttribution(model).attribute(MASK, 1, (X, EDGES))


def test_layers_run_without_their_caches_and_keep_them(caplog: pytest.LogCaptureFixture) -> None:
    plain = SGConv(CHANNELS, 2).double().eval()
    expected = GOAtAttribution(plain).attribute(MASK, (0, 1), (X, EDGES))
    conv = SGConv(CHANNELS, 2, cached=True).double().eval()
    conv.load_state_dict(plain.state_dict())
    conv(X, EDGES)
    cache = conv._cached_x
    with caplog.at_level("INFO"):
        torch.testing.assert_close(GOAtAttribution(conv).attribute(MASK, (0, 1), (X, EDGES)), expected)
    assert "SGConv" in caplog.text
    assert conv._cached_x is cache
    assert conv.cached
    with pytest.raises(ValueError, match=r"cached in the model \(SGConv\)"):
        GOAtAttribution(conv).attribute(MASK, (0, 1), (X + 1.0, EDGES))


def test_models_that_change_their_arguments_are_refused() -> None:
    class Shifting(Model):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            x += 1.0
            return super().forward(x, edge_index)

    model = randomize(Shifting(lambda x, f, s: s).double(), seed=8)
    with pytest.raises(UnsupportedModelError, match="argument 'x' in place"):
        GOAtAttribution(model).attribute(MASK, 1, (X.clone(), EDGES))


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_values_that_are_nan_are_refused_by_name() -> None:
    model = randomize(Model(lambda x, f, s: s + s[:1].std(dim=0)).double(), seed=8)
    with pytest.raises(UnsupportedModelError, match=r"'std' in .* returns nan, as a standard deviation of one row"):
        GOAtAttribution(model).attribute(MASK, 1, (X, EDGES))


def test_several_values_for_one_place_are_refused_by_name() -> None:
    """PDNConv puts the weights of self-loops to nodes; of two at one node, torch's gradient gives both the whole."""
    edges = torch.tensor([[0, 0, 1, 2], [0, 0, 2, 1]])
    model = randomize(PDNConv(CHANNELS, 2, edge_dim=3, hidden_channels=4).double(), seed=8).eval()
    attributes = torch.rand(4, 3, dtype=torch.float64)
    with pytest.raises(UnsupportedModelError, match=r"'index_put_?' in .*\(PDNConv\)"):
        GOAtAttribution(model, mask_type="edge_attr").attribute(attributes, (0, 1), (X, edges))
    GOAtAttribution(model, mask_type="edge_attr").attribute(attributes[1:], (0, 1), (X, edges[:, 1:]))
