"""`NexmarkSource`: the events of the Nexmark benchmark as a parallel, replayable source.

    NexmarkSource(100_000_000)                                    bids, all columns
    NexmarkSource(100_000_000, columns=("auction", "price"))      bids, two columns: `pruned`
    NexmarkSource(100_000_000, kind="auction")                    the auctions among those events
    NexmarkSource(1_000_000, kind="all")                          one stream of all three, of which
                                                                  `of_kind("bid")` takes the bids

`events` counts persons, auctions and bids together, whatever kind is read: sources of one seed that
differ in `kind` are the three parts of one stream. Batches carry event times (`dateTime`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from ...api.connectors.base import EnumeratorContext, ReaderContext, Source
from ...api.connectors.reads import ColumnReads
from ...core.batch import Batch, ColumnBatch
from ...core.errors import ConfigurationError
from .nexmark_schemas import SCHEMAS, SLOTS, Strings, read_field, schema_of
from .reader import NumberReader, Runs, check_rate
from .stripes import NumberEnumerator, make_splits

if TYPE_CHECKING:
    from .nexmark_events import EventColumns
    from .nexmark_strings import Int64s

NexmarkKind = Literal["bid", "auction", "person", "all"]

RARE_KIND_CHUNK = 4
"""Persons and auctions are few: batches that have any span this many times more events. Of a stream
of all kinds what is taken of these is as small as the smallest."""


class NexmarkSource(Source):
    """Nexmark events 0..events-1 (None: for ever).

    rate: events per second of event time. pace: events per second of processing time (None: as fast
    as possible). columns: only these, in this order; `pruned` tells whether any is missing.
    out_of_order_group: events come shuffled within groups of this many (not a multiple of 953).
    strings: their Arrow type; `string_view` is cheaper to make and to pass on: long ones stay in
    the pools that they are cut from.
    """

    def __init__(
        self,
        events: int | None,
        rate: int = 10_000,
        splits: int | None = None,
        columns: Sequence[str] | None = None,
        seed: int = 0,
        out_of_order_group: int = 1,
        kind: NexmarkKind = "bid",
        pace: float | None = None,
        block: int = 500,
        strings: Strings = "string",
    ) -> None:
        if strings not in ("string", "string_view"):
            raise ConfigurationError(f"strings must be string or string_view, is {strings!r}")
        if kind not in (*SCHEMAS, "all"):
            raise ConfigurationError(f"kind must be bid, auction, person or all, is {kind!r}")
        if int(rate) != rate or rate < 1:
            raise ConfigurationError(f"rate must be a whole number of events/s, is {rate}")
        if out_of_order_group < 1 or (out_of_order_group > 1 and out_of_order_group % 953 == 0):
            raise ConfigurationError(
                f"out_of_order_group must be positive and no multiple of 953, is "
                f"{out_of_order_group}"
            )
        check_rate(pace)
        make_splits(events, 1 if splits is None else splits, block, contiguous=False)
        self.kind = kind
        self.events = events
        self.seed = seed
        self._rate = int(rate)
        self._splits = splits
        self._group = out_of_order_group
        self._pace = pace
        self._block = block
        self._strings: Strings = strings
        full = schema_of(kind, strings)
        self.columns = _checked_columns(full, columns, kind)
        self.pruned = len(self.columns) < len(full)
        """Whether some columns are not made; a benchmark must report it."""
        self._schema = pa.schema([full.field(name) for name in self.columns])

    @property
    def bounded(self) -> bool:
        return self.events is not None

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def reading(self, columns: ColumnReads) -> NexmarkSource | None:
        fields = [read_field(field, columns) for field in self._schema]
        schema = pa.schema([field for field in fields if field is not None])
        if not len(schema) or schema.equals(self._schema):
            return None
        same = copy(self)
        same.columns, same._schema, same.pruned = tuple(schema.names), schema, True
        return same

    def create_enumerator(
        self, context: EnumeratorContext, restored: Any | None
    ) -> NumberEnumerator:
        if restored is not None:
            return NumberEnumerator(context, restored)
        splits = context.parallelism if self._splits is None else self._splits
        return NumberEnumerator(context, make_splits(self.events, splits, self._block, False))

    def create_reader(self, context: ReaderContext) -> NumberReader:
        rare = 1 if self.kind == "bid" else RARE_KIND_CHUNK
        generate = self.generator()
        generate([(0, 50)])  # Compiles, or loads, the kernels while the subtask opens.
        return NumberReader(context, generate, context.batch_size * rare, self._pace)

    def generator(self) -> Callable[[Runs], Batch]:
        """The function from event numbers to a batch; loads the compiled kernels."""
        from . import nexmark_kernels as kernels
        from .nexmark_events import COLUMNS, strings_of
        from .nexmark_strings import seed_of
        from .nexmark_union import union

        seed = seed_of(self.seed)
        strings = strings_of(seed, self._strings == "string_view")
        schema = self._schema

        def numbers_of(runs: Runs, first: int, last: int) -> Int64s:
            starts = np.array([start for start, _ in runs], dtype=np.int64)
            counts = np.array([count for _, count in runs], dtype=np.int64)
            numbers: Int64s = kernels.select_numbers(starts, counts, self._group, first, last)
            return numbers

        def one_kind(runs: Runs) -> Batch:
            numbers = numbers_of(runs, *SLOTS[self.kind])
            made = COLUMNS[self.kind](numbers, seed, self._rate, strings)
            columns = made.columns(schema.names)
            return ColumnBatch(pa.RecordBatch.from_arrays(columns, schema=schema), made.times)

        def all_kinds(runs: Runs) -> Batch:
            numbers = numbers_of(runs, 0, kernels.EPOCH - 1)

            def columns_of(kind: str, chosen: Int64s) -> EventColumns:
                return COLUMNS[kind](chosen, seed, self._rate, strings)

            return union(numbers, schema, columns_of)

        return all_kinds if self.kind == "all" else one_kind


def _checked_columns(full: pa.Schema, columns: Sequence[str] | None, kind: str) -> tuple[str, ...]:
    if columns is None:
        return tuple(full.names)
    unknown = [name for name in columns if name not in full.names]
    if unknown or not columns or len(set(columns)) != len(columns):
        raise ConfigurationError(
            f"columns of a Nexmark {kind} source must be distinct and among {full.names}, "
            f"are {list(columns)}"
        )
    return tuple(columns)
