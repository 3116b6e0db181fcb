"""The explanation of nodes in graphs that are cut out for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from captum_goat.inputs.graph_inputs import GraphInputs
from captum_goat.inputs.targets import Choice, Target
from captum_goat.method.explain import GraphExplanation
from captum_goat.method.spread import Fields
from captum_goat.nodes.cut_graphs import CutGraphs
from captum_goat.tracking import RowGraph


class CutExplanation(GraphExplanation):
    """The explanation of one number per root, or of several.

    Which edges belong to which root is known beforehand. Rows that do not reach any root, which are most of them, need
    no receptive fields.

    Args:
        graph: The model's arguments for the cut graphs.
        cut: The cut graphs.
        choice: What to explain, given the output of the roots.
        dtype: The dtype of the attributions.
        **options: As for :class:`~captum_goat.method.explain.GraphExplanation`.
    """

    def __init__(
        self, graph: GraphInputs, cut: CutGraphs, choice: Choice, *, dtype: torch.dtype, **options: Any
    ) -> None:
        def of_roots(output: Tensor) -> Tensor:
            return output[cut.roots]

        mask = torch.ones(cut.edge_index.size(1), dtype=dtype, device=cut.edge_index.device)
        self._owner = torch.cat([cut.owner, cut.owner.new_full((len(mask) - len(cut.owner),), -1)])
        super().__init__(graph, choice, mask=mask, finish=of_roots, **options)

    def _find_fields(self, repeated: bool) -> list[Fields]:
        if self.pattern.rows is not None:
            rows = _reaching(self.pattern.graph, self.pattern.rows.ids.reshape(-1))
            self.pattern = replace(self.pattern, graph=rows)
        return super()._find_fields(repeated)

    def _find_owners(self, target: Target, fields: Sequence[Fields], copies: int | None) -> Tensor:
        return self._owner


def _reaching(graph: RowGraph, rows: Tensor) -> RowGraph:
    """Return the row graph without what does not reach some rows (ids; -1 for none): others read nothing."""
    matters = torch.zeros(graph.num_rows, dtype=torch.bool, device=rows.device)
    matters[rows[rows >= 0]] = True
    reduced = RowGraph()
    reduced.num_rows = graph.num_rows
    for block in reversed(graph.blocks):  # a block reads only blocks made before it
        here = matters[block.offset : block.offset + block.size]
        kept = here[block.child]
        child, parent = block.child[kept], block.parent[kept]
        matters[parent] = True
        element = None if block.element is None else block.element.where(here, -1)
        reduced.blocks.append(block._replace(child=child, parent=parent, element=element))
    reduced.blocks.reverse()
    return reduced
