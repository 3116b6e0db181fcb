"""``captum-goat check``: whether a saved model can be explained exactly, and what an attribution costs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from captum_goat.attribution import GOAtAttribution
from captum_goat.bulk.model_check import check
from captum_goat.cli.options import check_device, command_parser, load_sources, run_command


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command's options."""
    made = command_parser("check", "Check whether a model can be explained exactly, and count the passes it takes.")
    made.add_argument("--graph", type=int, default=0, metavar="N", help="which of the graphs to take (default: 0)")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0 if the model can be explained with ``at="message"``."""
    return run_command(parser(), arguments, _run)


def _run(options: argparse.Namespace) -> int:
    check_device(options.device)
    model, graphs = load_sources(options)
    if not 0 <= options.graph < len(graphs):
        raise ValueError(f"Expected --graph from 0 to {len(graphs) - 1} (got {options.graph}).")
    result = check(GOAtAttribution(model.to(options.device)), graphs[options.graph].to(options.device))
    print(result)
    return 0 if result.is_exact else 1
