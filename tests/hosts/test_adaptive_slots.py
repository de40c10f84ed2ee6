"""Slots of adaptive jobs, and looks for more room, on a fake of Ray; on the real one:
`chaos/test_ray_adaptive`."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from chaos_kit import config, environment
from strom import DiscardSink
from strom.connectors.datagen import DataGenSource
from strom.core.adaptive_config import AdaptiveConfig
from strom.core.errors import JobCancelledError, ResourceError
from strom.core.job_status import JobStatus
from strom.engine.coordinator.askers import Asker
from strom.engine.graph.model import JobGraph
from strom.engine.graph.rescaling import limited, shape_of, widths_of
from strom.engine.hosts import adaptive_slots, added_slots, cluster_room, growth_looks
from strom.engine.hosts.adaptive_slots import AdaptiveSlots, slots_for
from strom.engine.hosts.cluster import LittleRoomError
from strom.engine.hosts.growth_looks import GrowthLooks
from strom.engine.hosts.kept_slots import KeptSlots
from strom.engine.hosts.slots import Slots

AT_ONCE = AdaptiveConfig(
    enabled=True,
    wait=timedelta(seconds=0.2),
    stabilization=timedelta(0),
    cooldown=timedelta(0),
    growth_stabilization=timedelta(0),
)


def job(parallelism: int = 3, adaptive: AdaptiveConfig = AT_ONCE) -> JobGraph:
    env = environment(config(parallelism=parallelism, adaptive=adaptive))
    source = DataGenSource(lambda start, n: [start], 10, splits=6)
    env.from_source(source).key_by(lambda n: n).map(lambda n: n).sink_to(DiscardSink())
    made: JobGraph = env.get_job_graph("adaptive")
    return made


class FakeRay:
    """Nodes with CPUs; slots that are asked for get their places at once, if there is room."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *cpus: float) -> None:
        self.free = {f"n{i}": amount for i, amount in enumerate(cpus)}
        self.groups: dict[str, str] = {}
        """The node of each slot, by its name; empty: it waits."""
        self.calls = 0
        patch = monkeypatch.setattr
        patch(cluster_room, "available_resources_per_node", self.available)
        patch(cluster_room.ray.util, "placement_group_table", self.table)
        patch(added_slots, "get_placement_group", lambda name: name)
        patch(added_slots, "give_back", self.give_back)
        patch(adaptive_slots.ray, "cluster_resources", lambda: {"CPU": sum(cpus)})
        patch(adaptive_slots.ray, "available_resources", lambda: {"CPU": sum(self.free.values())})

    def available(self) -> dict[str, dict[str, float]]:
        self.calls += 1
        return {node: {"CPU": free} for node, free in self.free.items()}

    def table(self) -> dict[str, Any]:
        return {
            name: {
                "name": name,
                "state": "CREATED" if node else "PENDING",
                "bundles": {0: {"CPU": 1.0}},
                "bundles_to_node_id": {0: node},
            }
            for name, node in self.groups.items()
        }

    def give_back(self, name: str) -> None:
        self.free[self.groups.pop(name)] += 1

    def ask(self, slots: AdaptiveSlots) -> Any:
        def ask(wanted: Any) -> None:
            for name in map(slots._added.name, sorted(wanted, key=lambda key: key[1])):
                if name in self.groups:
                    continue
                self.groups[name] = next((n for n, free in self.free.items() if free >= 1), "")
                if self.groups[name]:
                    self.free[self.groups[name]] -= 1

        return ask

    def slots(self, planned: JobGraph) -> AdaptiveSlots:
        slots = AdaptiveSlots(planned, "strom-job-x", planned)
        slots._added.ask = self.ask(slots)  # type: ignore[method-assign]
        return slots


def test_all_slots_are_taken_where_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeRay(monkeypatch, 2, 2)
    slots = fake.slots(job())
    slots.reserve(Future())
    assert sorted(fake.groups.values()) == ["n0", "n0", "n1"]
    assert sorted(set(slots.nodes().values())) == ["n0", "n1"]
    assert slots.added == {"CPU": 3.0}, "all are reported"


