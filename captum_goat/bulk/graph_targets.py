"""Which class is explained of every graph of a data set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor
from torch_geometric.data import Data

from captum_goat.inputs.targets import Choice

# A name, a class, one class per graph, or None for a model that returns one number per graph.
GraphTarget: TypeAlias = Literal["predicted", "label", "all"] | int | Sequence[int] | Tensor | None
NAMES = ("predicted", "label", "all")


@dataclass(frozen=True)
class GraphTargets:
    """What is explained of every graph.

    Attributes:
        target: A name or a class; ``None`` if there are ``classes``, or for a model with one number per graph.
        classes: The class of every graph in the data set.
    """

    target: str | int | None
    classes: Tensor | None = None

    @classmethod
    def of(cls, target: Any, num_graphs: int) -> GraphTargets:
        """Look at what the user gave.

        Raises:
            ValueError: If it does not say for every graph what is explained.
        """
        if target is None or type(target) is int or (isinstance(target, str) and target in NAMES):
            return cls(target)
        if isinstance(target, str) or not isinstance(target, Sequence | Tensor):
            raise ValueError(
                f"Expected target to be one of {', '.join(map(repr, NAMES))}, a class, one class per graph, or None "
                f"for a model with one number per graph (got {target!r})."
            )
        classes = torch.as_tensor(target).cpu()
        if classes.shape != (num_graphs,) or classes.is_floating_point():
            raise ValueError(
                f"Expected one class per graph, {num_graphs} whole numbers (got {classes.dtype} {list(classes.shape)})."
            )
        return cls(None, classes.long())

    @property
    def all_classes(self) -> bool:
        """Whether all classes of a graph are explained."""
        return self.target == "all"

    def choice(self, batch: Data, members: range) -> tuple[Choice, Tensor | None]:
        """Return what is explained of the graphs of a batch, and the classes where they are known beforehand."""
        if self.target == "predicted" or self.target == "all":
            return Choice(self.target), None
        classes = self._classes(batch, members)
        return Choice([classes]), classes

    def explained(self, output: Tensor, chosen: Tensor | None) -> Tensor | None:
        """Return the explained class of every graph of a batch; ``None`` where all are or there are none.

        Args:
            output: The model's output.
            chosen: The classes that were known beforehand.
        """
        return output.argmax(dim=1) if self.target == "predicted" and output.dim() > 1 else chosen

    def _classes(self, batch: Data, members: range) -> Tensor | None:
        device = batch.edge_index.device
        if self.classes is not None:
            return self.classes[members.start : members.stop].to(device)
        if self.target == "label":
            labels = batch.y
            if not isinstance(labels, Tensor) or labels.numel() != len(members) or labels.is_floating_point():
                got = f"{labels.dtype} {list(labels.shape)}" if isinstance(labels, Tensor) else "none"
                raise ValueError(f"Expected one whole number y per graph, for target 'label' (got {got}).")
            return labels.view(-1).long()
        return None if self.target is None else torch.full((len(members),), int(self.target), device=device)
