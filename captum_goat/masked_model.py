"""A PyG model as a function of edge masks, for any method that explains functions of tensors."""

from __future__ import annotations

import sys
from typing import Any, Literal

import torch
from captum.attr._utils.attribution import PerturbationAttribution
from torch import Tensor
from torch.nn import Module
from torch_geometric.data.data import BaseData

from captum_goat.adjacency.mask_entry import ENTRIES, check_deletion, masked_output
from captum_goat.hooks.global_state import restores_state
from captum_goat.hooks.interception import check_caches
from captum_goat.inputs.arguments import check_masks, number_of_masks
from captum_goat.inputs.copies import copies_agree, fallback_to_single_runs
from captum_goat.inputs.graph_inputs import GraphInputs, Selector, tensor_output
from captum_goat.tracking.program import Program, ProgramStore


class EdgeMaskedModel(Module):
    r"""A graph model as a function of an edge mask.

    With ``at="message"`` the mask multiplies the messages of every message passing layer, after degree normalisation
    and attention: an edge with mask 0 sends nothing, but still counts in the degrees. Self-loops that a layer adds
    itself are not edges of the graph and are not masked; self-loops in ``edge_index`` are.

    With ``at="adjacency"`` the mask is the presence of the edge, and enters every sum over edges: messages, degrees,
    the number of messages in a mean, the denominator of attention (see :mod:`captum_goat.adjacency.presence`). For
    masks of zeros and ones the output is that of the model on the graph without the edges of mask 0. Where a layer puts
    self-loops of its own in place of the graph's, it does so in place of those that are left. In between the layers'
    own formulas hold: the mean, for one, is that of PyG, ``sum(mask * message) / max(sum(mask), 1)``, which goes to 0
    with the mask. Layers that bring edges together in another way, such as by a maximum, are refused, and so are models
    that do not run without some of their edges, or that are not the same without them as with them masked to 0.

    The model is called as it is and left as it was.

    Args:
        model: A model built of :class:`torch_geometric.nn.MessagePassing` layers.
        at: ``"message"`` or ``"adjacency"``: where the mask enters.
        data: The graph, if it is always the same: a :class:`~torch_geometric.data.Data`, ``HeteroData`` or ``Batch``,
            or a tuple of the model's own arguments. Then the mask is the only argument of calls.
        output: The part of the model's output that counts, if that is no tensor: a position in a tuple or list, a key
            of a dictionary, the name of an attribute, a tuple of these that leads further inside, or a function of the
            output.

    Examples:
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
        >>> from captum.attr import IntegratedGradients
        >>> masked = EdgeMaskedModel(conv, data=(x, edge_index))  # the graph is bound: the mask is the only argument
        >>> IntegratedGradients(masked).attribute(torch.ones(1, 2), target=(2, 0))
        tensor([[ 1., 10.]])
    """

    def __init__(
        self,
        model: Module,
        at: Literal["message", "adjacency"] = "message",
        data: BaseData | tuple[Any, ...] | None = None,
        output: Selector = None,
    ) -> None:
        check_at(at)
        if not isinstance(model, Module):
            raise TypeError(f"Expected a model, torch.nn.Module (got {type(model).__name__}).")
        if data is not None and not isinstance(data, BaseData | tuple):
            kinds, got = "Data, HeteroData or Batch, or a tuple of the model's arguments", type(data).__name__
            raise TypeError(f"Expected data to be a torch_geometric {kinds} (got {got}).")
        super().__init__()
        self.model = getattr(model, "_orig_mod", model)  # the module behind torch.compile
        self.at = at
        self.output = output
        self.bound = data if isinstance(data, tuple) or data is None else (data,)
        self._checked = False
        self._programs = ProgramStore[Program]()

    @restores_state
    def forward(self, edge_mask: Tensor | dict[Any, Tensor], *args: Any, **kwargs: Any) -> Tensor:
        r"""Call the model with its messages masked.

        Args:
            edge_mask: ``[E]``, one number per edge, or ``[B, E]``, B masks of one graph. For a model with several sets
                of edges a dictionary of such masks, by edge type or by the name of the argument that holds the edges;
                or the first of them, if the others follow in ``args``.
            *args: The model's own arguments, without the mask, unless the graph is bound; before them, if there are
                several sets of edges and ``edge_mask`` is a tensor, the masks of the other sets in their order.
            **kwargs: The model's own keyword arguments.

        Returns:
            The model's own output for a mask ``[E]``. For masks ``[B, E]`` one row per mask if the model returns one
            row for the graph, else ``[B, rows, ...]``.
        """
        if isinstance(edge_mask, dict):
            masks, args = tuple(edge_mask.values()), with_bound(self.bound, args, kwargs)
        elif self.bound is not None:
            are_masks = all(isinstance(value, Tensor) and value.is_floating_point() for value in args)
            masks, args = (edge_mask, *args), with_bound(self.bound, () if are_masks else args, kwargs)
        else:
            number = number_of_masks(self.model, (edge_mask, *args), kwargs)
            masks, args = (edge_mask, *args[: number - 1]), args[number - 1 :]
        check_masks(masks)
        sizes = [mask.size(-1) for mask in masks]
        names = dict(zip(edge_mask, sizes, strict=True)) if isinstance(edge_mask, dict) else None
        count = len(masks[0]) if masks[0].dim() == 2 else 1
        graph = GraphInputs.of(self.model, args, kwargs, names or sizes, count=count, output=self.output)
        check_caches(self.model, lambda: tensor_output(graph()))
        if not self._checked:
            self._checked = check_deletion(graph, ENTRIES[self.at])
        if masks[0].dim() == 1:
            self._check_not_perturbed()
            return self._output(graph, torch.cat(masks))
        output = self._outputs(graph, masks)
        return output.squeeze(1) if output.dim() > 1 and output.size(1) == 1 else output

    def _check_not_perturbed(self) -> None:
        """Raise ValueError if a perturbation method of Captum calls this model with one mask ``[E]``.

        It would take the entries for examples, change all at once, and return one number in place of one per edge.
        """
        frame = sys._getframe(1)
        while (caller := frame.f_back) is not None:
            frame = caller
            if frame.f_globals.get("__name__", "").startswith("captum.attr."):
                method = frame.f_locals.get("self")
                if isinstance(method, PerturbationAttribution) and method.forward_func is self:
                    raise ValueError(
                        f"Expected masks of shape [num_masks, num_edges], because {type(method).__name__} takes "
                        f"dimension 0 for examples (got [num_edges]). Pass mask.unsqueeze(0)."
                    )

    def _output(self, graph: GraphInputs, mask: Tensor, count: int = 1) -> Tensor:
        return masked_output(graph, mask, ENTRIES[self.at], count, self._programs)

    def _outputs(self, graph: GraphInputs, masks: tuple[Tensor, ...]) -> Tensor:
        """Return the outputs for masks ``[B, E]``, ``[B, rows, ...]``."""
        count, rows = len(masks[0]), torch.cat(masks, dim=1)
        # Alone first, and with gradients: hooks of DeepLift and GuidedBackprop see both calls and keep the latter.
        last = self._output(graph, rows[-1])
        if count == 1:
            return last.unsqueeze(0)
        last = last.detach()
        with fallback_to_single_runs():
            together = self._output(graph.copies(count), torch.cat([mask.reshape(-1) for mask in masks]), count)
            if copies_agree(together.detach(), last, count):
                return together.view(count, -1, *together.shape[1:])
        return torch.stack([self._output(graph, row) for row in rows])


def check_at(at: Any) -> None:
    """Raise ValueError if ``at`` is not a place where a mask can enter."""
    if at not in ("message", "adjacency"):
        raise ValueError(f"Expected at to be 'message' or 'adjacency' (got {at!r}).")


def with_bound(
    bound: tuple[Any, ...] | None, arguments: tuple[Any, ...], kwargs: dict[str, Any] | None = None
) -> tuple[Any, ...]:
    """Return the bound arguments of a model, or else those of a call; raise ValueError if there are both."""
    if bound is None:
        return arguments
    if arguments or kwargs:
        raise ValueError(
            f"Expected no arguments beside the masks, because the EdgeMaskedModel has its graph already (got "
            f"{len(arguments) + len(kwargs or {})}). Leave them out, or make the EdgeMaskedModel without data."
        )
    return bound
