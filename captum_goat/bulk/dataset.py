"""Attributions for every graph of a dataset."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Data
from torch_geometric.explain import Explanation

from captum_goat.attribution import GOAtAttribution
from captum_goat.bulk.files import file_format, load_attributions, merge
from captum_goat.bulk.graph_batches import GraphBatch, GraphSource
from captum_goat.bulk.part_folder import PartFolder, Record
from captum_goat.bulk.ranks import Ranks
from captum_goat.bulk.targets import TargetOption, Targets
from captum_goat.inputs.arguments import attributes_for
from captum_goat.inputs.feature_masks import average_features, undirected_feature_mask
from captum_goat.runs.digests import digest_of
from captum_goat.runs.progress import progress_bar
from captum_goat.shapley import GuidedShapley
from captum_goat.wrapped_model import ExplainedModel

FORMAT = 3  # of parts; raised when they change, so that older ones are not used


def explain_dataset(
    method: Any,
    dataset: Any,
    *,
    target: TargetOption = "predicted",
    out: str | PathLike[str] | None = None,
    undirected: bool = False,
    batch_size: int | None = None,
    arguments: Callable[[Data], Any] | None = None,
    device: str | torch.device | None = None,
    show_progress: bool = True,
    resume: bool = True,
) -> Any:
    """Attribute the output for every graph of a dataset to its edges.

    With ``out``, every finished batch is written to the folder ``<out>.parts`` at once. To continue an interrupted run,
    call the function again: it explains what is missing or damaged. It raises an error if the model (its weights, all
    other attributes of its modules, its code), the options or the graphs have changed, and explains one finished batch
    again to be sure. At the end the parts are merged and the folder is deleted. This needs memory for one batch,
    however large the dataset is, and disk space for three times the attributions. Where ``torch.distributed`` is
    initialised, as under ``torchrun``, every process explains its share of the batches; on several machines, ``out``
    has to be in a shared folder. The file is the same as that of one process.

    Args:
        method: A :class:`~captum_goat.GOAtAttribution` that attributes edges, or a
            :class:`~captum_goat.GuidedShapley`, with the options to use; or a model (or what else
            :class:`~captum_goat.GOAtAttribution` takes), for GOAt with its default options. The model is in evaluation
            mode and returns one row per graph.
        dataset: The graphs, each a :class:`torch_geometric.data.Data`: a dataset, a list, or a ``DataLoader`` that
            does not shuffle.
        target: What to explain: ``"predicted"``, the class with the largest output; ``"label"``, the class ``y``;
            ``"all"``, every class; a class for all graphs, or one per graph; ``None`` for a model with one number per
            graph.
        out: The file to write, ``.pt`` or ``.parquet`` (needs pyarrow); an existing file is replaced. ``None`` to
            return everything.
        undirected: Whether to give both directions of an edge the mean of their attributions. The attribution of the
            undirected edge is the sum of the two; all attributions still add up.
        batch_size: How many graphs are explained together; if ``None``, as many as the ``DataLoader`` says, or 128.
        arguments: A function of a batch that returns the model's arguments as a tuple. By default, the model's
            parameters are looked up by name among the attributes of the graphs (``x``, ``edge_index``, ``edge_attr``,
            ``batch``, ...); a model with one parameter of another name is given the batch.
        device: Where to explain; the model is moved there and stays. Where the model is, if ``None``.
        show_progress: Whether to show a progress bar (if tqdm is installed).
        resume: Whether to continue an interrupted run; otherwise its parts are deleted.

    Returns:
        Without ``out``, a list with one :class:`torch_geometric.explain.Explanation` per graph: the graph's own
        attributes, ``edge_mask`` ``[E]`` with the attributions (for all classes ``[E, C]``, which PyG's own methods for
        masks do not take), ``target`` ``[1]`` (not for all classes), ``prediction`` ``[1, C]``, the output without a
        last softmax, and ``delta`` ``[1]``, the convergence delta. With ``out``, the opened file, as
        :func:`~captum_goat.bulk.load_attributions` returns it.

    Raises:
        BlockingIOError: If another run is writing to ``out``.
        OSError: If the disk is full; what is finished stays.
        ValueError: If the arguments do not fit together, or if there are parts of another run.
        UnsupportedModelError: If the model does something that cannot be explained exactly.

    Examples::

        >>> from captum_goat import GOAtAttribution
        >>> from captum_goat.bulk import explain_dataset
        >>> from captum_goat.datasets import ba_2motifs
        >>> from captum_goat.models import GraphClassifier
        >>> model, graphs = GraphClassifier("gin", 10, 8, 2).eval(), ba_2motifs(20)
        >>> explanations = explain_dataset(model, graphs, batch_size=8, show_progress=False)
        >>> len(explanations), explanations[3].edge_mask.shape == (graphs[3].num_edges,)
        (20, True)
        >>> goat = GOAtAttribution(model, gates="proportional")
        >>> len(explain_dataset(goat, graphs, target=1, show_progress=False))
        20
    """
    method, source, ranks = edge_method(method), GraphSource.of(dataset, batch_size), Ranks.current()
    targets = Targets.of(target, source.num_graphs, "graph")
    if device is not None:
        method.model.to(device)
    explainer = _BatchExplainer(
        method, targets, undirected, arguments, None if device is None else torch.device(device)
    )
    if out is None:
        if ranks.count > 1:
            raise ValueError("Expected out=..., a file for the attributions of several processes (got None).")
        return _explanations(explainer, source, show_progress)
    path = Path(out)
    file_format(path)  # raises before the work is done if such a file cannot be written
    record = explainer.options() | {"graphs": source.num_graphs, "batch_size": source.batch_size}
    folder = PartFolder.beside(path)
    with folder.claimed(ranks):
        _write_parts(explainer, source, folder, record, ranks, show_progress=show_progress, resume=resume)
        ranks.wait()
        ranks.once(lambda: merge(folder, source.num_batches, record, path))
    return load_attributions(path)


def edge_method(method: Any) -> GOAtAttribution | GuidedShapley:
    """Return a method that attributes edges: the user's own, or GOAt with defaults for a model.

    Raises:
        ValueError: If the method attributes something else.
    """
    goat = method if isinstance(method, GOAtAttribution | GuidedShapley) else GOAtAttribution(method)
    if goat.mask_type != "edge":
        raise ValueError(
            f"Expected a method that attributes the edges of a model with message passing (got mask_type "
            f"{goat.mask_type!r} of {type(goat.model).__name__}). Call attribute of GOAtAttribution for other inputs."
        )
    return goat


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def floating_tensor(model: Module) -> Tensor:
    """Return a tensor with the dtype and on the device of a model's weights."""
    tensors = (tensor for tensor in (*model.parameters(), *model.buffers()) if tensor.is_floating_point())
    return next(tensors, torch.empty(0))


