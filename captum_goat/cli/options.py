"""The options that the commands share."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch.nn import Module
from torch_geometric.data import Data

from captum_goat.cli.saved_files import load_graphs, load_model


def add_sources(parser: argparse.ArgumentParser, required: bool = True) -> None:
    """Add the options that say where the model and the graphs are."""
    add = parser.add_argument
    weights = "the model's weights, saved from model.state_dict()"
    add("--model", type=Path, required=required, metavar="FILE", help=weights)
    add("--class", dest="class_name", metavar="MODULE:CLASS", help="the model's class")
    add("--arguments", metavar="JSON", help="arguments of the class: an object or a list (default: none)")
    add(
        "--data",
        type=Path,
        required=required,
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


def add_choice_of_nodes(parser: argparse.ArgumentParser) -> None:
    """Add the options ``--nodes`` and ``--quiet``."""
    parser.add_argument(
        "--nodes",
        type=int,
        nargs="*",
        metavar="NODE",
        help="explain these nodes of one graph, or all if none are given, of a model with a row of output per node",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def only_graph(graphs: Sequence[Data]) -> Data:
    """Return the one graph whose nodes are explained; raise ValueError if there are several."""
    if len(graphs) != 1:
        raise ValueError(f"Expected one graph for --nodes (got {len(graphs)}).")
    return graphs[0]


def load_sources(options: argparse.Namespace) -> tuple[Module, Sequence[Data]]:
    """Load the model, in evaluation mode, and the graphs; both to the CPU."""
    model = load_model(options.model, options.class_name, options.arguments, trust_pickle=options.trust_pickle)
    return model, load_graphs(options.data, trust_pickle=options.trust_pickle)


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
