"""What is worth remembering of a graph that was explained, for the next time that it is."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch

from captum_goat.activation_pattern import ActivationPattern, Subject
from captum_goat.receptive_field import ReceptiveFields
from captum_goat.replicas import fits


class KnownGraph(NamedTuple):
    """The rows of a pass over a graph.

    Attributes:
        pattern: What was recorded; only what does not depend on values can be used again.
        fields: The receptive fields.
    """

    pattern: ActivationPattern
    fields: ReceptiveFields


class Memory:
    """Remembers the last small graph that was explained.

    The same graph often comes again, with other masks, features or targets: under NoiseTunnel, in metrics, for class
    after class. What was found by following its rows still holds if the model takes the same steps, which is checked.
    """

    def __init__(self) -> None:
        self._last: KnownGraph | None = None

    def keep(self, pattern: ActivationPattern, fields: ReceptiveFields) -> None:
        """Remember a graph, if it can be used again."""
        usable = pattern.steps is not None and not pattern.subject.features and fits(pattern)
        self._last = KnownGraph(pattern, fields) if usable else None

    def recall(self, subject: Subject) -> KnownGraph | None:
        """Return what is known of the graph of a subject, if it is the last one."""
        if self._last is None or subject.features:
            return None
        before = self._last.pattern.subject
        same = before.mask.shape == subject.mask.shape and before.mask.dtype == subject.mask.dtype
        same = same and before.model is subject.model and before.mask.device == subject.mask.device
        same = same and len(before.edge_sets) == len(subject.edge_sets)
        if not same or not all(map(torch.equal, before.edge_sets, subject.edge_sets)):
            return None
        return self._last._replace(pattern=replace(self._last.pattern, subject=subject))
