"""A source whose reader puts aside what it cannot make records of."""

from __future__ import annotations

from ...api.connectors.base import ReaderContext, SourceReader
from ...api.dead_letters import MALFORMED
from ...core.batch import Batch
from ...core.errors import TypeMismatchError
from ..letters import open_letters
from .source import ReplayableSourceOperator


class LenientSourceOperator(ReplayableSourceOperator):
    """What its watermark strategy raises is no matter of what was read, and fails the job."""

    def open(self) -> None:
        letters = open_letters(self)
        assert letters is not None
        self._letters = letters
        super().open()

    def _create_reader(self, context: ReaderContext) -> SourceReader:
        source = self._spec.source.malformed_to(MALFORMED)
        assert source is not None
        return source.create_reader(context)

    def _emit_side(self, tag: str, records: Batch) -> None:
        if tag != MALFORMED:
            super()._emit_side(tag, records)
            return
        stamps = records.timestamps
        for at, row in enumerate(records.rows()):
            stamp = None if stamps is None else int(stamps[at])
            why = "the source cannot read it" if row.error is None else str(row.error)
            self._letters.add(row, TypeMismatchError(why), stamp, "read")
