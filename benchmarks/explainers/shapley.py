"""Guided Shapley values with several numbers of coalitions, of the logit and of the margin."""

from __future__ import annotations

from functools import partialmethod
from typing import Any

from captum_goat.compare.explainers import Explainer, GuidedShapleyValues


def _variant(n_samples: int, *, margin: bool) -> type[Explainer]:
    """Return the explainer with a number of coalitions, as a class with a name of its own."""
    label = f"{'margin_' if margin else ''}{n_samples}"
    attributes: dict[str, Any] = {"name": f"guided_shapley_{label}", "__doc__": GuidedShapleyValues.__doc__}
    attributes |= {"complete": not margin, "baseline": None if margin else "removed"}
    attributes["__init__"] = partialmethod(GuidedShapleyValues.__init__, n_samples, margin=margin)
    return type(f"GuidedShapley{label.title().replace('_', '')}", (GuidedShapleyValues,), attributes)


GUIDED_SHAPLEY: tuple[type[Explainer], ...] = tuple(
    _variant(n_samples, margin=False) for n_samples in (32, 64, 128, 256)
)
GUIDED_SHAPLEY_MARGIN: tuple[type[Explainer], ...] = tuple(_variant(n_samples, margin=True) for n_samples in (64, 256))
