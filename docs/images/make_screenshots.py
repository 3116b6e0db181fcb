"""Take the screenshots of a report in this folder again: ``report.png`` (light) and ``report_dark.png``.

Run ``python docs/images/make_screenshots.py --data FOLDER``, where the folder has ``Mutagenicity.tar.xz`` or its raw
files. It takes some minutes, and needs the extra ``test`` and Chromium. The molecules are the first 60 of the test set;
the one that is shown is chosen as in ``make_pictures.py``.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from make_pictures import LEAST_PROBABILITY, MUTAGEN, class_probabilities, has_nitro_group
from PIL import Image
from playwright.sync_api import sync_playwright
from torch_geometric.data import Data

from benchmarks.datasets import load
from benchmarks.paper_models import Settings, train_paper_model
from captum_goat import GuidedShapley, explain_dataset
from captum_goat.models import GraphClassifier
from captum_goat.plot import one_hot_atoms
from captum_goat.report import write_report

FOLDER = Path(__file__).parent
COUNT = 60


def report(model: GraphClassifier, graphs: list[Data], path: Path, accuracy: float) -> int:
    """Write the page, and return the position of the molecule that is shown."""
    methods = {"GOAt": model, "Guided Shapley values": GuidedShapley(model, n_samples=64)}
    write_report(
        path,
        {name: explain_dataset(method, graphs, show_progress=False) for name, method in methods.items()},
        model=model,
        title="What makes a molecule mutagenic?",
        class_names=["mutagen", "nonmutagen"],
        atoms=lambda graph: one_hot_atoms(graph.x),
        bond_types=lambda graph: graph.edge_attr,
        details={"Data": "Mutagenicity, test set", "Test accuracy": f"{accuracy:.2f}"},
    )
    suits = (
        int(graph.y) == MUTAGEN
        and has_nitro_group(graph)
        and class_probabilities(model, graph)[MUTAGEN] > LEAST_PROBABILITY
        for graph in graphs
    )
    return list(suits).index(True)


def take(page: Path, position: int, name: str, scheme: str) -> None:
    """Save a screenshot with a third of the edges kept."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1300, "height": 1040}, color_scheme=scheme)
        tab.goto(page.as_uri())
        tab.locator(".cg-gallery button").nth(position).click()
        tab.locator(".cg-slider").fill(str(int(tab.locator(".cg-slider").get_attribute("max")) // 3))
        tab.wait_for_timeout(500)
        tab.screenshot(path=FOLDER / name)
        browser.close()
    with Image.open(FOLDER / name) as image:
        image.convert("RGB").quantize(256).save(FOLDER / name, optimize=True)


def main() -> None:
    """Train, explain, write the page, and take both screenshots."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with Mutagenicity")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as space:
        dataset = load("mutagenicity", options.data, unpack_to=Path(space))
        model, result = train_paper_model(dataset, "gin", settings=Settings(epochs=40, lr=0.002, hidden_channels=64))
        test = [dataset.graphs[index] for index in sorted(result.split.test.tolist())][:COUNT]
        page = Path(space) / "report.html"
        position = report(model, test, page, result.test_accuracy)
        print(f"Page: {page.stat().st_size / 1e3:.0f} kB, molecule {position}")
        take(page, position, "report.png", "light")
        take(page, position, "report_dark.png", "dark")


if __name__ == "__main__":
    sys.exit(main())
