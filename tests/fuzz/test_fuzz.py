"""A few hundred random cases in every run; and the fuzzer itself, which must find mistakes and show them as code."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from types import ModuleType

import pytest
import torch
from conftest import slow_unless
from torch import Tensor, nn

from captum_goat import EdgeMaskedModel

from .case import EXTENDED, KINDS, Case, validate
from .check import TOLERANCE, attributions, check, expected_output
from .draw import draw_case, draw_extended_case
from .fields import Entry
from .program import build_model, failing_program
from .referee import Element, Referee
from .run import main, report_failure, traits
from .shrink import shrink

CHUNKS, SIZE = 6, 30


@pytest.mark.parametrize("draw", [draw_case, draw_extended_case])
@pytest.mark.parametrize("chunk", slow_unless(lambda chunk: chunk < 1, range(CHUNKS)))
def test_the_package_agrees_with_the_referee(chunk: int, draw: Callable[[int, int], Case]) -> None:
    agreed = 0
    for number in range(chunk * SIZE, (chunk + 1) * SIZE):
        case = draw(0, number)
        result = check(case)
        if result.failed:
            report_failure(0, number, case, result)
        assert result.kind in ("agreed", "undecided"), f"case {number}: {result.kind}: {result.message}"
        agreed += result.kind == "agreed"
    assert agreed > 0.9 * SIZE


@pytest.mark.slow
def test_the_cases_are_of_all_kinds() -> None:
    """Guard: every operation and option occurs among the cases above, and most attributions are not 0."""
    cases = [draw_case(0, number) for number in range(CHUNKS * SIZE)]
    counts = Counter(name for case in cases for name in traits(case))
    assert all(any(name.startswith(kind) for name in counts) for kind in KINDS)
    for name in (
        "activation in place", "own target_to_source", "gcn target_to_source", "sage max", "pool max", "reused layer",
        "no edges", "[B, E] masks", "batch of graphs", "self-loops", "duplicates", "field repeated",
        "mask_type node", "mask_type node_and_edge", "broadcast", "mul", "gat", "layer_norm", "maximum",
    ):  # fmt: skip
        assert counts[name] >= 3, name
    assert any(0.0 in mask and min(mask) < 0 for case in cases for mask in case.masks if mask)
    assert any(len(case.x) == 1 for case in cases)
    assert draw_case(0, 7) == cases[7] != draw_case(1, 7)
    extended = Counter(name for number in range(100) for name in traits(draw_extended_case(0, number)))
    assert all(any(name.startswith(kind) for name in extended) for kind in EXTENDED)
    for name in ("edge_attr", "edge_and_edge_attr", "node_and_edge_attr", "node_and_edge_and_edge_attr"):
        assert extended[f"mask_type {name}"] >= 3, name
    explained = [attributions(case, build_model(case)) for case in cases[:40] if case.edges]
    assert sum(any(bool(part.any()) for part in parts) for parts in explained) > len(explained) / 2


class WithoutCalibration(Referee):
    """A wrong reading: what gates do without edges is not subtracted."""

    def shares(
        self, x: Tensor, mask: Tensor, attributes: Tensor, places: list[tuple[int, int]]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        output, *shares = super().shares(x, mask, attributes, places)
        of_x, of_edges, of_attributes = shares if mask.any() else (0 * share for share in shares)
        return output, of_x, of_edges, of_attributes


class EveryEdgeShares(Referee):
    """A wrong reading: a gate that is reached by some edge is shared among all edges of the batch."""

    def sharers_of(self, entry: Entry) -> Counter[Element]:
        sharers = super().sharers_of(entry)
        edges: list[Element] = [("edge", e) for e in range(len(self.case.edges))]
        return sharers | Counter(edges) if self.with_edges and sharers else sharers


class HopsAreNotCounted(Referee):
    """A wrong reading: field="repeated" is as "distinct"."""

    def sharers_of(self, entry: Entry) -> Counter[Element]:
        return Counter(dict.fromkeys(super().sharers_of(entry), 1))


def run(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a printed program as a module, where PyG looks up the annotations of layers."""
    module = ModuleType("program")
    monkeypatch.setitem(sys.modules, "program", module)
    exec(compile(program, "<program>", "exec"), vars(module))


def first_failure(referee: type[Referee], seed: int) -> Case:
    cases = (draw_case(seed, number) for number in range(50))
    return next(case for case in cases if check(case, referee).failed)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("referee", "seed"),  # seeds that fail early, to be quick
    [(WithoutCalibration, 40), (EveryEdgeShares, 40), (HopsAreNotCounted, 55)],
)
def test_a_wrong_reading_is_found_and_shrunk(
    referee: type[Referee], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = shrink(first_failure(referee, seed), lambda case: check(case, referee).failed, attempts=80)
    validate(small)
    assert len(small.ops) <= 4
    assert len(small.edges) <= 4
    assert not check(small).failed, "the package is right"
    result = check(small, referee)
    assert result.difference > TOLERANCE
    with pytest.raises(AssertionError, match="Tensor-likes are not close"):
        run(result.program, monkeypatch)


@pytest.mark.slow
def test_a_defect_of_the_package_is_found_and_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    forward = EdgeMaskedModel.forward

    def ignoring_signs(self: nn.Module, edge_mask: Tensor, *args: Tensor) -> Tensor:
        return forward(self, edge_mask.abs(), *args)  # type: ignore[arg-type]

    monkeypatch.setattr(EdgeMaskedModel, "forward", ignoring_signs)
    assert main(["--cases", "2", "--seed", "3"]) == 1
    printed = capsys.readouterr().out
    assert "masked output: relative difference" in printed
    program = printed[printed.index("import zlib") : printed.index("# as data:")]
    with pytest.raises(AssertionError, match="Tensor-likes are not close"):
        run(program, monkeypatch)
    monkeypatch.undo()
    run(program, monkeypatch)


@pytest.mark.slow
def test_programs_are_the_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program of a case that agrees runs without a complaint."""
    kinds: set[str] = set()
    for case in (draw(8, number) for draw in (draw_case, draw_extended_case) for number in range(8)):
        if check(case).kind == "agreed":
            verdict = Referee(case, dict(build_model(case).state_dict())).judge()
            program = failing_program(case, verdict.parts(case), expected_output(case, verdict))
            run(program, monkeypatch)
            kinds |= traits(case)
    assert kinds >= {"batch of graphs", "[B, E] masks", "mask_type node", "mask_type node_and_edge"}
    assert torch.is_grad_enabled()
