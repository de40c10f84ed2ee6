"""The storage of `soak`: an object store in a folder of this machine that may be away for a while.

    soak://<folder>/...

While it is away calls fail as those of object stores do: with timeouts, throttled, and with
connections that break, of which nobody knows whether what was asked for is done. Every process of
the job finds it as it finds any other filesystem that somebody installed: by the entry point of a
distribution on its path, which `reachable` makes.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from fsspec import register_implementation
from fsspec.implementations.local import LocalFileSystem
from strom.testing.faulty_filesystem import Call, Faults, FaultyFileSystem, Kind

PROTOCOL: Final = "soak"
PLACE: Final = "STROM_SOAK_STORAGE"
"""The environment variable that says where parts of files are, and when the storage is away."""

AWAY: Final = "away"
"""A file there, last modified when the storage will be back."""

_ENTRY = f"[fsspec.specs]\n{PROTOCOL} = {__name__}:SoakFileSystem\n"
_METADATA = "Metadata-Version: 2.1\nName: strom-soak-storage\nVersion: 1\n"


class Outages(Faults):
    """All calls fail while the storage is away, and none before and after."""

    def __init__(self, place: Path) -> None:
        super().__init__(os.getpid(), 1.0)
        self._away = place / AWAY

    def next(self, call: Call) -> Kind | None:
        try:
            back = self._away.stat().st_mtime
        except FileNotFoundError:
            return None
        return super().next(call) if time.time() < back else None


class WholeLocal(LocalFileSystem):  # type: ignore[misc]
    """As in object stores, also for several processes: what is put is there whole or not at all,
    and with the mode "create" once; folders are there when they are needed, and go when they are
    empty."""

    cachable = False

    def __init__(self, place: Path) -> None:
        super().__init__(auto_mkdir=True)
        self._place = place

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        number, part = tempfile.mkstemp(dir=self._place)
        try:
            with os.fdopen(number, "wb") as file:
                file.write(value)
            self._put(part, path, mode)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(part)

    def rm(self, path: str, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Folders without files. What comes into one meanwhile stays."""
        for inside, _, _ in os.walk(self._strip_protocol(path), topdown=False):
            with suppress(OSError):
                os.rmdir(inside)

    def _put(self, part: str, path: str, mode: str) -> None:
        """Again, if a folder that was empty has just gone."""
        path = self._strip_protocol(path)
        while True:
            self.makedirs(self._parent(path), exist_ok=True)
            with suppress(FileNotFoundError):
                (os.link if mode == "create" else os.replace)(part, path)
                return


class SoakFileSystem(FaultyFileSystem):
    """What `soak://` is in processes that have the variable `PLACE`."""

    protocol = PROTOCOL

    def __init__(self, **options: Any) -> None:
        place = Path(os.environ[PLACE])
        super().__init__(WholeLocal(place), Outages(place))

    def unstrip_protocol(self, name: str) -> str:
        return f"{PROTOCOL}://{self._strip_protocol(name)}"


class Storage:
    """It, from outside."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def url(self, folder: Path) -> str:
        return f"{PROTOCOL}://{folder}"

    def go(self, seconds: float) -> None:
        """Away, from now on for so long."""
        away = self._place / AWAY
        away.touch()
        back = time.time() + seconds
        os.utime(away, (back, back))


@contextmanager
def reachable(folder: Path) -> Iterator[Storage]:
    """For this process, and those that start while the block lasts. `folder`: an empty one."""
    installed, place = folder / "installed", folder / "parts"
    about = installed / "strom_soak_storage-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(_METADATA)
    (about / "entry_points.txt").write_text(_ENTRY)
    place.mkdir()
    paths = [str(installed), os.environ.get("PYTHONPATH", "")]
    added = {PLACE: str(place), "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    before = {name: os.environ.get(name) for name in added}
    os.environ.update(added)
    register_implementation(PROTOCOL, SoakFileSystem, clobber=True)
    try:
        yield Storage(place)
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
