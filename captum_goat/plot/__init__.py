"""Pictures of attributed graphs, with the parameter names of :mod:`captum.attr.visualization`.

Blue supports the target and red opposes it in every picture. :mod:`captum_goat.plot.captum_visualizers` draws with
Captum's own visualizers instead.
"""

from captum_goat.plot.graph import visualize_graph_attr, visualize_graph_attr_multiple
from captum_goat.plot.molecule import MUTAGENICITY_ELEMENTS, one_hot_atoms, visualize_molecule_attr
from captum_goat.plot.style import PictureOptions

__all__ = [
    "MUTAGENICITY_ELEMENTS",
    "PictureOptions",
    "one_hot_atoms",
    "visualize_graph_attr",
    "visualize_graph_attr_multiple",
    "visualize_molecule_attr",
]
