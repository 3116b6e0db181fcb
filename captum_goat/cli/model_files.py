"""Models from files: weights and the class that they belong to; or, for who trusts the file, a pickled model."""

from __future__ import annotations

import json
import zipfile
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch.nn import Module

from captum_goat.cli.safe_files import safe_load

# Under these names training scripts put weights beside other things.
WEIGHTS_KEYS = ("state_dict", "model_state_dict", "model")


def load_model(
    path: Path, class_name: str | None = None, arguments: str | None = None, *, trust_pickle: bool = False
) -> Module:
    """Load a model, in evaluation mode.

    Args:
        path: A file with the model's weights (its ``state_dict()``, alone or in a checkpoint); or, without
            ``class_name``, with the whole model.
        class_name: The model's class, ``module:ClassName``.
        arguments: What the class is called with, in JSON: an object for keyword arguments, or a list.
        trust_pickle: Whether to unpickle a whole model, which executes whatever the file says.

    Returns:
        The model, on the CPU.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file has something else, or if it does not fit the class.
    """
    if not path.is_file():
        raise FileNotFoundError(f"Expected a model in {path} (got no such file).")
    _check_kind(path)
    if class_name is None:
        if not trust_pickle:
            raise ValueError(
                f"Expected the class of the model whose weights are in {path} (got none). Pass --class "
                "module:ClassName; or --trust-pickle if the file has the whole model and comes from whom you trust."
            )
        model = torch.load(path, map_location="cpu", weights_only=False)
        if not isinstance(model, Module):
            raise ValueError(f"Expected a whole model in {path} (got {type(model).__name__}). Pass its --class, too.")
        return model.eval()
    found = find_class(class_name)
    if not issubclass(found, Module):
        raise ValueError(f"Expected {class_name} to be a torch.nn.Module (got another class). It was not called.")
    weights = _weights(path)
    positional, keywords = _given(arguments)
    try:
        made: Module = found(*positional, **keywords)
    except TypeError as error:
        raise ValueError(f"Expected --arguments that {class_name} takes (got {arguments}). {error}") from error
    try:
        made.load_state_dict(weights)
    except RuntimeError as error:
        raise ValueError(f"Expected the weights of {class_name} in {path} (got others). {error}") from error
    return made.eval()


def _weights(path: Path) -> dict[str, Any]:
    content = safe_load(path, "weights and nothing else", "Save model.state_dict().")
    for key in WEIGHTS_KEYS:
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict):
        raise ValueError(f"Expected a state_dict() in {path} (got {type(content).__name__}).")
    return content


def find_class(name: str) -> type[Any]:
    """Import a class, without calling it.

    Args:
        name: ``module:ClassName``.

    Raises:
        ValueError: If there is no such thing, or if it is something else than a class.
    """
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise ValueError(f"Expected a class as module:ClassName (got {name!r}).")
    try:
        found = reduce(getattr, attribute.split("."), import_module(module))
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"Expected {name} to be importable (got: {error}). The current folder and PYTHONPATH are searched."
        ) from error
    if not isinstance(found, type):
        raise ValueError(f"Expected {name} to be a class (got a {type(found).__name__}). It was not called.")
    return found


def _given(arguments: str | None) -> tuple[list[Any], dict[str, Any]]:
    """Return arguments by position and by name."""
    try:
        given = json.loads(arguments or "{}")
    except json.JSONDecodeError as error:
        raise ValueError(f"Expected --arguments in JSON (got {arguments!r}: {error}).") from error
    if not isinstance(given, dict | list):
        raise ValueError(f"Expected --arguments to be a JSON object or list (got {arguments!r}).")
    return (given, {}) if isinstance(given, list) else ([], given)


def _check_kind(path: Path) -> None:
    """Refuse programs that were made from models: they have the operations, but no message passing layers."""
    if not zipfile.is_zipfile(path):
        return
    with zipfile.ZipFile(path) as file:
        names = {name.rpartition("/")[2] for name in file.namelist()}
    kind = "a TorchScript program" if "constants.pkl" in names else "an exported program"
    if "constants.pkl" in names or "data.pkl" not in names:
        raise ValueError(
            f"Expected a model in {path} (got {kind}). GOAt follows the messages of MessagePassing layers, and a "
            "program has only the operations that they did. Save model.state_dict() of the model it was made from."
        )
