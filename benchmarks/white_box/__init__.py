"""Graph networks whose weights are set by hand, so that the edges that matter to them are known."""

from benchmarks.white_box.cases import CASES, FORMS, Case
from benchmarks.white_box.networks import Layer, WhiteBox

__all__ = ["CASES", "FORMS", "Case", "Layer", "WhiteBox"]
