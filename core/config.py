"""A job's configuration: few options, typed, in one place."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, get_args

from .adaptive_config import AdaptiveConfig
from .autoscaler_config import AutoscalerConfig
from .checkpointing_mode import CheckpointingMode
from .checks import check_count, check_duration, check_kind, check_number
from .commit_config import CommitConfig
from .errors import ConfigurationError
from .job_files import JobFiles
from .logging_config import LoggingConfig
from .metrics_config import MetricsConfig
from .record_config import RecordConfig
from .retention import ExternalizedCheckpointRetention
from .state_config import StateConfig
from .traces_config import TracesConfig


def check_runtime_env(said: dict[str, Any]) -> None:
    """ConfigurationError for what Ray could not give to processes of other machines."""
    check_kind("runtime_env", said, dict)
    for name in ("working_dir", "py_modules"):
        value = said.get(name) or ()
        for one in (value,) if isinstance(value, str) else value:
            if "://" not in str(one):
                raise ConfigurationError(
                    f"runtime_env: {name} '{one}' is a folder of this machine, which a job that is "
                    "started again elsewhere would lack: give add_python_file (python.files, "
                    "`strom run --working-dir`) that, or the URL of a zip here"
                )


class RestartStrategyConfiguration:
    """What a job does when it fails."""

    def get_description(self) -> str:
        """For people."""
        return repr(self)


@dataclass(frozen=True)
class NoRestart(RestartStrategyConfiguration):
    """A failure fails the job."""


@dataclass(frozen=True)
class FixedDelayRestart(RestartStrategyConfiguration):
    """Restart at most `attempts` times, waiting `delay` before each."""

    attempts: int = 3
    delay: timedelta = timedelta(milliseconds=200)

    def __post_init__(self) -> None:
        check_count("restart attempts", self.attempts, 0)
        check_duration("restart delay", self.delay)


@dataclass(frozen=True)
class ExponentialDelayRestart(RestartStrategyConfiguration):
    """Restart for ever; the delay doubles from `initial` to `maximum` (times `1 +- jitter`) and
    falls back to `initial` after running for `reset_after` without failure."""

    initial: timedelta = timedelta(milliseconds=200)
    maximum: timedelta = timedelta(minutes=1)
    multiplier: float = 2.0
    jitter: float = 0.1
    reset_after: timedelta = timedelta(minutes=5)

    def __post_init__(self) -> None:
        check_duration("restart initial", self.initial)
        check_duration("restart maximum", self.maximum)
        check_duration("restart reset_after", self.reset_after)
        check_number("restart multiplier", self.multiplier, 1.0)
        check_number("restart jitter", self.jitter, 0.0)
        if self.jitter > 1:
            raise ConfigurationError(f"restart jitter must be at most 1, is {self.jitter}")
        if self.maximum < self.initial:
            raise ConfigurationError(
                f"restart maximum {self.maximum} is less than initial {self.initial}"
            )


@dataclass(frozen=True)
class FailureRateRestart(RestartStrategyConfiguration):
    """Restart while no more than `failures` happen within `interval`, waiting `delay` before
    each."""

    failures: int = 3
    interval: timedelta = timedelta(minutes=5)
    delay: timedelta = timedelta(milliseconds=200)

    def __post_init__(self) -> None:
        check_count("restart failures", self.failures, 0)
        check_duration("restart interval", self.interval)
        check_duration("restart delay", self.delay)


RestartStrategy = NoRestart | FixedDelayRestart | ExponentialDelayRestart | FailureRateRestart

FailoverStrategy = Literal["region", "full"]


@dataclass(frozen=True)
class CheckpointConfig:
    """When and where checkpoints are taken. `interval` None: only the terminal commit of sinks.

    storage: an fsspec URL or path; None keeps checkpoints in the coordinator's memory, which
    survives the loss of any task but not of the coordinator.
    """

    interval: timedelta | None = None
    storage: str | None = None
    timeout: timedelta = timedelta(minutes=10)
    min_pause: timedelta = timedelta(0)
    max_concurrent: int = 1
    """So many may be on their way at once; see `at_once`."""
    tolerable_failures: int = 0
    retained: int = 1
    retention: ExternalizedCheckpointRetention = (
        ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
    )
    """Whether checkpoints outlive the job."""
    incremental: bool = True
    """Whether a checkpoint may leave out what did not change since the one before (in a storage
    that is not the coordinator's memory)."""
    full_every: int | None = None
    """Every so many checkpoints one leaves out nothing; None: only where that is cheaper."""
    local_recovery: bool = False
    """Whether a task that restarts reads its machine's own copies of the files of the checkpoint,
    as far as there are any, and not the storage."""
    local_backup: bool | None = None
    """Whether tasks keep such copies; None: if they are read."""
    local_dirs: tuple[str, ...] = ()
    """Folders for them, on every machine; none: the system's folder for temporary files."""
    mode: CheckpointingMode = CheckpointingMode.EXACTLY_ONCE
    unaligned: bool = False
    """Whether a barrier overtakes the records that wait before it. With EXACTLY_ONCE only."""
    alignment_timeout: timedelta = timedelta(0)
    """From the trigger of an unaligned checkpoint until its barriers overtake; aligned before."""

    @property
    def overtakes(self) -> bool:
        """Whether checkpoints are unaligned, or may become so."""
        return self.unaligned and self.mode is CheckpointingMode.EXACTLY_ONCE

    @property
    def at_once(self) -> int:
        """How many of them are on their way at most. Unaligned ones, whose barriers overtake, and
        those between which there is to be a pause are taken one at a time, whatever was said."""
        return 1 if self.overtakes or self.min_pause else self.max_concurrent

    @property
    def only_commits(self) -> bool:
        """Whether the one checkpoint is the terminal one, for the sinks: nobody can start from it,
        so it holds no keyed state, which may be large."""
        return self.interval is None and self.storage is None

    @property
    def keeps_copies(self) -> bool:
        """Whether tasks keep copies of what they write on their machine, if it goes elsewhere than
        into the coordinator's memory."""
        return self.local_recovery if self.local_backup is None else self.local_backup

    def frozen(self) -> CheckpointConfig:
        """The plain data of it, which is not changed any more."""
        return self

    def __post_init__(self) -> None:
        if self.interval is not None:
            check_duration("checkpoint interval", self.interval, positive=True)
        check_kind("checkpoint storage", self.storage, str, type(None))
        check_duration("checkpoint timeout", self.timeout, positive=True)
        check_duration("checkpoint min_pause", self.min_pause)
        check_count("checkpoint max_concurrent", self.max_concurrent, 1)
        if self.full_every is not None:
            check_count("checkpoint full_every", self.full_every, 1)
        check_count("checkpoint tolerable_failures", self.tolerable_failures, 0)
        check_count("checkpoints retained", self.retained, 1)
        check_kind("checkpoint retention", self.retention, ExternalizedCheckpointRetention)
        check_kind("checkpoint incremental", self.incremental, bool)
        check_kind("checkpoint local_recovery", self.local_recovery, bool)
        check_kind("checkpoint local_backup", self.local_backup, bool, type(None))
        check_kind("checkpoint local_dirs", self.local_dirs, tuple)
        check_kind("checkpoint mode", self.mode, CheckpointingMode)
        check_kind("checkpoint unaligned", self.unaligned, bool)
        check_duration("checkpoint alignment_timeout", self.alignment_timeout)


@dataclass(frozen=True)
class ExchangeConfig:
    """Flow control. In-flight bytes of one channel are at most
    `exclusive_buffers + floating_buffers` buffers at the receiver plus one input batch's output at
    the sender. A buffer holds up to `buffer_bytes`, an eighth and 64 KiB more at its seams, or
    one record that is larger."""

    buffer_bytes: int = 1 << 20
    min_buffer_bytes: int = 32 << 10
    exclusive_buffers: int = 2
    floating_buffers: int = 8
    buffer_timeout: timedelta = timedelta(milliseconds=10)
    shared_memory: bool = True
    """Whether buffers between tasks of one machine go through memory that both have."""
    bind_host: str | None = None
    """Where tasks listen. None: on the loopback interface, or on their machine's address as Ray
    knows it if the job's tasks are on several."""
    encrypted: bool = False
    """Whether connections between machines are encrypted, with a certificate that each job has of
    its own."""
    heartbeat_interval: timedelta = timedelta(seconds=10)
    heartbeat_timeout: timedelta = timedelta(seconds=50)
    """How long a peer on another machine may be silent before it counts as dead. Heartbeats are
    said three times within that at least, whatever the interval."""

    def __post_init__(self) -> None:
        check_count("buffer_bytes", self.buffer_bytes, 1)
        check_count("min_buffer_bytes", self.min_buffer_bytes, 1)
        check_count("exclusive_buffers", self.exclusive_buffers, 1)
        check_count("floating_buffers", self.floating_buffers, 0)
        check_duration("buffer_timeout", self.buffer_timeout)
        check_kind("shared_memory", self.shared_memory, bool)
        check_kind("bind_host", self.bind_host, str, type(None))
        check_kind("encrypted", self.encrypted, bool)
        check_duration("heartbeat_interval", self.heartbeat_interval, positive=True)
        check_duration("heartbeat_timeout", self.heartbeat_timeout, positive=True)


@dataclass(frozen=True)
class SlotResources:
    """What each slot of one slot sharing group takes of a Ray cluster. `cpus` None: as all slots
    do; `memory` in bytes, 0: none is set aside; `others` by the names that Ray has for them."""

    cpus: float | None = None
    memory: int = 0
    others: dict[str, float] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if self.cpus is not None:
            check_number("CPUs of a slot", self.cpus, 0.0)
        check_count("memory of a slot", self.memory, 0)
        for name, amount in self.others.items():
            _check_resource(name)
            check_number(f"amount of '{name}' of a slot", amount, 0.0)

    def bundle(self, cpus: float) -> dict[str, float]:
        """As Ray is asked for them; `cpus`: of a slot that says nothing."""
        asked = {"CPU": cpus if self.cpus is None else self.cpus, "memory": self.memory}
        return {name: amount for name, amount in {**asked, **self.others}.items() if amount}


_RESERVED = {
    "CPU": "say how many CPUs slots take (strom.slot.cpus, or set_cpu_cores of a group)",
    "memory": "say how much memory slots take (strom.slot.memory, or that of a group)",
    "object_store_memory": "Ray keeps it for itself; ask for memory",
    "bundle": "Ray keeps it for itself",
}


def _check_resource(name: str) -> None:
    """Ray ends nodes and coordinators that are asked for some of these, instead of an answer."""
    if not isinstance(name, str) or not name.strip():
        raise ConfigurationError(f"a resource of a slot must have a name, is called {name!r}")
    if name in _RESERVED or name.startswith(("node:", "bundle_group_")):
        advice = _RESERVED.get(name, "Ray keeps it for itself")
        raise ConfigurationError(f"'{name}' is no resource that slots can ask for: {advice}")


@dataclass(frozen=True)
class JobConfig:
    """Everything a job can be told; built by the environment, read-only afterwards."""

    parallelism: int = 1
    max_parallelism: int = 128
    batch_size: int = 16384
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    savepoint_directory: str | None = None
    """Where savepoints go if the one who asks does not say: an fsspec URL or path."""
    state: StateConfig = field(default_factory=StateConfig)
    """Which backend keeps keyed state, and what memory it may take."""
    exchange: ExchangeConfig = field(default_factory=ExchangeConfig)
    restart: RestartStrategy | None = None
    """None: exponential delay when checkpointing is enabled, else no restart."""
    failover_strategy: FailoverStrategy = "region"
    """What is restarted when a task fails: all tasks that exchange records with it, directly or
    not, while the others go on; or all tasks of the job."""
    restore_from: str | None = None
    """What to start from, at any parallelism: the folder of a savepoint, a checkpoint's
    `<root>/<job>/chk-<n>`, or `<root>/<job>` for its newest valid one. For one job: an environment
    forgets it once it has submitted that."""
    claim_restored: bool = False
    """Whether what `restore_from` names is the job's from then on, which deletes it when it is not
    needed any more, like a checkpoint of its own. Not: it is never changed."""
    allow_unmatched_state: bool = False
    """Whether a restore may drop state of operators that the job no longer has."""
    attached: bool | None = None
    """Whether the job ends with the program that submits it, however that ends. None: a job that
    the program waits for (`execute`, `execute_and_collect`) does, one of `execute_async` does not.
    Jobs on the local host always do."""
    wait: bool = True
    """Whether `execute` waits for the end of the job. Not: it returns once the job is submitted,
    which then is attached only if `attached` says so. Jobs on the local host are always waited
    for: they end with the program."""
    chaining: bool = True
    object_reuse: bool = False
    """Whether several readers of a record get one object, as they do anyway of what cannot be
    changed. Not: each gets its own, so that none sees what another changes."""
    column_pruning: bool = True
    """Whether sources that can leave out the columns that nobody reads."""
    local_combining: bool = True
    """Whether windows with built-in aggregates, and running aggregates of several senders, are
    combined before the exchange where that changes nothing but the cost."""
    compile_functions: bool = True
    """Whether functions of map, filter and key_by run on columns where that gives the same."""
    auto_watermark_interval: timedelta = timedelta(milliseconds=200)
    cancellation_timeout: timedelta = timedelta(seconds=10)
    metrics_interval: timedelta = timedelta(milliseconds=500)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    traces: TracesConfig = field(default_factory=TracesConfig)
    commit: CommitConfig = field(default_factory=CommitConfig)
    """How often sinks try to publish what a complete checkpoint holds."""
    record: RecordConfig = field(default_factory=RecordConfig)
    """Operators whose inputs are kept, to be run on again."""
    logging: LoggingConfig = field(default_factory=LoggingConfig)
    autoscaler: AutoscalerConfig = field(default_factory=AutoscalerConfig)
    """How parallelisms follow the load."""
    adaptive: AdaptiveConfig = field(default_factory=AdaptiveConfig)
    """What the job does where there is too little room for it."""
    slot_cpus: float = 1.0
    slot_resources: dict[str, SlotResources] = field(default_factory=dict)
    """Of slot sharing groups whose slots take something else than `slot_cpus`."""
    slot_memory: int = 0
    """Bytes that a slot sets aside of Ray's `memory`, where its group says nothing."""
    slot_others: dict[str, float] = field(default_factory=dict)
    """What else it takes then, by the names that Ray has for it (`GPU`)."""
    spread_slots: bool = False
    """Whether slots lie on as many machines as Ray can, evenly. Not: on as few."""
    slot_request_timeout: timedelta = timedelta(minutes=1)
    """How long a start of the job waits for the cluster to have its slots free."""
    slot_idle_timeout: timedelta = timedelta(seconds=50)
    """How long a session keeps the slots of the job when it has left them, for the next one."""
    job_parameters: dict[str, Any] = field(default_factory=dict)
    python_files: tuple[str, ...] = ()
    """Python files, archives and folders of the program's machine that its tasks import from."""
    job_files: JobFiles = field(default_factory=JobFiles)
    """What comes with the job besides: archives, cached files, requirements."""
    runtime_env: dict[str, Any] = field(default_factory=dict)
    """What Ray's runtime environments give to the processes of the job besides (`env_vars`, `pip`);
    files of the program's machine go by `python_files`."""

    def __post_init__(self) -> None:
        check_count("max_parallelism", self.max_parallelism, 1, 32768)
        check_count("parallelism", self.parallelism, 1)
        if self.parallelism > self.max_parallelism:
            raise ConfigurationError(
                f"parallelism must be in 1..max_parallelism ({self.max_parallelism}), "
                f"is {self.parallelism}"
            )
        check_count("batch_size", self.batch_size, 1)
        check_kind("checkpoint", self.checkpoint, CheckpointConfig)
        object.__setattr__(self, "checkpoint", self.checkpoint.frozen())
        check_kind("state", self.state, StateConfig)
        check_kind("exchange", self.exchange, ExchangeConfig)
        check_kind("restart", self.restart, *get_args(RestartStrategy), type(None))
        if self.failover_strategy not in get_args(FailoverStrategy):
            raise ConfigurationError(
                f"failover_strategy must be region or full, is {self.failover_strategy!r}"
            )
        check_kind("restore_from", self.restore_from, str, type(None))
        check_kind("claim_restored", self.claim_restored, bool)
        check_kind("savepoint_directory", self.savepoint_directory, str, type(None))
        check_kind("attached", self.attached, bool, type(None))
        check_kind("wait", self.wait, bool)
        check_kind("compile_functions", self.compile_functions, bool)
        check_duration("auto_watermark_interval", self.auto_watermark_interval)
        check_duration("cancellation_timeout", self.cancellation_timeout)
        check_duration("metrics_interval", self.metrics_interval)
        check_kind("metrics", self.metrics, MetricsConfig)
        check_kind("traces", self.traces, TracesConfig)
        check_kind("commit", self.commit, CommitConfig)
        check_kind("record", self.record, RecordConfig)
        check_kind("logging", self.logging, LoggingConfig)
        check_kind("autoscaler", self.autoscaler, AutoscalerConfig)
        check_kind("adaptive", self.adaptive, AdaptiveConfig)
        check_number("slot_cpus", self.slot_cpus, 0.0)
        check_kind("slot_resources", self.slot_resources, dict)
        SlotResources(None, self.slot_memory, self.slot_others)
        check_kind("spread_slots", self.spread_slots, bool)
        check_duration("slot_request_timeout", self.slot_request_timeout)
        check_duration("slot_idle_timeout", self.slot_idle_timeout)
        check_kind("job_parameters", self.job_parameters, dict)
        check_kind("python_files", self.python_files, tuple)
        check_kind("job_files", self.job_files, JobFiles)
        check_runtime_env(self.runtime_env)

    @property
    def effective_restart(self) -> RestartStrategy:
        if self.restart is not None:
            return self.restart
        return NoRestart() if self.checkpoint.interval is None else ExponentialDelayRestart()
