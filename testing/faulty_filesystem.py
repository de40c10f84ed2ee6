"""A filesystem on which things go wrong, in front of any other one of fsspec.

Calls time out, are throttled, lose their answers or tear what they write; listings show new files
late and removed ones for a while. What goes wrong is drawn from a seed (`Faults`), so that the same
calls in the same order fail alike. As an object store it takes uploads in parts, and knows those
that nobody has finished.

    faults = Faults(seed=7, probability=0.1)
    filesystem = FaultyFileSystem(MemoryFileSystem(), faults)
"""

from __future__ import annotations

import errno
import posixpath
import random
from collections.abc import Callable, Collection
from threading import RLock
from typing import Any, Final, Literal, TypeVar

from fsspec.spec import AbstractFileSystem

T = TypeVar("T")

Kind = Literal["timeout", "throttled", "reset", "vendor", "torn", "denied", "full"]

PASSING: Final[tuple[Kind, ...]] = ("timeout", "throttled", "reset", "vendor", "torn")
"""What may go well the next time."""

Call = Literal["list", "info", "read", "write", "move", "remove"]


class VendorError(Exception):
    """As the libraries of cloud vendors have them: derived from nothing that Python knows."""

    def __init__(self, message: str, status_code: int) -> None:
        super().__init__(message)
        self.status_code = status_code


class Faults:
    """What goes wrong. Decided call by call; used under the filesystem's lock."""

    def __init__(
        self,
        seed: int = 0,
        probability: float = 0.0,
        kinds: Collection[Kind] = PASSING,
        calls: Collection[Call] | None = None,
        nth: Collection[int] = (),
        late: int = 0,
        delay: Callable[[str, str], None] | None = None,
    ) -> None:
        """Each call among `calls` (None: all) fails with `probability`, and those with the numbers
        in `nth` (from 1) do in any case, in one of the `kinds`. A listing shows a new file, and no
        longer shows a removed one, up to so many (`late`) calls later. `delay` is called with the
        kind of call and its path before each, outside any lock, and may wait."""
        self._rng = random.Random(seed)
        self._probability = probability
        self._kinds = tuple(kinds)
        self._calls = calls
        self._nth = frozenset(nth)
        self.late = late
        self.delay = delay
        self.made = 0
        """Calls among `calls`."""
        self.failed = 0
        """Of them."""

    def stop(self) -> None:
        """From now on all goes well, and listings are right."""
        self._probability, self._nth, self.late, self.delay = 0.0, frozenset(), 0, None

    def next(self, call: Call) -> Kind | None:
        """What goes wrong with this call; None: nothing."""
        if self._calls is not None and call not in self._calls:
            return None
        self.made += 1
        drawn = self._rng.random() < self._probability
        if not drawn and self.made not in self._nth:
            return None
        self.failed += 1
        return self._rng.choice(self._kinds)

    def lateness(self) -> int:
        """Calls until a change is listed."""
        return self._rng.randint(0, self.late) if self.late else 0


def error_of(kind: Kind, path: str) -> Exception:
    """What is raised for a fault."""
    match kind:
        case "timeout":
            return TimeoutError(f"{path}: no answer")
        case "throttled":
            return OSError(errno.EBUSY, "SlowDown: please reduce your request rate")
        case "vendor":
            return VendorError(f"{path}: the server is busy", 503)
        case "denied":
            return PermissionError(errno.EACCES, "Access denied", path)
        case "full":
            return OSError(errno.ENOSPC, "No space left on device", path)
        case _:
            return ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")


class FaultyFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """`inner` with `faults`. As an `object_store` what is put is there whole or not at all; else a
    write that fails may leave a part of it."""

    cachable = False

    def __init__(self, inner: Any, faults: Faults, object_store: bool = True) -> None:
        super().__init__()
        self.inner = inner
        self.faults = faults
        self.object_store = object_store
        self.protocol = "s3" if object_store else "faulty"
        self._lock = RLock()
        self._clock = 0
        """Calls so far."""
        self._unlisted: dict[str, int] = {}
        """New files, and from which call on they are listed."""
        self._lingering: dict[str, int] = {}
        """Removed files, and until which call they are listed."""
        self._uploads: list[_Upload] = []

    @property
    def unfinished(self) -> list[str]:
        """Paths of uploads in parts that were neither completed nor aborted."""
        with self._lock:
            return [upload.path for upload in self._uploads]

    # --- what the storage calls ------------------------------------------------------------

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        path = path.rstrip("/") or "/"
        found = self._call("list", path, lambda: self._listing(path))
        return found if detail else [entry["name"] for entry in found]

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        found: dict[str, Any] = self._call("info", path, lambda: self.inner.info(path))
        return found

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **options: Any
    ) -> bytes:
        found: bytes = self._call("read", path, lambda: self.inner.cat_file(path, start, end))
        return found

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        self._call("write", path, lambda: self._put(path, value, mode), value)

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        if mode != "wb":
            return self.inner.open(path, mode)
        return _Upload(self, path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        if not self.object_store:
            self._call("info", path, lambda: self.inner.makedirs(path, exist_ok=exist_ok))

    def mv(self, path1: str, path2: str, **options: Any) -> None:
        def move() -> None:
            self.inner.mv(path1, path2)
            self._changed(path1, there=False)
            self._changed(path2, there=True)

        self._call("move", path2, move)

    def rm_file(self, path: str) -> None:
        def remove() -> None:
            self.inner.rm_file(path)
            self._changed(path, there=False)

        self._call("remove", path, remove)

    def rm(self, path: str, recursive: bool = False, maxdepth: int | None = None) -> None:
        """What a listing shows; folders only when they are empty."""
        listed = self.find(path)
        if not listed and not self.inner.exists(path):
            raise FileNotFoundError(path)
        for file in listed:
            try:
                self.rm_file(file)
            except FileNotFoundError:
                continue  # it lingered
        with self._lock:
            if self.inner.isdir(path) and not self.inner.find(path):
                self.inner.rm(path, recursive=True)

    def rmdir(self, path: str) -> None:
        self._call("remove", path, lambda: self.inner.rmdir(path))

    def invalidate_cache(self, path: str | None = None) -> None:
        self.inner.invalidate_cache(path)

    # --- inside ----------------------------------------------------------------------------

    def _call(self, call: Call, path: str, do: Callable[[], T], data: bytes | None = None) -> T:
        if self.faults.delay is not None:
            self.faults.delay(call, path)
        with self._lock:
            self._clock += 1
            kind = self.faults.next(call)
            if kind is None:
                return do()
            if kind == "reset" and call != "read":
                do()  # it is done, but nobody hears of it
            elif kind == "torn" and data is not None and not self.object_store:
                self._put(path, data[: len(data) // 2])
            raise error_of(kind, path)

    def _put(self, path: str, data: bytes, mode: str = "overwrite") -> None:
        self.inner.pipe_file(path, data, mode=mode)
        self._changed(path, there=True)

    def _changed(self, path: str, there: bool) -> None:
        at = self._clock + self.faults.lateness()
        path = self.inner._strip_protocol(path)
        self._unlisted.pop(path, None)
        self._lingering.pop(path, None)
        if at > self._clock:
            (self._unlisted if there else self._lingering)[path] = at

    def _listing(self, path: str) -> list[dict[str, Any]]:
        if not self.faults.late:
            self._unlisted.clear()
            self._lingering.clear()
        hidden = {name for name, at in self._unlisted.items() if at > self._clock}
        shown = [name for name, at in self._lingering.items() if at > self._clock]
        try:
            entries = list(self.inner.ls(path, detail=True))
        except FileNotFoundError:
            entries = []
        found = {
            entry["name"].rstrip("/"): entry
            for entry in entries
            if entry["name"] not in hidden and self._shows(entry, hidden)
        }
        for name in shown:
            inside = name.removeprefix(path.rstrip("/") + "/")
            if inside == name:
                continue
            first, *more = inside.split("/")
            place = posixpath.join(path, first)
            kind = "directory" if more else "file"
            found.setdefault(place, {"name": place, "size": 0, "type": kind})
        if not found and not self.inner.exists(path):
            raise FileNotFoundError(path)
        return list(found.values())

    def _shows(self, entry: dict[str, Any], hidden: set[str]) -> bool:
        """An object store's folder is what lies in it."""
        if entry["type"] != "directory" or not self.object_store:
            return True
        files = self.inner.find(entry["name"])
        return any(file not in hidden for file in files)


class _Upload:
    """A file that is being written: as an object store's in parts that nobody sees before its
    end, else as it comes."""

    closed = False

    def __init__(self, filesystem: FaultyFileSystem, path: str) -> None:
        self._fs = filesystem
        self.path = path
        self._parts: list[bytes] = []
        with filesystem._lock:
            if filesystem.object_store:
                filesystem._uploads.append(self)

    def write(self, data: Any) -> int:
        part = bytes(data)
        self._fs._call("write", self.path, lambda: self._take(part), part)
        return len(part)

    def tell(self) -> int:
        return sum(map(len, self._parts))

    def close(self) -> None:
        if self.closed:
            return
        whole = b"".join(self._parts)
        self._fs._call("write", self.path, lambda: self._finish(whole), whole)

    def discard(self) -> None:
        """What is there of an upload in parts goes, if it was not completed."""
        with self._fs._lock:
            if self in self._fs._uploads:
                self._fs._uploads.remove(self)
        self.closed = True

    def flush(self) -> None:
        """Nothing: it is all with the filesystem."""

    def __enter__(self) -> _Upload:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if error is None:
            self.close()
        else:
            self.discard()

    def _take(self, part: bytes) -> None:
        self._parts.append(part)

    def _finish(self, whole: bytes) -> None:
        self._fs._put(self.path, whole)
        if self in self._fs._uploads:
            self._fs._uploads.remove(self)
        self.closed = True
