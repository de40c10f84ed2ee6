"""What a job has left that another may start from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from chaos_kit import config, environment, until, windowed
from dispatcher_kit import RECORD
from strom import DiscardSink
from strom.checkpoint.folder_storage import savepoint_location
from strom.cluster.records import MOST_SAVEPOINTS, JobRecord
from strom.cluster.savepoints import newest_state, state_left_to
from strom.core.errors import ConfigurationError


def test_the_newest_of_savepoints_and_checkpoints(tmp_path: Path) -> None:
    env = environment(config(tmp_path / "state", interval_ms=20))
    windowed(env, None, 2_000.0).sink_to(DiscardSink())
    client = env.execute_async("left")
    completed = lambda: client.metrics()["checkpoints"]["completed"]
    until(lambda: completed() >= 1, "a checkpoint")
    first, second = (client.trigger_savepoint(str(tmp_path)).result(60) for _ in range(2))
    job_id = str(client.get_job_id())
    record = JobRecord(job_id, "left", 2.0, 2, False, 1, 1, checkpoints=str(tmp_path / "state"))
    record = record.with_savepoints([(first, 5), (second, 6)])
    assert record.with_savepoints([(second, 6)]) == record
    before = completed()
    until(lambda: completed() >= before + 2, "more checkpoints")
    client.cancel()
    assert newest_state(record) == f"{tmp_path}/state/{job_id}"
    Path(tmp_path / "state").rename(tmp_path / "elsewhere")
    assert newest_state(record) == second
    Path(second).rename(tmp_path / "moved")
    assert newest_state(record) == first
    Path(first).rename(tmp_path / "moved too")
    with pytest.raises(ConfigurationError, match="none of 2 savepoints is where it was taken"):
        newest_state(record)


def test_a_job_that_was_stopped_with_a_savepoint_left_that(tmp_path: Path) -> None:
    """Its last checkpoint is newer, and says that all is over."""
    env = environment(config(tmp_path / "state", interval_ms=20))
    windowed(env, None, 2_000.0).sink_to(DiscardSink())
    client = env.execute_async("stopped")
    until(lambda: client.metrics()["checkpoints"]["completed"], "a checkpoint")
    older = client.trigger_savepoint(str(tmp_path)).result(60)
    path = client.stop_with_savepoint(savepoint_directory=str(tmp_path)).result(60)
    storage = str(tmp_path / "state")
    record = JobRecord(
        str(client.get_job_id()), "one", 2.0, 2, False, 1, 1, checkpoints=storage
    ).with_savepoints([(path, 5)])
    assert newest_state(record) == path
    assert state_left_to("another", record) is None, "it is of who asked for it"
    unheard = replace(record, savepoints=()).with_savepoints([(older, 5)])
    assert newest_state(unheard) == f"{storage}/{record.job_id}", "behind the older one much was"

    left = savepoint_location(str(tmp_path), record.job_id, "another")
    Path(path).rename(left)
    record = replace(record, savepoints=()).with_savepoints([(left, 5)])
    assert state_left_to("another", record) == left
    assert state_left_to("a third", record) is None


def test_a_record_has_so_many_of_them() -> None:
    record = JobRecord("a1", "one", 1.0, 1, False, 1, 1)
    record = record.with_savepoints((f"/s/{n}", n) for n in range(MOST_SAVEPOINTS + 5))
    assert (len(record.savepoints), record.savepoints[-1].path) == (MOST_SAVEPOINTS, "/s/104")
    assert JobRecord.from_json(record.to_json()) == record


def test_savepoints_that_are_told_once_more_are_no_newer_ones() -> None:
    """A dispatcher that comes back hears of all that a run has taken, more than are kept."""
    taken = [(f"/s/{n}", n) for n in range(MOST_SAVEPOINTS + 50)]
    record = RECORD.with_savepoints(taken)
    assert record.with_savepoints(taken) == record
    again = record.with_savepoints([*taken, ("/s/new", 1000)])
    assert [one.path for one in again.savepoints[-2:]] == ["/s/149", "/s/new"]
    assert len(again.savepoints) == MOST_SAVEPOINTS
