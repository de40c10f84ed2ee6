"""Coordinators that are taken for dead and go on, under seeds: the output is there once, and all
but one say that another has taken over."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from amounts import seeds
from fsspec.implementations.memory import MemoryFileSystem
from strom.checkpoint.storage import open_storage
from strom.connectors.files import FileSink
from strom.core.job_status import JobStatus
from strom.engine.hosts.simulator import Simulation, SimulationPlan, SimulationResult
from strom.engine.hosts.tenure import Tenure
from strom.testing.equivalence import Ways, checkpointed
from strom.testing.probes import CollectProbe

ROWS = 600


def run(seed: int) -> tuple[SimulationResult, list[int]]:
    """What became of it, and the rows that are there at the end."""
    home = f"memory://incarnations-{uuid4().hex}"

    def build(env: Any) -> Any:
        numbers = env.from_collection([{"n": n} for n in range(ROWS)]).uid("numbers")
        doubled = numbers.rebalance().map(lambda row: {"n": 2 * row["n"]}).uid("doubled")
        doubled.sink_to(FileSink(f"{home}/out", format="jsonl")).uid("files")
        return doubled

    config = checkpointed(Ways(batch_size=8), 1 + seed % 2)
    config = replace(config, checkpoint=replace(config.checkpoint, retained=1 + seed % 3))
    plan = SimulationPlan(
        seed=seed, cut_offs=1 + seed % 3, crashes=seed % 2, crash_window=500, slow_workers=10
    )
    storage = open_storage(f"{home}/checkpoints", "job")
    result = Simulation(CollectProbe(build).graph(config), plan, storage).run()
    filesystem = MemoryFileSystem()
    path = home.removeprefix("memory:/")
    files = [f for f in filesystem.find(f"{path}/out") if "/." not in f]
    rows = [json.loads(line)["n"] for f in files for line in filesystem.cat_file(f).splitlines()]
    filesystem.rm(path, recursive=True)
    return result, sorted(rows)


def violation(seed: int) -> str | None:
    result, rows = run(seed)
    assert result.outcome is not None
    outcomes = [result.outcome, *result.cut_off]
    if rows != [2 * n for n in range(ROWS)]:
        return f"seed {seed}: {len(rows)} rows, {len(set(rows))} different ones"
    if not any(outcome.status is JobStatus.FINISHED for outcome in outcomes):
        return f"seed {seed}: none finished: {[str(o.error) for o in outcomes]}"
    for outcome in outcomes:
        fenced = "was fenced" in str(outcome.error) or "any more by" in str(outcome.error)
        if outcome.status is not JobStatus.FINISHED and not fenced:
            return f"seed {seed}: one of them is {outcome.status}: {outcome.error}"
    return None


def test_what_was_taken_for_dead_publishes_nothing() -> None:
    found = [violation(seed) for seed in seeds(40, least=12)]
    assert [text for text in found if text is not None] == []


def test_an_epoch_that_is_not_checked_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tenure, "check", lambda self: None)
    assert any(violation(seed) is not None for seed in range(100))
