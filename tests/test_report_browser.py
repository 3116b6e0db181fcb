"""The HTML page in a browser: headless Chromium, offline. Skipped with a message where there is none."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from browser import OpenPage, chromium
from torch_geometric.data import Data
from torch_geometric.explain import Explanation
from torch_geometric.utils import barabasi_albert_graph, from_smiles

from captum_goat import explain_dataset
from captum_goat.datasets import ba_2motifs
from captum_goat.models import GraphClassifier
from captum_goat.report import write_report

pytest.importorskip("networkx")
NASTY = "</script><script>alert(1)</script><img src=x onerror=alert(2)> \"'& ünï 漢"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def explanations() -> list[Explanation]:
    torch.manual_seed(0)
    model = GraphClassifier("gin", in_channels=10, hidden_channels=8, num_classes=2).eval()
    explained: list[Explanation] = explain_dataset(model, ba_2motifs(4), target="all", show_progress=False)
    return explained


def number(text: str) -> float:
    return float(text.replace("\u2212", "-").rstrip(" %"))


def scores(page: Any) -> list[float]:
    return [number(text) for text in page.locator(".cg-score").all_inner_texts()]


def merged(explanation: Explanation, column: int) -> dict[tuple[int, int], float]:
    """Return the sums over both directions of every edge."""
    sums: dict[tuple[int, int], float] = {}
    for edge, score in zip(explanation.edge_index.t().tolist(), explanation.edge_mask[:, column].tolist(), strict=True):
        pair = (min(edge), max(edge))
        sums[pair] = sums.get(pair, 0.0) + score
    return sums


def test_numbers_slider_and_classes(browser: Any, explanations: list[Explanation], tmp_path: Path) -> None:
    path = write_report(tmp_path / "page.html", explanations, class_names=["cycle", "house"])
    opened = OpenPage(browser, path)
    page, first = opened.page, explanations[0]
    predicted = int(first.prediction.argmax())
    for column in (predicted, 1 - predicted):
        page.get_by_label("Class", exact=True).select_option(str(column))
        expected = merged(first, column)
        rows = [row.split("\t") for row in page.locator("tbody tr").all_inner_texts()]
        assert len(rows) == len(expected)
        for row in rows:
            digits = len(row[3].strip().partition(".")[2])
            assert number(row[3].strip()) == pytest.approx(expected[int(row[1]), int(row[2])], abs=0.51 * 10**-digits)
        strongest = sorted(expected.values(), key=abs, reverse=True)
        for kept in (3, 0, len(expected)):
            page.locator(".cg-slider").fill(str(kept))
            text = page.locator(".cg-kept").inner_text()
            shown = re.fullmatch(r"Kept edges: (\S+) of (\S+) \((\d+) of (\d+) edges\)", text)
            assert shown is not None
            assert (int(shown[3]), int(shown[4])) == (kept, len(expected))
            assert number(shown[1]) == pytest.approx(sum(strongest[:kept]), abs=0.51 * 10**-digits)
            assert number(shown[2]) == pytest.approx(sum(strongest), abs=0.51 * 10**-digits)
            assert page.locator(".cg-canvas .off").count() == len(expected) - kept
    assert "f(graph) \u2212 f(no edges)" in page.locator(".cg-side").inner_text()
    opened.close(path)


def test_sorting_filtering_linking_and_csv(browser: Any, explanations: list[Explanation], tmp_path: Path) -> None:
    path = write_report(tmp_path / "page.html", explanations[0])
    opened = OpenPage(browser, path)
    page = opened.page
    page.get_by_role("button", name="Score").click()
    assert scores(page) == sorted(scores(page), reverse=True)
    page.get_by_role("button", name="Score").click()
    assert scores(page) == sorted(scores(page))
    assert page.locator("th[aria-sort=ascending]").inner_text().startswith("Score")
    page.locator("tbody tr").nth(2).click()
    edge = page.locator("tbody tr[aria-selected=true]").get_attribute("data-row")
    assert page.locator(".cg-canvas .selected").get_attribute("data-e") == edge
    page.locator(f'.cg-canvas [data-e="{edge}"] .hit').dispatch_event("click")
    assert page.locator(".selected").count() == 0
    page.locator('.cg-canvas [data-e="5"] .hit').dispatch_event("pointermove")
    assert page.locator("tbody tr.hover").get_attribute("data-row") == "5"
    page.locator("tbody tr").first.focus()  # by keyboard
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.locator("tbody tr").nth(1).get_attribute("aria-selected") == "true"
    page.get_by_placeholder("node or label").fill("24")
    count = int((explanations[0].edge_index == 24).any(dim=0).sum()) // 2
    assert page.locator("tbody tr").count() == count
    with page.expect_download() as download:
        page.get_by_role("button", name="Save CSV").click()
    rows = list(csv.DictReader(Path(download.value.path()).read_text().splitlines()))
    column = int(explanations[0].prediction.argmax())
    expected = merged(explanations[0], column)
    assert len(rows) == count
    for row in rows:
        assert float(row["score"]) == pytest.approx(expected[int(row["source"]), int(row["target"])], abs=1e-7)
    before = page.locator(".cg-canvas svg").get_attribute("viewBox")
    page.get_by_role("button", name="Zoom in").click()
    zoomed = page.locator(".cg-canvas svg").get_attribute("viewBox")
    assert float(zoomed.split()[2]) < float(before.split()[2])
    page.locator(".cg-canvas").press("0")
    assert page.locator(".cg-canvas svg").get_attribute("viewBox") == before
    opened.close(path)


@pytest.mark.slow
def test_gallery_draws_what_is_shown(browser: Any, explanations: list[Explanation], tmp_path: Path) -> None:
    many = explanations * 10
    path = write_report(tmp_path / "page.html", many, graph_names=[f"no. {number}" for number in range(40)])
    opened = OpenPage(browser, path)
    page = opened.page
    page.wait_for_selector(".cg-thumbnail svg")
    assert 2 <= page.locator(".cg-gallery svg").count() < 20
    page.get_by_placeholder("name or class").fill("no. 37")
    card = page.locator(".cg-gallery button:not([hidden])")
    assert card.count() == 1
    card.click()
    assert page.locator(".cg-figure h2").inner_text() == "no. 37"
    assert len(scores(page)) == many[37].num_edges // 2
    opened.close(path)


def test_names_are_shown_and_never_run(browser: Any, tmp_path: Path) -> None:
    edges = torch.tensor([[0, 1], [1, 2]])
    nasty = Explanation(
        edge_index=edges, edge_mask=torch.tensor([1.0, -2.0]), num_nodes=3, prediction=torch.zeros(1, 2)
    )
    names: dict[str, Any] = {"node_labels": [NASTY] * 3, "graph_names": [NASTY] * 2, "class_names": [NASTY] * 2}
    path = write_report(
        tmp_path / "page.html", {NASTY: [nasty] * 2, "b": [nasty] * 2}, title=NASTY, details={NASTY: NASTY}, **names
    )
    opened = OpenPage(browser, path)
    for place in ("h1", ".cg-figure h2", ".cg-class", ".cg-canvas text", "tbody tr", "dd", "option", ".cg-name"):
        assert NASTY in " ".join(opened.page.locator(place).all_text_contents()), place
    assert opened.page.title() == NASTY
    assert opened.page.locator("img").count() == 0
    opened.close(path)


@pytest.mark.slow
def test_large_graph_paints_soon(browser: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    large = Data(edge_index=barabasi_albert_graph(5000, 2), num_nodes=5000)
    mask = torch.randn(large.num_edges)
    path = write_report(tmp_path / "large.html", Explanation(edge_mask=mask, **large.to_dict()))
    assert path.stat().st_size < 5e6
    opened = OpenPage(browser, path)
    paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
    assert opened.page.evaluate(paint) < 2000
    assert opened.page.locator("tbody tr").count() == 200
    assert 100 < opened.page.locator(".cg-canvas [data-e]").count() <= 500
    assert "strongest" in opened.page.locator(".cg-tip").inner_text()
    opened.page.locator(".cg-slider").fill("7")
    assert opened.page.locator(".cg-canvas .pos, .cg-canvas .neg").count() == 7
    opened.close(path)


@pytest.mark.slow
def test_pages_of_molecules_are_small(browser: Any, tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    names = [
        "CN1C=NC2=C1C(=O)N(C(=O)N2C)C",
        "CC(=O)Oc1ccccc1C(=O)O",
        "O=[N+]([O-])c1ccc2c(c1)cccc2",
        "C#CCN(C)C1CCCC1Cl",
    ]
    molecules = [from_smiles(name) for name in names * 50]
    explained = [Explanation(edge_mask=torch.randn(molecule.num_edges), **molecule.to_dict()) for molecule in molecules]
    assert write_report(tmp_path / "one.html", explained[0]).stat().st_size < 200e3
    path = write_report(tmp_path / "many.html", explained)
    assert path.stat().st_size < 10e6
    opened = OpenPage(browser, path)
    assert opened.page.locator(".cg-figure h2").inner_text() == names[0]
    assert opened.page.locator(".cg-canvas .band").count() == molecules[0].num_edges // 2
    opened.close(path)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.slow
def test_colours_in_light_and_dark(browser: Any, scheme: str, tmp_path: Path) -> None:
    edges, values = torch.tensor([[0, 1, 2], [1, 2, 3]]), torch.tensor([1.0, -1.0, 0.0])
    path = write_report(tmp_path / "page.html", Explanation(edge_index=edges, edge_mask=values, num_nodes=4))
    opened = OpenPage(browser, path, color_scheme=scheme)
    read = "(node) => getComputedStyle(node).stroke"
    colours = [opened.page.locator(f'[data-e="{edge}"] .line').evaluate(read) for edge in range(3)]
    assert len({*colours}) == 3
    ink, paper = (
        opened.page.evaluate(f"getComputedStyle(document.querySelector('.cg-root')).{name}")
        for name in ("color", "backgroundColor")
    )
    brightness = [sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in (ink, paper)]
    assert (brightness[0] < brightness[1]) == (scheme == "light")
    opened.page.emulate_media(media="print")
    assert not opened.page.locator(".cg-zoom").is_visible()
    assert opened.page.locator("table").is_visible()
    opened.close(path)
