"""A function on the columns of batches, as far as that goes.

It is asked batch by batch, and says None where the batch has to go by rows, through the function
itself: batches of Python objects, small ones, those whose rows somebody has had already (who may
have changed them), and those for which columns cannot tell exactly what the function would do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from ..batch import Batch, ColumnBatch
from ..value_types import has_tuple_records
from .operations import Refused
from .program import Block
from .reading import Reading, read
from .running import Checks, Leaf, checks_of, run

Make = Callable[[list[Leaf], ColumnBatch], Any]
"""What is made of a function's results; None: that it cannot be."""

LEAST = 256
"""Batches of fewer records go by rows, which is faster then."""

_PATIENCE: Final = 6
"""After so many batches in a row that columns could not do, all but every 64th go by rows."""


class Tried:
    """One function. truths: only whether its results are true counts."""

    def __init__(self, call: Callable[..., Any], *, truths: bool = False) -> None:
        self._call = call
        self._truths = truths
        self._schema: pa.Schema | None = None
        """Of the records that `_reading` is for; None: no batch has asked yet."""
        self._reading: Reading | None = None
        """None: the function is not the same on columns."""
        self._checks: Checks = []
        self._missed = 0
        self._left_out = 0

    @property
    def reads(self) -> bool | None:
        """Whether the function runs on columns; None before the first batch that could."""
        return None if self._schema is None else self._reading is not None

    def tried(self, batch: Batch, make: Make) -> Any:
        """What is made of the function's results; None: the batch goes by rows."""
        if not isinstance(batch, ColumnBatch) or len(batch) < LEAST or batch.has_rows:
            return None
        schema = batch.data.schema
        if self._schema is None or not schema.equals(self._schema, check_metadata=True):
            self._read(schema)
        if self._reading is None:
            return None
        if self._left_out < 2 ** min(self._missed, _PATIENCE) - 1:
            self._left_out += 1
            return None
        self._left_out = 0
        if not self._reading.outside.same():
            self._read(schema)
        made = self._made(batch, make)
        self._missed = 0 if made is not None else self._missed + 1
        return made

    def prepare(self, block: Block) -> None:
        """Before the first batch of a schema on which the function does this."""

    def _made(self, batch: ColumnBatch, make: Make) -> Any:
        """None whatever goes wrong: the function itself is there to do it."""
        if self._reading is None:
            return None
        try:
            return make(run(self._reading.block, batch.data, self._checks), batch)
        except Exception:
            return None

    def _read(self, schema: pa.Schema) -> None:
        self._schema, self._reading = schema, None
        try:
            reading = read(self._call, schema, has_tuple_records(schema), truths=self._truths)
        except Refused:
            return
        self._checks = checks_of(schema)
        self.prepare(reading.block)
        self._reading = reading
