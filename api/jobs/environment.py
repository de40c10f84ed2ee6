"""`Environment`: where a program is collected, and turned into a job.

The environment collects operators. `execute` and its siblings build the job graph, check that it
can be shipped, hand it to the host and forget the operators, so that the next `execute` starts a
new job; streams made before may still be read by it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal, Self

from ...core.checks import check_kind
from ...core.config import JobConfig, RestartStrategy
from ...core.errors import ConfigurationError, StromError
from ...engine.graph.chaining import build_job_graph
from ...engine.graph.execution import build_execution_graph
from ...engine.graph.explain import describe, to_mermaid, to_text
from ...engine.graph.model import JobGraph, StreamGraph
from ...engine.graph.shipping import check_serialisable
from ...engine.graph.stream_graph import build_stream_graph, check_uids
from ...engine.graph.transformation import Input, Transformation
from ...plan.known_columns import foretell
from ...plan.program import plan
from ..configuration.applying import (
    configure,
    default_local_parallelism,
    set_default_local_parallelism,
)
from ..configuration.checkpoints import CheckpointConfig
from ..configuration.configuration import Configuration
from ..configuration.current import current
from ..configuration.execution_config import ExecutionConfig
from ..configuration.groups import set_restart
from ..configuration.job_files import with_archive, with_cached, with_requirements
from ..configuration.memory import MemorySize
from ..configuration.modes import CheckpointingMode, RuntimeExecutionMode
from ..configuration.record_options import record_to
from ..configuration.settings import Settings, buffer_timeout_ms
from ..configuration.slots import SlotSharingGroup
from ..configuration.state_backends import current_backend, set_backend
from ..configuration.storage import CheckpointStorage, StateBackend
from ..functions.validation import require_positive, require_text
from ..specs.records import OperatorSpec
from ..types.declared import Declared
from ..types.durations import Interval
from .autoscaled import check_autoscaled, warn_of_strangers
from .caches import Caches
from .dashboard import Dashboard
from .host import (
    DetachedJobExecutionResult,
    Host,
    JobClient,
    JobExecutionResult,
    default_host,
    open_host,
)
from .recording import check_recorded
from .refused import Refused
from .state_backends import with_backends

log = logging.getLogger("strom")

DEFAULT_JOB_NAME = "strom job"

ExplainFormat = Literal["text", "mermaid", "json"]

GraphLevel = Literal["stream", "job", "execution"]


class Environment(Refused):
    """What of `StreamExecutionEnvironment` knows no streams: settings, graphs, running."""

    def __init__(
        self, config: JobConfig | None, host: str | Host | None, **host_options: Any
    ) -> None:
        """host None: what a configuration says, else Ray in a program that was handed to a cluster,
        else the local one."""
        self._settings = Settings.of(config or JobConfig())
        set_restart(self._settings, self._settings.base.restart)
        self._execution_config = ExecutionConfig(self._settings)
        self._transformations: list[Transformation] = []
        """Operators of the job being written, in order of creation."""
        self._created = 0
        """Operators ever created; the next one's id."""
        self._host = host
        self._host_options = host_options
        self._opened: Host | None = None
        """The host, once opened."""
        self._dashboard = Dashboard()
        """The dashboard of the last job that was to have one."""
        self._caches = Caches(self._open)

    # --- settings ----------------------------------------------------------------------------

    def configure(self, configuration: Configuration) -> Self:
        """Set what the configuration says, over what was set before. ConfigurationError names a
        key that is not known, or a value that is none, and the nearest that there are."""
        check_kind("configuration", configuration, Configuration)
        before = self._host_now()
        configure(self._settings, configuration)
        if self._host_now() != before:
            self.close()
        return self

    def get_configuration(self) -> Configuration:
        """A copy of all that configurations and setters have said so far."""
        return current(self._settings)

    def get_config(self) -> ExecutionConfig:
        """The settings of this environment, to change in place."""
        return self._execution_config

    def get_job_config(self) -> JobConfig:
        """The settings as the next job will get them: plain data."""
        return self._settings.job_config()

    def set_parallelism(self, parallelism: int) -> Self:
        """For operators created from now on that set none of their own."""
        self._settings.parallelism = require_positive("set_parallelism", "parallelism", parallelism)
        return self

    def get_parallelism(self) -> int:
        return self._settings.parallelism

    def get_default_local_parallelism(self) -> int:
        """Of the environments that this program makes from now on and configures in no way."""
        return default_local_parallelism()

    def set_default_local_parallelism(self, parallelism: int) -> None:
        set_default_local_parallelism(
            require_positive("set_default_local_parallelism", "parallelism", parallelism)
        )

    def set_max_parallelism(self, max_parallelism: int) -> Self:
        """The number of key groups of operators that set none of their own."""
        self._settings.max_parallelism = require_positive(
            "set_max_parallelism", "max_parallelism", max_parallelism, 32768
        )
        return self

    def get_max_parallelism(self) -> int:
        return self._settings.max_parallelism

    def register_slot_sharing_group(self, slot_sharing_group: SlotSharingGroup) -> Self:
        """What the slots of the group take, of operators that name it."""
        check_kind("slot_sharing_group", slot_sharing_group, SlotSharingGroup)
        known = self._settings.base.slot_resources
        new = {slot_sharing_group.name: slot_sharing_group.resources()}
        self._settings.change(slot_resources={**known, **new})
        return self

    def add_python_file(self, file_path: str) -> None:
        """A Python file, an archive (.zip, .whl) or a folder of modules that functions import from:
        sent along with the job on Ray, put on the path of this process on the local host."""
        require_text("add_python_file", "file_path", file_path)
        self._settings.add_python_file(file_path)

    def add_python_archive(self, archive_path: str, target_dir: str | None = None) -> None:
        """A zip or tar that is unpacked where functions run: they open `<target>/<path within>`,
        the target being `target_dir`, by default the archive's file name. What they write beside
        it is theirs to fetch; the archive goes with the job."""
        require_text("add_python_archive", "archive_path", archive_path)
        self._settings.change_files(with_archive, archive_path, target_dir)

    def set_python_requirements(
        self, requirements_file_path: str, requirements_cache_dir: str | None = None
    ) -> None:
        """Packages that functions need. On Ray the processes of the job get them by pip, from
        `requirements_cache_dir` alone if it is given: a folder that all nodes reach under this
        path. On the local host they must be there: a job is refused that lacks some."""
        require_text("set_python_requirements", "requirements_file_path", requirements_file_path)
        if requirements_cache_dir is not None:
            require_text("set_python_requirements", "cache_dir", requirements_cache_dir)
        self._settings.change_files(
            with_requirements, requirements_file_path, requirements_cache_dir
        )

    def register_cached_file(self, file_path: str, name: str, executable: bool = False) -> None:
        """A file or folder, of this machine or by an fsspec URL, that each machine of a job gets a
        copy of; functions find it by `runtime_context.get_distributed_cache().get_file(name)`."""
        require_text("register_cached_file", "file_path", file_path)
        require_text("register_cached_file", "name", name)
        check_kind("executable", executable, bool)
        self._settings.change_files(with_cached, file_path, name, executable)

    def set_runtime_mode(self, execution_mode: RuntimeExecutionMode) -> Self:
        """STREAMING or AUTOMATIC, which is the same; BATCH raises ConfigurationError."""
        check_kind("execution_mode", execution_mode, RuntimeExecutionMode)
        self._settings.check_runtime_mode(execution_mode)
        return self

    def set_buffer_timeout(self, timeout_millis: Interval) -> Self:
        """How long a record may wait for its buffer to fill (timedelta or ms); 0: not at all, -1:
        until it is full."""
        self._settings.set_buffer_timeout(timeout_millis)
        return self

    def get_buffer_timeout(self) -> int:
        """Milliseconds."""
        return buffer_timeout_ms(self._settings.base.exchange.buffer_timeout)

    def disable_operator_chaining(self) -> Self:
        """Every operator in a task of its own."""
        self._settings.change(chaining=False)
        return self

    def is_chaining_enabled(self) -> bool:
        return self._settings.base.chaining

    def is_chaining_of_operators_with_different_max_parallelism_enabled(self) -> bool:
        """Never: they are in tasks of their own."""
        return False

    def set_attached(self, attached: bool | None) -> Self:
        """Whether jobs on Ray end with this program (True) or outlive it (False); None: those that
        it waits for end with it, those of `execute_async` outlive it."""
        self._settings.change(attached=attached)
        return self

    def enable_checkpointing(
        self,
        interval: Interval,
        mode: CheckpointingMode | None = None,
        *,
        storage: CheckpointStorage | str | None = None,
    ) -> Self:
        """Checkpoint every `interval` (timedelta or ms), into `storage` (fsspec URL or path) if
        given, else where `get_checkpoint_config()` says. `mode`: either is exactly-once here."""
        if mode is not None:
            if isinstance(mode, str):
                raise ConfigurationError(
                    f"enable_checkpointing: mode must be a CheckpointingMode, is {mode!r}; for a "
                    "folder write storage="
                )
            self.get_checkpoint_config().set_checkpointing_mode(mode)
        self.get_checkpoint_config().set_checkpoint_interval(interval)
        if storage is not None:
            self.get_checkpoint_config().set_checkpoint_storage(storage)
        return self

    def get_checkpoint_interval(self) -> int:
        """Milliseconds, -1 while checkpointing is not enabled."""
        return self.get_checkpoint_config().get_checkpoint_interval()

    def get_checkpointing_mode(self) -> CheckpointingMode:
        return self.get_checkpoint_config().get_checkpointing_mode()

    get_checkpointing_consistency_mode = get_checkpointing_mode

    def is_unaligned_checkpoints_enabled(self) -> bool:
        return self.get_checkpoint_config().is_unaligned_checkpoints_enabled()

    def is_force_unaligned_checkpoints(self) -> bool:
        return self.get_checkpoint_config().is_force_unaligned_checkpoints()

    def get_checkpoint_config(self) -> CheckpointConfig:
        """The checkpoint settings of this environment, to change in place."""
        return self._settings.checkpoint

    def set_default_savepoint_directory(self, directory: str) -> Self:
        """Where the next job's savepoints go if the one who asks does not say: an fsspec URL or
        path that all tasks reach."""
        check_kind("directory", directory, str)
        self._settings.change(savepoint_directory=directory)
        return self

    def get_default_savepoint_directory(self) -> str | None:
        return self._settings.base.savepoint_directory

    def set_state_backend(self, state_backend: StateBackend | str) -> Self:
        """What holds the keyed state of all operators that choose none of their own: a
        `HashMapStateBackend`, an `EmbeddedRocksDBStateBackend`, or the name of one."""
        set_backend(self._settings, state_backend)
        return self

    def get_state_backend(self) -> StateBackend:
        return current_backend(self._settings)

    def enable_changelog_state_backend(self, enabled: bool) -> Self:
        """False only: checkpoints hold the state as it is."""
        if enabled:
            raise ConfigurationError("there is no changelog state backend: leave it disabled")
        return self

    def is_changelog_state_backend_enabled(self) -> bool:
        return False

    def set_restart_strategy(self, restart_strategy: RestartStrategy | None) -> Self:
        """One of `RestartStrategies`. None: what the configuration says; else exponential delay if
        checkpointing, no restart if not."""
        if not isinstance(restart_strategy, RestartStrategy | None):
            raise ConfigurationError(
                f"set_restart_strategy: expected one of RestartStrategies, got {restart_strategy!r}"
            )
        set_restart(self._settings, restart_strategy)
        return self

    def get_restart_strategy(self) -> RestartStrategy:
        """What the next job does when it fails."""
        return self.get_job_config().effective_restart

    def set_host(self, host: str | Host, **host_options: Any) -> Self:
        """Where jobs run from now on; the host opened so far is closed."""
        self.close()
        self._host, self._host_options = host, host_options
        return self

    def record(
        self, path: str, operators: Iterable[str], max_size: MemorySize | str | None = None
    ) -> Self:
        """Keep what these operators get (by uid, name or id) since their last checkpoint, below
        `path`, a path or fsspec URL that all tasks reach: `strom replay` runs them on it again.
        `max_size`: of what one subtask gets between two checkpoints; more is not recorded."""
        chosen = (operators,) if isinstance(operators, str) else tuple(operators)
        record_to(self._settings, path, chosen, max_size)
        return self

    # --- graphs ------------------------------------------------------------------------------

    def get_stream_graph(self, job_name: str | None = None) -> StreamGraph:
        """What has been written so far; GraphError if it is not runnable."""
        config = self.get_job_config()
        restored = config.restore_from is not None
        operators = self._caches.resolve(self._transformations, restored)
        graph = build_stream_graph(operators, self._name_of(job_name), config)
        if not self._settings.auto_uids:
            check_uids(graph)
        return plan(with_backends(graph))

    def get_job_graph(self, job_name: str | None = None) -> JobGraph:
        return build_job_graph(self.get_stream_graph(job_name))

    def explain(self, format: ExplainFormat = "text", level: GraphLevel = "job") -> str:
        """The program as text, a Mermaid flowchart or JSON; of operators ("stream"), of chains
        ("job") or of subtasks ("execution"). Each operator is shown with what it runs as and, where
        there is a faster form, why it was not taken."""
        stream = foretell(self.get_stream_graph())
        match level:
            case "stream":
                description = describe(stream)
            case "job":
                description = describe(build_job_graph(stream))
            case "execution":
                description = describe(build_execution_graph(build_job_graph(stream)))
            case _:
                raise ConfigurationError(f"explain: no level {level!r}: stream, job, execution")
        match format:
            case "text":
                return to_text(description)
            case "mermaid":
                return to_mermaid(description)
            case "json":
                return json.dumps(description, indent=2)
        raise ConfigurationError(f"explain: no format {format!r}; there are text, mermaid, json")

    def get_execution_plan(self) -> str:
        """The job graph as JSON."""
        return self.explain("json")

    # --- running -----------------------------------------------------------------------------

    def execute(
        self, job_name: str | None = None, *, dashboard: bool = False
    ) -> JobExecutionResult:
        """Run the job to its end. An interrupt (Ctrl-C, on Ray also SIGTERM) cancels it and waits
        for that as long as its tasks may take, unless it is detached (`set_attached`). On Ray it
        may be told not to wait (`JobConfig.wait`): a DetachedJobExecutionResult.

        `dashboard`: print a link to pages that show the job, in a browser on this machine. They
        stay, also when it is over, until the next such job, `close`, or the end of the program."""
        graph = self.get_job_graph(job_name)
        if not graph.config.wait and self._host_now() == "ray":
            client = self._submit(graph)
            self._dashboard.show(client, dashboard)
            return DetachedJobExecutionResult(str(client.get_job_id()), 0.0)
        graph = self._waited_for(graph)
        client = self._submit(graph)
        try:
            self._dashboard.show(client, dashboard)
            return client.get_job_execution_result()
        except StromError:
            raise
        except BaseException:
            if client.ends_with_program:
                with suppress(TimeoutError, StromError):
                    client.cancel(graph.config.cancellation_timeout)
            raise

    def execute_async(self, job_name: str | None = None, *, dashboard: bool = False) -> JobClient:
        """Start the job and return at once. On Ray it outlives this program, unless it is attached
        (`set_attached`). `dashboard`: as of `execute`."""
        client = self._submit(self.get_job_graph(job_name))
        self._dashboard.show(client, dashboard)
        return client

    def close(self) -> None:
        """Close the host if it was opened here by name, and the dashboard, and free what is cached.
        The environment stays usable."""
        self._caches.close()
        self._dashboard.close()
        opened, self._opened = self._opened, None
        if opened is not None and not isinstance(self._host, Host):
            close = getattr(opened, "close", None)
            if close is not None:
                close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # --- inside ------------------------------------------------------------------------------

    def _add_operator(
        self, spec: OperatorSpec, name: str, inputs: tuple[Input, ...], **settings: Any
    ) -> Transformation:
        operator = Transformation(
            self._created, spec, name, inputs, self._settings.parallelism, **settings
        )
        self._created += 1
        self._transformations.append(operator)
        return operator

    def _keep(self, operator: Transformation, declared: Declared | None) -> None:
        """Have the records of the operator, one of PassSpec just added, cached."""
        self._created += 1  # of the sink that a job which makes them gets
        self._caches.add(operator, declared)

    def _withdraw(self, operator: Transformation) -> None:
        """Take back an operator nobody reads."""
        self._transformations.remove(operator)

    def _leave(self, operators: Iterable[Transformation]) -> None:
        """Of operators that a job of their own has run, the job being written keeps those that
        something else of it reads."""
        ran = {id(one) for one in operators}
        self._transformations[:] = [one for one in self._transformations if id(one) not in ran]

    def _open(self) -> Host:
        """The host, opened if it is not."""
        if self._opened is None:
            name, why = default_host()
            if why and self._host_said is None:
                log.info("the jobs of this program run on host '%s': %s", name, why)
            self._opened = open_host(self._host_now(), self._host_options)
        return self._opened

    @property
    def _host_said(self) -> str | Host | None:
        """What the program says counts more than an option."""
        return self._host if self._host is not None else self._settings.host

    def _host_now(self) -> str | Host:
        return self._host_said or default_host()[0]

    def _waited_for(self, graph: JobGraph) -> JobGraph:
        """The graph of a job that this program waits for: attached, unless told otherwise."""
        if graph.config.attached is not None:
            return graph
        return replace(graph, config=replace(graph.config, attached=True))

    def _submit(self, graph: JobGraph) -> JobClient:
        client = self._start(graph)
        self._transformations.clear()
        self._settings.change(restore_from=None)
        return client

    def _start(self, graph: JobGraph) -> JobClient:
        """Run the job, and leave the one that is being written as it is."""
        check_recorded(graph)
        check_autoscaled(graph.config)
        warn_of_strangers(graph)
        check_serialisable(graph)
        client = self._open().submit(graph, graph.name)
        self._caches.submitted((o.spec for v in graph.vertices for o in v.operators), client)
        return client

    def _name_of(self, job_name: str | None) -> str:
        """Of the next job, which may have been given one."""
        return job_name or self._settings.job_name or DEFAULT_JOB_NAME
