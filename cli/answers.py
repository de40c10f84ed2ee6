"""How commands answer: tables for people, one JSON document for scripts, and exit codes.

0   fine
1   there are differences, damage, or problems
2   the command was used wrongly, or there is nothing where it was pointed at
3   something broke that strom has no words for: the traceback is on stderr
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any, Final, NoReturn, TypeVar

import pyarrow as pa
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..core.errors import CheckpointFormatError, CorruptCheckpointError, StromError

FINE: Final = 0
DIFFERENT: Final = 1
USAGE: Final = 2
BROKEN: Final = 3

STDERR: Final = 2
"""Where processes of commands write what is no answer."""

MOST_WIDTH: Final = 60
"""Characters of a value in a table for people."""

_UNBOUND: Final = 10_000
"""Characters of a line that nothing is folded in."""

T = TypeVar("T")


@contextmanager
def answering(as_json: bool) -> Iterator[None]:
    """All that a command does is done within: what goes wrong becomes a line on stderr (`as_json`:
    a document on stdout) and an exit code, of which 1 is damage and nothing else."""
    try:
        yield
    except StromError as error:
        damaged = isinstance(error, CorruptCheckpointError)
        damaged = damaged and not isinstance(error, CheckpointFormatError)
        fail(str(error), as_json, DIFFERENT if damaged else USAGE)
    except (typer.Exit, BrokenPipeError):
        raise
    except Exception as error:
        traceback.print_exc()
        fail(f"{type(error).__name__}: {error}", as_json, BROKEN)


def fail(message: str, as_json: bool, code: int) -> NoReturn:
    """Say so, and exit."""
    if as_json:
        say_json({"error": message})
    else:
        print(f"strom: {message}", file=sys.stderr)
    raise typer.Exit(code)


def say_json(document: Any) -> None:
    """One document on stdout. NaN and infinities, of which JSON has none, are text."""
    plain = json.loads(json.dumps(document, default=_plain), parse_constant=str)
    print(json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False))


def say_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A table for people. Nothing in it is markup."""
    table = Table(title=Text(title), title_justify="left")
    for column in columns:
        table.add_column(Text(column), overflow="fold")
    for row in rows:
        table.add_row(*[Text(shown(value)) for value in row])
    console().print(table)


def say(text: str) -> None:
    """A line for people."""
    console().print(Text(text), soft_wrap=True)


def say_rows(title: str, table: pa.Table, limit: int | None) -> None:
    """Rows of an Arrow table for people; `limit`: so many of them."""
    rows = table if limit is None else table.slice(0, limit)
    columns = [column.to_pylist() for column in rows.columns]
    say_table(title, table.column_names, list(zip(*columns, strict=True)))
    if rows.num_rows < table.num_rows:
        say(f"{rows.num_rows} of {table.num_rows} rows; --limit 0 shows all")


def console() -> Console:
    """On stdout, as wide as it has to be where that is no terminal."""
    wide = None if sys.stdout.isatty() else _UNBOUND
    return Console(width=wide, highlight=False)


def shown(value: Any) -> str:
    """A value in a cell: printable, and not too long."""
    text = "" if value is None else value if isinstance(value, str) else repr(value)
    text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return text if len(text) <= MOST_WIDTH else f"{text[: MOST_WIDTH - 3]}..."


def _plain(value: Any) -> Any:
    """What JSON has no form of: bytes as hex, times as text."""
    if isinstance(value, Decimal):  # as DuckDB's sums of whole numbers are
        return int(value) if value.is_finite() and value.as_tuple().exponent == 0 else str(value)
    isoformat: Callable[[], str] | None = getattr(value, "isoformat", None)
    if isinstance(value, bytes):
        return value.hex()
    return isoformat() if isoformat is not None else str(value)
