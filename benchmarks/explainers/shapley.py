"""Guided Shapley values with several numbers of coalitions, of the logit and of the margin."""

from __future__ import annotations

from functools import partialmethod
from typing import cast

from captum_goat.compare.explainers.interface import Explainer
from captum_goat.compare.explainers.shapley import GuidedShapleyValues


def _variant(n_samples: int, *, margin: bool) -> type[Explainer]:
    """Return the explainer with a number of coalitions, as a class with a name of its own."""
    name = f"guided_shapley_{'margin_' if margin else ''}{n_samples}"
    make = partialmethod(GuidedShapleyValues.__init__, n_samples, margin=margin)
    attributes = {"name": name, "complete": not margin, "__init__": make, "__doc__": GuidedShapleyValues.__doc__}
    return cast(
        type[Explainer],
        type(f"GuidedShapley{'Margin' if margin else ''}{n_samples}", (GuidedShapleyValues,), attributes),
    )


GUIDED_SHAPLEY = tuple(_variant(n_samples, margin=False) for n_samples in (32, 64, 128, 256))
GUIDED_SHAPLEY_MARGIN = tuple(_variant(n_samples, margin=True) for n_samples in (64, 256))
