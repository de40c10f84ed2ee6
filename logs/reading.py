"""Lines of machines' folders, in the order of time, from where the reader has come to.

A reader's place is a number per file: how many bytes of it are read. What comes from several files
is merged; a file of which only a part was read holds back what others said later, until it is read
further. Lines of one file are nearly in order: threads that speak at once may swap two, so a line
counts as said no earlier than the one before it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ..core.texts import all_encodable
from .files import files_of, name_of
from .filters import LogFilter
from .records import SURROGATE, Entry

MOST_BYTES: Final = 4 << 20
"""Of all files of a folder together, that one call reads; more only for long lines."""

LEAST_CHUNK: Final = 16 << 10

_SURROGATE: Final = SURROGATE.encode()

Places = dict[str, int]

Cursor = dict[str, Places]
"""By folder."""


@dataclass
class FolderPage:
    """What was read of one folder, which `folder` names for good.

    `lines`: those that are wanted, each with the time that it counts at, its file, and where it
    begins there. `places`: where to go on. `horizon`: what is later may be missing; None: nothing
    is."""

    folder: str
    lines: list[tuple[str, str, int, Entry]] = field(default_factory=list)
    places: Places = field(default_factory=dict)
    horizon: str | None = None


def read_folder(folder: Path, places: Mapping[str, int], wanted: LogFilter) -> FolderPage | None:
    """The next piece of each file. `places`: where the reader is. None: there is no such folder."""
    name = name_of(folder)
    if name is None:
        return None
    page = FolderPage(name)
    files = files_of(folder)
    chunk = _chunk(files)
    horizons = []
    for file in files:
        start = places.get(file.name, 0)
        data, more = _next(file, start, chunk)
        page.places[file.name] = start + len(data)
        latest = ""
        for begins, entry in _entries(data, start):
            latest = max(latest, entry["time"])
            if wanted.takes(entry):
                page.lines.append((latest, file.name, begins, entry))
        if more:
            horizons.append(latest)
    page.horizon = min(horizons, default=None)
    return page


def merged(pages: Iterable[FolderPage], limit: int) -> tuple[list[Entry], Cursor, bool]:
    """The first lines of all folders, in the order of time; where to go on; whether there is more
    already."""
    pages = list(pages)
    horizon = min((page.horizon for page in pages if page.horizon is not None), default=None)
    cursor = {page.folder: dict(page.places) for page in pages}
    lines = sorted(
        (time, page.folder, file, begins, entry)
        for page in pages
        for time, file, begins, entry in _keyed(page)
    )
    taken: list[Entry] = []
    for time, folder, file, begins, keyed in lines:
        if len(taken) < limit and (horizon is None or time <= horizon):
            taken.append(keyed.entry)
        else:  # the first of its file that is left: there the reader goes on
            cursor[folder][file] = min(cursor[folder][file], begins)
    return taken, cursor, horizon is not None or len(taken) < len(lines)


def ends_of(folder: Path, before: int) -> Places:
    """Where a reader stands who wants of each process the last `before` bytes, and what comes; less
    where there are many processes: `read_folder` reads it at once."""
    places: Places = {}
    of_process: dict[str, list[Path]] = {}
    files = files_of(folder)
    before = min(before, _chunk(files))
    for file in files:
        of_process.setdefault(file.name.rsplit(".", 2)[0], []).append(file)
    for mine in of_process.values():
        left = before
        for file in reversed(mine):
            try:
                size = file.stat().st_size
                places[file.name] = _line_start(file, max(0, size - left))
            except FileNotFoundError:  # it was the oldest
                continue
            left = max(0, left - size)
    return places


def _chunk(files: list[Path]) -> int:
    """How much is read of each."""
    return max(LEAST_CHUNK, MOST_BYTES // max(1, len(files)))


@dataclass(frozen=True, order=True)
class _Keyed:
    """An entry that sorts as equal to all others."""

    entry: Entry = field(compare=False)


def _keyed(page: FolderPage) -> Iterator[tuple[str, str, int, _Keyed]]:
    for time, file, begins, entry in page.lines:
        yield time, file, begins, _Keyed(entry)


def _next(file: Path, start: int, chunk: int) -> tuple[bytes, bool]:
    """Whole lines from there on, and whether there are more."""
    try:
        if (size := file.stat().st_size) <= start:
            return b"", False
        with open(file, "rb") as opened:
            opened.seek(start)
            data = opened.read(chunk)
            while data and b"\n" not in data and (more := opened.read(chunk)):
                data += more
    except FileNotFoundError:  # it was the oldest
        return b"", False
    # A piece of a line at the end of the file is no more to come: its process may be dead.
    return data[: data.rfind(b"\n") + 1], start + len(data) < size


def _entries(data: bytes, start: int) -> Iterator[tuple[int, Entry]]:
    """What is no record, as a line that a killed process began, is passed over."""
    for line in data.splitlines(keepends=True):
        begins, start = start, start + len(line)
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if _SURROGATE in line:
            entry = all_encodable(entry)
        if isinstance(entry, dict) and {"time", "level", "logger", "message"} <= entry.keys():
            yield begins, entry


def _line_start(file: Path, at: int) -> int:
    """Where the first whole line begins from there on."""
    if at == 0:
        return 0
    with open(file, "rb") as opened:
        opened.seek(at - 1)
        rest = opened.readline()
    return at - 1 + len(rest)
