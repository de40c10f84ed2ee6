"""What the driver has done beside its thread, because a disk or the user's code may take long.

Two workers, one for the checkpoint storage and one for the enumerators. Each does one thing after
the other in the order given, and its answers come back in that order, as events of the job master;
the driver takes them when it gets to it. Where a worker runs is the host's business: a thread, or
a step of the simulator.

What the storage hangs in is left behind (`ordered_work`): a publication once its checkpoint is
disowned, a removal after half the checkpoints' timeout. A publication that comes through after all
is taken back; until it is known what became of it, all that it may need stays, and nobody restores
from it. What is removed late is gone a bit later. Both go on beside what comes after them: what
they change of the books here, they change under `_books`.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from ...checkpoint.folder_storage import folder_at, open_folder
from ...checkpoint.manifest import Manifest
from ...checkpoint.shared_files import SharedFiles
from ...checkpoint.storage import CheckpointStorage, Latest
from ...checkpoint.transfers import INLINE, process_pool
from ...core.clock import Clock
from ...core.errors import (
    CheckpointError,
    CheckpointFormatError,
    ConfigurationError,
    CorruptCheckpointError,
    FencedError,
    OutputRefusedError,
    StromError,
)
from ...core.failure_text import described
from ...core.ids import Attempt, CheckpointId, OperatorId
from ..coordinator.actions import (
    Actions,
    AskForSplits,
    CloseSources,
    DiscardCheckpoint,
    DisownCheckpoint,
    ForgetCheckpoints,
    ForgetSplits,
    LoadForRegion,
    LoadLatest,
    PrepareSources,
    RemoveSavepoint,
    RestartReaders,
    SnapshotSources,
    StoreCheckpoint,
)
from ..coordinator.job_master import JobMaster
from ..graph.model import JobGraph
from ..task.background import Background
from .claimed import Claimed
from .enumerators import Enumerators
from .ordered_work import OrderedWork, Piece
from .outputs import Outputs
from .restore import find_origin, is_hopeless, load_foreign, load_latest, shared_files
from .tenure import Tenure

log = logging.getLogger("strom")

SWEEPS: Final = 3
"""So often what is left of a checkpoint that never completed is looked for again, with the next
ones that are deleted: the listing of an object store may be late."""

LOOKS: Final = 3
"""So often a checkpoint is looked for that a job may remove meanwhile which is not fenced yet."""

MakeBackground = Callable[[str], Background]
"""A worker of this name. Something must wake the driver's loop after each piece of work."""

Event = Callable[[int], Actions]
"""Something that the job master is to be told, with the time (ms)."""

StorageAction = (
    LoadLatest
    | LoadForRegion
    | StoreCheckpoint
    | DisownCheckpoint
    | DiscardCheckpoint
    | RemoveSavepoint
    | ForgetCheckpoints
)
SourceAction = (
    PrepareSources | RestartReaders | AskForSplits | SnapshotSources | ForgetSplits | CloseSources
)


