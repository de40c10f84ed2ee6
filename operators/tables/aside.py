"""Turns of keys that begin and end within one batch (`key_turns`): nothing was held of them before,
and nothing is afterwards. They are worked in aside, as if they were keys of their own, on a state
that is thrown away.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from ...core.arrays import Int64s
from ...state.memory import MemoryKeyedStateBackend
from ..base import OperatorContext
from .base import Layout, Records, TableOperator

TURN = "__turn"
"""The last key column of such."""


class Aside(TableOperator):
    """With the output of `operator` and a state of its own, for what works for an operator."""

    def __init__(self, operator: TableOperator) -> None:
        super().__init__(operator._key)
        self.setup(aside(operator.ctx), operator.out)

    def bind(self, layout: Layout) -> None:
        """It is asked for nothing."""

    def update(self, records: Records) -> None:
        """It is asked for nothing."""


def aside(ctx: OperatorContext) -> OperatorContext:
    """The same with an empty state, in which nothing expires."""
    state = MemoryKeyedStateBackend(ctx.key_groups, ctx.max_parallelism, ctx.clock)
    return replace(ctx, keyed_state=state)


def layout_of_turns(layout: Layout) -> Layout:
    """The layout of `records_of_turns`."""
    keys = layout.keys.append(pa.field(TURN, pa.int64()))
    return Layout(keys, layout.columns, layout.stamped, layout.changelog, named=False)


def records_of_turns(records: Records, numbers: Int64s, rows: Int64s) -> Records:
    """These records with the number of its turn in each one's key."""
    some = records.take(rows)
    columns = [*some.keys.columns, pa.array(numbers[rows])]
    keys = pa.RecordBatch.from_arrays(columns, names=[*some.keys.schema.names, TURN])
    return replace(some, keys=keys)
