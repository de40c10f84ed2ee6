"""Unaligned and at-least-once checkpoints: whole jobs in the simulator, with few small
buffers, stopped in the middle of a replay and restored at other parallelisms."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from amounts import seeds
from fsspec.implementations.memory import MemoryFileSystem
from strom import CheckpointingMode, MapFunction
from strom.checkpoint.storage import open_storage
from strom.core.config import CheckpointConfig, JobConfig
from strom.engine.hosts.simulator import Simulation, SimulationPlan
from strom.engine.task import portions
from strom.engine.task.intake import GateIntake
from strom.engine.task.replay import Replay
from strom.engine.task.taking import Taking
from strom.testing.equivalence import CRAMPED, RESTART, run_local
from strom.testing.probes import CollectProbe, seen_once

NUMBERS = list(range(240))

FULL = replace(CRAMPED, exclusive_buffers=4, floating_buffers=40)
"""Many small buffers: a replay takes several steps."""

LIVES = 15
"""So often a job is stopped; then it goes on to its end."""


def keyed(env: Any) -> Any:
    """Two exchanges by key behind one another, and one to any subtask. Counts go by no order."""
    first = env.from_collection(NUMBERS).key_by(lambda n: n % 7).map(lambda n: (n % 5, 1))
    counts = first.key_by(lambda p: p[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
    return counts.rebalance().map(str)


def diamond(env: Any) -> Any:
    numbers = env.from_collection(NUMBERS)
    odd = numbers.rebalance().filter(lambda n: n % 2).key_by(lambda n: n % 3)
    even = numbers.key_by(lambda n: n % 4).filter(lambda n: n % 2 == 0)
    return odd.union(even).key_by(lambda n: n % 5).map(lambda n: -n)


class Spread(MapFunction):
    def map(self, value: Any) -> Any:
        return value


def alone(env: Any) -> Any:
    """Operators that are not chained, with forward edges between them."""
    numbers = env.from_collection(NUMBERS).key_by(lambda n: n % 7).map(Spread())
    return numbers.disable_chaining().map(lambda n: n * 3).disable_chaining().map(str)


PIPELINES: list[Callable[[Any], Any]] = [keyed, diamond, alone]


def config(parallelism: int, **checkpoint: Any) -> JobConfig:
    told: dict[str, Any] = {"unaligned": True, **checkpoint}
    return JobConfig(
        parallelism=parallelism,
        batch_size=4,
        exchange=FULL,
        restart=RESTART,
        checkpoint=CheckpointConfig(
            interval=timedelta(milliseconds=1), retained=2, tolerable_failures=100, **told
        ),
    )


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """What tasks do, while the context is open."""
    count: Counter[str] = Counter()
    in_flight, begun = Taking.in_flight, Replay.__init__

    def counting(self: Taking, *of: Any) -> Any:
        waiting = in_flight(self, *of)
        count["taken"] += 1
        count["overtook"] += bool(waiting)
        count["in a replay"] += any(place.source < 0 for place, _ in waiting)
        return waiting

    def beginning(self: Replay, lanes: Any = (), holds: bool = False) -> None:
        begun(self, lanes, holds)
        count["replays"] += bool(self.lanes)

    Taking.in_flight, Replay.__init__ = counting, beginning  # type: ignore[method-assign]
    try:
        yield count
    finally:
        Taking.in_flight, Replay.__init__ = in_flight, begun  # type: ignore[method-assign]


@pytest.mark.parametrize("build", PIPELINES)
def test_jobs_that_are_stopped_again_and_again_lose_and_double_nothing(
    build: Callable[[Any], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each life of the job starts from the last one's newest checkpoint, at another parallelism,
    and ends behind its own first or second. Replays are slow, so that some are taken while the
    former is replayed, and batches are handled record by record, so that some are half done."""
    rng, goes_on = random.Random(0), GateIntake._take_replayed

    def slowly(self: GateIntake) -> None:
        if rng.random() < 0.03:
            goes_on(self)

    monkeypatch.setattr(GateIntake, "_take_replayed", slowly)
    monkeypatch.setattr(portions, "FIRST", 1)
    monkeypatch.setattr(portions, "LEAST", 1)
    monkeypatch.setattr(portions.Portions, "took", lambda self, records, seconds: None)
    expected = sorted(map(str, run_local(build, JobConfig())))
    with counted() as count:
        for seed in seeds(30):
            probe = CollectProbe(build)
            published: list[dict[Any, dict[str, Any]]] = []
            start, folder = None, tmp_path / f"{build.__name__}-{seed}"
            for life in range(LIVES + 1):
                timeout = timedelta(milliseconds=(0, 0, 2)[seed % 3])
                told = config(1 + (seed + life) % 3, alignment_timeout=timeout)
                plan = SimulationPlan(
                    seed=seed * 100 + life,
                    crashes=life % 2,
                    stop_after_checkpoint=1 + life % 2 if life < LIVES else None,
                    continues=start is not None,
                    max_steps=100_000,
                )
                graph = probe.graph(replace(told, restore_from=start))
                storage = open_storage(str(folder), f"life{life}")
                result = Simulation(graph, plan, storage).run()
                published.append(result.published)
                if result.outcome is not None:
                    assert result.outcome.error is None, f"seed {seed}: {result.outcome.error}"
                    break
                start = str(folder / f"life{life}" / f"chk-{result.last_checkpoint}")
            found = sorted(map(str, probe.output(seen_once(*published))))
            assert found == expected, f"seed {seed}"
    assert count["overtook"] > count["taken"] / 10, count
    assert count["replays"] > 10, count
    assert build is alone or count["in a replay"], count


