"""Regular join: every record of one side with every record of the other that has its key, for ever
or as long as records live. By event time a row lives from its own time on, and two rows meet if
neither had expired at the time of the other: so it does not matter which of them came first.

Both sides' rows are kept, chained by key. A batch first finds its pairs among the other side's
rows, then joins its own side: O(batch + result), whatever is stored. Pairs are found in portions of
MAX_PAIRS, so what is in memory at a time does not depend on how often a key occurs.

The result of an inner join of streams that only insert only grows. Every other result is a
changelog, by the rules of Flink's StreamingJoinOperator (see `kernels.changes`), with +I and -D
only: a row that is replaced is taken away and added.

State: the rows of each side with what is known of them (see `rowstore`); chains and key index are
made anew from them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from ...api.specs.joins import JoinKind, RegularJoinSpec
from ...core.arrays import Bools, Int64s
from ...core.batch import Batch, ColumnBatch
from ...core.errors import OperatorError, StromError
from ...core.failure_text import text_of, users_place
from ...core.joined_columns import JoinedColumns, side_columns
from ...core.preload import preload
from ...core.row_kind import RowKind, retracts, with_kinds
from ...core.value_types import empty_batch
from ...state.backend import COLUMN_STATE
from ..base import Operator, Steps
from ..kernels.change_flags import ALONE, LONE_SHOWN, MATCHED, MATCHED_SHOWN, PAIRS, UNTRACKED
from ..key_expiry import RecordTimes
from .assembly import BatchRows, Rows, joined, joined_some
from .condition import Condition
from .keyslots import KeySlots, groups_by
from .layout import JoinLayout
from .rowstore import FIRST_COMPACTION, MATCHES, NO_TIME, SEEN, RowStore
from .side import SIDES
from .walking import Lifespans, Portion, no_pairs, walk

MAX_PAIRS = 1 << 15


@dataclass(frozen=True)
class _Rules:
    """What records of one port do; see `kernels.changes`."""

    show: int
    track: int

    @staticmethod
    def of(how: JoinKind, port: int) -> _Rules:
        if how in ("semi", "anti"):
            if port == 0:
                return _Rules(MATCHED if how == "semi" else ALONE, UNTRACKED)
            return _Rules(0, MATCHED_SHOWN if how == "semi" else LONE_SHOWN)
        outer = (how in ("left", "full"), how in ("right", "full"))
        shown = LONE_SHOWN if outer[1 - port] else UNTRACKED
        return _Rules(PAIRS | (ALONE if outer[port] else 0), shown)


@dataclass(frozen=True)
class _Records:
    """A batch of one side. `when`: the time of each, by which rows expire. `slots`: NO_SLOT for
    null keys."""

    data: pa.RecordBatch
    seen: Int64s
    when: Int64s
    slots: Int64s
    retracting: Bools
    insert_only: bool


class RegularJoinOperator(Operator):
    """See the module."""

    def __init__(self, spec: RegularJoinSpec) -> None:
        self._spec = spec
        self._keys = (spec.key, spec.right_key)
        self._rules = (_Rules.of(spec.how, 0), _Rules.of(spec.how, 1))
        self._stores: list[RowStore | None] = [None, None]
        """Rows of each side, from when its columns are known."""
        self._columns: JoinedColumns | None = None
        self._where: Condition | None = None
        self._armed = False
        """Whether a wake-up for expired rows is under way."""
        self._expiring = any(spec.ttl)
        self._event = any(life is not None and life.event for life in spec.ttl)
        """Whether and by which time rows expire."""

    def open(self) -> None:
        time = self.ctx.keyed_state.time
        self._times = RecordTimes(self._event, time, self.ctx.name)
        if self._event:
            time.states.append(self)
        preload("operators.kernels.chains", "state.gather_kernels", *COLUMN_STATE)
        preload("operators.kernels.changes")
        schemas = map(side_columns, self._spec.schemas)
        self._layout = JoinLayout(self.ctx.keyed_state, self._keys, *schemas)
        self._slots = self._new_slots()
        for port in (0, 1):
            if self._layout.sides[port] is not None:
                self._bind(port)
        self._arm()

    def process(self, batch: Batch, port: int = 0) -> Steps:
        try:
            records = self._read(batch, port)
            if self._spec.how == "inner" and not self._layout.changelog:
                yield from self._extend(records, port)
            else:
                yield from self._change(records, port)
        except StromError as error:
            text = f"join: {text_of(error)}{users_place(error)}"
            raise OperatorError(self.ctx.name, self.ctx.subtask, text) from error
        if not self._event:
            self._tidy(FIRST_COMPACTION)
        self._arm()

    def sweep(self, records: int) -> None:
        """By event time: see `Sweeping`."""
        for store in self._stores:
            if store is not None:
                store.expire_some(self._times.now(), records)
        self._compact(FIRST_COMPACTION)

    def begin_event_time(self, watermark: int) -> None:
        """Every birth is known: records without event times are refused."""

    def on_processing_time(self, now_ms: int) -> None:
        self._armed = False
        self._tidy(0)
        self._arm()

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        self._expire()

    def validate(self) -> None:
        """Assert the invariants of both sides."""
        for store in self._stores:
            if store is not None:
                store.validate()

    # --- records -----------------------------------------------------------------------------

    def _read(self, batch: Batch, port: int) -> _Records:
        """The batch in the columns of its side."""
        data, kinds = self._layout.read(batch, port)
        if self._stores[port] is None:
            self._bind(port)
        seen = batch.timestamps
        retracting = np.zeros(len(batch), np.bool_) if kinds is None else retracts(kinds)
        return _Records(
            data,
            np.full(len(batch), NO_TIME) if seen is None else seen,
            self._times.of(seen, len(batch)),
            self._slots_of(port, data),
            retracting,
            kinds is None or not retracting.any(),
        )

    def _extend(self, records: _Records, port: int) -> Steps:
        """An inner join that only grows. A pause before each portion of pairs but the first."""
        mine, other = self._stores[port], self._stores[1 - port]
        assert mine is not None
        rows, more = BatchRows(records.data), False
        if other is not None:
            for probing, stored, _ in self._pairs(records, other, rows, port):
                if len(probing):
                    if more:
                        yield None
                    self._emit(port, rows, probing, records.seen, stored, None)
                    more = True
        self._store(mine, records, None)

    def _change(self, records: _Records, port: int) -> Steps:
        """Any other join: what the batch changes in the result, in order, likewise."""
        from ..kernels.changes import settle

        mine, other = self._stores[port], self._stores[1 - port]
        assert mine is not None
        rules, rows, count = self._rules[port], BatchRows(records.data), len(records.slots)
        matches = np.zeros(count, dtype=np.int64)
        portions: Iterator[Portion]
        portions = no_pairs(count) if other is None else self._pairs(records, other, rows, port)
        first, more = 0, False
        for probing, stored, done in portions:
            room = 2 * len(probing) + done - first
            out = [np.empty(room, dtype=np.int64) for _ in range(3)]
            counts = matches
            if other is not None and other.counted:
                other.log.touch(stored)
                counts = other.log.number(MATCHES)
            found = settle(
                probing,
                stored,
                first,
                done,
                records.retracting,
                rules.show,
                rules.track,
                matches,
                counts,
                *out,
            )
            first = done
            if found:
                batch_rows, stored_rows, signs = (array[:found] for array in out)
                if more:
                    yield None
                self._emit(port, rows, batch_rows, records.seen, stored_rows, signs)
                more = True
        self._store(mine, records, matches if mine.counted else None)

    def _pairs(
        self, records: _Records, other: RowStore, rows: BatchRows, port: int
    ) -> Iterator[Portion]:
        """The pairs that match; see `walking`."""
        mine = self._stores[port]
        assert mine is not None
        oldest, latest = other.oldest(records.when), mine.latest(records.when)
        chains = (other.head, other.link, Lifespans(other.born, oldest, latest))
        for probing, stored, done in walk(records.slots, *chains, MAX_PAIRS):
            if len(probing) and self._where is not None:
                holds = self._holds(rows, probing, other, stored, port)
                yield probing[holds], stored[holds], done
            else:
                yield probing, stored, done

    def _holds(
        self, rows: BatchRows, probing: Int64s, other: RowStore, stored: Int64s, port: int
    ) -> Bools:
        """For which pairs the further condition holds."""
        assert self._where is not None
        assert self._columns is not None
        mine: tuple[Rows, Int64s] = (rows, probing)
        theirs: tuple[Rows, Int64s] = (other.log, stored)
        (left, left_rows), (right, right_rows) = (mine, theirs) if port == 0 else (theirs, mine)
        names = self._where.needs
        return self._where.mask(
            joined_some(self._columns, names, (left, right), left_rows, right_rows)
        )

    def _store(self, store: RowStore, records: _Records, matches: Int64s | None) -> None:
        """Keep the batch's rows, but for those with null keys: nothing ever matches them."""
        keyed = records.slots >= 0
        data, slots, seen, when = records.data, records.slots, records.seen, records.when
        retracting = records.retracting
        if not keyed.all():
            chosen = np.flatnonzero(keyed)
            if not len(chosen):
                return
            data, slots, seen = ColumnBatch(data).take(chosen).data, slots[chosen], seen[chosen]
            when, retracting = when[chosen], retracting[chosen]
            matches = None if matches is None else matches[chosen]
        if records.insert_only:
            store.add(data, slots, seen, when, matches)
        else:
            store.change(data, slots, seen, when, matches, retracting)

    # --- results -----------------------------------------------------------------------------

    def _emit(
        self,
        port: int,
        rows: BatchRows,
        batch_rows: Int64s,
        seen: Int64s,
        stored_rows: Int64s,
        signs: Int64s | None,
    ) -> None:
        """`signs`: None for a result that only grows."""
        other = self._stores[1 - port]
        if self._spec.how in ("semi", "anti"):
            data, times = self._left_only(port, rows, batch_rows, seen, stored_rows)
        else:
            assert self._columns is not None
            stored: Rows
            if other is not None and len(other):
                stored = other.log
                held = np.where(stored_rows >= 0, other.log.number(SEEN)[stored_rows], NO_TIME)
            else:
                stored = BatchRows(_no_rows(self._layout.sides[1 - port]))
                held = np.full(len(stored_rows), NO_TIME)
            own = np.where(batch_rows >= 0, seen[batch_rows], NO_TIME)
            times = np.maximum(own, held)
            mine: tuple[Rows, Int64s] = (rows, batch_rows)
            theirs: tuple[Rows, Int64s] = (stored, stored_rows)
            left, right = (mine, theirs) if port == 0 else (theirs, mine)
            data = joined(self._columns, *left, *right)
        if signs is not None:
            kinds = np.where(signs > 0, RowKind.INSERT, RowKind.DELETE).astype(np.int8)
            data = with_kinds(data, kinds)
        stamps = None if (times == NO_TIME).any() else times
        self.out.emit(ColumnBatch(data, stamps))

    def _left_only(
        self, port: int, rows: BatchRows, batch_rows: Int64s, seen: Int64s, stored_rows: Int64s
    ) -> tuple[pa.RecordBatch, Int64s]:
        """Semi and anti joins give left records: of the batch, or those stored."""
        if port == 0:
            arrays, times = rows.gather(batch_rows), seen[batch_rows]
        else:
            store = self._stores[0]
            assert store is not None
            arrays = store.log.gather(stored_rows)
            times = store.log.number(SEEN)[stored_rows]
        return pa.RecordBatch.from_arrays(arrays, schema=self._layout.sides[0]), times

    # --- state -------------------------------------------------------------------------------

    def _bind(self, port: int) -> None:
        """The columns of a side are known, so its rows can be: those restored, or none."""
        schema = self._layout.sides[port]
        assert schema is not None
        counted = self._rules[1 - port].track != UNTRACKED
        groups_of = groups_by(self._keys[port], self.ctx.max_parallelism)
        life, state = self._spec.ttl[port], self.ctx.keyed_state
        store = RowStore(state, SIDES[port], schema, groups_of, life, self._event, counted)
        if len(store):
            store.restore(self.ctx.clock.now_ms(), partial(self._slots_of, port))
        self._stores[port] = store
        left, right = self._layout.sides
        if left is not None and right is not None:
            self._columns = JoinedColumns.of(left, right, *self._spec.shared, self._spec.suffix)
            if self._spec.where is not None:
                self._where = Condition(self._spec.where, self._columns.schema)

    def _slots_of(self, port: int, rows: pa.RecordBatch) -> Int64s:
        """The slots of these rows' keys."""
        keys = self._keys[port].key_columns(ColumnBatch(rows))
        assert keys is not None
        return self._slots.slots(keys)

    def _new_slots(self) -> KeySlots:
        return KeySlots(f"join '{self.ctx.name}'")

    def _arm(self) -> None:
        """By processing time: ask to be woken when rows of a side that are here now have expired,
        all of them."""
        if self._armed or self._event or not self._expiring:
            return
        held = [store.life for store in self._stores if store and len(store)]
        waits = [life.ms for life in held if life is not None]
        if waits:
            self.ctx.wake_at(self.ctx.clock.now_ms() + min(waits))
            self._armed = True

    def _expire(self) -> None:
        """All rows that have expired are gone."""
        for store in self._stores:
            if store is not None:
                store.expire(self._times.now())

    def _tidy(self, least: int) -> None:
        """Drop rows without use when they are more than `least` and the better half."""
        self._expire()
        self._compact(least)

    def _compact(self, least: int) -> None:
        for store in self._stores:
            if store is not None and store.useless > max(least, len(store) // 2):
                store.compact()
        kept = sum(len(store) for store in self._stores if store is not None)
        if len(self._slots) > FIRST_COMPACTION + 2 * kept:
            self._slots = self._new_slots()
            for port, store in enumerate(self._stores):
                if store is not None:
                    store.compact()
                    store.rechain(partial(self._slots_of, port))


def _no_rows(schema: pa.Schema | None) -> pa.RecordBatch:
    return empty_batch(schema or pa.schema([]))
