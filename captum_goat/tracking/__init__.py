"""Following a forward pass: which edge is behind each message, and which rows of tensors read which.

Nothing is guessed from shapes or from the names of layers. :class:`RowTracker` sees every operation; the rules in
:mod:`~captum_goat.tracking.moves` and :mod:`~captum_goat.tracking.linear` say what each does to rows, and what has no
rule is refused by name where it matters.
"""

from captum_goat.tracking import linear, moves, nonlinear
from captum_goat.tracking.edge_tracker import EdgeTracker, Messages
from captum_goat.tracking.errors import UnsupportedModelError, by_hand
from captum_goat.tracking.row_graph import NO_ROW, Block, Broken, Edges, RowGraph, Rows, Trace, Unmasked, Unsupported
from captum_goat.tracking.row_tracker import RowTracker

__all__ = [
    "NO_ROW",
    "Block",
    "Broken",
    "EdgeTracker",
    "Edges",
    "Messages",
    "RowGraph",
    "RowTracker",
    "Rows",
    "Trace",
    "Unmasked",
    "Unsupported",
    "UnsupportedModelError",
    "by_hand",
    "linear",
    "moves",
    "nonlinear",
]
