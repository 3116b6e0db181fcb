"""Attributions for every graph of a dataset."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch_geometric.data import Batch, Data
from torch_geometric.explain import Explanation

from captum_goat.attribution import GOAtAttribution
from captum_goat.bulk.files import SavedAttributions, check_format, joined_table, merge, plain_attributes
from captum_goat.bulk.part_folder import PartFolder, Ranks
from captum_goat.inputs.arguments import attributes_for
from captum_goat.inputs.feature_masks import average_features, undirected_feature_mask
from captum_goat.inputs.targets import Choice
from captum_goat.metrics.counted_edges import edges_of
from captum_goat.runs import digest_of, progress_bar
from captum_goat.search import EdgeSetSearch
from captum_goat.shapley import GuidedShapley
from captum_goat.tracking import UnsupportedModelError
from captum_goat.wrapped_model import ExplainedModel, floating_tensor

FORMAT = 6  # of parts; raised when they change, so that older ones are not used
EdgeMethod: TypeAlias = GOAtAttribution | GuidedShapley | EdgeSetSearch
# A name, a class, one class per graph or node, or None for a model that returns one number per graph or node.
TargetOption: TypeAlias = Literal["predicted", "label", "all"] | int | Sequence[int] | Tensor | None
NAMES = ("predicted", "label", "all")
BATCH_SIZE = 128  # where neither the caller nor a DataLoader says otherwise


class DatasetExplanations(list[Explanation]):
    """The explanations of a dataset: a list with one :class:`torch_geometric.explain.Explanation` per graph."""

    columns: tuple[str, ...] = ()

    def to_table(self, *, node_names: Sequence[Sequence[Any]] | None = None, **options: Any) -> Any:
        """Return the attributions of all graphs as a table, as :class:`~captum_goat.bulk.SavedAttributions` do."""
        rows = (
            (number, graph.get("target"), plain_attributes(graph, self.columns), graph.edge_mask, graph)
            for number, graph in enumerate(self)
        )
        return joined_table("graph", rows, node_names, **options)


def explain_dataset(
    method: Any,
    dataset: Any,
    *,
    target: TargetOption = "predicted",
    out: str | PathLike[str] | None = None,
    undirected: bool = False,
    batch_size: int | None = None,
    arguments: Callable[[Data], Any] | None = None,
    columns: Sequence[str] = (),
    device: str | torch.device | None = None,
    show_progress: bool = True,
    resume: bool = True,
) -> Any:
    """Attribute the output for every graph of a dataset to its edges.

    With ``out``, every finished batch is written to the folder ``<out>.parts`` at once. To continue an interrupted run,
    call the function again: it explains what is missing or damaged. It raises an error if the model (its weights,
    attributes or code), the options or the graphs have changed, or if another run is writing there. At the end the
    parts are merged and the folder is deleted. This needs memory for one batch, and disk space for three times the
    attributions. Where ``torch.distributed`` is initialised, as under ``torchrun``, every process explains its share of
    the batches; on several machines, ``out`` has to be in a shared folder.

    Args:
        method: A :class:`~captum_goat.GOAtAttribution` that attributes edges, a :class:`~captum_goat.GuidedShapley` or
            an :class:`~captum_goat.EdgeSetSearch`; or a model, in evaluation mode, that returns one row per graph.
        dataset: The graphs, each a :class:`torch_geometric.data.Data`: a dataset, a list, or a ``DataLoader``, whose
            dataset is explained in its own order.
        target: What to explain: ``"predicted"``, the class with the largest output; ``"label"``, the class ``y``;
            ``"all"``, every class; a class for all graphs, or one per graph; ``None`` for a model without classes.
        out: The file to write, ``.pt`` or ``.parquet`` (needs pyarrow); ``None`` to return everything.
        undirected: Whether to give both directions of an edge the mean of their attributions.
        batch_size: How many graphs are explained together; if ``None``, as many as the ``DataLoader`` says, or 128.
        arguments: A function of a batch that returns the model's arguments as a tuple. By default, the model's
            parameters are looked up by name among the attributes of the graphs (``x``, ``edge_index``, ``edge_attr``,
            ``batch``, ...); a model with one parameter of another name is given the batch.
        columns: Attributes of the graphs, such as ``("y", "smiles")``, that the file and its tables have as columns.
        device: Where to explain; the model is moved there and stays. Where the model is, if ``None``.
        show_progress: Whether to show a progress bar.
        resume: Whether to continue an interrupted run; otherwise its parts are deleted.

    Returns:
        Without ``out``, a list with one :class:`torch_geometric.explain.Explanation` per graph: the graph's own
        attributes, ``edge_mask`` ``[E]`` with the attributions (``[E, C]`` for all classes), ``target`` ``[1]`` (not
        for all classes), ``prediction`` ``[1, C]``, the output without a last softmax, and ``delta`` ``[1]``, the
        convergence delta (nan for an :class:`~captum_goat.EdgeSetSearch`). With ``out``, the opened file, as
        :func:`~captum_goat.bulk.load_attributions` returns it. Both have ``to_table``.

    Examples:
        >>> from captum_goat.bulk import explain_dataset
        >>> from captum_goat.datasets import ba_2motifs
        >>> from captum_goat.models import GraphClassifier
        >>> model, graphs = GraphClassifier("gin", 10, 8, 2).eval(), ba_2motifs(20)
        >>> explanations = explain_dataset(model, graphs, batch_size=8, columns=["y"], show_progress=False)
        >>> len(explanations), explanations[3].edge_mask.shape == (graphs[3].num_edges,)
        (20, True)
        >>> list(explanations.to_table(top_k=3).columns)
        ['graph', 'target_class', 'y', 'edge', 'source', 'target', 'attribution']
    """
    source, ranks = GraphSource(dataset, batch_size), Ranks.current()
    classes = read_target(target, len(source.graphs), "graph")
    explainer = _BatchExplainer(edge_method(method), classes, undirected, arguments, tuple(columns), device)
    if device is not None:
        explainer.method.model.to(device)
    if out is None:
        if ranks.count > 1:
            raise ValueError("Expected out=..., a file for the attributions of several processes (got None).")
        return _explanations(explainer, source, show_progress)
    check_format(Path(out))
    record = explainer.options() | {"graphs": len(source.graphs), "batch_size": source.batch_size}
    record["target"] = int(target) if isinstance(target, Integral) else record["target"]
    folder = PartFolder(Path(out), record, len(source.batches))
    with folder.claimed(ranks):
        finished = ranks.once(lambda: folder.prepare(resume=resume))
        _write_parts(explainer, source, folder, finished, ranks, show_progress)
        ranks.once(lambda: merge(folder))
    return SavedAttributions(Path(out))


def edge_method(method: Any) -> EdgeMethod:
    """Return a method that attributes edges: the user's own, or GOAt with defaults for a model."""
    goat = method if isinstance(method, EdgeMethod) else GOAtAttribution(method)
    takes_edges = not type(goat.model).__module__.startswith("torch.nn.")  # as own models do that have no layers of PyG
    if goat.mask_type != "edge" and not (goat.mask_type is None and takes_edges):
        raise ValueError(
            f"Expected a method that attributes the edges of a model with message passing (got mask_type "
            f"{goat.mask_type!r} of {type(goat.model).__name__}). Call attribute of GOAtAttribution for other inputs."
        )
    return goat


