"""What to run: the command line of ``python -m benchmarks paper``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.datasets import DATASETS
from benchmarks.explainers import EXPLAINERS
from captum_goat.cli.main import positive

GNNS = ("gcn", "sage", "gin")  # the paper's; gcn is the authors' variant
OTHER_GNNS = ("gcn_textbook",)
QUICK_DATASETS, QUICK_GNNS = ("ba_2motifs", "ba_shapes"), ("gcn",)
QUICK_EXPLAINERS = (
    "goat",
    "goat_repeated",
    "random",
    "occlusion",
    "saliency",
    "input_x_gradient",
    "integrated_gradients",
)
QUICK_LIMIT = 20


@dataclass(frozen=True)
class Options:
    """What is run, and where results go.

    Attributes:
        datasets: Names of datasets.
        gnns: Names of models.
        explainers: Names of explainers.
        data: The folder with the published files; ``None`` to generate what can be generated.
        out: The folder that gets ``benchmark.md`` and ``benchmark/`` with results and pictures.
        cache: The folder for trained models, archives that are unpacked, and finished results.
        seed: Where random numbers start: splits, weights, the order of graphs, explainers.
        limit: How many graphs of a dataset are explained at most.
        slow_limit: The same for slow explainers.
        budget: The seconds after which an explainer takes up no further graphs of a dataset.
        epochs: The epochs of training; ``None`` for each model's own number.
        whole: Whether the paper's example of stability is also computed on its whole dataset.
        keep_going: Whether an explainer that fails is reported, and the run goes on.
        progress: Whether to show progress bars.
        device: The device of models and graphs: training, explaining and measuring.
        only_report: Whether to explain nothing, and to report what is in the cache.
        other_explainers: Names of explainers for models that are not the paper's; ``None`` for the same.
    """

    datasets: tuple[str, ...]
    gnns: tuple[str, ...]
    explainers: tuple[str, ...]
    data: Path | None
    out: Path
    cache: Path
    seed: int = 0
    limit: int = 200
    slow_limit: int = 50
    budget: float = 600.0
    epochs: int | None = None
    whole: bool = True
    keep_going: bool = False
    progress: bool = True
    device: str = "cpu"
    other_explainers: tuple[str, ...] | None = None
    only_report: bool = False

    def explainers_of(self, gnn: str) -> tuple[str, ...]:
        """Return the names of the explainers of a model."""
        others = self.other_explainers
        return self.explainers if others is None or gnn in GNNS else others


def available_device(name: str) -> str:
    """Return the name of a device; raise ``argparse.ArgumentTypeError`` if there is no such device.

    Examples::

        >>> from benchmarks.paper.options import available_device
        >>> available_device("cpu")
        'cpu'
    """
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:  # unknown, or torch was built without it
        raise argparse.ArgumentTypeError(f"expected a device such as cpu or cuda (got {name!r}: {error})") from error
    return name


def parse(arguments: Sequence[str] | None = None) -> Options:
    """Read the command line.

    Args:
        arguments: The words after ``paper``; ``None`` for those of the running program.

    Returns:
        What to run. With ``--quick``, what is not named is chosen so that it is over in three minutes.

    Examples::

        >>> from benchmarks.paper.options import parse
        >>> parse(["--quick", "--gnns", "gcn"]).datasets
        ('ba_2motifs', 'ba_shapes')
        >>> parse(["--datasets", "nci1"]).gnns
        ('gcn', 'sage', 'gin')
    """
    given = _parser().parse_args(arguments)
    quick = given.quick
    return Options(
        datasets=tuple(given.datasets or (QUICK_DATASETS if quick else DATASETS)),
        gnns=tuple(given.gnns or (QUICK_GNNS if quick else GNNS)),
        explainers=tuple(given.explainers or (QUICK_EXPLAINERS if quick else EXPLAINERS)),
        data=given.data,
        out=given.out,
        cache=given.cache or given.out / "cache",
        seed=given.seed,
        limit=given.limit or (QUICK_LIMIT if quick else Options.limit),
        slow_limit=given.slow_limit,
        budget=given.budget,
        epochs=given.epochs,
        whole=not quick,
        keep_going=given.keep_going,
        device=given.device,
        other_explainers=None if given.other_explainers is None else tuple(given.other_explainers),
        only_report=given.only_report,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks paper",
        description="Repeat the experiments of the GOAt paper, with all explainers. A run that was interrupted goes on "
        "where it stopped when it is started again.",
    )
    add, known = parser.add_argument, GNNS + OTHER_GNNS
    add("--data", type=Path, help="folder with the published data files (without: generated where that is possible)")
    add("--datasets", nargs="+", choices=DATASETS, metavar="NAME", help=f"of {', '.join(DATASETS)} (default: all)")
    add("--gnns", nargs="+", choices=known, metavar="NAME", help=f"of {', '.join(known)} (default: {' '.join(GNNS)})")
    add(
        "--explainers", nargs="+", choices=EXPLAINERS, metavar="NAME", help=f"of {', '.join(EXPLAINERS)} (default: all)"
    )
    add(
        "--other-explainers",
        nargs="+",
        choices=EXPLAINERS,
        metavar="NAME",
        help=f"the same for models that are not the paper's: {', '.join(OTHER_GNNS)} (default: as the others)",
    )
    add("--quick", action="store_true", help="two generated datasets, one model, few graphs, fast explainers")
    add("--out", type=Path, default=Path("benchmark"), help="folder for the report (default: benchmark)")
    add("--cache", type=Path, help="folder for models and finished results (default: OUT/cache)")
    add("--seed", type=int, default=0, help="where random numbers start (default: 0)")
    add("--limit", type=positive, help=f"graphs per dataset, at most (default: {Options.limit})")
    add(
        "--slow-limit",
        type=positive,
        default=Options.slow_limit,
        help="the same for slow explainers (default: %(default)s)",
    )
    add(
        "--budget",
        type=float,
        default=Options.budget,
        help="seconds after which an explainer takes up no further graphs of a dataset (default: %(default)s)",
    )
    add("--epochs", type=int, help="epochs of training (default: those of each model)")
    add("--device", type=available_device, default="cpu", help="such as cuda or cuda:1 (default: cpu)")
    add("--only-report", action="store_true", help="explain nothing: report what is in the cache")
    add("--keep-going", action="store_true", help="report explainers that fail, and go on")
    return parser
