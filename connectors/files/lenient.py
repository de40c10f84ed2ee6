"""What of a file cannot be read, one by one, while all else is: for `on_error` of a FileSource.

A piece of a text file is cut into its records, and parsed as a whole; if that fails, in halves,
down to the record at fault. So a file without one costs little more than it does otherwise, and
each bad record some twenty parsings of ever smaller pieces. Each is an `Unread`, in its place among
the rows; it counts as a row in a split's position, so a restart comes upon the same ones.

Records of CSV may hold line breaks within quotes. One whose quote is never closed swallows what
follows, up to the next quote; if that is no record, its first line alone is put aside, and what
follows is cut anew.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, TypeAlias

import pyarrow as pa

from ...core.errors import ConnectorError, TypeMismatchError
from ...core.failure_text import cut, text_of

TEXT_LIMIT: Final = 10_000
"""Characters that an Unread has of what cannot be read."""

PIECE_BYTES: Final = 1 << 19
"""About what is parsed at once."""

MALFORMED: Final = (pa.ArrowException, ConnectorError, TypeMismatchError, ValueError, KeyError)
"""What parsers raise, and those who make columns of what they parsed."""

UNREAD: Final = pa.schema(
    [
        ("path", pa.string()),
        ("position", pa.int64()),
        ("text", pa.string()),
        ("error", pa.string()),
    ]
)
"""The columns of what is told of it."""


@dataclass(frozen=True)
class Unread:
    """A record that cannot be read. `position`: of text files its first line, else which record it
    is, from 1."""

    path: str
    position: int
    text: str
    error: str

    num_rows = 1
    """What it counts for in a split's position."""

    def told(self) -> pa.RecordBatch:
        row = (self.path, self.position, cut(self.text, TEXT_LIMIT), self.error)
        return pa.RecordBatch.from_arrays([pa.array([one]) for one in row], schema=UNREAD)


@dataclass(frozen=True)
class TextRecord:
    """`line`: its first, from 1. `lines`: with their ends. `torn`: a quote is never closed."""

    line: int
    lines: tuple[bytes, ...]
    torn: bool = False


Cut = Callable[[Iterable[tuple[int, bytes]]], Iterator[TextRecord]]
"""Makes records of numbered lines."""

Parse = Callable[[bytes], pa.RecordBatch]
"""Of whole records. Raises one of MALFORMED."""

Item: TypeAlias = pa.RecordBatch | Unread


def numbered(file: Any, block: int, returns: bool) -> Iterator[tuple[int, bytes]]:
    """The lines of an open file, which is read in blocks of so many bytes, with their ends.
    `returns`: a carriage return alone ends one, too."""
    number, rest = 1, b""
    while data := file.read(block):
        lines = (rest + data).splitlines(True) if returns else _at_newlines(rest + data)
        rest = b"" if lines[-1].endswith(b"\n") else lines.pop()
        for line in lines:
            yield number, line
            number += 1
    if rest:
        yield number, rest


def _at_newlines(data: bytes) -> list[bytes]:
    *lines, rest = data.split(b"\n")
    return [*(line + b"\n" for line in lines), *([rest] if rest else [])]


def each_line(lines: Iterable[tuple[int, bytes]]) -> Iterator[TextRecord]:
    """A record a line, but for empty ones."""
    for number, line in lines:
        if line.strip():
            yield TextRecord(number, (line,))


def quoted(quote: bytes | None, escape: bytes | None, keeps_empty: bool) -> Cut:
    """Records that go on while a quote is open. `keeps_empty`: an empty line is one."""

    def records(lines: Iterable[tuple[int, bytes]]) -> Iterator[TextRecord]:
        first, held, is_open = 0, list[bytes](), False
        for number, line in lines:
            if not held:
                first = number
            held.append(line)
            is_open ^= quote is not None and _quotes(line, quote, escape) % 2 == 1
            if is_open:
                continue
            if keeps_empty or held != [line] or line.strip(b"\r\n"):
                yield TextRecord(first, tuple(held))
            held = []
        if held:
            yield TextRecord(first, tuple(held), torn=True)

    return records


def _quotes(line: bytes, quote: bytes, escape: bytes | None) -> int:
    if quote not in line:
        return 0
    if escape is None or escape not in line:
        return line.count(quote)
    parts = line.replace(escape + escape, b"").split(escape + quote)
    return sum(part.count(quote) for part in parts)


def read_leniently(
    path: str, lines: Iterable[tuple[int, bytes]], into_records: Cut, parse: Parse
) -> Generator[Item, None, None]:
    """All rows of a text file, and what is none, in order."""
    held: list[TextRecord] = []
    size = 0
    for record in into_records(lines):
        held.append(record)
        size += sum(map(len, record.lines))
        if size >= PIECE_BYTES:
            yield from _halved(path, held, into_records, parse)
            held, size = [], 0
    yield from _halved(path, held, into_records, parse)


def _halved(
    path: str, records: Sequence[TextRecord], into_records: Cut, parse: Parse
) -> Iterator[Item]:
    if not records:
        return
    try:
        if records[-1].torn:  # a parser may take it for one that ends with the file
            raise ValueError("a quote is never closed")
        rows = parse(b"".join(chain.from_iterable(record.lines for record in records)))
        if rows.num_rows != len(records):
            raise ValueError(f"{len(records)} records are {rows.num_rows} rows")
    except MALFORMED as error:
        if len(records) > 1:
            half = len(records) // 2
            yield from _halved(path, records[:half], into_records, parse)
            yield from _halved(path, records[half:], into_records, parse)
            return
        (bad,) = records
        yield Unread(path, bad.line, _text(bad.lines[0]), text_of(error))
        rest = enumerate(bad.lines[1:], bad.line + 1)
        yield from _halved(path, list(into_records(rest)), into_records, parse)
    else:
        yield rows


def _text(line: bytes) -> str:
    return line[: 4 * TEXT_LIMIT].decode(errors="backslashreplace").rstrip("\r\n")