def read_target(target: Any, count: int, unit: Literal["graph", "node"]) -> str | Tensor | None:
    """Return the option ``target``: a name, one class for each of ``count`` graphs or nodes, or ``None``."""
    if target is None or (isinstance(target, str) and target in NAMES):
        return target
    got = repr(target)
    if isinstance(target, Integral | Sequence | Tensor) and not isinstance(target, bool | str):
        classes = torch.as_tensor(target).cpu()
        if classes.shape in ((), (count,)) and classes.dtype in (torch.int32, torch.int64):
            return classes.long().expand(count)
        got = f"{classes.dtype} {list(classes.shape)}"
    raise ValueError(
        f"Expected target to be {', '.join(map(repr, NAMES))}, a class, or one class for each of {count} {unit}s, "
        f"all integers; or None for a model with one number per {unit} (got {got})."
    )


def integer_labels(labels: Any, count: int, unit: str) -> Tensor:
    """Return labels ``y`` as classes; raise ValueError unless there is one integer per graph or node."""
    if not isinstance(labels, Tensor) or labels.numel() != count or labels.is_floating_point():
        got = f"{labels.dtype} {list(labels.shape)}" if isinstance(labels, Tensor) else "none"
        raise ValueError(f"Expected one integer y per {unit}, for target 'label' (got {got}).")
    return labels.view(-1).long()


