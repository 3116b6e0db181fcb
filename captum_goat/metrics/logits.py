"""Logits of classes, as metrics need them: probabilities are refused, and one logit is that of two classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from captum_goat.rules.registry import find

ROUNDING = 1e-5  # of sums of probabilities


def refuse_probabilities(
    output: Tensor, more: Callable[[], Tensor] | None = None, *, logarithms_too: bool = True
) -> None:
    """Raise a ValueError if a model returns probabilities of classes in place of logits.

    Args:
        output: The model's output ``[G, C]`` for two classes or more.
        more: Returns its output for other graphs. Called if the output looks like probabilities, which logits may do by
            chance.
        logarithms_too: Whether logarithms of probabilities are refused, too. They are logits that softmax does not
            change, but not those that explainers explain.
    """
    if _are_probabilities(output) and (more is None or _are_probabilities(more())):
        raise ValueError(
            "Expected logits (got probabilities: they are positive, and add up to 1). Return what goes into softmax."
        )
    if logarithms_too and _are_logarithms(output) and (more is None or _are_logarithms(more())):
        raise ValueError(
            "Expected logits (got logarithms of probabilities: their exponentials add up to 1). Return what goes into "
            "log_softmax."
        )


def refuse_squashed(*runs: Callable[[], Tensor]) -> None:
    """Raise a ValueError if the last step of a model of one output is a sigmoid.

    Unlike rows of probabilities, the result of a sigmoid may just as well be a logit: so the model is watched.

    Args:
        *runs: Run the model on different graphs, and return its output.
    """
    if all(_ends_squashed(run) for run in runs):
        raise ValueError(
            "Expected one logit per graph (got what a sigmoid or softmax returns). Return what goes into it."
        )


def of_two_classes(output: Tensor) -> Tensor:
    """Return logits ``[G, C]`` of two classes or more: one logit is that of class 1, beside 0 for class 0."""
    return torch.cat([torch.zeros_like(output), output], dim=1) if output.size(1) == 1 else output


def _are_probabilities(output: Tensor) -> bool:
    """Return whether rows are positive and add up to 1; rows of ones and zeros alone may well be logits."""
    return bool((output >= 0).all()) and bool((output % 1 > 0).any()) and _near(output.sum(dim=1), 1.0)


def _are_logarithms(output: Tensor) -> bool:
    return _near(output.logsumexp(dim=1), 0.0)


def _near(sums: Tensor, expected: float) -> bool:
    rounding = max(ROUNDING, 2.0 * torch.finfo(sums.dtype).eps)
    return torch.allclose(sums, torch.full_like(sums, expected), rtol=0.0, atol=rounding)


def _ends_squashed(run: Callable[[], Tensor]) -> bool:
    """Return whether an output is the result of a sigmoid or the like, or entries of it."""
    with _Squashed() as squashed:
        output = run()
    return any(bool(torch.isin(output, result).all()) for result in squashed.results)


class _Squashed(TorchFunctionMode):
    """Keeps the results of sigmoids and the like."""

    def __init__(self) -> None:
        super().__init__()
        self.results: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        rule = find(func)
        if rule is not None and rule.squashes:
            self.results.append(out)
        return out
