"""Small classifiers of graphs and of nodes, and a function that trains them."""

from captum_goat.models.classifiers import GraphClassifier, NodeClassifier, RootClassifier
from captum_goat.models.training import Split, TrainingResult, train_model

__all__ = ["GraphClassifier", "NodeClassifier", "RootClassifier", "Split", "TrainingResult", "train_model"]
