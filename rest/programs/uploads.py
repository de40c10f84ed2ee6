"""Programs that were uploaded: a folder each, on the machine of the server.

    <id>/<name>           a Python file, a zip with a __main__.py, or a wheel
    <id>.json             its name, size and when it came; written last

Names come from clients: one that is not plainly a file's name is refused, never made to fit.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO, Final

from ...core.errors import ConfigurationError
from ..catalogs.catalog import Refused

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}\.(py|zip|whl)", re.ASCII)
PROGRAM_ID: Final = r"^[0-9a-f]{32}$"

NO_PROGRAMS: Final = (
    "this server takes no programs: whoever may upload one runs what they like as the owner of the "
    "cluster; allow it with --rest-programs"
)

MOST_PROGRAMS: Final = 100
PIECE: Final = 1 << 20

MOST_DIRECTORY: Final = 4 << 20
"""Bytes of a zip's list of its files: some ten thousands of them. In memory it takes ten times as
much."""

BROKEN_OFF_S: Final = 3600.0
"""An upload that has not been complete for so long is none: its server died. No upload takes so
long."""


class BadProgram(ConfigurationError):
    """What was uploaded is none."""


class NoSuchProgram(ConfigurationError):
    """Nobody uploaded it, or it was deleted."""


@dataclass(frozen=True)
class Program:
    """`uploaded_ms`: since the epoch."""

    id: str
    name: str
    size: int
    uploaded_ms: int


class Programs:
    """From any thread."""

    def __init__(self, folder: Path) -> None:
        """`folder`: made if it is not there, for its owner only."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder
        self._lock = threading.Lock()
        self._coming = 0
        """Uploads that are on."""
        self._tidy()

    def list(self) -> list[Program]:
        """The latest first."""
        return sorted(self._all(), key=lambda one: (-one.uploaded_ms, one.id))

    def get(self, program_id: str) -> Program:
        if re.fullmatch(PROGRAM_ID, program_id):
            try:
                found = json.loads((self._folder / f"{program_id}.json").read_text())
                return Program(**found)
            except (FileNotFoundError, TypeError, ValueError):
                pass  # what is damaged never was complete
        raise NoSuchProgram("there is no such program: it was deleted, or never uploaded")

    def path(self, program: Program) -> Path:
        return self._folder / program.id / program.name

    def add(self, name: str, content: BinaryIO, limit: int) -> Program:
        """BadProgram for a name or content that is none; Refused if there are too many."""
        if not NAME.fullmatch(name):
            raise BadProgram(
                "the name of a program is that of a .py, .zip or .whl file: letters, digits and "
                "._+- without any folder"
            )
        with self._lock:
            if len(list(self._all())) + self._coming >= MOST_PROGRAMS:
                raise Refused(f"there are {MOST_PROGRAMS} programs: delete some")
            self._coming += 1
        try:
            return self._added(name, content, limit)
        finally:
            with self._lock:
                self._coming -= 1

    def _added(self, name: str, content: BinaryIO, limit: int) -> Program:
        made = Program(secrets.token_hex(16), name, 0, time.time_ns() // 1_000_000)
        place, new = self._folder / made.id, self._folder / f"{made.id}.new"
        place.mkdir(mode=0o700)
        try:
            size = _copy(content, place / name, limit)
            _check(place / name)
            made = Program(made.id, name, size, made.uploaded_ms)
            new.write_text(json.dumps(asdict(made)))
            new.rename(self._folder / f"{made.id}.json")
        except BaseException:
            new.unlink(missing_ok=True)
            shutil.rmtree(place, ignore_errors=True)
            raise
        return made

    def remove(self, program_id: str) -> None:
        program = self.get(program_id)
        with self._lock:
            (self._folder / f"{program.id}.json").unlink(missing_ok=True)
            shutil.rmtree(self._folder / program.id, ignore_errors=True)

    def _tidy(self) -> None:
        """What uploads have left that their server did not live to see the end of."""
        late = time.time() - BROKEN_OFF_S
        for path in list(self._folder.iterdir()):
            mine = re.fullmatch(PROGRAM_ID, path.stem) and path.suffix in ("", ".new")
            with suppress(OSError):
                if not mine or path.stat().st_mtime > late:
                    continue
                if path.suffix:
                    path.unlink()
                elif not path.with_suffix(".json").exists():
                    shutil.rmtree(path)

    def _all(self) -> Iterator[Program]:
        for path in self._folder.glob("*.json"):
            try:
                yield self.get(path.stem)
            except NoSuchProgram:
                continue


def _copy(content: BinaryIO, path: Path, limit: int) -> int:
    size = 0
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        while piece := content.read(PIECE):
            size += len(piece)
            if size > limit:
                raise BadProgram(f"the program is larger than {limit} bytes")
            file.write(piece)
    return size


def _check(path: Path) -> None:
    """That it is what its name says. Nothing of it is run or unpacked."""
    if path.suffix == ".py":
        # No more: what parses it may be broken by what it parses.
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError as error:
            raise BadProgram(f"{path.name} is no UTF-8 text: {error}") from None
        if "\0" in text:
            raise BadProgram(f"{path.name} is no text: it holds a zero byte")
        return
    if _directory_size(path) > MOST_DIRECTORY:
        raise BadProgram(f"{path.name} lists too many files: a program has a few thousands")
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, NotImplementedError, OSError, ValueError) as error:
        raise BadProgram(f"{path.name} is no zip file: {error}") from None
    if path.suffix == ".zip" and "__main__.py" not in names:
        raise BadProgram(f"{path.name} has no __main__.py at its top")


_LOCATOR: Final = 20
"""Bytes of what stands before the end record of an archive in 64 bits."""

_END: Final = 22
"""Bytes of a zip's end record, without its comment."""


def _directory_size(path: Path) -> int:
    """Bytes of a zip's list of its files, as zipfile will believe it to be: from the record that it
    takes for the end. Of an archive that says so in 64 bits: more than any may have. 0: no zip."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        tail = min(size, (1 << 16) + _END + _LOCATOR)
        file.seek(size - tail)
        last = file.read(tail)
    at = len(last) - _END
    if not (at >= 0 and last.startswith(b"PK\5\6", at) and last.endswith(b"\0\0")):
        at = last.rfind(b"PK\5\6")
    if at < 0 or len(last) - at < _END:
        return 0
    if last.startswith(b"PK\6\7", max(0, at - _LOCATOR)):
        return MOST_DIRECTORY + 1
    return int.from_bytes(last[at + 12 : at + 16], "little")
