"""Hands out the files of folders that are watched, each once, for ever.

Every interval the folders are listed, new Parquet files' footers are read, and their splits are
handed out in order of modification time. That is done on a thread of its own, at most one listing
at a time: the enumerators of a job share one thread, which waits for a listing only `PATIENCE_S`.
Of many new files the oldest `MOST_FILES` are taken, and others when these are handed out: what
waits is in every checkpoint. What counts as new: `seen`. A file that changes while it is looked at
is left for the next listing.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from ...api.connectors.base import SplitEnumerator
from ...core.clock import Clock
from ...core.errors import ConnectorError
from .formats import FileSplit, WatchedSplit
from .layout import Layout
from .paths import Stamp, list_files, stamp_of
from .seen import Difference, SeenFiles, SeenState

PATIENCE_S = 0.05
MOST_FILES = 5_000
PLANNERS = 16
"""Files looked at together; remote footers are slow, not costly."""


@dataclass(frozen=True)
class WatchState:
    """A snapshot of the enumerator."""

    left: tuple[WatchedSplit, ...]
    seen: SeenState


@dataclass(frozen=True)
class Watch:
    """What is watched and how; times in seconds, `max_age_s` None: no horizon. `layout` is asked
    with the first files that are complete."""

    urls: Sequence[str]
    options: Any
    layout: Callable[[Sequence[str]], Layout]
    interval_s: float
    settle_s: float
    max_age_s: float | None


@dataclass(frozen=True)
class Taken:
    """A new file that is complete as far as one can see."""

    url: str
    stamp: Stamp
    splits: Sequence[FileSplit]


@dataclass(frozen=True)
class Looked:
    """What a listing gave. more: there are new files beside those taken."""

    difference: Difference
    taken: Sequence[Taken]
    more: bool


class WatchingEnumerator(SplitEnumerator):
    """Of an unbounded source: never says that there will be no more."""

    def __init__(self, watch: Watch, clock: Clock, restored: WatchState | None) -> None:
        self._watch = watch
        self._clock = clock
        max_age = None if watch.max_age_s is None else round(watch.max_age_s * 1e6)
        self._seen = SeenFiles(max_age, None if restored is None else restored.seen)
        self._left: deque[WatchedSplit] = deque(() if restored is None else restored.left)
        """Found and not yet handed out."""
        self._unsettled: dict[str, tuple[Stamp, float]] = {}
        """How new files looked when they were seen last, and since when. The listing's only."""
        self._due = clock.monotonic()
        self._looking: _Looking | None = None

    def next_splits(self, subtask: int) -> Sequence[WatchedSplit]:
        if not self._left:
            self._look_if_due()
        return [self._left.popleft()] if self._left else []

    def snapshot(self) -> WatchState:
        return WatchState(tuple(self._left), self._seen.snapshot())

    def _look_if_due(self) -> None:
        now = self._clock.monotonic()
        if self._looking is None:
            if now < self._due:
                return
            self._due = now + self._watch.interval_s
            self._looking = _Looking(self._look)
            self._looking.done(PATIENCE_S)
        if self._looking.done(0.0):
            looking, self._looking = self._looking, None
            self._accept(looking.result())

    def _accept(self, looked: Looked) -> None:
        for file in looked.taken:
            self._seen.take(file.url, file.stamp)
            self._left.extend(
                WatchedSplit(s.path, s.row_group, 0, file.stamp.size, file.stamp.modified)
                for s in file.splits
            )
        self._seen.settle(looked.difference)
        if looked.more:
            self._due = self._clock.monotonic()

    # --- on the listing's thread -----------------------------------------------------------

    def _look(self) -> Looked:
        listing = list_files(self._watch.urls, self._watch.options)
        difference = self._seen.compare(listing)
        ready = self._settled({url: listing[url] for url in difference.new})
        more = len(ready) > MOST_FILES
        del ready[MOST_FILES:]
        if not ready:
            return Looked(difference, (), False)
        layout = self._watch.layout(sorted(ready))
        matching = set(layout.matching(ready))

        def take(url: str) -> Taken | None:
            return self._take(url, listing[url], layout if url in matching else None)

        with ThreadPoolExecutor(PLANNERS) as pool:
            found = list(pool.map(take, ready))
        return Looked(difference, [file for file in found if file is not None], more)

    def _settled(self, new: dict[str, Stamp]) -> list[str]:
        """Those that have looked the same for long enough."""
        if not self._watch.settle_s:
            return list(new)
        now = self._clock.monotonic()
        since = {}
        for url, stamp in new.items():
            before, at = self._unsettled.get(url, (stamp, now))
            since[url] = (stamp, at if before == stamp else now)
        self._unsettled = since
        return [url for url, (_, at) in since.items() if now - at >= self._watch.settle_s]

    def _take(self, url: str, stamp: Stamp, layout: Layout | None) -> Taken | None:
        """`layout` None: nothing of it can match. None if it changed meanwhile, or went away."""
        try:
            splits = [] if layout is None else layout.splits(url)
        except ConnectorError:
            if self._looks(url, stamp):
                raise
            return None
        return Taken(url, stamp, splits) if self._looks(url, stamp) else None

    def _looks(self, url: str, stamp: Stamp) -> bool:
        try:
            return stamp_of(url, self._watch.options) == stamp
        except FileNotFoundError:
            return False
        except OSError as error:
            raise ConnectorError(
                f"cannot read '{url}': {error}. The files of a watched folder must be readable "
                "where the job's coordinator runs, too"
            ) from error


class _Looking:
    """One listing on a thread that nothing waits for at the process' end."""

    def __init__(self, look: Callable[[], Looked]) -> None:
        self._look = look
        self._over = threading.Event()
        self._found: Looked | None = None
        self._error: BaseException | None = None
        threading.Thread(target=self._run, name="strom-watch-files", daemon=True).start()

    def done(self, patience_s: float) -> bool:
        return self._over.wait(patience_s)

    def result(self) -> Looked:
        """What was found, or the error. Only when done."""
        if self._error is not None:
            raise self._error
        assert self._found is not None
        return self._found

    def _run(self) -> None:
        try:
            self._found = self._look()
        except BaseException as error:
            self._error = error
        finally:
            self._over.set()
