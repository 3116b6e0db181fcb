"""Types of command line options."""

from __future__ import annotations

import argparse


def positive(text: str) -> int:
    """Read a number of things, of which there is to be one at least; the type of an option.

    Raises:
        argparse.ArgumentTypeError: If it is smaller.
    """
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected 1 or more (got {text})")
    return number
