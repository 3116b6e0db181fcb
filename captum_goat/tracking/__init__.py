"""Follow a forward pass: which edge is behind each message, and which rows of tensors read which.

Nothing is guessed from shapes or from the names of layers. :class:`RowTracker` sees every operation. The rules in
:mod:`~captum_goat.tracking.moves` and :mod:`~captum_goat.tracking.linear` tell what each operation does to rows; an
output that depends on an operation without a rule is refused.
"""

from captum_goat.tracking import linear, moves, sparse  # noqa: F401  (they register their rules)
from captum_goat.tracking.edge_tracker import EdgeTracker, Messages
from captum_goat.tracking.errors import NoPolynomialError, UnsupportedModelError, by_hand
from captum_goat.tracking.row_graph import Block, Broken, Edges, RowGraph, Rows, Unmasked, Unsupported
from captum_goat.tracking.row_tracker import RowTracker

__all__ = [
    "Block",
    "Broken",
    "EdgeTracker",
    "Edges",
    "Messages",
    "NoPolynomialError",
    "RowGraph",
    "RowTracker",
    "Rows",
    "Unmasked",
    "Unsupported",
    "UnsupportedModelError",
    "by_hand",
]
