"""Which nodes are explained, and which class of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch_geometric.data import Data

from captum_goat.inputs.targets import Choice

# A name, a class, one class per node, or None for a model that returns one number per node.
NodeTarget: TypeAlias = Literal["predicted", "label", "all"] | int | Sequence[int] | Tensor | None


class NodeTargets(NamedTuple):
    """What is explained of some nodes.

    Attributes:
        target: ``"predicted"`` or ``"all"``; ``None`` if there are classes, or for a model with one number per node.
        classes: The class of each of the nodes, ``[K]``.
    """

    target: Literal["predicted", "all"] | None
    classes: Tensor | None = None

    @classmethod
    def of(cls, target: Any, data: Data, nodes: Tensor) -> NodeTargets:
        """Look at what the user gave.

        Raises:
            ValueError: If it does not say for every node what is explained.
        """
        if target is None:
            return cls(None)
        if isinstance(target, str):
            if target in ("predicted", "all"):
                return cls("predicted" if target == "predicted" else "all")
            if target == "label":
                return cls(None, _labels(data)[nodes])
        elif isinstance(target, int | Sequence | Tensor):
            classes = torch.as_tensor(target, device=nodes.device)
            if classes.shape in ((), nodes.shape) and classes.dtype in (torch.int32, torch.int64):
                return cls(None, classes.long().expand(nodes.shape))
        got = f"{target.dtype} {list(target.shape)}" if isinstance(target, Tensor) else repr(target)
        raise ValueError(
            f"Expected target to be 'predicted', 'label', 'all', a class, or one class for each of {len(nodes)} nodes; "
            f"or None for a model with one number per node (got {got})."
        )

    def choice(self, begin: int, end: int) -> Choice:
        """Return what is explained of the nodes from position ``begin`` to ``end``."""
        if self.target is not None:
            return Choice(self.target)
        return Choice([None if self.classes is None else self.classes[begin:end]])


def chosen_nodes(nodes: Any, data: Data) -> Tensor:
    """Return nodes that the user gave, by number, as a mask or not at all, as numbers ``[K]``.

    Raises:
        IndexError: If there are no such nodes.
    """
    count, device = data.num_nodes, data.edge_index.device
    if nodes is None:
        return torch.arange(count, device=device)
    given = torch.as_tensor(nodes, device=device)
    if given.dtype == torch.bool and given.shape == (count,):
        given = given.nonzero()
    if given.dtype not in (torch.int32, torch.int64) or not given.numel():
        raise ValueError(
            f"Expected the numbers of one node or more, or a mask of {count} nodes (got {given.dtype} "
            f"{list(given.shape)})."
        )
    given = given.long().view(-1)
    if not 0 <= int(given.min()) <= int(given.max()) < count:
        raise IndexError(f"Expected nodes from 0 to {count - 1} (got {int(given.min())} to {int(given.max())}).")
    return given


def _labels(data: Data) -> Tensor:
    labels = data.y
    if not isinstance(labels, Tensor) or labels.numel() != data.num_nodes or labels.is_floating_point():
        got = f"{labels.dtype} {list(labels.shape)}" if isinstance(labels, Tensor) else "none"
        raise ValueError(f"Expected one whole number y per node, for target 'label' (got {got}).")
    return labels.view(-1).long()
