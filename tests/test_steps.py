"""Whether another pass takes the same steps."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from captum_goat.tracking.call_trace import Following, OtherStepsError, Steps

X, INDEX, WEIGHT = torch.zeros(2, 3), torch.tensor([0, 1]), torch.ones(3)
Step = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


def noted(*given: Step) -> Steps:
    steps = Steps([X, INDEX])
    for each in given:
        steps.note(*each)
    return steps


def compare(steps: Steps, *given: Step, arguments: tuple[Tensor, ...] = (X, INDEX)) -> None:
    comparison = steps.again(arguments)
    for each in given:
        comparison.note(*each)
    comparison.check_done()


FIRST: Step = (torch.index_select, (X, 0, INDEX), {})
SECOND: Step = (Tensor.sum, (X,), {"dim": 1})


def test_other_values_at_the_same_places_are_the_same_steps() -> None:
    x, index = X + 1, INDEX.clone()
    compare(
        noted(FIRST, SECOND, (torch.mv, (X, WEIGHT), {})),
        (torch.index_select, (x, 0, index), {}),
        (Tensor.sum, (x,), {"dim": 1}),
        (torch.mv, (x, WEIGHT), {}),
        arguments=(x, index),
    )


@pytest.mark.parametrize(
    "second",
    [
        (Tensor.mean, (X,), {"dim": 1}),
        (Tensor.sum, (X,), {"dim": 0}),
        (Tensor.sum, (X,), {"dim": True}),
        (Tensor.sum, (X[:1],), {"dim": 1}),
        (Tensor.sum, (X.clone(),), {"dim": 1}),
        (Tensor.sum, (X, 1), {}),
        (Tensor.sum, (INDEX,), {"dim": 1}),
        (Tensor.sum, ([X],), {"dim": 1}),
    ],
)
def test_other_functions_arguments_and_sizes_are_others(second: Step) -> None:
    with pytest.raises(OtherStepsError):
        compare(noted(FIRST, SECOND), FIRST, second)


def test_other_sizes_and_types_of_the_same_argument_are_others() -> None:
    for x in (X[:1], X.double()):
        with pytest.raises(OtherStepsError):
            compare(noted(SECOND), (Tensor.sum, (x,), {"dim": 1}), arguments=(x, INDEX))


@pytest.mark.parametrize("index", [torch.tensor([1, 0]), torch.tensor([False, True]), torch.tensor([0, 1, 1])])
def test_other_indices_are_others_and_so_are_masks_with_the_same_numbers(index: Tensor) -> None:
    with pytest.raises(OtherStepsError):
        compare(noted(FIRST), (torch.index_select, (X, 0, index), {}))


def test_more_and_fewer_steps_are_others() -> None:
    with pytest.raises(OtherStepsError):
        compare(noted(FIRST), FIRST, SECOND)
    with pytest.raises(OtherStepsError):
        compare(noted(FIRST, SECOND), FIRST)


def test_lists_tuples_and_slices_are_told_apart() -> None:
    indices = ((0, 1), [0, 1], slice(0, 1), (slice(0, 1),), (0, (1,)))
    for one in indices:
        for other in indices:
            steps = noted((Tensor.__getitem__, (X, one), {}))
            if one is other:
                compare(steps, (Tensor.__getitem__, (X, other), {}))
            else:
                with pytest.raises(OtherStepsError):
                    compare(steps, (Tensor.__getitem__, (X, other), {}))


def test_results_are_told_apart_by_the_steps_that_made_them() -> None:
    def take(following: Following, which: int) -> None:
        results = []
        for _ in range(2):
            following.note(torch.relu, (X,), {})
            results.append(torch.relu(X))
            following.made(results[-1])
        following.note(torch.split, (X, 1), {})
        results += torch.split(X, 1)
        following.made(results[2:])
        following.note(torch.tanh, (results[which],), {})

    for one, other in ((0, 0), (1, 1), (3, 3), (0, 1), (2, 3)):
        steps = Steps([X])
        take(steps, one)
        comparison = steps.again([X])
        if one == other:
            take(comparison, other)
            comparison.check_done()
        else:
            with pytest.raises(OtherStepsError):
                take(comparison, other)


def test_what_may_be_an_index_and_cannot_be_compared_is_not_used_again() -> None:
    assert noted(FIRST, SECOND).settled
    for index in (np.array([0, 1]), np.int64(0), range(2), object()):
        assert not noted((Tensor.__getitem__, (X, index), {})).settled


def test_indices_that_are_written_to_later_tell_nothing() -> None:
    index, x = INDEX.clone(), X.clone()
    steps = Steps([x, index])
    steps.note(torch.index_select, (x, 0, index), {})
    assert steps.settled
    other = INDEX.clone()
    comparison = steps.again([x, other])
    comparison.note(torch.index_select, (x, 0, other), {})
    other.add_(0)
    with pytest.raises(OtherStepsError):
        comparison.check_done()
    index.add_(0)
    assert not steps.settled


def test_indices_that_somebody_holds_are_copied() -> None:
    index = INDEX.clone()
    steps = Steps([X])
    steps.note(torch.index_select, (X, 0, index), {})
    index.numpy()[0] = 1
    comparison = steps.again([X])
    comparison.note(torch.index_select, (X, 0, index), {})
    with pytest.raises(OtherStepsError):
        comparison.check_done()
