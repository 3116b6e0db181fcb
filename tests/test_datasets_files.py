"""Published files: small ones, written here in the original layouts."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.datasets import TUDataset

from benchmarks.datasets import load_ba_2motifs, load_mutagenicity, load_nci1, load_node_graph

# Two molecules, C-N(-O)-O with a self-loop at C, and N(-H)-H with a duplicate edge; edges neither sorted nor grouped
# by direction. The first line of each is the edge, the second its ground truth.
CARBON, OXYGEN, HYDROGEN, NITROGEN = 0, 1, 3, 4
ATOMS = [CARBON, NITROGEN, OXYGEN, OXYGEN, HYDROGEN, NITROGEN, HYDROGEN, CARBON]
MOLECULE_OF_ATOM = [1, 1, 1, 1, 2, 2, 2, 2]
BONDS = [(2, 1), (1, 2), (1, 1), (4, 2), (2, 4), (3, 2), (2, 3), (6, 5), (5, 6), (5, 6), (7, 6), (6, 7), (8, 6), (6, 8)]
IN_GROUP = [0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0]


def write_molecules(folder: Path, name: str, *, truth: bool = True) -> Path:
    raw = folder / name / "raw"
    raw.mkdir(parents=True)

    def write(which: str, lines: list[Any]) -> None:
        (raw / f"{name}_{which}.txt").write_text("".join(f"{line}\n" for line in lines))

    write("A", [f"{source}, {target}" for source, target in BONDS])
    write("graph_indicator", MOLECULE_OF_ATOM)
    write("graph_labels", [0, 1])
    write("node_labels", ATOMS)
    if truth:
        write("edge_gt", IN_GROUP)
    return raw


def pack(raw: Path, archive: Path) -> None:
    with tarfile.open(archive, "w:xz") as tar:
        tar.add(raw, arcname=f"{raw.parent.name}/raw")


def write_2motifs(path: Path) -> None:
    """Three graphs of 22 nodes, the edges of which are not in the graphs' order."""
    np.savez(
        path,
        graph=np.array([2, 2, 0, 0, 0, 0, 2], dtype=np.int32),
        source=np.array([20, 21, 0, 20, 20, 21, 20], dtype=np.int16),
        target=np.array([21, 20, 20, 0, 21, 20, 20], dtype=np.int16),
        x=np.arange(3 * 22 * 2, dtype=np.float32).reshape(3, 22, 2),
        y=np.array([0, 1, 1]),
    )


def node_arrays() -> dict[str, np.ndarray]:
    return {
        "x": np.ones((4, 2), dtype=np.float32),
        "edge_index": np.array([[0, 1, 1, 2], [1, 0, 2, 1]]),
        "y": np.array([0, 0, 1, 1]),
        "train_mask": np.array([True, True, False, False]),
        "val_mask": np.array([False, False, True, False]),
        "test_mask": np.array([False, False, False, True]),
        "motif_edge": np.array([False, False, True, True]),
    }


def test_ba_2motifs(tmp_path: Path) -> None:
    write_2motifs(tmp_path / "motifs.npz")
    graphs = load_ba_2motifs(tmp_path / "motifs.npz")
    assert [graph.y.tolist() for graph in graphs] == [[0], [1], [1]]
    assert [graph.edge_index.t().tolist() for graph in graphs] == [
        [[0, 20], [20, 0], [20, 21], [21, 20]],
        [],
        [[20, 21], [21, 20], [20, 20]],
    ]
    # The connecting edge is no part of the motif, and neither is a self-loop in its place.
    assert [graph.edge_label.tolist() for graph in graphs] == [[False, False, True, True], [], [True, True, False]]
    assert graphs[1].x.tolist() == np.arange(44, 88).reshape(22, 2).tolist()
    for graph in graphs:
        assert graph.edge_index.dtype == graph.y.dtype == torch.int64
        assert graph.edge_index.shape == (2, graph.num_edges)
        graph.validate()


def test_node_graph(tmp_path: Path) -> None:
    arrays = node_arrays()
    np.savez(tmp_path / "shapes.npz", **arrays)
    data = load_node_graph(str(tmp_path / "shapes.npz"))
    data.validate()
    for name, array in arrays.items():
        assert np.array_equal(data["edge_label" if name == "motif_edge" else name].numpy(), array)
    assert data.edge_label.dtype == data.test_mask.dtype == torch.bool


def test_file_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"Expected an \.npz file \(got .*nothing\.npz, which is not there\)"):
        load_node_graph(tmp_path / "nothing.npz")


def test_array_is_missing(tmp_path: Path) -> None:
    arrays = node_arrays()
    del arrays["motif_edge"]
    np.savez(tmp_path / "shapes.npz", **arrays)
    with pytest.raises(ValueError, match=r"Expected the arrays x, edge_index.*\(got none called motif_edge\)"):
        load_node_graph(tmp_path / "shapes.npz")


def test_objects_are_not_unpickled(tmp_path: Path) -> None:
    np.savez(tmp_path / "shapes.npz", **node_arrays() | {"y": np.array([{"code": 1}], dtype=object)})
    with pytest.raises(ValueError, match="allow_pickle=False"):
        load_node_graph(tmp_path / "shapes.npz")


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(dataset: TUDataset) -> None:
        raise AssertionError(f"{dataset.name} may not be downloaded")

    monkeypatch.setattr(TUDataset, "download", refuse)


