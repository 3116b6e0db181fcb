"""Errors for models that cannot be explained exactly."""

from __future__ import annotations


class UnsupportedModelError(RuntimeError):
    """The model does something that GOAt cannot explain exactly.

    Examples:
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


class NoPolynomialError(UnsupportedModelError):
    """The output depends on an operation without a rule; ``call`` is its number if it can be rewritten all the same."""

    def __init__(self, operation: str, place: str, call: int | None = None) -> None:
        super().__init__(
            f"'{operation}' in {place} is applied to values that depend on what is attributed, and there is no rule "
            f"for it: it is nonlinear, random or unknown. If it is an activation, a norm or attention, give its module "
            f"or function a rule in one line: captum_goat.rules.gate, .scale or .freeze. Otherwise replace it; "
            f"docs/rules.md lists the supported operations."
        )
        self.call = call


def by_hand(what: str, place: str) -> UnsupportedModelError:
    """Return the error for message passing outside of layers."""
    return UnsupportedModelError(
        f"The model passes messages by hand ({what}, in {place}), where they cannot be masked. Gather values of "
        f"nodes by one end of the edges and scatter them by the other end, row by row (docs/rules.md); or declare the "
        f"function or module that returns the messages, with all sums over edges that they depend on inside of it, by "
        f"captum_goat.rules.message; or let a layer that derives from torch_geometric.nn.MessagePassing do it."
    )
