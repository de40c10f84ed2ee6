"""Slots that are given back on a real Ray, at every moment of their making."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
import ray
from chaos_kit import until
from ray.util.placement_group import placement_group
from shared_ray import CPUS, ray_of
from strom import StreamExecutionEnvironment
from strom.core.errors import JobCancelledError
from strom.engine.graph.model import JobGraph
from strom.engine.hosts.slots import Slots, give_back

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]


GROUPS = 150
"""One in ten was lost before what is being made was waited for."""


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    with ray_of():
        yield


def all_free() -> None:
    until(lambda: ray.available_resources().get("CPU", 0) == CPUS, "free slots", 30.0)


def test_what_is_given_back_while_it_is_made_is_free_again() -> None:
    rng = random.Random(7)
    for _ in range(GROUPS):
        group = placement_group([{"CPU": 1}])
        time.sleep(rng.uniform(0.0, 0.001))
        give_back(group)
    all_free()


def job() -> JobGraph:
    env = StreamExecutionEnvironment.get_execution_environment(host="ray")
    env.from_collection([1]).print()
    return env.get_job_graph("waits")


def test_a_job_that_is_cancelled_while_it_waits_for_room_leaves_its_place() -> None:
    held = placement_group([{"CPU": CPUS}])
    assert held.wait(60)
    cancelled: Future[None] = Future()
    slots = Slots(job(), "strom-slots-of-the-test")
    with ThreadPoolExecutor(1) as pool:
        reserving = pool.submit(slots.reserve, cancelled)
        until(lambda: "strom-slots-of-the-test" in named(), "its request")
        cancelled.set_exception(JobCancelledError("no more"))
        with pytest.raises(JobCancelledError):
            reserving.result(60.0)
    give_back(held)
    all_free()
    assert named() == []


def named() -> list[str]:
    """Those that are there, or to be."""
    table = ray.util.placement_group_table().values()
    return [one["name"] for one in table if one["state"] != "REMOVED" and one["name"]]
