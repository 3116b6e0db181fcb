"""A PyG model as a function of edge masks, for any method that explains functions of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.nn import MessagePassing

from captum_goat.activation_pattern import tensor_output
from captum_goat.adjacency_model import check_deletion, output_of_present
from captum_goat.arguments import number_of_masks
from captum_goat.copied_edges import CopiedEdges
from captum_goat.graph_inputs import GraphInputs
from captum_goat.interception import intercepted
from captum_goat.tracking import EdgeTracker, RowTracker


class EdgeMaskedModel(Module):
    r"""A graph model as a function of an edge mask.

    With ``at="message"`` the mask multiplies the messages of every message passing layer, after degree normalisation
    and attention: an edge with mask 0 sends nothing, but still counts in the degrees. Self-loops that a layer adds
    itself are not edges of the graph and are not masked; self-loops in ``edge_index`` are.

    With ``at="adjacency"`` the mask is the presence of the edge, and enters every sum over edges: messages, degrees,
    the number of messages in a mean, the denominator of attention (see :mod:`captum_goat.adjacency`). For masks of
    zeros and ones the output is that of the model on the graph without the edges of mask 0. Where a layer puts
    self-loops of its own in place of the graph's, it does so in place of those that are left. In between the layers'
    own formulas hold: the mean, for one, is that of PyG, ``sum(mask * message) / max(sum(mask), 1)``, which goes to 0
    with the mask. Layers that bring edges together in another way, such as by a maximum, are refused, and so are models
    that do not run without some of their edges, or that are not the same without them as with them masked to 0.

    The model is called as it is and left as it was.

    Args:
        model: A model built of :class:`torch_geometric.nn.MessagePassing` layers.
        at: ``"message"`` or ``"adjacency"``: where the mask enters.

    Examples::

        >>> import torch
        >>> from torch_geometric.nn import GraphConv
        >>> from captum_goat import EdgeMaskedModel
        >>> conv = GraphConv(1, 1, bias=False)
        >>> _ = conv.requires_grad_(False).lin_rel.weight.fill_(1.0), conv.lin_root.weight.fill_(0.0)
        >>> x = torch.tensor([[1.0], [10.0], [100.0]])
        >>> edge_index = torch.tensor([[0, 1], [2, 2]])
        >>> EdgeMaskedModel(conv)(torch.tensor([1.0, 0.5]), x, edge_index)[2]
        tensor([6.])
        >>> mean = GraphConv(1, 1, aggr="mean", bias=False)
        >>> _ = mean.load_state_dict(conv.state_dict())
        >>> for at in ("message", "adjacency"):
        ...     EdgeMaskedModel(mean, at=at)(torch.tensor([1.0, 0.0]), x, edge_index)[2].detach()
        tensor([0.5000])
        tensor([1.])
    """

    def __init__(self, model: Module, at: Literal["message", "adjacency"] = "message") -> None:
        check_at(at)
        super().__init__()
        self.model = model
        self.at = at
        self._checked = False

    def forward(self, edge_mask: Tensor | dict[Any, Tensor], *args: Any, **kwargs: Any) -> Tensor:
        r"""Call the model with its messages masked.

        Args:
            edge_mask: ``[E]``, one number per edge, or ``[B, E]``, B masks of one graph. For a model with several sets
                of edges a dictionary of such masks, by edge type or by the name of the argument that holds the edges;
                or the first of them, if the others follow in ``args``.
            *args: The model's own arguments, without the mask; before them, if there are several sets of edges and
                ``edge_mask`` is a tensor, the masks of the other sets in their order.
            **kwargs: The model's own keyword arguments.

        Returns:
            The model's own output for a mask ``[E]``. For masks ``[B, E]`` one row per mask if the model returns one
            row for the graph, else ``[B, rows, ...]``.
        """
        if isinstance(edge_mask, dict):
            masks = tuple(edge_mask.values())
        else:
            number = number_of_masks(self.model, (edge_mask, *args), kwargs)
            masks, args = (edge_mask, *args[: number - 1]), args[number - 1 :]
        check_masks(masks)
        sizes = [mask.size(-1) for mask in masks]
        names = dict(zip(edge_mask, sizes, strict=True)) if isinstance(edge_mask, dict) else None
        count = len(masks[0]) if masks[0].dim() == 2 else 1
        graph = GraphInputs.of(self.model, args, kwargs, names or sizes, count=count)
        if self.at == "adjacency" and not self._checked:
            self._checked = check_deletion(graph)
        return self._output(graph, torch.cat(masks)) if masks[0].dim() == 1 else self._many(graph, masks)

    def _output(self, graph: GraphInputs, mask: Tensor, count: int = 1) -> Tensor:
        return (masked_output if self.at == "message" else output_of_present)(graph, mask, count)

    def _many(self, graph: GraphInputs, masks: tuple[Tensor, ...]) -> Tensor:
        if len(masks[0]) == 1:
            output = self._output(graph, torch.cat(masks, dim=1)[0]).unsqueeze(0)
        else:
            output = self._side_by_side(graph, masks)
        return output.squeeze(1) if output.dim() > 1 and output.size(1) == 1 else output

    def _side_by_side(self, graph: GraphInputs, masks: tuple[Tensor, ...]) -> Tensor:
        count, rows = len(masks[0]), torch.cat(masks, dim=1)
        # Alone first, and with gradients: hooks of DeepLift and GuidedBackprop see both calls and keep the latter.
        last = self._output(graph, rows[-1]).detach()
        with suppress(Exception):  # copies may not fit a model (an embedding per node, say) that takes the graph alone
            together = self._output(graph.copies(count), torch.cat([mask.reshape(-1) for mask in masks]), count)
            if copies_agree(together.detach(), last, count):
                return together.view(count, -1, *together.shape[1:])
        return torch.stack([self._output(graph, row) for row in rows])


def masked_output(graph: GraphInputs, mask: Tensor, count: int = 1) -> Tensor:
    """Call a model with the messages of its edges multiplied by a mask ``[E]``.

    Args:
        graph: The graph, or copies of it side by side.
        mask: The mask.
        count: The number of copies.

    Raises:
        ValueError: If the output for one copy depends on the edges of another one.
    """
    tracker = RowTracker({module: name for name, module in graph.model.named_modules()})
    edge_tracker, copies = EdgeTracker(tracker, graph.edge_sets), CopiedEdges(tracker, graph.edge_sets, count)

    def on_message(layer: MessagePassing, edge_index: Any, messages: Tensor) -> Tensor:
        tracker.check_by_layers(messages)
        call = edge_tracker.follow(layer, edge_index, messages)
        masked = messages * call.factor(mask)
        copies.mark(masked, messages, call)
        return masked

    with (
        intercepted(
            graph.model, on_message=on_message, on_layer=edge_tracker.enter, around_propagate=tracker.around_propagate
        ),
        tracker,
    ):
        output = tensor_output(graph())
    edge_tracker.check_seen()
    tracker.check_by_layers(output)
    copies.check(output)
    return output


def copies_agree(together: Tensor, last: Tensor, count: int) -> bool:
    """Return whether the output for copies of a graph side by side ends with that for the last graph alone.

    A model may mix the graphs of a batch (by a mean over all nodes, say); then its copies are not independent.
    """
    if last.dim() == 0 or together.shape != (count * last.size(0), *last.shape[1:]):
        return False
    precision = torch.finfo(last.dtype).eps ** 0.5
    near = precision * last.abs().max() if last.numel() else 0.0
    return bool(((together[len(together) - len(last) :] - last).abs() <= near).all())


def check_at(at: Any) -> None:
    """Refuse what is no place for a mask."""
    if at not in ("message", "adjacency"):
        raise ValueError(f"Expected at to be 'message' or 'adjacency' (got {at!r}).")


def check_masks(masks: Sequence[Any]) -> None:
    """Refuse what is not one mask per set of edges, each ``[E]``, or each ``[B, E]`` with the same B."""
    for mask in masks:
        check_mask(mask)
    if len({mask.shape[:-1] for mask in masks}) != 1:
        raise ValueError(
            f"Expected masks that are all [num_edges], or all [num_masks, num_edges] with the same number of masks "
            f"(got {[list(mask.shape) for mask in masks]})."
        )


def check_mask(edge_mask: Any) -> None:
    """Refuse what is not a mask ``[E]`` or masks ``[B, E]``."""
    is_numbers = isinstance(edge_mask, Tensor) and edge_mask.is_floating_point()
    if not is_numbers or edge_mask.dim() not in (1, 2) or (edge_mask.dim() == 2 and len(edge_mask) == 0):
        got = (
            f"{edge_mask.dtype} {list(edge_mask.shape)}" if isinstance(edge_mask, Tensor) else type(edge_mask).__name__
        )
        raise ValueError(
            f"Expected an edge mask of floating point numbers, [num_edges] or [num_masks, num_edges] (got {got}). "
            f"torch.ones(edge_index.size(1)) is the usual one."
        )
