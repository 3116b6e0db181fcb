"""Files and command lines from others: nothing in them is executed, and what does not belong there is refused."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
from collections.abc import Callable
from importlib import util
from pathlib import Path
from typing import Any

import pytest
import torch
from bulk_models import Watched, numbered_graphs, watched_model
from conftest import randomize, run_command
from torch_geometric.data import Data

from benchmarks.trained_weights import read_checkpoint
from captum_goat.bulk import explain_dataset, load_attributions
from captum_goat.cli.saved_files import load_graphs, load_model

GRAPHS = numbered_graphs(6)
MARKER = "executed"  # a file in the current folder, which an attack that succeeds makes
needs_pyarrow = pytest.mark.skipif(util.find_spec("pyarrow") is None, reason="needs pyarrow")


@pytest.fixture(autouse=True)
def nothing_is_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    yield
    assert not Path(MARKER).exists()


class Attack:
    """Executes a function when it is unpickled."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.reduced = function, arguments

    def __reduce__(self) -> Any:
        return self.reduced


ATTACKS = {
    "system": Attack(os.system, f"touch {MARKER}"),
    "eval": Attack(eval, f"__import__('os').mknod({MARKER!r})"),
    "function": Attack(os.mknod, MARKER),
    "path": Attack(Path.touch, Path(MARKER)),
    "torch": Attack(torch.save, torch.ones(1), MARKER),
}


def hidden(attack: Attack, name: str) -> Any:
    """Return an object that unpickles to an attack, at some place or other."""
    if name == "weight":
        return watched_model().state_dict() | {"lin.weight": attack}
    if name == "checkpoint":
        return {"state_dict": watched_model().state_dict(), "best_epoch": 1, "settings": {"lr": attack}}
    if name == "graph":
        return [*GRAPHS, Data(x=GRAPHS[0].x, edge_index=GRAPHS[0].edge_index, smiles=attack)]
    return attack


def refused(path: Path) -> None:
    """Read a file in all the ways that there are."""
    for read in (load_graphs, load_attributions, lambda path: load_model(path, "bulk_models:Watched"), read_checkpoint):
        with pytest.raises(ValueError, match="Expected"):
            read(path)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("place", ["alone", "weight", "checkpoint", "graph"])
@pytest.mark.parametrize("attack", ATTACKS)
def test_pickles_are_not_executed(attack: str, place: str, tmp_path: Path) -> None:
    path = tmp_path / "file.pt"
    content = hidden(ATTACKS[attack], place)
    torch.save(content, path)
    refused(path)
    torch.save(content, path, _use_new_zipfile_serialization=False)
    refused(path)
    path.write_bytes(pickle.dumps(content))
    refused(path)
    (tmp_path / "processed").mkdir()
    torch.save(content, tmp_path / "processed" / "data.pt")
    with pytest.raises(ValueError, match="Expected"):
        load_graphs(tmp_path)


def test_the_attacks_would_succeed(tmp_path: Path) -> None:
    for attack in ATTACKS.values():
        torch.save(attack, tmp_path / "file.pt")
        torch.load(tmp_path / "file.pt", weights_only=False)
        Path(MARKER).unlink()


