"""Files on any fsspec filesystem that are there whole or not at all, and calls made again.

How a file comes to be there whole depends on the filesystem:

    local            temporary file, fsync, rename; folders are synced by whoever publishes
    object stores    one put, or the end of one multipart upload; either is atomic
    others           temporary file, then move

Large files are written in pieces, as they are encoded. A call that fails for a reason that may pass
(`transient`) is made again after a pause (`attempts`); a file then from its beginning.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import random
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar
from uuid import uuid4

from fsspec.implementations.local import LocalFileSystem

from ..core.errors import CheckpointError, CorruptCheckpointError, StromError
from ..core.transient import is_transient
from .attempts import AttemptPolicy, Attempts
from .cancellation import Cancellation
from .names import UNFINISHED
from .secrets import without_secrets
from .storage import Data
from .streaming import PIECE, PieceWriter

T = TypeVar("T")

SLEEP: Final = time.sleep

_FEW: Final = AttemptPolicy(most=3)
"""For what is only cleaning up after a failure."""


ATOMIC_PUT: Final = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss"})
"""Protocols of object stores: a put is visible whole or not at all."""


_COMES_BACK: Final = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.EISDIR})
"""What removing a folder says into which something is being written. EISDIR: it was not there when
it was looked for, so that it was removed as a file, and by then it was made again."""


class WholeFiles:
    """The calls of one filesystem. What they raise is what the filesystem raises; `_failing` makes
    it an error that says what was to be done."""

    def __init__(
        self, filesystem: Any, pause: Callable[[float], None], policy: AttemptPolicy | None
    ) -> None:
        """`pause` waits so many seconds, between attempts. `policy`: how often what fails for a
        reason that may pass is tried."""
        self._fs = filesystem
        self._pause = pause
        self._policy = policy or AttemptPolicy()
        protocols = filesystem.protocol
        names = {protocols} if isinstance(protocols, str) else set(protocols)
        self._atomic_put = bool(names & ATOMIC_PUT)
        self._local = isinstance(filesystem, LocalFileSystem)
        self._plain = type(filesystem) is LocalFileSystem
        """Whether its calls are those of the operating system."""

    def _names_in(
        self, folder: str, by_time: bool = False, folders: bool = False
    ) -> tuple[str, ...]:
        """`by_time`: in the order in which they were written, where the filesystem tells that.
        `folders`: of these alone."""
        with self._failing("list", folder):
            return self._retried(lambda: self._listed(folder, by_time, folders))

    def _listed(self, folder: str, by_time: bool = False, folders: bool = False) -> tuple[str, ...]:
        self._fs.invalidate_cache(folder)
        try:
            found = self._fs.ls(folder, detail=by_time or folders)
        except FileNotFoundError:
            return ()
        if by_time:
            found = sorted(found, key=_written)
        if folders:
            found = [one for one in found if one["type"] == "directory"]
        paths = [one["name"] for one in found] if by_time or folders else found
        return tuple(posixpath.basename(str(path).rstrip("/")) for path in paths)

    def _delete(self, path: str) -> None:
        """Remove a file, also one that is not there. A large job has ten thousand of them at each
        checkpoint, so that the detour over fsspec counts."""
        if self._plain and _unlinked(path):
            return
        with self._failing("delete", path):
            self._retried(lambda: self._remove(path))

    def _remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._fs.rm_file(path)

    def _removed(self, folder: str) -> bool:
        """Remove the folder; False if something came into it, or left it, at the same time."""
        try:
            self._remove_all(folder)
        except FileNotFoundError:
            self._fs.invalidate_cache(folder)
        except OSError as error:
            if error.errno not in _COMES_BACK:
                raise
            return False
        else:
            if self._local:
                return True
        return not self._retried(lambda: self._remains(folder))

    def _remove_all(self, folder: str) -> None:
        """At once; if that fails for a reason that may pass, file by file, each tried again by
        itself: of many files one fails each time."""
        try:
            self._fs.rm(folder, recursive=True)
        except Exception as error:
            if not is_transient(error):
                raise
            for name in self._retried(lambda: self._listed(folder)):
                path = posixpath.join(folder, name)
                self._retried(lambda path=path: self._remove(path))  # type: ignore[misc]
            self._retried(lambda: self._fs.rm(folder, recursive=True))

    def _remains(self, folder: str) -> bool:
        """Whether a folder is still there, whatever `rm` says: that of many filesystems takes a
        listing that fails for an empty one. A listing may also show what is gone."""
        if not self._exists(folder):
            return False
        names = self._listed(folder)
        found = (self._retried(lambda n=n: self._exists(f"{folder}/{n}")) for n in names)  # type: ignore[misc]
        return any(found) or not self._atomic_put

    def _exists(self, path: str) -> bool:
        """fsspec's own `exists` says no where it cannot tell."""
        try:
            self._fs.info(path)
        except FileNotFoundError:
            return False
        return True

    def _read(
        self,
        path: str,
        missing: type[CorruptCheckpointError] = CorruptCheckpointError,
        hint: str = "",
        **part: int,
    ) -> bytes:
        """`part`: its `start` and `end`, by name, since filesystems differ in their order."""
        with self._failing("read", path):
            try:
                data: bytes = self._retried(lambda: self._fs.cat_file(path, **part))
            except FileNotFoundError:
                raise missing(f"{path}: the file is missing{hint}") from None
            except Exception:
                try:
                    self._check_reaches(path, part.get("end"))
                except FileNotFoundError:  # it failed otherwise until now
                    raise missing(f"{path}: the file is missing{hint}") from None
                raise
        return data

    def _check_there(self, path: str, end: int, hint: str) -> None:
        with self._failing("read", path):
            try:
                self._check_reaches(path, end)
            except FileNotFoundError:
                raise CorruptCheckpointError(f"{path}: the file is missing{hint}") from None

    def _check_reaches(self, path: str, end: int | None) -> None:
        """CorruptCheckpointError for a file that ends before `end`: object stores refuse to read
        what is behind a file's end."""
        found = self._retried(lambda: self._fs.info(path))["size"]
        if None not in (end, found) and found < end:
            raise CorruptCheckpointError(f"{path}: expected {end} bytes, found {found}")

    def _write(self, path: str, data: Data) -> None:
        """At once. `_retried` may call it again."""
        self._make_folder(posixpath.dirname(path))
        if self._atomic_put:
            self._fs.pipe_file(path, data if isinstance(data, bytes) else data.to_pybytes())
            return
        temporary = _temporary(path)
        try:
            with self._fs.open(temporary, "wb") as file:
                file.write(memoryview(data))
                self._sync_file(file)
            self._move(temporary, path)
        except BaseException:
            self._remove_quietly(temporary)
            raise

    def _write_pieces(
        self, path: str, write: Callable[[Any], None], wanted: Cancellation
    ) -> PieceWriter:
        """What is larger than one piece; nothing is there, nor begun, if it fails."""
        place = path if self._atomic_put else _temporary(path)

        def target() -> Any:
            self._make_folder(posixpath.dirname(path))
            if self._atomic_put:
                return self._fs.open(place, "wb", block_size=PIECE)
            return self._fs.open(place, "wb")

        writer = PieceWriter(target, wanted.check)
        try:
            write(writer)
            wanted.check()
            if writer.target is None:
                self._write(path, writer.rest)
                return writer
            writer.target.write(writer.rest)
            self._sync_file(writer.target)
            writer.target.close()
            if not self._atomic_put:
                self._move(place, path)
        except BaseException:
            if writer.target is not None:
                _discard(writer.target)
                if not self._atomic_put:
                    self._remove_quietly(place)
            raise
        return writer

    def _make_folder(self, folder: str) -> None:
        """Object stores have none; asked for one, some make a bucket."""
        if not self._atomic_put:
            self._fs.makedirs(folder, exist_ok=True)

    def _sync_file(self, file: Any) -> None:
        if self._local:
            file.flush()
            os.fsync(file.fileno())

    def _move(self, temporary: str, path: str) -> None:
        if self._local:
            os.replace(temporary, path)
        else:
            self._fs.mv(temporary, path)

    def _whole(self, path: str, call: Callable[[], T], wanted: Cancellation) -> T:
        """`_retried`, of a call that makes a file; it is not there when that fails, though it may
        have been made by an attempt whose answer was lost."""
        try:
            return self._retried(call, wanted)
        except BaseException:
            self._remove_quietly(path)
            raise

    def _retried(
        self,
        call: Callable[[], T],
        wanted: Cancellation | None = None,
        policy: AttemptPolicy | None = None,
    ) -> T:
        """Make the call until it succeeds, or fails for good, or nobody wants it any more."""
        attempts = Attempts(policy or self._policy, random.random)
        while True:
            if wanted is not None:
                wanted.check()
            try:
                return call()
            except Exception as error:
                pause_ms = attempts.after(error)
                if pause_ms is None:
                    raise
            if wanted is None or self._pause is not SLEEP:
                self._pause(pause_ms / 1000)
            else:
                wanted.wait(pause_ms / 1000)

    def _failing(self, what: str, path: str) -> contextlib.AbstractContextManager[None]:
        return failing(what, path, self._fs)

    def _sync_folder(self, *paths: str) -> None:
        """Make the entries of local folders durable."""
        for path in paths if self._local else ():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def _remove_quietly(self, path: str) -> None:
        """Clean up after a failure that is being raised; a second failure adds nothing to it."""
        with contextlib.suppress(Exception):
            self._retried(lambda: self._remove(path), policy=_FEW)


