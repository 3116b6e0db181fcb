"""Runs that are interrupted and go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from bulk_models import numbered_graphs, watched_model
from conftest import slow_unless
from torch_geometric.data import Data

from captum_goat import GOAtAttribution
from captum_goat.bulk import explain_dataset

NUM_GRAPHS, BATCH_SIZE = 22, 4
FIRSTS = [0, 4, 8, 12, 16, 20]  # the first graphs of the batches


@pytest.fixture(scope="module")
def graphs() -> list[Data]:
    return numbered_graphs(NUM_GRAPHS)


def explain(graphs: list[Data], path: Path, seed: int = 40, **options: Any) -> Any:
    given = {"batch_size": BATCH_SIZE, "show_progress": False, "out": path} | options
    method = GOAtAttribution(watched_model(seed), **given.pop("method", {}))
    return explain_dataset(method, graphs, **given)


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
    return sorted(file.name for file in path.with_name("attributions.pt.parts").glob("*.part"))


def explained(path: Path) -> list[int]:
    """Return the first graphs of the batches that the model has seen."""
    return sorted({int(line) for line in path.with_name("log.txt").read_text().split()})


def test_an_interrupted_run_goes_on(graphs: list[Data], interrupted: Path, tmp_path: Path) -> None:
    assert parts_of(interrupted) == ["00000000.part", "00000001.part", "00000002.part"]
    explain(graphs, interrupted)
    assert explained(interrupted) == [FIRSTS[0], *FIRSTS[3:]]  # one batch once more, to compare
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
        ({"method": {"field": "repeated"}}, "field"),
        ({"method": {"at": "adjacency"}}, "at"),
        ({"method": {"gates": "proportional"}}, "gates"),
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
    with pytest.raises(ValueError, match=rf"Expected parts of this run in .* \(got .* differs in {what}\)"):
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


def flipped(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


DAMAGES = {
    "empty": lambda content: b"",
    "foreign": lambda content: b"text",
    "torn": lambda content: content[:700],
    "zeros": lambda content: bytes(len(content)),
} | {
    f"bit at {share:.0%}": lambda content, share=share: flipped(content, int(share * len(content)))
    for share in (0, 0.02, 0.5, 0.9)
}


@pytest.mark.parametrize("damage", slow_unless(lambda damage: damage in list(DAMAGES)[::3], DAMAGES))
def test_damaged_parts_are_explained_again(damage: str, graphs: list[Data], interrupted: Path, tmp_path: Path) -> None:
    file = interrupted.with_name("attributions.pt.parts") / "00000001.part"
    file.write_bytes(DAMAGES[damage](file.read_bytes()))
    file.with_name("00000005.123.unfinished").write_bytes(b"")
    explain(graphs, interrupted)
    assert explained(interrupted) == [*FIRSTS[:2], *FIRSTS[3:]]
    explain(graphs, tmp_path / "other.pt")
    assert interrupted.read_bytes() == (tmp_path / "other.pt").read_bytes()


def test_parts_that_are_damaged_before_they_are_put_together(graphs: list[Data], interrupted: Path) -> None:
    class Damaging(list):  # type: ignore[type-arg]
        def __getitem__(self, index: Any) -> Any:
            if index == NUM_GRAPHS - 1:  # when the first parts have been looked at
                file = interrupted.with_name("attributions.pt.parts") / "00000001.part"
                file.write_bytes(flipped(file.read_bytes(), 900))
            return super().__getitem__(index)

    with pytest.raises(ValueError, match=r"00000001.part as it was written .*Call again: only the damaged part is"):
        explain(Damaging(graphs), interrupted)
    assert not interrupted.exists()
    interrupted.with_name("log.txt").unlink()
    assert len(explain(graphs, interrupted)) == NUM_GRAPHS
    assert explained(interrupted) == FIRSTS[:2]


@pytest.mark.slow
def test_parts_of_others_are_explained_again(
    graphs: list[Data], interrupted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, other = interrupted.with_name("attributions.pt.parts"), interrupted.with_name("other.pt")
    with monkeypatch.context() as patch:
        patch.setenv("WATCHED_RAISE", str(FIRSTS[3]))
        patch.delenv("WATCHED_LOG")
        with pytest.raises(KeyboardInterrupt):
            explain(graphs, other, seed=11)
    part = folder / "00000001.part"
    part.with_name("00000002.part").write_bytes(part.read_bytes())
    part.with_name("00000006.part").write_bytes(part.read_bytes())
    part.write_bytes((other.with_name("other.pt.parts") / part.name).read_bytes())
    explain(graphs, interrupted)
    assert explained(interrupted) == FIRSTS
    explain(graphs, other, resume=False)
    assert interrupted.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("resume", [True, False])
@pytest.mark.parametrize("run", [None, "", "{", "[1]", '{"captum_goat": 1}'])
def test_folders_of_others_are_not_touched(run: str | None, resume: bool, graphs: list[Data], tmp_path: Path) -> None:
    folder = tmp_path / "attributions.pt.parts"
    folder.mkdir()
    files = {"whole.pt": "mine", "00000000.part": "mine"} | ({} if run is None else {"run.json": run})
    for name, content in files.items():
        (folder / name).write_text(content)
    with pytest.raises(ValueError, match=r"parts to be the folder of a run \(got one without a readable run.json"):
        explain(graphs, tmp_path / "attributions.pt", resume=resume)
    assert {file.name: file.read_text() for file in folder.iterdir()} == files


@pytest.mark.parametrize("resume", [True, False])
def test_files_of_others_among_the_parts_stay(resume: bool, graphs: list[Data], interrupted: Path) -> None:
    folder = interrupted.with_name("attributions.pt.parts")
    (folder / "diary.txt").write_text("mine")
    (folder / "00000009.part").mkdir()
    explain(graphs, interrupted, resume=resume)
    assert sorted(file.name for file in folder.iterdir()) == ["00000009.part", "diary.txt"]


@pytest.mark.parametrize("resume", [True, False])
def test_one_run_at_a_time(resume: bool, graphs: list[Data], tmp_path: Path) -> None:
    path, refusals = tmp_path / "attributions.pt", []

    class Nested(list):  # type: ignore[type-arg]
        def __getitem__(self, index: Any) -> Any:
            if index == FIRSTS[2]:
                with pytest.raises(
                    BlockingIOError, match=r"no other run that writes to .*parts \(got one\)"
                ) as refusal:
                    explain(graphs, path, resume=resume)
                refusals.append(refusal)
            return super().__getitem__(index)

    saved = explain(Nested(graphs), path)
    assert len(refusals) == 1
    assert len(saved) == NUM_GRAPHS
    assert [file.name for file in tmp_path.iterdir()] == ["attributions.pt"]


def test_out_must_not_be_a_folder(graphs: list[Data], tmp_path: Path) -> None:
    (tmp_path / "folder.pt").mkdir()
    with pytest.raises(ValueError, match=r"Expected a file \(got .*folder.pt, which is a folder\)"):
        explain(graphs, tmp_path / "folder.pt")
    assert [file.name for file in tmp_path.iterdir()] == ["folder.pt"]


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
