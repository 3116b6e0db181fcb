"""How an edge mask enters a model: as a factor of the messages, or as the presence of the edges.

``at=`` chooses one of the two classes in :data:`ENTRIES`. An object of such a class puts a mask into one forward pass
and notes its sites, the calls where the mask entered, so that replays can put other factors there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing

from captum_goat.adjacency.deletion import check_same, nearly_equal, running_without_edges, with_edges
from captum_goat.adjacency.presence import SUMMING, Gathering, Presence, entered, find_presence, in_softmax, unknown
from captum_goat.hooks.interception import OnCall, Scattered, check_context, intercepted, unchanged
from captum_goat.inputs.copied_edges import CopiedEdges
from captum_goat.inputs.graph_inputs import GraphInputs, tensor_output
from captum_goat.rules.registry import version as rules_version
from captum_goat.tracking import EdgeTracker, Messages, RowTracker, UnsupportedModelError
from captum_goat.tracking.edge_calls import EdgeRecorder, EdgeRun, EdgeTensor
from captum_goat.tracking.program import GivenRows, OtherProgramError, Program, ProgramStore
from captum_goat.tracking.registry import tensors_in
from captum_goat.tracking.sparse import ends_of, num_edges

_logger = logging.getLogger(__name__)
_DELIVERS = ("sum", "mean", "amax", "amin", "max", "min", "prod", "multiply")  # what a scatter does to messages


class Watcher(Protocol):
    """What watches a pass into which a mask is put; by default it does nothing."""

    integrates: bool = False  # whether the pass is the end of a path of integration, whose start is then needed

    def before_masking(self, messages: Tensor) -> None:
        """Look at messages before the mask enters."""
        return

    def after_masking(self, masked: Tensor, messages: Tensor, call: Messages, nodes: Tensor) -> None:
        """Note which edges masked messages cross, and to which nodes they go."""
        return

    def after_presence(self, factor: Tensor, edges: Tensor) -> None:
        """Note which edges a factor of summands is the presence of."""
        return


def changed_steps(what: str) -> UnsupportedModelError:
    """Return the error for a model that does something else than when it was recorded."""
    return UnsupportedModelError(
        f"The model computed {what} when it was run again than when it was recorded. GOAt needs a model that does the "
        f"same operations in every call, whatever the values of its edges and of earlier calls."
    )


@dataclass(frozen=True)
class MessageSites:
    """Where a mask entered a pass, in call order: calls of message functions, or sums over edges."""

    sites: tuple[Messages | Presence, ...] = ()
    enters: tuple[bool, ...] | None = None  # whether presence entered, for every sum at places that an index names
    by_hand: tuple[bool, ...] = ()  # whether messages outside of layers were masked, for every such sum or declaration

    @property
    def is_polynomial(self) -> bool:
        """Whether a replay is a polynomial of the factors: none of them enters a normalisation."""
        return all(site.linear for site in self.sites if isinstance(site, Presence))

    @property
    def dtypes(self) -> list[torch.dtype]:
        """The dtypes of sums in which edges are counted."""
        return [site.dtype for site in self.sites if isinstance(site, Presence)]

    def factors(self, mask: Tensor, t: float = 1.0) -> list[Tensor]:
        """Return what the mask is at every site, scaled by t."""
        return [site.factor(mask, t) for site in self.sites]

    def without_starts(self) -> MessageSites:
        """Return the sites with 0 as the start of every path (see :class:`Presence`)."""
        sites = (site._replace(start=None) if isinstance(site, Presence) else site for site in self.sites)
        return replace(self, sites=tuple(sites))

    def replayed(
        self, factors: Sequence[Tensor], check: Callable[[], None]
    ) -> tuple[dict[str, Any], Callable[[], None]]:
        """Return the hooks by which one factor per site enters, after ``check``, and what raises if some did not."""
        remaining, sums, scatters = iter(factors), iter(self.enters or ()), iter(self.by_hand)

        def on_message(layer: MessagePassing, edge_index: Any, messages: Tensor) -> Tensor:
            check()
            for factor in remaining:
                return messages * factor
            raise changed_steps("more messages")

        def on_sum(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            enters = next(sums, None)
            if enters is None:
                raise changed_steps("more sums")
            if not enters:
                return func(*args, **kwargs)
            check()
            return entered(Gathering.of(func, args, kwargs), next(remaining))

        def on_scatter(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Scattered | None:
            enters = next(scatters, None)
            if enters is None:
                raise changed_steps("more sums")
            if not enters:
                return None
            check()
            call = Gathering.of(func, args, kwargs)
            factor = next(remaining)
            return Scattered(call.source, call.index, lambda: call.source * factor, call.arguments)

        def on_declared(
            func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
        ) -> tuple[Any, Callable[[], Tensor] | None]:
            enters, messages = next(scatters, None), func(*args, **kwargs)
            if enters is None:
                raise changed_steps("more messages")
            if not enters:
                return messages, None
            check()
            factor = next(remaining)
            return messages, lambda: messages * factor

        def check_done() -> None:
            for _ in (*remaining, *sums, *scatters):
                raise changed_steps("fewer messages")

        if self.enters is not None:
            return {"on_sum": on_sum, "summing": SUMMING}, check_done
        hooks: dict[str, Any] = {"on_message": on_message} if self.sites else {}
        if self.by_hand:
            hooks |= {"on_scatter": on_scatter, "on_declared": on_declared, "summing": SUMMING}
        return hooks, check_done


class AtMessages:
    """A mask ``[E]`` that multiplies the messages of one pass over edges, the very tensors that the model receives."""

    can_batch = True  # whether replays are polynomials, whose points can run as replicas

    def __init__(self, tracker: RowTracker, edge_sets: Sequence[Tensor], mask: Tensor, watcher: Watcher | None) -> None:
        self.over_edges = False  # whether the presence of edges entered the last sum
        self._tracker, self._mask, self._watcher = tracker, mask, watcher
        self._edges = EdgeTracker(tracker, edge_sets)
        self._sites: list[Messages | Presence] = []
        self._factors: dict[Any, tuple[Tensor, Tensor]] = {}  # by the id() of edges, which are kept alive
        self._by_hand: list[bool] = []  # whether messages were masked, for every sum that might be one over edges

    def hooks(self) -> dict[str, Any]:
        """Return what :func:`intercepted` has to call."""
        around = {"on_layer": self._edges.on_layer, "around_propagate": self._tracker.around_propagate}
        by_hand = {"on_scatter": self.on_scatter, "on_declared": self.on_declared, "summing": SUMMING}
        return {"on_message": self.on_message, **by_hand, **around}

    def on_message(self, layer: MessagePassing, edge_index: Any, messages: Tensor) -> Tensor:
        """Let the mask enter messages."""
        if self._watcher is None:  # which layers pass messages was seen when the model was followed
            return self._masked(messages, self._edges.follow(layer, edge_index, messages))
        self._watcher.before_masking(messages)
        call = self._edges.follow(layer, edge_index, messages)
        masked = self._masked(messages, call)
        with self._tracker.paused():
            nodes = ends_of(edge_index)[1 if layer.flow == "source_to_target" else 0]
        self._watcher.after_masking(masked, messages, call, nodes)
        return masked

    def on_scatter(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Scattered | None:
        """Return the messages that are scattered outside of layers, into which the mask has to enter."""
        scatter = Gathering.of(func, args, kwargs)
        found = None
        if scatter.kind in _DELIVERS and _is_by_rows(scatter) and not in_softmax():
            found = self._edges.follow_by_hand(scatter.source, scatter.index, scatter.into)
        self._by_hand.append(found is not None)
        if found is None:
            delivers = self._tracker.delivers(scatter.source, scatter.index)
            given = scatter.source, scatter.index, None, scatter.arguments, self._tracker.mark_delivered
            return Scattered(*given) if delivers else None
        call, nodes, edge_set = found
        mask = partial(self._masked_by_hand, scatter.source, call, nodes)
        by_hand, delivered = self._tracker.by_hand, self._tracker.set_delivered
        done = delivered if edge_set is None else partial(by_hand.set_passed_on, edge_set)
        return Scattered(scatter.source, scatter.index, mask, scatter.arguments, done)

    def _masked_by_hand(self, messages: Tensor, call: Messages, nodes: Tensor) -> Tensor:
        assert self._watcher is not None  # a known model passes no messages outside of layers
        self._watcher.before_masking(messages)
        masked = self._masked(messages, call)
        self._watcher.after_masking(masked, messages, call, nodes)
        self._tracker.by_hand.set_masked(masked)
        return masked

    def on_declared(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, Callable[[], Tensor] | None]:
        """Return what a function that is declared to return messages returns, and what lets the mask enter."""
        inside = bool(self._tracker.graph.propagating or self._tracker.set_aside)  # a layer masks them, or nothing does
        self._by_hand.append(not inside)
        if inside:
            return func(*args, **kwargs), None
        self._tracker.around_propagate(1, False)
        messages = func(*args, **kwargs)
        self._tracker.around_propagate(-1, False)
        followed = self._edges.follow_declared(messages, tensors_in((*args, *kwargs.values())))
        return messages, partial(self._masked_by_hand, messages, *followed)

    def _masked(self, messages: Tensor, call: Messages) -> Tensor:
        self._sites.append(call)
        kind = id(call.edges), call.dtype, torch.is_grad_enabled(), *call.shape  # a layer may run without gradients
        if kind not in self._factors:
            self._factors[kind] = call.edges, call.factor(self._mask)
        return messages * self._factors[kind][1]

    def sites(self) -> MessageSites:
        """Return where the mask entered; raise UnsupportedModelError if no message passing was seen."""
        self._edges.check_seen()
        return MessageSites(tuple(self._sites), by_hand=tuple(self._by_hand) if any(self._by_hand) else ())


class AtAdjacency(AtMessages):
    """A mask that is the presence of the edges: it multiplies the summands of every sum over edges in one pass."""

    can_batch = False

    def __init__(self, tracker: RowTracker, edge_sets: Sequence[Tensor], mask: Tensor, watcher: Watcher | None) -> None:
        super().__init__(tracker, edge_sets, mask, watcher)
        self._enters: list[bool] = []
        self._waiting = False  # whether messages are about to be brought together

    def hooks(self) -> dict[str, Any]:
        """Return what :func:`intercepted` has to call."""
        own = {"on_sum": self.on_sum, "on_scatter": None, "around_propagate": self._around_propagate}
        return super().hooks() | own

    def _masked(self, messages: Tensor, call: Messages) -> Tensor:
        self._waiting = True
        return messages.clone()

    def on_declared(self, *_: Any) -> Any:
        """Raise UnsupportedModelError."""
        raise unknown(self._tracker, "has messages that are declared by rules.message")

    def _around_propagate(self, step: int, explained: bool) -> None:
        """Note that message passing begins (1) or ends (-1); refuse messages that were not summed up."""
        if step < 0 and explained and self._waiting:
            raise unknown(self._tracker, "brings messages together by something else than sums and means")
        self._tracker.around_propagate(step, explained)

    def on_sum(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Let presence enter a sum, if it is one over edges."""
        assert self._watcher is not None
        call = Gathering.of(func, args, kwargs)
        site = find_presence(call, self._tracker)
        self.over_edges = site is not None
        self._enters.append(self.over_edges)
        if site is None:
            return func(*args, **kwargs)
        self._waiting &= not site.linear
        if self._watcher.integrates:
            with self._tracker.paused():
                site = site.started(call, self._mask)
        self._sites.append(site)
        factor = site.factor(self._mask)
        self._watcher.after_presence(factor, site.edges)
        return entered(call, factor)

    def sites(self) -> MessageSites:
        """Return where presence entered."""
        return replace(super().sites(), enters=tuple(self._enters))


