"""How a pipeline under test is turned into a job, and how the job's output is read.

A probe serves one run, which may take several jobs (stopped, and continued at another parallelism):
each asks for a graph of its own, all write to the same place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from ..api.connectors.builtin_sinks import CollectSink
from ..api.streams.data_stream import DataStream, StreamExecutionEnvironment
from ..api.streams.settings import DataStreamSink
from ..core.config import JobConfig
from ..core.ids import OperatorId
from ..engine.graph.model import JobGraph
from ..engine.graph.operator_ids import uid_operator_id

End = DataStream | DataStreamSink
"""A stream, which will be collected, or a sink that publishes lists of records by itself."""

Build = Callable[[StreamExecutionEnvironment], "End | Mapping[str, End]"]
"""Writes the pipeline into the environment and returns the stream whose records are compared, or
several by name."""

BuildFiles = Callable[[StreamExecutionEnvironment, Path], None]
"""Writes the pipeline with its sinks, which write into the folder."""

Published = Mapping[OperatorId, Iterable[Any]]
"""What sinks sent to the client: lists of records, by operator."""


def seen_once(
    *parts: Mapping[OperatorId, Mapping[str, Any]],
) -> dict[OperatorId, list[Any]]:
    """What the client saw of one job after the other, of each what was published under which key:
    what a later job published again counts once."""
    seen: dict[OperatorId, dict[str, Any]] = {}
    for part in parts:
        for operator, values in part.items():
            seen.setdefault(operator, {}).update(values)
    return {operator: list(values.values()) for operator, values in seen.items()}


class Probe(Protocol):
    """One pipeline in one run."""

    @property
    def sinks(self) -> Mapping[str, OperatorId]:
        """The operators whose published values `output` needs; known once there is a graph."""
        ...

    def graph(self, config: JobConfig) -> JobGraph: ...

    def output(self, published: Published) -> list[Any]:
        """Every record of the output. With several streams, pairs of name and record."""
        ...


class CollectProbe:
    """Collects what `build` returns."""

    def __init__(self, build: Build) -> None:
        self._build = build
        self._sinks: dict[str, OperatorId] = {}

    @property
    def sinks(self) -> Mapping[str, OperatorId]:
        return self._sinks

    def graph(self, config: JobConfig) -> JobGraph:
        return self.environment(config).get_job_graph("equivalence")

    def environment(self, config: JobConfig) -> StreamExecutionEnvironment:
        """A new one, with the pipeline and its sinks."""
        env = StreamExecutionEnvironment.get_execution_environment(config)
        built = self._build(env)
        ends = built if isinstance(built, Mapping) else {"": built}
        for name, end in ends.items():
            uid = f"collect-{name}"
            sink = end if isinstance(end, DataStreamSink) else end.sink_to(CollectSink())
            sink.name(f"Sink: Collect {name}".strip()).uid(uid)
            self._sinks[name] = uid_operator_id(uid)
        return env

    def output(self, published: Published) -> list[Any]:
        records: list[Any] = []
        for name, operator in self._sinks.items():
            for values in published.get(operator, ()):
                records += [(name, value) for value in values] if name else values
        return records


class FileProbe:
    """Runs a pipeline whose sinks write into `folder`; `read` gives the committed records."""

    def __init__(self, build: BuildFiles, read: Callable[[Path], list[Any]], folder: Path) -> None:
        self._build = build
        self._read = read
        self._folder = folder
        self._sinks: dict[str, OperatorId] = {}

    @property
    def sinks(self) -> Mapping[str, OperatorId]:
        return self._sinks

    def graph(self, config: JobConfig) -> JobGraph:
        env = StreamExecutionEnvironment.get_execution_environment(config)
        self._build(env, self._folder)
        return env.get_job_graph("equivalence")

    def output(self, published: Published) -> list[Any]:
        return self._read(self._folder)
