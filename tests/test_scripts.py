"""The scripts of docs/scripts.md: they run, write what the page says, and are short."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

PAGE = (Path(__file__).parents[1] / "docs" / "scripts.md").read_text(encoding="utf-8")
CHEMIST, ANALYST = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
pandas = pytest.importorskip("pandas")
pyplot = pytest.importorskip("matplotlib.pyplot")


def run(script: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    assert len([line for line in script.splitlines() if line.strip()]) <= 12
    monkeypatch.chdir(folder)
    torch.manual_seed(0)
    names: dict[str, Any] = {}
    exec(compile(script, "scripts.md", "exec"), names)
    pyplot.close("all")
    return names


@pytest.mark.slow
def test_molecules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("rdkit")
    names = run(CHEMIST, tmp_path, monkeypatch)
    assert (tmp_path / "aspirin.png").read_bytes().startswith(b"\x89PNG")
    table = pandas.read_csv(tmp_path / "bonds.csv")
    assert list(table.columns) == ["graph", "target_class", "smiles", "edge", "source", "target", "attribution"]
    for number, explanation in enumerate(names["explanations"]):
        bonds = table[table["graph"] == number]
        assert set(bonds["smiles"]) == {explanation.smiles}
        assert len(bonds) == explanation.num_edges // 2 == len(explanation.bond_scores)
        assert bonds["attribution"].sum() == pytest.approx(float(explanation.edge_mask.sum()), abs=1e-4)
    assert "source_name" in capsys.readouterr().out


@pytest.mark.slow
def test_accounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = run(ANALYST, tmp_path, monkeypatch)
    assert (tmp_path / "suspect.png").read_bytes().startswith(b"\x89PNG")
    top, everything = pandas.read_csv(tmp_path / "suspects.csv"), pandas.read_parquet(tmp_path / "suspects.parquet")
    assert set(everything["node"]) == set(names["suspects"].tolist())
    assert top.groupby("node").size().max() == 5
    ends = names["data"].edge_index[:, top["edge"].tolist()]
    assert (top["source"].tolist(), top["target"].tolist()) == (ends[0].tolist(), ends[1].tolist())
    assert top["source_name"].tolist() == [f"account {node}" for node in ends[0].tolist()]
