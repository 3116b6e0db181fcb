"""SubgraphX, through the package ``dive-into-graphs`` where it is installed."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Data

from captum_goat.compare.explainers import Explainer, ExplainerSkippedError
from captum_goat.compare.graphs import Graphs, seeded

_FOLDER = "captum_goat_dig_xgraph_method"  # the folder of the package's methods, under a name of our own
_ADVICE = "Install it without its dependencies: pip install --no-deps dive-into-graphs && pip install rdkit"


class SubgraphX(Explainer):
    """SubgraphX: a Monte Carlo tree search for connected subgraphs with a large Shapley value.

    The search is that of Dive into Graphs. It values sets of nodes; an edge's score is the largest value of all sets
    that hold both of its nodes, so that the edges of the best subgraph come first (all with the same score), then those
    of the next best. Edges that no search has looked into have the smallest value that was found.

    Args:
        rollouts: The number of searches.
        samples: The number of random sets of other nodes from which a Shapley value is estimated.
        smallest: The number of nodes at which a search ends.
        seed: Where the random numbers start.
    """

    name = "subgraphx"
    citation = "Yuan, Yu, Wang, Li, Ji: On Explainability of Graph Neural Networks via Subgraph Explorations, ICML 2021"

    def __init__(self, rollouts: int = 10, samples: int = 50, smallest: int = 5, seed: int = 0) -> None:
        self.rollouts = rollouts
        self.samples = samples
        self.smallest = smallest
        self.seed = seed

    def scores(self, model: Module, graphs: Graphs) -> Tensor:
        """Return the best values of one graph's edges."""
        package = load_subgraphx()
        search = package.SubgraphX(
            _AsExpected(model),
            num_classes=0,  # only to loop over all classes, which is not done here
            device=graphs.x.device,
            rollout=self.rollouts,
            min_atoms=self.smallest,
            sample_num=self.samples,
            vis=False,
        )
        with seeded(graphs.seed(self.seed)), torch.no_grad():
            reward = search.get_reward_func(package.GnnNetsGC2valueFunc(search.model, int(graphs.target)))
            results = search.get_mcts_class(graphs.x, graphs.edge_index, score_func=reward).mcts(verbose=False)
        return best_values([(result.coalition, result.P) for result in results], graphs)


def best_values(coalitions: Sequence[tuple[list[int], float]], graphs: Graphs) -> Tensor:
    """Return, for each edge, the largest value of all sets of nodes that hold both of its nodes.

    Args:
        coalitions: Sets of nodes and their values. The set of all nodes is where the search starts, and is not valued.
        graphs: One graph.

    Examples::

        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from captum_goat.compare.graphs import Graphs
        >>> from benchmarks.explainers.subgraphx import best_values
        >>> path = Data(x=torch.ones(4, 1), edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]))
        >>> best_values([([0, 1, 2], 0.5), ([0, 1], 0.75)], Graphs.of(path, torch.tensor([0])))
        tensor([0.7500, 0.5000, 0.5000])
    """
    nodes = graphs.x.size(0)
    valued = [(coalition, value) for coalition, value in coalitions if len(coalition) < nodes]
    best = torch.full((graphs.num_edges,), -torch.inf, dtype=graphs.x.dtype, device=graphs.x.device)
    for coalition, value in valued:
        inside = torch.zeros(nodes, dtype=torch.bool, device=graphs.x.device)
        inside[coalition] = True
        best = torch.where(inside[graphs.edge_index].all(dim=0), best.clamp(min=value), best)
    return best.clamp(min=min((value for _, value in valued), default=0.0))


class _AsExpected(Module):
    """A model with the signature that the package expects: a batch as ``data``, or features and edges."""

    def __init__(self, model: Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor | None = None, edge_index: Tensor | None = None, data: Data | None = None) -> Tensor:
        """Return the logits."""
        logits: Tensor = (
            self.model(x, edge_index, None) if data is None else self.model(data.x, data.edge_index, data.batch)
        )
        return logits


def load_subgraphx() -> Any:
    """Load the package's SubgraphX, and nothing else of it.

    As a whole the package cannot be imported beside a current torch: it wants ``torch_sparse`` and modules of captum
    0.2. SubgraphX itself needs neither.

    Raises:
        ExplainerSkippedError: If the package, or rdkit, is not installed.
    """
    try:
        spec = importlib.util.find_spec("dig")
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None:
        raise ExplainerSkippedError(f"SubgraphX needs the package dive-into-graphs (got none). {_ADVICE}")
    if _FOLDER not in sys.modules:
        folder = ModuleType(_FOLDER)
        folder.__path__ = [str(Path(spec.origin).parent / "xgraph" / "method")]
        sys.modules[_FOLDER] = folder
    try:
        return importlib.import_module(f"{_FOLDER}.subgraphx")
    except ImportError as error:
        raise ExplainerSkippedError(f"SubgraphX of dive-into-graphs cannot be imported ({error}). {_ADVICE}") from error
