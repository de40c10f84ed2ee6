"""Programs on the columns of a batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..arrays import numpy_of
from .kinds import Beyond, readable_check
from .program import Block, Branch, Column, Constant, GiveUp, Group, Return, Step, Value

Places = npt.NDArray[np.int64]


@dataclass
class Rows:
    """Some records of a batch, and what is known of them. `before`: more of them, of which those
    are here for which `test` is `when`; None: the whole batch."""

    data: pa.RecordBatch
    count: int
    before: Rows | None = None
    test: pa.Array | None = None
    when: bool = True
    _normal: dict[Value, pa.Array] = field(default_factory=dict)
    _raw: dict[Value, pa.Array] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.count

    @cached_property
    def places(self) -> Places | None:
        """Where they are in the batch; None: all of them."""
        if self.before is None:
            return None
        mask = numpy_of(self.test)
        mask = mask if self.when else ~mask
        places = self.before.places
        return np.flatnonzero(mask) if places is None else places[mask]

    @cached_property
    def _kept(self) -> pa.Array:
        return self.test if self.when else pc.invert(self.test)

    def set(self, step: Step, column: pa.Array) -> None:
        self._raw[step] = column

    def raw(self, value: Column | Step) -> pa.Array:
        """The value of each of the records, in the type that it has."""
        found = self._raw.get(value)
        if found is None:
            if self.before is not None:
                found = self.before.raw(value).filter(self._kept)
            else:
                assert isinstance(value, Column)
                found = self.data.column(value.place)
            self._raw[value] = found
        return found

    def of(self, value: Value) -> Any:
        """The value of each of the records as operations take it."""
        if isinstance(value, Constant):
            return value.scalar
        if value.cast is None:
            return self.raw(value)
        found = self._normal.get(value)
        if found is None:
            found = self._normal[value] = self.raw(value).cast(value.cast)
        return found


Checks = list[tuple[int, Callable[[pa.Array], None]]]
"""Whether columns can be read, by their places."""


def checks_of(schema: pa.Schema) -> Checks:
    found = ((place, readable_check(type_)) for place, type_ in enumerate(schema.types))
    return [(place, check) for place, check in found if check is not None]


Leaf = tuple[Rows, Group]
"""Records, at least one, and what is returned for them."""


def run(block: Block, data: pa.RecordBatch, checks: Checks | None = None) -> list[Leaf]:
    """What the program returns, in parts that have all records once. Beyond, or an error of
    Arrow's, if columns cannot tell. checks: those of the schema, if somebody has them."""
    for place, check in checks_of(data.schema) if checks is None else checks:
        check(data.column(place))
    found: list[Leaf] = []
    _run(block, Rows(data, data.num_rows), found)
    return found


def _run(block: Block, rows: Rows, found: list[Leaf]) -> None:
    for step in block.steps:
        rows.set(step, step.operation.run(*[rows.of(one) for one in step.operands]))
    match block.end:
        case Return(value=value):
            found.append((rows, value))
        case GiveUp():
            raise Beyond
        case Branch(test=test, then=then, other=other):
            _branch(rows, rows.of(test), then, other, found)


def _branch(rows: Rows, test: pa.Array, then: Block, other: Block, found: list[Leaf]) -> None:
    true = test.true_count
    if true == len(rows):
        _run(then, rows, found)
    elif not true:
        _run(other, rows, found)
    else:
        _run(then, Rows(rows.data, true, rows, test, True), found)
        _run(other, Rows(rows.data, len(rows) - true, rows, test, False), found)
