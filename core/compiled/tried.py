"""A function on the columns of batches, as far as that goes.

It is asked batch by batch, and says None where the batch has to go by rows, through the function
itself: batches of Python objects, small ones, those whose rows somebody has had already (who may
have changed them), and those for which columns cannot tell exactly what the function would do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from ..batch import Batch, ColumnBatch
from ..value_types import has_tuple_records
from .operations import Refused
from .program import Block
from .reading import Reading, read
from .running import Checks, Leaf, checks_of, run

Make = Callable[[list[Leaf], ColumnBatch, Any], Any]
"""What is made of a function's results, with what was prepared for them; None: it cannot be."""

LEAST = 512
"""Batches of fewer records go by rows, which is faster then."""

_PATIENCE: Final = 6
"""After so many batches in a row that columns could not do, all but every 64th go by rows."""

_SCHEMAS: Final = 4
"""Of so many schemas a function is read for; batches of others go by rows."""


@dataclass
class Fitted:
    """The function on records of one schema. `reading` None: it is not the same on columns."""

    schema: pa.Schema
    reading: Reading | None
    checks: Checks
    prepared: Any = None


class Tried:
    """One function. truths: only whether its results are true counts."""

    def __init__(self, call: Callable[..., Any], *, truths: bool = False) -> None:
        self._call = call
        self._truths = truths
        self._fitted: list[Fitted] = []
        """One for each schema that batches have had, the latest first."""
        self._missed = 0
        self._left_out = 0

    @property
    def reads(self) -> bool | None:
        """Whether the function runs on columns; None before the first batch that could."""
        return self._fitted[0].reading is not None if self._fitted else None

    def tried(self, batch: Batch, make: Make) -> Any:
        """What is made of the function's results; None: the batch goes by rows."""
        if not isinstance(batch, ColumnBatch) or len(batch) < LEAST or batch.has_rows:
            return None
        fitted = self._of(batch.data.schema)
        if fitted is None or fitted.reading is None:
            return None
        if self._left_out < 2 ** min(self._missed, _PATIENCE) - 1:
            self._left_out += 1
            return None
        self._left_out = 0
        if not fitted.reading.outside.same():
            fitted = self._fitted[0] = self._read(fitted.schema)
            self._missed += 1
            return None
        made = self._made(fitted, batch, make)
        self._missed = 0 if made is not None else self._missed + 1
        return made

    def prepare(self, block: Block) -> Any:
        """For results of this program, before the first batch."""

    def _made(self, fitted: Fitted, batch: ColumnBatch, make: Make) -> Any:
        """None whatever goes wrong: the function itself is there to do it."""
        assert fitted.reading is not None
        try:
            leaves = run(fitted.reading.block, batch.data, fitted.checks)
            return make(leaves, batch, fitted.prepared)
        except Exception:
            return None

    def _of(self, schema: pa.Schema) -> Fitted | None:
        known = self._fitted
        for at, fitted in enumerate(known):
            if schema.equals(fitted.schema, check_metadata=True):
                if at:
                    known.insert(0, known.pop(at))
                return fitted
        if len(known) == _SCHEMAS:
            return None
        known.insert(0, self._read(schema))
        return known[0]

    def _read(self, schema: pa.Schema) -> Fitted:
        try:
            reading = read(self._call, schema, has_tuple_records(schema), truths=self._truths)
        except Refused:
            return Fitted(schema, None, [])
        return Fitted(schema, reading, checks_of(schema), self.prepare(reading.block))
