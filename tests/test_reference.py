"""The reference: every public name is shown in an example that is run; the pages are built without a warning."""

from __future__ import annotations

import doctest
import inspect
import os
import subprocess
import sys
import zlib
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted((DOCS / "reference").glob("*.rst"))
MODULES = (
    "captum_goat",
    "captum_goat.bulk",
    "captum_goat.compare",
    "captum_goat.compare.explainers",
    "captum_goat.datasets",
    "captum_goat.metrics",
    "captum_goat.models",
    "captum_goat.nodes",
    "captum_goat.plot",
    "captum_goat.plot.captum_visualizers",
    "captum_goat.report",
    "captum_goat.rules",
)
NAMES = [f"{module}.{name}" for module in MODULES for name in import_module(module).__all__]
# Results and options, which the examples of functions show; fid- has one example with fid+.
SHOWN = {
    "Comparison": "compare",
    "ComparisonRow": "compare",
    "DatasetExplanations": "explain_dataset",
    "ExplainerSkippedError": "Explainer",
    "FidelityCurve": "fidelity_curve",
    "GraphAttributions": "load_attributions",
    "GraphClassifier": "train_model",
    "ModelCheck": "check",
    "NodeExplanations": "explain_nodes",
    "PictureOptions": "visualize_graph_attr",
    "SavedAttributions": "load_attributions",
    "TrainingResult": "train_model",
    "fidelity_minus": "fidelity_plus",
}
MISSING = [name for name in ("sphinx", "myst_nb", "furo") if find_spec(name) is None]


def run_examples(text: str) -> list[doctest.Example]:
    """Return the examples in a text, but for those that are not run."""
    examples = doctest.DocTestParser().get_examples(text)
    return [example for example in examples if not example.options.get(doctest.SKIP)]


def own_texts(value: Any) -> Iterator[str]:
    """Yield a value's docstring, and those of the public methods of a class."""
    yield value.__doc__ or ""
    if inspect.isclass(value):
        yield from (member.__doc__ or "" for name, member in vars(value).items() if not name.startswith("_"))


@pytest.mark.parametrize("path", NAMES)
def test_every_public_name_has_an_example(path: str) -> None:
    module, _, name = path.rpartition(".")
    value = getattr(import_module(module), SHOWN.get(name, name))
    if inspect.isclass(value) or inspect.isroutine(value) or inspect.ismodule(value):
        assert any(run_examples(text) for text in own_texts(value)), f"{path} has no example in its docstring"
    else:  # Data and names of types have no docstrings of their own.
        sources = [example.source for page in PAGES for example in run_examples(page.read_text(encoding="utf-8"))]
        imported = [source for source in sources if source.startswith(f"from {module} import ")]
        assert any(name in source for source in imported), f"{path} has no example on a page of docs/reference"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_examples_of_pages(page: Path) -> None:
    assert doctest.testfile(str(page), module_relative=False).failed == 0


@pytest.mark.slow
@pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}: pip install captum-goat[docs]")
def test_reference_is_built_without_warnings(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", str(DOCS), str(tmp_path)]
    built = subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    _, _, _, _, packed = (tmp_path / "objects.inv").read_bytes().split(b"\n", 4)
    documented = {line.split()[0] for line in zlib.decompress(packed).decode().splitlines()}
    assert set(NAMES) <= documented
