"""What is installed: the package, and neither benchmarks nor tests."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[1]
MAX_LINES = 19_600

pytest.importorskip("hatchling", reason="builds the wheel: pip install captum-goat[test]")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The text files of the wheel by their names."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    (path,) = folder.glob("*.whl")
    with ZipFile(path) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


@pytest.mark.slow
def test_wheel_has_the_package_only(wheel: dict[str, str]) -> None:
    assert {name.partition("/")[0].partition("-")[0] for name in wheel} == {"captum_goat"}  # and its dist-info
    assert "captum_goat/py.typed" in wheel
    assert {f"captum_goat/report/page.{suffix}" for suffix in ("css", "html", "js")} <= wheel.keys()
    modules = [name for name in wheel if name.endswith(".py")]
    assert "captum_goat/compare/run.py" in modules
    for word in ("benchmark", "compat", "paper", "tests"):
        assert not [name for name in modules if word in name]
    assert not [name for name in modules if re.search(r"^\s*(from|import) benchmarks", wheel[name], re.M)]


@pytest.mark.slow
def test_wheel_is_small(wheel: dict[str, str]) -> None:
    assert sum(text.count("\n") for name, text in wheel.items() if name.endswith(".py")) <= MAX_LINES


@pytest.mark.slow
def test_root_of_the_package_has_eight_modules_at_most(wheel: dict[str, str]) -> None:
    assert len([name for name in wheel if re.fullmatch(r"captum_goat/\w+\.py", name)]) <= 8
