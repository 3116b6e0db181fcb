"""The colours of pictures: one map from attributions to colours, which all of them share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from captum_goat.plot.edge_scores import Sign
from captum_goat.plot.figures import missing_matplotlib

if TYPE_CHECKING:
    from matplotlib.colors import Colormap, Normalize
    from numpy.typing import NDArray

# Red and blue are told apart with any kind of colour vision. The middle is grey, not white: an edge without
# attribution is still an edge of the graph and must not vanish.
NEGATIVE, NEUTRAL, POSITIVE, MAGNITUDE = "#ca0020", "#d0d0d0", "#0571b0", "#5e3c99"
CMAP_COLORS: dict[Sign, list[str]] = {
    "all": [NEGATIVE, NEUTRAL, POSITIVE],
    "positive": [NEUTRAL, POSITIVE],
    "negative": [NEGATIVE, NEUTRAL],
    "absolute_value": [NEUTRAL, MAGNITUDE],
}
HALO, INK = "#ffdf80", "#404040"


def check_scale(vmax: float | None, alpha_overlay: float) -> None:
    """Raise a ValueError unless both are what they should be."""
    if vmax is not None and not 0 <= vmax < np.inf:
        raise ValueError(f"Expected vmax to be a magnitude, finite and at least 0 (got {vmax}).")
    if not 0 <= alpha_overlay <= 1:
        raise ValueError(f"Expected alpha_overlay between 0 and 1 (got {alpha_overlay}).")


class ColourScale(NamedTuple):
    """The map from attributions to colours, with zero in the middle (or at an end, if one sign is shown)."""

    cmap: Colormap
    norm: Normalize
    alpha: float

    @property
    def full(self) -> float:
        """The magnitude that has the full colour."""
        return float(max(abs(self.norm.vmin or 0.0), abs(self.norm.vmax or 0.0)))

    def shares(self, scores: NDArray[Any]) -> NDArray[Any]:
        """Return the magnitudes as shares of the full one, at most 1."""
        shares: NDArray[Any] = (np.abs(scores) / self.full).clip(max=1)
        return shares

    def colours(self, scores: NDArray[Any]) -> NDArray[Any]:
        """Return the colours, ``[..., 4]``."""
        return np.asarray(self.cmap(self.norm(scores), alpha=self.alpha))


def colour_scale(sign: Sign, vmax: float, cmap: str | Colormap | None = None, alpha: float = 1.0) -> ColourScale:
    """Return the colours of a picture.

    Args:
        sign: Which attributions are shown.
        vmax: The magnitude that has the full colour.
        cmap: A colour map of matplotlib; ``None`` for red, grey, blue, or the half of it that ``sign`` needs.
        alpha: How opaque the colours are.

    Examples::

        >>> import numpy as np
        >>> from matplotlib.colors import to_hex
        >>> from captum_goat.plot.palette import colour_scale
        >>> [to_hex(colour) for colour in colour_scale("all", vmax=2.0).colours(np.array([-2.0, 0.0, 2.0]))]
        ['#ca0020', '#d0d0d0', '#0571b0']
    """
    try:
        from matplotlib import colormaps
        from matplotlib.colors import LinearSegmentedColormap, Normalize
    except ImportError as error:
        raise missing_matplotlib() from error

    norm = Normalize(-vmax if sign in ("all", "negative") else 0, vmax if sign != "negative" else 0)
    if cmap is None:  # an odd number of colours, so that zero has the grey itself
        cmap = LinearSegmentedColormap.from_list(f"goat_{sign}", CMAP_COLORS[sign], N=257)
    return ColourScale(colormaps.get_cmap(cmap), norm, alpha)


def one_colour_each(colours: Any, count: int, default: Any) -> NDArray[Any]:
    """Return the nodes' colours, ``[N, 4]``: one for all of them, or one for each."""
    try:
        from matplotlib.colors import to_rgba_array
    except ImportError as error:
        raise missing_matplotlib() from error

    try:
        faces = to_rgba_array(default if colours is None else colours)
    except (TypeError, ValueError) as error:
        raise ValueError(f"Expected node_colors to be colours of matplotlib (got {colours!r}).") from error
    if len(faces) not in (1, count):
        raise ValueError(f"Expected node_colors to be one colour, or one for each of {count} nodes (got {len(faces)}).")
    return np.broadcast_to(faces, (count, 4))


def ink_on(face: NDArray[Any]) -> str:
    """Return a colour for letters that can be read on a face, by its brightness."""
    return INK if face[:3] @ [0.299, 0.587, 0.114] > 0.5 else "white"
