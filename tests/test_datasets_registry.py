from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from test_datasets_files import node_arrays, write_2motifs, write_molecules

from benchmarks.datasets import DATASETS, ba_community, load

NAMES = ["ba_2motifs", "ba_shapes", "ba_community", "tree_grid", "mutagenicity", "nci1"]


def test_all_six() -> None:
    assert list(DATASETS) == NAMES
    assert all(info.name == name for name, info in DATASETS.items())


@pytest.mark.parametrize("name", NAMES[:4])
def test_generated_ones_are_as_announced(name: str) -> None:
    dataset = load(name)
    info = dataset.info
    assert dataset.origin == "generated"
    assert len(dataset.graphs) == (1000 if info.task_level == "graph" else 1)
    labels = torch.cat([graph.y for graph in dataset.graphs])
    assert labels.unique().tolist() == list(range(info.num_classes))
    for graph in dataset.graphs:
        assert graph.num_features == info.num_features
        assert ("edge_label" in graph) == info.has_ground_truth


def test_seed_is_passed_on() -> None:
    assert torch.equal(load("ba_community", seed=3).graphs[0].x, ba_community(seed=3).x)


def test_published_files_come_first(tmp_path: Path) -> None:
    write_2motifs(tmp_path / "ba_2motifs.npz")
    np.savez(tmp_path / "tree_grid.npz", **node_arrays())
    for name, size in (("ba_2motifs", 3), ("tree_grid", 1)):
        dataset = load(name, tmp_path)
        assert dataset.origin == "published"
        assert len(dataset.graphs) == size
    assert load("ba_shapes", tmp_path).origin == "generated"


@pytest.mark.parametrize(("name", "folder"), [("mutagenicity", "Mutagenicity"), ("nci1", "NCI1")])
def test_molecules(name: str, folder: str, tmp_path: Path) -> None:
    write_molecules(tmp_path / "files", folder)
    dataset = load(name, tmp_path / "files", unpack_to=tmp_path / "work")
    assert dataset.origin == "published"
    assert len(dataset.graphs) == 2
    assert (tmp_path / "work" / folder / "processed").is_dir()


def test_molecules_need_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"folder with the files of NCI1 as root \(got None\)"):
        load("nci1")
    with pytest.raises(FileNotFoundError, match="Mutagenicity"):
        load("mutagenicity", tmp_path)


def test_unknown_name() -> None:
    with pytest.raises(ValueError, match=r"Expected one of ba_2motifs, .*nci1 \(got 'mutag'\)"):
        load("mutag")
