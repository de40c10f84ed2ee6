"""What holds at every step of a simulation, whatever is drawn.

    exchange   credits and buffers add up, at both ends of each channel; none is negative; what is
               in flight is bounded
    order      what comes out of a channel is what went in, in its order: nothing overtakes records
               but a barrier that may
    time       event time never goes back, at any operator
    snapshots  the parts of coordinator and tasks are as their own `validate` has them
    sinks      nothing is published before the checkpoint is complete that it belongs to
    restoring  each checkpoint that is complete can be read (one of `VERIFIED` is, and those that
               are there at the end), and jobs that go on from one come to the same end (`running`)
    failures   nobody fails, but for what the simulation does to them

It looks on from outside: `watching` wraps methods of the exchange and the chain as long as it is
entered, and the code itself knows nothing of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ...api.connectors.base import SinkWriter
from ...api.connectors.builtin_sinks import CollectWriter
from ...checkpoint.file_storage import FileStorage
from ...checkpoint.folder_storage import FolderStorage
from ...checkpoint.manifest import Manifest
from ...checkpoint.storage import CheckpointStorage, MemoryStorage, open_storage
from ...core.batch import Batch, ColumnBatch, ObjectBatch
from ...core.elements import CheckpointBarrier, Control, EndOfData, Watermark
from ...core.ids import CheckpointId
from ...engine.coordinator.actions import Actions
from ...engine.exchange.gate import Gate
from ...engine.exchange.inprocess import InProcessEndpoint
from ...engine.exchange.sender import ChannelSender
from ...engine.hosts.cooperative import CooperativeCluster
from ...engine.hosts.driver import JobDriver
from ...engine.messages import CheckpointDeclined, TaskFailed, TaskReport
from ...engine.task.chain_node import ChainNode
from ...engine.task.reporting import FigureReports
from .case import Case
from .partitions import Partitions
from .sinks import CLOSED, Outside, StagedWriter
from .storage import AWAY, TOLD, FilesInMemory

VERIFIED = 3
"""Of so many checkpoints one is read when it is complete."""


LOST = "crashed by the simulator"

DIED = ("coordinator died while", "had no coordinator", "the job's coordinator died")

ASKED = (LOST, AWAY, CLOSED, *TOLD, *DIED, "UnwantedError", "went away", "is gone")
"""What errors say that the simulation is to blame for: tasks that crash, the storage, what is
given up behind them, connections to tasks that are no more, and coordinators that die."""

_ORDERED = (Watermark, EndOfData, CheckpointBarrier)


class Violation(AssertionError):
    """Something did not hold."""


@dataclass
class _Stream:
    """What went into one channel, and is to come out. `marks`: control elements that went in behind
    so many records, in order."""

    written: int = 0
    taken: int = 0
    marks: deque[tuple[Control, int]] = field(default_factory=deque)


class Invariants:
    """Of one simulation after the other, as its `Watch`; entered by `watching`."""

    def __init__(self, asked: Sequence[str] = ()) -> None:
        """`asked`: what else errors say that are not the engine's."""
        self._asked = (*ASKED, *asked)
        self._times: dict[int, tuple[ChainNode, int]] = {}
        """Event time by operator; the node is kept, so that no other has its number."""
        self._driver: JobDriver | None = None
        self._storage: CheckpointStorage | None = None
        self._endpoint: InProcessEndpoint | None = None
        """The one that was used since the last look."""
        self._completed: CheckpointId | None = None
        self._restarts = 0
        self._stored = 0
        """The newest checkpoint that was ever published, of all simulations of a case."""
        self._ends: dict[CheckpointId, str | None] = {}
        """Of each checkpoint that there is, or was when the job ended, the savepoint with which it
        was stopped."""
        self.partitions = Partitions(0, 0, 1, LOST)
        self.verified = 0

    def begin(self, storage: CheckpointStorage, partitions: Partitions) -> None:
        """Of another simulation. `storage`: as it really is."""
        self._times.clear()
        self._ends.clear()
        self.partitions = partitions
        self._storage = storage
        self._completed = None
        self._endpoint = None

    # --- as a `Watch` -------------------------------------------------------------------------

    def employed(self, driver: JobDriver, cluster: CooperativeCluster) -> None:
        self._driver = driver
        self.partitions.employed(driver, cluster)
        told = driver.on_report

        def on_report(report: TaskReport) -> None:
            if driver is self._driver:  # who was taken for dead may miss what others have removed
                self._look_at_report(report)
            told(report)

        driver.on_report = on_report  # type: ignore[method-assign]
        master, failed = driver._master, driver._master.on_store_failed

        def on_store_failed(checkpoint_id: CheckpointId, why: str, now_ms: int) -> Actions:
            self._require_asked(why, f"checkpoint {checkpoint_id} was not stored")
            return failed(checkpoint_id, why, now_ms)

        master.on_store_failed = on_store_failed  # type: ignore[method-assign]
        self._restarts = 0

    def stepped(self) -> None:
        self.partitions.stepped()
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None:
            self._look_at_exchange(endpoint)
        driver = self._driver
        assert driver is not None
        self._look_at_autoscaler(driver)
        picture = driver._picture
        if picture.restarts != self._restarts:
            self._restarts = picture.restarts
            self._require_asked(picture.last_failure or LOST, "the job restarted")
        completed = picture.checkpoints.latest_completed
        if completed is not None and completed != self._completed:
            self._completed = completed
            self._look_at_checkpoint(completed)

    def _look_at_autoscaler(self, driver: JobDriver) -> None:
        own = driver._own
        if own.broken is not None:
            raise Violation("the autoscaler broke") from own.broken
        if own.steering is not None:
            own.steering.validate()

    def _look_at_report(self, report: TaskReport) -> None:
        match report:
            case TaskFailed(error=why, symptom=False):
                self._require_asked(why, "a task failed")
            case CheckpointDeclined(reason=why):
                self._require_asked(why, "a checkpoint failed")

    def _require_asked(self, why: str, what: str) -> None:
        if not any(reason in why for reason in self._asked):
            raise Violation(f"{what} for no reason that the simulation knows: {why}")

    def _look_at_checkpoint(self, n: CheckpointId) -> None:
        assert self._driver is not None
        self._driver._master.validate()
        storage, job_id = self._storage, self._driver.job_id
        if storage is not None and storage.job_id != job_id:  # another job, restored from that one
            storage = open_storage(storage.home, job_id)
        if storage is None or n % VERIFIED or n not in storage.list():
            return  # a savepoint, or gone already
        storage.verify(storage.load(n))
        self.verified += 1

    def _look_at_exchange(self, endpoint: InProcessEndpoint) -> None:
        gate = endpoint._gate
        ledger = gate.ledger
        gate.validate()
        for index, sender in endpoint._feeders.items():
            credit = sender.ledger.credit
            account = ledger._accounts[index]
            promised = gate._grants.get(index, 0)
            if not 0 <= credit == account.outstanding - account.queued - promised:
                raise Violation(
                    f"{_where(gate, index)}: {credit} credits at the sender, "
                    f"{account.outstanding} outstanding at the receiver, {account.queued} buffers "
                    f"queued, {promised} credits on their way"
                )
        bound = len(gate.channels) * ledger.exclusive + ledger.floating
        if ledger.total_outstanding() > bound:
            raise Violation(
                f"{ledger.total_outstanding()} buffers may be in flight, the bound is {bound}"
            )
        for sender in endpoint._outputs.values():
            sender.validate()

    # --- what the wrapped methods tell --------------------------------------------------------

    def wrote(self, sender: ChannelSender, batch: Batch) -> None:
        self._stream(sender).written += len(batch)

    def wrote_control(self, sender: ChannelSender, element: Control) -> None:
        if isinstance(element, _ORDERED) and not _may_overtake(element):
            stream = self._stream(sender)
            stream.marks.append((element, stream.written))

    def _stream(self, sender: ChannelSender) -> _Stream:
        """What a sender is watched by, from its first element on or since it was wired."""
        found: _Stream | None = getattr(sender, "_simulated", None)
        if found is None:
            found = sender._simulated = _Stream()  # type: ignore[attr-defined]
        return found

    def wired(self, endpoint: InProcessEndpoint, link: Any) -> None:
        """The receiving end of a link is there."""
        gate: Any = endpoint._gate
        if not hasattr(gate, "_simulated"):
            gate._simulated = {}
        for sender in link.senders.senders.values():
            gate._simulated[sender.channel.target_index] = self._stream(sender)

    def taken(self, gate: Gate, index: int, element: Any) -> None:
        stream: _Stream = gate._simulated[index]  # type: ignore[attr-defined]
        if isinstance(element, (ColumnBatch, ObjectBatch)):
            stream.taken += len(element)
        elif isinstance(element, _ORDERED) and not _may_overtake(element):
            self._take_mark(stream, gate, index, element)

    def _take_mark(self, stream: _Stream, gate: Gate, index: int, element: Control) -> None:
        """A barrier may pass what is no record: see `InputGate.poll_barrier`."""
        marks = stream.marks
        places = range(len(marks) if isinstance(element, CheckpointBarrier) else min(1, len(marks)))
        place = next((at for at in places if marks[at][0] == element), None)
        if place is None:
            first = marks[0][0] if marks else "the end of what was sent"
            raise Violation(f"{_where(gate, index)}: {element} came, and {first} was to come")
        written = marks[place][1]
        del marks[place]
        if stream.taken != written:
            raise Violation(
                f"{_where(gate, index)}: {element} was sent behind {written} records, and came "
                f"behind {stream.taken}"
            )

    def time_at(self, node: ChainNode, timestamp: int) -> None:
        _, last = self._times.get(id(node), (node, timestamp))
        if timestamp < last:
            raise Violation(
                f"operator '{node.metrics.name}': event time went back from {last} to {timestamp}"
            )
        self._times[id(node)] = node, timestamp

    def used(self, endpoint: InProcessEndpoint) -> None:
        self._endpoint = endpoint

    def stored(self, storage: CheckpointStorage, manifest: Manifest) -> None:
        self._stored = max(self._stored, manifest.checkpoint_id)
        if not isinstance(storage, FolderStorage):
            self._ends[manifest.checkpoint_id] = manifest.stopped_with

    def deleting(self, storage: CheckpointStorage, checkpoint_id: CheckpointId) -> None:
        """One that came through when it had been given up counts for nobody, for instance."""
        folder = isinstance(storage, FolderStorage)
        if not folder and self._driver is not None and not self._driver.ended:
            self._ends.pop(checkpoint_id, None)

    @property
    def stopped_with(self) -> str | None:
        """The savepoint with which the job was stopped, as its newest checkpoint says, which others
        may have been stored after; None: it was not."""
        return self._ends[max(self._ends)] if self._ends else None

    def committing(self, writer: SinkWriter, committables: Sequence[tuple[str, Any]]) -> None:
        for key, _ in committables:
            n = int(key.rpartition("-")[2])
            if n > self._stored:
                raise Violation(f"published what belongs to checkpoint {n} before it was complete")


