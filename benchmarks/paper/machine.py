"""The machine, versions and seeds of a run."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from benchmarks.paper.options import Options

PACKAGES = (
    "captum-goat",
    "captum",
    "torch",
    "torch-geometric",
    "numpy",
    "networkx",
    "scikit-learn",
    "matplotlib",
    "dive-into-graphs",
)


def describe_machine(options: Options) -> str:
    """Return the section of the report on the machine, versions and seeds."""
    return "\n".join(
        [
            "## Machine, versions, seed",
            "",
            *machine_lines(options.device),
            f"- seed {options.seed} for splits, weights, the order of graphs and explainers",
            f"- at most {options.limit} graphs per dataset, {options.slow_limit} for slow explainers, no further "
            f"graphs after {options.budget:g} seconds",
        ]
    )


def machine_lines(device: str = "cpu") -> list[str]:
    """Return the machine and the versions, as the items of a list."""
    gpu = "no GPU used" if device == "cpu" else f"on {device}"
    if device.startswith("cuda"):
        gpu += f", {torch.cuda.get_device_name(device)}"
    versions = [f"{name} {version}" for name in PACKAGES if (version := _version(name))]
    return [
        f"- {processor()}, {os.cpu_count()} cores, {torch.get_num_threads()} thread(s) per process, {gpu}; "
        f"{platform.system()}",
        f"- Python {platform.python_version()}; {', '.join(versions)}",
    ]


def processor() -> str:
    """Return the name of the processor, as far as the system tells it."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
