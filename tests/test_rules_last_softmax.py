"""A softmax at the end of a model: its logits are explained, if it is the last step."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from conftest import randomize
from rule_models import BATCH, EDGES, MASK, Model, X
from torch import Tensor

from captum_goat import GOAtAttribution, UnsupportedModelError

CHOICES: list[Callable[[Tensor], Tensor]] = [lambda p: p[:, 1], lambda p: p.clone()[:, 1:2], lambda p: p.t()[1]]


@pytest.mark.parametrize("choose", CHOICES, ids=range(3))
def test_what_is_chosen_of_a_last_softmax_is_that_of_the_logits(choose: Callable[[Tensor], Tensor]) -> None:
    class Head(Model):
        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
            return choose(super().forward(x, edge_index, batch).softmax(-1))

    plain, model = (randomize(kind(torch.relu).double(), seed=1) for kind in (Model, Head))
    expected = GOAtAttribution(plain).attribute(MASK, [1, 1], (X, EDGES, BATCH))
    target = [0, 0] if choose(torch.ones(2, 3)).dim() == 2 else None
    torch.testing.assert_close(GOAtAttribution(model).attribute(MASK, target, (X, EDGES, BATCH)), expected)


def test_what_is_written_to_after_a_last_softmax_is_not_the_output() -> None:
    class Head(Model):
        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
            logits = super().forward(x, edge_index, batch)
            probabilities = logits.softmax(-1)
            logits.mul_(0)
            return probabilities

    plain, model = (randomize(kind(torch.relu).double(), seed=1) for kind in (Model, Head))
    expected = GOAtAttribution(plain).attribute(MASK, 1, (X, EDGES, BATCH))
    torch.testing.assert_close(GOAtAttribution(model).attribute(MASK, 1, (X, EDGES, BATCH)), expected)


def test_an_output_of_frozen_numbers_alone_is_refused() -> None:
    class Head(Model):
        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
            return 2 * super().forward(x, edge_index, batch).softmax(-1)

    with pytest.raises(UnsupportedModelError, match="frozen values only"):
        GOAtAttribution(randomize(Head(torch.relu).double(), seed=1)).attribute(MASK, 1, (X, EDGES, BATCH))
