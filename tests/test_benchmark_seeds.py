"""Accuracies and the coverage of explanations over several seeds."""

from pathlib import Path

import pytest
import torch
from benchmark_runs import quick_runs

from benchmarks import seeds
from benchmarks.training import Split, TrainingResult


@pytest.mark.slow
def test_tables_have_every_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, folder = tmp_path / "seeds.md", ["--cache", str(tmp_path), "--datasets", "ba_2motifs"]
    with quick_runs(num_graphs=200):
        seeds.main(["--seeds", "2", "--epochs", "20", *folder, "--out", str(page)])
    text = page.read_text()
    assert text.strip() == capsys.readouterr().out.strip()
    accuracies, coverage = (
        [line for line in part.splitlines() if line.startswith("| ")] for part in text.split("## One")
    )
    assert [line.split(" | ")[0] for line in accuracies[1:]] == [
        "| BA-2Motifs, GCN",
        "| BA-2Motifs, GraphSAGE",
        "| BA-2Motifs, GIN",
    ]
    for line in accuracies[1:]:
        _, mean, by_seed, quoted, near, overall = line.strip("| ").split(" | ")
        values = [float(value) for value in by_seed.split(", ")]
        assert len(values) == 2
        assert 0 <= float(overall) <= 1
        assert float(mean.split(" ± ")[0]) == pytest.approx(sum(values) / 2, abs=1e-3)
        assert near == ("yes" if abs(sum(values) / 2 - float(quoted.strip("*"))) <= 0.03 else "no")
    assert [line.split(" | ")[0].strip("| ") for line in coverage[1:]] == ["0", "0", "1", "1", "*paper (quoted)*"]
    assert all(line.count(" / ") == 4 for line in coverage[1:-1])


def test_accuracy_of_all_is_weighted_by_size() -> None:
    split = Split(*torch.arange(10).split([7, 2, 1]))
    training = TrainingResult(1.0, 0.5, 0.0, split, 1)
    assert seeds._overall(training) == pytest.approx(0.8)
