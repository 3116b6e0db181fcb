"""Wrong readings of the definitions, which the comparison with the oracle must be able to tell from the right one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
import torch
from oracle_rules import Message, Oracle, attributions
from oracle_rules_cases import draw_case
from oracle_rules_products import Factor, Product, Row, Table, value
from oracle_rules_recipes import ATTENTION, CASES, GATES, MAXIMA, MORE_GATES, NORMS
from oracle_rules_rows import ACTIVATIONS, NOWHERE, Field

pytestmark = pytest.mark.slow


class FrozenFactorsAreVariables(Oracle):
    """They are counted in every product."""

    def sharers(self, product: Product) -> Product:
        return product


class FrozenOnlyProductsAreLost(Oracle):
    """Products without variables are shared with nobody."""

    def sharers(self, product: Product) -> Product:
        return tuple(factor for factor in product if factor[0] != "frozen")


class FrozenFactorsCountOnce(Oracle):
    """Products without variables go to one of their frozen factors, the first."""

    def sharers(self, product: Product) -> Product:
        return super().sharers(product)[: 1 if all(factor[0] == "frozen" for factor in product) else None]


class UnreachedGatesAreVariables(Oracle):
    """They are counted, though there is nobody to whom their shares could go."""

    def factor(self, kind: str, place: tuple[int, ...], field: Field) -> Product:
        name: Factor = (kind, self.operations, *place)
        self.field_of[name] = field
        return (name,) if field or kind == "gate" else ()


class UnreachedFrozenFactorsShare(Oracle):
    """They take part in products without variables, though there is nobody to whom their shares could go."""

    def factor(self, kind: str, place: tuple[int, ...], field: Field) -> Product:
        name: Factor = (kind, self.operations, *place)
        self.field_of[name] = field
        return (name,) if field or kind == "frozen" else ()


class GatesTakeTheConstant(Oracle):
    """P = f(in) / in, also where f(0) is not 0."""

    def gate(self, function: Callable[[float], float], number: float) -> tuple[float, float]:
        return 0.0, function(number) / number


class WinnersAreTheField(Oracle):
    """Only the edges of the messages that win can change a maximum."""

    def collect(self, messages: Sequence[Message], rows: Table, channels: int, aggregation: str) -> Table:
        self.winning: set[Message] | None = None
        if aggregation == "max":
            self.winning = set()
            for node in range(len(self.table)):
                own = self.arrivals(messages, node)
                for column in zip(*(rows[number] for number in own), strict=True):
                    shares = self.winners([value(entry) for entry in column])
                    self.winning |= {messages[number] for number, share in zip(own, shares, strict=True) if share}
        return super().collect(messages, rows, channels, aggregation)

    def deepen(self, messages: Sequence[Message], *, own: bool) -> None:
        super().deepen([m for m in messages if self.winning is None or m in self.winning], own=own)


class FirstWinnerTakesAll(Oracle):
    """Of messages that are equal, one wins."""

    def winners(self, values: Sequence[float]) -> list[float]:
        return [float(number == values.index(max(values))) for number in range(len(values))]


class MaxPoolSeesOneRow(Oracle):
    """Which node wins in a pool depends on the edges that reach one of them only."""

    def max_pool(self) -> None:
        field = self.fields[0]
        self.table, self.fields = [self.maximum(0, self.table, field)], [NOWHERE.union(*self.fields)]


class AttentionSeesItsOwnEnds(Oracle):
    """A coefficient is changed through its source and its target only, not through the rivals in its softmax."""

    def attention_field(self, readers: Sequence[Message], message: Message) -> Field:
        return self.fields[message.source] | self.fields[message.target]


class AttentionSeesTheMasks(Oracle):
    """The masks of the edges change the coefficients, as if they were applied before the softmax."""

    def attention_field(self, readers: Sequence[Message], message: Message) -> Field:
        return super().attention_field(readers, message) | self.inputs_field(readers)


class MeansAreFrozen(Oracle):
    """The mean of a LayerNorm is a number of the recorded pass."""

    def centred(self, row: Row) -> Row:
        mean = math.fsum(value(entry) for entry in row) / len(row)
        return [{**entry, (): entry.get((), 0.0) - mean} for entry in row]


def without_edges(oracle: Oracle) -> Oracle:
    """Leave the products without edges of an oracle: the empty network, if patterns did not depend on the mask."""
    result = Oracle.__new__(Oracle)
    result.__dict__ |= oracle.__dict__
    result.table = [
        [{p: z for p, z in entry.items() if not any(factor[0] == "edge" for factor in p)} for entry in row]
        for row in oracle.table
    ]
    return result


MUTATIONS: dict[type[Oracle], list[str]] = {
    FrozenFactorsAreVariables: [*ATTENTION[3:8], *MAXIMA[4:9], *NORMS],
    FrozenOnlyProductsAreLost: ["gat gat", "gat gat pool linear", "gcn_max gcn_max", "graph max_pool linear", *NORMS],
    FrozenFactorsCountOnce: ["gat gat gat", "gat unit gat unit pool linear", "gcn norm gcn norm pool linear"],
    UnreachedGatesAreVariables: [recipe for recipe in MORE_GATES if recipe.startswith("linear")],
    UnreachedFrozenFactorsShare: ["norm gcn relu pool norm linear", "gat gat", "gat unit gat unit pool linear"],
    GatesTakeTheConstant: [recipe for recipe in GATES if "sig" in recipe or "soft" in recipe],
    WinnersAreTheField: [recipe for recipe in MAXIMA if set(recipe.split()) & set(ACTIVATIONS)],
    FirstWinnerTakesAll: MAXIMA[:6],
    MaxPoolSeesOneRow: ["graph max_pool linear", "gcn norm gcn max_pool linear"],
    AttentionSeesItsOwnEnds: ["gat gat", "gat gat pool linear", "gcn gat pool linear"],
    AttentionSeesTheMasks: ["gat gat", "gat gat pool linear", "gcn gat pool linear"],
    MeansAreFrozen: [recipe for recipe in NORMS if " norm" in recipe],
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_wrong_readings_would_be_noticed(mutation: type[Oracle]) -> None:
    cases = [draw_case(recipe, seed) for recipe, seed in CASES if recipe in MUTATIONS[mutation]]
    noticed = 0
    for case in cases:
        first, _, empty = case.passes(mutation)
        wrong = attributions(first, empty, case.target)
        noticed += bool((wrong - case.expected[0]).abs().max() > 1e-4)
    assert noticed > len(cases) / 6


def test_wrong_calibrations_would_be_noticed() -> None:
    """None at all; or with the patterns of the network with edges."""
    none = own_patterns = 0
    cases = [draw_case(recipe, seed) for recipe, seed in CASES]
    for case in cases:
        explained, expected = case.oracles[0], case.expected[0]
        shares = torch.tensor(explained.shares(case.target), dtype=torch.float64)
        none += bool((shares - expected).abs().max() > 1e-4)
        wrong = attributions(explained, without_edges(explained), case.target)
        own_patterns += bool((wrong - expected).abs().max() > 1e-4)
    assert none > len(cases) / 2
    assert own_patterns > len(cases) / 2