class _ExplainedBatch(NamedTuple):
    """Attributions of the graphs of a batch, on the CPU; the shapes are those of a :class:`TensorFile`."""

    attributions: Tensor
    targets: Tensor | None
    outputs: Tensor
    deltas: Tensor


@dataclass(frozen=True)
class _BatchExplainer:
    """How batches are explained: by one method, with the options of :func:`explain_dataset`."""

    method: GOAtAttribution | GuidedShapley
    targets: Targets
    undirected: bool
    arguments: Callable[[Data], Any] | None
    device: torch.device | None

    def options(self) -> Record:
        """Return what decides the attributions of a graph, as plain values; objects by their digests."""
        goat, targets = self.method, self.targets
        wrapper = ExplainedModel.of(goat.forward_func)
        return {
            "format": FORMAT,
            "model_class": type(goat.model).__name__,
            "model": digest_of({"model": goat.model, "finish": wrapper.finish, "metadata": wrapper.metadata}),
            "method": goat.get_name(),
            **{name: value if _is_plain(value) else digest_of({name: value}) for name, value in goat.options.items()},
            "target": targets.target if targets.classes is None else digest_of({"classes": targets.classes}),
            "undirected": self.undirected,
            "arguments": None if self.arguments is None else digest_of({"arguments": self.arguments}),
        }

    def __call__(self, batch: Data, members: range) -> _ExplainedBatch:
        """Explain a batch of the graphs with these numbers in the dataset."""
        model = self.method.model
        like = floating_tensor(model)
        device = like.device if self.device is None else self.device
        batch = batch.to(device)
        if self.arguments is None:
            attributes_for(model, batch)  # raises if some are missing
        arguments = batch if self.arguments is None else self.arguments(batch)
        mask = torch.ones(batch.edge_index.size(1), dtype=like.dtype, device=device)
        known = self.targets.known(members, batch.y, device)
        result = self.method._explain(mask, self.targets.choice(known), arguments)
        if len(result.output) != len(members):
            raise ValueError(
                f"Expected one row of output per graph (got output {list(result.output.shape)} for {len(members)} "
                "graphs). For a model that takes one graph at a time pass batch_size=1; for a model with one row per "
                "node call explain_nodes."
            )
        attributions = torch.stack([edges for (edges,) in result.attributions])
        if self.undirected:
            attributions = average_features(attributions, undirected_feature_mask(batch.edge_index))
        deltas = torch.stack(result.deltas)
        if self.targets.target == "all":
            attributions, deltas = attributions.t().contiguous(), deltas.t().contiguous()
        else:
            attributions, deltas = attributions[0], deltas[0]
        targets = self.targets.explained(result.output, known)
        targets = None if targets is None else targets.cpu()
        return _ExplainedBatch(attributions.cpu(), targets, result.output.detach().cpu(), deltas.cpu())