def explained_classes(target: str | Tensor | None, output: Tensor) -> Tensor | None:
    """Return the explained classes, given the model's output; ``None`` where all are or there are none."""
    if target == "predicted" and output.dim() > 1:
        return output.argmax(dim=1)
    return target if isinstance(target, Tensor) else None


class GraphSource:
    """A dataset that is read in batches."""

    def __init__(self, dataset: Any, batch_size: int | None) -> None:
        if isinstance(dataset, DataLoader):
            dataset, batch_size = dataset.dataset, batch_size or dataset.batch_size
        self.graphs, kind = dataset, type(dataset)
        if issubclass(kind, Data) or not (hasattr(kind, "__len__") and hasattr(kind, "__getitem__")):
            raise TypeError(f"Expected a dataset, a list of graphs or a DataLoader (got {kind.__name__}).")
        self.batch_size = BATCH_SIZE if batch_size is None else batch_size
        if self.batch_size < 1 or not len(self.graphs):
            got = f"{len(self.graphs)} graphs and batch_size {batch_size}"
            raise ValueError(f"Expected at least one graph, and one per batch (got {got}).")
        starts = range(0, len(self.graphs), self.batch_size)
        self.batches = [range(start, min(start + self.batch_size, len(self.graphs))) for start in starts]

    def read(self, number: int) -> tuple[range, list[Data], Data]:
        """Return the numbers of the graphs of a batch, the graphs, and these collated."""
        numbers = self.batches[number]
        graphs = [self.graphs[number] for number in numbers]
        for number, graph in zip(numbers, graphs, strict=True):
            if not isinstance(graph, Data):
                got = f"{type(graph).__name__} as graph {number} of the dataset"
                raise TypeError(f"Expected graphs that are Data (got {got}). Explain others with GOAtAttribution.")
            if graph.edge_index is None:
                raise ValueError(f"Expected graphs with an edge_index (got {graph} as graph {number} of the dataset).")
            if differing := {*graph.keys()} ^ {*graphs[0].keys()}:
                raise ValueError(
                    f"Expected graphs with the same attributes (got graph {numbers[0]} of the dataset, {graphs[0]}, "
                    f"and graph {number}, {graph}: only one of them has {', '.join(sorted(differing))}). Delete what "
                    "only some graphs have."
                )
        try:
            return numbers, graphs, Batch.from_data_list(graphs)
        except RuntimeError as error:
            got = f"graphs {numbers[0]} to {numbers[-1]} of the dataset: {error}"
            raise ValueError(f"Expected graphs that can be batched (got {got}).") from error


@dataclass(frozen=True)
class _BatchExplainer:
    method: EdgeMethod
    target: str | Tensor | None
    undirected: bool
    arguments: Callable[[Data], Any] | None
    columns: tuple[str, ...]
    device: str | torch.device | None

    def options(self) -> dict[str, Any]:
        """Return what decides the attributions of a graph, as plain values; objects by their digests."""
        wrapper = ExplainedModel.of(self.method.forward_func)
        options = self.method.options | {"arguments": self.arguments, "target": self.target}
        for name, value in options.items():
            options[name] = value if isinstance(value, bool | int | float | str | None) else digest_of({name: value})
        return {
            "format": FORMAT,
            "model_class": type(self.method.model).__name__,
            "model": digest_of({"model": self.method.model, "finish": wrapper.finish, "metadata": wrapper.metadata}),
            "method": self.method.get_name(),
            **options,
            "undirected": self.undirected,
            "columns": list(self.columns),
        }

    def __call__(self, members: range, graphs: list[Data], batch: Data) -> dict[str, Any]:
        """Explain a batch, and return what a part has of it, on the CPU; errors name the graph."""
        try:
            return self._explain(members, graphs, batch)
        except (IndexError, TypeError, ValueError, UnsupportedModelError) as error:
            if len(members) > 1:
                for number, graph in zip(members, graphs, strict=True):  # raises for the one at fault
                    self(range(number, number + 1), [graph], Batch.from_data_list([graph]))
            if len(error.args) != 1:  # an error that takes more than a message
                raise
            where = f"graph {members[0]}" if len(members) == 1 else f"the batch of graphs {members[0]} to {members[-1]}"
            raise type(error)(f"{error} (In {where} of the dataset.)") from error

    def _explain(self, members: range, graphs: list[Data], batch: Data) -> dict[str, Any]:
        """Return what a part has of a batch; the names are those of a ``.pt`` file."""
        model = self.method.model
        like = floating_tensor(model)
        device = like.device if self.device is None else torch.device(self.device)
        batch = batch.to(device)
        if self.arguments is None:
            attributes_for(model, batch)  # raises if some are missing
        arguments = batch if self.arguments is None else self.arguments(batch)
        mask = torch.ones(batch.edge_index.size(1), dtype=like.dtype, device=device)
        target = self.target
        if isinstance(target, Tensor):
            target = target[members.start : members.stop].to(device)
        elif target == "label":
            target = integer_labels(batch.y, len(members), "graph")
        result = self.method._explain(mask, Choice(target if isinstance(target, str) else [target]), arguments)
        if len(result.output) != len(members):
            raise ValueError(
                f"Expected one row of output per graph (got output {list(result.output.shape)} for {len(members)} "
                "graphs). For a model of one graph pass batch_size=1; for a model of nodes call explain_nodes."
            )
        attributions = torch.stack([edges for (edges,) in result.attributions])
        if self.undirected:
            attributions = average_features(attributions, undirected_feature_mask(batch.edge_index))
        deltas = torch.stack(result.deltas)
        targets = explained_classes(target, result.output)
        sizes = torch.tensor([graph.edge_index.size(1) for graph in graphs])
        edges = edges_of(batch).cpu() - batch.ptr[:-1].cpu().repeat_interleave(sizes)
        return {
            "attributions": (attributions.t() if target == "all" else attributions[0]).cpu(),
            "targets": None if targets is None else targets.cpu(),
            "outputs": result.output.detach().cpu(),
            "deltas": (deltas.t() if target == "all" else deltas[0]).cpu(),
            "sizes": sizes,
            "edge_index": edges.int().t().contiguous(),
            "columns": [plain_attributes(graph, self.columns) for graph in graphs],
        }


