"""What a job has published to its client, written down for the coordinators that come.

Values that sinks publish are in the memory of the job's coordinator, as long as it lives. What a
checkpoint holds is published again by whoever starts from it; all that was published before, the
coordinator has heard by the time all tasks have taken part in it (what a task says comes in order).
So it writes that down first, in the job's record:

    results heard ─▶ written down ─▶ checkpoint n published ─▶ complete; its results are published

    n is there: what was published is written down, or held by n (and by tasks that run on)

A coordinator that goes on from n begins with what was written down up to n, and goes on with what
is published again, under the same keys. Nobody waits for a client: that has read before, or reads
from this one all there ever was.

**Which files count.** Each coordinator counts its own results, and writes into each file how many
of those before it count. A fenced one may still write: what it heard is held by the checkpoint that
its successor started from, so that it does no harm where it counts, and once the successor has
written itself it does not. Who published nothing that is started from is passed over. If the newest
checkpoints are not usable and an older one is gone back to, so is the log, by the checkpoints that
files are named after: results of after that come again, under other keys. What is missing or torn
is said to readers that may need it, and nothing else depends on it.

**How much there is.** All that was ever published is kept as long as the job is, in files, and in
the coordinator's memory with the keys by which what comes again is known. None of it may go: a
client may come late, or another one behind the first, and reads from the beginning. Files there are
few, however many checkpoints: small ones are put together (`result_merges`).

Rejected: to keep results in the sinks' state until the client has them, as Flink does, where a
client that lags holds up the job; and one file that grows, which object stores have not.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from ...checkpoint.manifest import Manifest
from ...core.errors import CheckpointError, CorruptCheckpointError
from ...core.ids import OperatorId
from ..exchange.pickling import Parcel
from .result_files import (
    END,
    Coordinator,
    Place,
    Result,
    ResultFile,
    Share,
    decode,
    encode,
    file_name,
    named,
    sealed_result,
)
from .result_merges import ResultMerges, joined

Published = tuple[OperatorId, str, Any]
"""By whom, under which key, what."""


class ResultFolder(Protocol):
    """Where one job's files are, for all of its coordinators. Raises CheckpointError."""

    def put_results(self, name: str, data: bytes) -> None:
        """Make it durable, whole or not at all."""
        ...

    def all_results(self) -> Mapping[str, bytes | CorruptCheckpointError]:
        """Of each file what it holds, or why that cannot be told."""
        ...

    def get_results(self, name: str) -> bytes:
        """What a file holds."""
        ...

    def remove_results(self, names: Sequence[str]) -> None:
        """These are not needed any more; not an error if one is not there."""
        ...


@dataclass(frozen=True)
class Left:
    """What coordinators before have left: `results`, and who has which share of them. `lost`: why
    some may be missing; None: nothing is."""

    results: tuple[Result, ...] = ()
    shares: Mapping[Coordinator, Share] = field(default_factory=dict)
    lost: str | None = None


_NOTHING: Final = Left()

_NOWHERE: Final = Place(0, 0)

MOST_AT_ONCE: Final = 16
"""A checkpoint is not published behind so many later ones."""

_Files = dict[Coordinator, list[tuple[Place, str]]]


def left_by(
    files: Mapping[str, bytes | CorruptCheckpointError], upto: int, epoch: int | None = None
) -> Left:
    """What counts for who goes on from checkpoint `upto`, which was published in `epoch` (None: it
    is not known); END: of a job that is over."""
    by: _Files = {}
    for name in files:
        who, place = named(name) or (None, _NOWHERE)
        if who is not None and place.checkpoint <= upto and (epoch is None or who.epoch <= epoch):
            by.setdefault(who, []).append((place, name))
    if not by:
        return _NOTHING
    try:
        last = max(by)
        own, newest = _results(files, sorted(by[last]))
        shares = {**newest.before, last: Share(len(own), newest.began)}
        results: list[Result] = []
        for who, share in sorted(shares.items()):
            found = own if who == last else _results(files, sorted(by.get(who, [])))[0]
            if len(found) < share.count:
                missing = share.count - len(found)
                raise CorruptCheckpointError(
                    f"files with {missing} of the {share.count} results that coordinator "
                    f"{who.epoch}-{who.number} wrote down are missing"
                )
            results += found[: share.count]
    except CorruptCheckpointError as error:
        return Left(lost=str(error))
    return Left(tuple(results), shares, newest.lost)


def _results(
    files: Mapping[str, bytes | CorruptCheckpointError], of: list[tuple[Place, str]]
) -> tuple[list[Result], ResultFile]:
    """Of one coordinator, in order, and its last file. Files may hold again what is in others: a
    write that hung may have come through, or what was put together not be gone."""
    found = [(name, _decoded(name, files[name])) for _, name in of]
    results: list[Result] = []
    for name, file in sorted(found, key=lambda one: one[1].start):
        if file.start > len(results):
            raise CorruptCheckpointError(
                f"{name} goes on from {file.start} results, of which {len(results)} are there"
            )
        results += file.results[len(results) - file.start :]
    return results, found[-1][1] if found else ResultFile(0, {}, ())


def _decoded(name: str, data: bytes | CorruptCheckpointError) -> ResultFile:
    if isinstance(data, CorruptCheckpointError):
        raise data
    return decode(name, data)


