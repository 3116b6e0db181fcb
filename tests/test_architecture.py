"""The architecture page, the docstring of captum_goat.method: the files and functions it names, and the call path."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import pytest
import torch
from conftest import make_gnn, random_edges

import captum_goat
from captum_goat import EdgeSetSearch, GOAtAttribution, GuidedShapley, method

PACKAGE = Path(captum_goat.__file__).parent
STEPS = ("record", "replay", "share", "spread", "explain")


class Line(NamedTuple):
    """One line of a call path: how far it is indented, and the function."""

    indent: int
    name: str
    code: CodeType


def call_paths() -> list[list[Line]]:
    """Return the functions of each of the page's call paths."""
    paths: list[list[Line]] = []
    for line in inspect.getdoc(method).splitlines():  # type: ignore[union-attr]
        match = re.fullmatch(r"    ([\w/]+)\.py( +)([\w.]+)", line)
        if match is None:
            continue
        file, gap, name = match.groups()
        module: Any = importlib.import_module(f"captum_goat.{file.replace('/', '.')}")
        function = module
        for part in name.split("."):
            function = inspect.getattr_static(function, part)
        function = getattr(function, "__func__", function)
        if name == "GOAtAttribution.attribute":
            paths.append([])
        paths[-1].append(Line(len(file) + len(gap), f"{file}.py {name}", inspect.unwrap(function).__code__))
    return paths


def callers_seen(size: int, *, again: bool = False) -> dict[CodeType, set[CodeType]]:
    """Explain a graph, and return what was called, and under which functions."""
    seen: dict[CodeType, set[CodeType]] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and str(PACKAGE) in frame.f_code.co_filename:
            callers, above = seen.setdefault(frame.f_code, set()), frame.f_back
            while above is not None:
                callers.add(above.f_code)
                above = above.f_back

    model = make_gnn("gcn")
    goat, batch = GOAtAttribution(model), torch.arange(2).repeat_interleave(size // 2)
    x, edge_index = torch.randn(size, 4, dtype=torch.float64), random_edges(size // 2, 2 * size, seed=1)
    edges = torch.cat([edge_index, edge_index + size // 2], dim=1)
    arguments = torch.ones(edges.size(1), dtype=torch.float64), [0, 1], (x, edges, batch)
    for _ in range(2 if again else 0):  # followed, and compared with a plan of reach
        goat.attribute(*arguments)
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        goat.attribute(*arguments)
    finally:
        sys.setprofile(before)
    return seen


@pytest.mark.parametrize(("number", "size", "again"), [(0, 1200, False), (1, 10, False), (2, 10, True)])
@pytest.mark.slow
def test_the_call_path_is_what_is_called(number: int, size: int, again: bool) -> None:
    """Also the calls of one line by the line above it that is indented less."""
    path, seen = call_paths()[number], callers_seen(size, again=again)
    above: list[Line] = []
    for line in path:
        assert line.code in seen, f"{line.name} is not called"
        while above and above[-1].indent >= line.indent:
            above.pop()
        if above:
            assert above[-1].code in seen[line.code], f"{line.name} is not called by {above[-1].name}"
        above.append(line)


def test_all_paths_are_on_the_page() -> None:
    first, second, third = call_paths()
    assert len(first) > 25
    assert min(len(second), len(third)) > 5


def test_the_steps_of_the_method_are_five_short_files() -> None:
    files = {file.stem: len(file.read_text().splitlines()) for file in Path(PACKAGE / "method").glob("*.py")}
    del files["__init__"]
    assert sorted(files) == sorted(STEPS)
    assert sum(files.values()) < 1300


@pytest.mark.parametrize("method", [GOAtAttribution, EdgeSetSearch, GuidedShapley])
def test_a_constructor_does_not_run_the_model(method: Any) -> None:
    model, runs = make_gnn("gcn"), []
    model.register_forward_hook(lambda *_: runs.append(1))
    explainer = method(model)
    assert not runs
    graph = torch.randn(4, 4, dtype=torch.float64), random_edges(4, 6, seed=1)
    explainer.attribute(torch.ones(6, dtype=torch.float64), 0, graph)
    assert runs
