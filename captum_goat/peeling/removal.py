"""Two ways to take edges away from a graph: by its mask, or by cutting them out of its arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from captum_goat.inputs.edge_sets import is_edge_index

Removal: TypeAlias = Literal["mask", "cut"]
REMOVALS: tuple[str, ...] = get_args(Removal)


@dataclass(frozen=True)
class MaskedEdges:
    """A mask and the arguments that go with it, of which edges are taken away by setting their mask to 0.

    Attributes:
        mask: The edge mask, ``[E]`` or ``[B, E]``.
        arguments: The other arguments.
    """

    mask: Tensor
    arguments: tuple[Any, ...]

    def only(self, left: Tensor) -> tuple[Tensor, tuple[Any, ...]]:
        """Return the mask and the arguments with some edges only, bool of the mask's shape."""
        return torch.where(left, self.mask, 0.0), self.arguments

    def restored(self, attributions: Tensor, left: Tensor) -> Tensor:
        """Return attributions of what is left in the shape of the whole mask."""
        return attributions


@dataclass(frozen=True)
class CutEdges(MaskedEdges):
    """The same, but edges are cut out of the mask and the arguments.

    Attributes:
        names: The names of the arguments. What has ``edge`` in its name and a row for every edge loses rows.

    Examples::

        >>> import torch
        >>> from captum_goat.peeling.removal import CutEdges
        >>> arguments = torch.ones(3, 4), torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.tensor([0.1, 0.2, 0.3])
        >>> edges = CutEdges(torch.ones(3), arguments, ["x", "edge_index", "edge_weight"])
        >>> edges.only(torch.tensor([True, False, True]))[1][1:]
        (tensor([[0, 2],
                [1, 0]]), tensor([0.1000, 0.3000]))
    """

    names: list[str]

    def __post_init__(self) -> None:
        if self.mask.dim() == 2 and len(self.mask) != 1:
            raise ValueError(
                f"Expected one mask for removal='cut', because several of a graph lose different edges (got "
                f"{len(self.mask)}). removal='mask' takes any number."
            )
        everything = torch.ones(self.mask.size(-1), dtype=torch.bool, device=self.mask.device)
        if all(_cut(name, each, everything) is each for name, each in zip(self.names, self.arguments, strict=True)):
            raise ValueError(
                f"Expected edges to cut out of additional_forward_args for removal='cut' (got "
                f"{', '.join(self.names) or 'no arguments'}). removal='mask' leaves arguments as they are."
            )

    def only(self, left: Tensor) -> tuple[Tensor, tuple[Any, ...]]:
        """Return the mask and the arguments with some edges only."""
        columns = left.view(-1)
        arguments = zip(self.names, self.arguments, strict=True)
        return self.mask[..., columns], tuple(_cut(name, each, columns) for name, each in arguments)

    def restored(self, attributions: Tensor, left: Tensor) -> Tensor:
        """Return attributions of what is left in the shape of the whole mask."""
        found = attributions.new_zeros(self.mask.shape)
        found[left] = attributions.view(-1)
        return found


def _cut(name: str, value: Any, columns: Tensor) -> Any:
    """Return what is left of an argument."""
    if isinstance(value, Data):
        # A batch knows where each graph's edges begin, which would no longer be true.
        data = Data.from_dict(value.to_dict()) if isinstance(value, Batch) else value
        return data.edge_subgraph(columns)
    if not isinstance(value, Tensor) or "edge" not in name:
        return value
    if is_edge_index(value) and value.size(1) == len(columns):
        return value[:, columns]
    return value[columns] if value.dim() > 0 and len(value) == len(columns) else value
