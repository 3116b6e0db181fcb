"""The machine, versions and seeds of a run."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from benchmarks.explainers import EXPLAINERS
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


def describe_machine(options: Options, processor_time: float = 0.0) -> str:
    """Return the section of the report on the machine, versions, seeds and the command.

    Args:
        options: What was run.
        processor_time: The seconds that all explanations took.
    """
    return "\n".join(
        [
            "## Machine, versions, seed",
            "",
            *machine_lines(options.device),
            f"- seed {options.seed} for splits, weights, the order of graphs and explainers",
            f"- at most {options.limit} graphs per dataset, {options.slow_limit} for slow explainers, no further "
            f"graphs after {options.budget:g} seconds",
            f"- {processor_time / 3600:.1f} hours of processor time for explanations; training and measuring come on "
            "top",
            "",
            "The command (`--only-report` writes the pages again from the cache):",
            "",
            "```bash",
            command_of(options),
            "```",
        ]
    )


def command_of(options: Options) -> str:
    r"""Return the command of a run, with all names that differ from the defaults.

    Examples::

        >>> from benchmarks.paper.machine import command_of
        >>> from benchmarks.paper.options import parse
        >>> print(command_of(parse(["--datasets", "nci1", "--limit", "100"])))
        python -m benchmarks paper --datasets nci1 \
            --gnns gcn sage gin \
            --limit 100 --slow-limit 50 --budget 600 --seed 0
    """
    parts = [f"--datasets {' '.join(options.datasets)}", f"--gnns {' '.join(options.gnns)}"]
    if options.explainers != tuple(EXPLAINERS):
        parts.append(f"--explainers {' '.join(options.explainers)}")
    if options.other_explainers is not None:
        parts.append(f"--other-explainers {' '.join(options.other_explainers)}")
    data = "" if options.data is None else "--data FOLDER "
    numbers = f"--slow-limit {options.slow_limit} --budget {options.budget:g} --seed {options.seed}"
    parts.append(f"{data}--limit {options.limit} {numbers}")
    return "python -m benchmarks paper " + " \\\n    ".join(parts)


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
