"""The options that the commands share, and what they do with them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn import Module
from torch_geometric.data import Data

from captum_goat.attribution import GOAtAttribution
from captum_goat.cli.saved_files import load_graphs, load_model
from captum_goat.shapley import GuidedShapley
from captum_goat.tracking import UnsupportedModelError

ERRORS = (ImportError, OSError, RuntimeError, UnsupportedModelError, ValueError)  # shown without a traceback


def command_parser(command: str, description: str, epilog: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of a command, with the options that say where the model and the graphs are."""
    parser = argparse.ArgumentParser(
        prog=f"captum-goat {command}",
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--model", type=Path, required=True, metavar="FILE", help="the model's weights, saved from model.state_dict()")
    add("--class", dest="class_name", metavar="MODULE:CLASS", help="the model's class")
    add("--arguments", metavar="JSON", help="arguments of the class: an object or a list (default: none)")
    add(
        "--data",
        type=Path,
        required=True,
        metavar="PATH",
        help="a .pt file with a list of graphs or as PyG's InMemoryDataset saves it, or a folder of the TU collection",
    )
    add("--device", type=torch.device, default=torch.device("cpu"), help="cpu, cuda, ... (default: cpu)")
    add(
        "--trust-pickle",
        action="store_true",
        help="read files that have other objects than weights and graphs, such as a whole model saved with "
        "torch.save(model). This EXECUTES the code in the files: only for files whose source you trust",
    )
    return parser


def add_method_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the methods."""
    add = parser.add_argument
    add(
        "--method",
        choices=("goat", "guided_shapley"),
        default="goat",
        help="goat: an exact decomposition in a few passes; guided_shapley: Shapley values of edges (default: goat)",
    )
    add("--samples", type=positive, default=64, metavar="N", help="coalitions of guided_shapley (default: %(default)s)")
    places = ("message", "adjacency")
    add("--at", choices=places, help="where masks enter (default: message; guided_shapley: edges are deleted)")
    add(
        "--field", choices=("distinct", "repeated"), default="distinct", help="how gates are shared (default: distinct)"
    )
    add("--gates", choices=("equal", "proportional"), default="equal", help="in what proportion (default: %(default)s)")


def method_of(options: argparse.Namespace, model: Module) -> GOAtAttribution | GuidedShapley:
    """Return the method with the options of the command line."""
    if options.method == "guided_shapley":
        return GuidedShapley(model, n_samples=options.samples, at=options.at)
    return GOAtAttribution(model, options.field, at=options.at, gates=options.gates)


def load_sources(options: argparse.Namespace) -> tuple[Module, Sequence[Data]]:
    """Load the model, in evaluation mode, and the graphs; both to the CPU."""
    model = load_model(options.model, options.class_name, options.arguments, trust_pickle=options.trust_pickle)
    return model, load_graphs(options.data, trust_pickle=options.trust_pickle)


def run_command(
    parser: argparse.ArgumentParser,
    arguments: Sequence[str] | None,
    run: Callable[[Any], int],
    interrupted: str = "Interrupted.",
) -> int:
    """Parse the command line, run a command, print its errors, and return its exit code."""
    try:
        options = parser.parse_args(arguments)
        if options.trust_pickle:
            print("Warning: --trust-pickle executes whatever code is in the files.", file=sys.stderr)
        return run(options)
    except ERRORS as error:
        print(f"{type(error).__name__}: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(interrupted, file=sys.stderr)
        return 130


def target_type(names: Sequence[str], none: str) -> Callable[[str], str | int | None]:
    """Return the type of an option ``--target``: some names, one of which means ``None``, or a class."""

    def read(text: str) -> str | int | None:
        if text in names:
            return None if text == none else text
        try:
            return int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"expected {', '.join(names)} or a class (got {text!r})") from None

    return read


def check_device(device: torch.device) -> None:
    """Raise ValueError if a device is not available."""
    try:
        torch.zeros(1, device=device)
    except (AssertionError, NotImplementedError, RuntimeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(f"Expected an available device for --device (got {device}: {reason}).") from error


def positive(text: str) -> int:
    """Read an integer of at least 1; the type of an option."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected 1 or more (got {text})")
    return number
