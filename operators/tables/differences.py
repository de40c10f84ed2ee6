"""From the lists of records before and after a batch to the changelog between them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ...core.arrays import Int64s
from ...core.row_kind import RowKind
from .base import TableOperator
from .kept_rows import KeptRows


@dataclass(frozen=True)
class Differences:
    """`ranked`: place by place, with -U and +U; else -D for what is gone, then +I for what is new.
    `rank`: the column for the place; None for none."""

    rank: str | None
    ranked: bool

    def emit(
        self,
        operator: TableOperator,
        rows: KeptRows,
        before_starts: Int64s,
        before: Int64s,
        after_starts: Int64s,
        after: Int64s,
    ) -> Int64s:
        """Emit the changes between lists of positions (list k is [starts[k], starts[k + 1])).

        Returns the positions in no new list, which are still to be released."""
        from ..kernels.ranking import list_differences, rank_differences

        room = len(before) + len(after)
        ids, signs, ranks = (np.empty(room, dtype=np.int64) for _ in range(3))
        count = list_differences(before_starts, before, after_starts, after, ids, signs)
        ids, signs = ids[:count], signs[:count]
        gone = ids[signs < 0]
        kinds = np.where(signs < 0, RowKind.DELETE, RowKind.INSERT)
        if self.ranked:
            ids, kinds = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int64)
            count = rank_differences(before_starts, before, after_starts, after, ids, kinds, ranks)
            ids, kinds = ids[:count], kinds[:count]
        data, stamps = rows.read(ids)
        if self.rank is not None:
            field = pa.field(self.rank, pa.int64())
            data = data.append_column(field, pa.array(ranks[:count]))
        operator.emit(data, kinds.astype(np.int8), stamps)
        return gone
