"""Many schedules of one job (`make seeds`: a thousand), and the promise that a seed repeats
its schedule exactly.

Out-of-order input, built-in aggregates in tumbling windows on columns, a second keyed stage with
state and event-time timers; tasks and coordinators crash at random steps, uploads fail. Whatever
happens, the output is the reference's. Replay a failing seed with

    STROM_SEED=n python -m pytest tests/e2e/test_simulator_seeds.py -k "schedule and [0]"
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from shaky_storage import Shaky, check_files, in_memory
from strom import (
    KeyedProcessFunction,
    MapStateDescriptor,
    Row,
    RuntimeContext,
    TumblingEventTimeWindows,
    ValueStateDescriptor,
    WatermarkStrategy,
    count,
    max_,
    sum_,
)
from strom.core.job_status import JobStatus
from strom.engine.hosts.schedules import EvenSchedule
from strom.engine.hosts.simulator import Simulation, SimulationPlan, SimulationResult
from strom.engine.task.intake import GateIntake
from strom.engine.task.task import Task
from strom.testing.backends import IN_MEMORY, SPILLING
from strom.testing.equivalence import Ways, checkpointed, compare
from strom.testing.probes import CollectProbe
from strom.testing.scripted import ScriptedSource

SEEDS = int(os.environ.get("STROM_SEEDS", "20"))
CHUNKS = 4 if SEEDS >= 40 else 2
CHUNK = SEEDS // CHUNKS
"""Seeds of one test, of which ten say enough; chunks may run in several processes."""

MOST_FILES = 8
"""Shared files per former one that a checkpoint has where state lies in RocksDB."""

SIZE = 100
SPAN = 400
DISORDER = 40
"""Every record is at most this much (ms) older than the newest one before it in its lane."""


def lanes() -> list[list[Row]]:
    rng = random.Random(4)
    made = []
    for lane in range(4):
        base = [10 * i for i in range(40)]
        times = sorted(base, key=lambda t: t + rng.randrange(DISORDER + 1))
        made.append(
            [Row("k", "v", "ts")(rng.randrange(6), rng.randrange(100), lane + t) for t in times]
        )
    return made


LANES = lanes()


class Spans(KeyedProcessFunction):
    """Window results of a key per SPAN of time: gathered in two kinds of state, given out by a
    timer."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.totals = runtime_context.get_map_state(MapStateDescriptor("totals"))
        self.windows = runtime_context.get_state(ValueStateDescriptor("windows"))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        end = value.window_start - value.window_start % SPAN + SPAN
        windows = self.windows.value() or {}
        self.windows.update({**windows, end: windows.get(end, 0) + 1})
        total = self.totals.get(end) or 0
        self.totals.put(end, total + value.total * value.n + value.top)
        ctx.timer_service().register_event_time_timer(end - 1)
        return None

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        windows = dict(self.windows.value())
        counted, end = windows.pop(timestamp + 1), timestamp + 1
        yield ctx.get_current_key(), timestamp, counted, self.totals.get(end)
        self.windows.update(windows or None)
        self.totals.remove(end)


def build(env: Any) -> Any:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(DISORDER)
    source = ScriptedSource(LANES)
    stream = env.from_source(source, strategy.with_timestamp_assigner("ts"))
    windows = stream.key_by("k").window(TumblingEventTimeWindows.of(SIZE))
    results = windows.aggregate(n=count(), total=sum_("v"), top=max_("v"))
    # By the parity of the key: the second exchange sends records elsewhere than the first.
    spans = results.key_by(lambda r: r.k % 2).process(Spans())
    return {"windows": results.map(tuple), "spans": spans}


def reference() -> list[Any]:
    """In plain Python, from the definition."""
    windows: dict[tuple[int, int], list[int]] = {}
    for r in (r for lane in LANES for r in lane):
        windows.setdefault((r.k, r.ts - r.ts % SIZE), []).append(r.v)
    spans: dict[tuple[int, int], list[int]] = {}
    expected: list[Any] = []
    for (k, start), values in windows.items():
        result = (len(values), sum(values), max(values))
        expected.append(("windows", (k, start, start + SIZE, *result)))
        span = spans.setdefault((k % 2, start - start % SPAN + SPAN - 1), [0, 0])
        span[0] += 1
        span[1] += sum(values) * len(values) + max(values)
    return expected + [("spans", (*where, *span)) for where, span in spans.items()]


