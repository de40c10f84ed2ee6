"""The harness itself: what is broken on purpose, it finds; what proves nothing, it refuses."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from strom import (
    KeyedProcessFunction,
    MapFunction,
    RuntimeContext,
    Sink,
    ValueStateDescriptor,
)
from strom.api.connectors.base import SinkWriter, WriterContext
from strom.engine.hosts.simulator import Simulation, SimulationError, SimulationPlan
from strom.testing.equivalence import (
    Difference,
    NothingProven,
    Ways,
    assert_equivalent,
    assert_files_equivalent,
    checkpointed,
    compare,
)
from strom.testing.probes import CollectProbe
from strom.testing.scripted import ScriptedSource


class Forgetful(KeyedProcessFunction):
    """Counts in an attribute: right as long as nothing fails."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        self.counts[value.k] = self.counts.get(value.k, 0) + 1
        yield (value.k, self.counts[value.k])


class Mindful(MapFunction):
    """The same in keyed state."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def map(self, value: Any) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        return (value.k, self.count.value())


def counts(readings: Any) -> list[Any]:
    found: dict[str, int] = {}
    expected = []
    for r in readings.all:
        found[r.k] = found.get(r.k, 0) + 1
        expected.append((r.k, found[r.k]))
    return expected


def test_state_in_an_attribute_is_found(readings: Any) -> None:
    with pytest.raises(Difference, match="seed"):
        assert_equivalent(
            lambda env: readings.rows(env).key_by("k").process(Forgetful()), counts(readings)
        )
    assert_equivalent(lambda env: readings.rows(env).key_by("k").map(Mindful()), counts(readings))


class HastySink(Sink):
    """Publishes what it is given without waiting for a checkpoint, under keys of its own choice."""

    def __init__(self, per_attempt: bool) -> None:
        self.per_attempt = per_attempt

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return HastyWriter(context, self.per_attempt)


class HastyWriter(SinkWriter):
    def __init__(self, context: WriterContext, per_attempt: bool) -> None:
        self.context = context
        attempt = f"{random.random()}-" if per_attempt else ""
        self.prefix = f"{attempt}{context.subtask}"
        self.written = 0
        self.held: list[Any] = []

    def write(self, batch: Any) -> None:
        self.held += batch.rows()
        if len(self.held) >= 10:
            self.publish()

    def publish(self) -> None:
        self.written += 1
        self.context.publish(f"{self.prefix}-{self.written}", self.held)
        self.held = []

    def prepare_commit(self, checkpoint_id: int) -> Sequence[Any]:
        self.publish()
        return []

    def commit(self, committables: Sequence[Any]) -> None:
        """Too late."""


def test_a_sink_that_publishes_in_write_is_found(readings: Any) -> None:
    def build(env: Any) -> Any:
        return readings.rows(env).map(lambda r: (r.k, r.v)).sink_to(HastySink(True))

    with pytest.raises(Difference, match=r"seed .* unexpected"):
        assert_equivalent(build, [(r.k, r.v) for r in readings.all])


def test_a_sink_that_gives_two_values_one_key_is_found(readings: Any) -> None:
    """Its client drops the second value: records are lost, or the simulator sees the difference."""

    def build(env: Any) -> Any:
        return readings.rows(env).map(lambda r: (r.k, r.v)).sink_to(HastySink(False))

    with pytest.raises((Difference, SimulationError)):
        assert_equivalent(build, [(r.k, r.v) for r in readings.all])


def test_a_sink_that_writes_files_at_once_is_found(readings: Any) -> None:
    class Appending(HastySink):
        def __init__(self, path: Path) -> None:
            super().__init__(False)
            self.path = path

        def create_writer(self, context: WriterContext) -> SinkWriter:
            path = self.path

            class Writer(HastyWriter):
                def write(self, batch: Any) -> None:
                    with path.open("a") as file:
                        file.writelines(f"{row!r}\n" for row in batch.rows())

            return Writer(context, False)

    def build(env: Any, out: Path) -> None:
        readings.rows(env).map(lambda r: (r.k, r.v)).sink_to(Appending(out / "all"))

    def read(out: Path) -> list[Any]:
        return (out / "all").read_text().splitlines()

    with pytest.raises(Difference, match="seed"):
        assert_files_equivalent(build, read, [repr((r.k, r.v)) for r in readings.all])


def test_random_output_is_found(readings: Any) -> None:
    with pytest.raises(Difference, match="local, checkpointed"):
        assert_equivalent(lambda env: readings.rows(env).map(lambda r: random.random()))


def test_a_wrong_expectation_is_found(readings: Any) -> None:
    with pytest.raises(Difference, match=r"1 missing, for instance \['7'\]"):
        assert_equivalent(
            lambda env: readings.rows(env).map(lambda r: r.v), [*(r.v for r in readings.all), 7]
        )


def test_a_job_that_fails_is_no_output(readings: Any) -> None:
    from strom import JobFailedError

    with pytest.raises(JobFailedError, match="division"):
        assert_equivalent(lambda env: readings.rows(env).map(lambda r: r.v // 0))


@pytest.mark.parametrize("crashes", [0, 2])
def test_pipelines_that_are_over_at_once_prove_nothing(crashes: int) -> None:
    def build(env: Any) -> Any:
        return env.from_source(ScriptedSource([[1]])).map(lambda n: n + 1)

    ways = Ways(crashes=crashes, anytime=0, coordinator=False, spare=0)
    with pytest.raises(NothingProven, match="0 crashes and 0 stops"):
        assert_equivalent(build, [2], ways)


def test_a_plan_without_crashes_proves_nothing(readings: Any) -> None:
    ways = Ways(crashes=0, anytime=0, coordinator=False)
    with pytest.raises(NothingProven, match="0 crashes and"):
        assert_equivalent(lambda env: readings.rows(env).map(lambda r: r.v), ways=ways)


def test_multisets() -> None:
    compare("same", [(1, "a"), (2, "b"), (1, "a")], [(2, "b"), (1, "a"), (1, "a")])
    with pytest.raises(Difference, match="2 records, expected 3; 1 missing"):
        compare("repeated", [1, 1, 2], [1, 2])
    with pytest.raises(Difference, match="1 unexpected"):
        compare("type", [1], [1.0])


def test_every_kind_of_crash_happens(readings: Any) -> None:
    """Over a few seeds: tasks, coordinators, and some of each midway."""
    plan = SimulationPlan(
        crashes=1, coordinator_crashes=1, crash_window=200, crash_after_checkpoints=2
    )
    crashed = coordinators = midway = 0
    for seed in range(8):
        probe = CollectProbe(lambda env: readings.rows(env).key_by("k").map(Mindful()))
        graph = probe.graph(checkpointed(Ways(), 2))
        result = Simulation(graph, SimulationPlan(**{**vars(plan), "seed": seed})).run()
        crashed += result.crashed
        coordinators += result.coordinators_crashed
        midway += result.midway
    assert crashed >= 16
    assert coordinators >= 6
    assert midway >= 8
