"""Coordinators that are found by their job's id, however their actors are named. On fakes of
Ray."""

from __future__ import annotations

import pytest
from named_actors import NamedActors
from strom.engine.hosts.coordinator_names import (
    Appointment,
    appoint,
    appointments,
    arguments_of,
    find_coordinator,
    forget,
    forget_job,
    forget_lost,
    jobs_with_coordinators,
)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> NamedActors:
    return NamedActors(monkeypatch)


def test_it_is_found_by_its_name_or_by_its_entry(cluster: NamedActors) -> None:
    named, ready = object(), object()
    cluster.actors |= {"strom-job-a": named, "ready-1": ready, "ready-2": object()}
    appoint(Appointment("b", "ready-1"), b"of b")
    assert find_coordinator("a") is named
    assert find_coordinator("b") is ready
    assert jobs_with_coordinators() == ["a", "b"]
    assert arguments_of("ready-1") == b"of b"
    assert arguments_of("ready-2") is None
    for other in ("c", "", "b ready-1"):
        with pytest.raises(ValueError, match=f"no actor 'strom-job-{other}'"):
            find_coordinator(other)


def test_a_job_whose_id_begins_another_s_is_none_of_its(cluster: NamedActors) -> None:
    cluster.actors |= {"ready-1": object(), "ready-2": object()}
    appoint(Appointment("ab", "ready-1"), b"")
    with pytest.raises(ValueError, match="strom-job-a"):
        find_coordinator("a")
    appoint(Appointment("a", "ready-2"), b"")
    forget_job("a")
    assert appointments() == [Appointment("ab", "ready-1")]


def test_what_is_left_of_one_that_is_gone_means_nothing(cluster: NamedActors) -> None:
    """Not where the job has another by now, and not for the list of jobs."""
    appoint(Appointment("a", "gone"), b"")
    appoint(Appointment("a", "there"), b"")
    cluster.actors["there"] = there = object()
    assert find_coordinator("a") is there
    del cluster.actors["there"]
    assert jobs_with_coordinators() == []
    with pytest.raises(ValueError, match="strom-job-a"):
        find_coordinator("a")
    cluster.actors["strom-job-a"] = ordinary = object()
    assert find_coordinator("a") is ordinary
    assert jobs_with_coordinators() == ["a"]


def test_entries_go_with_their_actors(cluster: NamedActors) -> None:
    cluster.actors |= {"ready-1": object(), "ready-2": object()}
    for job_id, actor in (("a", "ready-1"), ("b", "ready-2"), ("b", "gone")):
        appoint(Appointment(job_id, actor), b"")
    forget_lost()
    assert cluster.keys == ["a ready-1", "b ready-2"]
    forget(Appointment("b", "ready-2"))
    forget(Appointment("b", "ready-2"))
    assert cluster.keys == ["a ready-1"]
    del cluster.actors["ready-1"]
    forget_lost()
    assert not cluster.entries
