"""Nodes that users choose by index or by mask."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def node_numbers(nodes: Any, num_nodes: int, device: torch.device | None = None) -> Tensor:
    """Return the chosen nodes as integers ``[K]``, given integers, a mask ``[N]``, or ``None`` for all.

    Raises:
        ValueError: If no node is chosen, or one that the graph does not have.
    """
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
    if chosen.is_floating_point() or chosen.is_complex():
        raise ValueError(f"Expected nodes as integers or as a mask (got {chosen.dtype}).")
    chosen = chosen.long().view(-1)
    if not 0 <= int(chosen.min()) <= int(chosen.max()) < num_nodes:
        got = f"{int(chosen.min())} to {int(chosen.max())}"
        raise ValueError(f"Expected nodes from 0 to {num_nodes - 1} (got {got}).")
    return chosen
