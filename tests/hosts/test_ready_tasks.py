"""Task processes that are ready before anybody needs them: how many are made, who gets one, and
what becomes of those whose job is gone. On fakes of Ray; on the real one:
tests/cluster/test_ray_ready."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import ray
from named_actors import NamedActors
from ray.exceptions import GetTimeoutError
from strom.engine.hosts import ready_tasks
from strom.engine.hosts.ready_tasks import (
    CALM_S,
    PER_CPU,
    PREFIX,
    TAKEN,
    ReadyTasks,
    Taker,
    count_ready,
    end_ready,
    fits,
    taken,
    taken_by,
)

KEEPER = object()

ONE, TWO = "1" * 56, "2" * 56
"""Nodes, by Ray's ids."""


class Actor:
    """One that stands by, or is about to."""

    def __init__(self) -> None:
        self.imported = False
        self.stand_by = SimpleNamespace(remote=self._stand_by)

    def _stand_by(self, keeper: Any) -> Actor:
        assert keeper is KEEPER
        return self


class Cluster(NamedActors):
    """Nodes with CPUs, and one keeper."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch)
        self.now = 0.0
        self.nodes = {ONE: 4}
        self.loses_answers = 0
        """Of so many calls that take one what was said is lost on its way back."""
        store = SimpleNamespace(
            _internal_kv_put=self._take,
            _internal_kv_get=lambda name, namespace: self.entries.get((namespace, name.encode())),
            _internal_kv_del=lambda name, namespace: self._remove(
                name.encode(), namespace=namespace
            ),
            _internal_kv_list=self._keys,
        )
        monkeypatch.setattr(ready_tasks, "internal_kv", store)
        monkeypatch.setattr(ready_tasks, "environment", lambda: "env")
        monkeypatch.setattr(ready_tasks, "_nodes", lambda: self.nodes)
        monkeypatch.setattr(ray, "remote", lambda made: SimpleNamespace(options=self._options))
        monkeypatch.setattr(ray, "wait", self._wait)

    def keeper(self, count: int) -> ReadyTasks:
        return ReadyTasks(KEEPER, count, lambda: self.now)

    def put(self, *names: str) -> list[str]:
        """Actors that stand by, on a node and under the end of a name each."""
        made = [f"{PREFIX}env-{name}" for name in names]
        self.actors.update((name, Actor()) for name in made)
        return made

    def on(self, node: str) -> int:
        return sum(name.startswith(f"{PREFIX}env-{node}-") for name in self.actors)

    def all_imported(self) -> None:
        for actor in self.actors.values():
            actor.imported = True

    def _take(self, name: str, value: str, overwrite: bool, *, namespace: bytes) -> bool:
        there = self._put(name.encode(), value.encode(), overwrite, namespace=namespace)
        if self.loses_answers:
            self.loses_answers -= 1
            raise GetTimeoutError("no answer")
        return there

    def _options(self, name: str, scheduling_strategy: Any, **others: Any) -> Any:
        assert f"-{scheduling_strategy.node_id}-" in name
        assert not scheduling_strategy.soft
        assert others["num_cpus"] == others["max_restarts"] == 0

        def remote() -> Actor:
            self.actors[name] = Actor()
            return self.actors[name]

        return SimpleNamespace(remote=remote)

    @staticmethod
    def _wait(known: list[Actor], timeout: float) -> tuple[list[Actor], list[Actor]]:
        assert timeout == 0
        return [one for one in known if one.imported], [one for one in known if not one.imported]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


# --- the keeper ----------------------------------------------------------------------------------


def test_one_after_the_other_is_made_on_each_node_and_no_more_than_its_cpus_can_use(
    cluster: Cluster,
) -> None:
    cluster.nodes = {ONE: 4, TWO: 1}
    keeper = cluster.keeper(3)
    for made in (1, 2, 3, 3):
        keeper.tend()
        keeper.tend()
        assert (cluster.on(ONE), cluster.on(TWO)) == (made, min(made, PER_CPU))
        cluster.all_imported()
    assert count_ready() == 3 + PER_CPU


def test_none_are_made_for_a_session_that_wants_none(cluster: Cluster) -> None:
    cluster.keeper(0).tend()
    assert not cluster.actors


def test_those_that_were_taken_are_replaced_once_the_job_has_started(cluster: Cluster) -> None:
    keeper = cluster.keeper(1)
    keeper.tend()
    cluster.all_imported()
    cluster.actors["strom-job-a"] = Actor()
    assert Taker("strom-job-a").take(ONE) is not None
    for later, there in ((1.0, 1), (CALM_S - 1.5, 1), (0.6, 2)):
        keeper.tend()
        cluster.now += later
        keeper.tend()
        assert cluster.on(ONE) == there
    assert count_ready() == 1


def test_what_a_job_had_that_is_gone_ends_and_is_forgotten(cluster: Cluster) -> None:
    """Its coordinator died for good before it could say anything to it."""
    cluster.put(f"{ONE}-1", f"{ONE}-2")
    for job in ("strom-job-a", "strom-job-b"):
        cluster.actors[job] = Actor()
        assert Taker(job).take(ONE) is not None
    theirs = {owner: name for name, owner in taken().items()}
    del cluster.actors["strom-job-a"]
    keeper = cluster.keeper(1)
    keeper.tend()
    assert cluster.killed == [theirs["strom-job-a"]]
    keeper.tend()
    assert cluster.killed == [theirs["strom-job-a"]]
    assert taken() == {theirs["strom-job-b"]: "strom-job-b"}


# --- who takes them ------------------------------------------------------------------------------


def test_each_is_given_to_one(cluster: Cluster) -> None:
    """Also where both have seen it before one had it."""
    first, second = Taker("strom-job-a"), Taker("strom-job-b")
    (name,) = cluster.put(f"{ONE}-1")
    assert second.take("another") is None
    assert first.take(ONE) is cluster.actors[name]
    assert second.take(ONE) is None
    assert list(taken_by("strom-job-a")) == [cluster.actors[name]]
    assert not list(taken_by("strom-job-b"))


def test_one_has_what_it_took_though_the_answer_was_lost(cluster: Cluster) -> None:
    (name,) = cluster.put(f"{ONE}-1")
    cluster.loses_answers = 1
    assert Taker("strom-job-a").take(ONE) is cluster.actors[name]
    assert taken() == {name: "strom-job-a"}


def test_only_those_of_the_node_and_of_the_same_runtime_environment_are_taken(
    cluster: Cluster,
) -> None:
    ours, _ = cluster.put(f"{ONE}-1", f"{TWO}-1")
    cluster.actors[f"{PREFIX}other-{ONE}-1"] = Actor()
    taker = Taker("strom-job-a")
    assert taker.take(ONE) is cluster.actors[ours]
    assert taker.take(ONE) is None
    assert list(taken()) == [ours]


def test_one_that_has_just_died_is_passed_over(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, there = cluster.put(f"{ONE}-1", f"{ONE}-2")
    taker = Taker("strom-job-a")
    assert taker.take("another") is None
    del cluster.actors[gone]
    assert taker.take(ONE) is cluster.actors[there]


@pytest.mark.parametrize(
    ("bundle", "may"), [({"CPU": 1.0, "memory": 2.0}, True), ({"CPU": 1.0, "GPU": 1.0}, False)]
)
def test_slots_with_other_resources_need_processes_of_their_own(
    bundle: dict[str, float], may: bool
) -> None:
    assert fits(bundle) is may


def test_the_end_of_the_session_ends_those_that_nobody_has_taken(cluster: Cluster) -> None:
    cluster.put(f"{ONE}-1", f"{ONE}-2", f"{TWO}-1")
    other = f"{PREFIX}other-{ONE}-1"
    cluster.actors[other] = Actor()
    busy = Taker("strom-job-a").take(ONE)
    end_ready()
    assert [one for name, one in cluster.actors.items() if name != other] == [busy]
    assert other in cluster.actors
    assert [namespace for namespace, _ in cluster.entries] == [TAKEN]
