"""Rules for rows: models whose rows cannot be followed are refused."""

from __future__ import annotations

import pytest
from conftest import randomize
from row_rule_models import CHANNELS, EDGES, MASK, Model, X
from torch import Tensor
from torch_geometric.nn import SGConv

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
        kept[:] = kept or [second.relu()]
        return kept[0]

    model = randomize(Model(remembering).double(), seed=8)
    with pytest.raises(UnsupportedModelError, match="fewer"):
        GOAtAttribution(model).attribute(MASK, 1, (X, EDGES))


def test_what_a_layer_has_cached_is_refused() -> None:
    conv = SGConv(CHANNELS, 2, cached=True).double().eval()
    conv(X, EDGES)
    conv.cached = False
    with pytest.raises(UnsupportedModelError, match="`_cached_x` to None"):
        GOAtAttribution(conv).attribute(MASK, (0, 1), (X, EDGES))


def test_models_that_change_their_arguments_are_refused() -> None:
    class Shifting(Model):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            x += 1.0
            return super().forward(x, edge_index)

    model = randomize(Shifting(lambda x, f, s: s).double(), seed=8)
    with pytest.raises(UnsupportedModelError, match="argument 'x' in place"):
        GOAtAttribution(model).attribute(MASK, 1, (X.clone(), EDGES))
