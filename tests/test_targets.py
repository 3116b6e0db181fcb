"""What each form of target selects."""

from __future__ import annotations

import pytest
import torch
from captum._utils.common import _select_targets

from captum_goat.inputs.targets import find_target

OUTPUT = torch.arange(12.0).view(4, 3)
CUBE = torch.arange(24.0).view(4, 3, 2)


@pytest.mark.parametrize(
    ("output", "target"),
    [
        (OUTPUT, 2),
        (OUTPUT, -1),
        (OUTPUT, (1,)),
        (OUTPUT, torch.tensor(0)),
        (OUTPUT, torch.tensor([1])),
        (OUTPUT, [0, 1, 2, 0]),
        (OUTPUT, [(0,), (1,), (2,), (0,)]),
        (OUTPUT, torch.tensor([0, 1, 2, 0])),
        (CUBE, (1, 0)),
        (CUBE, [(1, 0), (2, 1), (0, 0), (1, 1)]),
        (OUTPUT[:, 0], None),
    ],
)
def test_captums_forms_mean_what_captum_means(output: torch.Tensor, target: object) -> None:
    assert torch.equal(find_target(output, target)(output), _select_targets(output, target))


def test_a_full_index_names_its_row() -> None:
    found = find_target(OUTPUT, (2, 1))
    assert found(OUTPUT).tolist() == [7.0]
    assert found.rows.tolist() == [2]
    assert find_target(CUBE, (3, 2, -1))(CUBE).tolist() == [23.0]
    assert find_target(OUTPUT, [(2, 1)])(OUTPUT).tolist() == [7.0]


def test_copies_of_a_graph_with_several_rows() -> None:
    assert find_target(OUTPUT, (1, 2), copies=2)(OUTPUT).tolist() == [5.0, 11.0]
    assert find_target(OUTPUT, [(0, 1), (1, 2)], copies=2)(OUTPUT).tolist() == [1.0, 11.0]
    assert find_target(OUTPUT, [0, 1, 2, 0], copies=4)(OUTPUT).tolist() == [0.0, 4.0, 8.0, 9.0]
    assert find_target(OUTPUT, (0, 1), copies=4).rows.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("target", "copies", "message"),
    [
        (1, 2, "must name one of them"),
        ([1, 2], None, "got 2 targets for 4"),
        ([(0, 1), (1, 1)], None, "got 2 targets for 1 mask"),
        ((1, 1, 1), None, "selects one number"),
        (1.5, None, "selects one number"),
        (slice(0, 2), None, "selects one number"),
        ([1, (1, 2)], None, "selects one number"),
        (torch.ones(2, 2, 2), None, "selects one number"),
    ],
)
def test_other_targets_are_refused(target: object, copies: int | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        find_target(OUTPUT, target, copies)


@pytest.mark.parametrize("target", [3, -4, (4, 0), [0, 1, 2, 3]])
def test_targets_outside_are_refused(target: object) -> None:
    with pytest.raises(IndexError, match="within the output's shape"):
        find_target(OUTPUT, target)
