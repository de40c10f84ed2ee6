"""The Ray actor that runs one parallel subtask: control on Ray, data on its own sockets.

The actor's asyncio loop only takes messages; the task's loop runs on one thread of its own. The
actor and its endpoint outlive an attempt: after a failure elsewhere the same process is given the
next attempt, so that recovery does not pay for a process start.

They outlive a coordinator, too. It has a *term*, which is greater than that of those before it; a
task hears only the greatest it knows of, and gives an account of itself to a new one. When there
will be none any more (Ray says that the coordinator is dead for good), the process ends, and with
it the job's slots.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import pickle
import pkgutil
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import cloudpickle
import ray
from ray.util import get_node_ip_address
from ray.util.placement_group import get_placement_group, remove_placement_group

from ... import operators, state
from ...core.clock import SystemClock
from ...core.config import ExchangeConfig
from ...core.errors import FencedError
from ...core.failure_text import described
from ...core.ids import NO_CHECKPOINT, Attempt, TaskId
from ...core.logging_config import LoggingConfig
from ...logs.process import JobLog, close_log, flush_logs, open_log
from ...logs.scope import LogScope, set_process_scope
from ...operators.registry import build_operator
from ..accounts import Ledger, TaskAccount
from ..exchange.encryption import JobCertificate
from ..exchange.endpoint import Address
from ..exchange.listener import site_of
from ..exchange.sockets import SocketEndpoint
from ..graph.shipping import unreadable
from ..messages import CancelTask, Mail, TaskFailed, TaskReport
from ..task.background import ThreadBackground
from ..task.deployment import TaskDeployment
from ..task.task import Task
from .added_slots import give_back_added
from .job_folder import JobFolder
from .job_record import JobRecord
from .last_words import Whereabouts, confess_exits, own_whereabouts
from .lean import keep_freed_memory, postpone_pandas, settle
from .local_folder import LocalFolders, folders_of
from .resequencer import Numbering, Resequencer
from .sent_files import SentFiles
from .shipped_code import PackedCode, unpack

log = logging.getLogger("strom")

REST_S = 0.2
"""The longest nap of an idle task; mail and input end it earlier."""

UNUSED_S = 300.0
"""How long a process waits for the first word of a coordinator."""

ORPHAN_S = 5.0
"""How long a task whose job has no coordinator any more may take for each thing it ends."""


def use_one_thread() -> None:
    """Many tasks share a machine: libraries inside a task must not start a pool each."""
    for name in ("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    import pyarrow as pa

    pa.set_cpu_count(1)
    # The driver's and the tasks' threads are not the actor's event loop, so they may wait for Ray.
    logging.getLogger("ray._private.worker").addFilter(
        lambda record: "inside async actor" not in record.getMessage()
    )


@dataclass(frozen=True)
class Admittance:
    """What a job's tasks know each other by. Only they and their coordinator have it."""

    secret: bytes = field(repr=False)
    certificate: JobCertificate | None = None
    """None: connections are not encrypted."""


