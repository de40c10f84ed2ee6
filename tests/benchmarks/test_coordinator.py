"""What a coordinator does grows with the number of its tasks, and not with its square."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from strom.benchmarks.coordinator import Coordinator
from strom.benchmarks.coordinator_tasks import program, reported
from strom.checkpoint import manifest
from strom.checkpoint.handles import SubtaskSnapshot
from strom.checkpoint.manifest_text import subtask_text
from strom.core.ids import TaskId

FEW, MANY = 100, 1000

CALLS = 340
"""Of functions by a checkpoint, per task, at most."""


def calls(work: Callable[[], Any]) -> int:
    """How many functions are called: the same on every machine."""
    count = 0

    def note(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def taken(folder: Path, tasks: int, pipelines: int) -> dict[str, int]:
    """By part, in calls."""
    graph, like = program(tasks, pipelines), reported()
    one = Coordinator(graph, folder)
    found = {"deploy": calls(one.start), "checkpoint": calls(one.checkpoint)}
    found["reports"] = calls(lambda: one.report(like))
    found["failover_region"] = calls(lambda: one.fail(next(iter(one.tasks.attempts))))
    assert one.driver.metrics()["restarts"] == 1
    one.checkpoint()
    one.tasks.leave()
    other = Coordinator(graph, folder, one)
    found["take_over"] = calls(other.start)
    assert other.driver.metrics()["restarts"] == 0, "nothing was started anew"
    return found


@pytest.mark.parametrize("pipelines", [1, 10])
def test_each_part_is_linear(tmp_path: Path, pipelines: int) -> None:
    few = taken(tmp_path / "few", FEW, 1)
    many = taken(tmp_path / "many", MANY, pipelines)
    growth = {part: many[part] / few[part] for part in few}
    assert max(growth.values()) < 1.5 * MANY / FEW, growth


def test_a_checkpoint_encodes_each_part_once_and_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[TaskId] = []

    def noted(part: SubtaskSnapshot) -> str:
        encoded.append(part.task)
        return subtask_text(part)

    monkeypatch.setattr(manifest, "subtask_text", noted)
    one = Coordinator(program(MANY), tmp_path)
    one.start()
    one.checkpoint()
    assert sorted(encoded) == sorted(one.tasks.attempts), "each once"
    encoded.clear()
    each = calls(one.checkpoint) / MANY
    assert len(encoded) == MANY
    assert each < CALLS, each


def test_a_report_copies_no_figures_of_other_tasks(tmp_path: Path) -> None:
    one = Coordinator(program(MANY), tmp_path)
    one.start()
    one.report(reported())
    first = one.driver._picture.metrics
    report = one.tasks.figures(reported())[0]
    one.driver.on_report(report)
    second = one.driver._picture.metrics
    assert second[report.task] is report.metrics
    assert first[report.task] is not report.metrics, "a picture never changes"
    shared = sum(a is b for a, b in zip(first._pages, second._pages, strict=True))  # type: ignore[attr-defined]
    assert shared == len(second._pages) - 1  # type: ignore[attr-defined]
