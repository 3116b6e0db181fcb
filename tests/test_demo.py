"""The example that ``make demo`` runs."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[1] / "examples" / "demo.py"


@pytest.mark.slow
def test_demo_prints_the_table_and_writes_the_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "a" / "b"
    main = runpy.run_path(str(DEMO))["main"]
    main(["--output", str(folder), "--graphs", "60", "--epochs", "2", "--seed", "1"])
    printed = capsys.readouterr().out
    assert re.search(r"test accuracy [01]\.\d{3} \(6 graphs\)", printed)
    for method in ("goat", "integrated_gradients"):
        assert len(re.findall(rf"^\| `{method}` ", printed, re.M)) == 2  # the fidelities, and the rest
    (error,) = re.findall(r"^\| `goat` .* \| +(\S+e-\d\d) \|", printed, re.M)
    assert float(error) < 1e-4
    assert f"Page:    {folder / 'report.html'}" in printed
    assert (folder / "report.html").stat().st_size > 20_000
    pictures = sorted(folder.glob("*.png"))
    assert pictures
    for picture in pictures:
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert picture.stat().st_size > 20_000
        assert str(picture) in printed
