"""Whether another pass takes the same steps."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from captum_goat.steps import OtherStepsError, Steps

X, INDEX = torch.zeros(2, 3), torch.tensor([0, 1])
Step = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


def noted(*given: Step) -> Steps:
    steps = Steps()
    for each in given:
        steps.note(*each)
    return steps


def compare(steps: Steps, *given: Step) -> None:
    comparison = steps.again()
    for each in given:
        comparison(*each)
    comparison.check_done()


FIRST: Step = (torch.index_select, (X, 0, INDEX), {})
SECOND: Step = (Tensor.sum, (X,), {"dim": 1})


def test_other_values_at_the_same_places_are_the_same_steps() -> None:
    compare(noted(FIRST, SECOND), (torch.index_select, (X + 1, 0, INDEX.clone()), {}), SECOND)


@pytest.mark.parametrize(
    "second",
    [
        (Tensor.mean, (X,), {"dim": 1}),
        (Tensor.sum, (X,), {"dim": 0}),
        (Tensor.sum, (X,), {"dim": True}),
        (Tensor.sum, (X[:1],), {"dim": 1}),
        (Tensor.sum, (X, 1), {}),
        (Tensor.sum, (INDEX,), {"dim": 1}),
    ],
)
def test_other_functions_arguments_and_sizes_are_others(second: Step) -> None:
    with pytest.raises(OtherStepsError):
        compare(noted(FIRST, SECOND), FIRST, second)


@pytest.mark.parametrize("index", [torch.tensor([1, 0]), torch.tensor([False, True]), torch.tensor([0, 1, 1])])
def test_other_indices_are_others_and_so_are_masks_with_the_same_numbers(index: Tensor) -> None:
    with pytest.raises(OtherStepsError):
        compare(noted(FIRST), (torch.index_select, (X, 0, index), {}))


def test_more_and_fewer_steps_are_others() -> None:
    with pytest.raises(OtherStepsError):
        compare(noted(FIRST), FIRST, SECOND)
    with pytest.raises(OtherStepsError):
        compare(noted(FIRST, SECOND), FIRST)


def test_indices_that_are_written_to_later_tell_nothing() -> None:
    index = INDEX.clone()
    steps = noted((torch.index_select, (X, 0, index), {}))
    assert steps.settled
    comparison = steps.again()
    other = INDEX.clone()
    comparison(torch.index_select, (X, 0, other), {})
    other.add_(0)
    with pytest.raises(OtherStepsError):
        comparison.check_done()
    index.add_(0)
    assert not steps.settled