def simulate(seed: int) -> tuple[list[Any], SimulationResult]:
    """One seed: parallelism 2 or 3, one to three tasks crashing anywhere, one more after a
    checkpoint, in two of three runs a coordinator. Of two runs one keeps its checkpoints as files,
    which are incremental, and every so many uploads fail: in the end no shared file is missing, and
    none left over. Of four runs one keeps its state in RocksDB."""
    ways = Ways(batch_size=2 + seed % 5)
    plan = SimulationPlan(
        seed=seed,
        crashes=1 + seed % 3,
        coordinator_crashes=int(seed % 3 > 0),
        crash_window=700,
        crash_after_checkpoints=1,
    )
    probe = CollectProbe(build)
    spills = seed % 4 == 1
    state = SPILLING[seed // 4 % len(SPILLING)] if spills else IN_MEMORY
    # A database has several files: if one of each checkpoint's failed, none would ever complete.
    period = (4 + seed % 9) * (MOST_FILES if spills else 1)
    storage = Shaky(in_memory(), period) if seed // 3 % 2 else None
    config = replace(checkpointed(ways, 2 + seed % 2), state=state)
    result = Simulation(probe.graph(config), plan, storage).run()
    assert result.outcome is not None
    assert result.outcome.status is JobStatus.FINISHED, f"seed {seed}: {result.outcome.error}"
    if storage is not None:
        check_files(storage)
    published = {op: list(values.values()) for op, values in result.published.items()}
    return probe.output(published), result


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "first",
    [
        pytest.param(first, marks=[pytest.mark.slow] if first else [])
        for first in range(0, CHUNKS * CHUNK, CHUNK)
    ],
)
def test_every_schedule_gives_one_output(first: int) -> None:
    seeds = range(first, first + CHUNK)
    only = os.environ.get("STROM_SEED")
    if only is not None:
        seeds = range(int(only), int(only) + 1)
    expected = reference()
    crashed = coordinators = midway = 0
    for seed in seeds:
        try:
            output, result = simulate(seed)
            compare("the output", expected, output)
        except Exception as error:
            raise AssertionError(f"replay with STROM_SEED={seed}: {error}") from error
        crashed += result.crashed
        coordinators += result.coordinators_crashed
        midway += result.midway
    print(f"{len(seeds)} seeds: {crashed} tasks and {coordinators} coordinators crashed, ", end="")
    print(f"{midway} of them between a checkpoint and the end of the input")
    if only is None:
        assert crashed > 2 * CHUNK * 9 // 10
        assert coordinators > CHUNK // 2
        assert midway > CHUNK // 2


def test_a_step_that_is_left_out_would_have_done_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The schedule is that of a simulator which asks each task at each of its turns: crashes come
    at the same places, as many checkpoints are complete and as many records handled again."""
    rests, process = EvenSchedule._rests, GateIntake._process
    handled = left_out = 0

    def counted(self: GateIntake, index: int, batch: Any, done: int) -> None:
        nonlocal handled
        handled += len(batch)
        process(self, index, batch, done)

    def asked(self: EvenSchedule, task: Task) -> bool:
        nonlocal left_out
        if rests(self, task):
            left_out += 1
            assert not task.step()
            return True
        return False

    def figures(seed: int) -> tuple[Any, ...]:
        before = handled
        output, result = simulate(seed)
        outcome = result.outcome
        assert outcome is not None
        crashes = result.crashed, result.coordinators_crashed, result.midway
        ended = outcome.checkpoints, outcome.restarts, outcome.net_runtime_ms, output
        return (*crashes, result.steps, handled - before, *ended)

    monkeypatch.setattr(GateIntake, "_process", counted)
    seeds = (1, 5, 9, 16)  # with each backend, with files that fail, with crashed coordinators
    found = [figures(seed) for seed in seeds]
    monkeypatch.setattr(EvenSchedule, "_rests", asked)
    assert [figures(seed) for seed in seeds] == found
    assert left_out > 500 * len(seeds)
    assert sum(one[0] for one in found) > len(seeds)
    assert any(one[2] for one in found)


def fingerprint(seed: int) -> str:
    """Everything observable about a run, in order."""
    output, result = simulate(seed)
    return f"{result.steps} {result.crashed} {result.coordinators_crashed} {output!r}"


def test_a_seed_repeats_its_run() -> None:
    prints = [fingerprint(seed) for seed in (1, 2)]
    assert [fingerprint(seed) for seed in (1, 2)] == prints
    assert len({one.split()[0] for one in prints}) > 1


def test_a_seed_repeats_its_run_in_another_process() -> None:
    """Where strings hash differently, and so sets of them have another order."""
    program = f"import runpy; print(runpy.run_path({__file__!r})['fingerprint'](2))"
    here = fingerprint(2)
    for hash_seed in ("1", "2"):
        path = os.pathsep.join(sys.path)  # the kits are on it
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path}
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
        )
        assert done.stdout.strip() == here
