"""How a job's coordinator begins, comes back, runs its driver and ends.

Its process may die at any moment: Ray starts it again, on another node if need be, and it goes on
with what runs (`coordinator.takeover`) from what it has left (`job_record`) and the tasks know.

The driver runs on one thread, which is the only one that touches it; others put events into its
inbox (`coordinator_inbox`). The actor outlives the program that submitted the job, and ends some
time after the job did, when no client has asked for a while: soon if one knows all there is. An
attached job it cancels when that program is gone (`attachment`, `lease`); every job is attached
until its submission is complete.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import secrets
import threading
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any

import cloudpickle
import ray

from ...core.clock import SystemClock
from ...core.errors import JobFailedError
from ...core.failure_text import described
from ...core.ids import Attempt, OperatorId
from ...core.job_status import JobStatus
from ...logs.process import close_log, open_log
from ...logs.scope import LogScope
from ..coordinator.handover import Handover
from ..exchange.pickling import Parcel
from ..graph.model import JobGraph
from ..graph.rescaling import Widths, with_widths
from ..graph.shipping import unreadable
from ..task.background import ThreadBackground
from .coordinator_answers import Farewell, coordinator_name
from .coordinator_ends import LEFT_NOTHING, failed, given_up
from .coordinator_inbox import (
    Answered,
    Cancel,
    GraphKept,
    RescaleWanted,
    SavepointWanted,
    hand_over,
)
from .coordinator_names import came_back
from .driver import JobDriver
from .growth_looks import GrowthLooks
from .job_outcome import JobOutcome
from .job_record import Begun, JobRecord, Term
from .kept_slots import KeptSlots, leave_kept
from .kept_term import PROMISE_S, KeptTerm
from .lease import Lease
from .left_tasks import end_tasks
from .loop_signal import LoopSignal, wait_until
from .published import PublishedValues
from .ray_cluster import RayCluster
from .ray_metrics import RayReporter
from .ray_task import use_one_thread
from .record_keeper import RecordKeeper
from .reporters import serve_metrics
from .result_files import END
from .result_log import ResultLog
from .sent_files import SentFiles
from .session_news import SessionNews
from .shipped_code import unpack
from .task_reports import TaskReports

log = logging.getLogger("strom")

LINGER_S = 120.0
"""How long a coordinator stays after its job ended, counted from the last question of a client."""

TOLD_S = 5.0
"""The same, once a client has been told how the job ended and has read all that was published. One
process per job that ended lately is what this costs: of many short jobs, quite some."""

SUBMISSION_S = 45.0
"""Within this a coordinator's client must have started it, however busy the machine is."""

FAREWELL_S = 10.0
"""How long the end of a job is held back until it is kept."""


