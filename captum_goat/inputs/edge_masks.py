"""Edge masks ``[E]`` and ``[B, E]``: what is one, and whether copies of a graph for several masks are independent."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

_logger = logging.getLogger(__name__)


def check_masks(masks: Sequence[Any]) -> None:
    """Raise ValueError unless there is one mask per set of edges, each ``[E]``, or each ``[B, E]`` with the same B."""
    for mask in masks:
        check_mask(mask)
    if len({mask.shape[:-1] for mask in masks}) != 1:
        raise ValueError(
            f"Expected masks that are all [num_edges], or all [num_masks, num_edges] with the same number of masks "
            f"(got {[list(mask.shape) for mask in masks]})."
        )


def check_mask(edge_mask: Any) -> None:
    """Raise ValueError for what is not a mask ``[E]`` or masks ``[B, E]``."""
    is_tensor = isinstance(edge_mask, Tensor)
    is_mask = is_tensor and edge_mask.is_floating_point() and edge_mask.dim() in (1, 2)
    if not is_mask or (edge_mask.dim() == 2 and len(edge_mask) == 0):
        got = f"{edge_mask.dtype} {list(edge_mask.shape)}" if is_tensor else type(edge_mask).__name__
        raise ValueError(
            f"Expected an edge mask of floating point numbers, [num_edges] or [num_masks, num_edges] (got {got}). "
            f"Pass torch.ones(edge_index.size(1)) to explain the graph as it is."
        )


def copies_agree(together: Tensor, last: Tensor, count: int) -> bool:
    """Return whether the output for copies of a graph side by side ends with that for the last graph alone.

    A model may mix the graphs of a batch (by a mean over all nodes, say); then its copies are not independent.
    """
    if last.dim() == 0 or together.shape != (count * last.size(0), *last.shape[1:]):
        return False
    precision = torch.finfo(last.dtype).eps ** 0.5
    near = precision * last.abs().max() if last.numel() else 0.0
    return bool(((together[len(together) - len(last) :] - last).abs() <= near).all())


@contextmanager
def fallback_to_single_runs() -> Iterator[None]:
    """Catch the errors of a model that copies of a graph do not fit, because it has an embedding per node, say.

    Whatever is not due to the copies comes again when the graph runs alone. Running out of memory, interrupts and the
    like are not caught.
    """
    try:
        yield
    except (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        _logger.debug("Copies of the graph failed, so the masks run one by one: %r", error)
