"""Numbers of the paper, quoted beside ours.

Source: Lu, Mills, He, Liu, Niu: *GOAt: Explaining Graph Neural Networks via Graph Output Attribution*, ICLR 2024. Test
accuracies are in :data:`benchmarks.paper_models.PAPER_ACCURACIES`.
"""

from __future__ import annotations

# The paper's example of a stable explanation: the dataset, the model and the class, houses.
STABLE_EXAMPLE = ("ba_2motifs", "gcn", "1")

# GOAt's seconds per sample for the GCN, on an RTX 3090.
PAPER_SECONDS = {
    "ba_shapes": 0.36,
    "ba_community": 0.50,
    "tree_grid": 0.05,
    "ba_2motifs": 0.46,
    "mutagenicity": 0.60,
    "nci1": 0.83,
}

# The share of a class that has GOAt's most frequent explanation of the GCN at sparsity 0.7, by dataset and class.
PAPER_TOP_COVERAGE = {
    ("ba_2motifs", "1"): 0.934,
    ("mutagenicity", "0"): 0.035,
    ("mutagenicity", "1"): 0.022,
    ("nci1", "0"): 0.035,
    ("nci1", "1"): 0.043,
}

# The same for the two most frequent ones together.
PAPER_TOP_TWO_COVERAGE = {("ba_2motifs", "1"): 0.974}