class CoordinatorLife:
    """Of one job. All methods that are called from outside are coroutines: those that wait hold up
    no other."""

    def __init__(
        self,
        job_id: str,
        records: str | None = None,
        slots: KeptSlots | None = None,
        farewell: Farewell | None = None,
    ) -> None:
        """Called anew by Ray when its process has died: all of it is small. `records`: as of
        `JobRecord`. `slots`: those it has, which stay; None: its own. `farewell`: to be called when
        the job is over, before anybody is told so."""
        use_one_thread()
        self._farewell = farewell
        self._slots = slots
        self._job_id = job_id
        self._records = RecordKeeper(JobRecord(records, job_id), job_id)
        self._record = JobRecord(records, job_id) if farewell is None else None
        """For whoever finds that no coordinator of the job comes back; None: a session may begin
        the job once more, and sees to it."""
        self._term = KeptTerm(self._records)
        self._driver: JobDriver | None = None
        self._cluster: RayCluster | None = None
        self._growth: GrowthLooks | None = None
        self._prometheus: Any = None
        self._reporter: RayReporter | None = None
        self._log: Any = None
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._published = PublishedValues()
        self._results: ResultLog | None = None
        self._count: int | None = None
        """So many results were published by the job, which was over when this process began; None:
        nobody knows."""
        self._reports = TaskReports()
        self._outcome: JobOutcome | None = None
        self._for_session = SessionNews()
        self._news = LoopSignal()
        """Rung for what is published, for each checkpoint and when the job has ended."""
        self._attached = True
        self._lease = Lease(SystemClock())
        self._tie_changed = asyncio.Event()
        """Set when the job is detached, or its program known to be dead."""
        self._started = asyncio.Event()
        """Somebody may attach before the submission is complete."""
        with suppress(RuntimeError):  # there is no loop where this is no actor
            loop = asyncio.get_running_loop()
            if came_back():
                self._coming_back = loop.create_task(self._come_back())
            else:
                loop.call_later(SUBMISSION_S, self._leave_unless_started)
        self._asked = time.monotonic()
        self._told = False
        """Whether some client knows the outcome."""
        self._heard_by_session = False
        """Whether a session may know that the job is over, and have lent its slots again."""
        self._read: set[OperatorId] = set()
        """Operators of which some client has all values there will ever be."""

    async def start(self, begun: Begun) -> None:
        """Begin; errors of the start come out of the job's result. SerializationError if the graph
        cannot be unpickled here, JobFailedError if this process is not the first."""
        if came_back():
            raise JobFailedError(f"job {self._job_id}: {LEFT_NOTHING}")
        begun = replace(begun, token=secrets.token_hex(16))
        graph = _unpickled(begun)
        written = self._term.begin(begun, self._attached, SystemClock().now_ms())
        await self._begin(begun, graph, takes_over=False)
        await asyncio.wait([asyncio.wrap_future(written)], timeout=PROMISE_S)

    async def _come_back(self) -> None:
        """The process before this one died. Whoever asks meanwhile waits for `_started`."""
        left = await self._records.read()
        if left is None:
            await self._end_without_record()
            return
        begun, before, outcome, self._count = left.begun, left.term, left.outcome, left.published
        self._attached, self._heard_by_session = before.attached, outcome is not None
        written = self._term.follow(before, SystemClock().now_ms())
        term = self._term.now
        self._published = PublishedValues(begun.first_attempt + term.number)
        # No other may have this number: tasks would hear what both say.
        await asyncio.wrap_future(written)
        log.warning(
            "job %s: its coordinator died, and is back for the %s. time", self._job_id, term.number
        )
        if outcome is None and term.dies_too_often():
            outcome = await self._give_up(term)
        try:
            graph = _unpickled(begun)
            await self._begin(begun, graph, takes_over=True, outcome=outcome)
        except Exception as error:
            log.exception("job %s: its coordinator cannot come back", self._job_id)
            await self._end_with(outcome or await self._give_up(term, described(error)))
        else:
            if term.cancelled and outcome is None:
                await self.cancel()

    async def _give_up(self, term: Term, why: str | None = None) -> JobOutcome:
        """The job is over, for all that come after this, too."""
        outcome = given_up(self._job_id, term, why)
        await asyncio.to_thread(self._records.end, outcome)
        return outcome

    async def _end_without_record(self) -> None:
        """It died before it was told what to do, or what it was told is gone."""
        if not self._records.of_machine:
            self._leave_for_good()
            return
        log.error("job %s: %s", self._job_id, LEFT_NOTHING)
        await asyncio.to_thread(end_tasks, coordinator_name(self._job_id))
        await self._end_with(failed(self._job_id, LEFT_NOTHING))

    async def _begin(
        self,
        begun: Begun,
        graph: JobGraph,
        takes_over: bool,
        outcome: JobOutcome | None = None,
    ) -> None:
        """`outcome`: it is settled how the job ended; nothing of it is to run any more."""
        loop = asyncio.get_running_loop()
        me = ray.get_runtime_context().current_actor
        job = LogScope(self._job_id, graph.name)
        self._log = await asyncio.to_thread(
            open_log, graph.config.logging, job, "coordinator", alone=True
        )
        if begun.claimed is not None:
            config = replace(graph.config, restore_from=begun.claimed, claim_restored=True)
            graph = replace(graph, config=config)
        secret, name = secrets.token_bytes(32), coordinator_name(self._job_id)
        files = SentFiles.of(self._job_id, graph.config.job_files, begun.contents)
        term = self._term.now
        of = begun.first_attempt + term.number
        self._published = PublishedValues(of)
        self._cluster = RayCluster(
            with_widths(graph, term.left.now or {}),
            secret,
            loop,
            self._inbox.put,
            me,
            name,
            begun.code,
            files,
            self._slots,
            term=term.number,
            note=self._note_attempt,
            planned=graph,
            record=self._record,
        )
        if outcome is not None:
            await asyncio.to_thread(self._cluster.take_over)
            await asyncio.to_thread(self._cluster.close)
            await self._end_with(outcome)
            return
        takes_checkpoints = graph.config.checkpoint.interval is not None
        self._results = results = self._records.result_log(of, whole=takes_checkpoints)
        self._driver = JobDriver(
            graph,
            self._job_id,
            SystemClock(),
            self._cluster,
            self._publish,
            lambda name: ThreadBackground(name, lambda: self._inbox.put(Answered())),
            first_attempt=term.attempt + takes_over,
            token=begun.token,
            takes_over=takes_over,
            before_end=lambda outcome: self._records.end(outcome, results),
            results=results,
            keep=self._keep_graph,
            left=term.left,
            number=of,
        )
        if graph.config.adaptive.enabled:
            self._growth = GrowthLooks(graph, self._driver, self._inbox.put)
            self._growth.start()
        self._prometheus = serve_metrics(graph.config.metrics, self._driver.samples)
        self._reporter = None
        if graph.config.metrics.ray_interval is not None:
            self._reporter = RayReporter(self._driver.samples, graph.config.metrics.ray_interval)
            self._reporter.start()
        self._lease.renew()
        threading.Thread(target=self._run, name="strom-driver", daemon=True).start()
        self._leaving = loop.create_task(self._leave_when_done())
        self._watching = loop.create_task(self._watch_lease())
        self._started.set()

    async def _end_with(self, outcome: JobOutcome) -> None:
        """There is no driver: tell who asks."""
        await asyncio.to_thread(self._say_farewell, outcome)
        left = await self._records.results(self._count)
        self._published.begin(END, lost=left.lost)
        for one in left.results:
            self._published.add(one.operator, one.key, Parcel(one.data))
        self._outcome = outcome
        self._published.close()
        self._leaving = asyncio.get_running_loop().create_task(self._leave_when_done())
        self._started.set()
        self._news.ring()

    def _note_attempt(self, attempt: Attempt) -> None:
        """Before it begins; on the driver's thread."""
        driver = self._driver
        assert driver is not None
        self._term.note_attempt(attempt, driver.failed, driver.restarts)

    def _keep_graph(self, left: Handover[Widths]) -> None:
        """On the driver's thread, which goes on when it is written, or cannot be."""
        written = self._term.change(left=left)
        written.add_done_callback(lambda _: self._inbox.put(GraphKept()))

    def _leave_unless_started(self) -> None:
        """The client died during the submission."""
        if not self._started.is_set():
            self._leave_for_good()

    def _leave_for_good(self) -> None:
        """Ray does not start this actor again."""
        ray.kill(ray.get_runtime_context().current_actor, no_restart=True)

    # --- the driver's thread ---------------------------------------------------------------

    def _run(self) -> None:
        driver = self._driver
        assert driver is not None
        try:
            driver.start()
            while not driver.ended:
                self._take(driver)
                driver.tick()
                self._note_checkpoints(driver)
        except BaseException as error:
            driver.crashed(error)
        self._release()
        outcome = driver.outcome()
        self._say_farewell(outcome)
        self._outcome = outcome
        try:
            close_log(self._log)
        finally:
            self._refuse_savepoints()
            self._published.close()
            self._news.ring()

    def _say_farewell(self, outcome: JobOutcome) -> None:
        if self._farewell is not None:
            saying = threading.Thread(target=self._farewell, args=(outcome,), daemon=True)
            saying.start()
            saying.join(FAREWELL_S)

    def _publish(self, operator: OperatorId, key: str, value: Any) -> None:
        if self._driver is not None:
            self._note_beginning(self._driver)  # readers must not know it later
        self._published.add(operator, key, value)
        self._news.ring()

    def _note_checkpoints(self, driver: JobDriver) -> None:
        """For those who read what is published, and the session. What comes of a checkpoint's
        completion comes with later events."""
        news, complete = self._note_beginning(driver), driver.newest_complete
        if complete is not None and self._published.complete(complete):
            news = True
        news |= self._for_session.look(driver, self._cluster, self._growth)
        if news:
            self._news.ring()

    def _note_beginning(self, driver: JobDriver) -> bool:
        """Whether it is news."""
        began, results = driver.began_with, self._results
        if began is None:
            return False
        if results is None:
            return self._published.begin(began)
        return self._published.begin(began, results.ways_back, results.lost)

    def _release(self) -> None:
        """Whatever happens here, the job's outcome must become known."""
        for held in (self._growth, self._driver, self._prometheus, self._reporter, self._cluster):
            try:
                if held is not None:
                    held.close()
            except Exception:
                log.exception("job %s: not all that it held could be released", self._job_id)

    def _take(self, driver: JobDriver) -> None:
        try:
            event = self._inbox.get(timeout=driver.next_tick_s())
        except queue.Empty:
            return
        hand_over(event, driver)

    async def _leave_when_done(self) -> None:
        while True:
            news = self._news.ticket()
            ended = self._outcome is not None
            left = self._asked + self._linger_s - time.monotonic()
            if ended and left <= 0:
                break
            await wait_until(news, left if ended else None)
        if self._cluster is not None:
            heard, release = (lambda: self._heard_by_session), self._cluster.release_left
            await leave_kept(self._job_id, heard, release)
        await self._records.remove()
        self._leave_for_good()

    @property
    def _linger_s(self) -> float:
        known = self._told and self._published.operators() <= self._read
        return TOLD_S if known else LINGER_S

    # --- the program the job is attached to ------------------------------------------------

    async def _watch_lease(self) -> None:
        while self._attached and self._outcome is None:
            if self._lease.look():
                log.warning(
                    "job %s is cancelled: the program that it was attached to is gone", self._job_id
                )
                await self.cancel()
                return
            await wait_until(self._tie_changed, self._lease.next_look_s())

    # --- its end, from outside ---------------------------------------------------------------

    async def cancel(self) -> None:
        await self._started.wait()
        if self._cluster is not None:
            self._cluster.on_cancelled()
        self._inbox.put(Cancel())
        if self._outcome is None:
            await self._term.promise(cancelled=True)

    @property
    def _state(self) -> JobStatus:
        if self._driver is None:
            assert self._outcome is not None, "not begun"
            return self._outcome.status
        return self._driver.state

    def _refuse_savepoints(self) -> None:
        """The job is over: nobody takes anything out of the inbox any more."""
        with suppress(queue.Empty):
            while True:
                event = self._inbox.get_nowait()
                if isinstance(event, SavepointWanted):
                    event.told(None, f"no savepoint was taken: the job is {self._state.value}")
                if isinstance(event, RescaleWanted):
                    event.told(None, f"not rescaled: the job is {self._state.value}")


def _unpickled(begun: Begun) -> JobGraph:
    """The job's graph, with what it imports from in reach."""
    unpack(begun.code)
    try:
        graph: JobGraph = cloudpickle.loads(begun.payload)
    except BaseException as error:
        raise unreadable(error) from None
    return graph