def test_parts_are_not_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even those that have the right checksum."""
    with monkeypatch.context() as patch:
        patch.setenv("WATCHED_RAISE", "4")
        with pytest.raises(KeyboardInterrupt):
            explain_dataset(watched_model(), GRAPHS, batch_size=2, show_progress=False, out="attributions.pt")
    content = io.BytesIO()
    torch.save(ATTACKS["function"], content)
    checksum = hashlib.sha256(content.getvalue()).hexdigest().encode()
    part = Path("attributions.pt.parts/00000001.part")
    assert part.is_file()
    header = part.read_bytes().partition(b"\n")[0].rpartition(b" ")[0]
    part.write_bytes(header + b" " + checksum + b"\n" + content.getvalue())
    explain_dataset(watched_model(), GRAPHS, batch_size=2, show_progress=False, out="attributions.pt")
    explain_dataset(watched_model(), GRAPHS, batch_size=2, show_progress=False, out="expected.pt")
    assert Path("attributions.pt").read_bytes() == Path("expected.pt").read_bytes()


CODE = f"__import__('os').system('touch {MARKER}')"
NAMES = {
    "os:system": "to be a class (got a builtin_function_or_method). It was not called.",
    "os:abort": "to be a class",
    "builtins:eval": "to be a class",
    "builtins:exec": "to be a class",
    "subprocess:run": "to be a class (got a function)",
    "subprocess:Popen": "to be a torch.nn.Module (got another class). It was not called.",
    "torch.nn:Linear.forward": "to be a class",
    "bulk_models:Watched.__init__.__globals__": "to be a class (got a dict)",
    f"{CODE}:Model": "to be importable",
    f"os:{CODE}": "to be importable",
}


@pytest.mark.parametrize("name", NAMES)
def test_classes_are_imported_and_not_called(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save(watched_model().state_dict(), "weights.pt")
    torch.save(GRAPHS, "graphs.pt")
    words = ["--model", "weights.pt", "--data", "graphs.pt", "--class", name, "--arguments"]
    for arguments in (json.dumps([f"touch {MARKER}"]), json.dumps([CODE]), "[]"):
        assert run_command(["explain", *words, arguments, "--out", "attributions.pt"]) == 1
        assert NAMES[name] in capsys.readouterr().err
    if name != "subprocess:Popen":  # which makes nothing without arguments
        chosen = ["--class", "bulk_models:Watched", "--explainers", name]
        assert run_command(["compare", *words[:4], *chosen]) == 1
        assert NAMES[name] in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [CODE, f"[{CODE}]", f'{{"size": {CODE}}}', f'["{CODE}"]', f'{{"size": "{CODE}"}}']
)
def test_arguments_are_not_evaluated(arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save(watched_model().state_dict(), "weights.pt")
    torch.save(GRAPHS, "graphs.pt")
    words = ["--model", "weights.pt", "--data", "graphs.pt", "--class", "bulk_models:Watched", "--out", "a.pt"]
    assert run_command(["explain", *words, "--arguments", arguments]) == 1
    assert "Expected --arguments" in capsys.readouterr().err


HOSTILE = [
    "</script><script>alert(1)</script>",
    "=cmd|'/C calc'!A0",
    "../../etc/passwd",
    'a"; DROP TABLE x; --',
    "\0\n",
]


@needs_pyarrow
@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("suffix", ["pt", "parquet"])
def test_hostile_names_and_labels(text: str, suffix: str) -> None:
    model = randomize(type(text.replace("\0", ""), (Watched,), {})(), seed=40)
    graphs = [Data(**graph.to_dict(), smiles=text) for graph in GRAPHS]
    saved = explain_dataset(model, graphs, show_progress=False, out=f"attributions.{suffix}")
    assert saved.meta["model_class"] == text.replace("\0", "")
    expected = explain_dataset(watched_model(), GRAPHS, show_progress=False)
    assert all(torch.equal(one.attributions, other.edge_mask) for one, other in zip(saved, expected, strict=True))
    labelled = [Data(x=graph.x, edge_index=graph.edge_index, y=text) for graph in GRAPHS]
    with pytest.raises(ValueError, match="Expected one integer y per graph"):
        explain_dataset(watched_model(), labelled, target="label", show_progress=False)


@pytest.mark.parametrize(
    "change",
    [
        {"meta": None},
        {"meta": {}},
        {"meta": {"graphs": "6", "edges": 31}},
        {"meta": {"graphs": 10**12, "edges": 31}},
        {"meta": {"graphs": -6, "edges": 31}},
        {"meta": {"graphs": True, "edges": 31}},
        {"ptr": None},
        {"ptr": [0, 4]},
        {"ptr": torch.zeros(7)},
        {"ptr": torch.zeros(7, dtype=torch.long)},
        {"ptr": torch.tensor([0, 4, 2, 15, 22, 22, 31])},
        {"attributions": "text"},
        {"attributions": torch.ones(3)},
        {"edge_index": torch.ones(2, 31)},
        {"edge_index": torch.ones(3, 31, dtype=torch.int)},
        {"outputs": torch.ones(5, 3)},
        {"outputs": None},
        {"targets": [0] * 6},
        {"deltas": torch.tensor(1.0)},
    ],
)
def test_files_with_the_right_keys_and_wrong_types(change: dict[str, Any]) -> None:
    explain_dataset(watched_model(), GRAPHS, show_progress=False, out="attributions.pt")
    content = torch.load("attributions.pt", weights_only=True)
    assert content["ptr"][-1] == 31
    torch.save(content | change, "changed.pt")
    with pytest.raises(ValueError, match=r"Expected attributions in changed.pt \(got something else\)"):
        load_attributions("changed.pt")


@needs_pyarrow
@pytest.mark.parametrize("text", [b"", b"text", b"PAR1text", b"PAR1" + bytes(100) + b"PAR1"])
def test_files_that_are_no_tables(text: bytes) -> None:
    Path("other.parquet").write_bytes(text)
    with pytest.raises(ValueError, match=r"Expected attributions in other.parquet \(got something else\)"):
        load_attributions("other.parquet")


META = {"graphs": 2, "edges": 2}
COLUMNS: dict[str, Any] = {"graph": [0, 1], "edge": [0, 0], "source": [0, 1], "target_node": [1, 0]}
COLUMNS |= {"attribution": [0.5, 1.5], "output": [1.0, 2.0], "delta": [0.0, 0.0]}


@needs_pyarrow
@pytest.mark.parametrize(
    ("meta", "columns"),
    [
        (META, COLUMNS | {"graph": HOSTILE[:2]}),
        (META, COLUMNS | {"attribution": HOSTILE[:2]}),
        (META, COLUMNS | {"source": HOSTILE[:2]}),
        (META, COLUMNS | {"graph": [0, 2]}),
        (META, COLUMNS | {"graph": [1, 2]}),
        (META, {"graph": [0, 1]}),
        (META, {name: values for name, values in COLUMNS.items() if name != "output"}),
        (META | {"graphs": HOSTILE[0]}, COLUMNS),
        (META | {"graphs": 10**12}, COLUMNS),
        ([META], COLUMNS),
        ("text", COLUMNS),
    ],
)
def test_foreign_and_hostile_tables(meta: Any, columns: dict[str, Any]) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    def write(meta: Any, columns: dict[str, Any]) -> None:
        text = meta if isinstance(meta, str) else json.dumps(meta)
        parquet.write_table(pa.table(columns).replace_schema_metadata({"captum_goat": text}), "table.parquet")

    write(META, COLUMNS)
    assert load_attributions("table.parquet")[1].attributions.tolist() == [1.5]
    write(meta, columns)
    with pytest.raises(ValueError, match=r"Expected attributions in table.parquet \(got something else\)"):
        load_attributions("table.parquet")


@pytest.mark.parametrize("name", ["none.pt", pytest.param("none.parquet", marks=needs_pyarrow)])
def test_files_that_are_not_there(name: str) -> None:
    with pytest.raises(FileNotFoundError, match=f"Expected attributions in {name} .got no such file"):
        load_attributions(name)
    Path(name).mkdir()
    with pytest.raises(ValueError, match=f"Expected a file .got {name}, which is a folder"):
        load_attributions(name)