@pytest.mark.usefixtures("no_network")
def test_molecules_from_raw_files(tmp_path: Path) -> None:
    write_molecules(tmp_path, "Mutagenicity")
    first, second = load_mutagenicity(tmp_path)
    assert first.x.argmax(dim=1).tolist() == ATOMS[:4]
    assert (first.y.tolist(), second.y.tolist()) == ([0], [1])
    # Sorted, without the self-loop and the duplicate.
    assert first.edge_index.t().tolist() == [[0, 1], [1, 0], [1, 2], [1, 3], [2, 1], [3, 1]]
    assert first.edge_label.tolist() == [False, False, True, True, True, True]
    assert second.edge_index.t().tolist() == [[0, 1], [1, 0], [1, 2], [1, 3], [2, 1], [3, 1]]
    assert second.edge_label.tolist() == [True, True, True, False, True, False]


@pytest.mark.usefixtures("no_network")
def test_labelled_edges_are_bonds_of_nitrogen_with_oxygen_or_hydrogen(tmp_path: Path) -> None:
    write_molecules(tmp_path, "Mutagenicity")
    for graph in load_mutagenicity(tmp_path):
        for bond, in_group in zip(graph.edge_index.t(), graph.edge_label, strict=True):
            atoms = set(graph.x.argmax(dim=1)[bond].tolist())
            assert bool(in_group) == (atoms in ({NITROGEN, OXYGEN}, {NITROGEN, HYDROGEN}))


@pytest.mark.usefixtures("no_network")
def test_molecules_without_ground_truth(tmp_path: Path) -> None:
    write_molecules(tmp_path, "NCI1", truth=False)
    assert all("edge_label" not in graph for graph in load_nci1(tmp_path))


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("packed", [True, False])
def test_folders_that_must_not_be_written_to(tmp_path: Path, packed: bool) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    raw = write_molecules(tmp_path if packed else source, "Mutagenicity")
    if packed:
        source.mkdir()
        pack(raw, source / "Mutagenicity.tar.xz")
    before = sorted(source.rglob("*"))
    graphs = load_mutagenicity(source, unpack_to=target)
    assert sorted(source.rglob("*")) == before
    assert sorted(path.name for path in (target / "Mutagenicity").iterdir()) == ["processed", "raw"]
    again = load_mutagenicity(source, unpack_to=target)
    for one, two in zip(graphs, again, strict=True):
        assert torch.equal(one.edge_index, two.edge_index)
        assert torch.equal(one.edge_label, two.edge_label)


@pytest.mark.usefixtures("no_network")
def test_archive_is_unpacked_beside_itself(tmp_path: Path) -> None:
    pack(write_molecules(tmp_path / "elsewhere", "NCI1", truth=False), tmp_path / "NCI1.tar.xz")
    assert len(load_nci1(tmp_path)) == 2
    assert (tmp_path / "NCI1" / "raw" / "NCI1_A.txt").is_file()


@pytest.mark.usefixtures("no_network")
def test_archive_of_something_else(tmp_path: Path) -> None:
    pack(write_molecules(tmp_path / "elsewhere", "Mutagenicity"), tmp_path / "NCI1.tar.xz")
    with pytest.raises(ValueError, match=r"Expected NCI1_A\.txt in .*NCI1\.tar\.xz \(got other files\)"):
        load_nci1(tmp_path)


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("outside", ["../../", "/", "Mutagenicity/raw/../../../"])
def test_archives_with_paths_outside_of_the_folder(outside: str, tmp_path: Path) -> None:
    raw, root = write_molecules(tmp_path / "source", "Mutagenicity"), tmp_path / "some" / "root"
    root.mkdir(parents=True)
    evil = tmp_path / "evil.txt"
    evil.write_text("evil")
    with tarfile.open(root / "Mutagenicity.tar.xz", "w:xz") as tar:
        for file in sorted(raw.iterdir()):
            member = tar.gettarinfo(file)
            member.name = f"{outside.rstrip('/') if outside != '/' else ''}{tmp_path}/{file.name}"
            with file.open("rb") as content:
                tar.addfile(member, content)
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE):
            link = tarfile.TarInfo("Mutagenicity/raw/Mutagenicity_node_labels.txt")
            link.type, link.linkname = kind, str(evil)
            tar.addfile(link)
        tar.add(evil, f"{outside}evil_too.txt")
    before = sorted(tmp_path.rglob("*"))
    assert len(load_mutagenicity(root)) == 2
    added = set(tmp_path.rglob("*")) - set(before)
    assert all(path.is_relative_to(root / "Mutagenicity") for path in added)
    assert not any(path.is_symlink() or "evil" in path.name for path in added)
    assert not Path("/evil_too.txt").exists()


def test_molecules_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"Expected .*NCI1_A\.txt or .*NCI1\.tar\.xz \(got neither\).*download"):
        load_nci1(tmp_path)
    assert not list(tmp_path.iterdir())


def test_download_is_left_to_pyg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(dataset: TUDataset) -> None:
        raw = write_molecules(tmp_path / "elsewhere", dataset.name)
        shutil.copytree(raw, dataset.raw_dir, dirs_exist_ok=True)

    monkeypatch.setattr(TUDataset, "download", download)
    assert len(load_nci1(tmp_path / "here", download=True)) == 2


@pytest.mark.usefixtures("no_network")
def test_ground_truth_of_another_length(tmp_path: Path) -> None:
    raw = write_molecules(tmp_path, "Mutagenicity")
    (raw / "Mutagenicity_edge_gt.txt").write_text("1\n0\n")
    with pytest.raises(ValueError, match=r"one line in Mutagenicity_edge_gt\.txt per edge \(got 2 for 14 edges\)"):
        load_mutagenicity(tmp_path)
