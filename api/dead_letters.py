"""Records for which a user's function raises: what becomes of them, and what tells of them.

`stream.map(f).on_error(dead_letters(limit=1000))` has such a record put aside, as a *dead letter*:
it gives nothing, the job goes on, and `get_dead_letters()` is the stream of what was put aside.
The name is that of message queues and of Flink's and Kafka Connect's users; Flink's DataStream API
has nothing of the kind but a side output that each function writes itself.

A letter is a row of columns (`LETTER`), so that letters can be counted, filtered and written like
any others; only the record within it is a Python object, in a column that only Python reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from ..core.errors import ConfigurationError
from ..core.value_types import Pickled

DEAD_LETTERS: Final = "__dead_letters"
"""The tag of the side output that they come out of."""

MALFORMED: Final = "__malformed"
"""The tag under which the reader of a source sends what its operator makes letters of."""

LETTER: Final = pa.schema(
    [
        ("operator", pa.string()),
        ("uid", pa.string()),
        ("subtask", pa.int32()),
        ("function", pa.string()),
        ("error", pa.string()),
        ("message", pa.string()),
        ("traceback", pa.string()),
        ("event_time", pa.int64()),
        ("raised_at", pa.int64()),
        ("record", Pickled()),
        ("text", pa.string()),
    ]
)
"""The columns of a letter.

operator, uid: its name, and the uid that the program gave it, if any. function: the method that
raised, such as `map` or `on_timer`; `read`: a source could not read what it found. error: its type,
with the module of those that are not Python's own. message, traceback: its text with the place, and
the user's lines, cut to some thousand characters. event_time: of the record (of a timer or a window
their time), None if there is none. raised_at: ms since the epoch by the clock of the subtask.
record: itself; of a window's firing what the function was given of it; None if it does not pickle,
or where there is none (a timer). text: its repr, cut, or what there was in its place."""


@dataclass(frozen=True)
class DeadLetters:
    """limit: how many letters an operator may write, of all its subtasks and of all attempts
    together; with the next one the job fails. None: any number."""

    limit: int | None = None

    def __post_init__(self) -> None:
        limit = self.limit
        if limit is None:
            return
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
            raise ConfigurationError(
                f"dead_letters: limit is how many records may be put aside before the job fails, 0 "
                f"or more, or None for any number; it is {limit!r}"
            )


def dead_letters(limit: int | None = None) -> DeadLetters:
    """For `on_error`: records for which the function raises are put aside, up to `limit` of them.

    Each subtask knows what all had put aside when its attempt began, and its own since then: of an
    operator with several subtasks, each may come to the limit by itself before the job fails.

    >>> dead_letters(limit=1000)
    DeadLetters(limit=1000)
    """
    return DeadLetters(limit)
