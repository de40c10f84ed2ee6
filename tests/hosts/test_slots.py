"""Slots that Ray fails to make. On a fake of it; on the real one: `test_ray_slots`."""

from __future__ import annotations

from concurrent.futures import Future
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from chaos_kit import config, environment
from ray.exceptions import RaySystemError
from strom import DiscardSink
from strom.connectors.datagen import DataGenSource
from strom.core.errors import JobCancelledError, ResourceError
from strom.engine.graph.rescaling import moved
from strom.engine.hosts import added_slots, placement
from strom.engine.hosts import slots as module
from strom.engine.hosts.kept_slots import KeptSlots
from strom.engine.hosts.slots import Slots


@pytest.fixture(autouse=True)
def nothing_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(added_slots, "_named", lambda prefix: [])


def no_group(name: str) -> Any:
    raise ValueError(name)


@pytest.mark.parametrize("error", [RaySystemError("no"), JobCancelledError("no more")], ids=str)
def test_what_is_not_waited_for_to_the_end_is_given_back(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = SimpleNamespace()

    def fails(group: Any) -> None:
        raise error

    monkeypatch.setattr(placement, "placement_group_table", fails)
    given_back: list[Any] = []
    monkeypatch.setattr(module, "get_placement_group", no_group)
    monkeypatch.setattr(module, "placement_group", lambda bundles, **options: group)
    monkeypatch.setattr(module, "give_back", given_back.append)
    env = environment(config())
    env.from_collection([1]).sink_to(DiscardSink())
    slots = Slots(env.get_job_graph("one"), "a name")
    with pytest.raises(type(error)):
        slots.reserve(Future())
    slots.release()
    assert given_back == [group]


def test_what_a_coordinator_before_had_added_goes_before_anything_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All tasks died with it, and the slots for its rescale are all the room that is left: the
    job's own are placed once these are given back, also where a group of its own is not there any
    more, as it was waited for in vain before."""
    added = {"a name+default+2", "a name+default+3"}
    monkeypatch.setattr(added_slots, "_named", lambda prefix: sorted(added))
    monkeypatch.setattr(added_slots, "_give_back_all", lambda names: added.difference_update(names))

    def state(group: Any) -> dict[str, str]:
        return {"state": "PENDING" if added else "CREATED"}

    monkeypatch.setattr(placement, "placement_group_table", state)
    monkeypatch.setattr(module, "give_back", lambda group: None)
    monkeypatch.setattr(module, "placement_group", lambda bundles, **options: "new")
    env = environment(config(parallelism=2, slot_request_timeout=timedelta(seconds=0.05)))
    env.from_source(DataGenSource(lambda start, n: [start], 10, splits=6)).sink_to(DiscardSink())
    for find in (str, no_group):
        monkeypatch.setattr(module, "get_placement_group", find)
        added.update({"a name+default+2", "a name+default+3"})
        Slots(env.get_job_graph("one"), "a name").reserve(Future())
        assert added == set()


@pytest.mark.parametrize("kept", [None, KeptSlots("a name", "its keeper")])
def test_what_another_coordinator_has_asked_for_is_given_back(
    kept: KeptSlots | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It died meanwhile, and the job ends before it needs any. Those of a session are its own."""
    given_back: list[Any] = []
    monkeypatch.setattr(module, "get_placement_group", lambda name: name)
    monkeypatch.setattr(module, "give_back", given_back.append)
    env = environment(config())
    env.from_collection([1]).sink_to(DiscardSink())
    Slots(env.get_job_graph("one"), "a name", kept).release()
    assert given_back == ([] if kept else ["a name"])


def test_added_slots_that_lay_on_a_node_that_died_are_what_is_lacking(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They have been there, and Ray finds no other place for one of two."""
    env = environment(config(parallelism=2, slot_request_timeout=timedelta(seconds=0.05)))
    env.from_source(DataGenSource(lambda start, n: [start], 10, splits=6)).sink_to(DiscardSink())
    planned = env.get_job_graph("one")
    slots = Slots(planned, "a name", job=moved(planned, planned, 4))
    monkeypatch.setattr(added_slots, "get_placement_group", lambda name: name)
    states = {"a name+default+2": "RESCHEDULING", "a name+default+3": "CREATED"}
    monkeypatch.setattr(placement, "placement_group_table", lambda one: {"state": states[one]})
    monkeypatch.setattr(module.ray, "cluster_resources", lambda: {"CPU": 3.0})
    monkeypatch.setattr(module.ray, "available_resources", lambda: {"CPU": 0.0})
    slots._added.find([("default", 2), ("default", 3)])
    told = r"has the job needs 1 slots of 1\.0 CPU, the cluster has 3\.0 CPU of which 0\.0 CPU are"
    with pytest.raises(ResourceError, match=told):
        slots.add_for(slots._job, Future())


def node(name: str, address: str, alive: bool = True) -> dict[str, Any]:
    return {"NodeID": name, "NodeManagerAddress": address, "Alive": alive}


@pytest.mark.parametrize(
    ("placed", "several"),
    [
        (["a", "a", "a"], False),
        (["a", "b"], True),
        (["a", "c"], False),  # two nodes of Ray on one machine
        (["a", "gone"], True),  # what is placed anew may come to any machine
        (["a", ""], True),
    ],
)
def test_whether_slots_are_on_several_machines(
    placed: list[str], several: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = [
        node("a", "10.0.0.1"),
        node("b", "10.0.0.2"),
        node("c", "10.0.0.1"),
        node("gone", "10.0.0.1", alive=False),
    ]
    table = {"bundles_to_node_id": dict(enumerate(placed))}
    monkeypatch.setattr(module, "placement_group_table", lambda group: table)
    monkeypatch.setattr(module.ray, "nodes", lambda: nodes)
    env = environment(config())
    env.from_collection([1]).sink_to(DiscardSink())
    slots = Slots(env.get_job_graph("one"), "a name")
    assert slots.on_several_machines() is several
