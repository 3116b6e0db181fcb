"""What tests/test_bulk_faults.py runs in a process of its own: runs that are killed, compete, or fill the disk.

Every run is a process that is forked off, since that takes no time. What happened is printed as JSON.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from bulk_models import numbered_graphs, watched_model

from captum_goat.bulk import explain_dataset

PARTS, BATCH_SIZE = 10, 3
DISK = Path("disk")  # where a small file system is mounted
FULL = ("No space left", "File too large", "Expected space for")  # what runs say then
PAGE = 4096  # of which file systems in memory consist


def explain(out: Path | str) -> None:
    graphs = numbered_graphs(PARTS * BATCH_SIZE)
    explain_dataset(watched_model(), graphs, batch_size=BATCH_SIZE, show_progress=False, out=out)


def start(action: Callable[[], object]) -> int:
    """Fork off a process; what it raises goes to the file errors/<its number>."""
    pid = os.fork()
    if pid:
        return pid
    try:
        action()
    except BaseException as error:
        Path("errors").mkdir(exist_ok=True)
        Path(f"errors/{os.getpid()}").write_text(f"{type(error).__name__}: {error}")
        os._exit(1)
    os._exit(0)


def wait(pid: int) -> str:
    """Return how a process ended: in "success", or with an error or a signal."""
    status = os.waitpid(pid, 0)[1]
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    return "success" if os.WEXITSTATUS(status) == 0 else Path(f"errors/{pid}").read_text()


def contents(folder: Path) -> dict[str, bytes]:
    """Return the parts in a folder; none if it is just being deleted."""
    try:
        return {file.name: file.read_bytes() for file in folder.glob("*.part")}
    except FileNotFoundError:
        return {}


def one_process(out: Path) -> list[int]:
    return [start(lambda: explain(out))]


def two_ranks(out: Path) -> list[int]:
    store = Path(f"store_{random.random()}").absolute()

    def rank(number: int) -> None:
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=number, world_size=2)
        explain(out)
        dist.destroy_process_group()

    return [start(lambda: rank(0)), start(lambda: rank(1))]


def kills(start_run: Callable[[Path], list[int]], out: Path, count: int, reference: bytes) -> dict[str, Any]:
    """Kill runs at random moments, every other time while parts are put together, until so many were killed."""
    folder, counts = out.with_name(f"{out.name}.parts"), {"kills": 0, "while merging": 0, "finished before": 0}
    kept: dict[str, bytes] = {}

    def finish(processes: list[int]) -> None:
        nonlocal kept
        ends = [wait(process) for process in processes]
        assert ends == ["success"] * len(ends), ends
        assert out.read_bytes() == reference
        assert not folder.exists()
        out.unlink()
        kept = {}

    begin = time.perf_counter()
    finish(start_run(out))
    duration = time.perf_counter() - begin
    while counts["kills"] < count:
        processes, merging = start_run(out), random.random() < 0.5
        end = time.perf_counter() + 10 * duration
        while merging and time.perf_counter() < end and len(contents(folder)) < PARTS and not out.exists():
            time.sleep(0.0005)
        time.sleep(random.uniform(0, 0.02 if merging else duration))
        victim = random.choice(processes)
        os.kill(victim, signal.SIGKILL)  # a zombie takes no harm
        now = contents(folder)
        if wait(victim) == "success":
            counts["finished before"] += 1
            finish([process for process in processes if process != victim])
            continue
        for other in processes:  # as torchrun does
            if other != victim:
                os.kill(other, signal.SIGKILL)
                wait(other)
        counts["kills"] += 1
        counts["while merging"] += len(now) == PARTS
        if out.exists():
            assert out.read_bytes() == reference
        else:
            assert kept.items() <= now.items(), "a finished part was lost or written again"
        if len(now) == PARTS and random.random() < 0.7:  # nothing is left to explain
            finish(start_run(out))
        kept = contents(folder) if not out.exists() else {}
    finish(start_run(out))
    return counts


def two_writers(count: int, late: bool, reference: bytes) -> dict[str, int]:
    """Let two runs write to the same file, the second of which may be late."""
    counts = {"refused": 0, "both": 0}
    for _ in range(count):
        out = Path("writers.pt")
        first, early = start(lambda: explain("writers.pt")), random.random() < 0.3
        while not early and not Path("writers.pt.parts/run.json").exists():
            time.sleep(0.001)
        time.sleep(random.uniform(0, 0.1 if early else 0.5 if late else 0))
        ends = [wait(start(lambda: explain("writers.pt"))), wait(first)]
        refused = [end for end in ends if end != "success"]
        assert len(refused) < 2, ends
        assert all(end.startswith("BlockingIOError: Expected no other run that writes to") for end in refused), ends
        assert out.read_bytes() == reference
        assert not Path("writers.pt.parts").exists()
        out.unlink()
        counts["refused" if refused else "both"] += 1
    return counts


def limits(first: int, step: int, reference: bytes) -> Generator[Callable[[], None], None, None]:
    """Yield functions that limit the space that a run has: from a first number of pages on, by so many more.

    This is the size of a file system, or where none can be mounted, of files.
    """
    DISK.mkdir()
    mount = [shutil.which("mount") or "false", "-t", "tmpfs", "tmpfs", DISK]
    mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    sizes = range(first, 3 * PARTS, step) if mounted else range(1, 10)
    unit = PAGE if mounted else len(reference) // 10
    try:
        for size in sizes:
            if mounted:
                subprocess.run(["mount", "-o", f"remount,size={size * unit}", DISK], check=True)
                yield lambda: None
            else:
                yield lambda size=size * unit: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))  # type: ignore[misc]
        if mounted:
            subprocess.run(["mount", "-o", "remount,size=100m", DISK], check=True)
        yield lambda: None
    finally:
        if mounted:
            subprocess.run(["umount", DISK], check=True)
        shutil.rmtree(DISK)


def full_disk(name: str, first: int, step: int, reference: bytes) -> dict[str, Any]:
    """Let a run go on again and again, with more and more space, until it succeeds."""
    out, counts = DISK / name, {"full": 0, "while merging": 0}
    folder = out.with_name(f"{name}.parts")
    with closing(limits(first, step, reference)) as all_limits:
        for limit in all_limits:
            before = contents(folder)

            def run(limit: Callable[[], None] = limit) -> None:
                limit()
                explain(out)

            end = wait(start(run))
            if end == "success":
                assert out.read_bytes() == reference
                return counts
            assert any(reason in end for reason in FULL), end
            assert not out.exists()
            now = contents(folder)
            assert before.items() <= now.items(), "a finished part was lost or written again"
            assert not [file for file in folder.glob("*") if file.name.endswith((".whole", ".unfinished"))]
            counts["full"] += 1
            counts["while merging"] += len(now) == PARTS
    raise AssertionError("a run with enough space did not succeed")


def main(size: str, seed: int) -> None:
    torch.set_num_threads(1)
    random.seed(seed)
    few, pt, parquet = size == "few", Path("reference.pt").read_bytes(), Path("reference.parquet").read_bytes()
    found = {
        "one process": kills(one_process, Path("one.pt"), 2 if few else 100, pt),
        "two ranks": kills(two_ranks, Path("two.pt"), 1 if few else 60, pt),
        "two writers": two_writers(2 if few else 30, not few, pt),
        "full disk": full_disk("attributions.pt", *((9, 3) if few else (3, 1)), pt),
        "full disk, parquet": full_disk("attributions.parquet", *((10, 2) if few else (3, 1)), parquet),
    }
    if not few:
        found["one process, parquet"] = kills(one_process, Path("one.parquet"), 30, parquet)
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