def _unlinked(path: str) -> bool:
    """Whether there is none any more."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _temporary(path: str) -> str:
    return f"{path}.{uuid4().hex}{UNFINISHED}"


def _discard(file: Any) -> None:
    """Give up a file that is being written. Of an object store's its end would publish it, also the
    one that comes with the garbage collection."""
    with contextlib.suppress(Exception):
        if hasattr(file, "discard"):
            try:
                file.discard()
            finally:
                file.closed = True
        else:
            file.close()


@contextlib.contextmanager
def failing(what: str, path: str, filesystem: Any = None) -> Iterator[None]:
    """Whatever the filesystem raises becomes a CheckpointError naming the path and the cause,
    without what the filesystem is opened with.

    Filesystems of cloud vendors raise their own exception classes, hence the breadth.
    """
    try:
        yield
    except StromError:
        raise
    except Exception as error:
        said = str(error)
        told = without_secrets(said, filesystem)
        raise CheckpointError(
            f"cannot {what} {path}: {type(error).__name__}: {told}; check space, permissions and "
            "the storage's reachability"
        ) from (error if told == said else None)


def _written(known: dict[str, Any]) -> str:
    """What sorts files by the time at which they were written, whatever form it has here."""
    for name in ("mtime", "LastModified", "last_modified", "updated", "created"):
        time = known.get(name)
        if isinstance(time, int | float):
            return f"{time:020.6f}"
        if time is not None:
            return str(time)
    return ""
