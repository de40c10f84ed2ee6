"""A job of three stages, with exchanges between them, that notes how often its readers and writers
are opened."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

from chaos_kit import ListSink, as_window_sums, config, environment, until, window_sums, windows_of
from chaos_kit import within as in_time
from leashed_source import Leashed
from strom.api.connectors.base import ReaderContext, SourceReader

COUNT = 12_000


class OpenedPairs(Leashed):
    """`Leashed`, which leaves a file for each reader."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "release", COUNT)
        self.folder = folder

    def create_reader(self, context: ReaderContext) -> SourceReader:
        note(self.folder, "reader")
        return super().create_reader(context)


class OpenedSink(ListSink):
    """Publishes, and leaves a file for each writer."""

    def __init__(self, folder: Path) -> None:
        super().__init__("nowhere", lambda: None)
        self.folder = folder

    def create_writer(self, context: Any) -> Any:
        note(self.folder, "writer")
        return super().create_writer(context)


def note(folder: Path, what: str) -> None:
    (folder / f"{what}-{uuid.uuid4().hex}").touch()


class Stages:
    """paced -> windows by key -> sink, at the parallelism 2. It has something to read until it is
    `finish`ed."""

    def __init__(self, folder: Path, host: str, unaligned: bool = False) -> None:
        self.folder = folder
        settings = config(folder / "state", interval_ms=100, chaining=False, batch_size=20)
        checkpoint = replace(settings.checkpoint, unaligned=unaligned)
        env = environment(replace(settings, checkpoint=checkpoint), host)
        stream = windows_of(env, OpenedPairs(folder)).rebalance()
        spec = stream.sink_to(OpenedSink(folder)).name("sink").operator.spec
        graph = env.get_job_graph(folder.name)
        operators = [o for vertex in graph.vertices for o in vertex.operators]
        self.sink = next(o.operator_id for o in operators if o.spec is spec)
        self.client = env._submit(graph)

    def opened(self, what: str) -> int:
        return len(list(self.folder.glob(f"{what}-*")))

    def tasks(self, name: str) -> list[tuple[int, int, int]]:
        """Of a vertex, whose tasks all run: subtasks, attempts, processes."""
        view = self.client.view()
        (vertex,) = [v for v in view["vertices"] if name in v["name"]]
        found = [task for task in view["tasks"] if task["vertex"] == vertex["id"]]
        return sorted((task["subtask"], task["attempt"], task["pid"]) for task in found)

    def checkpoint(self) -> None:
        """Another one is complete."""

        def completed() -> int:
            return int(self.client.metrics()["checkpoints"]["completed"])

        before = completed()
        until(lambda: completed() > before, "another checkpoint", 60.0)

    def kept(self) -> Any:
        """What its coordinator on Ray has written down for the next one."""
        record = self.folder / "state" / ".coordinators" / str(self.client.get_job_id())
        return json.loads((record / "term.json").read_bytes())["left"]

    def finish(self) -> Any:
        """To its end, which has to be right."""
        (self.folder / "release").touch()

        def read() -> list[Any]:
            return [value for part in self.client.published(self.sink) for value in part]

        values = in_time(90.0, "the rest", read)
        result = in_time(30.0, "the end", self.client.get_job_execution_result)
        assert as_window_sums(values) == window_sums(COUNT)
        return result
