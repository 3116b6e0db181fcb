"""Several processes that share the work, as ``torchrun`` starts them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

T = TypeVar("T")
PATIENCE = timedelta(days=1)  # with the slowest process; if one dies, torchrun ends all of them


@dataclass(frozen=True)
class Ranks:
    """The number of this process, and how many processes the run has."""

    rank: int = 0
    count: int = 1

    @classmethod
    def current(cls) -> Ranks:
        """Return the processes of ``torch.distributed``, or this one alone if that is not initialised."""
        if dist.is_available() and dist.is_initialized():
            return cls(dist.get_rank(), dist.get_world_size())
        return cls()

    def once(self, action: Callable[[], T]) -> T:
        """Let the first process do something, and return its result, or raise its error, in all processes."""
        if self.count == 1:
            return action()
        outcome: list[Any] = [None, None]
        if self.rank == 0:
            try:
                outcome[0] = action()
            except Exception as error:  # raised below, in all processes
                outcome[1] = error
        dist.broadcast_object_list(outcome, src=0)
        if outcome[1] is not None:
            raise outcome[1]
        result: T = outcome[0]
        return result

    def wait(self) -> None:
        """Wait for all processes."""
        if self.count > 1:
            dist.barrier()


@contextmanager
def joined(device: torch.device) -> Iterator[torch.device]:
    """Join the other processes if ``torchrun`` started this one; yield its device, for ``cuda`` a GPU of its own."""
    if "WORLD_SIZE" not in os.environ or dist.is_initialized():
        yield device
        return
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if device.index is None else device
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=PATIENCE)
    try:
        yield device
    finally:
        dist.destroy_process_group()
