"""The hand-set models: what each computes, graphs for it, and the edges that matter to its weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Generator, Tensor
from torch.nn.functional import one_hot
from torch_geometric.data import Data

from benchmarks.white_box.networks import MANY, Form, Layer, WhiteBox

FORMS: dict[Form, str] = {"gcn": "GCN", "gcn_sum": "GCN (sums)", "sage": "GraphSAGE", "gin": "GIN"}
CARBON, NITROGEN, OXYGEN, SULPHUR, DECOY = range(5)
LABELS = 5
HUB = 4  # the degree from which a node is a hub

# A head is weights, biases and weights of f: f = sum of out * relu(weights @ pooled + biases).
Head = tuple[Tensor, Tensor, Tensor]
PLAIN: Head = (torch.ones(1, 1), torch.zeros(1), torch.ones(1))
PRESENCE: Head = (torch.ones(2, 1), torch.tensor([0.0, -1.0]), torch.tensor([1.0, -1.0]))  # min(count, 1)
# |a - b| of two counts that are 0 or 1.
EITHER: Head = (torch.tensor([[1.0, -1.0], [-1.0, 1.0]]), torch.zeros(2), torch.ones(2))
FIRST_ONLY: Head = (torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.zeros(2), torch.tensor([1.0, 0.0]))


@dataclass(frozen=True)
class Case:
    """A rule, the models that compute it, and graphs with the edges that matter.

    An edge matters if there is a subgraph in which adding it changes the output; whatever the weights ignore, or what
    stays below a threshold in every subgraph, is a decoy.

    Attributes:
        name: The name in tables.
        rule: f in words.
        layers: The layers of the models.
        head: Their heads.
        forms: The architectures that can express the rule.
        plant: Adds what the rule looks for to a molecule.
        matters: Which of the edges matter, given labels and edges.
        level: Whether the rule is about graphs or about their first node.
        target: The predicted class.
        variants: The layers of forms that need other weights.
    """

    name: str
    rule: str
    layers: tuple[Layer, ...]
    head: Head
    forms: tuple[Form, ...]
    plant: Callable[[Molecule], None]
    matters: Callable[[Tensor, Tensor], Tensor]
    level: Literal["graph", "node"] = "graph"
    target: int = 1
    variants: Mapping[Form, tuple[Layer, ...]] = field(default_factory=dict)

    def model(self, form: Form) -> WhiteBox:
        """Return the model in one of its forms, in double precision."""
        return WhiteBox(form, self.variants.get(form, self.layers), self.head, self.level)

    def graph(self, seed: int, *, carbons: int = 9, decoys: int = 5) -> Data:
        """Return a random molecule with the rule's motif and decoys; ``edge_label`` has the edges that matter."""
        molecule = Molecule(carbons, seed)
        self.plant(molecule)
        for _ in range(decoys):
            molecule.attach(DECOY, molecule.free_carbon())
        return molecule.data(self.matters)


class Molecule:
    """A random tree of carbons of degree 3 at most, to which other atoms are attached."""

    def __init__(self, carbons: int, seed: int) -> None:
        self.random = Generator().manual_seed(seed)
        self.labels = [CARBON] * carbons
        self.edges: list[tuple[int, int]] = []
        for atom in range(1, carbons):
            choices = [other for other in range(atom) if self.degree(other) < 3]
            self.edges.append((self.choose(choices), atom))

    def degree(self, atom: int) -> int:
        """Return the number of bonds of an atom."""
        return sum(atom in edge for edge in self.edges)

    def neighbours(self, atom: int) -> list[int]:
        """Return the atoms that an atom is bonded to."""
        return [edge[1 - edge.index(atom)] for edge in self.edges if atom in edge]

    def choose(self, atoms: Sequence[int]) -> int:
        """Return one of several atoms at random."""
        return atoms[int(torch.randint(len(atoms), (1,), generator=self.random))]

    def free_carbon(self) -> int:
        """Return a random carbon of degree below 3, or a new one at the end of the chain; never the first atom."""
        free = [
            atom
            for atom, label in enumerate(self.labels)
            if atom and label == CARBON and self.degree(atom) < 3 and self.has_carbons_only(atom)
        ]
        if free:
            return self.choose(free)
        last = max(atom for atom, label in enumerate(self.labels) if label == CARBON)
        return self.attach(CARBON, last)

    def has_carbons_only(self, atom: int) -> bool:
        """Return whether an atom is bonded to carbons and decoys only."""
        return all(self.labels[other] in (CARBON, DECOY) for other in self.neighbours(atom))

    def attach(self, label: int, atom: int) -> int:
        """Bond a new atom to an old one; return the new one."""
        self.labels.append(label)
        self.edges.append((atom, len(self.labels) - 1))
        return len(self.labels) - 1

    def group(self, centre: int, ends: int, label: int, atom: int | None = None) -> int:
        """Attach an atom with several atoms of one label at it; return the one in the middle."""
        middle = self.attach(centre, self.free_carbon() if atom is None else atom)
        for _ in range(ends):
            self.attach(label, middle)
        return middle

    def data(self, matters: Callable[[Tensor, Tensor], Tensor]) -> Data:
        """Return the molecule as a graph, every bond in both directions."""
        labels = torch.tensor(self.labels)
        one_way = torch.tensor(self.edges).t()
        edge_index = torch.cat([one_way, one_way.flip(0)], dim=1)
        return Data(x=one_hot(labels, LABELS).double(), edge_index=edge_index, edge_label=matters(labels, edge_index))