def test_what_a_coordinator_before_had_for_more_is_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It died with all tasks, while the job was about to grow: held by nobody, those slots would
    never be room for it."""
    fake = FakeRay(monkeypatch, 2, 2)
    planned = job()
    smaller = limited(planned, planned, 1)
    slots = AdaptiveSlots(planned, "strom-job-x", smaller)
    slots._added.ask = fake.ask(slots)  # type: ignore[method-assign]
    fake.groups = {slots._added.name(("default", n)): "n0" for n in (0, 1)}
    fake.free["n0"] = 0
    slots.reserve(Future())
    assert fake.groups == {slots._added.name(("default", 0)): "n0"}
    assert fake.free["n0"] == 1


def test_less_room_is_told_with_what_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    planned, fake = job(), FakeRay(monkeypatch, 1, 1)
    with pytest.raises(LittleRoomError) as e:
        fake.slots(planned).reserve(Future())
    assert str(e.value) == (
        "the job needs 3 slots of 1.0 CPU, the cluster has 2 CPU of which 0 CPU are free, and "
        "2.0 CPU are in those of them that it has"
    )
    assert widths_of(e.value.job) == widths_of(limited(planned, planned, 2))


def test_a_node_that_is_dead_has_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    planned, fake = job(), FakeRay(monkeypatch, 1, 2)
    with pytest.raises(LittleRoomError) as caught:
        fake.slots(planned).reserve(Future(), {"n1"})
    assert shape_of(caught.value.job) == shape_of(limited(planned, planned, 1))


def test_too_little_for_the_least_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeRay(monkeypatch, 1, 1)
    with pytest.raises(ResourceError, match=r"least parallelism, 3 .*lower it") as caught:
        fake.slots(job(adaptive=replace(AT_ONCE, min_parallelism=3))).reserve(Future())
    assert not isinstance(caught.value, LittleRoomError)


def test_a_cancel_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeRay(monkeypatch)
    cancelled: Future[None] = Future()
    cancelled.set_exception(JobCancelledError("no more"))
    slow = replace(AT_ONCE, wait=timedelta(minutes=1))
    with pytest.raises(JobCancelledError):
        fake.slots(job(adaptive=slow)).reserve(cancelled)


def test_other_jobs_have_slots_as_ever() -> None:
    kept = KeptSlots("theirs", "keeper")
    plain = job(adaptive=AdaptiveConfig())
    assert type(slots_for(plain, "x", kept, plain)) is Slots
    assert type(slots_for(job(), "x", None, job())) is AdaptiveSlots


class FakeDriver:
    """Of a job that runs with one of three."""

    def __init__(self, planned: JobGraph) -> None:
        self.wanted = planned
        self.graph = SimpleNamespace(job=limited(planned, planned, 1))
        self.state = JobStatus.RUNNING


def looks(planned: JobGraph) -> tuple[GrowthLooks, FakeDriver, list[Any]]:
    wanted: list[Any] = []
    driver: Any = FakeDriver(planned)
    return GrowthLooks(planned, driver, wanted.append), driver, wanted


def test_it_grows_to_what_is_free_by_one_call_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    planned, fake = job(), FakeRay(monkeypatch, 1, 0)
    growth, driver, wanted = looks(planned)
    growth.look()
    (asked,) = wanted
    assert asked.asker is Asker.ROOM
    assert shape_of(asked.wanted) == shape_of(limited(planned, planned, 2))
    growth.look()
    assert (len(wanted), fake.calls) == (1, 1), "not while it grows"
    driver.graph = SimpleNamespace(job=asked.wanted)
    asked.told(SimpleNamespace(), None)
    growth.look()
    assert (len(wanted), fake.calls) == (2, 2)
    driver.graph = SimpleNamespace(job=planned)
    wanted.pop().told(SimpleNamespace(), None)
    growth.look()
    assert fake.calls == 2, "it has all"


@pytest.mark.parametrize("held", ["others wait", "restarting", "no room", "it could not"])
def test_it_does_not_grow(held: str, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeRay(monkeypatch, 0 if held == "no room" else 4)
    slowly = replace(AT_ONCE, cooldown=timedelta(minutes=1))
    growth, driver, wanted = looks(job(adaptive=slowly if held == "it could not" else AT_ONCE))
    match held:
        case "others wait":
            growth.held = True
        case "restarting":
            driver.state = JobStatus.RESTARTING
        case "it could not":
            growth._told(None, "no room")
    growth.look()
    assert wanted == []


def test_ray_that_does_not_answer_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    growth, _, wanted = looks(job())
    monkeypatch.setattr(growth_looks, "LOOK_S", 0.001)
    answers = iter([RuntimeError("away"), {"n": {"CPU": 9.0}}])

    def available() -> Any:
        answer = next(answers, {})
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(cluster_room, "available_resources_per_node", available)
    growth._want = lambda asked: (wanted.append(asked), growth.close())  # type: ignore[assignment]
    growth._run()
    assert len(wanted) == 1
