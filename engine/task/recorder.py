"""Writes what one operator gets, beside the task's thread: the tail of a recording.

The task's thread hands over rows; a thread of the recorder's encodes them and writes a part about
every `FLUSH_S`, or when `PART_BYTES` have come. Where there are no threads (the simulator) the
caller does that itself. What goes wrong here never fails the task: the recording breaks off, says
why, and goes on behind the next checkpoint, whose state is a new beginning.

    base 0   rows ... | base 1   rows ... | base 2   rows ...
                      checkpoint 7 taken  checkpoint 8 taken, complete: all before base 2 goes
"""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, Final

from ...checkpoint.folder_storage import FolderStorage
from ...checkpoint.in_flight import Item
from ...checkpoint.manifest import Manifest
from ...checkpoint.recordings import FAILED, RecordingFolder
from ...core.failure_text import described
from ...core.ids import CheckpointId

_log = logging.getLogger("strom")

FLUSH_S: Final = 0.5
"""How long a row waits at most until it is being written."""

PART_BYTES: Final = 4 << 20
"""About what one part holds."""

WAITING_BYTES: Final = 64 << 20
"""What may wait for the storage; the task's thread is held up while there is more. States that wait
count by themselves: one of any size, or several that are no more together."""

PATIENCE_S: Final = 5.0
"""How long it is held up at most before the recording breaks off. Once: a storage that was waited
for in vain is not waited for again before it has taken what it was given."""

LAST_S: Final = 10.0
"""How long the end of a task waits for its tail to be written."""

ROW_BYTES: Final = 64
"""What a row takes besides its data, about."""

Row = tuple[str, int, int, Any, Any]
WriteBase = Callable[[FolderStorage], Manifest]
"""Writes the files of a state into a folder, and gives the manifest to publish there."""


