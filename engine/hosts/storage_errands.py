"""What the driver has done by the checkpoint storage: asked piece by piece, heard as events.

What the storage hangs in is left behind (`ordered_work`): a publication once its checkpoint is
disowned, a removal after half the checkpoints' timeout. A publication that comes through after all
is taken back; until it is known what became of it, all that it may need stays, and nobody restores
from it. What is removed late is gone a bit later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ...checkpoint.storage import CheckpointStorage
from ...checkpoint.transfers import INLINE, process_pool
from ...core.clock import Clock
from ...core.errors import CheckpointFormatError, ConfigurationError, FencedError
from ...core.failure_text import described
from ...core.ids import Attempt, CheckpointId
from ..coordinator.actions import (
    DiscardCheckpoint,
    DisownCheckpoint,
    ForgetCheckpoints,
    LoadForRegion,
    LoadLatest,
    RemoveSavepoint,
    StoreCheckpoint,
)
from ..coordinator.job_master import JobMaster
from ..graph.model import JobGraph
from .checkpoint_books import CheckpointBooks, remove_savepoint
from .errand_events import Event, Heard, MakeBackground, nothing
from .loading import Found, Loaded, Loading
from .ordered_work import OrderedWork, Piece
from .restore import is_hopeless
from .result_log import ResultLog
from .tenure import Tenure

log = logging.getLogger("strom")

StorageAction = (
    LoadLatest
    | LoadForRegion
    | StoreCheckpoint
    | DisownCheckpoint
    | DiscardCheckpoint
    | RemoveSavepoint
    | ForgetCheckpoints
)


class StorageErrands:
    """Of one job. Used from the driver's thread."""

    def __init__(
        self,
        make_background: MakeBackground,
        master: JobMaster,
        job: JobGraph,
        storage: CheckpointStorage,
        clock: Clock,
        tenure: Tenure,
        results: ResultLog | None = None,
    ) -> None:
        """The events that `take` returns are for `master`. `tenure`: of `storage`. `results`: as
        of `JobDriver`."""
        self._master = master
        self._job_id = storage.job_id
        self._tenure = tenure
        """Touched by the worker, but for its epochs, when it has loaded."""
        make = partial(make_background, f"{job.name}-storage")
        self._work = OrderedWork(f"job {storage.job_id}", make, clock)
        transfers = process_pool() if self._work.threads else INLINE
        self._books = CheckpointBooks(storage, tenure, results)
        self._loading = Loading(
            storage, tenure, self._books, job.config, transfers, master.why_not, results
        )
        self._timeout_ms = round(job.config.checkpoint.timeout.total_seconds() * 1000)
        self._limit_ms = self._timeout_ms // 2
        """Of removals: a checkpoint that waits behind one has time left to be published."""
        self._events: dict[Piece, Heard] = {}
        """What comes of each piece of work that is not over."""
        self._disowned: dict[CheckpointId, str | None] = {}
        """Checkpoints, and savepoints by their folders, of whose publication nobody knows whether
        it comes through."""
        self._owed = 0
        """Begun, and not taken yet."""
        self.loaded = Loaded(storage)

    @property
    def idle(self) -> bool:
        """Whether everything is done and taken, but for what was left behind."""
        return self._owed == len(self._work.left)

    @property
    def hanging(self) -> bool:
        """Whether there is an answer owed that nobody waits for: what it is about may stay."""
        return bool(self._disowned or self._work.left)

    @property
    def published(self) -> int:
        """Checkpoints published so far, told or not."""
        return self._books.published

    def on_running(self) -> None:
        """All tasks of the attempt have what they start from, and run."""
        self._loading.on_running()

    def take(self) -> Event | None:
        """The oldest answer; None if there is none."""
        if not self._work.answers:
            return None
        self._owed -= 1
        piece, result, error = self._work.answers.popleft()
        event = self._events.pop(piece)(result, error)
        self._work.over(piece)
        return event

    def due_ms(self) -> int | None:
        """When `on_time` has something to do."""
        return self._work.due_ms()

    def on_time(self) -> bool:
        """Leave behind what has hung too long; whether anything was due."""
        return self._work.on_time()

    def last(self) -> None:
        """The job is over, and nothing more will be asked: try once more what could not be
        removed, behind all that was asked."""
        self._remove("what had to stay", self._books.delete_undone, "what could not be removed")

    def close(self, wait_s: float) -> None:
        """Drop what has not begun, and the answers to the rest."""
        self._work.close(wait_s)
        self._work.answers.clear()

    # --- asked -----------------------------------------------------------------------------

    def begin(self, action: StorageAction) -> None:
        """Behind what was begun before."""
        match action:
            case StoreCheckpoint(manifest, savepoint):
                n = manifest.checkpoint_id
                publish = partial(self._books.publish, manifest, savepoint)
                piece = Piece(f"publishing checkpoint {n}", publish, n)
                self._begin(piece, partial(self._stored, n, savepoint is None))
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
                what = "the folder of the checkpoints"
                self._remove(what, self._books.forget, "the folder of its checkpoints")
            case LoadLatest(after, running):
                load = partial(self._loading.load, after, self._unknown, running)
                self._load(load, self._loaded)
            case LoadForRegion(attempt, after, newest):
                loaded = partial(self._loaded_for, attempt)
                self._load(partial(self._loading.find, after, newest, self._unknown), loaded)

    @property
    def _unknown(self) -> frozenset[CheckpointId]:
        """Checkpoints that may be there or not."""
        removing = [p.key.n for p in self._events if isinstance(p.key, _Removal)]
        return frozenset({*self._disowned, *removing})

    def _begin(self, piece: Piece, event: Heard) -> None:
        self._owed += 1
        self._events[piece] = event
        self._work.submit(piece)

    def _load(self, load: Callable[[], Found], event: Heard) -> None:
        what = "looking for the newest checkpoint, and reading it"
        self._begin(Piece(what, load, warn_ms=self._timeout_ms), event)

    def _discard(self, n: CheckpointId) -> None:
        what = f"checkpoint {n}"
        self._remove(what, partial(self._books.delete, n), what, _Removal(n))

    def _remove_savepoint(self, location: str) -> None:
        what = f"what was written of savepoint {location}"
        self._remove(what, partial(remove_savepoint, location), what)

    def _remove(self, what: str, work: Callable[[], None], stays: str, key: object = None) -> None:
        """`stays`: what does, if this fails."""
        piece = Piece(f"removing {what}", work, key, self._limit_ms)
        self._begin(piece, partial(self._removed, stays))

    # --- heard -----------------------------------------------------------------------------

    def _removed(self, what: str, _: None, error: BaseException | None) -> Event:
        if error is not None:
            log.warning("job %s: %s stays: %s", self._job_id, what, error)
        return nothing

    def _stored(self, n: CheckpointId, own: bool, _: None, error: BaseException | None) -> Event:
        """`own`: no savepoint."""
        if n in self._disowned:
            location = self._disowned.pop(n)
            if location is None:
                self._discard(n)
            else:
                self._remove_savepoint(location)
            return nothing
        if isinstance(error, FencedError):
            return lambda now: self._master.on_fenced(n, str(error), now)
        if error is not None:
            return lambda now: self._master.on_store_failed(n, _text(error), now)
        if own:
            self._loading.on_published(n)
        return lambda now: self._master.on_stored(n, now)

    def _loaded_for(self, attempt: Attempt, found: Found, error: BaseException | None) -> Event:
        if error is not None:
            return lambda now: self._master.on_region_failed(attempt, _text(error), now)
        latest, storage = found
        self.loaded = Loaded(storage, self.loaded.origin, self.loaded.epochs)
        return lambda now: self._master.on_region_loaded(attempt, latest, now)

    def _loaded(self, found: Found, error: BaseException | None) -> Event:
        if error is not None:
            again = not is_hopeless(error)
            return lambda now: self._master.on_load_failed(_text(error), now, again)
        latest, storage = found
        manifest, origin = latest.manifest, None
        if manifest is not None and manifest.job_id != self._job_id:
            origin = manifest.job_id, int(manifest.checkpoint_id)
        self.loaded = Loaded(storage, origin, self._tenure.epochs)
        return lambda now: self._master.on_loaded(latest, now)


@dataclass(frozen=True)
class _Removal:
    """The key of a piece of work that removes a checkpoint."""

    n: CheckpointId


def _text(error: BaseException) -> str:
    plain = isinstance(error, (CheckpointFormatError, ConfigurationError, FencedError))
    return str(error) if plain else described(error)
