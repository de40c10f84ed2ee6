"""Coordinators that are held up in the midst of a publication, under seeds, while others are
started: whoever starts from what is just published can go back to it."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from strom.checkpoint.file_storage import FileStorage
from strom.checkpoint.storage import open_storage
from strom.connectors.files import FileSink
from strom.core.job_status import JobStatus
from strom.engine.hosts.simulated_staff import Worker
from strom.engine.hosts.simulator import Simulation, SimulationPlan
from strom.engine.hosts.tenure import Tenure
from strom.testing.equivalence import Ways, checkpointed
from strom.testing.probes import CollectProbe

ROWS = 600


class HeldUp:
    """Has others go on while a coordinator is between two calls of its storage: behind a
    publication, and behind the look whether it is fenced. Not for so long that nobody has anything
    to do but to give it up."""

    def __init__(self, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self._rng = random.Random(seed)
        self._within = self._publishing = False
        self.simulation: Simulation
        self.times = 0
        publish, check, step = FileStorage.publish, Tenure.check, Worker.step
        busy: set[Any] = set()

        def held_publish(storage: FileStorage, manifest: Any) -> None:
            publish(storage, manifest)
            self._publishing = True
            self._others_go_on()

        def held_check(tenure: Tenure) -> None:
            publishing, self._publishing = self._publishing, False
            try:
                check(tenure)
            finally:
                if publishing:
                    self._others_go_on()

        def one_at_a_time(worker: Any) -> bool:
            if worker in busy:
                return False
            busy.add(worker)
            try:
                return bool(step(worker))
            finally:
                busy.discard(worker)

        monkeypatch.setattr(FileStorage, "publish", held_publish)
        monkeypatch.setattr(Tenure, "check", held_check)
        monkeypatch.setattr(Worker, "step", one_at_a_time)

    def _others_go_on(self) -> None:
        if self._within or self._rng.random() < 0.5:
            return
        self._within, publishing = True, self._publishing
        self.times += 1
        simulation, idle = self.simulation, []
        even = simulation._even
        sweep, even._sweep = even._sweep, idle.append  # type: ignore[method-assign]
        for _ in range(self._rng.randrange(300)):
            if simulation._goes_on() and not idle:
                simulation._count_step()
                simulation._maybe_crash()
                simulation._turn()
        even._sweep = sweep  # type: ignore[method-assign]
        self._within, self._publishing = False, publishing


def violation(seed: int, monkeypatch: pytest.MonkeyPatch) -> str | None:
    home = f"memory://publications-{uuid4().hex}"

    def build(env: Any) -> Any:
        numbers = env.from_collection([{"n": n} for n in range(ROWS)]).uid("numbers")
        doubled = numbers.rebalance().map(lambda row: {"n": 2 * row["n"]}).uid("doubled")
        doubled.sink_to(FileSink(f"{home}/out", format="jsonl")).uid("files")
        return doubled

    config = checkpointed(Ways(batch_size=8), 1 + seed % 2)
    config = replace(config, checkpoint=replace(config.checkpoint, retained=1 + seed % 2))
    plan = SimulationPlan(seed=seed, cut_offs=1 + seed % 2, crashes=6, crash_window=600)
    storage = open_storage(f"{home}/checkpoints", "job")
    with monkeypatch.context() as patch:
        held = HeldUp(seed, patch)
        held.simulation = Simulation(CollectProbe(build).graph(config), plan, storage)
        result = held.simulation.run()
    filesystem = MemoryFileSystem()
    path = home.removeprefix("memory:/")
    files = [f for f in filesystem.find(f"{path}/out") if "/." not in f]
    rows = [json.loads(line)["n"] for f in files for line in filesystem.cat_file(f).splitlines()]
    filesystem.rm(path, recursive=True)
    assert result.outcome is not None
    assert held.times > 0
    outcomes = [result.outcome, *result.cut_off]
    if sorted(rows) != [2 * n for n in range(ROWS)]:
        ends = [f"{outcome.status.value}: {outcome.error}" for outcome in outcomes]
        return f"seed {seed}: {len(rows)} rows, {len(set(rows))} different ones; {ends}"
    for outcome in outcomes:
        fenced = "was fenced" in str(outcome.error) or "any more by" in str(outcome.error)
        if outcome.status is not JobStatus.FINISHED and not fenced:
            return f"seed {seed}: one of them is {outcome.status}: {outcome.error}"
    return None


def test_who_starts_from_what_is_just_published_can_go_back_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = [violation(seed, monkeypatch) for seed in range(15)]
    assert [text for text in found if text is not None] == []


def test_what_is_taken_back_from_under_a_successor_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Tenure, "counts", lambda self, n: False)
    assert any(violation(seed, monkeypatch) is not None for seed in range(60))
