"""A task that the checkpoint of a rescale holds: what lets it go on, and what it tells then."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

from chaos_kit import config, environment
from strom import DiscardSink
from strom.checkpoint.storage import open_storage
from strom.core.clock import VirtualClock
from strom.core.config import JobConfig
from strom.core.elements import CheckpointBarrier, EndOfData, StreamStatus, Watermark
from strom.core.ids import Attempt, ChannelId, CheckpointId, TaskId
from strom.engine.graph.execution import build_execution_graph
from strom.engine.graph.model import Channel, JobEdge, Rebalance
from strom.engine.hosts.cooperative import CooperativeCluster, RunningTask
from strom.engine.messages import (
    CancelTask,
    CheckpointAcknowledged,
    GoOn,
    MetricsReported,
    NoMoreSplits,
    SplitsRequested,
    TaskCancelled,
    TaskDrained,
    TaskFailed,
    TaskRunning,
    TriggerCheckpoint,
)
from strom.engine.task.background import SteppedBackground
from strom.engine.task.checkpointing import TaskCheckpoints
from strom.engine.task.deployment import deployments_of
from strom.engine.task.edges import EdgeWriter
from strom.engine.task.intake import GateIntake
from strom.engine.task.task import Task, TaskState
from strom.engine.task.wakeups import Wakeups

SOURCE, SINK = TaskId("source", 1), TaskId("sink", 0)


class Source(TaskCheckpoints):
    """The checkpoints of a source task without operators, of which nothing is written."""

    def __init__(self) -> None:
        chain: Any = SimpleNamespace(
            settled=True,
            nodes=[],
            contexts=[],
            writers={},
            notify_aborted=lambda n: None,
            press=lambda pressed: None,
            prepare_snapshot=lambda n, only_commits: None,
            frozen=lambda: None,
            send_barrier=lambda barrier, ahead: [],
            holding=lambda n: [],
        )
        deployment: Any = SimpleNamespace(
            task=SOURCE,
            inputs=(),
            config=JobConfig(),
            label="a source",
            local_folders=(),
            restore=None,
            restore_storage=None,
            storage=SimpleNamespace(shares=False, copies=False),
            edge_names={},
        )
        background: Any = SimpleNamespace(submit=lambda work, done: None, threads=False)
        nothing: Any = None
        super().__init__(
            deployment,
            chain,
            nothing,
            VirtualClock(),
            background,
            *[nothing] * 2,
            Wakeups(),
            nothing,
            lambda: False,
        )

    def take(self, n: int, **fields: Any) -> None:  # type: ignore[override]
        self.trigger(CheckpointBarrier(CheckpointId(n), 0, **fields))


def test_which_checkpoints_hold() -> None:
    source = Source()
    source.take(1)
    source.take(2, halt=True, savepoint="/s")
    assert source.held_at is None
    source.take(3, halt=True)
    assert (source.held_at, source.halted_at) == (3, 2)
    source.take(4, halt=True, terminal=True)
    assert source.held_at == 3


def test_what_lets_it_go_on() -> None:
    for go_on in (Source.on_aborted, Source.go_on):
        source = Source()
        source.take(2, halt=True)
        source.on_completed(CheckpointId(2))
        assert source.held_at == 2, "not that it is complete"
        go_on(source, CheckpointId(1))
        assert source.held_at == 2, "not another one"
        go_on(source, CheckpointId(2))
        assert source.held_at is None


def test_one_that_it_was_told_of_before_does_not_hold() -> None:
    source = Source()
    source.go_on(CheckpointId(3))
    source.take(3, halt=True)
    assert source.held_at is None
    source.take(4, halt=True)
    assert source.held_at == 4


def test_a_stop_that_comes_while_it_is_held_holds_behind_that() -> None:
    source = Source()
    source.take(1, halt=True)
    source.take(2, halt=True, savepoint="/s")
    source.go_on(CheckpointId(1))
    assert (source.held_at, source.halted_at) == (None, 2)


class Parked(Task):
    """A task that has something to emit still when a barrier comes that is put ahead of it."""

    def __init__(self, holds: bool) -> None:
        self.holds, self.done = holds, list[str]()
        nothing: Any = SimpleNamespace(ended=False)
        chain: Any = SimpleNamespace(resume=self.resume, busy=False, available=False, settled=False)
        checkpoints: Any = SimpleNamespace(
            held_at=None,
            halted_at=None,
            waiting=False,
            look_ahead=self.look,
            take_waiting=lambda: False,
        )
        self._chain, self._checkpoints, self._intake = chain, checkpoints, nothing
        deployment: Any = SimpleNamespace(halted=False)
        self.deployment = deployment
        self.state = TaskState.RUNNING

    def look(self) -> bool:
        self.done.append("barrier")
        self._checkpoints.held_at = CheckpointId(1) if self.holds else None
        return True

    def resume(self) -> bool:
        self.done.append("emitted")
        return True


def test_what_is_parked_stays_so_behind_a_barrier_that_is_put_ahead_of_it() -> None:
    """The channels are others when it goes on: what it emitted meanwhile would be lost."""
    for holds, done in ((True, ["barrier"]), (False, ["barrier", "emitted"])):
        task = Parked(holds)
        task._work()
        assert task.done == done


def test_times_that_are_due_wait_behind_a_barrier_that_one_of_them_has_put_ahead() -> None:
    wakeups, held, done = Wakeups(), [False], list[str]()

    def hold(now_ms: int) -> None:
        held[0] = True
        done.append(f"barrier {now_ms}")

    barrier, timer = (
        wakeups.register(hold),
        wakeups.register(lambda now: done.append(f"timer {now}")),
    )
    for at in (3, 4, 9):
        timer(at)
    barrier(2)
    assert wakeups.fire(5, lambda: held[0])
    assert (done, wakeups.next_due()) == (["barrier 5"], 3)
    wakeups.validate()
    held[0] = False
    assert wakeups.fire(6, lambda: held[0])
    assert (done, wakeups.next_due()) == (["barrier 5", "timer 6"], 9)
    wakeups.validate()


# --- wired anew ----------------------------------------------------------------------------------


class Sent:
    """The sending end of a channel."""

    def __init__(self) -> None:
        self.elements: list[Any] = []

    def write_control(self, element: Any) -> None:
        self.elements.append(element)


def writer_of(channels: list[Sent]) -> tuple[EdgeWriter, Any]:
    deployment: Any = SimpleNamespace(task=SOURCE, config=JobConfig(), key_groups={0: 16}, deals={})
    found: Any = channels
    return EdgeWriter(JobEdge(0, "source", "sink", Rebalance()), found, deployment), deployment


def test_new_channels_hear_first_where_its_event_time_is() -> None:
    former, new = [Sent(), Sent()], [Sent(), Sent(), Sent()]
    writer, deployment = writer_of(former)
    told = [Watermark(3), StreamStatus(True), Watermark(5), StreamStatus(False)]
    for element in told:
        writer.broadcast(element)
    writer.rewire(new, deployment)  # type: ignore[arg-type]
    assert [one.elements for one in new] == [[Watermark(5), StreamStatus(False)]] * 3
    writer.broadcast(StreamStatus(True))
    writer.broadcast(EndOfData())
    assert [one.elements for one in former] == [told] * 2
    again = [Sent()]
    writer.rewire(again, deployment)  # type: ignore[arg-type]
    assert again[0].elements == [Watermark(5), EndOfData()]


def test_channels_of_one_that_has_told_nothing_hear_nothing() -> None:
    writer, deployment = writer_of([Sent()])
    new = [Sent()]
    writer.rewire(new, deployment)  # type: ignore[arg-type]
    assert new[0].elements == []


class Head:
    """What the head of a chain hears."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def process_watermark(self, timestamp: int) -> None:
        self.heard.append(timestamp)

    def process_status(self, active: bool) -> None:
        self.heard.append(active)

    def end_input(self, port: int) -> None:
        self.heard.append(f"end {port}")


