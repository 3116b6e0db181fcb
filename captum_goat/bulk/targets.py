"""Which class is explained for every graph of a dataset, or for every node of a graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from captum_goat.inputs.targets import Choice

# A name, a class, one class per graph or node, or None for a model that returns one number per graph or node.
TargetOption: TypeAlias = Literal["predicted", "label", "all"] | int | Sequence[int] | Tensor | None
NAMES = ("predicted", "label", "all")


@dataclass(frozen=True)
class Targets:
    """What is explained for every graph or node."""

    target: str | int | None  # a name or a class
    classes: Tensor | None  # of every graph or node, if they were passed one by one
    unit: str  # "graph" or "node"

    @classmethod
    def of(cls, target: Any, count: int, unit: Literal["graph", "node"]) -> Targets:
        """Read the option ``target`` for a number of graphs or nodes."""
        if isinstance(target, Integral) and not isinstance(target, bool):  # also those of NumPy
            return cls(int(target), None, unit)
        if target is None or (isinstance(target, str) and target in NAMES):
            return cls(target, None, unit)
        got = repr(target)
        if isinstance(target, Sequence | Tensor) and not isinstance(target, str):
            classes = torch.as_tensor(target).cpu()
            if classes.shape in ((), (count,)) and classes.dtype in (torch.int32, torch.int64):
                return cls(None, classes.long().expand(count), unit)
            got = f"{classes.dtype} {list(classes.shape)}"
        raise ValueError(
            f"Expected target to be {', '.join(map(repr, NAMES))}, a class, or one class for each of {count} {unit}s, "
            f"all integers; or None for a model with one number per {unit} (got {got})."
        )

    def known(self, members: range, labels: Any, device: torch.device) -> Tensor | None:
        """Return the classes of the graphs or nodes ``members``, if they are known before the model is called."""
        if self.classes is not None:
            return self.classes[members.start : members.stop].to(device)
        if self.target == "label":
            return integer_labels(labels, len(members), self.unit)
        return torch.full((len(members),), self.target, device=device) if isinstance(self.target, int) else None

    def choice(self, known: Tensor | None) -> Choice:
        """Return what to explain, given the classes that are known."""
        return Choice(self.target if self.target in ("predicted", "all") else [known])

    def explained(self, output: Tensor, known: Tensor | None) -> Tensor | None:
        """Return the explained classes, given the model's output; ``None`` where all are or there are none."""
        return output.argmax(dim=1) if self.target == "predicted" and output.dim() > 1 else known


def integer_labels(labels: Any, count: int, unit: str) -> Tensor:
    """Return labels ``y`` as classes; raise ValueError unless there is one integer per graph or node."""
    if not isinstance(labels, Tensor) or labels.numel() != count or labels.is_floating_point():
        got = f"{labels.dtype} {list(labels.shape)}" if isinstance(labels, Tensor) else "none"
        raise ValueError(f"Expected one integer y per {unit}, for target 'label' (got {got}).")
    return labels.view(-1).long()