def _explanations(explainer: _BatchExplainer, source: GraphSource, show_progress: bool) -> DatasetExplanations:
    explanations = DatasetExplanations()
    explanations.columns = explainer.columns
    names = {"prediction": "outputs", "delta": "deltas", "target": "targets"}
    with progress_bar(len(source.graphs), "graph", show_progress) as advance:
        for members, graphs, batch in map(source.read, range(len(source.batches))):
            part = explainer(members, graphs, batch)
            masks = part["attributions"].contiguous().split(part["sizes"].tolist())
            per_graph = {name: part[key].split(1) for name, key in names.items() if part[key] is not None}
            for number, (graph, mask) in enumerate(zip(graphs, masks, strict=True)):
                own = {name: rows[number] for name, rows in per_graph.items()}
                explanations.append(Explanation(**graph.to_dict() | {"edge_mask": mask} | own))
            advance(len(graphs))
    return explanations


def _write_parts(
    explainer: _BatchExplainer,
    source: GraphSource,
    folder: PartFolder,
    finished: dict[int, str],
    ranks: Ranks,
    show_progress: bool,
) -> None:
    """Explain this process's share of the batches that are not finished yet, and the first that is once more."""
    pending = [number for number in range(len(source.batches)) if number not in finished]
    numbers = list(finished)[ranks.rank :: ranks.count] + pending[ranks.rank :: ranks.count]
    total = sum(len(source.batches[number]) for number in numbers)
    with progress_bar(total, "graph", show_progress and ranks.rank == 0) as advance:
        for number in numbers:
            members, graphs, batch = source.read(number)
            digest = digest_of(batch.to_dict())
            if number not in finished:
                folder.write(number, explainer(members, graphs, batch) | {"digest": digest})
            elif finished[number] != digest:
                raise folder.of_another_run("graphs")
            elif number == numbers[0] and (part := folder.read(number)) is not None:
                _check_same(part, explainer(members, graphs, batch), folder.path)
            advance(len(graphs))


def _check_same(before: dict[str, Any], now: dict[str, Any], folder: Path) -> None:
    """Raise ValueError if a batch that was explained again has other attributions than its part, up to rounding."""
    names = ("attributions", "outputs")
    largest = max(float(before[name].nan_to_num(0, 0, 0).abs().max()) for name in names if before[name].numel())
    tolerance = largest * torch.finfo(before["outputs"].dtype).eps ** 0.5
    for name in names:
        if not torch.allclose(before[name], now[name], rtol=0, atol=tolerance, equal_nan=True):
            raise ValueError(
                f"Expected the {name} in the parts of {folder} (got others when a batch was explained again): the "
                "model has changed. Pass resume=False to delete the parts and start again, or choose another file."
            )
