"""Pictures of attributed graphs, with the parameter names of :mod:`captum.attr.visualization`.

Blue speaks for the target, red against it, in every picture. :mod:`captum_goat.plot.captum_visualizers` draws with
Captum's own visualizers instead.
"""

from captum_goat.plot.elements import MUTAGENICITY_ELEMENTS, one_hot_atoms
from captum_goat.plot.graph_panels import visualize_graph_attr_multiple
from captum_goat.plot.graph_picture import visualize_graph_attr
from captum_goat.plot.molecule_panels import visualize_molecule_attr_multiple
from captum_goat.plot.molecule_picture import molecule_svg, visualize_molecule_attr

__all__ = [
    "MUTAGENICITY_ELEMENTS",
    "molecule_svg",
    "one_hot_atoms",
    "visualize_graph_attr",
    "visualize_graph_attr_multiple",
    "visualize_molecule_attr",
    "visualize_molecule_attr_multiple",
]
