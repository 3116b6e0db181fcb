"""The README, run from top to bottom in one namespace, as a reader would."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Everything that the snippets define."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    found: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder := tmp_path_factory.mktemp("readme"))
        torch.manual_seed(0)
        for snippet in SNIPPETS:
            exec(compile(snippet, "README.md", "exec"), found)
        pyplot.close("all")
    return found | {"folder": folder}


@pytest.mark.slow
def test_snippets_give_what_the_text_says(names: dict[str, Any]) -> None:
    num_edges = names["data"].num_edges
    for name in ("attributions", "edge_attributions", "gradients", "smoothed"):
        assert names[name].shape == (num_edges,)
    assert names["x_attributions"].shape == names["data"].x.shape
    assert (names["folder"] / "explanation.png").read_bytes().startswith(b"\x89PNG")
    assert len(names["saved"]) == len(names["graphs"])
    assert (names["folder"] / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    model, data, attributions = names["model"], names["data"], names["attributions"]
    without = model(data.x, data.edge_index[:, :0], data.batch)
    lost = (model(data.x, data.edge_index, data.batch) - without)[0, 1]
    torch.testing.assert_close(attributions.sum(), lost.detach(), rtol=1e-4, atol=1e-5)


def test_the_first_attribution_takes_at_most_ten_lines() -> None:
    (code,) = [snippet for snippet in SNIPPETS if "explanation.png" in snippet]
    assert len([line for line in code.splitlines() if line.strip()]) <= 10


def test_a_page_takes_at_most_six_lines() -> None:
    (code,) = [snippet for snippet in SNIPPETS if "report.html" in snippet]
    assert len([line for line in code.splitlines() if line.strip()]) <= 6


def test_files_that_are_linked_exist() -> None:
    links = re.findall(r"\]\(([^)#]+)\)|src=\"([^\"]+)\"", README)
    missing = [link for pair in links for link in pair if link and not (ROOT / link).exists()]
    assert not missing


def test_it_is_short() -> None:
    assert len(README.splitlines()) <= 280
