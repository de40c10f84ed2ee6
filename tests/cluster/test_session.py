"""What a dispatcher decides, event by event, and through random lives against what must hold."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from strom.cluster.actions import Cancel, Find, Follow, Release, Settle, Start, Stop, Store
from strom.cluster.records import JobRecord, Phase
from strom.cluster.session import DELAYS_MS, MOST_SHORT, SHORT_MS, SILENCE_MS, Session
from strom.cluster.slot_pool import shape_of
from strom.core.errors import ConfigurationError
from strom.core.job_status import JobStatus


def record(job_id: str, cpus: float = 1.0, **more: Any) -> JobRecord:
    known = {
        "attached": False,
        "patience_ms": 300_000,
        "submitted_ms": 0,
        "checkpoints": "file:///c",
    }
    return JobRecord(job_id, f"job {job_id}", cpus, slots=round(cpus), **{**known, **more})


def session(cpus: float = 4.0) -> Session:
    made = Session()
    made.capacity({"CPU": cpus}, 0)
    return made


def kinds(actions: list[Any]) -> list[tuple[str, str]]:
    return [(type(action).__name__, action.record.job_id) for action in actions]


def test_what_fits_starts_and_what_does_not_waits_in_order_and_is_told_why() -> None:
    s = session()
    assert kinds(s.submit(record("a", 3), 0)) == [("Start", "a")]
    assert s.submit(record("b", 2, submitted_ms=1), 1) == []
    assert s.submit(record("c", 1, submitted_ms=2), 2) == []  # it would fit, but came later
    assert s.waits_for("b") == "it needs 2 CPUs, and 1 of 4 are free: job a (a) has 3"
    assert s.waits_for("c") == "job job b (b) came before it, and waits"
    assert s.waits_for("a") is None
    assert kinds(s.started("a", 0, 3)) == [("Store", "a"), ("Follow", "a")]
    actions = s.ended("a", 0, JobStatus.FINISHED, None, 4)
    assert kinds(actions) == [("Store", "a"), ("Start", "b"), ("Start", "c")]
    ended = actions[0].record
    assert (ended.phase, ended.status, ended.ended_ms) == (Phase.ENDED, JobStatus.FINISHED, 4)
    assert s.job("a") is None


def test_what_each_waits_for_is_told_without_a_look_at_all_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The dispatcher lists all that wait, and does nothing else meanwhile."""
    s, waiting = session(), 300
    s.submit(record("a", 4), 0)
    for n in range(waiting):
        s.submit(record(f"b{n}", 1, submitted_ms=n), n)
    looks = 0

    def counted(self: JobRecord) -> bool:
        nonlocal looks
        looks += 1
        return self.phase is Phase.QUEUED

    monkeypatch.setattr(JobRecord, "waits_in_line", property(counted))
    told = [s.waits_for(one.job_id) for one in s.jobs]
    assert told[1] == "it needs 1 CPUs, and 0 of 4 are free: job a (a) has 4"
    assert told[-1] == "job job b0 (b0) came before it, and waits"
    assert looks <= 3 * waiting


def test_what_is_larger_than_the_cluster_holds_up_nobody_and_fails_in_time() -> None:
    s = session()
    assert s.submit(record("huge", 9, patience_ms=1000), 0) == []
    assert kinds(s.submit(record("b", 4, submitted_ms=1), 1)) == [("Start", "b")]
    assert "the whole cluster has 4" in (s.waits_for("huge") or "")
    assert s.capacity({"CPU": 4}, 999) == []
    (store,) = s.capacity({"CPU": 4}, 1000)
    assert store.record.status is JobStatus.FAILED
    assert "9 CPUs for 9 slots" in (store.record.error or "")


def test_other_resources_are_waited_for_as_well() -> None:
    s = Session()
    s.capacity({"CPU": 4, "GPU": 1}, 0)
    assert kinds(s.submit(record("a", 1, others={"GPU": 1}), 0)) == [("Start", "a")]
    assert s.submit(record("b", 1, others={"GPU": 1}, submitted_ms=1), 1) == []
    assert s.waits_for("b") == "it needs 1 of GPU, and 0 of 1 are free: job a (a) has 1"
    s.submit(record("c", 1, others={"TPU": 2}, submitted_ms=2), 2)
    assert "it needs 2 of TPU for 1 slots, and the whole cluster has 0" in (s.waits_for("c") or "")
    s.started("a", 0, 3)
    actions = s.ended("a", 0, JobStatus.FINISHED, None, 4)
    assert kinds(actions) == [("Store", "a"), ("Start", "b")]


