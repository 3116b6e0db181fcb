"""What is worth remembering of a graph that was explained, for the next time that it is."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from captum_goat.fields.receptive_field import ReceptiveFields
from captum_goat.inputs.graph_inputs import GraphInputs
from captum_goat.method.replay import ActivationPattern, Subject
from captum_goat.method.replica_plan import ReplicaPlan
from captum_goat.method.replicas import fits


class KnownGraph(NamedTuple):
    """The rows of a pass over a graph.

    Attributes:
        pattern: What was recorded; only what does not depend on values can be used again.
        fields: The receptive fields.
        repeated: How elements were counted in them.
        layout: The names of the model's arguments, and where the edges are among them.
        indices: Copies of its arguments that are whole numbers or masks; others may have been written to since.
        plan: What replicas of the pattern need.
    """

    pattern: ActivationPattern
    fields: ReceptiveFields
    repeated: bool
    layout: Any
    indices: list[Tensor]
    plan: ReplicaPlan | None = None


class Memory:
    """Remembers the last small graph that was explained, but no tensor of the user's.

    The same graph often comes again, with other masks, features or targets: under NoiseTunnel, in metrics, for class
    after class. What was found by following its rows still holds if the model takes the same steps, which is checked.
    What is remembered is never changed: several threads may use it, and any of them may be interrupted.
    """

    def __init__(self) -> None:
        self._last: KnownGraph | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_last": None}  # nothing that a copy of the explainer would miss

    def keep(self, graph: GraphInputs, pattern: ActivationPattern, fields: ReceptiveFields, repeated: bool) -> None:
        """Remember a graph, if it can be used again."""
        self._last = None
        if pattern.steps is None or pattern.subject.features or not fits(pattern):
            return
        indices = [each.clone() for each in graph.tensors if not each.is_floating_point()]
        mask = torch.empty_like(pattern.subject.mask)
        subject = pattern.subject._replace(forward=_gone, finish=None, edge_sets=(), mask=mask)  # no arguments
        kept = replace(pattern, subject=subject, steps=pattern.steps.own())
        fields.find(pattern.gate_blocks)  # now, so that who uses the graph again need not
        self._last = KnownGraph(kept, copy(fields), repeated, graph.layout, indices)

    def recall(self, graph: GraphInputs, subject: Subject, repeated: bool) -> KnownGraph | None:
        """Return what is known of the graph of a subject, if it is the last one."""
        last = self._last
        if last is None or subject.features or last.repeated != repeated or last.layout != graph.layout:
            return None
        before, steps = last.pattern.subject, last.pattern.steps
        same = before.mask.shape == subject.mask.shape and before.mask.dtype == subject.mask.dtype
        same = same and before.model is subject.model and before.mask.device == subject.mask.device
        indices = [each for each in graph.tensors if not each.is_floating_point()]
        if not same or steps is None or not steps.settled or not _same(last.indices, indices):
            return None
        if last.plan is None:
            self._last = last = last._replace(plan=ReplicaPlan(last.pattern))
        return last._replace(pattern=replace(last.pattern, subject=subject), fields=copy(last.fields))


def _gone(_: Any) -> Any:
    raise AssertionError("The pass over a known graph is another one.")


def _same(some: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    return len(some) == len(others) and all(
        one.shape == other.shape and one.dtype == other.dtype and one.device == other.device and torch.equal(one, other)
        for one, other in zip(some, others, strict=True)
    )
