"""The explanation of nodes in graphs that were cut out for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from captum_goat.fields.receptive_field import ReceptiveFields
from captum_goat.inputs.graph_inputs import GraphInputs
from captum_goat.inputs.targets import Choice, Target
from captum_goat.method.explain import GraphExplanation
from captum_goat.nodes.cut_graphs import CutGraphs
from captum_goat.nodes.rows import reaching


class CutExplanation(GraphExplanation):
    """The explanation of one number per root, or of several.

    Which edges belong to which root is known beforehand, and rows that do not reach any root, which most rows do not,
    need no receptive fields.

    Args:
        graph: The model's arguments for the cut graphs.
        cut: The cut graphs.
        choice: What to explain, given the output of the roots.
        dtype: The type of the attributions.
        repeated: Whether receptive fields list an edge once per hop.
    """

    def __init__(
        self, graph: GraphInputs, cut: CutGraphs, choice: Choice, *, dtype: torch.dtype, repeated: bool = False
    ) -> None:
        def of_roots(output: Tensor) -> Tensor:
            return output[cut.roots]

        mask = torch.ones(cut.edge_index.size(1), dtype=dtype, device=cut.edge_index.device)
        self._owner = torch.cat([cut.owner, cut.owner.new_full((len(mask) - len(cut.owner),), -1)])
        super().__init__(graph, choice, mask=mask, finish=of_roots, repeated=repeated)

    def _find_fields(self, repeated: bool) -> list[ReceptiveFields]:
        if self.pattern.rows is not None:
            rows = reaching(self.pattern.graph, self.pattern.rows.ids.reshape(-1))
            self.pattern = replace(self.pattern, graph=rows)
        return super()._find_fields(repeated)

    def _find_owners(self, target: Target, fields: Sequence[ReceptiveFields], copies: int | None) -> Tensor:
        return self._owner
