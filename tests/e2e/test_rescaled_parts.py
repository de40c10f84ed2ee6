"""Jobs of several pipelines, of which some go on at another parallelism while the others run on:
every record comes out once."""

from __future__ import annotations

import threading
from collections import defaultdict
from itertools import accumulate
from pathlib import Path
from typing import Any

from chaos_kit import config, environment, until, within
from drawn_ways import assert_equivalent
from held_source import HeldSource
from strom.api.jobs.host import open_host
from strom.benchmarks.regions import NUMBERS, numbers, read_numbers
from strom.connectors.files import FileSink
from strom.testing.equivalence import Ways
from strom.testing.scripted import Pause, ScriptedSource

COUNT = 1500

LANES = {"first": 3, "second": 2, "alone": 4}


def slowly(lane: int) -> list[Any]:
    return [one for i in range(20) for one in ((lane, i), Pause(2))]


def islands(env: Any) -> dict[str, Any]:
    """Two pipelines with an exchange and state, and one of which each subtask is alone."""
    read = {
        name: env.from_source(ScriptedSource(map(slowly, range(lanes))), source_name=name)
        for name, lanes in LANES.items()
    }
    sums = {
        name: read[name].key_by(lambda r: (r[0], r[1] % 5)).reduce(lambda a, b: (a[0], a[1] + b[1]))
        for name in ("first", "second")
    }
    return {**sums, "alone": read["alone"].map(lambda r: (*r, 0))}


def expected() -> list[Any]:
    found = [("alone", (lane, i, 0)) for lane in range(LANES["alone"]) for i in range(20)]
    for name in ("first", "second"):
        values = defaultdict(list)
        for lane in range(LANES[name]):
            for i in range(20):
                values[lane, i % 5].append(i)
        found += [(name, (k[0], n)) for k, vs in values.items() for n in accumulate(vs)]
    return found


def test_every_way() -> None:
    assert_equivalent(islands, expected(), Ways(seeds=range(3), rescales=4, crash_window=150))


def test_the_others_neither_stop_nor_begin_again(tmp_path: Path) -> None:
    """First from two to three, then the other one to one."""
    latch = threading.Event()
    env = environment(config(tmp_path / "state", interval_ms=50, batch_size=20))
    for name in ("first", "second"):
        source = HeldSource(numbers, COUNT, latch, 50, 1000.0, splits=6, block=10, schema=NUMBERS)
        read = env.from_source(source, source_name=name).uid(name).rebalance()
        noted = read.map_batches(lambda batch: batch).name(f"{name} on").uid(f"{name} on")
        noted.sink_to(FileSink(tmp_path / name))
    client: Any = open_host("local").submit(env.get_job_graph("islands"), "islands")

    def attempts(name: str) -> list[int]:
        tasks = client.view()["tasks"]
        mine = [v["id"] for v in client.view()["vertices"] if v["name"].startswith(name)]
        return [task["attempt"] for task in tasks if task["vertex"] in mine]

    until(lambda: client.metrics()["checkpoints"]["completed"] > 1, "two checkpoints")
    made = client.rescale({"first": 3, "first on": 3}).result(30)
    assert (made.stopped_tasks, made.kept_tasks) == (4, 4)
    assert attempts("second") == [0] * 4
    assert len(attempts("first")) == 6
    assert min(attempts("first")) > 0
    before = attempts("first")
    made = client.rescale({"second": 1, "second on": 1}).result(30)
    assert (made.stopped_tasks, made.kept_tasks) == (4, 6)
    assert attempts("first") == before
    last = client.metrics()["last_rescale"]
    assert (last["stopped_tasks"], last["kept_tasks"]) == (4, 6)
    assert client.metrics()["rescales"] == 2
    latch.set()
    result = within(60.0, "the end", client.get_job_execution_result)
    assert result.restarts == 0
    for name in ("first", "second"):
        assert sorted(read_numbers(tmp_path / name)) == list(range(COUNT))
