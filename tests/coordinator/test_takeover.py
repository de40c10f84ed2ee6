"""A job master that goes on with the tasks that another has left running. Times are ms."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from regions_kit import EVERY, FOUR, A, B, Parts
from scripted_job import S0, TWICE
from strom.checkpoint.manifest import Manifest
from strom.checkpoint.storage import Latest
from strom.core.ids import Attempt, TaskId
from strom.core.job_status import JobStatus
from strom.engine.accounts import Ledger, Stage, TaskAccount
from strom.engine.coordinator import actions as act
from strom.engine.coordinator.attempt_numbers import AttemptNumbers
from strom.engine.coordinator.handover import Handover
from strom.engine.coordinator.job_master import JobMaster
from strom.engine.graph.model import ExecutionGraph
from strom.engine.messages import (
    AlignWatermarks,
    CancelTask,
    CheckpointAborted,
    CheckpointAcknowledged,
    CheckpointCompleted,
    EndSources,
    GoOn,
    NoMoreSplits,
    Rewire,
    SplitsAssigned,
    SplitsRequested,
    TaskCancelled,
    TaskDrained,
    TaskFailed,
    TaskFinished,
    TaskRunning,
    TriggerCheckpoint,
    ValuePublished,
)

Accounts = dict[TaskId, TaskAccount]


class Left:
    """A job in its attempt 3, with checkpoint 4 complete, whose coordinator has died."""

    def __init__(self, parts: Callable[..., ExecutionGraph]) -> None:
        before = Parts(parts(TWICE))
        self.manifest = replace(before.checkpoint(1, 100), checkpoint_id=4)
        self.graph = parts(TWICE)
        self.accounts: Accounts = {
            task: TaskAccount(task, 3, Stage.RUNNING, seen=4, completed=4) for task in EVERY
        }

    def change(self, task: TaskId, **fields: Any) -> None:
        self.accounts[task] = replace(self.accounts[task], **fields)

    def found(
        self, manifest: Manifest | None = None, highest: int = 4, **how: Any
    ) -> tuple[JobMaster, Any]:
        """The master that has come after it, and what it asks for once it knows what runs."""
        rng = random.Random(0)
        master = JobMaster("job", self.graph, rng, first_attempt=4, takes_over=True, **how)
        assert master.start(1000) == (act.LoadLatest(0, running=True),)
        latest = Latest(manifest or self.manifest, (), (4, highest))
        assert act.FindTasks() in master.on_loaded(latest, 1001)
        actions = master.on_tasks_found(list(self.accounts.values()), 1002)
        master.validate()
        return master, actions

    def going(self, **how: Any) -> tuple[JobMaster, Any]:
        """The same, once the enumerators are where they were."""
        master, actions = self.found(**how)
        assert any(isinstance(one, act.TakeOverSources) for one in actions)
        actions = master.on_sources_ready(3, 1003)
        master.validate()
        return master, actions


@pytest.fixture
def left(parts: Callable[..., ExecutionGraph]) -> Left:
    return Left(parts)


def mail_of(actions: Any, task: TaskId) -> list[Any]:
    return [a.mail for a in actions if isinstance(a, act.Send) and a.task == task]


def test_it_runs_on_and_nobody_is_deployed_or_stopped(left: Left) -> None:
    """What was on is aborted; what is complete is said again, and none of that holds anybody; the
    next number is a new one."""
    left.change(S0, seen=6)
    master, actions = left.going()
    for task in EVERY:
        aborted = [CheckpointAborted(5), CheckpointAborted(6)]
        assert mail_of(actions, task) == [*aborted, CheckpointCompleted(4), GoOn(6)]
    assert not [a for a in actions if isinstance(a, (act.DeployAll, act.CancelAll))]
    assert master.status().status is JobStatus.RUNNING
    assert (master.status().running_tasks, master.status().attempt) == (len(EVERY), 3)
    (snapshot,) = [a for a in master.on_tick(9_000) if isinstance(a, act.SnapshotSources)]
    assert snapshot.checkpoint_id == 7


def test_enumerators_hear_what_readers_were_given_since(left: Left) -> None:
    one, two = SplitsAssigned("solo", ("x",), 7), SplitsAssigned("solo", ("y",), 9)
    left.change(A, given=(one, two), marks={4: 1})
    left.change(B, given=(SplitsAssigned("solo", ("z",), 8),), asked=("solo",))
    master, actions = left.found()
    (sources,) = [a for a in actions if isinstance(a, act.TakeOverSources)]
    assert sources.given == {"solo": ((0, two), (1, SplitsAssigned("solo", ("z",), 8)))}
    assert sources.states == {"source": b"s", "solo": b"o"}
    assert act.AskForSplits(3, "solo", B) in master.on_sources_ready(3, 1003)


def test_what_is_said_before_the_enumerators_are_there_is_heard_then(left: Left) -> None:
    master, _ = left.found()
    assert master.on_report(SplitsRequested(A, 3, "solo"), 1003) == ()
    assert master.on_task_lost(B, 3, "killed", 1004) == ()
    actions = master.on_sources_ready(3, 1005)
    master.validate()
    assert act.AskForSplits(3, "solo", A) in actions
    assert act.CancelTasks(3, (B,)) in actions
    assert master.status().status is JobStatus.RUNNING


@pytest.mark.parametrize(
    ("account", "cause"),
    [
        (None, "was lost while the job had no coordinator"),
        ({"stage": Stage.STARTING}, "was being started when the job's coordinator died"),
        (
            {"stage": Stage.OVER, "failure": TaskFailed(A, 3, "ValueError: odd")},
            "ValueError: odd",
        ),
        ({"stage": Stage.STOPPING}, "was being stopped when the job's coordinator died"),
    ],
)
def test_a_task_that_does_not_run_has_failed(
    left: Left, account: Mapping[str, Any] | None, cause: str
) -> None:
    """Its region is restarted, the others go on."""
    if account is None:
        del left.accounts[A]
    else:
        left.change(A, **account)
    master, actions = left.going()
    assert act.CancelTasks(3, (A,)) in actions
    assert cause in str(master.status().last_failure)
    assert (master.status().status, master.status().restarts) == (JobStatus.RUNNING, 1)
    assert act.LoadForRegion(4, 0, 4) in master.on_tasks_stopped(3, (A,), 1060)


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("lost", [True, False])
def test_a_task_gets_what_was_its_own_unless_it_was_dealt_out_anew(
    left: Left, own: bool, lost: bool
) -> None:
    """Whoever goes on beside it has its state of checkpoint 4: its own share of it, if it began
    again alone, or what the job dealt out when all began. `lost`: the task was not there any more
    when the coordinator came, else it fails then."""
    for task in (A, B):
        left.change(task, began_with=4, own_share=own)
    if lost:
        del left.accounts[A]
    master, _ = left.going()
    if not lost:
        master.on_report(TaskFailed(A, 3, "ValueError: odd"), 1004)
    master.on_tasks_stopped(3, (A,), 1060)
    master.on_tick(1100)
    master.on_region_loaded(4, Latest(left.manifest, (), (4,)), 1101)
    deployed = master.on_readers_ready(4, [], 1102)
    share = frozenset({A.vertex} if own else ())
    assert act.DeployTasks(4, (A,), left.manifest, own_share=share) in deployed
    master.validate()


@pytest.mark.parametrize(("before", "status"), [((1,), "RESTARTING"), ((2,), "FAILING")])
def test_failures_before_count_for_the_restart_strategy(
    left: Left, before: tuple[int, ...], status: str
) -> None:
    """Which allows two restarts in the life of the job."""
    master, _ = left.going(left=Handover(failed=before, restarts=7))
    actions = master.on_source_failed(3, "odd", 1004)
    assert act.CancelAll(3) in actions
    assert master.status().status is JobStatus[status]
    assert master.failed == (2,)
    assert master.status().restarts == (8 if status == "RESTARTING" else 7)


def test_sinks_hear_what_writers_show_whether_they_go_on_or_not(left: Left) -> None:
    """So they know them again. Who is only being started commits, too, before it is stopped."""
    left.change(A, tokens={"one": "x", "two": "x"})
    left.change(B, tokens={"one": "x", "two": "y"})
    left.change(S0, tokens={"one": "z"}, stage=Stage.STARTING)
    _, actions = left.found()
    (sources,) = [a for a in actions if isinstance(a, act.TakeOverSources)]
    assert sources.shown == {"one": {"x", "z"}, "two": {"x", "y"}}


@pytest.mark.parametrize("when", ["before", "meanwhile", "later"])
def test_what_tasks_of_the_coordinator_before_are_refused_is_not_the_end_of_the_job(
    left: Left, when: str
) -> None:
    """Another had what they write to, or the sink counts this coordinator for one. That is no
    failure: tasks of its own are started, whatever the restart strategy. What these are refused is
    final."""
    refused = TaskFailed(A, 3, "FencedError: another", recoverable=False, fenced=True)
    if when == "before":
        left.change(A, stage=Stage.OVER, failure=refused)
        master, actions = left.found(left=Handover(failed=(2,)))
    elif when == "meanwhile":
        master, _ = left.found(left=Handover(failed=(2,)))
        assert master.on_report(refused, 1003) == ()
        actions = master.on_sources_ready(3, 1004)
    else:
        master, _ = left.going(left=Handover(failed=(2,)))
        actions = master.on_report(refused, 1004)
    assert act.CancelAll(3) in actions
    assert master.status().status is JobStatus.RESTARTING
    assert "FencedError: another" in str(master.status().last_failure)
    loading = [*master.on_all_stopped(3, 1010), *master.on_tick(1100)]
    assert act.LoadLatest(0) in loading
    master.on_loaded(Latest(left.manifest, (), (4,)), 1101)
    assert any(isinstance(one, act.DeployAll) for one in master.on_sources_ready(4, 1102))
    master.validate()
    assert act.CancelAll(4) in master.on_report(replace(refused, attempt=4), 1103)
    assert master.status().status is JobStatus.FAILING
    master.validate()


def test_none_goes_on(left: Left) -> None:
    """All are stopped, and begin again with a number that nobody had."""
    for task in EVERY:
        left.change(task, stage=Stage.STARTING)
    master, actions = left.found()
    assert act.CancelAll(3) in actions
    loading = [*master.on_all_stopped(3, 1010), *master.on_tick(1100)]
    assert act.LoadLatest(0) in loading
    (prepare,) = [
        a
        for a in master.on_loaded(Latest(left.manifest, (), (4,)), 1101)
        if isinstance(a, act.PrepareSources)
    ]
    assert prepare.attempt == 4


def test_nobody_is_left(left: Left) -> None:
    """As if the coordinator and all tasks had been on one machine."""
    left.accounts.clear()
    _, actions = left.found()
    (prepare,) = actions[:1]
    assert isinstance(prepare, act.PrepareSources)
    assert prepare.attempt == 4


def test_enumerators_that_answer_otherwise_are_a_failure(left: Left) -> None:
    master, _ = left.found()
    actions = master.on_source_failed(3, "its enumerator gives out other splits", 1003)
    master.validate()
    assert act.CancelAll(3) in actions
    assert act.CloseSources(3) in actions
    assert master.status().status is JobStatus.RESTARTING


def test_a_cancellation_while_it_takes_over(left: Left) -> None:
    master, _ = left.found()
    assert act.CancelAll(3) in master.on_cancel(1003)
    master.validate()
    assert master.on_sources_ready(3, 1004) == ()
    ended = master.on_all_stopped(3, 1005)
    assert any(isinstance(a, act.JobEnded) for a in ended)


def test_all_had_come_to_their_end(left: Left) -> None:
    for task in EVERY:
        left.change(task, stage=Stage.DRAINED)
    master, actions = left.going()
    (snapshot,) = [a for a in actions if isinstance(a, act.SnapshotSources)]
    assert snapshot.checkpoint_id == 5
    sent = master.on_sources_snapshot(3, 5, {"source": b"s", "solo": b"o"}, 1004)
    assert TriggerCheckpoint(5, 1003, terminal=True) in mail_of(sent, S0)


def test_the_terminal_checkpoint_was_complete(left: Left) -> None:
    """Tasks that have not heard of it are told, and the job finishes."""
    left.manifest = replace(left.manifest, terminal=True)
    for task in EVERY:
        left.change(task, stage=Stage.FINISHED if task in FOUR else Stage.DRAINED)
    master, actions = left.going()
    assert mail_of(actions, A) == [CheckpointCompleted(4, terminal=True)]
    master.on_report(TaskFinished(A, 3), 1004)
    ended = master.on_report(TaskFinished(B, 3), 1005)
    assert act.JobEnded(JobStatus.FINISHED) in ended


def test_a_drain_that_was_not_done_goes_back(left: Left) -> None:
    """Sources have ended before their time: nobody can take that back."""
    left.change(S0, ending=True)
    master, actions = left.going()
    assert act.CancelAll(3) in actions
    assert master.status().status is JobStatus.RESTARTING


def test_the_storage_has_lost_what_tasks_know_to_be_complete(left: Left) -> None:
    """It must not be gone back behind what sinks have published."""
    left.change(A, completed=5, seen=5)
    master, actions = left.found()
    assert act.CancelAll(3) in actions
    master.on_all_stopped(3, 1010)
    master.on_tick(1100)
    master.on_loaded(Latest(left.manifest, (), (4,)), 1101)
    state = master.status()
    assert state.status is JobStatus.FAILED
    assert "checkpoint 5 cannot be restored" in str(state.last_failure)


VALUE = ValuePublished(A, 3, "k", "1-0", b"x")


def test_values_that_may_not_have_arrived_are_published_again(left: Left) -> None:
    """At once, also of a task that has failed: whatever becomes of the rest, the next attempt knows
    only those behind the newest checkpoint."""
    left.change(A, published=(VALUE,), stage=Stage.OVER, failure=TaskFailed(A, 3, "odd"))
    master, actions = left.found()
    assert actions.index(act.Publish("k", "1-0", b"x")) > 0
    assert master.on_report(VALUE, 1010) == ()
    assert act.CancelAll(3) in master.on_source_failed(3, "other splits", 1011)


# --- what tasks know -----------------------------------------------------------------------------


def test_a_ledger_sums_up_both_ways() -> None:
    ledger = Ledger(A, 3, begins_with=2, own_share=True, tokens={"k": "mine"})
    assert ledger.account() == TaskAccount(
        A, 3, Stage.STARTING, 2, seen=2, completed=2, own_share=True, tokens={"k": "mine"}
    )
    ledger.on_report(TaskRunning(A, 3))
    ledger.on_report(SplitsRequested(A, 3, "solo"))
    ledger.on_mail(SplitsAssigned("solo", ()))
    assert ledger.account().asked == ("solo",), "there were none, and the question stands"
    ledger.on_mail(SplitsAssigned("solo", ("x",), 5))
    ledger.on_mail(TriggerCheckpoint(3, 0))
    ledger.on_report(SplitsRequested(A, 3, "solo"))
    ledger.on_mail(NoMoreSplits("solo"))
    ledger.on_mail(AlignWatermarks("solo", 7))
    ledger.on_mail(CheckpointCompleted(3))
    ledger.on_mail(CheckpointCompleted(2))
    ledger.on_report(ValuePublished(A, 3, "k", "3-0", b"x"))
    ledger.on_report(CheckpointAcknowledged(A, 3, 4, None))  # type: ignore[arg-type]
    ledger.on_report(ValuePublished(A, 3, "k", "3-1", b"x"))
    ledger.on_mail(EndSources())
    ledger.on_report(TaskDrained(A, 3))
    account = ledger.account()
    ledger.validate()
    assert (account.stage, account.asked, account.given) == (Stage.DRAINED, (), ())
    assert (account.seen, account.completed, account.ending) == (4, 3, True)
    assert [value.key for value in account.published] == ["3-0", "3-1"]
    ledger.on_mail(CheckpointCompleted(4))
    ledger.validate()
    left = [value.key for value in ledger.account().published]
    assert left == ["3-1"], "who completed it had heard what came before the part in it"


def test_whoever_is_wired_anew_is_of_the_other_graph() -> None:
    ledger = Ledger(A, 3, shape="2,2")
    ledger.on_report(TaskRunning(A, 3))
    ledger.on_mail(TriggerCheckpoint(1, 0, halt=True))
    ledger.on_mail(CheckpointCompleted(1))
    assert ledger.account().shape == "2,2"
    ledger.on_mail(Rewire(None, shape="2,3"))
    assert (ledger.account().shape, ledger.account().stage) == ("2,3", Stage.RUNNING)


def test_whoever_was_told_to_stop_does_not_go_on() -> None:
    """However far it comes before it hears that; who has finished, or failed, stays so."""
    stages = []
    for said in ((), (TaskRunning(A, 3),), (TaskRunning(A, 3), TaskDrained(A, 3))):
        ledger = Ledger(A, 3)
        ledger.on_mail(CancelTask())
        for report in said:
            ledger.on_report(report)
        stages.append(ledger.account().stage)
        ledger.on_report(TaskCancelled(A, 3))
        assert ledger.account().stage is Stage.OVER
    assert stages == [Stage.STOPPING] * 3
    for last, stage in ((TaskFinished(A, 3), Stage.FINISHED), (TaskFailed(A, 3, ""), Stage.OVER)):
        ledger = Ledger(A, 3)
        ledger.on_report(last)
        ledger.on_mail(CancelTask())
        assert ledger.account().stage is stage


def test_any_ledger_keeps_its_invariants() -> None:
    for seed in range(50):
        rng = random.Random(seed)
        ledger, n, number = Ledger(A, 0), 0, 0
        reference: list[tuple[int, int]] = []  # under which trigger each split was given
        for _ in range(40):
            match rng.randrange(6):
                case 0:
                    n += rng.randint(1, 2)
                    ledger.on_mail(TriggerCheckpoint(n, 0))
                case 1:
                    ledger.on_mail(CheckpointCompleted(rng.randint(0, n)))
                case 2:
                    ledger.on_mail(CheckpointAborted(rng.randint(0, n)))
                case 3:
                    taken = rng.randint(0, n)
                    ledger.on_report(CheckpointAcknowledged(A, 0, taken, None))  # type: ignore[arg-type]
                case 4:
                    ledger.on_report(ValuePublished(A, 0, "k", str(n), b"x"))
                case _:
                    ledger.on_mail(SplitsAssigned("solo", (number,), number))
                    reference.append((n, number))
                    number += 1
            ledger.validate()
        account = ledger.account()
        for m in account.marks:
            wanted = [number for under, number in reference if under >= m]
            assert [one.number for one in account.given_since(m)] == wanted, f"seed {seed}"


def test_what_was_given_up_and_published_after_all_is_begun_from(left: Left) -> None:
    """Checkpoint 4 hung, the job went back to 3, and its coordinator died: then 4 was there."""
    for task in EVERY:
        left.change(task, seen=3, completed=3)
    master, actions = left.found()
    assert act.CancelAll(3) in actions
    assert "checkpoint 4 became complete after it had been given up" in str(
        master.status().last_failure
    )
    assert act.LoadLatest(0) in [*master.on_all_stopped(3, 1010), *master.on_tick(1100)]


def test_people_are_told_of_the_attempt_of_the_tasks_also_before_these_are_found() -> None:
    numbers = AttemptNumbers(3, takes_over=True)
    assert (numbers.newest, AttemptNumbers(3).newest) == (2, 3)
    numbers.take_over({S0: Attempt(2)}, [S0])
    assert numbers.newest == 2
    numbers.begin([S0])
    assert numbers.newest == 3