class Played:
    """A gate from which these come."""

    def __init__(self, *items: Any) -> None:
        self.items = list(items)

    def poll(self) -> Any:
        return self.items.pop(0) if self.items else None


def inputs(count: int) -> tuple[Channel, ...]:
    return tuple(Channel(ChannelId(i), 0, TaskId("source", i), SINK, 0, i) for i in range(count))


def take_all(intake: GateIntake, head: Head) -> list[Any]:
    while intake.take():
        pass
    heard, head.heard = head.heard, []
    return heard


def intake_of(gate: Any) -> tuple[GateIntake, Head]:
    head = Head()
    chain: Any = SimpleNamespace(head=head, busy=False, available=True)
    nothing: Any = None
    intake = GateIntake(inputs(2), chain, gate, VirtualClock(), 10, nothing, lambda: False)
    return intake, head


def test_event_time_goes_on_where_it_was() -> None:
    intake, head = intake_of(Played((0, Watermark(5)), (1, Watermark(7))))
    assert take_all(intake, head) == [5]
    gate: Any = Played(*[(i, Watermark(4)) for i in range(3)], *[(i, Watermark(6)) for i in (0, 1)])
    intake.rewire(inputs(3), gate)
    assert take_all(intake, head) == []
    gate.items = [(2, Watermark(9))]
    assert take_all(intake, head) == [6]