def _explanations(explainer: _BatchExplainer, source: GraphSource, show_progress: bool) -> list[Explanation]:
    """Explain all graphs, and keep the explanations in memory."""
    explanations = []
    with progress_bar(source.num_graphs, "graph", show_progress) as advance:
        for batch in source.read(range(source.num_batches)):
            result = explainer(batch.batch, source.members(batch.number))
            masks = result.attributions.split(batch.sizes)
            for number, (graph, mask) in enumerate(zip(batch.graphs, masks, strict=True)):
                own = slice(number, number + 1)
                explanation = Explanation(**graph.to_dict() | {"edge_mask": mask, "prediction": result.outputs[own]})
                explanation.delta = result.deltas[own]
                if result.targets is not None:
                    explanation.target = result.targets[own]
                explanations.append(explanation)
            advance(len(batch.graphs))
    return explanations


def _write_parts(
    explainer: _BatchExplainer,
    source: GraphSource,
    folder: PartFolder,
    record: Record,
    ranks: Ranks,
    *,
    show_progress: bool,
    resume: bool,
) -> None:
    """Explain this process's share of the batches that have not been explained yet."""
    finished = ranks.once(lambda: folder.prepare(record, source.num_batches, resume=resume))
    pending = [number for number in range(source.num_batches) if number not in finished]
    numbers = ranks.share(list(finished)) + ranks.share(pending)
    total = sum(len(source.members(number)) for number in numbers)
    with progress_bar(total, "graph", show_progress and ranks.is_first) as advance:
        for batch in source.read(numbers):
            digest = digest_of(batch.batch.to_dict())
            if batch.number in finished:
                folder.check(finished[batch.number], digest)
                if batch.number == numbers[0]:
                    _check_same(folder.read(batch.number), _part(explainer, source, batch), folder)
            else:
                folder.write(batch.number, _part(explainer, source, batch) | {"digest": digest}, record)
            advance(len(batch.graphs))


def _part(explainer: _BatchExplainer, source: GraphSource, batch: GraphBatch) -> dict[str, Any]:
    """Explain a batch, and return what is written to its part."""
    edges = {"sizes": torch.tensor(batch.sizes), "edge_index": batch.own_edges().int()}
    return explainer(batch.batch, source.members(batch.number))._asdict() | edges


def _check_same(before: dict[str, Any], now: dict[str, Any], folder: PartFolder) -> None:
    """Raise ValueError if a batch that was explained again has other attributions than its part, up to rounding."""
    names = ("attributions", "outputs")
    largest = max(float(before[name].nan_to_num(0, 0, 0).abs().max()) for name in names if before[name].numel())
    tolerance = largest * torch.finfo(before["outputs"].dtype).eps ** 0.5
    for name in names:
        old, new = before[name], now[name]
        if old.shape != new.shape or not torch.allclose(old, new, rtol=0, atol=tolerance, equal_nan=True):
            raise ValueError(
                f"Expected the {name} in the parts of {folder.path} (got others when a batch was explained again). The "
                "model has changed in a way that its attributes and its code do not show. Pass resume=False to delete "
                "the parts and start again, or choose another file."
            )
