"""A job whose start broke off is ended by its coordinator, which knows of the slots that it asks
for, and only then killed. On fakes of Ray; on the real one: tests/chaos/test_ray_programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, GetTimeoutError
from strom.engine.hosts import launch
from strom.engine.hosts.job_record import Begun, JobRecord


class Called:
    def __init__(self, told: list[str], name: str) -> None:
        self._told, self._name = told, name

    def remote(self, *arguments: Any) -> str:
        self._told.append(self._name)
        return self._name


class World:
    """One coordinator, which answers as `answers` say by call, and the slots of its job."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.told: list[str] = []
        self.answers: dict[str, BaseException] = {}
        self.cancel = Called(self.told, "cancel")
        self.outcome = Called(self.told, "outcome")
        monkeypatch.setattr(launch, "find_coordinator", lambda job_id: self)
        monkeypatch.setattr(launch, "forget_job", lambda job_id: self.told.append("forget"))
        monkeypatch.setattr(launch.ray, "get", self.get)
        monkeypatch.setattr(launch.ray, "kill", self.kill)
        monkeypatch.setattr(launch, "get_placement_group", lambda name: name)
        monkeypatch.setattr(launch, "await_made", lambda group: self.told.append("made"))
        monkeypatch.setattr(launch, "give_back", self.remove)
        monkeypatch.setattr(launch, "give_back_added", lambda name: self.told.append("added"))
        monkeypatch.setattr(launch, "WITHDRAWAL_S", 0.01)

    def get(self, call: str, timeout: float) -> None:
        if call in self.answers:
            raise self.answers[call]

    def kill(self, coordinator: Any, no_restart: bool) -> None:
        assert coordinator is self
        assert no_restart
        self.told.append("kill")

    def remove(self, group: str) -> None:
        if "remove" not in self.told:
            self.told.append("remove")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_the_coordinator_ends_the_job_before_it_is_killed(world: World) -> None:
    launch.withdraw("a")
    assert world.told == ["cancel", "outcome", "made", "kill", "forget", "remove", "added"]


@pytest.mark.parametrize("error", [ActorDiedError(), GetTimeoutError()])
def test_one_that_does_not_answer_is_killed(world: World, error: Exception) -> None:
    world.answers["cancel"] = error
    launch.withdraw("a")
    assert world.told == ["cancel", "made", "kill", "forget", "remove", "added"]


def test_one_that_is_waited_for_is_killed_by_a_second_interrupt(world: World) -> None:
    world.answers["outcome"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        launch.withdraw("a")
    assert world.told == ["cancel", "outcome", "kill", "forget"]


@pytest.mark.parametrize("there", [True, False])
def test_what_it_left_goes_with_a_job_that_nobody_begins_again(
    world: World, there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a coordinator that is gone already."""
    record = JobRecord(str(tmp_path), "a1")
    record.begin(Begun(b"graph"))

    def none(job_id: str) -> None:
        raise ValueError(job_id)

    if not there:
        monkeypatch.setattr(launch, "find_coordinator", none)
    launch.withdraw("a1")
    assert JobRecord(str(tmp_path), "a1").read()[0] == Begun(b"graph")
    launch.withdraw("a1", record)
    assert list(tmp_path.iterdir()) == []
