"""The coverage of explanations over several seeds."""

from pathlib import Path

import pytest

from captum_goat.benchmark import seeds


def test_one_line_per_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "coverage.md"
    seeds.main(["--seeds", "1", "--epochs", "10", "--cache", str(tmp_path), "--out", str(page)])
    lines = [line for line in page.read_text().splitlines() if line.startswith("| ")]
    assert [line.split(" | ")[0] for line in lines[1:]] == ["| 0"]
    assert lines[1] in capsys.readouterr().out
    assert all(line.count(" / ") == 4 for line in lines[1:])
