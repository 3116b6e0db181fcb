"""What each form of target selects: of a linear model, the attribution of an edge is the number that it brings."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from captum._utils.common import _select_targets
from torch import Tensor, nn
from torch_geometric.nn import SimpleConv, global_add_pool

from captum_goat import GOAtAttribution

OUTPUT = torch.arange(1.0, 13.0, dtype=torch.float64).view(4, 3)
CUBE = torch.arange(1.0, 25.0, dtype=torch.float64).view(4, 3, 2)
EDGES = torch.tensor([[0, 2, 4, 6], [1, 3, 5, 7]])
BATCH = torch.arange(4).repeat_interleave(2)


class Messages(nn.Module):
    """Return what the edges bring to each graph, or to each node."""

    def __init__(self, shape: torch.Size) -> None:
        super().__init__()
        self.conv, self.shape = SimpleConv(), shape
        self.eval()

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        out: Tensor = self.conv(x, edge_index)
        return (out if batch is None else global_add_pool(out, batch)).view(-1, *self.shape)


def attributed(output: Tensor, target: Any) -> Tensor:
    """Attribute to the edges of four graphs, one edge each, which brings its graph's row of the output."""
    x = torch.stack([output, torch.zeros_like(output)], dim=1).view(8, -1)
    model = Messages(output.shape[1:])
    assert torch.equal(model(x, EDGES, BATCH), output)
    result: Tensor = GOAtAttribution(model).attribute(torch.ones(4).double(), target, (x, EDGES, BATCH))
    return result


@pytest.mark.parametrize(
    ("output", "target"),
    [
        (OUTPUT, 2),
        (OUTPUT, -1),
        (OUTPUT, (1,)),
        (OUTPUT, torch.tensor(0)),
        (OUTPUT, torch.tensor([1])),
        (OUTPUT, [0, 1, 2, 0]),
        (OUTPUT, [(0,), (1,), (2,), (0,)]),
        (OUTPUT, torch.tensor([0, 1, 2, 0])),
        (CUBE, (1, 0)),
        (CUBE, [(1, 0), (2, 1), (0, 0), (1, 1)]),
        (OUTPUT[:, 0], None),
    ],
)
def test_captums_forms_mean_what_captum_means(output: Tensor, target: object) -> None:
    torch.testing.assert_close(attributed(output, target), _select_targets(output, target))


def test_a_full_index_names_its_row() -> None:
    assert attributed(OUTPUT, (2, 1)).tolist() == pytest.approx([0.0, 0.0, 8.0, 0.0])
    assert attributed(CUBE, (3, 2, -1)).tolist() == pytest.approx([0.0, 0.0, 0.0, 24.0])
    assert attributed(OUTPUT, [(2, 1)]).tolist() == pytest.approx([0.0, 0.0, 8.0, 0.0])


NODES = torch.tensor([[0, 1], [0, 1]])  # two loops: each node's row is its own


def of_masks(masks: Tensor, target: Any) -> list[list[float]]:
    """Attribute to several masks of one graph of two nodes."""
    result: Tensor = GOAtAttribution(Messages(OUTPUT.shape[1:])).attribute(masks.double(), target, (OUTPUT[:2], NODES))
    return result.tolist()


def test_several_masks_of_a_graph_with_several_rows() -> None:
    masks = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert of_masks(masks, (1, 2)) == [pytest.approx([0.0, 12.0]), pytest.approx([0.0, 24.0])]
    assert of_masks(masks, [(0, 1), (1, 2)]) == [pytest.approx([2.0, 0.0]), pytest.approx([0.0, 24.0])]
    with pytest.raises(ValueError, match="must name one of them"):
        of_masks(masks, 1)


def test_several_masks_of_a_graph_with_one_row() -> None:
    x, batch = torch.cat([OUTPUT[:1], 0 * OUTPUT[:1]]), torch.zeros(2, dtype=torch.long)
    masks = torch.arange(1.0, 5.0, dtype=torch.float64).view(4, 1)
    goat, arguments = GOAtAttribution(Messages(OUTPUT.shape[1:])), (x, EDGES[:, :1], batch)
    assert goat.attribute(masks, [0, 1, 2, 0], arguments).flatten().tolist() == pytest.approx([1.0, 4.0, 9.0, 4.0])
    assert goat.attribute(masks, (0, 1), arguments).flatten().tolist() == pytest.approx([2.0, 4.0, 6.0, 8.0])


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ([1, 2], "got 2 targets for 4"),
        ([(0, 1), (1, 1)], "got 2 targets for 1 mask"),
        ((1, 1, 1), "selects one number"),
        (1.5, "selects one number"),
        (slice(0, 2), "selects one number"),
        ([1, (1, 2)], "selects one number"),
        (torch.ones(2, 2, 2), "selects one number"),
    ],
)
def test_other_targets_are_refused(target: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        attributed(OUTPUT, target)


@pytest.mark.parametrize("target", [3, -4, (4, 0), [0, 1, 2, 3]])
def test_targets_outside_are_refused(target: object) -> None:
    with pytest.raises(IndexError, match="within the output's shape"):
        attributed(OUTPUT, target)
