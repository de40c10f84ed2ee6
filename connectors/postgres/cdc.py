"""`PostgresCdcSource`: a table and its changes as a changelog, exact through failures.

    read the table in parts  ->  stream the changes behind  ->  ...
    checkpoint: the position (`positions.CdcSplit`)
    complete:   the slot is told that it need not keep what is before the checkpoint before

The slot is one checkpoint behind, so that a job which goes back by one, because its newest turned
out to be damaged, still finds its changes. A busy server with an idle table is no trouble: the
server says how far it has come, and that is our position then, without a row.

One subtask reads, whatever the parallelism: a slot has one reader, and changes an order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import pyarrow as pa

from ...api.connectors.base import (
    Emit,
    EnumeratorContext,
    NeedSplit,
    Polled,
    ReaderContext,
    Source,
    SourceReader,
    SplitEnumerator,
    Wait,
)
from ...core.batch import ColumnBatch
from ...core.errors import ConfigurationError, ConnectorError
from ...core.value_types import empty_batch
from .capture_settings import CaptureSettings
from .changes import Changelog, changelog_schema
from .connection import PostgresConnection
from .feed import Feed
from .positions import CdcSplit
from .tables import TableInfo, described

_SLOT_NAME = re.compile(r"[a-z0-9_]{1,63}")


class PostgresCdcSource(Source):
    """The rows of a table, and then each change that commits, through logical replication.

    connection: a `PostgresConnection`, or what it is made of. Its user needs the attribute
        REPLICATION, SELECT on the table, and to own it if the publication is to be made.
    table: `table` or `schema.table`, as SQL has it.
    slot: the replication slot, of this source in this job alone; made if it is not there. A slot
        keeps the server's log until it is read, so drop it when the job is gone for good:
        `SELECT pg_drop_replication_slot('...')`.
    publication: None: of the name of the slot. Made if it is not there.
    columns: only these; then columns that the table gets later do no harm. None: all.
    changelog: "retract": `+I -U +U -D`, each with the whole row; what all operators take. The table
        needs REPLICA IDENTITY FULL. "upsert": without -U, and a -D has its key alone: for sinks
        and operators that replace rows by key.
    snapshot: whether the rows that are there at first come first, as +I. Else the stream begins
        where the slot stands, or now if it is made.
    stop_at: "now": end with what had committed when the job first started.

    Timestamps are those of the commits, and of the reading for the rows read at first. A job that
    starts without a checkpoint reads the table again, also if the slot is there.
    """

    def __init__(
        self,
        connection: PostgresConnection | str,
        table: str,
        *,
        slot: str,
        publication: str | None = None,
        columns: Sequence[str] | None = None,
        changelog: Changelog = "retract",
        snapshot: bool = True,
        stop_at: Literal["now"] | None = None,
    ) -> None:
        if not _SLOT_NAME.fullmatch(slot):
            raise ConfigurationError(
                f"the name of a slot has 1 to 63 lower case letters, digits and _, is {slot!r}"
            )
        if changelog not in ("retract", "upsert"):
            raise ConfigurationError(f'changelog must be "retract" or "upsert", is {changelog!r}')
        if stop_at not in (None, "now"):
            raise ConfigurationError(f'stop_at must be "now" or None, is {stop_at!r}')
        if isinstance(columns, str) or (columns is not None and not columns):
            raise ConfigurationError(f"columns must be a list of names or None, is {columns!r}")
        self._settings = CaptureSettings(
            PostgresConnection.of(connection),
            table,
            slot,
            publication or slot,
            None if columns is None else tuple(columns),
            changelog,
            snapshot,
            stop_at == "now",
        )

    def __repr__(self) -> str:
        return f"PostgresCdcSource({self._settings.table}, slot={self._settings.slot})"

    @property
    def bounded(self) -> bool:
        return self._settings.bounded

    @property
    def schema(self) -> pa.Schema:
        """Looked up when first asked for; from then on the table must stay so."""
        return changelog_schema(self._settings.chosen(self._info()))

    @property
    def upsert_key(self) -> tuple[str, ...] | None:
        if self._settings.changelog == "retract":
            return None
        try:
            return self._info().key
        except ConnectorError as error:
            if error.__cause__ is None:
                raise
            return ()

    def reads_from(self) -> tuple[str, ...]:
        return (self._settings.table,)

    def create_enumerator(self, context: EnumeratorContext, restored: Any | None) -> CdcEnumerator:
        fresh = [CdcSplit(self._settings.slot)]
        return CdcEnumerator(fresh if restored is None else restored)

    def create_reader(self, context: ReaderContext) -> CdcReader:
        return CdcReader(self._settings, context)

    def _info(self) -> TableInfo:
        if self._settings.info is None:
            info = described(self._settings.connection, self._settings.table)
            self._settings = replace(self._settings, info=info)
            return info
        return self._settings.info


class CdcEnumerator(SplitEnumerator):
    """Gives the one split to who asks first."""

    def __init__(self, left: Sequence[CdcSplit]) -> None:
        self._left = list(left)

    def next_splits(self, subtask: int) -> Sequence[CdcSplit] | None:
        given, self._left = self._left, []
        return given or None

    def snapshot(self) -> list[CdcSplit]:
        return list(self._left)


class CdcReader(SourceReader):
    """What the task sees of a `Feed`."""

    def __init__(self, settings: CaptureSettings, context: ReaderContext) -> None:
        self._settings = settings
        self._context = context
        self._feed: Feed | None = None
        self._split: CdcSplit | None = None
        """Behind the last batch emitted; None before the split came, and when it is finished."""
        self._complete = 0
        """The position of the last complete checkpoint."""

    def add_splits(self, splits: Sequence[CdcSplit]) -> None:
        for split in splits:
            if self._feed is not None or split.slot != self._settings.slot:
                raise ConnectorError(
                    f"the checkpoint is of slot '{split.slot}', the source of "
                    f"'{self._settings.slot}': a slot cannot be changed for another; start the job "
                    "without its checkpoint, or give the source another uid"
                )
            self._split = split
            self._complete = split.lsn
            context = self._context
            self._feed = Feed(self._settings, split, context.batch_size, context.wake)

    def poll(self) -> Polled:
        if self._feed is None or self._split is None:
            return NeedSplit()
        while True:
            delivery = self._feed.take()
            if delivery is None:
                return Wait(None)
            self._split = None if delivery.finished else delivery.after
            self._context.gauge("walBytesBehind", self._feed.behind)
            batch = delivery.batch
            if delivery.finished:
                empty = ColumnBatch(empty_batch(pa.schema([])))
                return Emit(batch or empty, delivery.after.split_id, finished=True)
            if batch is not None and len(batch):
                return Emit(batch, delivery.after.split_id)

    def snapshot(self) -> Sequence[CdcSplit]:
        return [] if self._split is None else [self._split]

    def notify_checkpoint_complete(self, checkpoint_id: int, splits: Sequence[CdcSplit]) -> None:
        for split in splits:
            if self._feed is not None and self._complete:
                self._feed.confirm(self._complete)
            self._complete = split.lsn

    def close(self) -> None:
        feed, self._feed = self._feed, None
        if feed is not None:
            feed.close()
