"""What the writers of both sinks have in common: rows are gathered into pieces of work, which the
database's thread writes beside the stream."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ...api.connectors.base import SinkWriter, WriterContext
from ...core.batch import Batch
from ...core.errors import ConnectorError
from ...core.row_kind import refuse_changelog
from .rows import Gathered
from .sink_config import PostgresSinkConfig
from .tables import TableInfo
from .worker import AHEAD, STEP_S, DatabaseWorker, Piece

if TYPE_CHECKING:
    from .connection import Session


class GatheringWriter(SinkWriter):
    """Submits a piece when `batch_rows` have come; a subclass says what is written of it, and
    submits what is left at a barrier. Rows that come while the database is behind wait, in steps,
    so that the task goes on with everything else."""

    def __init__(self, config: PostgresSinkConfig, context: WriterContext) -> None:
        self._config = config
        self._context = context
        self._doing = f"write to table {config.table}"
        self._gathered = Gathered(config.schema, config.table)
        self._info: TableInfo | None = None
        """Of the target, from the first connection on. The worker's thread's."""
        name = f"postgres-{context.subtask}"
        self._worker = DatabaseWorker(config.connection, self._prepare, name)

    def write(self, batch: Batch) -> Iterator[None] | None:
        self._accept(batch)
        full = self._gathered.rows + len(batch) >= self._config.batch_rows
        if not self._worker.has_room(0, _ahead(full)):
            return self._later(batch, full)
        self._take(batch)
        return None

    def _later(self, batch: Batch, full: bool) -> Iterator[None]:
        while not self._worker.has_room(STEP_S, _ahead(full)):
            yield
        self._take(batch)

    def _take(self, batch: Batch) -> None:
        self._gathered.add(batch)
        if self._gathered.rows >= self._config.batch_rows:
            self._submit()

    def _accept(self, batch: Batch) -> None:
        """Raise if the sink has no use for it. Here: for changelogs."""
        refuse_changelog(batch, self._context.operator, "inserts into a table (PostgresSink)")

    @abstractmethod
    def _submit(self) -> Piece | None:
        """A piece of work of all that was gathered; None if that is nothing."""

    @abstractmethod
    def _prepare(self, session: Session) -> None:
        """On each new connection, in the worker's thread."""


def _ahead(full: bool) -> int:
    """How many pieces may wait when rows come. `full`: another piece is made of them, and of those
    before. Barriers make pieces of few rows, without waiting; then more rows wait for these."""
    return AHEAD if full else AHEAD + 1


def fitting(info: TableInfo, names: Sequence[str]) -> TableInfo:
    """`info`; ConnectorError if the table lacks columns."""
    there = [column.name for column in info.columns]
    missing = [name for name in names if name not in there]
    if missing:
        raise ConnectorError(
            f"table {info.shown} has no columns {missing}, only {there}: add them, or leave them "
            "out of the stream with select"
        )
    return info
