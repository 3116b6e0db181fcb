"""The kinds of files that attributions are saved to."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from captum_goat.bulk import tensor_file
from captum_goat.bulk.part_folder import PartFolder, Record, full_disk_explained
from captum_goat.bulk.saved import SavedAttributions

SUFFIXES = (".pt", ".parquet")


class FileFormat(NamedTuple):
    """How a kind of file is written and read."""

    write: Callable[[PartFolder, int, dict[str, Any], Path], None]
    read: Callable[[Path], SavedAttributions]


def file_format(path: Path) -> FileFormat:
    """Return the kind of file that a name stands for.

    Raises:
        ValueError: If it stands for none, or for a folder.
        ImportError: If it is Parquet and pyarrow is missing.
    """
    if path.is_dir():
        raise ValueError(f"Expected a file (got {path}, which is a folder).")
    if path.suffix == ".pt":
        return FileFormat(tensor_file.write, tensor_file.TensorFile)
    if path.suffix == ".parquet":
        if find_spec("pyarrow") is None:
            raise ImportError("Parquet files need pyarrow: pip install captum-goat[parquet]")
        from captum_goat.bulk import parquet_file

        return FileFormat(parquet_file.write, parquet_file.ParquetAttributions)
    raise ValueError(f"Expected a file that ends in {' or '.join(SUFFIXES)} (got {path.name}).")


def load_attributions(path: str | PathLike[str]) -> SavedAttributions:
    """Open a file of attributions.

    Args:
        path: A ``.pt`` or ``.parquet`` file that :func:`~captum_goat.bulk.explain_dataset` has written.

    Returns:
        A sequence with one :class:`~captum_goat.bulk.GraphAttributions` per graph, read when it is asked for; ``meta``
        says how they came about.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it has something else.

    Examples::

        >>> import tempfile
        >>> from captum_goat.bulk import explain_dataset, load_attributions
        >>> from captum_goat.datasets import ba_2motifs
        >>> from captum_goat.models import GraphClassifier
        >>> model, graphs = GraphClassifier("gcn", 10, 8, 2).eval(), ba_2motifs(4)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = explain_dataset(model, graphs, out=f"{folder}/attributions.pt", show_progress=False)
        ...     saved = load_attributions(f"{folder}/attributions.pt")
        ...     saved[3].attributions.shape == (graphs[3].num_edges,)
        True
    """
    read = file_format(Path(path)).read
    if not Path(path).is_file():
        raise FileNotFoundError(f"Expected attributions in {path} (got no such file).")
    return read(Path(path))


def merge(folder: PartFolder, count: int, record: Record, path: Path) -> None:
    """Put parts together to a file, which appears when it is whole, and delete them.

    Args:
        folder: Where the parts are.
        count: How many there are.
        record: What run they are from.
        path: The file.
    """
    edges, largest = 0, 0.0
    for part in folder.read_all(count):
        edges += part["attributions"].size(0)
        largest = max(largest, float(part["deltas"].abs().max()))
    whole = folder.path / f"whole{path.suffix}"
    try:
        with full_disk_explained(folder.path):
            file_format(path).write(folder, count, {**record, "edges": edges, "largest_error": largest}, whole)
            with whole.open("rb") as file:
                os.fsync(file.fileno())  # before the parts are deleted
        whole.replace(path)
    finally:
        folder.delete_unfinished()
    folder.remove()
