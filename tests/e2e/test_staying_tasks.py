"""Jobs of which one vertex after the other goes on at another parallelism, while those around it
stand still and keep what they have."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path
from typing import Any

from drawn_ways import assert_equivalent
from stages_kit import Stages
from strom.testing.equivalence import Ways
from strom.testing.scripted import Pause, ScriptedSource

LANES = 3

SLOWLY = [[one for i in range(20) for one in ((lane, i), Pause(2))] for lane in range(LANES)]


def stages(env: Any) -> dict[str, Any]:
    """A key's sums, each of which goes on to any subtask."""
    read = env.from_source(ScriptedSource(SLOWLY), source_name="read")
    sums = read.key_by(lambda r: (r[0], r[1] % 5)).reduce(lambda a, b: (a[0], a[1] + b[1]))
    return {"sums": sums.rebalance().map(lambda r: (*r, 0))}


def expected() -> list[Any]:
    values = [[range(start, 20, 5) for start in range(5)] for _ in range(LANES)]
    return [
        ("sums", (lane, total, 0))
        for lane, of_keys in enumerate(values)
        for of_key in of_keys
        for total in accumulate(of_key)
    ]


def test_every_way() -> None:
    assert_equivalent(stages, expected(), Ways(seeds=range(3), rescales=4, crash_window=150))


def test_readers_and_writers_stay_open(tmp_path: Path) -> None:
    """windows 2 -> 3 -> 2, then readers 2 -> 3."""
    job = Stages(tmp_path, "local")
    job.checkpoint()
    for width, stopped in ((3, 2), (2, 3)):
        made = job.client.rescale({"sums": width}).result(30)
        assert (made.stopped_tasks, made.held_tasks, made.kept_tasks) == (stopped, 4, 0)
        assert set(made.after.values()) == {width}
        assert {attempt for _, attempt, _ in job.tasks("paced")} == {0}
        assert (job.opened("reader"), job.opened("writer")) == (2, 2)
        job.checkpoint()
    made = job.client.rescale({"paced": 3}).result(30)
    assert (made.stopped_tasks, made.held_tasks) == (2, 4)
    assert (job.opened("reader"), job.opened("writer")) == (5, 2)
    last = job.client.metrics()["last_rescale"]
    assert (last["held_tasks"], job.client.metrics()["rescales"]) == (4, 3)
    assert job.finish().restarts == 0


def test_they_stop_if_the_checkpoint_has_overtaken_records(tmp_path: Path) -> None:
    """Which depends on how fast these are."""
    job = Stages(tmp_path, "local", unaligned=True)
    job.checkpoint()
    made = job.client.rescale({"sums": 3}).result(30)
    assert (made.stopped_tasks, made.held_tasks) in ((2, 4), (6, 0))
    assert job.opened("reader") == (2 if made.held_tasks else 4)
    job.finish()