def _may_overtake(element: Control) -> bool:
    return isinstance(element, CheckpointBarrier) and element.overtakes


def _where(gate: Gate, index: int) -> str:
    channel = gate.channels[index]
    return f"channel {channel.source} to {channel.target}"


@contextmanager
def watching(invariants: Invariants, outside: Outside, case: Case) -> Iterator[None]:
    """The exchange and the chain tell `invariants` what they do, and commits go through `outside`,
    which may fail them. Without `figures` in the case tasks report none when they begin: that takes
    a tenth of all time."""
    undo: list[Callable[[], None]] = []

    def wrap(owner: type, name: str, make: Callable[[Any], Any]) -> None:
        original = getattr(owner, name)
        setattr(owner, name, make(original))
        undo.append(lambda: setattr(owner, name, original))

    def before(tell: Callable[..., None]) -> Callable[[Any], Any]:
        def make(original: Any) -> Any:
            def wrapped(self: Any, *arguments: Any) -> Any:
                tell(self, *arguments)
                return original(self, *arguments)

            return wrapped

        return make

    def behind(tell: Callable[..., None]) -> Callable[[Any], Any]:
        def make(original: Any) -> Any:
            def wrapped(self: Any, *arguments: Any) -> Any:
                found = original(self, *arguments)
                tell(self, *arguments)
                return found

            return wrapped

        return make

    def polling(original: Any) -> Any:
        def wrapped(gate: Gate) -> Any:
            item = original(gate)
            if item is not None:
                invariants.taken(gate, *item)
            return item

        return wrapped

    def unless_cut_off(original: Any) -> Any:
        def wrapped(endpoint: InProcessEndpoint, link: Any) -> bool:
            holds = invariants.partitions.holds
            if holds(link.source) or holds(link.target):
                return False
            sent: bool = original(endpoint, link)
            return sent

        return wrapped

    def may_fail(original: Any) -> Any:
        def wrapped(writer: CollectWriter, committables: Sequence[Any]) -> None:
            now_ms = writer._context.clock.now_ms()
            outside.commit(now_ms, committables, lambda some: original(writer, some))

        return wrapped

    try:
        wrap(ChannelSender, "write", before(invariants.wrote))
        wrap(ChannelSender, "write_control", before(invariants.wrote_control))
        wrap(Gate, "poll", polling)
        wrap(Gate, "poll_barrier", polling)
        wrap(ChainNode, "process_watermark", before(invariants.time_at))
        wrap(CollectWriter, "commit", may_fail)
        wrap(CollectWriter, "commit", before(invariants.committing))
        wrap(StagedWriter, "_publish", before(invariants.committing))
        if not case.figures:
            wrap(FigureReports, "report", lambda _: lambda reports: None)
        wrap(InProcessEndpoint, "accept", behind(invariants.wired))
        if case.partitions:
            wrap(InProcessEndpoint, "_send", unless_cut_off)
        for storage in (FilesInMemory, MemoryStorage, FileStorage, FolderStorage):
            wrap(storage, "publish", behind(invariants.stored))
            wrap(storage, "delete", before(invariants.deleting))
        wrap(InProcessEndpoint, "pump", before(lambda endpoint, _: invariants.used(endpoint)))
        yield
    finally:
        for restore in reversed(undo):
            restore()
