"""Independent pipelines in one job, of which one has a task killed again and again.

    pipeline i   paced numbers -> what notes when which came -> files

Each is a task, or two with an exchange between them (`exchange`).

First nothing happens for `quiet_s`, then a task of pipeline 0 is killed with SIGKILL every second,
for `kills_s`. What the others lose is told by their notes: a task that was started anew would begin
with numbers that were there before, and one that was held up would leave a gap. In the end the
files of all pipelines are read: each number must be there once.
"""

from __future__ import annotations

import os
import signal
import struct
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from strom import FixedDelayRestart
from strom.connectors.datagen import DataGenSource
from strom.connectors.files import FileSink

from .awaited import START_S, await_running
from .measure import Setting, environment

NOTE = struct.Struct("<dqq")
"""Time (s), first number, how many."""

NUMBERS = pa.schema([("n", pa.int64())])


def numbers(start: int, count: int) -> pa.RecordBatch:
    return pa.record_batch({"n": np.arange(start, start + count)})


class Noting:
    """Passes batches on, and notes each in a file of its process."""

    def __init__(self, folder: str, pipeline: int) -> None:
        self._path = f"{folder}/{pipeline}-"
        self._file: int | None = None

    def __call__(self, batch: Any) -> Any:
        if self._file is None:
            path = f"{self._path}{os.getpid()}-{time.time_ns()}"
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        first = batch.column(0)[0].as_py()
        os.write(self._file, NOTE.pack(time.time(), first, batch.num_rows))
        return batch


@dataclass(frozen=True)
class Notes:
    """Of one pipeline, in order of time."""

    times: list[float]
    firsts: list[int]
    counts: list[int]

    @staticmethod
    def of(folder: Path, pipeline: int) -> Notes:
        """What its processes have noted."""
        data = b"".join(path.read_bytes() for path in sorted(folder.glob(f"{pipeline}-*")))
        whole = data[: len(data) // NOTE.size * NOTE.size]
        rows = sorted(NOTE.iter_unpack(whole))
        return Notes(*(list(column) for column in zip(*rows, strict=True)))

    @property
    def replayed(self) -> int:
        """Numbers that came again."""
        reached = again = 0
        for first, count in zip(self.firsts, self.counts, strict=True):
            again += max(0, min(reached, first + count) - first)
            reached = max(reached, first + count)
        return again

    def between(self, start: float, end: float) -> tuple[float, float]:
        """Numbers a second, and the longest gap (s), in that time."""
        found = [
            (at, n) for at, n in zip(self.times, self.counts, strict=True) if start <= at < end
        ]
        times = [start, *(at for at, _ in found), end]
        gap = max(b - a for a, b in pairwise(times))
        return sum(n for _, n in found) / (end - start), gap


def measure_regions(
    pipelines: int, rate: int, quiet_s: float, kills_s: float, exchange: bool = False
) -> dict[str, Any]:
    """One line."""
    count = round(rate * (quiet_s + kills_s + 1.0))
    with tempfile.TemporaryDirectory(prefix="strom-bench-") as folder:
        root = Path(folder)
        for name in ("notes", "checkpoints", "files"):
            (root / name).mkdir()
        setting = Setting("regions", count, pipelines, "ray", 0.5)
        env = environment(setting, str(root / "checkpoints"))
        env.set_restart_strategy(FixedDelayRestart(10_000, timedelta(milliseconds=10)))
        for i in range(pipelines):
            source = DataGenSource(numbers, count, splits=1, rate=rate, schema=NUMBERS, block=256)
            stream = env.from_source(source, source_name=f"numbers {i}").set_parallelism(1)
            noted = stream.map_batches(Noting(str(root / "notes"), i)).name(f"notes {i}")
            noted.set_parallelism(1)
            if exchange:
                noted.start_new_chain()
            noted.sink_to(FileSink(root / "files" / str(i))).set_parallelism(1)
        client: Any = env.execute_async("regions")
        try:
            kills, quiet, killing = _kill_by_the_second(client, quiet_s, kills_s)
            client.get_job_execution_result(timedelta(seconds=START_S + 4 * kills_s))
        except BaseException:
            client.cancel()
            raise
        view = client.last_view(timedelta(seconds=10))
        assert view is not None
        notes = [Notes.of(root / "notes", i) for i in range(pipelines)]
        files = [read_numbers(root / "files" / str(i)) for i in range(pipelines)]
    victim, *others = range(pipelines)
    before = [notes[i].between(*quiet) for i in others]
    during = [notes[i].between(*killing) for i in others]
    attempts = _attempts(view)
    return {
        "name": "regions",
        "pipelines": pipelines,
        "rate": rate,
        "exchange": exchange,
        "host": "ray",
        "kills": kills,
        "restarts": view["restarts"],
        "victim_replayed": notes[victim].replayed,
        "others_restarted": sum(attempts[i] > 0 for i in others),
        "others_replayed": sum(notes[i].replayed for i in others),
        "others_per_s": round(sum(speed for speed, _ in before)),
        "others_per_s_with_kills": round(sum(speed for speed, _ in during)),
        "others_longest_gap_ms": round(max(gap for _, gap in before) * 1000),
        "others_longest_gap_ms_with_kills": round(max(gap for _, gap in during) * 1000),
        "lost": sum(count - len(set(found)) for found in files),
        "doubled": sum(len(found) - len(set(found)) for found in files),
    }


def _kill_by_the_second(
    client: Any, quiet_s: float, kills_s: float
) -> tuple[int, tuple[float, float], tuple[float, float]]:
    """How many tasks were killed, and between which times none and some were. A task that is not
    up again after a second is killed as soon as it is."""
    await_running(client)
    time.sleep(1.0)  # the first records, and the imports that they take
    start = time.time()
    time.sleep(quiet_s)
    middle = time.time()
    kills, killed = 0, set[int]()
    while (now := time.time()) < middle + kills_s:
        if now >= middle + kills and (pid := _victim(client.view(), killed)) is not None:
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)
            kills += 1
        time.sleep(0.02)
    return kills, (start, middle), (middle, time.time())


def _victim(view: Any, killed: Iterable[int]) -> int | None:
    """The last process of pipeline 0, if all of it is up."""
    names = {vertex["id"]: vertex["name"] for vertex in view["vertices"]}
    tasks = [task for task in view["tasks"] if _pipeline(names[task["vertex"]]) == 0]
    pids = {task["pid"] for task in tasks if task["status"] == "RUNNING"}
    if len(pids) < len(tasks) or None in pids or pids.intersection(killed):
        return None
    pid: int = tasks[-1]["pid"]
    return pid


def _attempts(view: Any) -> dict[int, int]:
    """The last attempt of each pipeline."""
    names = {vertex["id"]: vertex["name"] for vertex in view["vertices"]}
    return {_pipeline(names[task["vertex"]]): task["attempt"] for task in view["tasks"]}


def _pipeline(name: str) -> int:
    """Of a chain, by the name of its first operator."""
    return int(name.removeprefix("Source: ").split()[1])


def read_numbers(folder: Path) -> list[int]:
    files = [path for path in folder.glob("*.parquet") if path.is_file()]
    return [n for path in files for n in pq.read_table(path).column("n").to_pylist()]
