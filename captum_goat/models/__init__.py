"""The graph networks of the paper's experiments, at graph and node level, and a function that trains them."""

from captum_goat.models.classifiers import GraphClassifier, NodeClassifier, RootClassifier
from captum_goat.models.paper import PAPER_ACCURACIES, PAPER_SETTINGS, Settings, paper_model, train_paper_model
from captum_goat.models.training import Split, TrainingResult, train_model

__all__ = [
    "PAPER_ACCURACIES",
    "PAPER_SETTINGS",
    "GraphClassifier",
    "NodeClassifier",
    "RootClassifier",
    "Settings",
    "Split",
    "TrainingResult",
    "paper_model",
    "train_model",
    "train_paper_model",
]
