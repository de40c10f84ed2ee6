"""Spark's side of the bridge: what a query gives goes into a spool, micro-batch by micro-batch.

A streaming query hands each micro-batch to `foreachBatch` with its id, and commits it when that
returns. Here it returns when the micro-batch is durable in the spool, so Spark commits nothing that
could be lost; and what Spark runs again after a failure has the same id and is found there. That
holds whichever source the query has, if Spark can replay it, and needs nothing of the stream: the
job may be down meanwhile. The executors write the files; only names pass through the driver.

Rejected: handing micro-batches over in the object store, and committing when a checkpoint covers
them. It ties Spark's pace to the checkpoints, and an object dies with its owner, so every failure
of either side would have to replay the other.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from ...core.errors import ConfigurationError
from .launch import alive
from .spool import ENDED, FAILED, RUNNING, Spool, SpoolState
from .types import arrow_schema, without_voids

_WRITING: Final = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "mapreduce.fileoutputcommitter.algorithm.version": "2",
}
"""Times as they are, and no more files than needed: a folder counts only when it is complete."""

_LOOK_S: Final = 0.5
_STOPPED_S: Final = 1.0
"""So long a query must be seen stopped: one that was just started again has another object."""

_PAUSES_S: Final = (1.0, 2.0, 4.0, 8.0)
"""Before a query that failed is started again; one more failure without a micro-batch between is
the end."""


@dataclass(frozen=True)
class QuerySettings:
    """How a query runs. `trigger`, `output_mode`, `options`: as for `writeStream`.

    files_per_batch: at most so many files for a micro-batch; None: as many as Spark runs tasks at
    once. batches_ahead: Spark waits while so many micro-batches are not taken. drift: "fail", or
    "fill" for a union of the columns."""

    trigger: Mapping[str, Any] = field(default_factory=dict)
    output_mode: str = "append"
    options: Mapping[str, str] = field(default_factory=dict)
    files_per_batch: int | None = None
    batches_ahead: int = 100
    drift: str = "fail"


def declare(frame: Any, spool: Spool, drift: str) -> pa.Schema:
    """The stream's columns: the frame's, and with "fill" those that the spool had before.

    Raises ConfigurationError if the frame has other columns than what the spool holds, and
    TypeMismatchError if one has no counterpart in a stream."""
    from pyspark.sql.types import StructType

    new = without_voids(frame).schema
    known = spool.columns()
    if known is not None:
        old = StructType.fromJson(json.loads(known))
        new = _united(old, new, drift, spool)
    schema = arrow_schema(new)
    spool.declare(new.json())
    return schema


def spool_frame(frame: Any, spool: Spool) -> None:
    """The whole frame as micro-batch 0, the only one. Rows keep their order."""
    session = frame.sparkSession
    former = {name: session.conf.get(name, None) for name in _WRITING}
    place = spool.new_place(0)
    try:
        _configure(session)
        without_voids(frame).write.mode("overwrite").parquet(f"file://{place}")
    finally:
        for name, value in former.items():
            if value is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, value)
    spool.publish(0)


class Spooling:
    """A query that runs into a spool, started again when it fails. `kept`: somebody else starts it
    again when Spark itself was lost."""

    def __init__(
        self, frame: Any, spool: Spool, settings: QuerySettings, kept: bool = False
    ) -> None:
        self._frame = frame
        self._spool = spool
        self._settings = settings
        self._kept = kept
        self._session = frame.sparkSession
        cores = self._session.sparkContext.defaultParallelism
        self._files = settings.files_per_batch or max(1, int(cores))
        self._query: Any = None
        self._published = 0
        """Micro-batches published since the last failure."""
        self._stopped: Any = None
        """The query that was stopped while a micro-batch waited for room, which Spark may report as
        the micro-batch's failure."""
        self._watch = threading.Thread(target=self._supervise, name="strom-spooling", daemon=True)

    def start(self) -> None:
        """Start the query; from then on `spool.state()` says how it is. Raises ConfigurationError
        if the spool holds what another query wrote: its batch ids say nothing of this one's."""
        self._check_query()
        self._spool.say(SpoolState(RUNNING, 0))
        self._query = self._begin()
        self._spool.belongs_to(str(self._query.id))
        self._watch.start()

    @property
    def running(self) -> bool:
        """Neither ended nor failed for good."""
        return self._watch.is_alive()

    def _check_query(self) -> None:
        known, found, place = self._spool.query_id(), None, self._spool.query
        with suppress(FileNotFoundError):
            found = json.loads((place / "metadata").read_text())["id"]
        begun = known is not None or self._spool.has(0)
        if begun and (found is None or found != (known or found)):
            raise ConfigurationError(
                f"'{self._spool.folder}' holds micro-batches of another query, or Spark's "
                f"checkpoint of this one is gone from '{place}': micro-batches would be taken for "
                "others. Begin with a new folder"
            )

    def _begin(self) -> Any:
        settings = self._settings
        writer = self._frame.writeStream.outputMode(settings.output_mode)
        if settings.trigger:
            writer = writer.trigger(**settings.trigger)
        options = {**settings.options, "checkpointLocation": f"file://{self._spool.query}"}
        return writer.options(**options).foreachBatch(self._write).start()

    def _write(self, frame: Any, batch: int) -> None:
        """Called by Spark with each micro-batch; it is committed when this returns."""
        if self._spool.has(batch):
            return
        self._wait_for_room(batch)
        _configure(frame.sparkSession)
        place = self._spool.new_place(batch)
        rows = without_voids(frame).coalesce(self._files)
        rows.write.mode("overwrite").parquet(f"file://{place}")
        self._spool.publish(batch, self._watermark(batch))
        self._published += 1

    def _wait_for_room(self, batch: int) -> None:
        """Raises when the query was stopped meanwhile: it waits for this call, nobody may ever take
        what is in the spool, and a micro-batch that is not written must not be committed."""
        stopped_since: float | None = None
        while self._spool.waiting() >= self._settings.batches_ahead:
            time.sleep(0.05)
            if self._is_active():
                stopped_since = None
            elif stopped_since is None:
                stopped_since = time.monotonic()
            elif time.monotonic() - stopped_since > _STOPPED_S:
                self._stopped = self._query
                raise RuntimeError(f"the query was stopped before micro-batch {batch} had room")

    def _is_active(self) -> bool:
        query = self._query
        if query is None:
            return True
        try:
            return bool(query.isActive)
        except Exception:  # Spark's side of the bridge is gone
            return False

    def _watermark(self, batch: int) -> int | None:
        """Spark's event-time watermark while it runs this micro-batch, from its log of offsets."""
        text = (self._spool.query / "offsets" / str(batch)).read_text()
        said = json.loads(text.splitlines()[1]).get("batchWatermarkMs", 0)
        return int(said) or None

    def _supervise(self) -> None:
        failures = 0
        for beat in itertools.count(1):
            time.sleep(_LOOK_S)
            active, error = self._is_active(), None
            if not active:
                with suppress(Exception):
                    error = self._query.exception()
            if active:
                self._spool.say(SpoolState(RUNNING, beat))
                continue
            if not alive(self._session):  # it takes its queries along without a word
                if not self._kept:
                    self._spool.say(SpoolState(FAILED, beat, "its Spark session was lost"))
                return
            if error is None or self._stopped is self._query:
                self._spool.say(SpoolState(ENDED, beat))
                return
            failures = 0 if self._published else failures
            self._published = 0
            if failures == len(_PAUSES_S):
                text = f"{failures + 1} times in a row: {_line(error)}"
                self._spool.say(SpoolState(FAILED, beat, text))
                return
            self._spool.say(SpoolState(RUNNING, beat))
            time.sleep(_PAUSES_S[failures])
            failures += 1
            with suppress(Exception):  # told by the next look at the old one
                self._query = self._begin()


