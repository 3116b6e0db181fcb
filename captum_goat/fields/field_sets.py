"""Distinct sets of edges, each kept once: rows that see the same edges share a set.

Fields repeat themselves: all rows of a pooled graph see all of its edges, and so do all nodes of a small graph after a
few layers. So a field is the number of a set, sets are told apart by sums of hashes of what is in them, and uniting
fields means looking at distinct sets instead of at rows.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

NO_SET = -1
_AT_ONCE = 2**24  # entries that are processed together
MOST_ENTRIES = 2**28  # that are kept, 8 bytes each


class FieldSets:
    """Sets of entries below ``width``, numbered from 0 on; set k < ``num_singletons`` holds just the entry k."""

    def __init__(self, num_singletons: int, width: int, device: torch.device) -> None:
        self._width = width
        singletons = torch.arange(num_singletons, device=device)
        self._keys = singletons * (width + 1)  # set * width + entry, of one set after the other
        self._sizes = torch.ones_like(singletons)
        self._hashes = hashed(singletons)

    def __len__(self) -> int:
        return self._sizes.numel()

    def unite(self, groups: Tensor, sets: Tensor, num_groups: int) -> Tensor:
        """Return the number of the union of each group's sets (-1: none), given the group of each of the sets."""
        kept = sets >= 0
        pairs = torch.unique(groups[kept] * len(self) + sets[kept])
        groups, sets = pairs // len(self), pairs % len(self)
        united = torch.full((num_groups,), NO_SET, device=sets.device)
        groups, sets = self._without_subsets(groups, sets, united)
        if groups.numel():
            several, position = torch.unique(groups, return_inverse=True)
            united[several] = self._unite_several(position, sets, several.numel())
        return united

    def _without_subsets(self, groups: Tensor, sets: Tensor, united: Tensor) -> tuple[Tensor, Tensor]:
        """Unite groups whose largest set has all entries, such as a node that sees what its neighbours see.

        Only those are tried in which the largest set has half of all entries; the sets of other groups are returned.
        """
        sizes = self._sizes[sets]
        total = torch.zeros_like(united).index_add_(0, groups, sizes)
        largest = torch.full_like(united, 0).scatter_reduce_(0, groups, sizes * len(self) + sets, "amax") % len(self)
        likely = 2 * self._sizes[largest] >= total
        small = likely[groups] & (sets != largest[groups])
        which, entries = self.entries_of(sets[small])
        group = groups[small][which]
        wanted = largest[group] * self._width + entries
        position = torch.searchsorted(self._keys, wanted).clamp(max=self._keys.numel() - 1)
        missing = torch.zeros_like(united).index_add_(0, group, (self._keys[position] != wanted).long())
        done = (likely & (missing == 0))[groups]
        united[groups[done]] = largest[groups[done]]
        return groups[~done], sets[~done]

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
        ends = self._sizes[sets].cumsum(0)
        last = torch.zeros_like(first).scatter_reduce_(0, groups, ends, "amax")
        part = ((last - 1) // _AT_ONCE)[groups]  # groups that are processed together
        counts = part.unique_consecutive(return_counts=True)[1].tolist()
        unions = []
        for groups_here, sets_here in zip(groups.split(counts), sets.split(counts), strict=True):
            which, entries = self.entries_of(sets_here)
            here = groups_here - groups_here[0]
            unions.append(self._add(here[which], entries, int(here[-1]) + 1))
        return torch.cat(unions)[inverse]

    def _add(self, groups: Tensor, entries: Tensor, num_groups: int) -> Tensor:
        """Return the number of the set of each group's entries, new or known (-1: empty)."""
        pairs = torch.unique(groups * self._width + entries)
        groups, entries = pairs // self._width, pairs % self._width
        hashes = self._hashes.new_zeros(num_groups, 2).index_add_(0, groups, hashed(entries))
        sizes = torch.bincount(groups, minlength=num_groups)
        first, inverse = first_of_equals(torch.cat([self._hashes, hashes]))
        position = torch.arange(inverse.numel(), device=sizes.device)
        representative = first[inverse]  # the first set with these entries, old or new
        fresh = (representative == position)[len(self) :] & (sizes > 0)
        number = torch.cat([position[: len(self)], len(self) - 1 + fresh.cumsum(0)])
        numbers = number[representative[len(self) :]].masked_fill(sizes == 0, NO_SET)
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
    position = torch.arange(len(hashes), device=hashes.device)
    for keys, dim in ((hashes[:, 0], None), (hashes, 0)):  # once in many billions the first hash alone will not do
        distinct, inverse = torch.unique(keys, dim=dim, return_inverse=True)
        first = position.new_full((len(distinct),), len(hashes)).scatter_reduce_(0, inverse, position, "amin")
        if torch.equal(hashes[first][inverse], hashes):
            break
    return first, inverse
