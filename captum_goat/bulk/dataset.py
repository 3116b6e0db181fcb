"""Attributions for every graph of a data set."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import torch
from torch_geometric.data import Data
from torch_geometric.explain import Explanation

from captum_goat.bulk.digests import digest_of
from captum_goat.bulk.explained_batch import BatchExplainer
from captum_goat.bulk.files import file_format, load_attributions, merge
from captum_goat.bulk.graph_targets import GraphTarget, GraphTargets
from captum_goat.bulk.graphs import GraphBatch, GraphSource
from captum_goat.bulk.part_folder import PartFolder, Record
from captum_goat.bulk.progress import progress_bar
from captum_goat.bulk.ranks import Ranks
from captum_goat.wrapped_model import ExplainedModel

FORMAT = 2  # to be raised when parts change, so that older ones are not taken for those of today


def explain_dataset(
    model: Any,
    dataset: Any,
    *,
    target: GraphTarget = "predicted",
    out: str | PathLike[str] | None = None,
    field: Literal["distinct", "repeated"] = "distinct",
    undirected: bool = False,
    batch_size: int | None = None,
    arguments: Callable[[Data], Any] | None = None,
    device: str | torch.device | None = None,
    show_progress: bool = True,
    resume: bool = True,
) -> Any:
    """Attribute the output for every graph of a data set to its edges.

    With ``out``, every finished batch is written to the folder ``<out>.parts`` at once. An interrupted run is called
    again and goes on with what is not there, or is damaged. It refuses to go on if the model (its weights, all other
    attributes of its modules, its code), the options or the graphs are not what they were; and, to be sure, it explains
    a finished batch again. In the end the parts are put together and the folder is deleted. Memory is needed for one
    batch, however large the data set is, and disk space for the attributions three times. Where ``torch.distributed``
    is initialised, as under ``torchrun``, every process explains its share of the batches; on several machines, ``out``
    has to be in a folder that they share. The file is the same as that of one process.

    Args:
        model: The trained model in evaluation mode, with one row of output per graph; or what else
            :class:`~captum_goat.GOAtAttribution` takes.
        dataset: The graphs, each a :class:`torch_geometric.data.Data`: a data set, a list, or a ``DataLoader`` that
            does not shuffle.
        target: What to explain: ``"predicted"``, the class with the largest output; ``"label"``, the class ``y``;
            ``"all"``, every class; a class for all graphs, or one per graph; ``None`` for a model with one number per
            graph.
        out: The file to write, ``.pt`` or ``.parquet`` (needs pyarrow), which is replaced if there is one; ``None`` to
            return everything.
        field: As for :class:`~captum_goat.GOAtAttribution`.
        undirected: Whether the two directions of an edge are both given the mean of their attributions. The attribution
            of the undirected edge is the sum of the two, and all of them together add up as they do otherwise.
        batch_size: How many graphs are explained together; if ``None``, as many as the ``DataLoader`` says, or 128.
        arguments: A function of a batch that returns the model's arguments as a tuple. By default, the model's
            parameters are looked up by name among the attributes of the graphs (``x``, ``edge_index``, ``edge_attr``,
            ``batch``, ...); a model with one parameter of another name is given the batch.
        device: Where to explain; the model is moved there and stays. Where the model is, if ``None``.
        show_progress: Whether to show a progress bar (if tqdm is installed).
        resume: Whether to go on with the parts of an interrupted run. Otherwise they are deleted, and nothing else.

    Returns:
        Without ``out``, a list with one :class:`torch_geometric.explain.Explanation` per graph: the graph's own
        attributes, ``edge_mask`` ``[E]`` with the attributions (for all classes ``[E, C]``, which PyG's own methods for
        masks do not take), ``target`` ``[1]`` (not for all classes), ``prediction`` ``[1, C]``, the output without a
        last softmax, and ``delta`` ``[1]``, the completeness error. With ``out``, the opened file, as
        :func:`~captum_goat.bulk.load_attributions` returns it.

    Raises:
        BlockingIOError: If another run is writing to ``out``.
        OSError: If the disk is full; what is finished stays.
        ValueError: If the arguments do not fit together, or if there are parts of another run.
        UnsupportedModelError: If the model does something that cannot be explained exactly.

    Examples::

        >>> from captum_goat.bulk import explain_dataset
        >>> from captum_goat.datasets import ba_2motifs
        >>> from captum_goat.models import GraphClassifier
        >>> model, graphs = GraphClassifier("gin", 10, 8, 2).eval(), ba_2motifs(20)
        >>> explanations = explain_dataset(model, graphs, batch_size=8, show_progress=False)
        >>> len(explanations), explanations[3].edge_mask.shape == (graphs[3].num_edges,)
        (20, True)
    """
    source, ranks = GraphSource.of(dataset, batch_size), Ranks.current()
    targets = GraphTargets.of(target, source.num_graphs)
    explained = ExplainedModel.of(model)
    own_model = explained.model
    if device is not None:
        own_model.to(device)
    place = None if device is None else torch.device(device)
    explainer = BatchExplainer(model, targets, field, undirected, arguments, place)
    if out is None:
        if ranks.count > 1:
            raise ValueError("Expected out=..., a file for what several processes have explained (got None).")
        return _explanations(explainer, source, show_progress)
    path = Path(out)
    file_format(path)  # refuses names of files that cannot be written, before the work is done
    record = {
        "format": FORMAT,
        "model_class": type(own_model).__name__,
        "model": digest_of({"model": own_model, "finish": explained.finish, "metadata": explained.metadata}),
        "graphs": source.num_graphs,
        "batch_size": source.batch_size,
        "target": targets.target if targets.classes is None else digest_of({"classes": targets.classes}),
        "field": field,
        "undirected": undirected,
        "arguments": None if arguments is None else digest_of({"arguments": arguments}),
    }
    if explained.at != "message":
        record["at"] = explained.at
    folder = PartFolder.beside(path)
    with folder.claimed(ranks):
        _write_parts(explainer, source, folder, record, ranks, show_progress=show_progress, resume=resume)
        ranks.wait()
        ranks.once(lambda: merge(folder, source.num_batches, record, path))
    return load_attributions(path)


def _explanations(explainer: BatchExplainer, source: GraphSource, show_progress: bool) -> list[Explanation]:
    """Explain all graphs, and keep the explanations in memory."""
    explanations = []
    with progress_bar(source.num_graphs, "graph", show_progress) as advance:
        for each in source.read(range(source.num_batches)):
            found = explainer(each.batch, source.members(each.number))
            masks = found.attributions.split(each.sizes)
            for number, (graph, mask) in enumerate(zip(each.graphs, masks, strict=True)):
                own = slice(number, number + 1)
                explanation = Explanation(**graph.to_dict() | {"edge_mask": mask, "prediction": found.outputs[own]})
                explanation.delta = found.deltas[own]
                if found.targets is not None:
                    explanation.target = found.targets[own]
                explanations.append(explanation)
            advance(len(each.graphs))
    return explanations


def _write_parts(
    explainer: BatchExplainer,
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
        for each in source.read(numbers):
            digest = digest_of(each.batch.to_dict())
            if each.number in finished:
                folder.check(finished[each.number], digest)
                if each.number == numbers[0]:
                    _check_same(folder.read(each.number), _part(explainer, source, each), folder)
            else:
                folder.write(each.number, _part(explainer, source, each) | {"digest": digest}, record)
            advance(len(each.graphs))


def _part(explainer: BatchExplainer, source: GraphSource, each: GraphBatch) -> dict[str, Any]:
    """Explain a batch, and return all that a file is to have of it."""
    edges = {"sizes": torch.tensor(each.sizes), "edge_index": each.own_edges().int()}
    return explainer(each.batch, source.members(each.number))._asdict() | edges


def _check_same(before: dict[str, Any], now: dict[str, Any], folder: PartFolder) -> None:
    """Refuse to go on if a batch that was explained again has other attributions than its part, but for rounding."""
    names = ("attributions", "outputs")
    largest = max(float(before[name].nan_to_num(0, 0, 0).abs().max()) for name in names if before[name].numel())
    tolerance = largest * torch.finfo(before["outputs"].dtype).eps ** 0.5
    for name in names:
        one, other = before[name], now[name]
        if one.shape != other.shape or not torch.allclose(one, other, rtol=0, atol=tolerance, equal_nan=True):
            raise ValueError(
                f"Expected the {name} in the parts of {folder.path} (got others when a batch was explained again). The "
                "model must have changed in a way that cannot be seen from its attributes and its code. Pass "
                "resume=False to delete the parts and start anew, or choose another file."
            )
