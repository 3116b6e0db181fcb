"""Several processes that share the work of one that was interrupted, or of two, one of which is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from bulk_models import numbered_graphs, watched_model

from captum_goat.bulk import explain_dataset

FIRSTS = [0, 4, 8, 12, 16, 20]  # the first graphs of the batches: every other one is for the second process
PATIENCE = 400  # seconds; a busy machine takes long to start processes


def run_two(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = ["-m", "captum_goat", "explain", "--model", "weights.pt", "--class", "bulk_models:Watched"]
    options = ["--data", "graphs.pt", "--out", "two.pt", "--batch-size", "4", "--quiet"]
    paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.run(
        [*launcher, *command, *options],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths), **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@pytest.mark.parametrize(
    "killed", [pytest.param(False, marks=pytest.mark.slow), pytest.param(True, marks=pytest.mark.exhaustive)]
)
def test_two_processes_go_on_with_what_is_finished(
    killed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After one process was interrupted, or one of two killed; ranks that are killed are also in bulk_faults.py."""
    model, graphs = watched_model(), numbered_graphs(22)
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    torch.save(graphs, tmp_path / "graphs.pt")
    explain_dataset(model, graphs, batch_size=4, show_progress=False, out=tmp_path / "one.pt")

    if killed:
        first = run_two(tmp_path, WATCHED_KILL=str(FIRSTS[5]))
        assert first.returncode != 0
    else:
        monkeypatch.setenv("WATCHED_RAISE", str(FIRSTS[4]))
        with pytest.raises(KeyboardInterrupt):
            explain_dataset(model, graphs, batch_size=4, show_progress=False, out=tmp_path / "two.pt")
    assert not (tmp_path / "two.pt").exists()
    finished = {int(file.stem) for file in (tmp_path / "two.pt.parts").glob("*.part")}
    assert {1, 3} <= finished < set(range(6))
    monkeypatch.undo()

    resumed = run_two(tmp_path, WATCHED_LOG=str(tmp_path / "log.txt"))
    assert resumed.returncode == 0, resumed.stderr
    assert resumed.stdout.count("22 graphs in ") == 1
    explained = {int(line) for line in (tmp_path / "log.txt").read_text().split()}
    again = sorted(finished)[:2]  # each process compares one batch
    assert explained == {FIRSTS[number] for number in range(6) if number not in finished or number in again}
    assert (tmp_path / "two.pt").read_bytes() == (tmp_path / "one.pt").read_bytes()
    assert not (tmp_path / "two.pt.parts").exists()


def test_several_processes_need_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"is_initialized": True, "get_rank": 0, "get_world_size": 2}.items():
        monkeypatch.setattr(torch.distributed, name, lambda value=value: value)
    with pytest.raises(ValueError, match=r"Expected out=\.\.\., a file"):
        explain_dataset(watched_model(), numbered_graphs(2), show_progress=False)
