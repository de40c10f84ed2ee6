"""The messages of `pgoutput`, PostgreSQL's own plugin for logical replication, protocol version 1.

A transaction comes as a whole when it has committed: Begin, its changes in their order, Commit. A
Relation comes before the first change of a table in a connection, and again when the table's
definition has changed.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from ...core.errors import ConnectorError


class Unchanged:
    """Stands for a large value that an update did not touch, and that was not sent therefore."""

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final = Unchanged()

Value = bytes | Unchanged | None
"""A value's text; None: null."""

Values = list[Value]


@dataclass(frozen=True, slots=True)
class Begin:
    """`commit_lsn`: where the commit begins; transactions come in its order. `time_us`: of the
    commit, since 2000. `xid`: the low 32 bits."""

    commit_lsn: int
    time_us: int
    xid: int


@dataclass(frozen=True, slots=True)
class Commit:
    """`end_lsn`: where the next transaction's commit begins at the earliest."""

    commit_lsn: int
    end_lsn: int


@dataclass(frozen=True, slots=True)
class Relation:
    """`columns`: name, type and modifier of each that is published. `key`: names of those that
    identify a row, in the order of the table; all, if `identity` is `f`."""

    oid: int
    schema_name: str
    name: str
    identity: str
    columns: tuple[tuple[str, int, int], ...]
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Insert:
    relation: int
    new: Values


@dataclass(frozen=True, slots=True)
class Update:
    """`old`: the row before; of a table that is identified by a key, its key columns, and only if
    one has changed, else None."""

    relation: int
    old: Values | None
    whole: bool
    """Whether `old` is the whole row."""
    new: Values


@dataclass(frozen=True, slots=True)
class Delete:
    """`whole`: whether `old` is the whole row, not only its key columns."""

    relation: int
    old: Values
    whole: bool


@dataclass(frozen=True, slots=True)
class Truncate:
    relations: tuple[int, ...]


Decoded = Begin | Commit | Relation | Insert | Update | Delete | Truncate

_BEGIN: Final = struct.Struct("!QqI")
_COMMIT: Final = struct.Struct("!BQQq")
_NUMBER: Final = struct.Struct("!I")
_COUNT: Final = struct.Struct("!H")
_TYPE: Final = struct.Struct("!Ii")
_TRUNCATE: Final = struct.Struct("!IB")

_IGNORED: Final = b"YOM"
"""Names of types, origins of changes, messages of programs."""


def decode(data: bytes) -> Decoded | None:
    """One message; None for those that say nothing of rows. Raises ConnectorError for one that
    protocol version 1 does not have."""
    kind = data[:1]
    match kind:
        case b"I":
            (relation,) = _NUMBER.unpack_from(data, 1)
            return Insert(relation, _tuple(data, 6)[0])
        case b"U":
            return _update(data)
        case b"D":
            (relation,) = _NUMBER.unpack_from(data, 1)
            return Delete(relation, _tuple(data, 6)[0], data[5:6] == b"O")
        case b"B":
            return Begin(*_BEGIN.unpack_from(data, 1))
        case b"C":
            _, commit_lsn, end_lsn, _ = _COMMIT.unpack_from(data, 1)
            return Commit(commit_lsn, end_lsn)
        case b"R":
            return _relation(data)
        case b"T":
            count, _ = _TRUNCATE.unpack_from(data, 1)
            return Truncate(struct.unpack_from(f"!{count}I", data, 1 + _TRUNCATE.size))
    if kind in _IGNORED:
        return None
    raise ConnectorError(f"the server sent a message {kind!r} that pgoutput's version 1 has not")


def _update(data: bytes) -> Update:
    (relation,) = _NUMBER.unpack_from(data, 1)
    mark, at = data[5:6], 6
    old = None
    if mark in (b"K", b"O"):
        old, at = _tuple(data, at)
        at += 1
    return Update(relation, old, mark == b"O", _tuple(data, at)[0])


def _relation(data: bytes) -> Relation:
    (oid,) = _NUMBER.unpack_from(data, 1)
    schema_name, at = _text(data, 5)
    name, at = _text(data, at)
    identity = data[at : at + 1].decode()
    (count,) = _COUNT.unpack_from(data, at + 1)
    at += 3
    columns = []
    key = []
    for _ in range(count):
        identifies = data[at] & 1
        column, at = _text(data, at + 1)
        if identifies:
            key.append(column)
        columns.append((column, *_TYPE.unpack_from(data, at)))
        at += _TYPE.size
    return Relation(oid, schema_name or "pg_catalog", name, identity, tuple(columns), tuple(key))


def _text(data: bytes, at: int) -> tuple[str, int]:
    """Up to a zero byte, and where what follows begins."""
    end = data.index(b"\0", at)
    return data[at:end].decode(), end + 1


def _tuple(data: bytes, at: int) -> tuple[Values, int]:
    """The values of a row, and where what follows begins."""
    (count,) = _COUNT.unpack_from(data, at)
    at += 2
    values: Values = []
    for _ in range(count):
        kind = data[at]
        at += 1
        if kind == 0x74:  # t: text
            (size,) = _NUMBER.unpack_from(data, at)
            at += 4
            values.append(data[at : at + size])
            at += size
        elif kind == 0x6E:  # n: null
            values.append(None)
        elif kind == 0x75:  # u: unchanged
            values.append(UNCHANGED)
        else:
            raise ConnectorError(f"the server sent a value of kind {chr(kind)!r}, not as text")
    return values, at
