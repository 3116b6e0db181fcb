"""The options of command lines that take a saved model and saved graphs, and what they name."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from torch.nn import Module
from torch_geometric.data import Data

from captum_goat.cli.graph_files import load_graphs
from captum_goat.cli.model_files import load_model


def add_source_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where model and graphs are."""
    add = parser.add_argument
    add("--model", type=Path, required=True, metavar="FILE", help="the model's weights, as model.state_dict() has them")
    add("--class", dest="class_name", metavar="MODULE:CLASS", help="the model's class")
    add("--arguments", metavar="JSON", help="what the class is called with: an object or a list (default: nothing)")
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
        "torch.save(model). This EXECUTES what the files say: only for files from whom you trust",
    )


def warn_of_trust(options: argparse.Namespace) -> None:
    """Say what ``--trust-pickle`` does, if it was given."""
    if options.trust_pickle:
        print("Warning: --trust-pickle executes whatever code is in the files.", file=sys.stderr)


def load_sources(options: argparse.Namespace) -> tuple[Module, Sequence[Data]]:
    """Load what the options name.

    Args:
        options: What was read from the command line.

    Returns:
        The model, in evaluation mode, and the graphs; both on the CPU.

    Raises:
        FileNotFoundError: If there is nothing.
        ValueError: If there is something else.
    """
    model = load_model(options.model, options.class_name, options.arguments, trust_pickle=options.trust_pickle)
    return model, load_graphs(options.data, trust_pickle=options.trust_pickle)