class TaskRunner:
    """One attempt on its own thread."""

    def __init__(
        self, deployment: TaskDeployment, endpoint: SocketEndpoint, coordinator: Any, term: int
    ):
        """`term`: the coordinator's."""
        self.deployment = deployment
        self._endpoint = endpoint
        self._coordinator = coordinator
        self._term = term
        self._numbers = Numbering()
        """Of the reports in this term; all are made on the task's thread."""
        restored = deployment.restore
        begins_with = NO_CHECKPOINT if restored is None else restored.checkpoint_id
        self._ledger = Ledger(
            deployment.task,
            deployment.attempt,
            begins_with,
            deployment.shape,
            deployment.own_share,
            deployment.tokens,
        )
        self._speaking = threading.Lock()
        """Held while a message is sent or taken, and noted."""
        self._task: Task | None = None
        self._waiting: list[Mail] = []
        self._lock = threading.Lock()
        self.ended: Future[None] = Future()
        """Done when the thread is about to end."""
        self._thread = threading.Thread(
            target=self._live, name=f"strom-{deployment.label}", daemon=True
        )

    def start(self, peers: Mapping[TaskId, Address]) -> None:
        self._peers = peers
        self._thread.start()

    def post(self, mail: Mail) -> None:
        """Thread-safe; mail that arrives before the task exists waits for it."""
        with self._speaking:
            self._ledger.on_mail(mail)
        with self._lock:
            if self._task is None:
                self._waiting.append(mail)
                return
        self._task.post(mail)

    def _report(self, report: TaskReport) -> None:
        """What cannot be sent, whatever the reason, fails the task instead."""
        try:
            self._send(report)
        except Exception as error:
            d = self.deployment
            text = f"task {d.label}: its {type(report).__name__} cannot be sent to the coordinator"
            self._send(TaskFailed(d.task, d.attempt, f"{text}: {described(error)}"))

    def _send(self, report: TaskReport) -> None:
        d = self.deployment
        data = pickle.dumps(report, protocol=5)
        with self._speaking:
            send, term = self._coordinator.report.remote, self._term
            self._ledger.on_report(report)
            self._numbers.send(lambda number: send(d.task, d.attempt, term, number, data))

    def take_over(self, coordinator: Any, term: int) -> TaskAccount:
        """From now on its reports go to this coordinator, numbered from 0; what it has told those
        before it is in the account. Thread-safe."""
        with self._speaking:
            self._coordinator, self._term, self._numbers = coordinator, term, Numbering()
            return self._ledger.account()

    def _live(self) -> None:
        try:
            self._run()
        finally:
            flush_logs()
            self.ended.set_result(None)

    def _run(self) -> None:
        d = self.deployment
        background = ThreadBackground(d.label)
        try:
            self._endpoint.connect(d.wiring(self._peers))
            task = Task(d, self._endpoint, SystemClock(), self._report, background)
        except Exception as error:
            background.close()
            text = f"task {d.label} could not start: {described(error)}"
            self._report(TaskFailed(d.task, d.attempt, text))
            return
        with self._lock:
            self._task = task
            for mail in self._waiting:
                task.post(mail)
        try:
            while not task.state.over:
                if not task.step():
                    task.rest(REST_S)
        except BaseException as error:  # `step` raises nothing; but a hang would be worse
            task.abandon()
            self._report(TaskFailed(d.task, d.attempt, f"task {d.label}: {described(error)}"))


@dataclass(frozen=True)
class Tie:
    """What a task's process hangs on. `slots`: the name of those that end with the job; None: they
    stay. `name`: of the coordinator, and what those are called after that were added. `record`:
    what is of no use without that coordinator; None: a session may begin the job once more."""

    coordinator: Any
    term: int
    slots: str | None
    name: str = ""
    record: JobRecord | None = None


@dataclass(frozen=True)
class Found:
    """What a new coordinator finds in a task's process. `task`, `address` (where peers reach it):
    None, nobody has said which it is for. `account`: None, nothing was deployed there."""

    task: TaskId | None
    account: TaskAccount | None
    address: Address | None
    process: Whereabouts
    admittance: Admittance | None