class Recorder:
    """Of one operator in one attempt. All but `_run` is called on the task's thread."""

    def __init__(
        self,
        open_folder: Callable[[], RecordingFolder],
        max_bytes: int,
        who: str,
        threads: bool,
    ) -> None:
        """`open_folder` makes the attempt's folder, with what it says of the operator; called where
        files are written. `who`: the operator and subtask, for what is logged."""
        self._open_folder = open_folder
        self._max_bytes = max_bytes
        self._who = who
        self._changed = threading.Condition()
        self._queue: deque[tuple[str, Any, int]] = deque()
        """What is to be done, in order: its kind, of what, and how many bytes wait with it."""
        self._waiting = 0
        """Bytes of rows that wait, or are being written."""
        self._held: deque[int] = deque()
        """Bytes of the states that wait, or are being written, in order."""
        self._stalled = False
        """Whether the storage was waited for in vain, and still has what it was given then."""
        self._urgent = False
        """Whether what waits is to be written now."""
        self._working = False
        self._closed = False
        self._given_up = False
        """Whether the storage was waited for in vain at the end."""
        self._broken: str | None = None
        """Why what comes is not recorded; until the next base."""
        self._thread: threading.Thread | None = None
        self._threads = threads
        # Of the writer alone:
        self._folder: RecordingFolder | None = None
        self._rows: list[Row] = []
        self._rows_bytes = 0
        self._base = -1
        self._parts = 0
        self._sizes: dict[int, int] = {}
        """Bytes of the parts that are there, by the base that they are behind."""
        self._bases: dict[CheckpointId, int] = {}
        """Those that were written whole."""
        self._lost = False
        """Whether the parts since the last base are not all there."""

    # --- the task's thread ---------------------------------------------------------------------

    def row(self, kind: str, port: int = 0, number: int = 0, data: Any = None) -> None:
        """Something that came, and is no batch."""
        size = ROW_BYTES + (0 if data is None else len(data))
        self._put("item", lambda: (kind, port, number, data, None), size)

    def batch(self, port: int, make: Callable[[], Item | None], size: int) -> None:
        """`make` gives its row, on any thread; it holds about `size` bytes."""

        def made() -> Row:
            item = make()
            assert item is not None
            return item.kind, port, item.number, item.data, item.stamps

        self._put("item", made, ROW_BYTES + size)

    def base(
        self, checkpoint_id: CheckpointId, write: WriteBase, begin: dict[str, Any], size: int = 0
    ) -> None:
        """A checkpoint is being taken, and its state is what comes next goes on from. `begin`: what
        else is to be known to go on there. `size`: bytes of the state, about."""
        with self._changed:
            if self._stalled:
                return
            self._broken = None
        self._put("base", (checkpoint_id, write, begin), size, urgent=True)

    def completed(self, checkpoint_id: CheckpointId) -> None:
        """What is before the base of this checkpoint is needed no more."""
        self._put("completed", checkpoint_id, 0, urgent=True, always=True)

    def break_off(self, reason: str) -> None:
        """What comes until the next base is not recorded."""
        self._put("item", lambda: ("broken", 0, 0, reason.encode(), None), ROW_BYTES)
        self._put("lost", reason, 0)
        with self._changed:
            self._broken = reason

    def failed(self, why: dict[str, Any]) -> None:
        """The operator has failed: what there is is written before this returns, if it can be."""
        self._put("failed", why, 0, urgent=True, always=True)
        self._flush(LAST_S)

    def close(self) -> None:
        """The task ends. What there is is written."""
        if self._closed:
            return
        self._flush(LAST_S)
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def takes_base(self, size: int = 0) -> bool:
        """Whether it is worth while to take a state of about so many bytes: not if the last one
        still waits, or would be too much beside it, nor while the storage does not answer."""
        with self._changed:
            if self._stalled or self._base_waits():
                return False
            return not self._held or sum(self._held) + size <= WAITING_BYTES

    def _base_waits(self) -> bool:
        return any(kind == "base" for kind, _, _ in self._queue)

    def _put(
        self, kind: str, what: Any, size: int, urgent: bool = False, always: bool = False
    ) -> None:
        """`always`: also while what comes is not recorded."""
        with self._changed:
            if self._closed or (self._broken is not None and not always):
                return
            if self._threads and kind == "item" and not self._has_room():
                self._broken = "the storage is too slow"
                kind, what, size = "lost", self._broken, 0
            first = not self._queue
            self._queue.append((kind, what, size))
            if kind == "base":
                self._held.append(size)
            else:
                self._waiting += size
            crossed = self._waiting >= PART_BYTES and not self._urgent
            self._urgent = self._urgent or urgent or crossed
            if not self._threads:
                now = self._urgent
            else:
                now = False
                if first or urgent or crossed:
                    self._start()
                    self._changed.notify_all()
        if now:
            self._write_all()

    def _has_room(self) -> bool:
        if self._waiting <= WAITING_BYTES:
            return True
        if self._stalled:
            return False
        fits = self._changed.wait_for(lambda: self._waiting <= WAITING_BYTES, PATIENCE_S)
        self._stalled = not fits
        return fits

    def _start(self) -> None:
        if self._thread is None:
            run, name = copy_context().run, f"strom-{self._who}-recorder"
            self._thread = threading.Thread(target=run, args=(self._run,), name=name, daemon=True)
            self._thread.start()

    def _flush(self, timeout_s: float) -> None:
        if not self._threads:
            self._write_all()
            return
        if self._given_up:
            return
        with self._changed:
            self._urgent = True
            self._changed.notify_all()
            done = self._changed.wait_for(lambda: not (self._queue or self._working), timeout_s)
        if not done:
            self._given_up = True
            _log.warning("%s: its recording lacks its end: it could not be written", self._who)

    # --- where files are written ---------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._queue) or self._closed)
                if not self._queue:
                    return
                self._changed.wait_for(lambda: self._urgent or self._closed, FLUSH_S)
                self._working = True
            self._write_all()
            with self._changed:
                self._working = False
                self._changed.notify_all()

    def _write_all(self) -> None:
        """All that waits."""
        self._urgent = False
        while True:
            with self._changed:
                if not self._queue:
                    break
                kind, what, size = self._queue.popleft()
            try:
                self._do(kind, what)
            except Exception as error:
                self._lose(described(error))
            with self._changed:
                if kind == "base":
                    self._held.popleft()
                else:
                    self._waiting -= size
                self._stalled = self._stalled and self._waiting > WAITING_BYTES
                self._changed.notify_all()
        try:
            self._write_rows()
        except Exception as error:
            self._lose(described(error))

    def _do(self, kind: str, what: Any) -> None:
        match kind:
            case "item":
                self._add(what())
            case "base":
                self._write_rows()
                self._begin(*what)
            case "completed":
                self._complete(what)
            case "failed":
                try:
                    self._write_rows()
                finally:
                    if self._folder is not None:
                        self._folder.put(FAILED, json.dumps(what).encode())
            case "lost":
                self._write_rows()
                self._lose(what)

    def _add(self, row: Row) -> None:
        if self._lost:
            return
        self._rows.append(row)
        self._rows_bytes += ROW_BYTES + sum(len(one) for one in row[3:] if one is not None)
        if sum(self._sizes.values()) + self._rows_bytes > self._max_bytes and row[0] != "broken":
            reason = (
                f"its inputs since the last checkpoint take more than the {self._max_bytes:,} "
                "bytes of strom.record.max-size"
            )
            self._rows[-1] = ("broken", 0, 0, reason.encode(), None)
            self._write_rows()
            self._lose(reason)
        elif self._rows_bytes >= PART_BYTES:
            self._write_rows()

    def _write_rows(self) -> None:
        rows, self._rows = self._rows, []
        size, self._rows_bytes = self._rows_bytes, 0
        if not rows or self._folder is None:
            return
        number, self._parts = self._parts, self._parts + 1
        self._folder.write_part(self._base, number, rows)
        self._sizes[self._base] = self._sizes.get(self._base, 0) + size

    def _begin(self, checkpoint_id: CheckpointId, write: WriteBase, begin: dict[str, Any]) -> None:
        if self._folder is None:
            self._folder = self._open_folder()
        self._base = number = self._base + 1
        base = self._folder.base(number)
        base.publish(write(base))
        self._bases[checkpoint_id] = number
        if self._lost:  # what is before it leads nowhere
            self._lost = False
            self._drop_before(number)
        self._add(("begin", 0, int(checkpoint_id), json.dumps(begin).encode(), None))

    def _complete(self, checkpoint_id: CheckpointId) -> None:
        number = self._bases.get(checkpoint_id)
        if number is not None:
            self._write_rows()
            self._drop_before(number)

    def _drop_before(self, number: int) -> None:
        assert self._folder is not None
        self._folder.drop_before(number)
        self._bases = {one: at for one, at in self._bases.items() if at >= number}
        self._sizes = {at: size for at, size in self._sizes.items() if at >= number}

    def _lose(self, reason: str) -> None:
        """Something could not be made or written: what comes is in vain until the next base."""
        if not self._lost:
            _log.warning("the recording of %s breaks off: %s", self._who, reason)
            self._parts += 1  # one that will be missed
        self._lost = True
        self._rows, self._rows_bytes = [], 0
        with self._changed:
            if not self._base_waits():
                self._broken = reason
