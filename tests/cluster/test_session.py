"""What a dispatcher decides, event by event: which job starts when, and what becomes of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from session_records import kinds, record, running, session
from strom.cluster.records import JobRecord, Phase
from strom.cluster.session import DELAYS_MS, MOST_SHORT, SHORT_MS, SILENCE_MS, Session
from strom.core.errors import ConfigurationError
from strom.core.job_status import JobStatus


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