def test_nodes_that_join_let_it_start_and_its_patience_begins_anew() -> None:
    s = session()
    s.submit(record("huge", 9, patience_ms=1000), 0)
    assert kinds(s.capacity({"CPU": 9}, 900)) == [("Start", "huge")]


def test_a_lost_coordinator_runs_again_from_its_checkpoints() -> None:
    s = session()
    s.submit(record("a"), 0)
    s.started("a", 0, 0)
    actions = s.lost("a", 0, "killed", SHORT_MS)
    assert kinds(actions) == [("Store", "a"), ("Start", "a")]
    assert actions[1].record.run == 1
    assert s.ended("a", 0, JobStatus.FINISHED, None, SHORT_MS) == []  # of a run that is over
    assert kinds(s.started("a", 1, SHORT_MS)) == [("Store", "a"), ("Follow", "a")]


@pytest.mark.parametrize(
    ("more", "why"),
    [({"checkpoints": None}, "keeps no checkpoints"), ({"attached": True}, "killed")],
)
def test_who_cannot_go_on_fails(more: dict[str, Any], why: str) -> None:
    s = session()
    s.submit(record("a", **more), 0)
    s.started("a", 0, 0)
    (store,) = s.lost("a", 0, "killed", SHORT_MS)
    assert store.record.status is JobStatus.FAILED
    assert why in store.record.error


def test_runs_that_do_not_last_end_the_job() -> None:
    s, now = session(), 0
    s.submit(record("a"), now)
    s.started("a", 0, now)
    for run in range(MOST_SHORT):
        assert s.job("a") is not None
        s.lost("a", run, "killed", now)
        now += DELAYS_MS[-1]
        s.capacity({"CPU": 4}, now)
        s.started("a", run + 1, now)
    (store,) = s.lost("a", MOST_SHORT, "killed", now)
    assert store.record.status is JobStatus.FAILED
    assert "did not last" in store.record.error


def test_a_run_that_lasted_forgives_those_before() -> None:
    s, now = session(), 0
    s.submit(record("a"), now)
    for run in range(3 * MOST_SHORT):
        s.started("a", run, now)
        now += SHORT_MS
        assert kinds(s.lost("a", run, "killed", now)) == [("Store", "a"), ("Start", "a")]


def test_cancelling() -> None:
    s = session(1)
    s.submit(record("a"), 0)
    s.submit(record("b", submitted_ms=1), 0)
    (store,) = s.cancel("b", 1)  # it waits
    assert store.record.status is JobStatus.CANCELED
    assert kinds(s.cancel("a", 1)) == [("Store", "a")]  # it starts: told when it has
    assert kinds(s.started("a", 0, 2)) == [("Store", "a"), ("Follow", "a"), ("Cancel", "a")]
    (store,) = s.lost("a", 0, "killed", 3)
    assert store.record.status is JobStatus.CANCELED
    with pytest.raises(ConfigurationError, match="no job 'a'"):
        s.cancel("a", 4)


def test_what_a_running_job_has_got_since_nobody_else_is_given() -> None:
    s = session(4)
    s.submit(record("a", cpus=2), 0)
    s.started("a", 0, 1)
    (store,) = s.rescaled("a", 0, {"CPU": 1.0}, 2)
    assert (store.record.needs, store.record.began_with) == ({"CPU": 3.0}, {"CPU": 2})
    assert s.rescaled("a", 0, {"CPU": 1.0}, 3) == []
    assert s.submit(record("b", cpus=2, submitted_ms=1), 4) == []
    assert "job a (a) has 3" in str(s.waits_for("b"))
    actions = s.rescaled("a", 0, {}, 5)
    assert ("Start", "b") in kinds(actions)
    s.rescaled("a", 0, {"CPU": 1.0}, 6)
    s.lost("a", 0, "killed", 7)
    s.started("a", 1, 8)
    assert s.job("a").needs == {"CPU": 2}, "the next run begins as the first did"