class Errands:
    """The workers of one job. Used from the driver's thread."""

    def __init__(
        self,
        make_background: MakeBackground,
        master: JobMaster,
        job: JobGraph,
        job_id: str,
        storage: CheckpointStorage,
        clock: Clock,
        tenure: Tenure,
        outputs: Outputs,
    ) -> None:
        """The events that `take` returns are for `master`. `tenure`: of `storage`."""
        self._master = master
        self._job_id = job_id
        self._storage = storage
        self._tenure = tenure
        """Touched by the storage's worker only."""
        self._restore_from = job.config.restore_from
        self._claims = job.config.claim_restored
        config = job.config.checkpoint
        self._trusts = config.local_recovery and config.keeps_copies
        """Whether tasks may have copies of what this process published."""
        self._trusted: CheckpointId | None = None
        """The newest of those. Changed by the driver's thread, while nobody loads."""
        self._doubted = False
        """Whether an attempt has started, of which it is not known that all tasks could restore.
        Set by the storage's worker before the attempt is deployed, and else by the driver's
        thread."""
        self._claimed: Claimed | None = None
        """What the job started from and is to delete when it is not needed any more; until it is
        gone. Touched by the storage's worker only."""
        self._claim_is_due = False
        """Whether that is so. What could not be removed is tried again with the next checkpoint
        that goes. Touched by the storage's worker only."""
        self.outputs = outputs
        """Touched by the sources' worker only, but for its token while that has nothing to do."""
        self._origin: tuple[str, int] | None = None
        """The job and its checkpoint from which the attempt starts, if it is another job's."""
        self._epochs = 0, 0
        """As of `Tenure.epochs`, when the checkpoint was loaded."""
        self._enumerators = Enumerators(job, job_id, master.shared_sources)
        """Touched by their worker only."""
        make = partial(make_background, f"{job.name}-storage")
        self._work = OrderedWork(f"job {job_id}", make, clock)
        self._timeout_ms = round(config.timeout.total_seconds() * 1000)
        self._limit_ms = self._timeout_ms // 2
        """Of removals: a checkpoint that waits behind one has time left to be published."""
        self._events: dict[Piece, Callable[[Any, BaseException | None], Event]] = {}
        """What comes of each piece of the storage's work that is not over."""
        self._disowned: dict[CheckpointId, str | None] = {}
        """Checkpoints, and savepoints by their folders, of whose publication nobody knows whether
        it comes through. The driver's thread's."""
        self._books = threading.Lock()
        self._transfers = process_pool() if self._work.threads else INLINE
        self._source_worker = make_background(f"{job.name}-sources")
        self._answers: deque[Event] = deque()
        """Filled by the sources' worker, in the order in which it got done."""
        self._owed = 0
        """Begun, and not taken yet."""
        self._shared = SharedFiles()
        """Under `_books`."""
        self._swept: dict[CheckpointId, int] = {}
        """Checkpoints that never completed and were deleted, and how many more times they will be.
        Under `_books`."""
        self._undone: set[CheckpointId] = set()
        """Those whose removal has begun and is not known to have been done. Under `_books`."""
        self.restored = storage
        """Where the files of the manifest loaded last are."""
        self.published = 0
        """Checkpoints published so far, told or not. Written by the storage's worker."""

    @property
    def idle(self) -> bool:
        """Whether everything is done and taken, but for what was left behind."""
        return self._owed == len(self._work.left)

    @property
    def answered(self) -> bool:
        """Whether there is an answer to take."""
        return bool(self._answers)

    def on_running(self) -> None:
        """All tasks of the attempt have what they start from, and run."""
        self._doubted = False

    def take(self) -> Event | None:
        """The oldest answer; None if there is none."""
        if self._work.answers:
            self._owed -= 1
            piece, result, error = self._work.answers.popleft()
            event = self._events.pop(piece)(result, error)
            self._work.over(piece)
            return event
        if not self._answers:
            return None
        self._owed -= 1
        return self._answers.popleft()

    def due_ms(self) -> int | None:
        """When `on_time` has something to do."""
        return self._work.due_ms()

    def on_time(self) -> bool:
        """Leave behind what has hung too long; whether anything was due."""
        return self._work.on_time()

    def last(self) -> None:
        """The job is over, and nothing more will be asked: try once more what could not be
        removed, behind all that was asked."""
        again = Piece("removing what had to stay", self._delete_undone, limit_ms=self._limit_ms)
        self._begin_storage(again, partial(self._discarded, "what could not be removed"))

    @property
    def hanging(self) -> bool:
        """Whether the storage owes an answer that nobody waits for: what it is about may stay."""
        return bool(self._disowned or self._work.left)

    def close(self) -> None:
        """Drop what has not begun, and the answers to the rest. Idle workers are gone then."""
        wait_s = 1.0 if self.idle else 0.0
        self._work.close(wait_s)
        self._source_worker.close(wait_s)
        self._answers.clear()
        self._work.answers.clear()

    # --- the storage -----------------------------------------------------------------------

    def in_storage(self, action: StorageAction) -> None:
        """Begin this behind what was begun before."""
        match action:
            case StoreCheckpoint(manifest, savepoint):
                n = manifest.checkpoint_id
                publish = partial(self._publish, manifest, savepoint)
                piece = Piece(f"publishing checkpoint {n}", publish, n)
                self._begin_storage(piece, partial(self._stored, n, savepoint is None))
            case DisownCheckpoint(n, location):
                if not self._work.leave(n):
                    self._owed -= 1
                    self._events = {p: e for p, e in self._events.items() if p.key != n}
                else:
                    self._disowned[n] = location
            case DiscardCheckpoint(n):
                if n not in self._disowned:  # else when it is known what became of it
                    self._discard(n)
            case RemoveSavepoint(location):
                if location not in self._disowned.values():
                    self._remove_savepoint(location)
            case ForgetCheckpoints():
                what = "removing the folder of the checkpoints"
                piece = Piece(what, self._forget, limit_ms=self._limit_ms)
                self._begin_storage(piece, self._forgotten)
            case LoadLatest(after):
                self._begin_loading(partial(self._load, after, self._unknown), self._loaded)
            case LoadForRegion(attempt, after):
                loaded = partial(self._loaded_for, attempt)
                self._begin_loading(partial(self._find, after, self._unknown), loaded)

    @property
    def _unknown(self) -> frozenset[CheckpointId]:
        """Checkpoints that may be there or not."""
        removing = [p.key.n for p in self._events if isinstance(p.key, _Removal)]
        return frozenset({*self._disowned, *removing})

    def _begin_loading(
        self, load: Callable[[], Any], event: Callable[[Any, BaseException | None], Event]
    ) -> None:
        what = "looking for the newest checkpoint, and reading it"
        self._begin_storage(Piece(what, load, warn_ms=self._timeout_ms), event)

    def _begin_storage(
        self, piece: Piece, event: Callable[[Any, BaseException | None], Event]
    ) -> None:
        """`event`: called by the driver's thread."""
        self._owed += 1
        self._events[piece] = event
        self._work.submit(piece)

    def _discard(self, n: CheckpointId) -> None:
        what = f"removing checkpoint {n}"
        piece = Piece(what, partial(self._delete, n), _Removal(n), self._limit_ms)
        self._begin_storage(piece, partial(self._discarded, f"checkpoint {n}"))

    def _remove_savepoint(self, location: str) -> None:
        what = f"what was written of savepoint {location}"
        remove = partial(_remove_savepoint, location)
        piece = Piece(f"removing {what}", remove, limit_ms=self._limit_ms)
        self._begin_storage(piece, partial(self._discarded, what))

    def _publish(self, manifest: Manifest, savepoint: str | None) -> None:
        if savepoint is not None:
            folder_at(savepoint).publish(manifest)
            self._tenure.check()
            self.published += 1
            return
        n = manifest.checkpoint_id
        with self._books:
            self._shared.completed(n, manifest.shared)
        try:
            self._storage.publish(manifest)
            self._check_tenure(manifest)
        except BaseException:
            with self._books:
                self._shared.discarded(n)
            raise
        self.published += 1

    def _check_tenure(self, manifest: Manifest) -> None:
        """Behind the publication, see `epochs`. FencedError, and nothing was published."""
        try:
            self._tenure.check()
        except BaseException:
            self._storage.withdraw(manifest)
            raise

    def _forget(self) -> None:
        if self._tenure.holds():
            self._storage.forget()

    def _delete(self, n: CheckpointId) -> None:
        """The job's own, or the one that it started from and has claimed. With it what could not be
        removed before, and once more what was left of those that never completed, if a listing was
        late. Nothing, once fenced."""
        with self._books:
            self._undone.add(n)  # also if it cannot be told now who holds the job
        if not self._tenure.holds():
            return  # who has taken over may need it
        with self._books:
            complete = self._shared.knows(n)
            self._swept.pop(n, None)
            swept = self._sweep()
        self._delete_files(n)
        self._delete_undone()
        for m in swept:
            self._delete_files(m)
        if not complete and self._storage.shares:
            with self._books:
                self._swept[n] = SWEEPS
        if self._claimed is not None and (self._claim_is_due or self._claimed.checkpoint_id == n):
            self._claim_is_due = True
            self._remove_claimed(self._claimed)

    def _delete_undone(self) -> None:
        """Not what a job that has started anew meanwhile may have begun with."""
        if not self._tenure.holds():
            return
        for m in sorted(self._undone):
            if m in self._undone:
                self._delete_files(m)

    def _sweep(self) -> list[CheckpointId]:
        """Those that are to be deleted once more."""
        due = sorted(self._swept)
        self._swept = {m: times - 1 for m, times in self._swept.items() if times > 1}
        return due

    def _remove_claimed(self, claimed: Claimed) -> None:
        try:
            claimed.remove()
        except CheckpointError as error:
            log.warning(
                "job %s: what it started from and has claimed stays for now: %s",
                self._job_id,
                error,
            )
        else:
            self._claimed = None

    def _delete_files(self, n: CheckpointId) -> None:
        self._storage.delete(n)
        present = () if self._shared.knows(n) else self._storage.list_shared()
        with self._books:
            due = self._shared.discarded(n, present)
            self._undone.discard(n)
        self._remove(due)

    def _remove(self, names: list[str]) -> None:
        """What cannot be removed now is removed with the next checkpoint that goes."""
        try:
            self._storage.delete_shared(names)
        except CheckpointError as error:
            log.warning("job %s: files that no checkpoint needs stay: %s", self._job_id, error)
        else:
            with self._books:
                self._shared.removed(names)

    def _stored(self, n: CheckpointId, own: bool, _: None, error: BaseException | None) -> Event:
        """`own`: no savepoint."""
        if n in self._disowned:
            location = self._disowned.pop(n)
            if location is None:
                self._discard(n)
            else:
                self._remove_savepoint(location)
            return _nothing
        if isinstance(error, FencedError):
            return lambda now: self._master.on_fenced(n, str(error), now)
        if error is not None:
            return lambda now: self._master.on_store_failed(n, _text(error), now)
        if own:
            self._trusted = n if self._trusts else None
            self._doubted = False
        return lambda now: self._master.on_stored(n, now)

    def _discarded(self, what: str, _: None, error: BaseException | None) -> Event:
        if error is not None:
            log.warning("job %s: %s stays: %s", self._job_id, what, error)
        return _nothing

    def _forgotten(self, _: None, error: BaseException | None) -> Event:
        if error is not None:
            log.warning("job %s: the folder of its checkpoints stays: %s", self._job_id, error)
        return _nothing

    def _load(
        self, after: int, unknown: frozenset[CheckpointId]
    ) -> tuple[Latest, CheckpointStorage]:
        """To read what tasks have copies of would take as long as if they had none: it only has to
        be there. If then not all tasks could restore from it, it is read the next time: of a file
        may be neither a copy nor what was written, and the checkpoint before has to do. `unknown`:
        checkpoints that may be there, and are not looked at."""
        trusted = None if self._doubted else self._trusted
        self._doubted = True
        self._tenure.begin()
        latest, storage = load_latest(self._storage, None, after, self._transfers, trusted, unknown)
        if latest.manifest is None and self._restore_from is not None:
            latest, storage = self._load_foreign(self._restore_from, latest)
        if self._claims and storage is not self._storage and latest.manifest is not None:
            self._claimed = Claimed(storage, latest.manifest)
            self._claim_is_due = False
        if self._claimed is not None:
            ids = tuple(sorted({*latest.ids, self._claimed.checkpoint_id}))
            latest = replace(latest, ids=ids)
        if self._storage.shares:
            found = shared_files(self._storage)
            with self._books:
                due = self._shared.found(*found)
                self._undone.clear()  # the job master knows of them now
            self._remove(due)
        return latest, storage

    def _load_foreign(self, restore_from: str, own: Latest) -> tuple[Latest, CheckpointStorage]:
        """What another job has left, or another coordinator still adds to: that is fenced first,
        then its newest checkpoint is looked for again, and read. What this job cannot start from
        fences nobody."""
        for left in reversed(range(LOOKS)):
            try:
                found, manifest = open_folder(restore_from)
                origin = find_origin(found, manifest)
                if origin is not None and self._master.why_not(manifest) is None:
                    self._tenure.fence(origin, manifest.checkpoint_id)
                return load_foreign(restore_from, own, self._transfers)
            except (CorruptCheckpointError, ConfigurationError):
                if not left:
                    raise  # else it may have been removed at the same time
        raise AssertionError("unreachable")

    def _find(
        self, after: int, unknown: frozenset[CheckpointId]
    ) -> tuple[Latest, CheckpointStorage]:
        """As `_load`, changing nothing in the storage."""
        trusted = None if self._doubted else self._trusted
        self._doubted = True
        return load_latest(
            self._storage, self._restore_from, after, self._transfers, trusted, unknown
        )

    def _loaded_for(
        self,
        attempt: Attempt,
        found: tuple[Latest, CheckpointStorage],
        error: BaseException | None,
    ) -> Event:
        if error is not None:
            return lambda now: self._master.on_region_failed(attempt, _text(error), now)
        latest, self.restored = found
        return lambda now: self._master.on_region_loaded(attempt, latest, now)

    def _loaded(
        self, found: tuple[Latest, CheckpointStorage], error: BaseException | None
    ) -> Event:
        if error is not None:
            again = not is_hopeless(error)
            return lambda now: self._master.on_load_failed(_text(error), now, again)
        latest, self.restored = found
        manifest = latest.manifest
        self._origin = None
        if manifest is not None and manifest.job_id != self._job_id:
            self._origin = manifest.job_id, int(manifest.checkpoint_id)
        self._epochs = self._tenure.epochs
        return lambda now: self._master.on_loaded(latest, now)

    # --- the sources -----------------------------------------------------------------------

    def in_sources(self, action: SourceAction) -> None:
        """Begin this behind what was begun before."""
        enumerators, master = self._enumerators, self._master
        if isinstance(action, ForgetSplits):
            n = action.checkpoint_id
            self._begin(self._source_worker, partial(enumerators.forget, n), _ignored)
            return
        attempt = action.attempt
        match action:
            case RestartReaders(_, began, sources, states, readers):
                self._ask(
                    began,
                    partial(enumerators.restart, sources, states, readers),
                    lambda repeated, now: master.on_readers_ready(attempt, repeated, now),
                )
            case PrepareSources(_, states):
                self._ask(
                    attempt,
                    partial(self._prepare, states, self._origin, self._epochs),
                    lambda _, now: master.on_sources_ready(attempt, now),
                )
            case AskForSplits(_, operator, task):
                self._ask(
                    attempt,
                    partial(enumerators.next_splits, operator, task.subtask),
                    lambda answer, now: master.on_splits(attempt, operator, task, answer, now),
                )
            case SnapshotSources(_, n):
                self._ask(
                    attempt,
                    partial(enumerators.snapshot, n),
                    lambda states, now: master.on_sources_snapshot(attempt, n, states, now),
                )
            case CloseSources():
                self._begin(self._source_worker, enumerators.close, self._closed)

    def _ask(
        self, attempt: Attempt, work: Callable[[], Any], then: Callable[[Any, int], Actions]
    ) -> None:
        """`then`: the event of a result."""

        def event(result: Any, error: BaseException | None) -> Event:
            if error is not None:
                why = str(error) if isinstance(error, StromError) else repr(error)
                again = not isinstance(error, OutputRefusedError)
                return lambda now: self._master.on_source_failed(attempt, why, now, again)
            return lambda now: then(result, now)

        self._begin(self._source_worker, work, event)

    def _prepare(
        self,
        states: Mapping[OperatorId, bytes],
        origin: tuple[str, int] | None,
        epochs: tuple[int, int],
    ) -> None:
        """The sinks first: what they refuse is not begun."""
        self.outputs.take(origin, epochs)
        self._enumerators.prepare(states)

    def release_outputs(self, status: str) -> None:
        """The job is over."""
        self._begin(self._source_worker, partial(self.outputs.release, status), self._forgotten)

    def _closed(self, problems: list[str], error: BaseException | None) -> Event:
        for problem in problems or []:
            log.warning("job %s: %s", self._job_id, problem)
        if error is not None:
            log.warning("job %s: closing its sources failed: %r", self._job_id, error)
        return _nothing

    # --- both ------------------------------------------------------------------------------

    def _begin(
        self,
        worker: Background,
        work: Callable[[], Any],
        event: Callable[[Any, BaseException | None], Event],
    ) -> None:
        """Have it done; what comes of it is known when the answer is taken."""
        self._owed += 1
        worker.submit(work, lambda r, e: self._answers.append(lambda now_ms: event(r, e)(now_ms)))


@dataclass(frozen=True)
class _Removal:
    """The key of a piece of work that removes a checkpoint."""

    n: CheckpointId


def _ignored(_: Any, error: BaseException | None) -> Event:
    """The answer to what cannot fail."""
    if error is not None:
        raise error
    return _nothing


def _nothing(now_ms: int) -> Actions:
    """The event of what the job master does not want to hear of."""
    return ()


def _remove_savepoint(location: str) -> None:
    folder_at(location).delete(CheckpointId(0))


def _text(error: BaseException) -> str:
    plain = isinstance(error, (CheckpointFormatError, ConfigurationError, FencedError))
    return str(error) if plain else described(error)
