"""Distinct sets against Python's own."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from captum_goat.fields import field_sets
from captum_goat.fields.field_sets import FieldSets


def contents(sets: FieldSets, numbers: Tensor) -> list[frozenset[int]]:
    """Return the sets of some numbers, as Python's."""
    result: list[set[int]] = [set() for _ in numbers]
    kept = torch.nonzero(numbers >= 0).view(-1)
    of_set, entries = sets.entries_of(numbers[kept])
    for position, entry in zip(kept[of_set].tolist(), entries.tolist(), strict=True):
        assert entry not in result[position], "an entry twice"
        result[position].add(entry)
    return [frozenset(content) for content in result]


@pytest.mark.parametrize("at_once", [2**24, 5], ids=["", "in small parts"])
@pytest.mark.parametrize("weak", [False, True], ids=["two hashes", "a first hash that is no good"])
def test_unions_are_those_of_python(weak: bool, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(field_sets, "_AT_ONCE", at_once)
    if weak:
        good = field_sets.hashed
        monkeypatch.setattr(field_sets, "hashed", lambda entries: good(entries) * torch.tensor([0, 1]))
    rng = random.Random(0)
    sets = FieldSets(12, 12, torch.device("cpu"))
    known = [frozenset({k}) for k in range(12)]
    numbers = torch.arange(12)
    for _ in range(12):
        groups = [rng.randrange(9) for _ in range(30)]
        chosen = [rng.randrange(-1, len(known)) for _ in range(30)]
        picked = torch.tensor([int(numbers[k]) if k >= 0 else -1 for k in chosen])
        united = sets.unite(torch.tensor(groups), picked, 9)
        expected = [
            frozenset().union(
                *(known[k] for group, k in zip(groups, chosen, strict=True) if group == number and k >= 0)
            )
            for number in range(9)
        ]
        assert contents(sets, united) == expected
        numbers, known = torch.cat([numbers, united[united >= 0]]), known + [content for content in expected if content]
    assert len(set(contents(sets, torch.arange(len(sets))))) == len(sets), "a set twice"


def test_changed_entries() -> None:
    sets = FieldSets(4, 8, torch.device("cpu"))
    both = sets.unite(torch.tensor([0, 0, 1]), torch.tensor([1, 2, 3]), 2)
    shifted = sets.changed(torch.tensor([int(both[0]), -1, int(both[1])]), lambda entry: entry + 4)
    assert contents(sets, shifted) == [{5, 6}, set(), {7}]
    without = sets.changed(shifted, lambda entry: entry.where(entry != 7, -1))
    assert contents(sets, without) == [{5, 6}, set(), set()]
    assert torch.equal(sets.changed(shifted, lambda entry: entry), shifted), "equal sets have equal numbers"


def test_too_many_entries_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(field_sets, "MOST_ENTRIES", 9)
    sets = FieldSets(4, 4, torch.device("cpu"))
    sets.unite(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 2, 3]), 2)
    with pytest.raises(MemoryError, match=r"more than 9.0e\+00 entries"):
        sets.unite(torch.tensor([0, 0, 0]), torch.tensor([0, 1, 2]), 1)
