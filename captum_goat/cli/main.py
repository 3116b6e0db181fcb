"""The commands of ``captum-goat``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

import captum_goat
from captum_goat.attribution import GOAtAttribution
from captum_goat.bulk.model_check import check
from captum_goat.cli import compare, explain, report
from captum_goat.cli.options import add_sources, check_device, load_sources
from captum_goat.tracking import UnsupportedModelError

# Shown without a traceback.
ERRORS = (ImportError, IndexError, OSError, RuntimeError, TypeError, UnsupportedModelError, ValueError)
COMMANDS = {
    "check": "check whether a saved model can be explained exactly",
    "compare": "compare explainers on a saved model and saved graphs",
    "explain": "attribute the output for every graph of a dataset to its edges",
    "report": "show attributions from a file as one HTML page",
}
# What messages say to callers of functions, and what it is on the command line.
FLAGS = {"resume=False": "--restart", "batch_size=1": "--batch-size 1", "call explain_nodes": "pass --nodes"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, given by words or by those of this process, print its errors, and return its exit code."""
    parser = _parser()
    words = sys.argv[1:] if arguments is None else list(arguments)
    if not words:
        parser.print_help()
        return 0
    if not {"", os.getcwd()} & {*sys.path}:
        sys.path.insert(0, os.getcwd())  # as python -m does, so that --class finds the user's modules
    try:
        options = parser.parse_args(words)
        if options.trust_pickle:
            print("Warning: --trust-pickle executes whatever code is in the files.", file=sys.stderr)
        check_device(options.device)
        commands = {"check": _check, "compare": compare.run, "explain": explain.run, "report": report.run}
        return commands[options.command](options)
    except ERRORS as error:
        message = " ".join(str(error).split())
        for python, flag in FLAGS.items():
            message = message.replace(python, flag)
        print(f"{type(error).__name__}: {message}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"Interrupted.{' Call again to continue.' * (words[0] == 'explain')}", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("captum-goat", description="Explain graph neural networks with GOAt.")
    parser.add_argument("--version", action="version", version=f"captum-goat {captum_goat.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", title="commands")
    epilogs = {"compare": compare.EPILOG, "explain": explain.EPILOG, "report": report.EPILOG}
    made = {}
    for name, text in COMMANDS.items():
        form, description = argparse.RawDescriptionHelpFormatter, f"{text[0].upper()}{text[1:]}."
        made[name] = commands.add_parser(
            name, help=text, description=description, epilog=epilogs.get(name), formatter_class=form
        )
        add_sources(made[name], required=name != "report")
    compare.add_options(made["compare"])
    explain.add_options(made["explain"])
    report.add_options(made["report"])
    made["check"].add_argument("--graph", type=int, default=0, metavar="N", help="which graph to take (default: 0)")
    return parser


def _check(options: argparse.Namespace) -> int:
    model, graphs = load_sources(options)
    if not 0 <= options.graph < len(graphs):
        raise ValueError(f"Expected --graph from 0 to {len(graphs) - 1} (got {options.graph}).")
    result = check(GOAtAttribution(model.to(options.device)), graphs[options.graph].to(options.device))
    print(result)
    return 0 if result.is_exact else 1
