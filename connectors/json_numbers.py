"""Numbers of any length in JSON: BIG_DEC and BIG_INT are text there, as they are written here, or
numbers, as others write them. Both are read exactly: 1.50 stays 1.50.

Arrow's parser makes such columns of text alone. Where it finds numbers it says no, and then they
are made text of ahead of it (`quoted`), record by record, and nothing else is touched.
"""

from __future__ import annotations

import io
import json
import re
import uuid
from typing import Any

import pyarrow as pa

from ..core.errors import TypeMismatchError
from ..core.value_types import BigDecimal, BigInteger, holds

_types = pa.types

_DECIMAL = re.compile(r"[+-]?((\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?|s?NaN\d*|Infinity)", re.ASCII)
_WHOLE = re.compile(r"[+-]?(\d+|0x[0-9a-f]+)", re.ASCII)

_MARK = uuid.uuid4().hex
"""Begins the text that stands for a number while a record is Python; no record holds it."""

_MARKED = re.compile(f'"{_MARK}([^"]*)"')


def is_big(kind: pa.DataType) -> bool:
    """Whether values are numbers of any length."""
    return isinstance(kind, (BigDecimal, BigInteger))


def holds_big(schema: pa.Schema) -> bool:
    """Whether there are such numbers in the columns, at any depth."""
    return any(holds(field.type, is_big) for field in schema)


def big_column(texts: pa.Array, kind: Any) -> pa.Array:
    """Texts as such numbers. Raises ArrowInvalid for one that is none."""
    form = _DECIMAL if isinstance(kind, BigDecimal) else _WHOLE
    for text in texts.to_pylist():
        if text is not None and (form.fullmatch(text) is None or not _is_read(text, kind)):
            shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
            raise pa.ArrowInvalid(f"{shown!r} is no {kind.name.upper()}")
    return pa.ExtensionArray.from_storage(kind, texts.cast(kind.storage_type))


_SHOWN = 80


def _is_read(text: str, kind: Any) -> bool:
    try:
        kind.decode(text)
    except (ArithmeticError, ValueError, TypeMismatchError):
        return False
    return True


def quoted(record: bytes, schema: pa.Schema) -> bytes:
    """A JSON object with the numbers in such columns as texts; as it is if it is none, or has a key
    twice, which the parser will say."""
    try:
        value = json.loads(
            record,
            parse_int=_marked,
            parse_float=_marked,
            parse_constant=_refuse,
            object_pairs_hook=_object,
        )
    except (ValueError, RecursionError):
        return record
    if not isinstance(value, dict):
        return record
    for field in schema:
        if field.name in value and holds(field.type, is_big):
            value[field.name] = _unmarked(value[field.name], field.type)
    return _MARKED.sub(r"\1", json.dumps(value, separators=(",", ":"))).encode()


class QuotedLines(io.RawIOBase):
    """A file of JSON Lines with such numbers as texts."""

    def __init__(self, file: Any, schema: pa.Schema) -> None:
        self._file = file
        self._schema = schema
        self._line = b""
        """What has come of the last line."""
        self._ready = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        while not self._ready:
            piece: bytes = self._file.read(None if size < 0 else size)
            lines, newline, rest = (self._line + piece).rpartition(b"\n")
            if not piece:
                lines, rest = rest, b""
                newline = b""
            self._line = rest
            if lines or newline:
                made = (quoted(line, self._schema) for line in lines.split(b"\n"))
                self._ready = b"\n".join(made) + newline
            elif not piece:
                return b""
        end = len(self._ready) if size < 0 else size
        out, self._ready = self._ready[:end], self._ready[end:]
        return out

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


def _marked(number: str) -> str:
    return _MARK + number


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a key twice")
    return made


def _unmarked(value: Any, kind: pa.DataType) -> Any:
    """With numbers as texts where the type wants such."""
    if is_big(kind):
        return value.removeprefix(_MARK) if isinstance(value, str) else value
    if _types.is_struct(kind) and isinstance(value, dict):
        for field in kind:
            if field.name in value:
                value[field.name] = _unmarked(value[field.name], field.type)
        return value
    if isinstance(value, list) and kind.num_fields == 1:
        return [_unmarked(one, kind.value_type) for one in value]
    return value


__all__ = ["QuotedLines", "big_column", "holds_big", "is_big", "quoted"]
