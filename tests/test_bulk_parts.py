"""Runs that are interrupted and go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from bulk_models import numbered_graphs, watched_model
from torch_geometric.data import Data

from captum_goat.bulk import explain_dataset

NUM_GRAPHS, BATCH_SIZE = 22, 4
FIRSTS = [0, 4, 8, 12, 16, 20]  # the first graphs of the batches


@pytest.fixture(scope="module")
def graphs() -> list[Data]:
    return numbered_graphs(NUM_GRAPHS)


def explain(graphs: list[Data], path: Path, seed: int = 40, **options: Any) -> Any:
    given = {"batch_size": BATCH_SIZE, "progress": False, "out": path} | options
    return explain_dataset(watched_model(seed), graphs, **given)


@pytest.fixture
def interrupted(graphs: list[Data], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file whose run was interrupted at the fourth batch; from now on the model keeps a log."""
    path = tmp_path / "attributions.pt"
    with monkeypatch.context() as patch:
        patch.setenv("WATCHED_RAISE", str(FIRSTS[3]))
        with pytest.raises(KeyboardInterrupt):
            explain(graphs, path)
    assert not path.exists()
    monkeypatch.setenv("WATCHED_LOG", str(tmp_path / "log.txt"))
    return path


def parts_of(path: Path) -> list[str]:
    return sorted(file.name for file in path.with_name("attributions.pt.parts").glob("*.pt"))


def explained(path: Path) -> list[int]:
    """Return the first graphs of the batches that the model has seen."""
    return sorted({int(line) for line in path.with_name("log.txt").read_text().split()})


def test_an_interrupted_run_goes_on(graphs: list[Data], interrupted: Path, tmp_path: Path) -> None:
    assert parts_of(interrupted) == ["00000000.pt", "00000001.pt", "00000002.pt"]
    explain(graphs, interrupted)
    assert explained(interrupted) == FIRSTS[3:]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["attributions.pt", "log.txt"]
    explain(graphs, tmp_path / "other.pt")
    assert interrupted.read_bytes() == (tmp_path / "other.pt").read_bytes()


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"seed": 11}, "model"),
        ({"target": 1}, "target"),
        ({"target": [0] * NUM_GRAPHS}, "target"),
        ({"batch_size": 5}, "batch_size"),
        ({"field": "repeated"}, "field"),
        ({"undirected": True}, "undirected"),
        ({"arguments": lambda batch: (batch.x, batch.edge_index, batch.batch)}, "arguments"),
        ({"graphs": numbered_graphs(NUM_GRAPHS + 1)}, "graphs"),
        ({"graphs": numbered_graphs(NUM_GRAPHS, seed=1)}, "graphs"),
    ],
)
def test_parts_of_another_run_are_refused(
    change: dict[str, Any], what: str, graphs: list[Data], interrupted: Path
) -> None:
    options = {"graphs": graphs, "path": interrupted} | change
    with pytest.raises(ValueError, match=rf"Expected parts of this very run in .* \(got .* differs in {what}\)"):
        explain(**options)
    assert len(parts_of(interrupted)) == 3
    saved = explain(**options, resume=False)
    assert len(saved) == len(options["graphs"])
    if options.get("batch_size", BATCH_SIZE) == BATCH_SIZE:
        assert explained(interrupted) == FIRSTS


def test_one_changed_graph_is_noticed(graphs: list[Data], interrupted: Path) -> None:
    changed = [graph.clone() for graph in graphs]
    changed[9].x[1, 2] += 1e-3
    with pytest.raises(ValueError, match="differs in graphs"):
        explain(changed, interrupted)


@pytest.mark.parametrize("damage", [b"", b"text", None])
def test_damaged_parts_are_explained_again(damage: bytes | None, graphs: list[Data], interrupted: Path) -> None:
    file = interrupted.with_name("attributions.pt.parts") / "00000001.pt"
    file.write_bytes(file.read_bytes()[:700] if damage is None else damage)
    file.with_name("00000005.123.unfinished").write_bytes(b"")
    explain(graphs, interrupted)
    assert explained(interrupted) == [FIRSTS[1], *FIRSTS[3:]]


def test_folders_of_other_origin_are_not_touched(graphs: list[Data], tmp_path: Path) -> None:
    folder = tmp_path / "attributions.pt.parts"
    folder.mkdir()
    (folder / "diary.txt").write_text("mine")
    with pytest.raises(ValueError, match="differs in origin"):
        explain(graphs, tmp_path / "attributions.pt")
    assert (folder / "diary.txt").read_text() == "mine"


def test_a_run_that_was_killed_while_tidying_up(graphs: list[Data], interrupted: Path) -> None:
    folder = interrupted.with_name("attributions.pt.parts")
    kept = {file.name: file.read_bytes() for file in folder.iterdir()}
    saved = explain(graphs, interrupted)
    before = torch.cat([each.attributions for each in saved])
    folder.mkdir()
    for name, content in kept.items():
        (folder / name).write_bytes(content)
    after = explain(graphs, interrupted)
    assert torch.equal(before, torch.cat([each.attributions for each in after]))
    assert not folder.exists()


def test_files_are_replaced(graphs: list[Data], tmp_path: Path) -> None:
    path = tmp_path / "attributions.pt"
    first = explain(graphs, path)
    second = explain(graphs, path, target="all")
    assert first[0].attributions.dim() == 1  # an opened file stays what it was
    assert second[0].attributions.dim() == 2