def test_whoever_was_idle_says_so_again() -> None:
    intake, head = intake_of(Played((0, StreamStatus(False)), (1, StreamStatus(False))))
    assert take_all(intake, head) == [False]
    gate: Any = Played((0, StreamStatus(False)))
    intake.rewire(inputs(1), gate)
    assert take_all(intake, head) == [True, False]


def test_an_input_that_has_ended_ends_once() -> None:
    intake, head = intake_of(Played((0, EndOfData()), (1, EndOfData())))
    end = take_all(intake, head)
    assert end[-1] == "end 0"
    assert intake.ended
    gate: Any = Played((0, EndOfData()))
    intake.rewire(inputs(1), gate)
    assert not intake.ended
    assert take_all(intake, head) == []
    assert intake.ended


# --- whose peers are gone ------------------------------------------------------------------------


class Pair:
    """A source and a sink on a cluster without a coordinator, held by checkpoint 1; then the sink's
    process is gone, or its machine."""

    def __init__(self) -> None:
        env = environment(config(parallelism=1, chaining=False))
        env.from_collection([1, 2]).sink_to(DiscardSink())
        self.graph = build_execution_graph(env.get_job_graph("pair"))
        self.source, self.sink = self.graph.tasks
        self.operator = self.graph.job.vertex(self.source.vertex).operators[0].operator_id
        clock = VirtualClock()
        storage = open_storage("memory://held", "a1")
        self.deployments = partial(
            deployments_of,
            graph=self.graph,
            job_id="a1",
            storage=storage,
            restore=None,
            restore_storage=storage,
        )
        self.cluster = CooperativeCluster(
            self.graph.job.config.exchange, clock, lambda name: SteppedBackground()
        )
        self.cluster.deploy(self.deployments(self.graph.tasks, attempt=Attempt(0)))
        assert {type(one) for one in self.heard()} == {TaskRunning, SplitsRequested}
        self.cluster.send(self.source, Attempt(0), TriggerCheckpoint(CheckpointId(1), 0, halt=True))
        assert {type(one) for one in self.heard()} == {CheckpointAcknowledged}
        self.cluster.crash(self.sink)
        assert self.heard() == []

    def heard(self) -> list[Any]:
        """What tasks say, but for figures, until none has anything to do."""
        while any(works(one) for one in self.cluster.tasks.values()):
            pass
        said = [one for one in self.cluster.reports if not isinstance(one, MetricsReported)]
        self.cluster.reports.clear()
        return said


def works(one: RunningTask) -> bool:
    """A step of it; whether it did anything."""
    assert isinstance(one.background, SteppedBackground)
    return one.task.step() or one.background.step()


def test_peers_may_be_gone_and_others_come() -> None:
    pair = Pair()
    starts, stays = (pair.deployments([one], attempt=1) for one in (pair.sink, pair.source))
    pair.cluster.deploy_beside(starts, stays)
    said = {(type(one), one.task, one.attempt) for one in pair.heard()}
    assert said == {(TaskRunning, pair.source, 0), (TaskRunning, pair.sink, 1)}
    pair.cluster.send(pair.source, Attempt(0), NoMoreSplits(pair.operator))
    assert [(type(one), one.task) for one in pair.heard()] == [
        (TaskDrained, pair.source),
        (TaskDrained, pair.sink),
    ]


def test_who_is_to_go_on_as_it_was_hears_that_they_are_gone() -> None:
    pair = Pair()
    pair.cluster.send(pair.source, Attempt(0), GoOn(CheckpointId(1)))
    (failed,) = pair.heard()
    assert isinstance(failed, TaskFailed)
    assert failed.symptom
    error = "Source: Collection (1/1): TransportError: Sink: DiscardSink (1/1) went away"
    assert failed.error.endswith(error)


def test_it_may_be_stopped_as_ever() -> None:
    pair = Pair()
    pair.cluster.send(pair.source, Attempt(0), CancelTask())
    assert [type(one) for one in pair.heard()] == [TaskCancelled]
