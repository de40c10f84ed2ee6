"""What is written of a recording when: bounds, storages that fail, bases that supersede others."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from strom.checkpoint.folder_storage import FolderStorage
from strom.checkpoint.manifest import Manifest
from strom.checkpoint.recordings import RecordedSubtask, RecordingFolder, recorded_subtask
from strom.core.ids import CheckpointId, OperatorId
from strom.engine.task import recorder as recorders
from strom.engine.task.recorder import Recorder
from strom.replaying.reading import Recorded, tail

ROOM = 1 << 20


class Written:
    """A recorder, and its folder."""

    def __init__(self, path: Path, max_bytes: int = ROOM, threads: bool = False) -> None:
        subtask = recorded_subtask(str(path), "job", OperatorId("op"), 0)
        self.folder = subtask.attempt(0)
        self.recorder = Recorder(lambda: self.folder, max_bytes, "operator 'op'", threads)

    def base(self, number: int, size: int = 0) -> None:
        def write(folder: FolderStorage) -> Manifest:
            return Manifest("job", "job", CheckpointId(number), 0, (), (), savepoint=True)

        self.recorder.base(CheckpointId(number), write, {"now_ms": 0}, size)

    def rows(self, *numbers: int) -> None:
        for number in numbers:
            self.recorder.row("watermark", 0, number)

    def read(self) -> tuple[int, list[int], list[str]]:
        """The checkpoint, the rows behind it, and the notes."""
        self.recorder.close()
        recorded = Recorded(self.folder, {}, None)
        found = tail(recorded)
        rows = [row.number for row in found.rows() if row.kind == "watermark"]
        return found.checkpoint_id, rows, found.notes


NO_END = ["the task did not come to write the end of it"]


@pytest.mark.parametrize("threads", [False, True])
def test_what_is_before_a_complete_checkpoint_goes(tmp_path: Path, threads: bool) -> None:
    written = Written(tmp_path, threads=threads)
    written.base(0)
    written.rows(1, 2)
    written.base(7)
    written.rows(3)
    written.base(8)
    written.rows(4)
    written.recorder.completed(CheckpointId(7))
    written.rows(5)
    assert written.read() == (7, [3, 4, 5], NO_END)
    assert {part.base for part in written.folder.parts()} == {1, 2}
    assert written.folder.bases() == [1, 2]


def test_too_much_breaks_off_until_the_next_checkpoint(tmp_path: Path) -> None:
    written = Written(tmp_path, max_bytes=300)
    written.base(0)
    written.rows(*range(20))
    written.recorder._flush(1)
    checkpoint, rows, notes = tail(Recorded(written.folder, {}, None)), [], []
    rows = [row.number for row in checkpoint.rows() if row.kind == "watermark"]
    notes = checkpoint.notes
    assert 0 < len(rows) < 20
    assert rows == list(range(len(rows)))
    assert "strom.record.max-size" in notes[0]
    written.base(3)
    written.rows(21)
    assert written.read() == (3, [21], NO_END)
    assert written.folder.bases() == [1]


def test_a_storage_that_fails_is_made_good_by_the_next_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Written(tmp_path)
    written.base(0)
    written.rows(1)
    written.recorder._flush(1)
    with monkeypatch.context() as patched:
        patched.setattr(RecordingFolder, "write_part", _fails)
        written.rows(2)
        written.recorder._flush(1)
    written.rows(3)
    written.recorder._flush(1)
    found = tail(Recorded(written.folder, {}, None))
    assert [row.number for row in found.rows() if row.kind == "watermark"] == [1]
    written.base(5)
    written.rows(4)
    assert written.read() == (5, [4], NO_END)


def _fails(*_: Any) -> Any:
    raise OSError("no space left")


def test_a_storage_that_hangs_holds_up_nobody_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is bounded: what comes is dropped, and the end does not wait for ever."""
    monkeypatch.setattr(recorders, "PATIENCE_S", 0.01)
    monkeypatch.setattr(recorders, "LAST_S", 0.01)
    monkeypatch.setattr(recorders, "WAITING_BYTES", 10 * recorders.ROW_BYTES)
    hangs, go_on = threading.Event(), threading.Event()

    def hanging(*_: Any) -> Any:
        hangs.set()
        assert go_on.wait(60)
        raise OSError("given up")

    monkeypatch.setattr(RecordingFolder, "write_part", hanging)
    written = Written(tmp_path, threads=True)
    written.base(0)
    written.rows(1)
    written.recorder._flush(0.01)
    assert hangs.wait(60)
    written.rows(*range(1_000))
    assert len(written.recorder._queue) < 20
    # It is not waited for again, whatever checkpoints come: it has still to take what it has.
    monkeypatch.setattr(recorders, "PATIENCE_S", 600)
    for number in (1, 2, 3):
        assert not written.recorder.takes_base()
        written.base(number)
        written.rows(*range(100))
    assert len(written.recorder._queue) < 20
    go_on.set()
    with written.recorder._changed:
        answers = written.recorder.takes_base
        assert written.recorder._changed.wait_for(answers, 60), "it answers again"
    written.recorder.failed({"own": True})
    written.recorder.close()
    thread = written.recorder._thread
    assert thread is not None
    thread.join(60)
    assert not thread.is_alive()


def test_states_that_wait_are_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of any size, others beside it only if they are small together."""
    begun, go_on, begin = threading.Event(), threading.Event(), Recorder._begin

    def slow(*what: Any) -> None:
        begun.set()
        assert go_on.wait(60)
        begin(*what)

    monkeypatch.setattr(Recorder, "_begin", slow)
    written = Written(tmp_path, threads=True)
    limit = recorders.WAITING_BYTES
    assert written.recorder.takes_base(10 * limit), "however large it is"
    written.base(1, limit // 2)
    assert begun.wait(60), "it is being written, and in memory until it is"
    assert not written.recorder.takes_base(limit)
    assert written.recorder.takes_base(limit // 2)
    written.base(2, limit // 2)
    assert not written.recorder.takes_base(0), "one waits already"
    go_on.set()
    written.rows(5)
    assert written.read() == (1, [5], NO_END)
    assert written.recorder.takes_base(10 * limit)


def test_the_last_attempts_stay(tmp_path: Path) -> None:
    """The one before, and the last that failed."""
    subtask: RecordedSubtask = recorded_subtask(str(tmp_path), "job", OperatorId("op"), 0)
    for number in range(5):
        subtask.begin(number).put("operator.json", b"{}")
        if number in (0, 1):
            subtask.attempt(number).put("failed.json", b"{}")
    assert subtask.attempts() == [1, 3, 4]
