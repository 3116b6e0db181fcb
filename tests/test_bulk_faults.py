"""Runs that are killed at random moments, compete for a file or fill the disk: nothing lost, nothing twice."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bulk_faults import BATCH_SIZE, explain
from bulk_models import numbered_graphs, watched_model

from captum_goat.bulk import explain_dataset

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that can be forked")
PATIENCE = {"few": 400, "many": 3000}  # seconds


def run_faults(folder: Path, size: str, seed: int) -> dict[str, Any]:
    """Let the faults happen in a process with mounts of its own, if that can be had, and strings hashed otherwise."""
    for name in ("reference.pt", "reference.parquet"):
        explain(folder / name)
    apart = ["unshare", "--mount"] + ([] if os.geteuid() == 0 else ["--map-root-user"])
    if shutil.which("unshare") is None or subprocess.run([*apart, "true"], capture_output=True, check=False).returncode:
        apart = []
    paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [*apart, sys.executable, str(Path(__file__).with_name("bulk_faults.py")), size, str(seed)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONHASHSEED": "7", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE[size],
        check=False,
    )
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def check(found: dict[str, Any]) -> None:
    assert found["two writers"]["refused"] > 0
    for name in ("full disk", "full disk, parquet"):
        assert found[name]["full"] > found[name]["while merging"] > 0


@pytest.mark.slow
def test_a_few_faults(tmp_path: Path) -> None:
    check(run_faults(tmp_path, "few", seed=0))


@pytest.mark.exhaustive
def test_many_faults(tmp_path: Path) -> None:
    found = run_faults(tmp_path, "many", seed=1)
    check(found)
    assert found["one process"]["while merging"] > 0
    assert found["two ranks"]["while merging"] > 0


@pytest.mark.parametrize("count", [8, pytest.param(200, marks=pytest.mark.exhaustive)])
@pytest.mark.slow
def test_flipped_bits(count: int, tmp_path: Path) -> None:
    """One bit of one file of an interrupted run, wherever it is, does not change the file that the run ends with."""

    class Interrupted(list):  # type: ignore[type-arg]
        def __getitem__(self, index: Any) -> Any:
            if index >= 2 * BATCH_SIZE:
                raise KeyboardInterrupt
            return super().__getitem__(index)

    graphs, path = numbered_graphs(3 * BATCH_SIZE), tmp_path / "attributions.pt"
    options: dict[str, Any] = {"batch_size": BATCH_SIZE, "show_progress": False}
    explain_dataset(watched_model(), graphs, **options, out=tmp_path / "reference.pt")
    with pytest.raises(KeyboardInterrupt):
        explain_dataset(watched_model(), Interrupted(graphs), **options, out=path)
    kept, folder, generator = tmp_path / "kept", path.with_name("attributions.pt.parts"), random.Random(0)
    folder.replace(kept)
    for _ in range(count):
        shutil.copytree(kept, folder)
        file = generator.choice(sorted(folder.glob("*.part")))
        content = bytearray(file.read_bytes())
        content[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
        file.write_bytes(content)
        explain_dataset(watched_model(), graphs, **options, out=path)
        assert path.read_bytes() == (tmp_path / "reference.pt").read_bytes()
        assert not folder.exists()
