"""Programs whose values, splits or errors cannot travel, and the sentence each must end with: the
same on the local host, where nothing has to travel, as on Ray."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import strom
from strom.api.connectors.base import (
    Emit,
    EnumeratorContext,
    NeedSplit,
    Polled,
    ReaderContext,
    Source,
    SourceReader,
    SplitEnumerator,
)
from strom.core.batch import ObjectBatch


class Unreadable:
    """Pickles, but cannot be made from its pickle."""

    def __init__(self, n: Any = 0) -> None:
        self.n = n

    def __reduce__(self) -> Any:
        return (int, ("not a number",))


class Wordless(Exception):
    """Raises whatever it is asked for its text, and does not pickle."""

    def __str__(self) -> str:
        raise SystemExit("no text for you")

    __repr__ = __str__

    def __reduce__(self) -> Any:
        raise TypeError("not me")


@dataclass(frozen=True)
class OddSplit:
    split_id: str
    load: Any


class OddSource(Source):
    """One split that holds what `make` returns, and no records."""

    def __init__(self, make: Callable[[], Any], in_snapshot: bool = False) -> None:
        self.make = make
        self.in_snapshot = in_snapshot

    @property
    def bounded(self) -> bool:
        return not self.in_snapshot

    def create_enumerator(self, context: EnumeratorContext, restored: Any) -> SplitEnumerator:
        return _OddEnumerator(self)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return _OddReader()


class _OddEnumerator(SplitEnumerator):
    def __init__(self, source: OddSource) -> None:
        self.source = source
        self.given = False

    def next_splits(self, subtask: int) -> Sequence[Any] | None:
        if self.source.in_snapshot:
            return []
        if self.given:
            return None
        self.given = True
        return [OddSplit("odd", self.source.make())]

    def snapshot(self) -> Any:
        return self.source.make() if self.source.in_snapshot else None


class _OddReader(SourceReader):
    def __init__(self) -> None:
        self.splits: list[Any] = []

    def add_splits(self, splits: Sequence[Any]) -> None:
        self.splits.extend(splits)

    def poll(self) -> Polled:
        if not self.splits:
            return NeedSplit()
        return Emit(ObjectBatch([1]), self.splits.pop().split_id, finished=True)

    def snapshot(self) -> Sequence[Any]:
        return self.splits


def a_lock(n: Any) -> Any:
    return threading.Lock()


def one_lock_among_plain_ones(n: Any) -> Any:
    return (n, [threading.Lock()]) if n == 77 else (n, [n])


def raising(error: Callable[[], BaseException]) -> Callable[[Any], Any]:
    def raise_it(n: Any) -> Any:
        raise error()

    return raise_it


def numbers(env: Any) -> Any:
    return env.from_collection(list(range(100))).set_parallelism(2).name("numbers")


def across(stream: Any) -> Any:
    """To another task."""
    return stream.name("it").rebalance().map(lambda value: 1).name("next")


def from_odd(env: Any, make: Callable[[], Any]) -> Any:
    return env.from_source(OddSource(make), source_name="odd source")


COLLECTED = (
    r"operator 'Sink: Collect', subtask \d: SerializationError: a record of type {} cannot be sent "
    r"to the job's client \(.*\); make it picklable or map it to plain data before$"
)
CROSSED = (
    r"operator 'it', subtask \d: SerializationError: a record of type {} cannot be sent to another "
    r"task \(.*\); make it picklable or map it to plain data before$"
)
LOCK = r"_thread\.lock"

PROGRAMS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a lock for the client": (lambda e: numbers(e).map(a_lock), COLLECTED.format(LOCK)),
    "a lock within a row for the client": (
        lambda e: numbers(e).map(one_lock_among_plain_ones),
        COLLECTED.format(r"builtins\.tuple"),
    ),
    "a lock for another task": (lambda e: across(numbers(e).map(a_lock)), CROSSED.format(LOCK)),
    "a lock within a row for another task": (
        lambda e: across(numbers(e).map(one_lock_among_plain_ones)),
        CROSSED.format(r"builtins\.tuple"),
    ),
    "a generator for another task": (
        lambda e: across(numbers(e).map(lambda n: (m for m in range(n)))),
        CROSSED.format(r"builtins\.generator"),
    ),
    "a value another task cannot read": (
        lambda e: across(numbers(e).map(Unreadable)),
        r"operator 'next', subtask \d: SerializationError: from .* records cannot be read "
        r"\(ValueError: .*not a number.*\); their classes must be importable",
    ),
    "a split that does not pickle": (
        lambda e: from_odd(e, threading.Lock),
        r"operator 'odd source', subtask \d: SerializationError: a split of type "
        r"odd_programs\.OddSplit cannot be sent to the task that is to read it",
    ),
    "a split the task cannot read": (
        lambda e: from_odd(e, Unreadable),
        r"operator 'odd source', subtask \d: SerializationError: splits cannot be read "
        r"\(ValueError: .*not a number",
    ),
    "an interrupt by the function itself": (
        lambda e: numbers(e).map(raising(KeyboardInterrupt)).name("it"),
        r"operator 'it', subtask \d: KeyboardInterrupt \(at .*odd_programs\.py:\d+ in raise_it\)",
    ),
    "an error without a text": (
        lambda e: numbers(e).map(raising(Wordless)).name("it"),
        r"operator 'it', subtask \d: Wordless: \(its text cannot be had: SystemExit\) \(at .*"
        r"odd_programs\.py:\d+ in raise_it\)",
    ),
    "an error of twenty megabytes": (
        lambda e: numbers(e).map(raising(lambda: ValueError("x" * 20_000_000))).name("it"),
        r"operator 'it', subtask \d: ValueError: x{5000} \[\.\.\. 19990000 characters left out "
        r"\.\.\.\] x{5000} \(at .*odd_programs\.py:\d+ in raise_it\)",
    ),
    "an error of twenty megabytes in an enumerator": (
        lambda e: from_odd(e, lambda: raising(lambda: ValueError("x" * 20_000_000))(0)),
        r"operator 'odd source', subtask \d: its enumerator failed: ValueError: x+ "
        r"\[\.\.\. \d+ characters left out",
    ),
}
"""Name -> what makes the stream that is collected, and how the job's failure reads (a pattern)."""

MOST = 40_000
"""Characters of the longest message."""


def settings_with_checkpoints(**more: Any) -> dict[str, Any]:
    return {"interval_ms": 20, "restart": strom.NoRestart(), **more}