def test_who_waits_for_an_attached_job_must_be_heard_of() -> None:
    s = session(1)
    s.submit(record("a"), 0)
    s.submit(record("b", attached=True, submitted_ms=1), 0)
    s.heard("b", SILENCE_MS)
    assert s.capacity({"CPU": 1}, 2 * SILENCE_MS) == []
    (store,) = s.capacity({"CPU": 1}, 2 * SILENCE_MS + 1)
    assert (store.record.job_id, store.record.status) == ("b", JobStatus.CANCELED)


def test_a_start_that_fails_is_tried_again_unless_for_good() -> None:
    s = session()
    s.submit(record("a"), 0)
    assert kinds(s.start_failed("a", 0, "no room", False, 0)) == [("Store", "a"), ("Start", "a")]
    (store,) = s.start_failed("a", 0, "cannot be unpickled", True, 0)
    assert store.record.error == "cannot be unpickled"


def test_a_new_dispatcher_finds_what_the_last_one_left() -> None:
    s = Session()
    left = [
        replace(record("a"), phase=Phase.RUNNING),
        replace(record("b", submitted_ms=1), phase=Phase.STARTING, run=2),
        record("c", 4, submitted_ms=2),
    ]
    assert kinds(s.recover(reversed(left), 0)) == [("Find", "a"), ("Find", "b")]
    assert s.capacity({"CPU": 4}, 0) == []  # c waits for both
    assert kinds(s.found("a", 0, True, 1)) == [("Store", "a"), ("Follow", "a")]
    actions = s.found("b", 2, False, 1)
    assert kinds(actions) == [("Store", "b"), ("Start", "b")]
    assert actions[1].record.run == 3
    assert [one.job_id for one in s.jobs] == ["a", "b", "c"]


def left(s: Session, job_id: str, at: int) -> list[Any]:
    """The job starts, and ends at once."""
    s.started(job_id, 0, at)
    return s.ended(job_id, 0, JobStatus.FINISHED, None, at)


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


def running(s: Session, job: JobRecord, now_ms: int = 0) -> None:
    s.submit(job, now_ms)
    s.started(job.job_id, 0, now_ms)


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


def test_a_job_that_takes_the_place_of_another_starts_before_all_that_wait() -> None:
    s = session()
    running(s, record("a", 2))
    new = record("a2", 3, submitted_ms=2, follows="a")
    assert kinds(s.take_place(new, 2)) == [("Stop", "a2")]
    assert s.submit(record("b", 2, submitted_ms=3), 3) == []  # one CPU more is kept for a2
    assert "1 of 4 are free" in (s.waits_for("b") or "")
    assert "is being stopped" in (s.waits_for("a2") or "")
    (store,) = s.stopped("a2", "s3://savepoint", 4)
    assert store.record.claims == "s3://savepoint"
    assert kinds(s.ended("a", 0, JobStatus.FINISHED, None, 5)) == [("Store", "a"), ("Start", "a2")]
    assert s.job("b").phase is Phase.QUEUED  # type: ignore[union-attr]


def test_its_end_may_be_heard_before_its_savepoint() -> None:
    s = session()
    running(s, record("a", 2))
    s.take_place(record("a2", 4, submitted_ms=2, follows="a"), 2)
    assert kinds(s.ended("a", 0, JobStatus.FINISHED, None, 5)) == [("Store", "a")]
    assert s.submit(record("b", 1, submitted_ms=6), 6) == []
    assert kinds(s.stopped("a2", "s3://savepoint", 7)) == [("Store", "a2"), ("Start", "a2")]


def test_a_job_that_is_not_stopped_goes_on_and_the_other_is_forgotten() -> None:
    s = session()
    running(s, record("a", 2))
    s.take_place(record("a2", 4, submitted_ms=2, follows="a"), 2)
    assert s.submit(record("b", 2, submitted_ms=3), 3) == []
    store, start = s.stop_failed("a2", "no disk", 4)
    assert store.record.error == "it does not take the place of job a: no disk"
    assert (store.record.status, start.record.job_id) == (JobStatus.FAILED, "b")
    assert s.job("a2") is None
    assert s.stopped("a2", "s3://too late", 5) == []


