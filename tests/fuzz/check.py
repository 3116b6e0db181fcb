"""Compare the package with the referee on one case."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from captum_goat import EdgeMaskedModel, GOAtAttribution, UnsupportedModelError

from .case import Case, shapes
from .program import build_model, captum_target, failing_program, inputs_and_rest, tensors
from .referee import Referee, Undecided, Verdict

TOLERANCE = 1e-9


@dataclass
class Result:
    """How a case ended.

    Attributes:
        kind: "agreed", "undecided" (rounding decides), "refused" (by the package), or a failure: "attributions",
            "steps", "completeness", "masked output", "error".
        difference: The largest difference, relative to the numbers that were added up.
        message: Why, if it did not agree.
        program: Code that shows a failure, if numbers differ.
    """

    kind: str
    difference: float = 0.0
    message: str = ""
    program: str = ""

    @property
    def failed(self) -> bool:
        return self.kind not in ("agreed", "undecided", "refused")


def attributions(case: Case, model: torch.nn.Module) -> tuple[Tensor, ...]:
    """Return what the package says."""
    values, (inputs, rest) = tensors(case), inputs_and_rest(case)
    goat = GOAtAttribution(model, field=case.field, mask_type=case.mask_type)  # type: ignore[arg-type]
    given = tuple(values[name] for name in inputs)
    result = goat.attribute(
        given if len(given) > 1 else given[0], captum_target(case), tuple(values[name] for name in rest)
    )
    return result if isinstance(result, tuple) else (result,)


def has_steps(case: Case) -> bool:
    """Return whether the package gives attributions by message passing step."""
    return case.mask_type == "edge" and case.field == "distinct" and not case.many


def by_step(case: Case, model: torch.nn.Module) -> Tensor:
    """Return the package's attributions by message passing step."""
    values, (_, rest) = tensors(case), inputs_and_rest(case)
    arguments = tuple(values[name] for name in rest)
    return GOAtAttribution(model).attribute_layers(values["mask"], captum_target(case), arguments)


def masked_output(case: Case, model: torch.nn.Module) -> Tensor:
    """Return the output of the package's EdgeMaskedModel."""
    values = tensors(case)
    arguments = [values[name] for name in ("x", "edge_index", "edge_attr", "batch") if values.get(name) is not None]
    result: Tensor = EdgeMaskedModel(model)(values["mask"], *arguments)
    return result.detach()


def expected_output(case: Case, verdict: Verdict) -> Tensor:
    """Return the referee's output in the form of EdgeMaskedModel: rows of graphs are not kept apart by masks."""
    output = verdict.outputs.log_softmax(dim=-1) if case.log_probabilities else verdict.outputs
    return output if case.many and shapes(case)[-1].level == "node" else output.flatten(0, 1)


def check(case: Case, referee: type[Referee] = Referee) -> Result:
    """Compare attributions, completeness and masked outputs."""
    model = build_model(case)
    try:
        verdict = referee(case, dict(model.state_dict())).judge()
    except Undecided as reason:
        return Result("undecided", message=str(reason))
    parts, output = verdict.parts(case), expected_output(case, verdict)
    program = ""

    def difference(actual: Tensor, number: Tensor) -> float:
        if actual.numel() == number.numel() == 0:
            return 0.0
        return float((actual - number.view_as(actual)).abs().max()) / verdict.scale

    try:
        actual = attributions(case, model)
        masked = masked_output(case, model) if "edge" in case.attributed else output
        steps = by_step(case, model) if has_steps(case) else verdict.steps[0]
    except UnsupportedModelError as error:
        if verdict.divided_zeros and "do not add up" in str(error):
            return Result("undecided", message="a row that is 0 because numbers cancel is divided by its norm")
        return Result("refused", message=str(error))
    except Exception as error:  # whatever the package raises is a finding
        program = failing_program(case, parts, output)
        return Result("error", message=f"{type(error).__name__}: {error}", program=program)
    differences = {
        "masked output": difference(masked, output),
        "attributions": max(difference(a, number) for a, number in zip(actual, parts, strict=True)),
        "steps": difference(steps, verdict.steps[0]),
        "completeness": abs(sum(float(part.sum()) for part in actual) - sum(verdict.differences)) / verdict.scale,
    }
    worst = max(differences.values())
    for kind, size in differences.items():
        if not size <= TOLERANCE:
            program = failing_program(case, parts, output)
            return Result(kind, size, f"relative difference {size:.2e}", program)
    return Result("agreed", worst)