def _configure(session: Any) -> None:
    for name, value in _WRITING.items():
        session.conf.set(name, value)


def _line(error: Exception) -> str:
    """What is at the bottom of Spark's long texts, and of Python's within them."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    if causes:
        return causes[-1][:500]
    trace = (at for at, line in enumerate(lines) if line.startswith(("at ", "=== ")))
    said = lines[: next(trace, len(lines))]
    if any("Traceback (most recent call last)" in line for line in said):
        return said[-1][:500]
    return " ".join(said[:3])[:500]


def _united(old: Any, new: Any, drift: str, spool: Spool) -> Any:
    from pyspark.sql.types import StructType

    before, after = ({f.name: f.dataType.simpleString() for f in one} for one in (old, new))
    changed = [
        f"'{name}' was {kind} and is {after[name]}"
        for name, kind in before.items()
        if after.get(name, kind) != kind
    ]
    gone = [name for name in before if name not in after]
    added = [name for name in after if name not in before]
    if not changed and not gone and not added:
        return new
    if not changed and drift == "fill":
        return StructType([*old, *(field for field in new if field.name in added)])
    what = [*changed, *(f"'{n}' is gone" for n in gone), *(f"'{n}' is new" for n in added)]
    remedy = (
        "begin with a new folder"
        if changed
        else 'begin with a new folder, or take the union, filled with nulls: drift="fill"'
    )
    raise ConfigurationError(
        f"the frame has other columns than what '{spool.folder}' holds of it: {', '.join(what)}; "
        f"{remedy}"
    )