class TaskActor:
    """Made into a Ray actor by the coordinator. All methods are coroutines, and none waits for the
    task's thread; Ray may start them in another order than they were called."""

    def __init__(self) -> None:
        use_one_thread()
        postpone_pandas()
        settle()
        keep_freed_memory()
        confess_exits()
        self._endpoint: SocketEndpoint | None = None
        self._runner: TaskRunner | None = None
        self._mail: dict[Attempt, Resequencer[Mail]] = {}
        self._early: dict[Attempt, list[Mail]] = {}
        """Mail in order of attempts that are not deployed yet."""
        self._preparing = asyncio.Lock()
        self._folder: JobFolder | None = None
        """Where the job's files are; None: it has none."""
        self._log: JobLog | None = None
        self._copies: LocalFolders | None = None
        """Where this machine's tasks of the job keep copies of what they write for checkpoints;
        None: they keep none, or there was no task yet."""
        self._stopped: Attempt = Attempt(-1)
        """No attempt up to this one may start any more."""
        self._term = 0
        """Of the coordinator that is heard; only grows."""
        self._task: TaskId | None = None
        self._admittance: Admittance | None = None
        self._slots: str | None = None
        """The name of the slots that end with the job; None: they stay."""
        self._coordinator_name = ""
        self._record: JobRecord | None = None
        """Of the coordinator, which goes with it."""
        self._following: asyncio.Task[None] | None = None
        self._standing_by: asyncio.Task[None] | None = None
        """Follows the keeper of a process that has no job yet."""
        self._imported = asyncio.Event()
        """Whether it stands by."""
        with suppress(RuntimeError):  # there is no loop where this is no actor
            asyncio.get_running_loop().call_later(UNUSED_S, self._end_unless_used)

    async def stand_by(self, keeper: Any) -> None:
        """There is no job for this process yet: import what tasks are made of meanwhile, and what
        their programs may import. It ends when the keeper is dead for good, unless it has a job
        then. `keeper`: has a method `hold`, which never returns."""
        if self._following is None:
            self._standing_by = asyncio.get_running_loop().create_task(self._end_with(keeper))
        await asyncio.to_thread(_import_all)
        self._imported.set()

    async def stands_by(self) -> None:
        """Answers once it does, with all that `stand_by` imports."""
        await self._imported.wait()

    async def _end_with(self, keeper: Any) -> None:
        await until_dead(keeper)
        if self._following is None:
            os.kill(os.getpid(), signal.SIGKILL)

    async def prepare(
        self,
        task: TaskId,
        config: ExchangeConfig,
        admittance: Admittance,
        several: bool,
        code: Sequence[PackedCode] = (),
        files: SentFiles | None = None,
        log: tuple[LoggingConfig, LogScope] | None = None,
        tie: Tie | None = None,
    ) -> tuple[Address, Whereabouts]:
        """Open the endpoint, make the program's `code` importable, have its `files` here and keep a
        log of what is said; returns where peers reach it, and where this process is. `several`:
        whether the job's tasks are on more than one machine. FencedError if the coordinator of
        `tie` is not the newest."""
        if tie is not None:
            self._hear(tie.coordinator, tie.term)
            self._slots, self._coordinator_name = tie.slots, tie.name
            self._record = tie.record
        self._task, self._admittance = task, admittance
        site = site_of(config.bind_host, get_node_ip_address(), several)
        async with self._preparing:
            if self._endpoint is None:
                if log is not None:
                    self._log = await asyncio.to_thread(open_log, *log, "task", alone=True)
                unpack(code)
                if files is not None and self._folder is None:
                    self._folder = await asyncio.to_thread(files.arrive)
                secret, certificate = admittance.secret, admittance.certificate
                clock = SystemClock()
                self._endpoint = SocketEndpoint(task, config, secret, clock, site, certificate)
            self._endpoint.move(site)
        return self._endpoint.address, own_whereabouts()

    async def warm(self, payload: bytes) -> None:
        """Have imported what tasks of a chain are made of, before there is one; `payload`: that
        chain and the storage, pickled. What goes wrong here does so again when one is deployed, and
        is said then."""
        await asyncio.to_thread(_import_parts, payload)

    async def deploy(
        self, payload: bytes, peers: Mapping[TaskId, Address], coordinator: Any, term: int
    ) -> None:
        """Start an attempt; `payload` is a pickled TaskDeployment. The former one has ended.
        SerializationError if it cannot be unpickled here, FencedError from a `term` that is
        over."""
        assert self._endpoint is not None, "deploy before prepare"
        self._hear(coordinator, term)
        try:
            deployment: TaskDeployment = cloudpickle.loads(payload)
        except BaseException as error:
            raise unreadable(error) from None
        deployment = await self._with_copies(deployment)
        self._hear(coordinator, term)  # there may be another meanwhile, which was told of no task
        set_process_scope(deployment.log_scope)
        if deployment.attempt <= self._stopped:
            return
        self._runner = TaskRunner(deployment, self._endpoint, coordinator, term)
        for mail in self._early.pop(deployment.attempt, []):
            self._runner.post(mail)
        self._runner.start(peers)

    async def _with_copies(self, deployment: TaskDeployment) -> TaskDeployment:
        if self._copies is None:
            self._copies = folders_of(deployment.job_id, deployment.config.checkpoint)
        if self._copies is None:
            return deployment
        return replace(deployment, local_folders=await asyncio.to_thread(self._copies.enter))

    async def take_over(self, coordinator: Any, term: int) -> Found:
        """A coordinator has come up that is to go on with what runs. FencedError if it is not the
        newest. What others have sent and is not here yet is heard no more."""
        self._hear(coordinator, term)
        self._mail.clear()
        self._early.clear()
        account = None if self._runner is None else self._runner.take_over(coordinator, term)
        address = None if self._endpoint is None else self._endpoint.address
        return Found(self._task, account, address, own_whereabouts(), self._admittance)

    def _hear(self, coordinator: Any, term: int) -> None:
        if term < self._term:
            raise FencedError(
                f"this coordinator's term, {term}, is over: the job has another, of term "
                f"{self._term}"
            )
        if self._following is None:
            loop = asyncio.get_running_loop()
            self._following = loop.create_task(self._follow(coordinator))
        self._term = term

    async def _follow(self, coordinator: Any) -> None:
        """Until the coordinator is dead for good. That of a job that has ended ends this process
        before it."""
        await until_dead(coordinator)
        log.warning("the job's coordinator is gone for good: this task ends")
        runner = self._runner
        if runner is not None:
            runner.post(CancelTask())
            await asyncio.wait([asyncio.wrap_future(runner.ended)], timeout=ORPHAN_S)
        await asyncio.wait([asyncio.ensure_future(self.leave())], timeout=ORPHAN_S)
        await asyncio.to_thread(self._end)

    def _end_unless_used(self) -> None:
        """Its coordinator died for good before it could say anything."""
        if self._following is None and self._standing_by is None:
            os.kill(os.getpid(), signal.SIGKILL)

    def _end(self) -> None:
        """Whoever comes first takes the slots, and with them all that is in them."""
        with suppress(Exception):
            if self._record is not None:
                removing = threading.Thread(target=self._record.remove, daemon=True)
                removing.start()
                removing.join(ORPHAN_S)
            if self._coordinator_name:
                give_back_added(self._coordinator_name)
            if self._slots is not None:
                remove_placement_group(get_placement_group(self._slots))
                time.sleep(ORPHAN_S)
        os.kill(os.getpid(), signal.SIGKILL)

    async def post(self, term: int, attempt: Attempt, number: int, mail: Mail) -> None:
        """Mail for an attempt, running or about to; for a former one, and of a coordinator whose
        term is over, it is dropped."""
        if term != self._term:
            return
        runner = self._runner
        current = -1 if runner is None else runner.deployment.attempt
        if attempt < current or attempt <= self._stopped:
            return
        ready = self._mail.setdefault(attempt, Resequencer()).accept(number, mail)
        if runner is not None and attempt == current:
            for item in ready:
                runner.post(item)
        else:
            self._early.setdefault(attempt, []).extend(ready)

    async def cancel(self, attempt: Attempt, term: int) -> bool:
        """Ask the attempt, or a former one, to stop and wait until its thread has ended.
        FencedError from a `term` that is over."""
        if term < self._term:
            raise FencedError(f"the coordinator of term {term} is not heard any more")
        self._stopped = Attempt(max(self._stopped, attempt))
        for known in [a for a in self._mail if a <= attempt]:
            self._mail.pop(known)
            self._early.pop(known, None)
        runner = self._runner
        if runner is None or runner.deployment.attempt > attempt:
            return True
        runner.post(CancelTask())
        await asyncio.shield(asyncio.wrap_future(runner.ended))
        return True

    async def leave(self) -> None:
        """The job is over: its files are needed here no more. The last call."""
        close_log(self._log)
        if self._copies is not None:
            await asyncio.to_thread(self._copies.leave)
        if self._folder is not None:
            os.chdir("/")
            await asyncio.to_thread(self._folder.leave)

    async def pid(self) -> int:
        """The worker's process id (shown by the job's status; used to test recovery)."""
        return os.getpid()

    async def hold(self) -> None:
        """Never returns: the coordinator sees this call fail when the process dies."""
        await asyncio.Event().wait()


async def until_dead(actor: Any) -> None:
    """For good: a process that Ray starts again is waited for."""
    while True:
        try:
            await actor.hold.remote()
        except ray.exceptions.ActorDiedError:
            return
        except ray.exceptions.RayError:
            await asyncio.sleep(REST_S)


def _import_all() -> None:
    """All that any task may be made of, and take it out of the collector's way."""
    import_face()
    for package in (operators, state):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            with suppress(ImportError):  # a library that is not everywhere
                importlib.import_module(module.name)
    settle()


def import_face() -> None:
    """All that programs may name of this package. A module of theirs that has functions of a job is
    imported wherever these come, with all that it imports."""
    face = importlib.import_module(__name__.partition(".")[0])
    for name in face.__all__:
        with suppress(ImportError):  # a library that is not everywhere
            getattr(face, name)


def _import_parts(payload: bytes) -> None:
    with suppress(Exception):
        vertex, _ = cloudpickle.loads(payload)
        for operator in vertex.operators:
            build_operator(operator.spec, operator.implementation)
