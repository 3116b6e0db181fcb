"""``python -m captum_goat.benchmark paper`` repeats the paper's experiments; ``... cost`` measures GOAt's cost."""

from __future__ import annotations

import sys

COMMANDS = ("paper", "cost")


def main() -> None:
    """Run the benchmark that the first word names."""
    command = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if command not in COMMANDS:
        print(
            "usage: python -m captum_goat.benchmark {paper,cost} [options]\n\n"
            "paper  the GOAt paper's experiments with all explainers\n"
            "cost   what an attribution costs, in forward and backward passes\n\n"
            "Each has --help."
        )
        sys.exit(0 if command in ("-h", "--help") else f"\nExpected paper or cost (got {command!r}).")
    del sys.argv[1]
    if command == "paper":
        from captum_goat.benchmark import paper

        paper.main()
    else:
        from captum_goat.benchmark import cost

        cost.main()


if __name__ == "__main__":
    main()
