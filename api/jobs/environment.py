"""`Environment`: where a program is collected, and turned into a job.

The environment collects operators. `execute` and its siblings build the job graph, check that it
can be shipped, hand it to the host and forget the operators, so that the next `execute` starts a
new job; streams made before may still be read by it.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal, Self

from ...core.config import JobConfig, RestartStrategy
from ...core.errors import ConfigurationError, StromError
from ...engine.graph.chaining import build_job_graph
from ...engine.graph.execution import build_execution_graph
from ...engine.graph.explain import describe, to_mermaid, to_text
from ...engine.graph.model import JobGraph, StreamGraph
from ...engine.graph.shipping import check_serialisable
from ...engine.graph.stream_graph import build_stream_graph
from ...engine.graph.transformation import Input, Transformation
from ...plan.known_columns import foretell
from ...plan.program import plan
from ..functions.validation import require_positive
from ..specs.records import OperatorSpec
from ..types.durations import Interval, to_ms, to_timedelta
from .host import Host, JobClient, JobExecutionResult, open_host
from .settings import CheckpointConfig

DEFAULT_JOB_NAME = "strom job"

DEFAULT_HOST = "local"

ExplainFormat = Literal["text", "mermaid", "json"]

GraphLevel = Literal["stream", "job", "execution"]


class Environment:
    """What of `StreamExecutionEnvironment` knows no streams: settings, graphs, running."""

    def __init__(self, config: JobConfig, host: str | Host, **host_options: Any) -> None:
        self._config = config
        """The settings that have no place of their own below."""
        self._parallelism = config.parallelism
        self._max_parallelism = config.max_parallelism
        self._checkpoint = CheckpointConfig(config.checkpoint)
        self._transformations: list[Transformation] = []
        """Operators of the job being written, in order of creation."""
        self._created = 0
        """Operators ever created; the next one's id."""
        self._host = host
        self._host_options = host_options
        self._opened: Host | None = None
        """The host, once opened."""

    # --- settings ----------------------------------------------------------------------------

    def set_parallelism(self, parallelism: int) -> Self:
        """For operators created from now on that set none of their own."""
        self._parallelism = require_positive("set_parallelism", "parallelism", parallelism)
        return self

    def get_parallelism(self) -> int:
        return self._parallelism

    def set_max_parallelism(self, max_parallelism: int) -> Self:
        """The number of key groups of operators that set none of their own."""
        self._max_parallelism = require_positive(
            "set_max_parallelism", "max_parallelism", max_parallelism, 32768
        )
        return self

    def get_max_parallelism(self) -> int:
        return self._max_parallelism

    def set_buffer_timeout(self, timeout: Interval) -> Self:
        """How long a record may wait for its buffer to fill (timedelta or ms); 0: not at all."""
        exchange = replace(
            self._config.exchange, buffer_timeout=to_timedelta(timeout, "buffer_timeout")
        )
        self._config = replace(self._config, exchange=exchange)
        return self

    def get_buffer_timeout(self) -> int:
        """Milliseconds."""
        return to_ms(self._config.exchange.buffer_timeout)

    def disable_operator_chaining(self) -> Self:
        """Every operator in a task of its own."""
        self._config = replace(self._config, chaining=False)
        return self

    def set_attached(self, attached: bool | None) -> Self:
        """Whether jobs on Ray end with this program (True) or outlive it (False); None: those that
        it waits for end with it, those of `execute_async` outlive it."""
        self._config = replace(self._config, attached=attached)
        return self

    def is_chaining_enabled(self) -> bool:
        return self._config.chaining

    def enable_checkpointing(self, interval: Interval, storage: str | None = None) -> Self:
        """Checkpoint every `interval` (timedelta or ms), into `storage` (fsspec URL or path) if
        given, else where `get_checkpoint_config()` says."""
        self._checkpoint.set_checkpoint_interval(interval)
        if storage is not None:
            self._checkpoint.set_checkpoint_storage(storage)
        return self

    def get_checkpoint_interval(self) -> int | None:
        """Milliseconds, None while checkpointing is not enabled."""
        return self._checkpoint.get_checkpoint_interval()

    def get_checkpoint_config(self) -> CheckpointConfig:
        """The checkpoint settings of this environment, to change in place."""
        return self._checkpoint

    def set_restart_strategy(self, restart: RestartStrategy | None) -> Self:
        """One of `RestartStrategies`. None: exponential delay if checkpointing, else no restart."""
        if restart is not None and not isinstance(restart, RestartStrategy):
            raise ConfigurationError(
                f"set_restart_strategy: expected one of RestartStrategies, got {restart!r}"
            )
        self._config = replace(self._config, restart=restart)
        return self

    def get_config(self) -> JobConfig:
        """The settings as the next job will get them."""
        return replace(
            self._config,
            parallelism=self._parallelism,
            max_parallelism=self._max_parallelism,
            checkpoint=self._checkpoint.value,
        )

    def set_host(self, host: str | Host, **host_options: Any) -> Self:
        """Where jobs run from now on; the host opened so far is closed."""
        self.close()
        self._host, self._host_options = host, host_options
        return self

    # --- graphs ------------------------------------------------------------------------------

    def get_stream_graph(self, job_name: str | None = None) -> StreamGraph:
        """What has been written so far; GraphError if it is not runnable."""
        name = job_name or DEFAULT_JOB_NAME
        graph = build_stream_graph(self._transformations, name, self.get_config())
        return plan(graph)

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

    def execute(self, job_name: str | None = None) -> JobExecutionResult:
        """Run the job to its end. An interrupt (Ctrl-C, on Ray also SIGTERM) cancels it and waits
        for that as long as its tasks may take, unless it is detached (`set_attached`)."""
        graph = self._waited_for(self.get_job_graph(job_name))
        client = self._submit(graph)
        try:
            return client.get_job_execution_result()
        except StromError:
            raise
        except BaseException:
            if client.ends_with_program:
                with suppress(TimeoutError, StromError):
                    client.cancel(graph.config.cancellation_timeout)
            raise

    def execute_async(self, job_name: str | None = None) -> JobClient:
        """Start the job and return at once. On Ray it outlives this program, unless it is attached
        (`set_attached`)."""
        return self._submit(self.get_job_graph(job_name))

    def close(self) -> None:
        """Close the host if it was opened here by name. The environment stays usable."""
        opened, self._opened = self._opened, None
        if opened is not None and isinstance(self._host, str):
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
        operator = Transformation(self._created, spec, name, inputs, self._parallelism, **settings)
        self._created += 1
        self._transformations.append(operator)
        return operator

    def _withdraw(self, operator: Transformation) -> None:
        """Take back an operator nobody reads."""
        self._transformations.remove(operator)

    def _waited_for(self, graph: JobGraph) -> JobGraph:
        """The graph of a job that this program waits for: attached, unless told otherwise."""
        if graph.config.attached is not None:
            return graph
        return replace(graph, config=replace(graph.config, attached=True))

    def _submit(self, graph: JobGraph) -> JobClient:
        check_serialisable(graph)
        if self._opened is None:
            self._opened = open_host(self._host, self._host_options)
        client = self._opened.submit(graph, graph.name)
        self._transformations.clear()
        self._config = replace(self._config, restore_from=None)
        return client
