"""What is behind the ``forward_func`` that the user hands over."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.explain.algorithm.captum import CaptumHeteroModel, CaptumModel
from torch_geometric.nn import MessagePassing

from captum_goat.hooks.model_state import modules_of, path_of
from captum_goat.inputs.arguments import has_edges
from captum_goat.inputs.graph_inputs import GraphInputs, Selector
from captum_goat.inputs.request import Metadata, Request, count_of, split_inputs
from captum_goat.masked_model import EdgeMaskedModel, check_at, with_bound

_MASK_NAMES = ("node", "edge", "edge_attr")


class ExplainedModel(NamedTuple):
    """A model, what is attributed, and what is done to its output."""

    model: Module  # the user's own
    mask_type: str | None  # "edge", "node", "edge_attr", several of them, or None where the arguments must tell
    finish: Callable[[Any], Any] | None  # applied to the model's output for one graph
    metadata: Metadata | None = None  # the types in whose order inputs are given; None where the arguments must tell
    at: str = "message"  # where an edge mask enters: "message" or "adjacency"
    bound: tuple[Any, ...] | None = None  # the model's arguments, if the graph was bound beforehand
    output: Selector = None  # which part of the model's output is explained

    @classmethod
    def of(
        cls,
        forward_func: Any,
        mask_type: str | Collection[str] | None = None,
        at: str | None = None,
        output: Selector = None,
    ) -> ExplainedModel:
        """Look behind the wrappers that make a model a function of an edge mask."""
        if at is not None:
            check_at(at)
        if isinstance(forward_func, ExplainedModel):
            return forward_func if at is None else forward_func._replace(at=at)
        mask_type = _checked_mask_type(mask_type, at)
        forward_func = getattr(forward_func, "_orig_mod", forward_func)  # the module behind torch.compile
        finish, own, metadata, bound = None, None, None, None
        if isinstance(forward_func, CaptumHeteroModel):
            metadata = tuple(forward_func.node_types), tuple(forward_func.edge_types)
        if isinstance(forward_func, CaptumModel):
            finish, own = _captum_finish(forward_func), forward_func.mask_type.value
            forward_func = forward_func.model
        elif isinstance(forward_func, EdgeMaskedModel):
            if at not in (None, forward_func.at):
                raise ValueError(f"Expected at='{forward_func.at}', as that of the EdgeMaskedModel (got {at!r}).")
            output = forward_func.output if output is None else output
            forward_func, own, at, bound = forward_func.model, "edge", forward_func.at, forward_func.bound
        if None not in (own, mask_type) and own != mask_type:
            raise ValueError(f"Expected mask_type '{own}', as that of the wrapped model (got {mask_type!r}).")
        model = getattr(forward_func, "_orig_mod", forward_func)
        if not isinstance(model, Module):
            raise TypeError(
                f"Expected a torch.nn.Module, an EdgeMaskedModel or torch_geometric's to_captum_model(model, 'edge') "
                f"(got {type(forward_func).__name__}). GOAt looks into the model, which it cannot do with a function."
            )
        has_messages = any(isinstance(module, MessagePassing) for module in model.modules())
        kind = own or mask_type or ("edge" if has_messages or at == "adjacency" else None)
        if at == "adjacency" and kind is not None and "edge" not in kind.split("_and_"):
            raise ValueError(f"Expected at='message' where no edges are attributed (got {at!r}).")
        return cls(model, kind, finish, metadata, at or "message", bound, output)

    def request(self, inputs: Any, arguments: Any) -> Request:
        """Read the arguments of ``attribute``."""
        self.check_evaluating()
        arguments = arguments if isinstance(arguments, tuple) else () if arguments is None else (arguments,)
        arguments = with_bound(self.bound, arguments)
        plain = self.mask_type is None and not has_edges(arguments)
        kind = self.mask_type or ("input" if plain else "edge")
        features, masks, node_types, sizes = split_inputs(kind, inputs, arguments, self.metadata)
        count, attributes = None if plain else count_of(features, masks), kind.endswith("edge_attr")
        leading = len(features) - attributes if node_types is None else node_types
        options: dict[str, Any] = {"leading": leading, "count": count or 1, "attributes": attributes}
        graph = GraphInputs.of(self.model, arguments, num_edges=sizes, output=self.output, **options)
        return Request(graph, features, masks, count, plain, self.finish, self.at)

    def check_evaluating(self) -> None:
        """Raise ValueError if the model is in training mode."""
        for module in modules_of(self.model):
            if module.training:
                raise ValueError(
                    f"Expected a model in evaluation mode, because the gates of one in training mode are random (but "
                    f"{path_of(self.model, module)} is in training mode). Call model.eval() first."
                )


def floating_tensor(model: Module) -> Tensor:
    """Return a tensor with the dtype and on the device of a model's weights."""
    tensors = (tensor for tensor in (*model.parameters(), *model.buffers()) if tensor.is_floating_point())
    return next(tensors, torch.empty(0))


def _checked_mask_type(mask_type: str | Collection[str] | None, at: str | None) -> str | None:
    """Return the names in a mask type in the order of the inputs, with ``"_and_"`` between them."""
    if mask_type is None:
        return None
    names = mask_type.split("_and_") if isinstance(mask_type, str) else list(mask_type)
    if not names or not set(names) <= set(_MASK_NAMES) or len(set(names)) != len(names):
        raise ValueError(
            f"Expected mask_type to be one of {', '.join(_MASK_NAMES)}, or several of them with '_and_' between them "
            f"(got {mask_type!r})."
        )
    if at == "adjacency" and "edge_attr" in names:
        raise ValueError("Expected at='message' where edge attributes are attributed (got 'adjacency').")
    return "_and_".join(name for name in _MASK_NAMES if name in names)


def _captum_finish(wrapper: CaptumModel) -> Callable[[Any], Any] | None:
    index, config = wrapper.output_idx, wrapper.model_config
    binary = config is not None and config.mode.value == "binary_classification"
    if index is None and not binary:
        return None

    def finish(output: Any) -> Any:
        if index is not None:
            single = isinstance(index, int) or index.dim() == 0
            output = output[index].unsqueeze(0) if single else output[index]
        if binary:
            output = output.view(-1, 1)
            output = torch.cat([1 - output, output], dim=-1)
        return output

    return finish
