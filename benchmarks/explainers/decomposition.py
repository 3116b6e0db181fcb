"""A forward pass in two parts, what comes from a group of nodes and the rest: the rules of DEGREE."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Module
from torch.overrides import TorchFunctionMode
from torch_geometric.nn import MessagePassing

from benchmarks.explainers.graph_copies import repeat_graphs
from captum_goat import UnsupportedModelError
from captum_goat.compare.graphs import Graphs
from captum_goat.rules.operations import is_inplace, spellings

# What treats rows one by one or moves them, and maps the sum of two inputs to the sum of the results.
_SUM_NAMES = "add __add__ __radd__ __iadd__"
_PRODUCT_NAMES = "mul __mul__ __rmul__ __imul__ div __truediv__ matmul __matmul__ mm"
_MOVE_NAMES = """sub __sub__ __isub__ neg index_select __getitem__ index_add scatter_add gather cat concat stack view
view_as reshape flatten expand expand_as squeeze unsqueeze t transpose permute contiguous clone to float double"""
# f(0) = 0, entry by entry: the group's part of f(group + rest) is f(group).
_ACTIVATION_NAMES = "relu leaky_relu elu tanh dropout"

_SUMS, _PRODUCTS, _OTHERS = (
    frozenset(spellings(*names.split()))
    for names in (_SUM_NAMES, _PRODUCT_NAMES, f"{_SUM_NAMES} {_MOVE_NAMES} {_ACTIVATION_NAMES}")
)


class Decomposition(NamedTuple):
    """The logits in two parts, one row per group of nodes.

    Attributes:
        part: What comes from the group, ``[K, G, C]``.
        rest: What comes from the other nodes, ``[K, G, C]``.
    """

    part: Tensor
    rest: Tensor


def decompose(model: Module, graphs: Graphs, groups: Tensor) -> Decomposition:
    r"""Decompose the logits into the part of a group of nodes and the rest, for several groups at once.

    All features are written as :math:`x = \gamma + \beta`, at first the features of the group's nodes and those of the
    others. Message passing and weights apply to both. A bias is shared between them,

    .. math:: \gamma' = \gamma W + b \, \frac{|\gamma W|}{|\gamma W| + |\beta W|},

    batch normalisation is a scale and a bias, and :math:`\gamma' = \mathrm{ReLU}(\gamma)`, :math:`\beta' =
    \mathrm{ReLU}(\gamma + \beta) - \mathrm{ReLU}(\gamma)`. Two cases are not in the paper: where :math:`\gamma W =
    \beta W = 0` a bias is shared in proportion to the numbers of nodes, and ``F.normalize`` divides both parts by the
    length of their sum.

    The graph and its :math:`\gamma`, one for each group, go through the model side by side, as one batch; what is
    listed above is done by a function mode, so that there is no code for any particular architecture.

    Source: Feng, Liu, Yang, Tang, Du, Hu: *DEGREE: Decomposition Based Explanation for Graph Neural Networks*, ICLR
    2022.

    Args:
        model: A model in evaluation mode whose weights ask for no gradients.
        graphs: The graphs.
        groups: The groups of nodes, bool ``[K, N]``; in each graph of a batch a group of its own.

    Returns:
        The two parts. They add up to the model's logits.

    Raises:
        UnsupportedModelError: If the model does something for which there is no rule.

    Examples::

        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from benchmarks.explainers.decomposition import decompose
        >>> from captum_goat.compare.graphs import Graphs
        >>> from captum_goat.models import GraphClassifier
        >>> model = GraphClassifier("sage", in_channels=1, hidden_channels=4, num_classes=2)
        >>> _ = model.eval().requires_grad_(False)
        >>> data = Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0, 1], [1, 2]]))
        >>> groups = torch.tensor([[True, True, False], [True, True, True]])
        >>> part, rest = decompose(model, Graphs.of(data, torch.tensor([0])), groups)
        >>> torch.allclose(part + rest, model(data.x, data.edge_index).expand(2, 1, 2))
        True
        >>> bool(rest[1].abs().max() < 1e-6)  # of all nodes nothing is left
        True
    """
    nodes = groups.size(1)
    everything, nothing = groups.new_ones(1, nodes), groups.new_zeros(1, nodes)
    rows = torch.cat([everything, nothing, groups]).to(graphs.x.dtype)
    copies = repeat_graphs(graphs, len(rows))
    mode = _Parts(graphs, rows)
    with torch.enable_grad(), mode.watching(model), mode:
        features = copies.x * rows.reshape(-1, 1)
        out = model(features.requires_grad_(), copies.edge_index, copies.batch)
    logits = out.detach().view(len(rows), len(graphs.target), -1)
    _check(logits, model(*graphs.inputs))
    return Decomposition(logits[2:], logits[0] - logits[2:])


def _check(logits: Tensor, expected: Tensor) -> None:
    near = torch.finfo(expected.dtype).eps ** 0.5 * float(expected.abs().max() + 1)
    for output, wanted in ((logits[0], expected), (logits[1], torch.zeros_like(expected))):
        if not torch.allclose(output, wanted, rtol=0.0, atol=near):
            raise UnsupportedModelError(
                "DEGREE cannot decompose this model: it adds something that is neither a bias nor a feature of the "
                "nodes, so that a part of nothing is not nothing. Explain it by another method."
            )


class _Parts(TorchFunctionMode):
    """Run a model on C copies of graphs side by side: the whole graphs, then the parts of groups of nodes.

    Weights are constants here, so what asks for gradients is what depends on the features.
    """

    def __init__(self, graphs: Graphs, rows: Tensor) -> None:
        super().__init__()
        self.count = len(rows)
        in_graph = rows.new_zeros(len(rows), len(graphs.target)).index_add_(1, graphs.batch, rows)
        of_graph = in_graph / in_graph[:1]
        self.shares = {graphs.x.size(0): of_graph[:, graphs.batch], len(graphs.target): of_graph}  # by number of rows
        self.depth = 0  # inside of message passing

    @contextmanager
    def watching(self, model: Module) -> Iterator[None]:
        """Track whether the model is inside of a message passing layer."""

        def change(by: int) -> Callable[..., None]:
            def hook(*_: Any) -> None:
                self.depth += by

            return hook

        with ExitStack() as hooks:
            for layer in model.modules():
                if isinstance(layer, MessagePassing):
                    hooks.callback(layer.register_propagate_forward_pre_hook(change(1)).remove)
                    hooks.callback(layer.register_propagate_forward_hook(change(-1)).remove)
            yield

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = [tensor for tensor in _tensors((*args, *kwargs.values())) if tensor.requires_grad]
        if not given:
            return func(*args, **kwargs)
        if func is F.linear:
            return self._linear(*args, **kwargs)
        if func is F.normalize:
            return self._normalize(*args, **kwargs)
        if func is F.batch_norm:
            return self._batch_norm(*args, **kwargs)
        if func in _SUMS and len(given) == 1 and len(args) == 2 and not kwargs:
            constant = args[1] if args[0] is given[0] else args[0]
            out = self._with_bias(given[0], constant)
            return given[0].copy_(out) if is_inplace(func, args, kwargs) else out
        out = func(*args, **kwargs)
        allowed = func in _OTHERS or (func in _PRODUCTS and len(given) == 1)
        if (_depends(out) or func is Tensor.detach) and not allowed:
            raise UnsupportedModelError(
                f"DEGREE has no rule for '{getattr(func, '__name__', func)}' (its rules are for linear layers, message "
                f"passing that adds up, batch normalisation, F.normalize and ReLU). Explain this model by another "
                f"method."
            )
        return out

    def _linear(self, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        out = F.linear(input, weight)
        return out if bias is None else self._with_bias(out, bias)

    def _normalize(self, input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: None = None) -> Tensor:
        value = self._copies(input)
        if dim % input.dim() == 0:
            raise UnsupportedModelError("DEGREE has no rule for F.normalize over the nodes (dim=0).")
        length = value[0].norm(p, dim % input.dim(), keepdim=True)
        normal: Tensor = value / length.clamp_min(eps)
        return normal.view_as(input)

    def _batch_norm(
        self,
        input: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Tensor:
        if training or running_mean is None or running_var is None:
            raise UnsupportedModelError("DEGREE has no rule for batch normalisation by the statistics of the batch.")
        scale = (running_var + eps).rsqrt() * (1.0 if weight is None else weight)
        return self._with_bias(input * scale, (0.0 if bias is None else bias) - running_mean * scale)

    def _with_bias(self, value: Tensor, bias: Any) -> Tensor:
        """Add a constant, shared between the parts in proportion to their sizes."""
        parts = self._copies(value)
        if isinstance(bias, Tensor) and bias.dim() == value.dim() and bias.size(0) == value.size(0):
            bias = self._copies(bias)  # one for each row
        size, rest = parts.abs(), (parts[:1] - parts).abs()
        share = self.shares[parts.size(1)].view(*parts.shape[:2], *[1] * (parts.dim() - 2))
        share = torch.where(size + rest == 0, share, size / (size + rest))
        out: Tensor = parts + bias * share
        return out.view_as(value)

    def _copies(self, value: Tensor) -> Tensor:
        """Return the rows of every copy, ``[C, rows, ...]``."""
        rows = value.size(0) // self.count
        if self.depth or rows * self.count != value.size(0) or rows not in self.shares:
            raise UnsupportedModelError(
                "DEGREE has rules for biases and norms of nodes and of graphs (got some inside of messages, or with "
                "other rows). Explain this model by another method."
            )
        return value.reshape(self.count, rows, *value.shape[1:])


def _tensors(arguments: tuple[Any, ...]) -> Iterator[Tensor]:
    for argument in arguments:
        if isinstance(argument, Tensor):
            yield argument
        elif isinstance(argument, list | tuple):
            yield from _tensors(tuple(argument))


def _depends(out: Any) -> bool:
    return any(tensor.requires_grad for tensor in _tensors((out,)))
