"""Finished parts of a run on disk, one cell per dataset, model and explainer, so that a run can go on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.paper.explaining import Explanations
from benchmarks.paper.measurements import Key, Measurements
from benchmarks.paper.options import Options
from benchmarks.paper.tasks import Task
from benchmarks.trained_weights import fingerprint
from captum_goat.runs import digest_of

EXPLANATION_FORMAT = 5  # to be raised when explaining changes, so that older results are not taken for those of today
MEASUREMENT_FORMAT = 4  # the same for measuring


@dataclass(frozen=True)
class Cell:
    """The results of one explainer on one task.

    Attributes:
        explainer: Its name.
        explanation: Its scores and times; ``None`` if it was skipped.
        measurements: What was measured; empty if it was skipped.
        skipped: Why it was skipped, or how it failed; empty if it was not.
    """

    explainer: str
    explanation: Explanations | None
    measurements: Measurements
    skipped: str = ""


class Store:
    """The cells of one task on disk.

    A file is taken only if it was written for the same model, graphs and seed, has as many graphs as are wanted, and
    was timed with as many threads, on the same device. An explainer that ran out of time is asked again when it is
    given more. Measurements are taken only for the scores that they were made of.

    Args:
        task: The model and the graphs.
        options: Where files are, and what decides results.
    """

    def __init__(self, task: Task, options: Options) -> None:
        name = task.gnn if task.held_out else f"{task.gnn}_whole"
        self.folder = options.cache / "cells" / task.dataset / name / f"seed_{options.seed}"
        self.task = fingerprint(task.model, task.graphs, {"seed": options.seed})
        self.budget = options.budget
        self.device = options.device

    def read_explanation(self, explainer: str, wanted: int) -> Explanations | None:
        """Return an explanation, or ``None`` if there is none of so many graphs, or of as many as time allows."""
        file = self._read(explainer, "explanation", EXPLANATION_FORMAT)
        if file is None or file["threads"] != torch.get_num_threads() or file.get("device", "cpu") != self.device:
            return None
        explanation = Explanations(**file["content"])
        count = len(explanation.scores)
        out_of_time = count < wanted <= file["wanted"] and file["budget"] >= self.budget
        return explanation if count == wanted or out_of_time else None

    def write_explanation(self, explainer: str, timed_scores: Explanations, wanted: int) -> None:
        """Keep an explanation, and of how many graphs it was asked for."""
        more: dict[str, int | str] = {"wanted": wanted, "threads": torch.get_num_threads(), "device": self.device}
        self._write(explainer, "explanation", EXPLANATION_FORMAT, _contents(timed_scores), **more)

    def read_measurements(self, explainer: str, scores: Tensor) -> Measurements | None:
        """Return measurements of these scores, or ``None`` if there are none."""
        file = self._read(explainer, "measurements", MEASUREMENT_FORMAT)
        if file is None or file["scores"] != digest_of({"scores": scores}):
            return None
        return Measurements(**{name: _with_keys(values) for name, values in file["content"].items()})

    def write_measurements(self, explainer: str, measurements: Measurements, scores: Tensor) -> None:
        """Keep measurements of scores."""
        content = {name: _with_words(values) for name, values in _contents(measurements).items()}
        self._write(explainer, "measurements", MEASUREMENT_FORMAT, content, scores=digest_of({"scores": scores}))

    def read_given_up(self, explainer: str) -> str | None:
        """Return why an explainer was given up, or ``None`` if it was not, or had less time."""
        file = self._read(explainer, "given_up", EXPLANATION_FORMAT)
        return None if file is None or file["budget"] < self.budget else str(file["content"]["reason"])

    def write_given_up(self, explainer: str, reason: str) -> None:
        """Keep the reason why an explainer was given up."""
        self._write(explainer, "given_up", EXPLANATION_FORMAT, {"reason": reason})

    def _path(self, explainer: str, what: str) -> Path:
        return self.folder / f"{explainer}.{what}.pt"

    def _read(self, explainer: str, what: str, version: int) -> dict[str, Any] | None:
        path = self._path(explainer, what)
        if not path.is_file():
            return None
        file: dict[str, Any] = torch.load(path, weights_only=True)  # so that a file can hold no code
        return file if file["task"] == self.task and file["format"] == version else None

    def _write(self, explainer: str, what: str, version: int, content: Mapping[str, Any], **more: int | str) -> None:
        path = self._path(explainer, what)
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}.unfinished")
        file = {"task": self.task, "format": version, "budget": self.budget, "content": dict(content)} | more
        torch.save(file, unfinished)
        unfinished.replace(path)  # a file appears when it is whole


def _contents(record: Explanations | Measurements) -> dict[str, Any]:
    return {entry.name: getattr(record, entry.name) for entry in fields(record)}


def _with_words(values: Mapping[Key, Tensor]) -> dict[str, Tensor]:
    return {"/".join(key): value for key, value in values.items()}


def _with_keys(values: Mapping[str, Tensor]) -> dict[Key, Tensor]:
    return {Key(*words.split("/")): value for words, value in values.items()}