def test_no_place_is_taken_that_would_not_be_free() -> None:
    s = session()
    running(s, record("a", 2))
    with pytest.raises(ConfigurationError, match="would need 5 CPUs, and 4 are there for it"):
        s.check_replaced("a", record("a2", 5))
    s.submit(record("b", 3, submitted_ms=1), 1)
    with pytest.raises(ConfigurationError, match=r"1 of CPU more, which job job b \(b\) waits for"):
        s.check_replaced("a", record("a2", 3))
    s.check_replaced("a", record("a2", 1))  # it leaves room
    s.take_place(record("a2", 1, follows="a"), 2)
    with pytest.raises(ConfigurationError, match="already"):
        s.check_replaced("a", record("a3", 1))
    with pytest.raises(ConfigurationError, match="does not run"):
        s.check_replaced("b", record("b2", 1))


def test_a_dispatcher_that_comes_back_finds_out_whether_a_job_was_stopped() -> None:
    old = record("a", 2, phase=Phase.RUNNING)
    new = record("a2", 3, submitted_ms=2, follows="a")
    for told in (True, False):
        s = Session()
        assert kinds(s.recover([old, new], 0)) == [("Find", "a")]
        s.capacity({"CPU": 4.0}, 0)
        s.found("a", 0, True, 1)
        actions = s.ended("a", 0, JobStatus.FINISHED, None, 5)
        assert kinds(actions) == [("Store", "a")]  # who was told to stop has not answered
        assert kinds(s.stop_failed("a2", "it is over", 6)) == [("Settle", "a2")]
        done = s.stopped("a2", "s3://s", 6) if told else s.not_stopped("a2", "why", 6)
        assert kinds(done)[-1] == (("Start" if told else "Store"), "a2")
    s = Session()
    assert kinds(s.recover([new], 0)) == [("Settle", "a2")]  # the other one is over
    s = Session()
    s.recover([old, new], 0)
    assert kinds(s.found("a", 0, True, 1)) == [("Store", "a"), ("Follow", "a"), ("Stop", "a2")]


def test_a_stop_that_comes_too_late_is_no_reason_not_to_look_how_the_other_ended() -> None:
    s = session()
    running(s, record("a", 2))
    s.take_place(record("a2", 2, submitted_ms=2, follows="a"), 2)
    s.ended("a", 0, JobStatus.FINISHED, None, 5)
    assert kinds(s.stop_failed("a2", "the job is FINISHED", 6)) == [("Settle", "a2")]


def test_a_cancel_outlives_the_dispatcher_that_was_told() -> None:
    s = Session()
    s.recover([record("a", 2, phase=Phase.RUNNING, cancelling=True)], 0)
    assert kinds(s.found("a", 0, True, 1)) == [("Store", "a"), ("Follow", "a"), ("Cancel", "a")]


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


# --- random lives -------------------------------------------------------------------------------


