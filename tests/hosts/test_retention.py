"""Whether the checkpoints of a job outlive it."""

from __future__ import annotations

import logging
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import strom
from chaos_kit import until
from strom import CheckpointConfig, Configuration, ExternalizedCheckpointRetention, JobConfig
from strom.checkpoint.file_storage import FileStorage
from strom.connectors.datagen import DataGenSource

KEEP = ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
DELETE = ExternalizedCheckpointRetention.DELETE_ON_CANCELLATION
NEVER = ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS


def started(
    folder: Path,
    retention: ExternalizedCheckpointRetention,
    count: int | None,
    failing: bool = False,
    restore_from: str | None = None,
) -> Any:
    """A job with checkpoints every few ms; `count` None: it ends only by being cancelled, or by a
    failure once it has a checkpoint."""
    checkpoint = CheckpointConfig(timedelta(milliseconds=5), str(folder), retention=retention)
    settings = JobConfig(
        checkpoint=checkpoint, restart=strom.NoRestart(), restore_from=restore_from
    )
    env = strom.StreamExecutionEnvironment.get_execution_environment(settings)
    numbers = DataGenSource(lambda start, n: list(range(start, start + n)), count)

    def fail_in_the_end(n: int) -> int:
        if failing and n % 1000 == 0 and list(folder.glob("*/chk-*/manifest.json")):
            raise ValueError("it fails")
        return n

    stream = env.from_source(numbers).uid("numbers").map(fail_in_the_end)
    stream.key_by(lambda n: n % 5).reduce(max).uid("max").sink_to(strom.DiscardSink())
    return env.execute_async("kept or not")


def checkpoints(folder: Path) -> list[Path]:
    return sorted(path.parent for path in folder.glob("*/chk-*/manifest.json"))


def some_checkpoint(client: Any) -> None:
    until(lambda: client.metrics()["checkpoints"]["completed"] > 1, "checkpoints")


@pytest.mark.parametrize(
    ("end", "retention", "kept"),
    [
        ("FINISHED", KEEP, True),
        ("FINISHED", DELETE, False),
        ("FINISHED", NEVER, False),
        ("CANCELED", KEEP, True),
        ("CANCELED", DELETE, False),
        ("CANCELED", NEVER, False),
        ("FAILED", KEEP, True),
        ("FAILED", DELETE, True),
        ("FAILED", NEVER, False),
    ],
)
def test_how_a_job_ends_decides(
    end: str, retention: ExternalizedCheckpointRetention, kept: bool, tmp_path: Path
) -> None:
    client = started(tmp_path, retention, 1000 if end == "FINISHED" else None, end == "FAILED")
    if end == "CANCELED":
        some_checkpoint(client)
        client.cancel()
    elif end == "FAILED":
        with pytest.raises(strom.JobFailedError, match="it fails"):
            client.get_job_execution_result(timedelta(seconds=30))
    else:
        assert client.get_job_execution_result().checkpoints > 0
    assert str(client.get_job_status()) == end
    if kept:
        assert len(checkpoints(tmp_path)) == 1
    else:
        assert list(tmp_path.iterdir()) == [], "nothing is left, not even a folder"


def test_the_checkpoint_of_another_job_is_not_removed(tmp_path: Path) -> None:
    first = started(tmp_path, KEEP, None)
    some_checkpoint(first)
    first.cancel()
    (taken,) = checkpoints(tmp_path)
    before = {path: path.read_bytes() for path in taken.iterdir()}
    second = started(tmp_path, NEVER, None, restore_from=str(taken))
    some_checkpoint(second)
    second.cancel()
    assert checkpoints(tmp_path) == [taken]
    assert {path: path.read_bytes() for path in taken.iterdir()} == before


def test_a_job_that_is_cancelled_before_its_first_checkpoint(tmp_path: Path) -> None:
    first = started(tmp_path, KEEP, None)
    some_checkpoint(first)
    first.cancel()
    (taken,) = checkpoints(tmp_path)
    started(tmp_path, DELETE, None, restore_from=str(taken)).cancel()
    assert checkpoints(tmp_path) == [taken]


def test_what_cannot_be_removed_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client = started(tmp_path, DELETE, None)
    some_checkpoint(client)

    def broken(self: Any, folder: str) -> bool:
        raise OSError("no permission")

    monkeypatch.setattr(FileStorage, "_removed", broken)
    with caplog.at_level(logging.WARNING, logger="strom"):
        client.cancel()
    assert "stays: cannot delete" in caplog.text
    assert "no permission" in caplog.text


def test_a_storage_that_hangs_does_not_hold_up_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client = started(tmp_path, DELETE, None)
    some_checkpoint(client)
    release = threading.Event()

    def hang(self: Any, n: int) -> None:
        assert release.wait(30.0)

    monkeypatch.setattr(FileStorage, "delete", hang)
    try:
        with caplog.at_level(logging.WARNING, logger="strom"):
            client.cancel()
        assert str(client.get_job_status()) == "CANCELED"
        assert "checkpoints that it was to remove may stay" in caplog.text
    finally:
        release.set()


def test_it_comes_by_configuration() -> None:
    key = "execution.checkpointing.externalized-checkpoint-retention"
    configuration = Configuration.from_dict({key: "delete-on-cancellation"})
    env = strom.StreamExecutionEnvironment.get_execution_environment(configuration)
    assert env.get_job_config().checkpoint.retention is DELETE
