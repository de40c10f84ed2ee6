"""What a query is to the commands: a pipeline, a reference, and what of the output is promised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from strom import DataStream, Sink, StreamExecutionEnvironment

Rows = Iterable[tuple[Any, ...]]
Build = Callable[[StreamExecutionEnvironment, int], DataStream]
"""From an environment and a number of events to the stream whose records are the result."""

TAKEN = (1, 3)
"""Row kinds that take a row away: -U and -D."""


def everything(rows: Rows) -> Rows:
    """What most outputs promise."""
    return rows


@dataclass(frozen=True)
class Query:
    """One workload.

    build: the pipeline. reference: the whole output, from a number of events, computed slowly;
        a changelog's is the table it comes to.
    kinds: the Nexmark streams it reads. columns: of its output, a changelog's without the row kind.
    promised: what of the output is the same in every run at any parallelism; applied to the
        output and to the reference before they are compared.
    changelog: records end with a row kind; the table they come to is compared.
    unbounded_state: state grows with the stream, by the query's definition.
    sink: where a benchmark's records go, given a folder; None: nowhere. `read` gives what a sink
        wrote to the folder.
    """

    build: Build
    reference: Callable[[int], Rows]
    kinds: tuple[str, ...]
    columns: tuple[str, ...]
    promised: Callable[[Rows], Rows] = everything
    changelog: bool = False
    unbounded_state: bool = False
    sink: Callable[[str], Sink] | None = None
    read: Callable[[str], Rows] | None = None

    @property
    def summary(self) -> str:
        """The first line of the pipeline's docstring."""
        return (self.build.__doc__ or "").strip().splitlines()[0]

    def outcome(self, output: Rows) -> Rows:
        """What is compared of an output."""
        return self.promised(materialise(output) if self.changelog else output)

    def expected(self, events: int) -> Rows:
        """What `outcome` must be, in any order."""
        return self.promised(self.reference(events))


def materialise(changelog: Rows) -> Iterator[tuple[Any, ...]]:
    """The table that a retract changelog comes to, in any order of its records.

    ValueError if a row is taken away more often than it was added.
    """
    counts: Counter[tuple[Any, ...]] = Counter()
    for *values, kind in changelog:
        counts[tuple(values)] += -1 if kind in TAKEN else 1
    for row, n in counts.items():
        if n < 0:
            raise ValueError(f"the changelog takes {row} away {-n} times more than it adds it")
        yield from [row] * n


def columns_only(*positions: int) -> Callable[[Rows], Rows]:
    """A promise of some columns: the others depend on the order of arrival."""
    return lambda rows: (tuple(row[i] for i in positions) for row in rows)
