"""What is said of models that cannot be explained exactly."""

from __future__ import annotations


class UnsupportedModelError(RuntimeError):
    """The model does something that GOAt cannot explain exactly.

    Examples::

        >>> import torch
        >>> from torch_geometric.nn import GCN
        >>> from captum_goat import GOAtAttribution, UnsupportedModelError
        >>> model = GCN(2, 4, num_layers=2, out_channels=2, act=torch.sin).eval()
        >>> try:
        ...     GOAtAttribution(model).attribute(torch.ones(1), (1, 0), (torch.ones(2, 2), torch.tensor([[0], [1]])))
        ... except UnsupportedModelError as error:
        ...     print(str(error).split(" is applied")[0])
        'sin' in the model (GCN)
    """


def no_rule(operation: str, place: str) -> UnsupportedModelError:
    """Return the error for an operation without a rule that has a part in what matters."""
    return UnsupportedModelError(
        f"'{operation}' in {place} is applied to values that depend on what is attributed, and there is no rule for "
        f"it: it is not linear, or random, or not known here. If it is an activation, a norm or attention, give its "
        f"module or function a rule in one line: captum_goat.rules.gate, .scale or .freeze. Otherwise replace it; "
        f"docs/rules.md lists what is known."
    )


def by_hand(what: str, place: str) -> UnsupportedModelError:
    """Return the error for messages that no layer has passed."""
    return UnsupportedModelError(
        f"The model passes messages by hand ({what}, in {place}), where they cannot be masked. Let a layer that "
        f"derives from torch_geometric.nn.MessagePassing do it."
    )
