"""How commands answer: tables for people, one JSON document for scripts, and exit codes.

0   fine
1   there are differences, damage, or problems
2   the command was used wrongly, or there is nothing where it was pointed at
3   something broke that strom has no words for: the traceback is on stderr; or stdout takes no more
141 nobody reads stdout any more: what SIGPIPE ends has this code
"""

from __future__ import annotations

import json
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any, Final, NoReturn, TypeVar

import pyarrow as pa
import typer
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from ..core.errors import CheckpointFormatError, CorruptCheckpointError, StromError
from ..core.texts import printable, printable_lines
from .streams import UnwritableError, json_text, note, writing

FINE: Final = 0
DIFFERENT: Final = 1
USAGE: Final = 2
BROKEN: Final = 3
UNREAD: Final = 128 + signal.SIGPIPE

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
    a document on stdout) and an exit code, of which 1 is damage and nothing else. What stdout does
    not take is for `Commands`."""
    try:
        yield
    except StromError as error:
        damaged = isinstance(error, CorruptCheckpointError)
        damaged = damaged and not isinstance(error, CheckpointFormatError)
        fail(str(error), as_json, DIFFERENT if damaged else USAGE)
    except (typer.Exit, UnwritableError):
        raise
    except typer.TyperException as error:
        _refuse(error, as_json)
    except Exception as error:
        note(printable_lines(traceback.format_exc().rstrip("\n")))
        fail(f"{type(error).__name__}: {error}", as_json, BROKEN)


def fail(message: str, as_json: bool, code: int) -> NoReturn:
    """Say so, and exit. A line of the message that is not its first cannot be taken for a line of
    strom's own."""
    if as_json:
        say_json({"error": message})
    else:
        note(f"strom: {printable_lines(message)}".replace("\n", "\n    "))
    raise typer.Exit(code)


def _refuse(error: Any, as_json: bool) -> NoReturn:
    """What typer says of words that are no command, or not what one takes. Where it has shown a
    group's help instead, it says nothing."""
    message = error.format_message()
    if not message:
        raise typer.Exit(USAGE)
    context = getattr(error, "ctx", None)
    more = "" if context is None else f" (`{context.command_path} --help`)"
    fail(f"{message}{more}", as_json, USAGE)


def say_json(document: Any) -> None:
    """One document on stdout. NaN and infinities, of which JSON has none, are text."""
    _print(json_text(_as_json(document), indent=2), flush=True)


def json_line(document: Any) -> str:
    """The same as one line, for `say_lines`."""
    return json_text(_as_json(document))


def say_lines(text: str, flush: bool = False) -> None:
    """Lines on stdout, of `printable` texts."""
    _print(text, flush)


def say_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A table for people. Nothing in it is markup."""
    table = Table(title=Text(printable(title)), title_justify="left")
    for column in columns:
        table.add_column(Text(printable(column)), overflow="fold")
    for row in rows:
        table.add_row(*[Text(shown(value)) for value in row])
    draw(table)


def draw(drawn: RenderableType) -> None:
    """What rich makes of it. Texts in it are printable."""
    with writing():
        console().print(drawn)


def say(text: str) -> None:
    """A line for people."""
    with writing():
        console().print(Text(printable(text)), soft_wrap=True)


def say_rows(title: str, table: pa.Table, limit: int | None) -> None:
    """Rows of an Arrow table for people; `limit`: so many of them."""
    rows = table if limit is None else table.slice(0, limit)
    columns = [column.to_pylist() for column in rows.columns]
    say_table(title, table.column_names, list(zip(*columns, strict=True)))
    if rows.num_rows < table.num_rows:
        say(f"{rows.num_rows} of {table.num_rows} rows; --limit 0 shows all")


def console() -> Console:
    """On stdout, as wide as it has to be where that is no terminal."""
    terminal = sys.stdout is not None and sys.stdout.isatty()
    return _Console(width=None if terminal else _UNBOUND, highlight=False)


def shown(value: Any) -> str:
    """A value in a cell: printable, and not too long."""
    text = printable("" if value is None else value if isinstance(value, str) else repr(value))
    return text if len(text) <= MOST_WIDTH else f"{text[: MOST_WIDTH - 3]}..."


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Within the handler of the error. Without this, rich would exit."""
        raise


def _print(text: str, flush: bool) -> None:
    with writing(flush):
        print(text)


def _as_json(document: Any) -> Any:
    return json.loads(json.dumps(document, default=_plain), parse_constant=str)


def _plain(value: Any) -> Any:
    """What JSON has no form of: bytes as hex, times as text."""
    if isinstance(value, Decimal):  # as DuckDB's sums of whole numbers are
        return int(value) if value.is_finite() and value.as_tuple().exponent == 0 else str(value)
    isoformat: Callable[[], str] | None = getattr(value, "isoformat", None)
    if isinstance(value, bytes):
        return value.hex()
    return isoformat() if isoformat is not None else str(value)
