"""Time of explaining a whole dataset with several processes, started from the command line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch.nn import Module
from torch_geometric.data import Data

from benchmarks.cost import NUM_FEATURES

_CLASS = "captum_goat.models:GraphClassifier"
_PRINTED = re.compile(r"^(\d+) graphs in ([\d.]+) s ", re.MULTILINE)


def seconds_of_ranks(model: Module, gnn: str, hidden: int, graphs: list[Data], *, ranks: int, batch_size: int) -> float:
    """Return the seconds that ``python -m captum_goat explain`` says it took, with one thread per process.

    Starting Python is not part of them; cutting the work up, writing files and putting them together is.

    Args:
        model: A graph classifier of the benchmark.
        gnn: The name of its layers.
        hidden: Its width.
        graphs: The graphs, all of which are explained.
        ranks: The number of processes.
        batch_size: How many graphs a process takes at once.

    Raises:
        RuntimeError: If it does not come to an end as it should.
    """
    with TemporaryDirectory() as name:
        folder = Path(name)
        torch.save(model.state_dict(), folder / "model.pt")
        torch.save(graphs, folder / "graphs.pt")
        arguments = {"conv": gnn, "in_channels": NUM_FEATURES, "hidden_channels": hidden, "num_classes": 2}
        launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        explain = ["-m", "captum_goat", "explain", "--model", "model.pt", "--data", "graphs.pt", "--out", "out.pt"]
        options = ["--class", _CLASS, "--arguments", json.dumps(arguments), "--batch-size", str(batch_size)]
        done = subprocess.run(
            [sys.executable, *launch, *explain, *options],
            cwd=folder,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    printed = _PRINTED.search(done.stdout)
    if done.returncode or printed is None or int(printed[1]) != len(graphs):
        raise RuntimeError(f"Explaining with {ranks} processes failed:\n{done.stdout}\n{done.stderr}")
    return float(printed[2])