def _is_by_rows(scatter: Gathering) -> bool:
    """Return whether a scatter brings rows of a tensor together, along dimension 0."""
    source = scatter.source
    return isinstance(source, Tensor) and source.dim() > 0 and scatter.dim % source.dim() == 0


Entry = type[AtMessages]
ENTRIES: dict[str, Entry] = {"message": AtMessages, "adjacency": AtAdjacency}


@torch.no_grad()
def check_deletion(graph: GraphInputs, entry: Entry) -> bool:
    """Raise UnsupportedModelError if the output with a random half of the edges masked is not that without them.

    Returns whether no more checks are needed: masks do not delete edges, or deleting these changed the output.
    """
    if entry is AtMessages:
        return True
    count = sum(map(num_edges, graph.edge_sets))
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0))
    kept = (order < count // 2).to(graph.edge_sets[0].device)
    before = tensor_output(unchanged(graph.model, graph))
    with running_without_edges(graph):
        deleted = tensor_output(unchanged(graph.model, with_edges(graph, kept)))
    check_same(graph, masked_output(graph, kept.to(before.dtype), entry), deleted, before)
    return count > 1 and not nearly_equal(before, deleted)


def check_base(graph: GraphInputs, masked: Tensor, before: Tensor, output_of: Callable[[GraphInputs], Tensor]) -> None:
    """Raise UnsupportedModelError if the output with all edges masked to 0 is not that without them."""
    count = sum(map(num_edges, graph.edge_sets))
    graph = with_edges(graph, torch.zeros(count, dtype=torch.bool, device=masked.device))
    with running_without_edges(graph):
        deleted = output_of(graph)
    check_same(graph, masked, deleted, before)


def owners_by_degrees(owner: Tensor, edge_sets: Sequence[Tensor]) -> Tensor:
    """Give edges that reach no explained number by messages, but may by degrees, to that of their neighbours."""
    if len(edge_sets) != 1:
        return owner
    edge_index, count = edge_sets[0], edge_sets[0].size(1)
    edges = owner[:count].clone()
    of_node = torch.full((int(edge_index.max()) + 1,), -1, device=owner.device) if count else edges
    for _ in range(count):
        known = of_node.scatter_reduce(0, edge_index.reshape(-1), edges.repeat(2), "amax")
        edges = edges.where(edges >= 0, known[edge_index].amax(dim=0))
        if torch.equal(known, of_node):
            break
        of_node = known
    return torch.cat([edges, owner[count:]])


class RowWatcher(Watcher):
    """Sets the rows of masked messages: the edges that they cross."""

    integrates = True

    def __init__(self, tracker: RowTracker, edge_sets: Sequence[Tensor], offsets: Sequence[int] | None) -> None:
        self._tracker = tracker
        self._views: dict[Any, tuple[Tensor, Tensor]] = {}  # by the id() of edges, which are kept alive
        self._offsets = self._targets = None
        if offsets is not None:
            device, sizes = edge_sets[0].device, [edges.size(1) for edges in edge_sets]
            starts = torch.tensor(offsets, device=device)
            self._offsets = starts.repeat_interleave(torch.tensor(sizes, device=device))
            self._targets = torch.cat([edges[1] for edges in edge_sets])

    def before_masking(self, messages: Tensor) -> None:
        """Raise UnsupportedModelError if the model uses a context in which it cannot be explained."""
        check_context(messages.device.type)

    def after_masking(self, masked: Tensor, messages: Tensor, call: Messages, nodes: Tensor) -> None:
        """Set the rows."""
        tracker = self._tracker
        with tracker.paused():
            kind = id(call.edges), len(call.shape), call.shape.index(-1)
            if kind not in self._views:
                self._views[kind] = call.edges, call.edges.view(call.shape)
            edges, at = self._views[kind][1], None
            if tracker.graph.by_node:  # a copy, because a view would keep the user's edge_index alive
                at = (nodes + self._shift(call.edges, nodes)).view(call.shape)
            tracker.set(masked, tracker.graph.cross(tracker.rows(messages), edges, at))

    def _shift(self, edges: Tensor, nodes: Tensor) -> int:
        """Return what to add to the numbers of nodes of one type to get their rows among the features of all types."""
        if self._offsets is None or self._targets is None:
            return 0
        known = edges >= 0
        offsets, targets, given = self._offsets[edges[known]], self._targets[edges[known]], nodes[known]
        shift = int(offsets[0]) if offsets.numel() else 0
        if torch.equal(given, targets + offsets):  # the layer counts the nodes of all types
            shift = 0
        elif not torch.equal(given, targets) or (offsets != shift).any():
            raise UnsupportedModelError(
                f"{self._tracker.place()} numbers the nodes of all types in a way of its own, so it is not known which "
                f"features belong to a gate. Use mask_type 'edge' and 'node' one after the other."
            )
        self._tracker.graph.first_node = shift
        return shift


def masked_output(
    graph: GraphInputs,
    mask: Tensor,
    entry: Entry = AtMessages,
    count: int = 1,
    programs: ProgramStore[Program] | None = None,
    on_call: OnCall | None = None,
) -> Tensor:
    """Call a model with a mask ``[E]`` on the edges of a graph, or of ``count`` independent copies of it."""
    key = rules_version(), graph.kinds, mask.dtype
    programs = programs if count == 1 and entry.can_batch else None
    for program in [] if programs is None else programs.of(key):
        given, followed = GivenRows(), graph.with_edges(EdgeTensor)
        run = EdgeRun(program, followed.tensors, given)
        masks = entry(given, followed.edge_sets, mask, None)
        try:
            output = tensor_output(intercepted(followed, graph.model, steps=run, **masks.hooks()))
            run.check_done()
        except (OtherProgramError, AttributeError, RuntimeError, TypeError, ValueError) as error:
            # What is the model's own fault comes again below.
            _logger.debug("A program of %s did not fit: %r", type(graph.model).__name__, error)
            continue
        _logger.debug("A program of %s was followed.", type(graph.model).__name__)
        if programs is not None:
            programs.hit()
        return output.as_subclass(Tensor) if isinstance(output, EdgeTensor) else output
    tracker = RowTracker(graph.model)
    copies = CopiedEdges(tracker, graph.edge_sets, count)
    masks = entry(tracker, graph.edge_sets, mask, copies)
    steps = None if programs is None else EdgeRecorder(graph.tensors, tracker)
    hooks = {"on_call": on_call, **masks.hooks()}
    output = tensor_output(intercepted(graph, graph.model, tracker=tracker, steps=steps, **hooks))
    tracker.check_by_layers(output)
    masks.sites()
    copies.check(output)
    if steps is not None and programs is not None:
        programs.add(key, steps.program())
    return output
