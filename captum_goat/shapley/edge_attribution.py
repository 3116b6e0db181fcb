"""What methods that remove edges have in common: the model's output with some of the edges only, and games of edges."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import copy
from itertools import count
from typing import Any, ClassVar

import torch
from captum.attr import Attribution, GradientAttribution
from torch import Tensor
from torch.nn import Module
from torch_geometric.explain.algorithm.captum import CaptumModel

from captum_goat.adjacency.deletion import nearly_equal, running_without_edges, with_edges
from captum_goat.adjacency.mask_entry import ENTRIES, check_deletion, masked_output
from captum_goat.attribution import Explained
from captum_goat.hooks.global_state import outside_inference_mode, restores_state, switch_off_autocast
from captum_goat.hooks.interception import OnCall, intercepted, unchanged
from captum_goat.inputs.copies import fallback_to_single_runs
from captum_goat.inputs.graph_inputs import tensor_output
from captum_goat.inputs.request import Request, flattened
from captum_goat.inputs.targets import Choice, find_target
from captum_goat.masked_model import EdgeMaskedModel
from captum_goat.method.record import record
from captum_goat.method.replay import Subject
from captum_goat.rules.operations import input_of
from captum_goat.rules.registry import Rule
from captum_goat.runs import progress_bar
from captum_goat.shapley.games import Players, edge_keys, games_of_columns, group_keys
from captum_goat.tracking import UnsupportedModelError
from captum_goat.tracking.program import Program, ProgramStore
from captum_goat.wrapped_model import ExplainedModel

_logger = logging.getLogger(__name__)

# The largest number of edges in one call of a model, copies included. Larger calls leave a processor's cache and take
# longer; other devices are faster with large calls.
_EDGES_PER_CALL = {"cpu": 2**14}
_EDGES_PER_CALL_ELSEWHERE = 2**21


class EdgeValues:
    """The explained numbers of a model, ``[G]``, as a function of the edges that are kept.

    There is one number per mask ``[B, E]``, or, for a single mask, one per graph of the batch. A softmax or sigmoid
    that is the model's last step is left out, as GOAt does. Edges that are not kept are deleted (``at="adjacency"``),
    or their messages are masked to 0 (``"message"``); ``None`` for the first where the model runs without edges. With
    ``margin`` the log-odds of a class are explained instead of its logit; ``None`` if there are several classes.
    """

    empty: Tensor  # the numbers without edges
    whole: Tensor  # those with all edges

    def __init__(
        self, request: Request, choice: Choice, at: str | None, margin: bool | None, programs: ProgramStore[Program]
    ) -> None:
        self.request, self._graph, self._finish, self._programs = request, request.graph, request.finish, programs
        self._per_mask = request.count is not None
        self.mask = torch.cat([mask.view(request.count or 1, -1) for mask in request.masks], dim=1)
        self._is_binary = bool(((self.mask == 0) | (self.mask == 1)).all())
        recorded = record(Subject(self._graph.model, self._graph.output_rows, (), (), self.mask.new_empty(0)))
        self._left_out = recorded.left_out
        self.output = self._finished(recorded.output.unsqueeze(0))[0]
        (self.target,) = choice(self.output)
        has_classes = self.output.dim() > 1 and self.output.size(-1) > 1
        if margin and not has_classes:
            raise ValueError(f"Expected an output [..., classes] for margin=True (got {list(self.output.shape)}).")
        self._margin = has_classes if margin is None else margin
        self._index = self._find_index(self.output, self.target)
        self.at = at or "adjacency"
        self._at_once = 1  # it is not known yet whether copies of the graph are independent
        try:
            if not self._is_binary:
                check_deletion(self._graph, ENTRIES[self.at])
            self._evaluate_ends()
        except UnsupportedModelError as error:
            if at is not None:
                raise
            _logger.info("Edges cannot be deleted, so their messages are masked to 0: %s", error)
            self.at = "message"
            self._evaluate_ends()
        self._at_once = self._find_number_of_copies()

    def _evaluate_ends(self) -> None:
        ends = torch.tensor([[False], [True]], device=self.mask.device).expand(2, self.mask.numel())
        self.empty, self.whole = self(ends).unbind()

    def of_target(self, target: Any) -> EdgeValues:
        """Return the numbers of another target."""
        other = copy(self)
        other.target, other._index = target, self._find_index(self.output, target)
        other._evaluate_ends()
        return other

    @property
    def num_games(self) -> int:
        """G, how many numbers are explained."""
        return len(self._index[0])

    def __call__(self, kept: Tensor, advance: Callable[[int], object] = lambda number: None) -> Tensor:
        """Return the explained numbers in double precision, ``[K, G]``, with some of the edges, bool ``[K, B * E]``."""
        rows = kept.reshape(len(kept) * len(self.mask), self.mask.size(1))
        masks = torch.arange(len(rows), device=rows.device) % len(self.mask)
        values = []
        with torch.no_grad():
            for part, number in zip(rows.split(self._at_once), masks.split(self._at_once), strict=True):
                values.append(self._explained(self._run(part, number), number))
                advance(len(part) // len(self.mask))
        return torch.cat(values).view(len(kept), -1).double()

    def with_gradients(self, factors: Tensor, at: str) -> tuple[Tensor, Tensor]:
        """Return the explained numbers in double precision ``[K, G]``, and their derivatives by factors of the masks.

        Factors and derivatives are ``[K, B * E]``. Raise UnsupportedModelError if masks cannot enter there.
        """
        rows = factors.to(self.mask.dtype).reshape(len(factors) * len(self.mask), self.mask.size(1))
        number = torch.arange(len(rows), device=rows.device) % len(self.mask)
        at_once = len(self.mask) if self._at_once > 1 else 1
        values, gradients = [], []
        for part, masks in zip(rows.split(at_once), number.split(at_once), strict=True):
            with torch.enable_grad():
                leaf = part.clone().requires_grad_()
                explained = self._explained(self._masked(leaf * self.mask[masks], at), masks)
                gradients += torch.autograd.grad(explained.sum(), leaf)
            values.append(explained.detach())
        return torch.cat(values).view(len(factors), -1).double(), torch.cat(gradients).view_as(factors)

    def masking_deletes(self) -> bool:
        """Return whether masked messages are all that deleted edges do, as in models without degrees and means."""
        if self.at == "message" or not self._is_binary:
            return self.at == "message"
        some = (torch.arange(self.mask.numel(), device=self.mask.device) % 3 == 0).unsqueeze(0)
        masked, _ = self.with_gradients(some, "message")
        return nearly_equal(masked.to(self.mask.dtype), self(some).to(self.mask.dtype))

    def path_gradients(self, points: int) -> tuple[Tensor, str, bool]:
        """Return the gradients in the middles of equal parts of integrated gradients' path, ``[points, columns]``.

        Also where masks entered, at the adjacency if the model allows that, and whether zeros there delete edges.
        """
        scales = (torch.arange(points, device=self.mask.device) + 0.5) / points
        factors, at = scales.view(-1, 1).expand(-1, self.mask.numel()), "adjacency"
        with suppress(UnsupportedModelError):
            at = "message" if self.masking_deletes() else at
        try:
            return self.with_gradients(factors, at)[1], at, True
        except UnsupportedModelError as error:
            if at == "message":
                raise
            _logger.info("No gradients at the adjacency: %s", error)
            return self.with_gradients(factors, "message")[1], "message", False

    def _run(self, kept: Tensor, number: Tensor) -> Tensor:
        """Return the outputs ``[K, rows, ...]`` with some of the edges of masks, given the number of each mask."""
        if self.at == "message" or not self._is_binary:
            return self._masked(torch.where(kept, self.mask[number], 0.0), self.at)
        graph = with_edges(self._graph.copies(len(kept)), self._side_by_side(kept & (self.mask[number] == 1)))
        with running_without_edges(graph):
            output = tensor_output(run_skipping(self._left_out, graph.model, graph.output_rows))
        return self._finished(_split(output, len(kept)))

    def _masked(self, masks: Tensor, at: str) -> Tensor:
        """Return the outputs ``[K, rows, ...]`` for masks ``[K, E]``."""
        graph, count = self._graph.copies(len(masks)), len(masks)
        on_call = _skipping(self._left_out)
        programs = self._programs if on_call is None else None
        output = masked_output(graph, self._side_by_side(masks), ENTRIES[at], count, programs, on_call)
        return self._finished(_split(output.view(1) if output.dim() == 0 else output, count))

    def _finished(self, outputs: Tensor) -> Tensor:
        if self._finish is None:
            return outputs
        return torch.stack([tensor_output(self._finish(output)) for output in outputs])

    def _explained(self, outputs: Tensor, number: Tensor) -> Tensor:
        """Return the explained numbers, ``[K, G]``, or ``[K]`` if there is one number per mask."""
        index: tuple[Any, ...] = (slice(None), *self._index)
        if self._per_mask:
            index = (torch.arange(len(outputs), device=outputs.device), *(position[number] for position in self._index))
        chosen: Tensor = outputs[index]
        if not self._margin:
            return chosen
        logits = outputs[index[:-1]]
        others = logits.scatter(-1, index[-1].expand(chosen.shape).unsqueeze(-1), float("-inf"))
        return chosen - others.logsumexp(dim=-1)

    def _side_by_side(self, values: Tensor) -> Tensor:
        """Return values ``[K, E]`` in the order of the edges of K copies of the graph."""
        sizes = [edges.size(1) for edges in self._graph.edge_sets]
        return torch.cat([part.reshape(-1) for part in values.split(sizes, dim=1)])

    def _find_index(self, output: Tensor, target: Any) -> tuple[Tensor, ...]:
        """Return where the explained numbers are in the output for one mask."""
        if not self._per_mask:
            return find_target(output, target).index
        masks = len(self.mask)
        (targets,) = zip(*(Choice([target]).of_mask(number, masks)(output) for number in range(masks)), strict=True)
        indices = [find_target(output, one, copies=1).index for one in targets]
        return tuple(torch.cat(parts) for parts in zip(*indices, strict=True))

    def _find_number_of_copies(self) -> int:
        """Return how many copies of the graph fit into one call of the model: 1 if they are not independent."""
        size = max(self.mask.size(1), *(tensor.size(0) for tensor in self._graph.tensors if tensor.dim() > 0))
        at_once = _EDGES_PER_CALL.get(self.mask.device.type, _EDGES_PER_CALL_ELSEWHERE) // max(size, 1)
        if at_once > 1:
            kept = torch.tensor([[False], [True]], device=self.mask.device).expand(2, self.mask.size(1))
            number = torch.tensor([0, len(self.mask) - 1], device=self.mask.device)
            alone = torch.stack([self.empty[0], self.whole[-1]] if self._per_mask else [self.empty, self.whole])
            with torch.no_grad(), suppress(UnsupportedModelError), fallback_to_single_runs():
                together = self._explained(self._run(kept, number), number)
                if nearly_equal(together, alone.to(together.dtype)):
                    return at_once
        return 1


def run_skipping(number: int | None, model: Module, run: Callable[[], Any]) -> Any:
    """Run a model without the call of a rule of that number, a last softmax or sigmoid, and leave it as it was."""
    on_call = _skipping(number)
    return unchanged(model, run) if on_call is None else intercepted(run, model, on_call=on_call)


def _skipping(number: int | None) -> OnCall | None:
    calls = count()

    def on_call(rule: Rule, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return input_of(args, kwargs).clone() if next(calls) == number else func(*args, **kwargs)

    return None if number is None else on_call


def _split(output: Tensor, count: int) -> Tensor:
    """Return the output for ``count`` copies of a graph as ``[count, rows, ...]``."""
    return output.view(count, output.size(0) // count, *output.shape[1:])


class EdgeAttribution(Attribution):
    """Base class of methods that explain a model by removing edges; ``at=None``: deleted if the model allows it."""

    _option_names: ClassVar[tuple[str, ...]] = ("at",)
    _guides: ClassVar[str]  # the option with attributions of the user's own methods
    _passes: ClassVar[str]  # the option with the number of passes over the model
    margin: bool | None = None  # whether log-odds are explained; None: where there are several classes
    multiplies_by_inputs = True  # attributions have the inputs as a factor: edges with these masks are kept or removed

    def __init__(self, forward_func: Any, at: str | None = None) -> None:
        super().__init__(forward_func)
        self._explained = ExplainedModel.of(forward_func, at=at)
        if self._explained.mask_type not in ("edge", None):
            raise ValueError(f"Expected a model whose edges are attributed (got {self._explained.mask_type!r}).")
        wrapped = getattr(forward_func, "_orig_mod", forward_func)  # the module behind torch.compile
        if isinstance(wrapped, EdgeMaskedModel):
            at = wrapped.at
        self.at = "message" if isinstance(wrapped, CaptumModel) else at
        self._programs = ProgramStore[Program]()
        self.model, self.mask_type = self._explained.model, "edge"

    @property
    def options(self) -> dict[str, Any]:
        """The options that decide the scores, by name."""
        return {name: getattr(self, name) for name in self._option_names}

    def _games(
        self, inputs: Any, choice: Choice, arguments: Any, feature_mask: Any = None, games: Tensor | None = None
    ) -> tuple[EdgeValues, Players]:
        """Return the explained numbers, each of which has a game, as a function of the edges; and the players."""
        request = self._explained.request(inputs, arguments)
        switch_off_autocast(request.device)
        if request.rows_are_examples:
            raise ValueError("Expected a graph with edges among the arguments (got none).")
        values = EdgeValues(request, choice.first, self.at, self.margin, self._programs)
        graph, count = request.graph, values.num_games
        if feature_mask is None:
            keys = edge_keys(graph, len(values.mask))
        else:
            keys = group_keys(flattened(feature_mask, inputs), request.masks)
        games = games_of_columns(graph, request.count, count) if games is None else games
        shared = feature_mask is None and self.has_convergence_delta()
        return values, Players.of(keys, games, count, values.mask.view(-1) != 0, shared)

    @restores_state
    def _explain(
        self,
        inputs: Any,
        choice: Choice,
        arguments: Any,
        feature_mask: Any = None,
        *,
        games: Tensor | None = None,
        show_progress: bool = False,
    ) -> Explained:
        """Explain the chosen targets, given the game of each edge if the arguments do not tell it."""
        with outside_inference_mode():
            first, players = self._games(inputs, choice, arguments, feature_mask, games)
            found = Explained([], [], first.output, [])
            targets, masks = choice(first.output), first.request.masks
            with progress_bar(getattr(self, self._passes) * len(targets), "pass", show_progress) as advance:
                for number, target in enumerate(targets):
                    values = first.of_target(target) if number else first
                    guides = _own_guides(getattr(self, self._guides) or (), values, inputs, arguments)
                    scores, details = self._scores(values, players, guides, advance)
                    delta = players.sums(scores.double()) - (values.whole - values.empty)
                    delta = delta if self.has_convergence_delta() else torch.full_like(delta, torch.nan)
                    found.attributions.append(players.per_mask(scores, masks))
                    found.deltas.append(delta.to(scores.dtype))
                    found.details.append(details)
        return found

    def _scores(
        self, values: EdgeValues, players: Players, guides: Tensor, advance: Callable[[int], object]
    ) -> tuple[Tensor, Any]:
        """Return the scores of players ``[P]`` and details, given what the user's guides say, ``[K, columns]``."""
        raise NotImplementedError


