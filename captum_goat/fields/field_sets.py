"""Distinct sets of edges, each kept once: rows that see the same edges share a set.

Fields repeat themselves: all rows of a pooled graph see all of its edges, and so do all nodes of a small graph after a
few layers. So a field is the number of a set, sets are told apart by sums of hashes of what is in them, and uniting
fields means looking at distinct sets instead of at rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

NO_SET = -1
_MANY = 32  # unions of more sets than this remember what they are made of
_MOST_SETS = 2**31
_AT_ONCE = 2**24  # entries that are processed together
MOST_ENTRIES = 2**28  # that are kept, 8 bytes each


class FieldSets:
    """Sets of entries, numbered from 0 on. Set k holds just the entry k, for the first ``num_singletons`` of them.

    Tensors are replaced, never written to, so a shallow copy is a copy.

    Args:
        num_singletons: How many sets of one entry there are from the beginning.
        width: More than the largest entry.
        device: Where the sets are.
    """

    def __init__(self, num_singletons: int, width: int, device: torch.device) -> None:
        self._width = width
        self._num_singletons = num_singletons
        singletons = torch.arange(num_singletons, device=device)
        self._keys = singletons * (width + 1)  # set * width + entry, of one set after the other
        self._sizes = torch.ones_like(singletons)
        self._hashes = hashed(singletons)
        self._contained = singletons[:0]  # which sets are in which, as far as it is known, as sorted pairs

    def __len__(self) -> int:
        return self._sizes.numel()

    def unite(self, groups: Tensor, sets: Tensor, num_groups: int) -> Tensor:
        """Return the number of the union of each group's sets (-1: none), given the group of each of the sets."""
        kept = sets >= 0
        pairs = torch.unique(groups[kept] * len(self) + sets[kept])
        groups, sets = pairs // len(self), pairs % len(self)
        counts = torch.bincount(groups, minlength=num_groups)
        united = torch.full((num_groups,), NO_SET, device=sets.device)
        alone = counts[groups] == 1
        united[groups[alone]] = sets[alone]
        groups, sets = self._without_contained(groups[~alone], sets[~alone], united)
        groups, sets = self._without_pairs(groups, sets, united)
        if groups.numel():
            several, position = torch.unique(groups, return_inverse=True)
            united[several] = self._unite_several(position, sets, several.numel())
            self._note_contained(united[groups], groups, sets, num_groups)
        return united

    def _without_contained(self, groups: Tensor, sets: Tensor, united: Tensor) -> tuple[Tensor, Tensor]:
        """Leave out what is known to be in the largest set of its group, and unite groups that have just that left."""
        if not groups.numel() or not self._contained.numel():
            return groups, sets
        ranked = self._sizes[sets] * len(self) + sets
        largest = torch.full_like(united, NO_SET).scatter_reduce_(0, groups, ranked, "amax")[groups] % len(self)
        wanted = largest * _MOST_SETS + sets
        position = torch.searchsorted(self._contained, wanted).clamp(max=self._contained.numel() - 1)
        kept = self._contained[position] != wanted
        groups, sets = groups[kept], sets[kept]
        alone = torch.bincount(groups, minlength=united.numel())[groups] == 1
        united[groups[alone]] = sets[alone]
        return groups[~alone], sets[~alone]

    def _without_pairs(self, groups: Tensor, sets: Tensor, united: Tensor) -> tuple[Tensor, Tensor]:
        """Unite groups of two sets of which one is in the other: a node with the sum of its neighbours, most often."""
        two = torch.bincount(groups, minlength=united.numel())[groups] == 2
        if not two.any():
            return groups, sets
        pairs, of_pair = sets[two].view(-1, 2), groups[two].view(-1, 2)[:, 0]
        first_is_larger = self._sizes[pairs[:, 0]] >= self._sizes[pairs[:, 1]]
        large, small = (torch.where(way, pairs[:, 0], pairs[:, 1]) for way in (first_is_larger, ~first_is_larger))
        which, entries = self.entries_of(small)
        wanted = large[which] * self._width + entries
        position = torch.searchsorted(self._keys, wanted).clamp(max=self._keys.numel() - 1)
        missing = torch.zeros_like(small).index_add_(0, which, (self._keys[position] != wanted).long())
        united[of_pair] = large.where(missing == 0, NO_SET)
        left = united[groups] == NO_SET
        return groups[left], sets[left]

    def _note_contained(self, unions: Tensor, groups: Tensor, sets: Tensor, num_groups: int) -> None:
        """Remember of what the unions of many sets, such as pooled graphs, are made."""
        many = (torch.bincount(groups, minlength=num_groups)[groups] > _MANY) & (unions != sets)
        if many.any():
            keys = unions[many] * _MOST_SETS + sets[many]
            large = torch.unique(unions[many])
            of_set, entries = self.entries_of(large)
            single = entries < self._num_singletons
            singles = large[of_set[single]] * _MOST_SETS + entries[single]
            self._contained = torch.unique(torch.cat([self._contained, keys, singles]))

    def changed(self, sets: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the numbers of sets whose entries are changed; ``change`` returns -1 for entries to leave out."""
        distinct, inverse = torch.unique(sets, return_inverse=True)
        real = distinct >= 0
        group, entries = self.entries_of(distinct[real])
        entries = change(entries)
        numbers = torch.full_like(distinct, NO_SET)
        numbers[real] = self._add(group[entries >= 0], entries[entries >= 0], int(real.sum()))
        return numbers[inverse]

    def entries_of(self, sets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the entries of sets, one after the other, and before them the position in ``sets`` of each."""
        counts = self._sizes[sets]
        which = repeated_positions(counts)
        starts = (self._sizes.cumsum(0) - self._sizes)[sets]
        offset = torch.arange(which.numel(), device=which.device) - (counts.cumsum(0) - counts)[which]
        return which, self._keys[starts[which] + offset] % self._width

    def _unite_several(self, groups: Tensor, sets: Tensor, num_groups: int) -> Tensor:
        """Unite sets; groups whose sets have the same entries, all counted, have the same union."""
        sums = self._hashes.new_zeros(num_groups, 2).index_add_(0, groups, self._hashes[sets])
        first, inverse = first_of_equals(sums)
        number = torch.full_like(inverse, NO_SET)
        number[first] = torch.arange(first.numel(), device=sets.device)
        groups, order = torch.sort(number[groups])
        sets = sets[order][groups >= 0]
        groups = groups[groups >= 0]
        unions = []
        for part, part_sets in self._parts(groups, sets):
            which, entries = self.entries_of(part_sets)
            unions.append(self._add(part[which], entries, int(part[-1]) + 1))
        return torch.cat(unions)[inverse]

    def _parts(self, groups: Tensor, sets: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield groups (numbered from 0, in order) in parts whose sets have at most ``_AT_ONCE`` entries together."""
        ends = self._sizes[sets].cumsum(0)
        total = int(ends[-1])
        if total <= _AT_ONCE:
            yield groups, sets
            return
        last = torch.zeros_like(groups[: int(groups[-1]) + 1]).scatter_reduce_(0, groups, ends, "amax")
        part = ((last - 1) // _AT_ONCE)[groups]
        for number in part.unique_consecutive():
            here = part == number
            yield groups[here] - groups[here][0], sets[here]

    def _add(self, groups: Tensor, entries: Tensor, num_groups: int) -> Tensor:
        """Return the number of the set of each group's entries, new or known (-1: empty)."""
        pairs = torch.unique(groups * self._width + entries)
        groups, entries = pairs // self._width, pairs % self._width
        hashes = self._hashes.new_zeros(num_groups, 2).index_add_(0, groups, hashed(entries))
        sizes = torch.bincount(groups, minlength=num_groups)
        together = torch.cat([self._hashes, hashes])
        first, inverse = first_of_equals(together)
        representative = first[inverse][len(self) :]  # the first set with these entries, old or new
        new = (representative >= len(self)) & (sizes > 0)
        fresh = new & (representative == torch.arange(num_groups, device=sizes.device) + len(self))
        number = torch.full((len(together),), NO_SET, device=sizes.device)
        number[: len(self)] = torch.arange(len(self), device=sizes.device)
        number[len(self) :][fresh] = torch.arange(int(fresh.sum()), device=sizes.device) + len(self)
        numbers = number[representative].masked_fill(sizes == 0, NO_SET)
        if self._keys.numel() + int(sizes[fresh].sum()) > MOST_ENTRIES:
            raise MemoryError(
                f"The receptive fields of this graph have more than {MOST_ENTRIES:.1e} entries, too many to keep. This "
                f"happens where many nodes see many others, each of them different ones, as in deep models on graphs "
                f"with hubs. Explain single nodes, a part of the graph, or a model with fewer layers; with "
                f"field='repeated' try field='distinct'."
            )
        kept = fresh[groups]
        self._keys = torch.cat([self._keys, number[len(self) :][groups[kept]] * self._width + entries[kept]])
        self._sizes = torch.cat([self._sizes, sizes[fresh]])
        self._hashes = torch.cat([self._hashes, hashes[fresh]])
        return numbers


def repeated_positions(counts: Tensor) -> Tensor:
    """Return position k ``counts[k]`` times: `repeat_interleave`, which stalls on small inputs with several threads."""
    ends = counts.cumsum(0)
    total = int(ends[-1]) if counts.numel() else 0
    steps = counts.new_zeros(total + 1).index_add_(0, ends, torch.ones_like(ends))
    return steps[:-1].cumsum(0)


def hashed(entries: Tensor) -> Tensor:
    """Return two hashes of each entry, whose sums tell sets apart (the mixing is that of splitmix64)."""
    columns = []
    for start in (0x1E3779B97F4A7C15, 0x5851F42D4C957F2D):
        mixed = (entries + 1) * start
        mixed = (mixed ^ (mixed >> 30)) * -0x40A7B892E31B1A47
        mixed = (mixed ^ (mixed >> 27)) * -0x6B2FB644ECCEEE15
        columns.append(mixed ^ (mixed >> 31))
    return torch.stack(columns, dim=-1)


def first_of_equals(hashes: Tensor) -> tuple[Tensor, Tensor]:
    """Return the first position of each distinct row of two hashes, and for each row which of these it equals."""
    distinct, inverse = torch.unique(hashes[:, 0], return_inverse=True)
    first = torch.full_like(distinct, len(hashes))
    first.scatter_reduce_(0, inverse, torch.arange(len(hashes), device=hashes.device), "amin")
    if not torch.equal(hashes[first][inverse], hashes):  # once in many billions the first hash alone will not do
        _, inverse = torch.unique(hashes, dim=0, return_inverse=True)
        first = inverse.new_full((int(inverse.max()) + 1,), len(hashes))
        first.scatter_reduce_(0, inverse, torch.arange(len(hashes), device=hashes.device), "amin")
    return first, inverse
