"""The tutorials run from a clean kernel, and what is stored in them is what they do."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat")
pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
pytest.importorskip("matplotlib")

FOLDER = Path(__file__).parents[1] / "tutorials"
TUTORIALS = sorted(FOLDER.glob("*.ipynb"))
NEEDS = {"03_molecules": "rdkit", "06_whole_data_sets": "pyarrow"}
DATA = "CAPTUM_GOAT_DATA"  # the folder of datasets that do not come with the package
TIMEOUT = 180  # seconds
LARGEST = 400_000  # bytes
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w])")
# Training carries rounding errors of other processors along, in double precision not far.
CLOSE: dict[str, Any] = {"rel": 0.01, "abs": 0.011}

by_name = pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def tags(cell: Any) -> list[str]:
    return list(cell.metadata.get("tags", []))


def kinds(cell: Any) -> list[Any]:
    """What a cell has put out: the names of streams, and the types of what is displayed."""
    return [output.get("name") or sorted(output.data) for output in cell.outputs]


def printed(cell: Any) -> str:
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")


def words_and_numbers(text: str) -> tuple[list[str], list[float]]:
    """Split a text into what has to be the same, but for spaces, and what has to be close."""
    return NUMBER.sub("#", text).split(), [float(number) for number in NUMBER.findall(text)]


def executed(path: Path, home: Path) -> Any:
    """Run a tutorial with this Python, and return it with its new outputs."""
    from jupyter_client.kernelspec import KernelSpecManager
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient

    kernel = {"argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]}
    kernel_file = home / "kernels" / "this_python" / "kernel.json"
    kernel_file.parent.mkdir(parents=True)
    kernel_file.write_text(json.dumps({**kernel, "display_name": "this Python", "language": "python"}))
    manager = AsyncKernelManager(
        kernel_name="this_python",
        kernel_spec_manager=KernelSpecManager(kernel_dirs=[str(home / "kernels")]),
        connection_file=str(home / "connection.json"),
        transport="ipc",  # sockets in the file system: nobody else can listen, and nothing warns that somebody could
        ip=str(home / "k"),
    )
    notebook = read(path)
    for cell in code_cells(notebook):
        cell.outputs, cell.execution_count = [], None
    client = NotebookClient(
        notebook,
        km=manager,
        timeout=TIMEOUT,
        coalesce_streams=True,
        record_timing=False,
        resources={"metadata": {"path": str(FOLDER)}},
    )
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(FOLDER.parent), os.environ.get("PYTHONPATH", "")]),  # benchmarks
        "IPYTHONDIR": str(home / "ipython"),
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "PYTHONWARNINGS": "ignore:IProgress not found",  # tqdm's, where ipywidgets are not installed
    }
    client.execute(cleanup_kc=True, env=environment)
    return notebook


def test_there_are_tutorials() -> None:
    assert [path.stem[:2] for path in TUTORIALS] == ["01", "02", "03", "04", "05", "06"]
    listed = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert all(path.name in listed for path in TUTORIALS)


@by_name
def test_stored_outputs(path: Path) -> None:
    notebook, text = read(path), path.read_text(encoding="utf-8")
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    for cell in cells:
        assert "print(" not in cell.source or "def " in cell.source or cell.outputs, cell.source
        assert all(kind != "stderr" for kind in kinds(cell)), cell.source
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", printed(cell)), cell.source
    assert len(text) < LARGEST
    for volatile in ("/home/", "/root/", "/tmp/", "/work/", "site-packages", "http", '"execution": {'):
        assert volatile not in text


@pytest.mark.slow
@by_name
def test_tutorial_runs(path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    if path.stem in NEEDS:
        pytest.importorskip(NEEDS[path.stem])
    stored, rerun = read(path), executed(path, tmp_path_factory.mktemp("k"))  # paths of sockets have to be short
    for before, now in zip(code_cells(stored), code_cells(rerun), strict=True):
        if "needs-data" in tags(before) and DATA not in os.environ:
            continue
        assert kinds(now) == kinds(before), now.source
        if "check" in tags(before):
            (words, numbers), (new_words, new_numbers) = (words_and_numbers(printed(cell)) for cell in (before, now))
            assert new_words == words, now.source
            assert new_numbers == pytest.approx(numbers, **CLOSE), now.source


@pytest.mark.parametrize(
    ("text", "words", "numbers"),
    [
        ("AUC 0.97, -1.5e-3 of 20 %", ["AUC", "#,", "#", "of", "#", "%"], [0.97, -0.0015, 20.0]),
        ("GOAt  x=[25, 10] c1ccsc1Br", ["GOAt", "x=[#,", "#]", "c1ccsc1Br"], [25.0, 10.0]),
        ("(20, 24)   0.575 motif\n", ["(#,", "#)", "#", "motif"], [20.0, 24.0, 0.575]),
    ],
)
def test_numbers_are_told_from_words(text: str, words: list[str], numbers: list[float]) -> None:
    assert words_and_numbers(text) == (words, numbers)
