"""What a dispatcher decides about slots between two jobs, and about jobs that start with fewer."""

from __future__ import annotations

from session_records import kinds, left, record, running, session
from strom.cluster.actions import Find, Release
from strom.cluster.session import SHORT_MS, SILENCE_MS, Session
from strom.cluster.slot_pool import shape_of
from strom.core.job_status import JobStatus


def test_slots_go_to_the_next_job_of_their_shape_or_out_of_the_way() -> None:
    s = session(4)
    (start,) = s.submit(record("a", 2, shape="two", idle_ms=50), 0)
    assert kinds(left(s, "a", 10)) == [("Store", "a")]
    (again,) = s.submit(record("b", 2, shape="two", idle_ms=50), 20)
    assert again.record.group == start.record.group
    assert kinds(left(s, "b", 30)) == [("Store", "b")]
    (other,) = s.submit(record("c", 1, shape="one", idle_ms=0), 40)  # there is room beside it
    assert other.record.group != start.record.group
    actions = s.submit(record("d", 3, shape="three"), 50)
    assert actions[0] == Release(start.record.group)
    assert kinds(actions[1:]) == [("Start", "d")]
    store, released = left(s, "c", 60)
    assert (store.record.group, released) == (None, Release(other.record.group))


def test_slots_are_released_when_their_time_is_over_and_with_the_session() -> None:
    s = session(4)
    (start,) = s.submit(record("a", 2, shape="two", idle_ms=50), 0)
    left(s, "a", 10)
    assert s.capacity({"CPU": 4}, 59) == []
    assert s.capacity({"CPU": 4}, 60) == [Release(start.record.group)]
    assert s.close() == []
    (start,) = s.submit(record("b", 2, shape="two", idle_ms=50), 70)
    left(s, "b", 80)
    assert s.close() == [Release(start.record.group)]


def test_a_lost_run_leaves_its_slots_to_the_next() -> None:
    s = session()
    (start,) = s.submit(record("a", shape="one", idle_ms=50), 0)
    s.started("a", 0, 0)
    _, again = s.lost("a", 0, "killed", SHORT_MS)
    assert again.record.group == start.record.group
    groups = [start.record.group, "left by a crash"]
    recovered = Session().recover([again.record], 0, groups)
    assert recovered == [Release("left by a crash"), Find(again.record)]


def test_slots_that_nobody_knows_are_released_whenever_they_are_seen() -> None:
    """Those of a coordinator that died while it made them, and that were not there as they were
    released."""
    s = session(4)
    (a,) = s.submit(record("a", 1, shape="one"), 0)
    (b,) = s.submit(record("b", 2, shape="two", idle_ms=50, submitted_ms=1), 1)
    left(s, "b", 2)  # its slots are kept for the next
    names = [a.record.group, b.record.group]
    assert s.there(names) == []
    assert left(s, "a", 3)[-1] == Release(a.record.group)
    assert s.there(names) == [Release(a.record.group)]
    s.capacity({"CPU": 4}, 1_000)
    assert s.there(names) == [Release(name) for name in names]


def test_the_same_bundles_in_the_same_order_are_one_shape() -> None:
    assert shape_of([{"CPU": 1, "GPU": 2.0}]) == shape_of([{"GPU": 2, "CPU": 1.0}])
    assert shape_of([{"CPU": 1}, {"CPU": 2}]) != shape_of([{"CPU": 2}, {"CPU": 1}])
    assert shape_of([{"CPU": 1}] * 2) != shape_of([{"CPU": 1}] * 2, spread=True)


def test_an_adaptive_job_starts_as_soon_as_its_least_fits() -> None:
    """What it takes then is known when it says so; until then it counts as all that it wants."""
    s = session()
    running(s, record("a", 3))
    (start,) = s.submit(record("b", 4, submitted_ms=1, least={"CPU": 1.0}), 1)
    assert (start.record.job_id, start.record.group) == ("b", None)
    assert s.submit(record("c", 1, submitted_ms=2), 2) == []
    assert s.others_wait
    s.started("b", 0, 3)
    assert kinds(s.ended("a", 0, JobStatus.FINISHED, None, 4)) == [("Store", "a")]
    assert "b (b) has 4" in (s.waits_for("c") or "")
    told = s.rescaled("b", 0, {"CPU": 1.0}, 5)
    assert kinds(told) == [("Store", "b"), ("Start", "c")]
    assert not s.others_wait
    assert s.rescaled("b", 0, {"CPU": 3.0}, 6)[0].record.needs == {"CPU": 3.0}


def test_an_adaptive_job_whose_least_is_too_large_says_so() -> None:
    s = session()
    s.submit(record("a", 9, least={"CPU": 5.0}, patience_ms=10), 0)
    assert s.waits_for("a") == (
        "it needs 5 CPUs for its least parallelism, and the whole cluster has 4: add nodes, lower "
        "its parallelism, or let slots take less"
    )
    assert not s.others_wait
    assert s.capacity({"CPU": 4}, 10)[0].record.status is JobStatus.FAILED


def test_slots_that_nobody_has_make_room_for_all_that_an_adaptive_job_wants() -> None:
    s = session()
    s.submit(record("a", 2, shape="two", idle_ms=1_000), 0)
    left(s, "a", 1)
    released, start = s.submit(record("b", 4, least={"CPU": 1.0}), 2)
    assert isinstance(released, Release)
    assert start.record.group is None


def test_slots_do_not_wait_for_jobs_that_may_come_while_one_that_runs_would_have_more() -> None:
    s = session()
    running(s, record("grows", 1))
    (start,) = s.submit(record("a", 2, shape="two", idle_ms=1_000), 0)
    s.lacks("grows", 0, True)
    assert s.capacity({"CPU": 4}, 1) == []
    left(s, "a", 2)
    s.lacks("grows", 0, False)
    assert s.capacity({"CPU": 4}, 3) == []
    s.lacks("grows", 7, True)  # a run that is over, or not yet there
    assert s.capacity({"CPU": 4}, 4) == []
    s.lacks("grows", 0, True)
    assert s.capacity({"CPU": 4}, 5) == [Release(start.record.group)]
    (start,) = s.submit(record("b", 2, shape="two", idle_ms=1_000), 6)
    s.submit(record("line", 4), 7)
    left(s, "b", 8)
    assert s.capacity({"CPU": 4}, 9) == [], "somebody is in line before it"
    s.cancel("line", 10)
    assert s.capacity({"CPU": 4}, 11) == [Release(start.record.group)]
    (start,) = s.submit(record("c", 2, shape="two", idle_ms=1_000), 12)
    s.ended("grows", 0, JobStatus.FINISHED, None, 13)
    left(s, "c", 14)
    assert s.capacity({"CPU": 4}, 15) == []


def test_who_gives_up_at_once_leaves_no_slots_behind() -> None:
    """What the end of the first one lends to the second, which has given up as well."""
    s = session(3)
    running(s, record("x", 1))
    running(s, record("old", 2, shape="2", idle_ms=10**9))
    s.submit(record("a", 3, submitted_ms=1, attached=True), 1)
    s.submit(record("b", 2, submitted_ms=2, shape="2", attached=True, idle_ms=10**9), 2)
    s.ended("old", 0, JobStatus.FINISHED, None, 3)
    (group,) = s._room.idle  # "a" is too large for what is free, and comes before "b"
    s.capacity({"CPU": 3}, SILENCE_MS + 10)
    held = {job.group for job in s.jobs if job.group is not None}
    assert held | s._room.idle == {group}, "the group is somebody's, or the pool's"