def between(first: int, second: int) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the rule that bonds between two labels matter."""

    def matters(labels: Tensor, edge_index: Tensor) -> Tensor:
        source, target = labels[edge_index]
        result: Tensor = ((source == first) & (target == second)) | ((source == second) & (target == first))
        return result

    return matters


def pairs(*ends: int) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the rule that bonds to two or more atoms of a label at one atom matter."""

    def matters(labels: Tensor, edge_index: Tensor) -> Tensor:
        source, target = edge_index
        result = torch.zeros_like(source, dtype=torch.bool)
        for end in ends:
            count = torch.zeros_like(labels).index_add_(0, target, (labels[source] == end).long())
            into = (labels[source] == end) & (count[target] >= 2)
            result |= into | ((labels[target] == end) & (count[source] >= 2))
        return result

    return matters


def at_first(matters: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the rule for the first node only."""
    return lambda labels, edge_index: matters(labels, edge_index) & (edge_index == 0).any(dim=0)


def hubs(labels: Tensor, edge_index: Tensor) -> Tensor:
    """Return the bonds of atoms whose degree reaches the threshold."""
    is_hub = edge_index[1].bincount(minlength=len(labels)) >= HUB
    at_hub: Tensor = is_hub[edge_index[0]] | is_hub[edge_index[1]]
    return at_hub


def walks(labels: Tensor, edge_index: Tensor) -> Tensor:
    """Return the bonds on walks of length two from a sulphur to the first node."""
    source, target = edge_index[0], edge_index[1]
    near = torch.zeros_like(labels, dtype=torch.bool)
    near[source[target == 0]] = True
    has_sulphur = torch.zeros_like(near)
    has_sulphur[target[labels[source] == SULPHUR]] = True
    to_middle = (labels[source] == SULPHUR) & near[target]
    to_first = has_sulphur[source] & (target == 0)
    back = (labels[target] == SULPHUR) & near[source] | (has_sulphur[target] & (source == 0))
    return back | to_middle | to_first


def row(*labels: int) -> Tensor:
    """Return weights that are 1 for some labels and 0 for all others, ``[1, 5]``."""
    weights = torch.zeros(1, LABELS, dtype=torch.double)
    weights[0, list(labels)] = 1.0
    return weights


# Counts of oxygens at nitrogens; the unit is off at every other atom.
NITROGEN_OXYGEN = Layer(row(OXYGEN), torch.tensor([-MANY]), root=MANY * row(NITROGEN))
TWO_OXYGENS = Layer(row(OXYGEN), torch.tensor([-1.0]))
TWO_OF_EITHER = Layer(torch.cat([row(OXYGEN), row(SULPHUR)]), torch.tensor([-1.0, -1.0]))
# The second unit counts decoys and is on; the head gives it no weight.
WITH_DECOYS = Layer(torch.cat([row(OXYGEN), row(DECOY)]), torch.tensor([-1.0, 0.0]))
# Two oxygens of degree 1 send 2 / sqrt(8) to an atom of degree 3; whatever else there is sends 0.5 or less.
TWO_NORMALISED = Layer(row(OXYGEN) / (0.5**0.5 - 0.6), torch.tensor([-0.6 / (0.5**0.5 - 0.6)], dtype=torch.double))
ANY_LABEL = Layer(torch.ones(1, LABELS), torch.tensor([1.0 - HUB]))
ANY_LABEL_WITH_OWN = Layer(torch.ones(1, LABELS), torch.tensor([-1.0 * HUB]))  # a GIN counts the node itself
SULPHURS = Layer(row(SULPHUR), torch.zeros(1))
COUNT = Layer(torch.ones(1, 1), torch.zeros(1))
TEN_TIMES = Layer(torch.full((1, 1), 10.0), torch.zeros(1))  # what degree normalisation makes small


def one_bond(molecule: Molecule) -> None:
    """Plant one N-O bond, a nitrogen and an oxygen that are not bonded."""
    molecule.group(NITROGEN, 1, OXYGEN)
    molecule.attach(OXYGEN, molecule.free_carbon())
    molecule.attach(NITROGEN, molecule.free_carbon())


def two_bonds(molecule: Molecule) -> None:
    """Plant two N-O bonds at two nitrogens, and an oxygen elsewhere."""
    molecule.group(NITROGEN, 1, OXYGEN)
    molecule.group(NITROGEN, 1, OXYGEN)
    molecule.attach(OXYGEN, molecule.free_carbon())


def nitro(molecule: Molecule) -> None:
    """Plant a nitro group, two single oxygens and a nitrogen."""
    molecule.group(NITROGEN, 2, OXYGEN)
    for label in (OXYGEN, OXYGEN, NITROGEN):
        molecule.attach(label, molecule.free_carbon())


def nitro_among_decoys(molecule: Molecule) -> None:
    """Plant a nitro group with a decoy at its nitrogen, and decoys at the carbon that carries it."""
    carbon = molecule.free_carbon()
    nitrogen = molecule.group(NITROGEN, 2, OXYGEN, carbon)
    for atom in (nitrogen, carbon, carbon):
        molecule.attach(DECOY, atom)


def sulphurs(molecule: Molecule) -> None:
    """Plant an atom with two sulphurs, and an oxygen and a sulphur elsewhere."""
    molecule.group(CARBON, 2, SULPHUR)
    molecule.attach(OXYGEN, molecule.free_carbon())
    molecule.attach(SULPHUR, molecule.free_carbon())


def both_groups(molecule: Molecule) -> None:
    """Plant an atom with two oxygens and one with two sulphurs."""
    molecule.group(CARBON, 2, SULPHUR)
    molecule.group(CARBON, 2, OXYGEN)


def star(molecule: Molecule) -> None:
    """Plant a hub of degree 5."""
    molecule.group(CARBON, HUB, CARBON)


def sulphur_two_steps_away(molecule: Molecule) -> None:
    """Bond the first atom to one that carries a sulphur; plant a sulphur farther away and an oxygen two steps away."""
    molecule.attach(SULPHUR, molecule.attach(CARBON, 0))
    molecule.attach(OXYGEN, molecule.attach(CARBON, 0))
    far = molecule.attach(CARBON, molecule.attach(CARBON, molecule.attach(CARBON, molecule.free_carbon())))
    molecule.attach(SULPHUR, far)


def oxygens_at_first(molecule: Molecule) -> None:
    """Bond the first atom to two oxygens and a sulphur; plant two oxygens at another atom."""
    for label in (OXYGEN, OXYGEN, SULPHUR):
        molecule.attach(label, 0)
    molecule.group(NITROGEN, 2, OXYGEN)


ALL_FORMS: tuple[Form, ...] = ("gcn", "gcn_sum", "sage", "gin")
SUMS: tuple[Form, ...] = ("gcn_sum", "sage", "gin")
WITH_ROOT: tuple[Form, ...] = ("sage", "gin")

CASES: dict[str, Case] = {
    case.name: case
    for case in (
        Case(
            "bond_count",
            "the number of N-O bonds",
            (NITROGEN_OXYGEN,),
            PLAIN,
            WITH_ROOT,
            one_bond,
            between(NITROGEN, OXYGEN),
        ),
        Case(
            "bond_presence",
            "1 if there is an N-O bond; two bonds, either is enough",
            (NITROGEN_OXYGEN,),
            PRESENCE,
            WITH_ROOT,
            two_bonds,
            between(NITROGEN, OXYGEN),
        ),
        Case(
            "functional_group",
            "atoms with two oxygens",
            (TWO_OXYGENS,),
            PLAIN,
            ALL_FORMS,
            nitro,
            pairs(OXYGEN),
            variants={"gcn": (TWO_NORMALISED,)},
        ),
        Case(
            "decoy",
            "the same; a second unit counts decoys, and the head ignores it",
            (WITH_DECOYS,),
            FIRST_ONLY,
            SUMS,
            nitro_among_decoys,
            pairs(OXYGEN),
        ),
        Case(
            "degree_threshold",
            "bonds beyond the third, of each atom",
            (ANY_LABEL,),
            PLAIN,
            SUMS,
            star,
            hubs,
            variants={"gin": (ANY_LABEL_WITH_OWN,)},
        ),
        Case(
            "xor",
            "two oxygens at an atom, or two sulphurs, but not both; one of them there",
            (TWO_OF_EITHER,),
            EITHER,
            SUMS,
            sulphurs,
            pairs(OXYGEN, SULPHUR),
        ),
        Case(
            "xor_both",
            "the same, both there: class 0",
            (TWO_OF_EITHER,),
            EITHER,
            SUMS,
            both_groups,
            pairs(OXYGEN, SULPHUR),
            target=0,
        ),
        Case(
            "walk",
            "walks of length two from a sulphur to the node",
            (SULPHURS, COUNT),
            PLAIN,
            ALL_FORMS,
            sulphur_two_steps_away,
            walks,
            "node",
            variants={"gcn": (SULPHURS, TEN_TIMES)},
        ),
        Case(
            "group_at_node",
            "two oxygens at the node",
            (TWO_OXYGENS,),
            PLAIN,
            SUMS,
            oxygens_at_first,
            at_first(pairs(OXYGEN)),
            "node",
        ),
    )
}
