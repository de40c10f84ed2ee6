"""Windows with an evictor: they keep every record with its time, and lose some when they fire.

    fire    evict_before -> the window function gets what is left -> evict_after -> the window
            holds what is left then

An incremental function (reduce, aggregate) is folded anew over what is left at each firing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import is_
from typing import Any

from ...api.windows.evictors import Evictor, TimestampedValue
from ...core.errors import StateError
from ...state.backend import KeyedStateBackend
from ...state.descriptors import ListStateDescriptor
from ..rows.metric_group import OperatorMetricGroup
from ..rows.timers import Timers
from .window_contents import Fold, ListedContents
from .window_emit import WindowEmitter
from .window_namespace import Namespace

_TIMES = ListStateDescriptor("__window_times")


class TimedContents(ListedContents):
    """All records in the order of arrival, as without an evictor, and their times beside them."""

    def __init__(self, state: KeyedStateBackend, operator: str) -> None:
        super().__init__(state)
        self._times = state.namespaced(_TIMES)
        self._operator = operator
        self.stamps: list[int] = []
        """Of the batch whose records are being added."""

    def add(self, namespace: Namespace, value: Any) -> None:
        super().add(namespace, value)
        self._times.of(namespace).add(self.stamps[self.row])

    def get(self, namespace: Namespace) -> Sequence[Any] | None:
        """Pairs of record and time. StateError for records that were added without an evictor."""
        values = super().get(namespace)
        if values is None:
            return None
        times = list(self._times.of(namespace).get())
        if len(times) != len(values):
            raise StateError(
                f"window operator '{self._operator}': a window of the checkpoint has {len(values)} "
                f"records and {len(times)} times: it was written without an evictor; take the "
                "evictor away until the windows of then are over, or give the operator another uid"
            )
        return list(zip(values, times, strict=True))

    def merge(self, target: Namespace, sources: Sequence[Namespace]) -> None:
        super().merge(target, sources)
        for source in sources:
            times = list(self._times.of(source).get())
            self._times.of(source).clear()
            self._times.of(target).add_all(times)

    def clear(self, namespace: Namespace) -> None:
        super().clear(namespace)
        self._times.of(namespace).clear()

    def keep(self, namespace: Namespace, records: list[TimestampedValue[Any]]) -> None:
        """The window holds these records, and no others."""
        self._state.of(namespace).update([record.value for record in records])
        self._times.of(namespace).update([record.timestamp for record in records])


class EvictorContext:
    """Evictor.EvictorContext."""

    def __init__(self, timers: Timers, group: OperatorMetricGroup) -> None:
        self._timers = timers
        self._group = group

    def get_current_processing_time(self) -> int:
        return self._timers.now()

    def get_current_watermark(self) -> int:
        return self._timers.watermark

    def get_metric_group(self) -> OperatorMetricGroup:
        return self._group


class Eviction:
    """One firing after the other: `before`, the function, `after`."""

    def __init__(
        self, evictor: Evictor[Any, Any], contents: TimedContents, context: EvictorContext
    ) -> None:
        self._evictor = evictor
        self._contents = contents
        self._context = context
        self._records: list[TimestampedValue[Any]] = []
        """Those left of the firing window."""
        self._held: list[TimestampedValue[Any]] = []
        """Those that its state holds."""

    def begin(self, stamps: list[int]) -> None:
        """A batch comes; its records have these event times."""
        self._contents.stamps = stamps

    def before(self, held: Sequence[tuple[Any, int]], window: Any) -> list[Any]:
        """What the function gets of the records the window holds."""
        self._records = [TimestampedValue(value, stamp) for value, stamp in held]
        self._held = self._records.copy()
        self._evictor.evict_before(self._records, len(held), window, self._context)
        return [record.value for record in self._records]

    def after(self, namespace: Namespace, window: Any) -> None:
        """The function is done: the rest is what the window, held under `namespace`, keeps."""
        records, self._records = self._records, []
        held, self._held = self._held, []
        self._evictor.evict_after(records, len(records), window, self._context)
        if len(records) != len(held) or not all(map(is_, records, held)):
            self._contents.keep(namespace, records)


class FoldingEmitter:
    """Folds the records of a firing and sends the one result on, if there is one."""

    def __init__(self, fold: Fold, empty: Any, emitter: WindowEmitter) -> None:
        """`empty`: gives the result of no records as a list of it, or an empty one."""
        self._fold = fold
        self._empty = empty
        self._emitter = emitter
        self.more = emitter.more
        self.clear = emitter.clear
        self.flush = emitter.flush

    def fire(self, key: Any, window: Any, contents: Sequence[Any]) -> Iterator[Any] | None:
        results = self._results(contents)
        return self._emitter.fire(key, window, results) if results else None

    @property
    def full(self) -> bool:
        return self._emitter.full

    def _results(self, contents: Sequence[Any]) -> list[Any]:
        if not contents:
            found: list[Any] = self._empty()
            return found
        fold = self._fold
        accumulator = fold.first(contents[0])
        for value in contents[1:]:
            accumulator = fold.add(accumulator, value)
        return [fold.result(accumulator)]