def check_at_least(least: int, **numbers: Any) -> None:
    """Raise ValueError unless numbers are integers from ``least`` on."""
    for name, number in numbers.items():
        if not isinstance(number, int) or isinstance(number, bool) or number < least:
            raise ValueError(f"Expected {name} to be an integer from {least} on (got {number!r}).")


def check_guides(name: str, guides: Sequence[Any]) -> None:
    """Raise TypeError unless guides are attribution methods or attributions."""
    if not all(isinstance(guide, Attribution | Tensor) for guide in guides):
        got = ", ".join(type(guide).__name__ for guide in guides)
        raise TypeError(f"Expected {name} that are captum Attributions or tensors (got {got}).")


def _own_guides(guides: Sequence[Attribution | Tensor], values: EdgeValues, inputs: Any, arguments: Any) -> Tensor:
    """Return the attributions of the user's own methods, ``[K, columns]``."""
    masks = flattened(inputs)
    rows = [values.mask.new_empty(0, values.mask.numel())]
    for guide in guides:
        attributions: Any = guide
        if isinstance(guide, Attribution):
            given = inputs
            if isinstance(guide, GradientAttribution) and isinstance(inputs, Tensor):
                given = inputs.detach().clone().requires_grad_()  # or Captum warns that it does so itself
            attributions = guide.attribute(given, target=values.target, additional_forward_args=arguments)
        parts, expected = flattened(attributions, inputs), [list(mask.shape) for mask in masks]
        shapes = [list(part.shape) if isinstance(part, Tensor) else type(part).__name__ for part in parts]
        if shapes != expected:
            raise ValueError(f"Expected guides of the masks' shapes {expected} (got {shapes}).")
        row = torch.cat([part.detach().reshape(len(values.mask), -1) for part in parts], dim=1).view(1, -1)
        if not bool(row.isfinite().all()):
            wrong = int((~row.isfinite()).sum())
            raise ValueError(f"Expected finite guides (got {wrong} numbers that are infinite or nan).")
        rows.append(row.to(values.mask))
    return torch.cat(rows)
