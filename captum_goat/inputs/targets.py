"""Which numbers of a model's output are explained: Captum's forms of ``target``; and nodes by index or by mask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor


@dataclass(frozen=True)
class Target:
    """One number of the output for each example."""

    index: tuple[Tensor, ...]  # one tensor per dimension of the output, each with one entry per example

    @property
    def rows(self) -> Tensor:
        """The row of the output that explains each example."""
        return self.index[0]

    def __call__(self, output: Tensor) -> Tensor:
        """Return the explained numbers, one per example."""
        return output[self.index]


class Choice:
    """Which targets are explained together: given ones, ``"all"`` classes, or the ``"predicted"`` one."""

    def __init__(self, targets: Sequence[Any] | Literal["all", "predicted"]) -> None:
        self._targets = targets

    def __call__(self, output: Tensor) -> list[Any]:
        """Return the targets, given the model's output."""
        if not isinstance(self._targets, str):
            return list(self._targets)
        if output.dim() > 2:
            expected = "Expected an output [rows] or [rows, classes], to tell its classes"
            raise ValueError(f"{expected} (got {list(output.shape)}). Name the targets.")
        if output.dim() < 2:
            return [None]
        return list(range(output.size(1))) if self._targets == "all" else [output.argmax(dim=1)]

    @property
    def first(self) -> Choice:
        """The choice of the first target alone."""
        if self._targets == "all":
            return Choice([0])
        return self if isinstance(self._targets, str) else Choice(self._targets[:1])

    def of_mask(self, number: int, count: int) -> Choice:
        """Return the choice for one of ``count`` masks alone."""
        if isinstance(self._targets, str):
            return self
        chosen = []
        for target in self._targets:
            per_mask = isinstance(target, list) or (isinstance(target, Tensor) and target.numel() > 1)
            targets = list(target) if per_mask else [target]
            if len(targets) not in (1, count):
                raise ValueError(f"Expected one target per mask (got {len(targets)} targets for {count} masks).")
            chosen.append(targets[0 if len(targets) == 1 else number])
        return Choice(chosen)


def find_target(output: Tensor, target: Any, copies: int | None = None) -> Target:
    """Return which numbers of an output ``target`` selects, with masks ``[B, E]`` in B ``copies`` of a graph's rows.

    A tuple with an index for *every* dimension of the output names its row too: ``(node, class)``.
    """
    table = _as_table(target, output)
    names_row = table.size(1) == output.dim()
    rows = output.size(0) // (copies or 1)
    if not names_row and table.size(1) != output.dim() - 1:
        raise ValueError(f"{_expected(output)} (got {target!r}).")
    if not names_row and copies is not None and rows != 1:
        raise ValueError(
            f"{_expected(output)}. The model returns {rows} rows for one graph, so the target must name one of them, "
            f"as (node, class) does (got {target!r})."
        )
    examples = copies or (1 if names_row else rows)
    if len(table) not in (1, examples):
        kind = "mask" if names_row else "graph"
        raise ValueError(f"Expected one target per {kind} (got {len(table)} targets for {examples} {kind}(s)).")
    sizes = [rows, *output.shape[1:]] if names_row else output.shape[1:]
    columns = list(zip(table.unbind(1), sizes, strict=True))
    if not all(torch.equal(column.clamp(-size, size - 1), column) for column, size in columns):
        raise IndexError(f"Expected a target within the output's shape {list(sizes)} (got {target!r}).")
    index = [(column % size).expand(examples) for column, size in columns]
    example = torch.arange(examples, device=output.device)
    return Target((example * rows + index[0], *index[1:]) if names_row else (example, *index))


def _as_table(target: Any, output: Tensor) -> Tensor:
    """Return the target as integers, one line for all examples or one per example."""
    if target is None:  # which tells the number of a row that has one only, [1], [1, 1], ...
        known = output.dim() - 1 if output.shape[1:].numel() == 1 else 0
        return torch.zeros((1, known), dtype=torch.long, device=output.device)
    if isinstance(target, Tensor):
        lines: Any = target.reshape(-1, 1) if target.dim() <= 1 else target
    else:
        entries = target if isinstance(target, list) else [target]
        lines = [entry if isinstance(entry, tuple) else (entry,) for entry in entries]
    try:
        table = torch.as_tensor(lines, device=output.device)
        if table.dim() == 2 and _holds_integers(table):
            return table.long()
    except (TypeError, ValueError, RuntimeError):
        pass
    raise ValueError(f"{_expected(output)} (got {target!r}).")


def _holds_integers(values: Tensor) -> bool:
    return not (values.is_floating_point() or values.is_complex() or values.dtype == torch.bool)


def _expected(output: Tensor) -> str:
    forms = {1: "None", 2: "an int, or one per graph in a list or tensor, or (node, class)"}
    form = forms.get(output.dim(), f"a tuple of {output.dim() - 1} ints, or one per graph in a list")
    return f"Expected a target that selects one number per graph from an output of shape {list(output.shape)}: {form}"


def node_numbers(nodes: Any, num_nodes: int, device: torch.device | None = None) -> Tensor:
    """Return the chosen nodes as integers ``[K]``, given integers, a mask ``[N]``, or ``None`` for all."""
    if nodes is None:
        return torch.arange(num_nodes, device=device)
    try:
        chosen = torch.as_tensor(nodes, device=device)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"Expected nodes as integers or as a mask (got {nodes!r}).") from error
    if chosen.dtype == torch.bool:
        if chosen.shape != (num_nodes,):
            raise ValueError(f"Expected a mask of {num_nodes} nodes, or node indices (got {list(chosen.shape)}).")
        chosen = chosen.nonzero()
    if not chosen.numel():
        raise ValueError("Expected one node or more (got none).")
    if not _holds_integers(chosen):
        raise ValueError(f"Expected nodes as integers or as a mask (got {chosen.dtype}).")
    chosen = chosen.long().view(-1)
    least, most = int(chosen.min()), int(chosen.max())
    if not 0 <= least <= most < num_nodes:
        raise ValueError(f"Expected nodes from 0 to {num_nodes - 1} (got {least} to {most}).")
    return chosen
