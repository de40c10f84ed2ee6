"""Which files of a watched folder were taken already, in as little as can be kept for ever.

Of a file taken, a digest of its path and how it looked are remembered (32 bytes) while it is
there: what was removed from the folder is forgotten. A folder that only grows needs `max_age`
beside: files that were modified so long before the newest one taken are not remembered one by one,
but by a horizon that time goes past. A file that appears behind the horizon would be taken for one
of those; it is an error instead. While the enumerator lives it knows which were there at the last
listing; a snapshot holds how many, so that one that came while the job was down is noticed, too.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b

from ...core.errors import ConnectorError
from .paths import Stamp

_ENTRY = struct.Struct("<16sqq")

_GONE_AFTER = 3
"""Listings in a row that must miss a file before it is forgotten: one may have been incomplete."""


@dataclass(frozen=True)
class SeenState:
    """As a snapshot holds it. files: packed entries. horizon: µs since the epoch, None: none yet.
    behind: files behind it at the last listing."""

    files: bytes
    horizon: int | None
    behind: int


@dataclass(frozen=True)
class Difference:
    """What a listing says that was not known."""

    new: list[str]
    gone: list[bytes]
    """Digests of files that are not there."""
    behind: dict[bytes, str]
    """Of the files behind the horizon, by digest."""


class SeenFiles:
    """The memory of one watched folder. `compare` may run on another thread, while nothing else is
    called."""

    def __init__(self, max_age_us: int | None, restored: SeenState | None = None) -> None:
        self._max_age = max_age_us
        self._files: dict[bytes, Stamp] = {}
        self._missing: dict[bytes, int] = {}
        """How many listings in a row missed a file; only of those that the last one missed."""
        self._horizon: int | None = None
        self._behind: frozenset[bytes] | None = frozenset()
        """Files behind the horizon at the last listing; None: not known since the restore."""
        self._restored_behind = 0
        self._packed: bytes | None = b""
        """`_files` as a snapshot has them; None: to be made."""
        if restored is not None:
            self._files = {
                digest: Stamp(size, modified)
                for digest, size, modified in _ENTRY.iter_unpack(restored.files)
            }
            self._packed = restored.files
            self._horizon = restored.horizon
            self._behind = None
            self._restored_behind = restored.behind

    def __len__(self) -> int:
        """Files remembered one by one."""
        return len(self._files)

    def compare(self, listing: Mapping[str, Stamp]) -> Difference:
        """Raises ConnectorError for a file that changed after it was taken, and for one that
        appeared behind the horizon."""
        new, behind, present = [], {}, set()
        for url, stamp in listing.items():
            digest = _digest(url)
            taken = self._files.get(digest)
            if taken is not None:
                present.add(digest)
                if taken != stamp:
                    raise changed(url, taken, stamp, read=True)
            elif self._horizon is not None and stamp.modified < self._horizon:
                behind[digest] = url
            else:
                new.append(url)
        self._check_late(behind, listing)
        new.sort(key=lambda url: (listing[url].modified, url))
        return Difference(new, [d for d in self._files if d not in present], behind)

    def take(self, url: str, stamp: Stamp) -> None:
        """Remember that the file was taken."""
        self._files[_digest(url)] = stamp
        self._packed = None

    def settle(self, difference: Difference) -> None:
        """Forget what the listing no longer shows, and what time went past. Called when everything
        that is new was taken, or left for another time."""
        self._missing = {d: self._missing.get(d, 0) + 1 for d in difference.gone}
        for digest, times in list(self._missing.items()):
            if times >= _GONE_AFTER:
                self._missing.pop(digest)
                self._files.pop(digest, None)
                self._packed = None
        self._behind = frozenset(difference.behind)
        if self._max_age is not None and self._files:
            self._move_horizon(max(stamp.modified for stamp in self._files.values()))

    def snapshot(self) -> SeenState:
        if self._packed is None:
            self._packed = b"".join(
                _ENTRY.pack(digest, stamp.size, stamp.modified)
                for digest, stamp in self._files.items()
            )
        behind = self._restored_behind if self._behind is None else len(self._behind)
        return SeenState(self._packed, self._horizon, behind)

    def _move_horizon(self, newest: int) -> None:
        assert self._max_age is not None
        horizon = newest - self._max_age
        if self._horizon is not None and horizon <= self._horizon:
            return
        self._horizon = horizon
        passed = {d for d, stamp in self._files.items() if stamp.modified < horizon}
        if passed:
            assert self._behind is not None
            self._behind |= passed - self._missing.keys()
            for digest in passed:
                del self._files[digest]
                self._missing.pop(digest, None)
            self._packed = None

    def _check_late(self, behind: Mapping[bytes, str], listing: Mapping[str, Stamp]) -> None:
        if self._behind is None:
            extra = len(behind) - self._restored_behind
            if extra > 0:
                raise ConnectorError(
                    f"{extra} of {len(behind)} files that were modified before the horizon of the "
                    "watched folder appeared while the job was down, and cannot be told from those "
                    f"that were read: {_SINCE}"
                )
            return
        late = [url for digest, url in behind.items() if digest not in self._behind]
        if late:
            raise ConnectorError(
                f"file '{min(late)}' appeared in a watched folder, but was modified longer than "
                f"max_age before the newest file that was read, as {len(late)} did: {_SINCE}"
            )


_SINCE = (
    "touch late files, so that their time of modification is that of their arrival, or watch with "
    "a greater max_age"
)


def changed(url: str, taken: Stamp, now: Stamp, read: bool) -> ConnectorError:
    """The error of a file that was handed out and does not look as it did then. read: whether it
    was read to its end, or may have been."""
    go_on = (
        "to go on, take this file away and put its new rows into another"
        if read
        else "to go on, put it back as it was, with its time of modification, or start from a "
        "checkpoint before it was found"
    )
    return ConnectorError(
        f"file '{url}' changed after it was found in a watched folder: it had {taken.size} bytes "
        f"and was modified at {taken.modified} µs, now it has {now.size} and {now.modified}. "
        "Files must be complete when they get their name: write under a name that begins with a "
        f"dot and rename, or watch with settle=; {go_on}"
    )


def _digest(url: str) -> bytes:
    return blake2b(url.encode("utf-8", "surrogateescape"), digest_size=16).digest()