class World:
    """Coordinators, a registry that is written in order, and dispatchers that die."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.now, self.cpus = rng, 0, 6.0
        self.stored: dict[str, JobRecord] = {}
        self.over: dict[str, JobRecord] = {}
        self.alive: dict[str, int] = {}
        """Coordinators, with the run they are of."""
        self.groups: dict[str, float] = {}
        """Slots that there are, with the CPUs that they take."""
        self.starting: list[JobRecord] = []
        self.followed: set[str] = set()
        self.submitted = 0
        self.before: dict[str, str] = {}
        """The jobs whose place others take, by these."""
        self.halted: dict[str, str] = {}
        """Jobs that were stopped with a savepoint, and end FINISHED, and for whom."""
        self.begin()

    def begin(self) -> None:
        self.session = Session()
        self.starting, self.followed = [], set()
        self.stops: list[tuple[str, int | None]] = []
        """For whom others are to stop, with the run that these were in when they were told."""
        self.settles: list[str] = []
        self.carry_out(self.session.recover(self.stored.values(), self.now, list(self.groups)))
        self.carry_out(self.session.capacity({"CPU": self.cpus}, self.now))

    def carry_out(self, actions: list[Any]) -> None:
        for action in actions:
            if isinstance(action, Release):
                self.groups.pop(action.group, None)
                held = [job.group for job in self.session.jobs if job.phase is not Phase.QUEUED]
                assert action.group not in held, "slots of a job are removed"
                continue
            job = action.record.job_id
            match action:
                case Store(kept) | Start(kept):
                    assert job not in self.over
                    if kept.phase is Phase.ENDED:
                        del self.stored[job]
                        self.over[job] = kept
                        self.followed.discard(job)
                        self.alive.pop(job, None)
                    else:
                        self.stored[job] = kept
                    if isinstance(action, Start):
                        self.starting.append(kept)
                case Find(kept):
                    alive = self.alive.get(job) is not None
                    self.carry_out(self.session.found(job, kept.run, alive, self.now))
                case Follow():
                    self.followed.add(job)
                case Cancel(kept):
                    if job in self.alive:
                        del self.alive[job]
                        how = JobStatus.FINISHED if job in self.halted else JobStatus.CANCELED
                        self.carry_out(self.session.ended(job, kept.run, how, None, self.now))
                case Stop():
                    self.stops.append((job, self.alive.get(self.before[job])))
                case Settle():
                    self.settles.append(job)
        self.check()

    def check(self) -> None:
        groups = [job.group for job in self.session.jobs if job.group is not None]
        assert len(set(groups)) == len(groups), "slots of two jobs"
        assert not self.session._room.idle & set(groups)
        assert sum(self.groups.values()) <= self.cpus + 1e-6, "more slots than there is room for"
        held = [j for j in self.session.jobs if j.phase in (Phase.STARTING, Phase.RUNNING)]
        assert sum(job.cpus for job in held) <= self.cpus + 1e-6
        assert len({job.job_id for job in held}) == len(held)

    def step(self) -> None:
        for job in sorted(self.halted.keys() & self.followed & self.alive.keys()):
            run = self.alive.pop(job)  # a job that was stopped ends soon
            self.carry_out(self.session.ended(job, run, JobStatus.FINISHED, None, self.now))
        self.now += self.rng.choice([0, 10, 2_000, 70_000])
        what = self.rng.choice(
            ["submit", "start", "start", "end", "lose", "cancel", "die", "tick", "move", "answer"]
        )
        if what == "submit" and self.submitted < 30:
            self.submitted += 1
            cpus, idle_ms = self.rng.choice([1, 2, 3, 6]), self.rng.choice([0, 5_000, 100_000])
            shape = self.rng.choice(["", str(cpus)])
            new = record(
                str(self.submitted), cpus, submitted_ms=self.now, shape=shape, idle_ms=idle_ms
            )
            self.stored[new.job_id] = new
            self.carry_out(self.session.submit(new, self.now))
        elif what == "start" and self.starting:
            self.start(self.starting.pop(0))
        elif what in ("end", "lose") and self.followed & self.alive.keys():
            job = self.rng.choice(sorted(self.followed & self.alive.keys()))
            run = self.alive.pop(job)
            if what == "end":
                done = self.session.ended(job, run, JobStatus.FINISHED, None, self.now)
            else:
                self.followed.discard(job)
                self.forget_savepoint(job)
                done = self.session.lost(job, run, "killed", self.now)
            self.carry_out(done)
        elif what == "move" and self.followed & self.alive.keys():
            self.move(self.rng.choice(sorted(self.followed & self.alive.keys())))
        elif what == "answer":
            self.answer()
        elif what == "cancel" and self.session.jobs and self.rng.random() < 0.3:
            job = self.rng.choice(self.session.jobs).job_id
            after = [one.job_id for one in self.session.jobs if one.follows == job]
            self.carry_out(self.session.cancel(job, self.now))
            assert all(self.over[one].status is JobStatus.CANCELED for one in after)
        elif what == "die" and self.rng.random() < 0.3:
            for one in self.starting:  # what it had begun comes to its end, or does not
                if self.rng.random() < 0.5:
                    self.begun(one)
            for new, run in self.stops:
                if (
                    run is not None
                    and self.alive.get(self.before[new]) == run
                    and self.rng.random() < 0.5
                ):
                    self.halted[self.before[new]] = new
            self.begin()
        else:
            self.carry_out(self.session.capacity({"CPU": self.cpus}, self.now))

    def move(self, old: str) -> None:
        """Another job is to take its place."""
        new = replace(
            record(str(self.submitted + 1), self.rng.choice([1, 2, 3, 6]), submitted_ms=self.now),
            follows=old,
        )
        try:
            self.session.check_replaced(old, new)
        except ConfigurationError:
            return
        self.submitted += 1
        self.before[new.job_id] = old
        self.stored[new.job_id] = new
        self.carry_out(self.session.take_place(new, self.now))

    def answer(self) -> None:
        """Of a coordinator that was to stop, or of who looked how a job ended."""
        if self.stops:
            new, told = self.stops.pop(self.rng.randrange(len(self.stops)))
            old = self.before[new]
            if told is not None and self.alive.get(old) == told and self.rng.random() < 0.7:
                self.halted[old] = new
                if old in self.followed and self.rng.random() < 0.5:  # its end is heard first
                    run = self.alive.pop(old)
                    done = self.session.ended(old, run, JobStatus.FINISHED, None, self.now)
                    self.carry_out(done)
                self.carry_out(self.session.stopped(new, f"savepoint of {old}", self.now))
            else:
                self.carry_out(self.session.stop_failed(new, "why", self.now))
        elif self.settles:
            new = self.settles.pop(0)
            if self.halted.get(self.before[new]) == new:
                done = self.session.stopped(new, f"savepoint of {self.before[new]}", self.now)
            else:
                done = self.session.not_stopped(new, "why", self.now)
            self.carry_out(done)

    def forget_savepoint(self, old: str) -> None:
        """Its coordinator dies: that it had stopped counts if the session has heard so."""
        heard = [j for j in self.session.jobs if j.follows == old and j.claims is not None]
        if not heard:
            self.halted.pop(old, None)

    def start(self, kept: JobRecord) -> None:
        job, run = kept.job_id, kept.run
        if self.rng.random() < 0.2:
            self.carry_out(self.session.start_failed(job, run, "no room", False, self.now))
            return
        assert job not in self.alive, "two coordinators of one job"
        self.begun(kept)
        self.carry_out(self.session.started(job, run, self.now))

    def begun(self, kept: JobRecord) -> None:
        """A coordinator lives, and takes the slots that it was told."""
        assert self.before.get(kept.job_id) not in self.alive, "who it follows still runs"
        self.alive[kept.job_id] = kept.run
        if kept.group is not None:
            self.groups.setdefault(kept.group, kept.cpus)
            assert self.groups[kept.group] == kept.cpus, "slots of another shape"

    def settle(self) -> None:
        """Nothing bad happens any more: all jobs come to their ends."""
        for _ in range(500):
            if not self.session.jobs:
                return
            self.now += 1_000
            while self.stops or self.settles:
                self.answer()
            while self.starting:
                kept = self.starting.pop(0)
                self.begun(kept)
                self.carry_out(self.session.started(kept.job_id, kept.run, self.now))
            for job in sorted(self.followed & self.alive.keys()):
                run = self.alive.pop(job)
                self.carry_out(self.session.ended(job, run, JobStatus.FINISHED, None, self.now))
            self.carry_out(self.session.capacity({"CPU": self.cpus}, self.now))
        raise AssertionError(f"these never end: {self.session.jobs}")


@pytest.mark.parametrize("seed", range(60))
def test_every_job_ends_once_whatever_dies(seed: int) -> None:
    world = World(random.Random(seed))
    for _ in range(250):
        world.step()
    world.settle()
    assert len(world.over) == world.submitted
    for new, old in world.before.items():
        why = world.over[new].error or ""
        assert world.halted.get(old) != new or "does not take the place" not in why, (
            "nobody goes on"
        )
    assert world.stored == {}
    assert world.alive == {}
    if seed % 2:
        world.now += 100_000
        world.carry_out(world.session.capacity({"CPU": world.cpus}, world.now))
    else:
        world.carry_out(world.session.close())
    assert world.groups == {}
