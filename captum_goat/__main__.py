"""``python -m captum_goat explain`` explains a saved model on a saved data set."""

from __future__ import annotations

import sys

USAGE = """usage: python -m captum_goat {explain} [options]

explain  attributions for every graph of a data set, from a saved model

Each has --help."""


def main() -> int:
    """Run the command that the first word names."""
    command = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if command != "explain":
        print(USAGE)
        if command in ("-h", "--help"):
            return 0
        print(f"\nExpected explain (got {command!r}).", file=sys.stderr)
        return 2
    from captum_goat.bulk import command_line

    return command_line.main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
