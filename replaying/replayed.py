"""What came of running an operator again."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from ..core.batch import Batch, ColumnBatch, ObjectBatch
from ..core.elements import StreamStatus, Watermark

Emitted = Batch | Watermark | StreamStatus


@dataclass(frozen=True)
class Fault:
    """What the operator was doing when it failed.

    call: `record`, `watermark`, `wake` (a time of the clock had come) and so on. `number`: of the
    record, counted from 1 over all that the operator got since the checkpoint; of a batch that
    fails as a whole the last one, with `first`; of other calls how many there were before.
    `time_ms`: event time of the record, or of the watermark; the clock's of a wake-up. `key`: of
    the keyed state that was at hand, None for none.
    """

    call: str
    number: int
    first: int
    time_ms: int | None
    record: Any = None
    key: Any = None
    port: int = 0

    def __str__(self) -> str:
        match self.call:
            case "record" if self.first == self.number:
                what = f"record {self.number:,}"
            case "record":
                what = f"records {self.first:,} to {self.number:,}, which it gets as one batch"
            case "watermark":
                what = f"event time going to {self.time_ms}, behind record {self.number:,}"
            case "wake":
                what = f"the clock's {self.time_ms}, behind record {self.number:,}"
            case _:
                what = f"'{self.call}', behind record {self.number:,}"
        more = "" if self.key is None else f", key {self.key!r}"
        if self.call == "record":
            more += f", event time {self.time_ms}" if self.time_ms is not None else ""
            more += f", input {self.port}" if self.port else ""
        return what + more


@dataclass
class Replayed:
    """operator: its uid or name. checkpoint: the one whose state it went on from; 0: it had none.
    records: that it got. elements: what it emitted, in order; sides: the same of side outputs, by
    tag. error: that it raised, as it is; None: it came to the end of what is recorded.
    recorded_failure: what ended it in the job, if something did, which may have been an operator
    behind it. notes: what the recording lacks."""

    job_id: str
    job_name: str
    operator: str
    subtask: int
    parallelism: int
    attempt: int
    checkpoint: int
    records: int = 0
    elements: list[Emitted] = field(default_factory=list)
    sides: dict[str, list[Batch]] = field(default_factory=dict)
    error: BaseException | None = None
    fault: Fault | None = None
    recorded_failure: str | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def batches(self) -> list[Batch]:
        """Of the main output."""
        return [one for one in self.elements if isinstance(one, (ColumnBatch, ObjectBatch))]

    @property
    def outputs(self) -> list[Any]:
        """All records of the main output, in order."""
        return [row for batch in self.batches for row in batch.rows()]

    def side_outputs(self, tag: str) -> list[Any]:
        """All records of a side output, in order."""
        return [row for batch in self.sides.get(tag, ()) for row in batch.rows()]

    def check(self) -> None:
        """Raise what the operator raised."""
        if self.error is not None:
            raise self.error

    def table(self) -> pa.Table:
        """The main output as an Arrow table, with event times as `__event_time` (ms). Records that
        are no columns, dicts, rows or tuples are one column, `value`, as text where Arrow has no
        type for them."""
        tables = [_table(batch) for batch in self.batches]
        if not tables:
            return pa.table({})
        return pa.concat_tables(tables, promote_options="permissive")


def _table(batch: Batch) -> pa.Table:
    if isinstance(batch, ColumnBatch):
        found = pa.Table.from_batches([batch.data])
    else:
        found = _of_objects(batch.rows())
    if batch.timestamps is not None and "__event_time" not in found.column_names:
        found = found.append_column("__event_time", pa.array(batch.timestamps))
    return found


def _of_objects(values: list[Any]) -> pa.Table:
    """Dicts and rows by their fields, tuples by their place, all else as one column."""
    rows = values
    if all(isinstance(one, tuple) for one in values):
        names = getattr(values[0], "_fields", None)
        if names is None and len({len(one) for one in values}) == 1:
            names = [f"f{at}" for at in range(len(values[0]))]
        if names is not None:
            rows = [dict(zip(names, one, strict=False)) for one in values]
    with suppress(pa.ArrowException, TypeError, ValueError, OverflowError):
        if all(isinstance(one, dict) for one in rows):
            return pa.Table.from_pylist(rows)
    with suppress(pa.ArrowException, TypeError, ValueError, OverflowError):
        return pa.table({"value": pa.array(values)})
    return pa.table({"value": pa.array([repr(one) for one in values])})
