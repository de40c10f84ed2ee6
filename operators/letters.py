"""Dead letters of one operator's subtask: counted, bounded, logged and sent to a side output.

What is a record's own fault is a letter; what is not fails the job as ever:

* errors that are no `Exception` (SystemExit, KeyboardInterrupt, a cancelled coroutine), and
  MemoryError;
* errors of strom's own, but for a value that does not fit a declared type: they are about the
  program, or about what is broken around it;
* whatever state raises: nobody knows what has been stored then.

The count is operator state, a union list with an item of each subtask: a restored subtask knows the
sum, whatever the parallelism was. Letters go out as they come about, so that they are before any
barrier that the count is in.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ..api.dead_letters import DEAD_LETTERS, LETTER, DeadLetters
from ..core import failure_text
from ..core.batch import ColumnBatch
from ..core.constants import DEAD_LETTERS_COUNT
from ..core.errors import OperatorError, StromError, TypeMismatchError
from ..core.failure_text import cut, raised, traced, with_place
from ..core.texts import encodable
from ..core.value_types import Pickled
from ..state.descriptors import ListStateDescriptor
from .base import Operator

MESSAGE_LIMIT: Final = 2_000
"""Characters of a letter's message, and of its text."""

TRACE_LIMIT: Final = 8_000
"""Characters of its traceback."""

LOGGED: Final = 10
"""So many letters of a subtask and attempt are logged, then each time that there are twice as
many."""

_COUNTS = "__dead_letters"
_STATE = os.path.join(os.path.dirname(os.path.dirname(__file__)), "state", "")
_PICKLED = Pickled()
_log = logging.getLogger(__name__)


class NoRecord:
    """What a letter tells of where a method raised that is given no record, by its repr."""

    @property
    def given(self) -> Any:
        """What the method was given in place of a record; None: nothing worth keeping."""
        return None


@dataclass(frozen=True)
class DueTimer(NoRecord):
    """A timer."""

    key: Any
    timestamp: int

    def __repr__(self) -> str:
        return f"(no record: a timer at {self.timestamp} of the key {self.key!r})"


def open_letters(operator: Operator) -> Letters | None:
    """In `open`: the letters of an operator that is to write some."""
    policy = operator.on_error
    return None if policy is None else Letters(operator, policy)


class Letters:
    """Invariant: the state of all subtasks sums up to all letters that have gone out."""

    def __init__(self, operator: Operator, policy: DeadLetters) -> None:
        self._ctx = ctx = operator.ctx
        self._out = operator.out
        self._limit = policy.limit
        self._state = ctx.operator_state.get_union_list_state(ListStateDescriptor(_COUNTS))
        counts = list(self._state.get())
        self._before = sum(count for _, _, count in counts)
        """What all subtasks had written when the attempt began."""
        self._own = 0
        """What this subtask has written since."""
        self._held = held(counts, ctx.subtask, ctx.parallelism)
        """What its state has."""
        if self._held:
            ctx.metrics.count(DEAD_LETTERS_COUNT, self._held)  # of all attempts
        self._keep()

    def add(self, record: Any, error: Exception, stamp: int | None, function: str) -> None:
        """`function` raised `error` for the record, of this event time. Raises the error itself if
        it is no matter of the record, and OperatorError if there are too many now. Only where the
        error is being handled."""
        if not is_of_record(error):
            raise error
        count = self._before + self._own + 1
        if self._limit is not None and count > self._limit:
            raise self._too_many(count, record, error, function) from error
        self._own += 1
        self._held += 1
        self._keep()
        self._ctx.metrics.count(DEAD_LETTERS_COUNT)
        stamps = None if stamp is None else np.array([stamp], dtype=np.int64)
        letter = self._letter(record, error, stamp, function)
        if self._own <= LOGGED or self._own & (self._own - 1) == 0:
            self._tell(letter)
        columns = [
            pa.array([letter[field.name]], field.type)
            if field.name != "record"
            else pa.ExtensionArray.from_storage(
                _PICKLED, pa.array([letter["record"]], _PICKLED.storage)
            )
            for field in LETTER
        ]
        data = pa.RecordBatch.from_arrays(columns, schema=LETTER)
        self._out.emit_side(DEAD_LETTERS, ColumnBatch(data, stamps))

    def _keep(self) -> None:
        ctx = self._ctx
        item = (ctx.subtask, ctx.parallelism, self._held)
        self._state.update([item] if self._held else [])

    def _too_many(self, count: int, record: Any, error: Exception, function: str) -> OperatorError:
        """No attempt would end otherwise: the count is part of checkpoints."""
        last = cut(with_place(error), MESSAGE_LIMIT)
        text = (
            f"records have made its function raise, {count} of them, and "
            f"dead_letters(limit={self._limit}) allows {self._limit}; the last one, in {function} "
            f"for {shown(record)}: {last}"
        )
        failure = OperatorError(self._ctx.name, self._ctx.subtask, text, traced(error))
        failure.recoverable = False
        return failure

    def _letter(
        self, record: Any, error: Exception, stamp: int | None, function: str
    ) -> dict[str, Any]:
        kind = type(raised(error))
        module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
        return {
            "operator": encodable(self._ctx.name),
            "uid": None if self._ctx.uid is None else encodable(self._ctx.uid),
            "subtask": self._ctx.subtask,
            "function": function,
            "error": encodable(f"{module}{kind.__qualname__}"),
            "message": cut(with_place(error), MESSAGE_LIMIT),
            "traceback": cut(traced(error), TRACE_LIMIT),
            "event_time": stamp,
            "raised_at": self._ctx.clock.now_ms(),
            "record": _bytes_of(record.given if isinstance(record, NoRecord) else record),
            "text": shown(record),
        }

    def _tell(self, letter: dict[str, Any]) -> None:
        _log.warning(
            "operator '%s', subtask %s: dead letter %d of this attempt: %s: %s, for %s",
            self._ctx.name,
            self._ctx.subtask,
            self._own,
            letter["function"],
            letter["message"],
            letter["text"],
        )


def held(counts: Sequence[tuple[int, int, int]], subtask: int, parallelism: int) -> int:
    """What a subtask goes on with of these items, each (subtask, parallelism, count) of one that
    wrote it: its own, so that it may restart alone; at another parallelism the first takes all.

    >>> counts = [(0, 2, 5), (1, 2, 7)]
    >>> held(counts, 1, 2), [held(counts, at, 3) for at in range(3)]
    (7, [12, 0, 0])
    """
    if all(former == parallelism for _, former, _ in counts):
        return sum(count for owner, _, count in counts if owner == subtask)
    return sum(count for _, _, count in counts) if subtask == 0 else 0


def is_of_record(error: BaseException) -> bool:
    """Whether an error that a function raised makes its record a letter; see the module."""
    if not isinstance(error, Exception) or isinstance(error, MemoryError):
        return False
    if isinstance(error, StromError):
        return isinstance(error, TypeMismatchError)
    return not _in_state(error.__traceback__)


def _in_state(trace: TracebackType | None) -> bool:
    """Whether the innermost line is one of state's."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code.co_filename.startswith(_STATE)


def _bytes_of(record: Any) -> bytes | None:
    """The record pickled; None if it is None, does not pickle, or does not come back."""
    if record is None:
        return None
    try:
        data = _PICKLED.encode(record)
        _PICKLED.decode(data)
    except Exception:
        return None
    return data if isinstance(data, bytes) else None


def shown(record: Any) -> str:
    """Its repr, cut."""
    return encodable(failure_text.shown(record, MESSAGE_LIMIT))
