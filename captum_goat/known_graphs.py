"""What is worth remembering of a graph that was explained, for the next time that it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from captum_goat.activation_pattern import ActivationPattern, Subject
from captum_goat.arguments import tensors_in
from captum_goat.graph_inputs import GraphInputs
from captum_goat.receptive_field import ReceptiveFields
from captum_goat.replica_plan import ReplicaPlan
from captum_goat.replicas import fits


class KnownGraph(NamedTuple):
    """The rows of a pass over a graph.

    Attributes:
        pattern: What was recorded; only what does not depend on values can be used again.
        fields: The receptive fields.
        indices: Copies of the model's arguments that are whole numbers or masks; others may have been written to since.
        plan: What replicas of the pattern need.
    """

    pattern: ActivationPattern
    fields: ReceptiveFields
    indices: tuple[Tensor, ...]
    plan: ReplicaPlan | None = None


class Memory:
    """Remembers the last small graph that was explained.

    The same graph often comes again, with other masks, features or targets: under NoiseTunnel, in metrics, for class
    after class. What was found by following its rows still holds if the model takes the same steps, which is checked.
    """

    def __init__(self) -> None:
        self._last: KnownGraph | None = None

    def keep(self, graph: GraphInputs, pattern: ActivationPattern, fields: ReceptiveFields) -> None:
        """Remember a graph, if it can be used again."""
        usable = pattern.steps is not None and not pattern.subject.features and fits(pattern)
        indices = tuple(each.clone() for each in _indices(graph)) if usable else ()
        self._last = KnownGraph(pattern, fields, indices) if usable else None

    def recall(self, graph: GraphInputs, subject: Subject) -> KnownGraph | None:
        """Return what is known of the graph of a subject, if it is the last one."""
        if self._last is None or subject.features:
            return None
        before, steps = self._last.pattern.subject, self._last.pattern.steps
        same = before.mask.shape == subject.mask.shape and before.mask.dtype == subject.mask.dtype
        same = same and before.model is subject.model and before.mask.device == subject.mask.device
        same = same and len(before.edge_sets) == len(subject.edge_sets)
        if not same or steps is None or not steps.settled or not _same(self._last.indices, _indices(graph)):
            return None
        if self._last.plan is None:
            self._last = self._last._replace(plan=ReplicaPlan(self._last.pattern))
        return self._last._replace(pattern=replace(self._last.pattern, subject=subject))


def _indices(graph: GraphInputs) -> list[Tensor]:
    return [each for _, each in tensors_in(graph.arguments) if not each.is_floating_point()]


def _same(some: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    return len(some) == len(others) and all(
        one.shape == other.shape and one.dtype == other.dtype and one.device == other.device and torch.equal(one, other)
        for one, other in zip(some, others, strict=True)
    )
