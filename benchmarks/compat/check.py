"""Check one model: is it explained exactly, refused, or neither?"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from benchmarks.compat import frozen
from benchmarks.compat.graphs import Example, examples
from benchmarks.compat.networks import randomize
from captum_goat import EdgeMaskedModel, GOAtAttribution, MadeEdges, UnsupportedModelError

EXACT, REFUSED, NOT_HERE, WRONG = "exact", "refused", "not here", "WRONG"
# Exact, but the output is the same with and without edges.
_UNMOVED = "unmoved"
# How far the sum of the attributions may be from the difference of the outputs, relative to these.
TOLERANCE = 1e-6


class Case(NamedTuple):
    """A model to check.

    Attributes:
        section: The table in which it stands.
        name: The class that is tried out.
        variant: Its options; empty for the defaults.
        build: Makes the model.
        family: The family of examples it is tried on.
        makes: Whether the model makes edges itself, which are explained beside those that it is given.
    """

    section: str
    name: str
    variant: str
    build: Callable[[], nn.Module]
    family: str = "graphs"
    makes: bool = False

    @property
    def key(self) -> tuple[str, str, str]:
        """Section, name and variant, which identify the case."""
        return self.section, self.name, self.variant


class Result(NamedTuple):
    """The status of a case, and why.

    Attributes:
        status: One of ``EXACT``, ``REFUSED``, ``NOT_HERE``, ``WRONG``.
        detail: Why.
    """

    status: str
    detail: str = ""


class NotHere(Exception):  # noqa: N818
    """The class cannot be checked here, for example because it is no model of graphs."""


def check(case: Case, *, describe: bool = False) -> Result:
    """Build the model of a case, with random weights in double precision, and explain all of its examples.

    Args:
        case: The case.
        describe: Whether to say of an exact one what was frozen.
    """
    with _surroundings():
        try:
            model, given = case.build(), examples(case.family)
            _forward(model, given[0])  # lazy layers find their sizes
            randomize(model.eval())
            _clear_caches(model)  # of other weights
            if case.makes:
                model = MadeEdges(model)
                given = [example.with_made(*model.edges(*example.args)) for example in given]
            outputs = [_forward(model, example) for example in given]
        except Exception as error:
            return Result(NOT_HERE, str(error) if isinstance(error, NotHere) else _describe(error))
        if not all(bool(output.isfinite().all()) for output in outputs):
            return Result(NOT_HERE, "the output is not finite")
        results = [_explain(model, example) for example in given]
        what = frozen.describe(model, given[-1]) if describe and results[-1].status == EXACT else ""
    if all(result.status == _UNMOVED for result in results):
        return Result(WRONG, "the edges change nothing, so that nothing was tried")
    by_status = {result.status: result for result in reversed(results)}
    decisive = next(by_status[status] for status in (WRONG, REFUSED, EXACT) if status in by_status)
    return decisive._replace(detail=what) if decisive.status == EXACT else decisive


def _clear_caches(model: nn.Module) -> None:
    for module in model.modules():
        for name in [name for name in vars(module) if name.startswith("_cached")]:
            setattr(module, name, None)


def _forward(model: nn.Module, example: Example) -> Tensor:
    arguments = example.args if example.edges else (*example.inputs, *example.args)
    with torch.no_grad():
        output: Tensor = model(*arguments)
    return output


def _explain(model: nn.Module, example: Example) -> Result:
    """Explain one example, and compare with the outputs at the two ends."""
    inputs = example.inputs if len(example.inputs) > 1 else example.inputs[0]
    try:
        output = _forward(model, example)
        target = 1 if output.size(1) > 1 else 0
        attributions = GOAtAttribution(model).attribute(inputs, target=target, additional_forward_args=example.args)
    except UnsupportedModelError as error:
        return Result(REFUSED, first_sentence(str(error)))
    except Exception as error:
        return Result(WRONG, _describe(error))
    zeros = tuple(torch.zeros_like(mask) for mask in example.inputs)
    try:
        end, start = (_masked(model, masks, example)[:, target] for masks in (example.inputs, zeros))
    except Exception as error:
        return Result(WRONG, f"with edges masked: {_describe(error)}")
    sums = torch.zeros_like(end)
    for scores, owner in zip(
        attributions if isinstance(attributions, tuple) else (attributions,), example.owners, strict=True
    ):
        sums.index_add_(0, owner, scores.flatten(1).sum(dim=1) if scores.dim() > 1 else scores)
    delta = (sums - (end - start)).abs()
    if (end - output[:, target]).abs().max() > TOLERANCE:
        return Result(WRONG, "a mask of ones changes the output")
    if not bool((delta <= TOLERANCE * (end.abs() + start.abs()).clamp(min=1.0)).all()):
        return Result(WRONG, f"the sum is off by {float(delta.max()):.2g}")
    return Result(EXACT if (end - start).abs().max() > TOLERANCE else _UNMOVED)


def _masked(model: nn.Module, inputs: tuple[Tensor, ...], example: Example) -> Tensor:
    with torch.no_grad():
        if not example.edges:
            return _forward(model, example._replace(inputs=inputs))
        return EdgeMaskedModel(model)(*inputs, *example.args)  # type: ignore[no-any-return]


@contextmanager
def _surroundings() -> Iterator[None]:
    """Set double precision, silence warnings, and restore the global random state afterwards."""
    before = torch.get_default_dtype()
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(before)


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {first_sentence(str(error))}"


def first_sentence(text: str) -> str:
    """Return a text up to the end of its first sentence, on one line."""
    line = " ".join(text.split())
    end = line.find(". ")
    return line[: end + 1] if end >= 0 else line