def reshaped(life: int) -> Callable[[Any], Any]:
    """The same operators, connected in another way in each life: those in the middle by an exchange
    that knows no keys, by none between two tasks, or in one chain. Each record makes one, which has
    the number of its key's records so far."""

    def build(env: Any) -> Any:
        rows = env.from_collection([{"k": n % 7, "n": n, "one": 1} for n in NUMBERS]).uid("rows")
        sums = rows.key_by("k").sum("n").uid("sums")
        before = sums.rebalance() if life % 3 == 0 else sums
        between = before.filter(lambda row: True).uid("between")
        counts = between.key_by("k").sum("one").uid("counts")
        if life % 3 == 1:
            between.disable_chaining()
        return counts.map(lambda row: (row["k"], row["one"])).uid("pairs")

    return build


def test_records_on_their_way_go_with_their_keys_though_the_job_is_another_one() -> None:
    """Each life goes on from an unaligned checkpoint of the one before, at its parallelism or
    another one."""
    expected = sorted((k, n + 1) for k in range(7) for n in range(len(NUMBERS[k::7])))
    with counted() as count:
        for seed in range(1, 4):
            home, start = f"memory://reshaped-{uuid4().hex}", None
            published: list[dict[Any, dict[str, Any]]] = []
            for life in range(LIVES + 1):
                probe = CollectProbe(reshaped(life))
                told = replace(config(1 + (seed + life // 2) % 3), restore_from=start)
                plan = SimulationPlan(
                    seed=seed * 100 + life,
                    stop_after_checkpoint=1 if life < LIVES else None,
                    continues=start is not None,
                    max_steps=100_000,
                )
                storage = open_storage(home, f"life{life}")
                result = Simulation(probe.graph(told), plan, storage).run()
                published.append(result.published)
                if result.outcome is not None:
                    assert result.outcome.error is None, f"seed {seed}: {result.outcome.error}"
                    break
                start = f"{home}/life{life}/chk-{result.last_checkpoint}"
            found = sorted(probe.output(seen_once(*published)))
            MemoryFileSystem().rm(home.removeprefix("memory:/"), recursive=True)
            assert found == expected, f"seed {seed}"
    assert count["overtook"] > count["taken"] / 10, count
    assert count["replays"] > 10, count


def test_at_least_once_repeats_and_never_loses() -> None:
    """Two subtasks read at different speeds: behind a crash some records come twice in state, none
    is missing."""

    def build(env: Any) -> Any:
        return (
            env.from_collection(NUMBERS)
            .rebalance()
            .map(lambda n: ("sum", 1))
            .key_by(lambda p: p[0])
            .reduce(lambda a, b: (a[0], a[1] + b[1]))
        )

    totals = []
    for seed in range(12):
        told = config(2, unaligned=True, mode=CheckpointingMode.AT_LEAST_ONCE)
        plan = SimulationPlan(seed=seed, crash_after_checkpoints=3)
        probe = CollectProbe(build)
        result = Simulation(probe.graph(told), plan).run()
        assert result.outcome is not None
        assert result.outcome.error is None, f"seed {seed}: {result.outcome.error}"
        totals.append(max(total for _, total in probe.output(seen_once(result.published))))
    assert min(totals) >= len(NUMBERS)
    assert max(totals) > len(NUMBERS), "no channel was read beyond its barrier: nothing is proven"