class ResultLog:
    """Of one coordinator. `find`, `write` and `finish` are called by workers, which may hang in
    them while others go on; the rest by the driver's thread."""

    def __init__(
        self,
        folder: ResultFolder,
        number: int,
        whole: bool = True,
        merges: ResultMerges | None = None,
    ) -> None:
        """`number`: as of `Coordinator`. `whole`: also what is published behind the last checkpoint
        is written down; not worth while for a job that takes none, and publishes at once.
        `merges`: of no file yet."""
        self._whole = whole
        self._folder = folder
        self._number = number
        self._files: Mapping[str, bytes | CorruptCheckpointError] = {}
        """As `find` found them; none from `begin` on."""
        self._from: tuple[int, int | None] = 0, None
        """The job's own checkpoint that was found last, and its epoch."""
        self._left = _NOTHING
        self._began: int | None = None
        """As of `Share`."""
        self._known: set[tuple[OperatorId, str]] = set()
        """What coordinators before this have written down."""
        self._lock = threading.Lock()
        self._heard: list[Published] = []
        """Behind the first `_base`. Under the lock."""
        self._base = 0
        """All before are in files of each checkpoint that may still come. Under the lock."""
        self._done: list[Place] = []
        """Files that are there, the last `MOST_AT_ONCE`; ascending. Under the lock."""
        self._full = False
        """Whether there were more. Under the lock."""
        self._owes = False
        """Whether there is to be a file even if nothing is heard: others must not be counted by
        what they write from now on. Under the lock."""
        self._epoch = 0
        """Set before anything is heard."""
        self._merges = merges or ResultMerges()
        """Under the lock."""
        self._merge = 0
        """The number of the last one; of who merges."""
        self._merging = False
        """Whether some are being put together: one worker at a time, since another that hung in it
        would come back with less. Under the lock."""

    @property
    def lost(self) -> str | None:
        """Why some of what was published before may be missing; None: nothing is."""
        return self._left.lost

    @property
    def ways_back(self) -> list[tuple[int, int]]:
        """As of `Read`."""
        shares = {
            **self._left.shares,
            Coordinator(self._epoch, self._number): Share(0, self._began),
        }
        return [(who.number, s.began) for who, s in sorted(shares.items()) if s.began is not None]

    def find(self, epoch: int, own: Manifest | None, rejected: bool) -> None:
        """What is there; `begin` says what counts of it. `epoch`: this coordinator's. `own`: the
        job's own checkpoint that is the newest to start from. `rejected`: newer ones are not
        usable. Raises CheckpointError."""
        self._epoch = epoch
        self._files = self._folder.all_results()
        self._from = (0, None) if own is None else (int(own.checkpoint_id), own.epoch)
        with self._lock:
            self._owes = rejected or bool(self._files)

    def begin(self, checkpoint: int, ran_on: bool = False) -> list[Published]:
        """The job goes on from this one, 0: from the beginning. `ran_on`: its tasks did, or go on
        from there. What was published before."""
        self._began = None if ran_on else checkpoint
        found, epoch = self._from
        left = left_by(self._files, checkpoint, epoch if found == checkpoint else None)
        self._files, self._left = {}, left
        self._known = {(one.operator, one.key) for one in left.results}
        return [(one.operator, one.key, Parcel(one.data)) for one in left.results]

    def hear(self, operator: OperatorId, key: str, value: Any) -> bool:
        """Something is published; whether it was not before."""
        if (operator, key) in self._known:
            return False
        with self._lock:
            self._heard.append((operator, key, value))
        return True

    def write(self, checkpoint: int) -> None:
        """What was heard so far and is in no file of this checkpoint or one before, ahead of its
        publication: of those that are on at once a later one may come first. Raises
        CheckpointError."""
        with self._lock:
            before = [place.count for place in self._done if place.checkpoint <= checkpoint]
            if self._full and not before:
                raise CheckpointError(
                    f"checkpoint {checkpoint} comes too late: {MOST_AT_ONCE} behind it were "
                    "published, or tried to be"
                )
            start, owes = max(before, default=0), self._owes
            heard = self._heard[start - self._base :]
            there = Place(checkpoint, start) in self._done
        if not heard and (there or not owes):
            return  # that file may hold results, and this would replace it by one of none
        by, left = Coordinator(self._epoch, self._number), self._left
        results = [sealed_result(*one) for one in heard]
        data = encode(ResultFile(start, left.shares, results, self._began, left.lost))
        end = start + len(heard)
        self._folder.put_results(file_name(by, Place(checkpoint, end)), data)
        with self._lock:
            self._owes = False
            self._done = sorted({*self._done, Place(checkpoint, end)})
            self._merges.written(Place(checkpoint, end), len(data))
            if len(self._done) > MOST_AT_ONCE:
                self._full = True
                del self._done[:-MOST_AT_ONCE]
                base = max(self._base, min(place.count for place in self._done))
                del self._heard[: base - self._base]
                self._base = base

    def merge(self, oldest: int) -> None:
        """Put some files together, if there are many, behind a publication. `oldest`: the first
        checkpoint that there is. Raises CheckpointError; then there are more files for now, and
        nothing is lost."""
        with self._lock:
            due = [] if self._merging else self._merges.due(oldest)
            self._merging |= bool(due)
        if not due:
            return
        by = Coordinator(self._epoch, self._number)
        names = [file_name(by, one.place, one.merge) for one in due]
        try:
            files = [decode(name, self._folder.get_results(name)) for name in names]
            data = encode(joined(files))
            self._merge += 1
            self._folder.put_results(file_name(by, due[-1].place, self._merge), data)
            with self._lock:
                self._merges.merged(due, len(data), self._merge)
            self._folder.remove_results(names)
        finally:
            with self._lock:
                self._merging = False

    def finish(self) -> None:
        """The job is over: write down the rest. Raises CheckpointError."""
        if self._whole:
            self.write(END)

    @property
    def count(self) -> int:
        """How many results there are in all, written down or not."""
        with self._lock:
            return len(self._known) + self._base + len(self._heard)
