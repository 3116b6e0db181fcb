"""Name the operations of a model at which GOAt freezes numbers."""

from __future__ import annotations

from torch import nn

from benchmarks.compat.graphs import Example
from captum_goat.inputs.targets import Choice
from captum_goat.method.explain import recorded_explanations
from captum_goat.rules.registry import Factors
from captum_goat.wrapped_model import ExplainedModel


def describe(model: nn.Module, example: Example) -> str:
    """Return which activations are gates, and which other operations have frozen factors."""
    inputs = example.inputs if len(example.inputs) > 1 else example.inputs[0]
    request = ExplainedModel.of(model).request(inputs, example.args)
    gates, frozen = set[str](), set[str]()
    for call in filter(None, recorded_explanations(request, Choice([0]))[0].pattern.calls):
        for kept in call.kept:
            if kept is not None:
                is_gate = isinstance(kept, Factors) and kept.gates
                (gates if is_gate else frozen).add(call.operation.strip("_").lower())
    parts = [
        f"{what} {', '.join(sorted(operations))}"
        for what, operations in (("gates:", gates), ("frozen:", frozen))
        if operations
    ]
    return "; ".join(parts) or "linear"
