"""The commands of ``captum-goat``."""

from __future__ import annotations

import os
import sys
from importlib import import_module

COMMANDS = {
    "check": "whether a saved model can be explained exactly, and in how many passes",
    "compare": "explainers side by side, on a saved model and saved graphs",
    "explain": "attributions for every graph of a dataset, from a saved model",
}


def main() -> int:
    """Run the command that the first argument names."""
    command = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if command in COMMANDS:
        if not {"", os.getcwd()} & {*sys.path}:
            sys.path.insert(0, os.getcwd())  # as python -m does, so that --class finds the user's modules
        code: int = import_module(f"captum_goat.cli.{command}").main(sys.argv[2:])
        return code
    lines = "\n".join(f"{name:<8} {text}" for name, text in COMMANDS.items())
    print(f"usage: captum-goat {{{','.join(COMMANDS)}}} [options]\n\n{lines}\n\nEach has --help.")
    if command in ("-h", "--help"):
        return 0
    print(f"\nExpected one of {', '.join(COMMANDS)} (got {command!r}).", file=sys.stderr)
    return 2
