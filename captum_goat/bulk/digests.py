"""Hashes that tell whether a model and its data are the same as before."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric import EdgeIndex

from captum_goat.models.checkpoints import fingerprint

LENGTH = 32  # hexadecimal digits


def digest_of(values: Mapping[str, object]) -> str:
    """Return a hash of tensors and plain values by name.

    Args:
        values: The values; their order does not matter.

    Examples::

        >>> import torch
        >>> from captum_goat.bulk.digests import digest_of
        >>> one, other = torch.tensor([1, 2]), torch.tensor([1, 3])
        >>> digest_of({"x": one}) == digest_of({"x": one.clone()}), digest_of({"x": one}) == digest_of({"x": other})
        (True, False)
    """
    digest = hashlib.sha256()
    for name, value in sorted(values.items()):
        plain = value.as_tensor() if isinstance(value, EdgeIndex) else value
        if isinstance(plain, Tensor) and plain.layout == torch.strided:
            digest.update(f"{name}:{plain.dtype}{list(plain.shape)};".encode())
            digest.update(plain.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        else:
            digest.update(f"{name}:{plain!r};".encode())
    return digest.hexdigest()[:LENGTH]


def model_digest(model: Module) -> str:
    """Return a hash of a model: the types of its modules, their options and its weights, but not its code."""
    return fingerprint(model, [], {})[:LENGTH]
