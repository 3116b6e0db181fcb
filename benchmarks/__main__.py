"""``python -m benchmarks NAME``: run a benchmark, such as ``paper`` or ``speed``, from a checkout."""

from __future__ import annotations

import sys
from importlib import import_module

COMMANDS = {
    "paper": "the GOAt paper's experiments with all explainers",
    "large_graph_recipes": "the search and peeling against occlusion on one graph of 10,000 edges",
    "seeds": "the paper's example of a stable explanation, for several seeds",
    "speed": "time and memory of GOAt beside other methods, from 10 to a million edges",
    "cost": "what an attribution costs, in forward and backward passes",
    "shapley_gains": "guided Shapley values beside other explainers on the paper's models",
    "shapley_checks": "standard errors, wrong guides and cost of guided Shapley values",
    "white_box": "explainers against the edges that matter to weights set by hand",
    "sanity": "sanity checks of explainers: random weights, other classes, shuffled labels, noise",
    "in_distribution": "fidelity after fine-tuning and training on reduced graphs",
    "compat": "the table of supported PyTorch Geometric layers and models",
}
MODULES = {
    "paper": "paper.run",
    "white_box": "white_box.run",
    "compat": "compat.__main__",
}  # where that is not the name


def main() -> None:
    """Run the benchmark that the first word names."""
    command = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if command not in COMMANDS:
        lines = "\n".join(f"{name:<20} {text}" for name, text in COMMANDS.items())
        print(f"usage: python -m benchmarks {{{','.join(COMMANDS)}}} [options]\n\n{lines}\n\nEach has --help.")
        sys.exit(0 if command in ("-h", "--help") else f"\nExpected {', '.join(COMMANDS)} (got {command!r}).")
    del sys.argv[1]
    code = import_module(f"benchmarks.{MODULES.get(command, command)}").main()
    if code:
        sys.exit(code)


if __name__ == "__main__":
    main()
