"""The gated replay: the model run again with its activation pattern frozen and all variables scaled.

With every activation written as ``out = P * in`` and P frozen, and with the other values frozen that the rules of
:mod:`captum_goat.rules` freeze, the model is a polynomial in its variables: the attributed edges and inputs, and the
gates P. Scaling all variables by t turns a scalar product z with c variable factors into ``z * t**c``, which is all
that :mod:`captum_goat.method.share` needs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module

from captum_goat.adjacency.deletion import nearly_equal
from captum_goat.adjacency.mask_entry import AtMessages, Entry, MessageSites, RowWatcher, changed_steps
from captum_goat.hooks.interception import check_context, intercepted
from captum_goat.inputs.graph_inputs import tensor_output
from captum_goat.rules.operations import Arguments, Keywords, input_of
from captum_goat.rules.registry import Chosen, Factors, FrozenCall, Kept, Rule
from captum_goat.rules.scaled_leaves import ScaledLeaf, as_leaf, gated
from captum_goat.tracking import Messages, RowGraph, Rows, RowTracker
from captum_goat.tracking.program import Program
from captum_goat.tracking.tape import Step, Tape, call_again

# What a call for replicas, or of a program, may raise where the model itself does not.
FAILURES = (RuntimeError, TypeError, ValueError, IndexError)
# Called with frozen values of the recorded pass (``None``: constants) and what computes them anew.
OnKeep = Callable[[Factors | None, Callable[[], Tensor]], Tensor]


class Replay(NamedTuple):
    """One gated replay."""

    output: Tensor  # the model's output with all variables scaled by t
    factors: list[tuple[Factors, ScaledLeaf]]  # the frozen values that are scaled, one number per row
    masks: list[ScaledLeaf]  # the mask at every site where it enters; results if ``by_results``
    features: list[Tensor]  # the attributed inputs, scaled
    by_results: bool  # whether shares of masks have the masks as factors, else they are derivatives

    @property
    def leaves(self) -> list[ScaledLeaf]:
        """All leaves: factors, masks and features."""
        return [leaf for _, leaf in self.factors] + self.masks + [ScaledLeaf(feature) for feature in self.features]

    def gradients(self, explained: Tensor, *, retain_graph: bool) -> list[Tensor | None]:
        """Return the derivatives of a number with respect to :attr:`leaves`."""
        leaves = self.leaves
        tensors = [leaf.tensor for leaf in leaves if leaf.tensor.requires_grad]
        if not tensors or not explained.requires_grad:
            return [None] * len(leaves)
        gradients = iter(torch.autograd.grad(explained, tensors, allow_unused=True, retain_graph=retain_graph))
        return [next(gradients) if leaf.tensor.requires_grad else None for leaf in leaves]


class Subject(NamedTuple):
    """The model, its inputs, and which of them are variables."""

    model: Module  # the user's model, in eval mode
    forward: Callable[[Sequence[Tensor]], Any]  # calls it with its attributed inputs
    features: tuple[Tensor, ...]  # the attributed inputs, if any
    # the edges, the very tensors ``[2, E]`` with which ``forward`` calls the model: one, or one per edge type;
    # empty if edges are constants
    edge_sets: tuple[Tensor, ...]
    mask: Tensor  # the mask of each edge, one set after the other; empty if edges are constants
    finish: Callable[[Any], Any] | None = None  # applied to the model's output
    entry: Entry = AtMessages  # how the mask enters
    own_rows: int = 0  # the rows of node features, the first ones, of which gates share only those of their own nodes
    # where the rows of the nodes begin to which the edges of each set lead, if there are several node types
    offsets: tuple[int, ...] | None = None
    by_node: bool = True  # whether it matters which nodes rows stand for

    def masks(self, tracker: RowTracker, *, watched: bool = True) -> AtMessages:
        """Return what lets the mask enter a pass that is recorded; its rows are set if that is ``watched``."""
        tracker.graph.by_node = self.by_node
        watcher = RowWatcher(tracker, self.edge_sets, self.offsets) if watched else None
        return self.entry(tracker, self.edge_sets, self.mask, watcher)


@dataclass(frozen=True)
class ActivationPattern:
    """The frozen values of one forward pass, in call order, and what else was recorded."""

    subject: Subject  # what was run
    sites: MessageSites  # where the mask entered
    # the calls of operations with a rule; ``None`` for those that are replayed as they are
    calls: list[FrozenCall | None]
    left_out: int | None  # the number of the softmax or sigmoid call at the end of the model, which is left out, if any
    output: Tensor  # the model's output, without that call
    rows: Rows | None  # the rows of the output; ``None`` when no variable reaches it
    graph: RowGraph  # which rows read which
    suspects: tuple[str, ...] = ()  # where values that variables reach left torch, for example to numpy
    program: Program | None = None  # the program of the pass, if other passes can follow it
    tape: Tape | None = None  # its calls, if they can be made again without the model

    @property
    def eps(self) -> float:
        """The relative precision of the output, or of degrees if that is coarser."""
        return max(torch.finfo(dtype).eps for dtype in (self.output.dtype, *self.sites.dtypes))

    @property
    def sum_dtype(self) -> torch.dtype:
        """The dtype of sums of shares: at least single precision, whatever the mask and the model have."""
        return torch.promote_types(torch.promote_types(self.subject.mask.dtype, self.output.dtype), torch.float32)

    @property
    def factors(self) -> list[Factors]:
        """The frozen values that variables reach."""
        return [kept for call in self.calls if call is not None for kept in call.kept if isinstance(kept, Factors)]

    @property
    def chooses(self) -> bool:
        """Whether indices are frozen, which may be other ones without edges."""
        return any(isinstance(kept, Chosen) for call in self.calls if call is not None for kept in call.kept)

    @property
    def gate_blocks(self) -> frozenset[int]:
        """The blocks of the rows of :attr:`factors`."""
        return frozenset[int]().union(*(factors.rows.sources for factors in self.factors))

    @torch.no_grad()
    def at_zero(self) -> ActivationPattern:
        """Return the pattern P' of the same model with every edge masked to 0 and every attributed input 0."""
        mask = torch.zeros_like(self.subject.mask)
        features = tuple(torch.zeros_like(feature) for feature in self.subject.features)
        frozen: list[Factors | None] = []

        def keep(known: Factors | None, values: Callable[[], Tensor]) -> Tensor:
            current = values()
            frozen.append(known and known._replace(values=current))
            return current

        tape, fixed, factors = self.tape, dict[int, Tensor](), self.sites.factors(mask)
        zero = [n for n, site in enumerate(self.sites.sites) if bool((site.edges >= 0).all())]
        if tape is not None:  # messages over edges alone are 0
            fixed = dict.fromkeys(tape.fixed_by(zero), mask)

        def gate(known: Factors, value: Tensor, _: bool) -> Tensor:
            out = value.relu()
            frozen.append(known._replace(values=out.sign()))
            return out

        def masked(number: int, messages: Tensor, _: bool) -> Tensor:
            if number in zero and messages.dtype == factors[number].dtype:
                return messages.new_zeros(()).expand(messages.shape)
            return messages * factors[number]

        output = self.run(keep, factors, features, gate, masked, seen=fixed)
        remaining = iter(frozen)
        calls = [call and call._replace(kept=tuple(next(remaining) for _ in call.kept)) for call in self.calls]
        subject = self.subject._replace(mask=mask, features=features)
        tape = tape and tape.with_fixed(fixed)
        return replace(self, subject=subject, calls=calls, output=output, tape=tape)

    @torch.no_grad()
    def constants(self) -> Tensor:
        """Return the sum of the products without variables and without frozen factors."""
        return self.replay(0.0, inputs=False, frozen=0.0).output.detach()

    def with_constants(self, weights: Tensor) -> ActivationPattern:
        """Return the pattern with rows whose weight, by row id, is 0 as constants."""

        def changed(kept: Kept) -> Kept:
            if not isinstance(kept, Factors):
                return kept
            return kept._replace(variable=kept.variable & (weights[kept.rows.ids] > 0), full=False)

        return replace(self, calls=[call and call._replace(kept=tuple(map(changed, call.kept))) for call in self.calls])

    @torch.no_grad()
    def with_starts(self) -> ActivationPattern:
        """Return the pattern, without the starts of paths at sites if they change the output at t = 0.

        They do not where degrees only normalise messages, which are 0 at t = 0. Anything else that depends on the edges
        must start with its value in the graph without edges.
        """
        without = replace(self, sites=self.sites.without_starts())
        first, second = (pattern.replay(0.0, inputs=False).output for pattern in (self, without))
        return self if nearly_equal(first, second) else without

    def replay(
        self, t: float, *, inputs: bool, frozen: float | None = None, overwritable: Collection[int] = ()
    ) -> Replay:
        """Run the model with the pattern frozen and all variables scaled by t."""
        by_results = inputs and self.tape is not None and all(isinstance(site, Messages) for site in self.sites.sites)
        masks = self.sites.factors(self.subject.mask, t)
        leaves = [ScaledLeaf(factor if by_results else factor.requires_grad_(inputs)) for factor in masks]
        features = [(feature * t).requires_grad_(inputs) for feature in self.subject.features]
        scaled = list[tuple[Factors, ScaledLeaf]]()

        def keep(known: Factors | None, values: Callable[[], Tensor]) -> Tensor:
            if known is None:
                with torch.no_grad():  # or a call in place would change what the gradient needs
                    return values()
            if known.gates != (frozen is None):
                return known.values * known.scale(t) if known.gates else known.values
            scale = known.scale(t if frozen is None else frozen).requires_grad_()
            scaled.append((known, ScaledLeaf(scale)))
            return known.values * scale

        def gate(known: Factors, value: Tensor, in_place: bool) -> Tensor:
            scale = t if known.full else known.scale(t)
            out = gated(value, known.values, scale, in_place=in_place)
            scaled.append((known, ScaledLeaf(as_leaf(out), known.variable.shape, t)))
            return out

        def masked(number: int, messages: Tensor, in_place: bool) -> Tensor:
            mask = masks[number]
            in_place = in_place and not mask.requires_grad and messages.dtype == mask.dtype
            out = messages.mul_(mask) if in_place else messages * mask
            if by_results:
                leaves[number] = ScaledLeaf(as_leaf(out), masks[number].shape, t)
            return out

        output = self.run(keep, masks, features, gate if frozen is None else None, masked, overwritable)
        return Replay(output, scaled, leaves, features, by_results)

    def run(
        self,
        keep: OnKeep,
        masks: Sequence[Tensor],
        features: Sequence[Tensor],
        gate: Callable[[Factors, Tensor, bool], Tensor] | None = None,
        masked: Callable[[int, Tensor, bool], Tensor] | None = None,
        overwritable: Collection[int] = (),
        seen: dict[int, Tensor] | None = None,
    ) -> Tensor:
        """Make the calls of the tape again, ReLUs by ``gate``, masks by ``masked``; or run the model.

        These two are told whether they may write to their argument. Results in ``seen`` are updated.
        """

        def on_step(step: Step, values: Mapping[int, Tensor]) -> Any:
            args, kwargs = step.arguments(values.__getitem__)
            if step.masks:
                number = step.number or 0
                return (
                    args[0] * masks[number]
                    if masked is None
                    else masked(number, args[0], step.may_overwrite(overwritable))
                )
            if step.number is not None:
                call = self.calls[step.number]
                if gate is not None and call is not None and call.rule.is_relu and isinstance(call.kept[0], Factors):
                    return gate(call.kept[0], input_of(args, kwargs), step.may_overwrite(overwritable))
                return self._call_again(step.number, keep, step.function, args, kwargs)
            return call_again(step, args, kwargs, overwritable)

        if self.tape is not None:
            return self.tape.run(features, on_step, seen)
        numbers, subject = count(), self.subject

        def on_call(rule: Rule, func: Callable[..., Any], args: Arguments, kwargs: Keywords) -> Any:
            number = next(numbers)
            if number >= len(self.calls):
                raise changed_steps("more operations")
            call = self.calls[number]
            if call is not None and rule is not call.rule:
                raise changed_steps("other operations")
            return self._call_again(number, keep, func, args, kwargs)

        def run() -> Tensor:
            # A model may change its inputs in place, which torch forbids for leaf tensors, so it gets copies.
            output = tensor_output(subject.forward([feature.clone() for feature in features]))
            return output if subject.finish is None else tensor_output(subject.finish(output))

        hooks, check_masks = self.sites.replayed(masks, lambda: check_context(subject.mask.device.type))
        output = intercepted(run, subject.model, on_call=on_call, **hooks)
        if next(numbers) != len(self.calls):
            raise changed_steps("fewer operations")
        check_masks()
        return output

    def _call_again(
        self, number: int, keep: OnKeep, func: Callable[..., Any], args: Arguments, kwargs: Keywords
    ) -> Any:
        """Do what the rule of a call says, with what was kept at it in the recorded pass."""
        if number == self.left_out:
            return input_of(args, kwargs).clone()  # which may still be written to
        call = self.calls[number]
        if call is None:
            return func(*args, **kwargs)
        remaining = iter(call.kept)

        def frozen(values: Callable[[], Tensor], **_: Any) -> Tensor:
            known = next(remaining)
            return known.values if isinstance(known, Chosen) else keep(known, values)

        return call.rewrite(frozen, func, args, kwargs)
