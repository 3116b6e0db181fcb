"""Progress bars."""

from __future__ import annotations

from typing import Any

try:
    from tqdm import tqdm
except ImportError as error:
    raise ImportError("The benchmark needs tqdm: pip install captum-goat[demo]") from error


def bar(title: str, total: int, unit: str, shown: bool) -> Any:
    """Return a progress bar, to be used in a with statement."""
    return tqdm(total=total, desc=title, unit=unit, disable=not shown, leave=unit == "explainer", mininterval=1.0)
