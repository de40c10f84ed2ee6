"""Windows record by record: any assigner, trigger and function, by Flink's WindowOperator's rules.

State per key and window: the contents, the trigger's own state, timers. A window is cleared by its
clean-up timer, at its end plus the allowed lateness. Event-time timers fire in order before the
watermark is forwarded; ties fire in order of registration.

Two things differ from Flink. The watermark is part of the state: after a restore the same records
are late as without a failure (after a rescale, each key group's by the watermark of the subtask
that had it).
And processing-time windows still open when a bounded input ends fire then, instead of being lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...api.specs.windows import WindowSpec
from ...api.windows.base import MergingWindowAssigner, TriggerResult
from ...api.windows.triggers import EventTimeTrigger, ProcessingTimeTrigger
from ...core.batch import Batch
from ...core.constants import LATE_DROPPED
from ...core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from ...core.errors import GraphError, StateError, TypeMismatchError
from ...core.key_kinds import given
from ...core.row_kind import refuse_changelog
from ...state.copies import FIXED, kept
from ...state.descriptors import ValueStateDescriptor
from ...state.key_groups import key_group
from ...state.window_progress import WindowProgress
from ..base import Operator, Steps, run_to_end
from ..rows.runtime_context import OperatorRuntimeContext
from ..rows.timers import Timer, Timers
from ..slots.slot_kinds import runs_on_slots
from .evicting import Eviction, EvictorContext, TimedContents
from .merging_windows import Merge, MergingWindows
from .slot_windows import SlotWindows
from .window_contexts import AssignerContext, ProcessContext, TriggerWindow
from .window_logic import WindowLogic, make_logic
from .window_namespace import Namespace, to_namespace, to_window

_TIMER_STATES = ("__window_event_timers", "__window_processing_timers")
_MERGING = ValueStateDescriptor("__merging_windows")
_CONTINUE = TriggerResult.CONTINUE
_FIRES = (TriggerResult.FIRE, TriggerResult.FIRE_AND_PURGE)
_PURGES = (TriggerResult.PURGE, TriggerResult.FIRE_AND_PURGE)

_UNKNOWN: set[Any] = set()
"""Stands for the keys of a window that no record of the batch has fallen into yet."""


class RowWindowOperator(Operator):
    """See the module. The loop over records, or the timer that fires, sets the current key."""

    def __init__(self, spec: WindowSpec) -> None:
        self._spec = spec
        self._assigner = spec.assigner
        self._assign = spec.assigner.assign_windows
        self._event_time = spec.assigner.is_event_time()
        self._lateness = spec.allowed_lateness_ms
        self._trigger = spec.trigger or spec.assigner.get_default_trigger(None)
        self._merging = isinstance(spec.assigner, MergingWindowAssigner)
        if self._merging and not self._trigger.can_merge():
            raise GraphError(
                f"{type(spec.assigner).__name__} merges windows, but its trigger "
                f"{type(self._trigger).__name__} does not implement on_merge"
            )
        self._idempotent = type(self._trigger) in (EventTimeTrigger, ProcessingTimeTrigger)
        """Whether `on_element` only sets a timer unless it fires: once per batch will do then."""

    def open(self) -> None:
        state = self.ctx.keyed_state
        self._shares = self.ctx.config.object_reuse or runs_on_slots(self._spec.function)
        """Whether the windows of a record may hold the same object."""
        runtime = OperatorRuntimeContext(self.ctx, keyed=True)
        self._progress = WindowProgress(state, "__window_progress")
        self._timers = Timers(self.ctx, _TIMER_STATES)
        self._timers.watermark = self._progress.watermark
        self._context = AssignerContext(self._timers, runtime)
        self._window = TriggerWindow(state, self._timers, runtime.get_metrics_group())
        self._sessions = state.get_state(_MERGING) if self._merging else None
        self._functions: list[Any] = []
        self._slots: SlotWindows | None = None
        """Of built-in functions."""
        if runs_on_slots(self._spec.function):
            self._slots = SlotWindows(self._spec, self.ctx, self.out, self._progress)
            self._bind(WindowLogic(self._slots.contents, self._slots.emitter))
        else:
            process = ProcessContext(state, self._timers, runtime, self._merging)
            self._bind(self._logic(process))
        self._eviction: Eviction | None = None
        if self._spec.evictor is not None:
            assert isinstance(self._contents, TimedContents)
            context = EvictorContext(self._timers, runtime.get_metrics_group())
            self._eviction = Eviction(self._spec.evictor, self._contents, context)
        for function in self._functions:
            function.open(runtime)

    def _logic(self, process: ProcessContext) -> WindowLogic:
        """Of functions of the program."""
        return make_logic(self._spec, self.ctx, self.out, process)

    def _bind(self, logic: WindowLogic) -> None:
        self._contents = logic.contents
        self._emitter = logic.emitter
        self._functions = logic.functions
        self._armed: dict[Namespace, set[Any] | None] = {}
        """Windows that records of this batch fall into, and the keys for which their timers are
        set already; None for a window that is late, which the watermark decides."""
        self._stamped = False
        """Whether the records of this batch have timestamps."""
        self._passed = MIN_TIMESTAMP
        """Up to where windows of the current record's key group have fired, if not less far than
        the watermark: after a rescale groups differ."""
        self._open_windows: dict[Any, MergingWindows] = {}
        """Merging windows by key, while a batch or the timers of one advance are handled; written
        to state at its end, so empty in between."""

    def process(self, batch: Batch, port: int = 0) -> Steps:
        refuse_changelog(batch, self.ctx.name, "windows")
        self._armed.clear()
        progress, armed = self._progress, {self._passed: self._armed}
        fired = progress.by_group() if progress.furthest > progress.watermark else None
        current = self.ctx.keyed_state.current
        add = self._add_merging if self._merging else self._add
        rows, keys, contents = batch.rows(), self._spec.key.held_keys(batch), self._contents
        self.ctx.keyed_state.check_keys(keys)
        if self._slots is not None:
            self._slots.begin(batch, keys)
        none = [MIN_TIMESTAMP] * len(rows)
        stamps = none if batch.timestamps is None else batch.timestamps.tolist()
        self._stamped = batch.timestamps is not None
        if self._eviction is not None:
            self._eviction.begin(stamps)
        late = []
        for index, (value, key, stamp) in enumerate(zip(rows, keys, stamps, strict=True)):
            current.key, contents.row = key, index
            if fired is not None:
                self._passed = int(fired[key_group(key, self.ctx.max_parallelism)])
                self._armed = armed.setdefault(self._passed, {})
            if not add(key, value, stamp) and self._is_late(stamp + self._lateness):
                late.append(index)
            if self._emitter.full:
                self._emitter.flush()
                yield None
        if self._idempotent:
            self._arm_merged()
        self._keep_merging_windows()
        if late:
            self._send_late(batch, late)
        self._emitter.flush()
        if self._slots is not None:
            self._slots.end(len(rows))

    def process_watermark(self, timestamp: int) -> Steps:
        for timer in self._timers.advance_watermark(timestamp):
            yield from self._on_timer(*timer, self._trigger.on_event_time, self._event_time)
        self._keep_merging_windows()
        self._progress.advance(timestamp)
        self._emitter.flush()
        self.out.emit_watermark(timestamp)

    def on_processing_time(self, now_ms: int) -> Steps:
        return self._on_processing_timers(self._timers.advance_clock(now_ms))

    def finish(self) -> Steps:
        return self._on_processing_timers(self._timers.drain_processing())

    def _on_processing_timers(self, due: Iterator[Timer]) -> Steps:
        for timer in due:
            ask = self._trigger.on_processing_time
            yield from self._on_timer(*timer, ask, not self._event_time)
        self._keep_merging_windows()
        self._emitter.flush()

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        self._progress.save()
        for function in self._functions:
            function.snapshot(checkpoint_id)

    def close(self) -> None:
        for function in getattr(self, "_functions", ()):
            function.close(self.ctx.name)

    def _add(self, key: Any, value: Any, stamp: int) -> bool:
        """Put a record of the current key into its windows; False if none of them takes it."""
        taken = False
        windows = list(self._assign(value, stamp, self._context))
        values = self._one_each(value, len(windows))
        for window, value in zip(windows, values, strict=True):
            namespace = to_namespace(window)
            armed = self._armed.get(namespace, _UNKNOWN)
            if armed is _UNKNOWN:
                armed = self._first_seen(window, namespace)
            if armed is None:
                continue
            taken = True
            self._contents.add(namespace, value)
            if key not in armed:
                self._added(key, value, stamp, window, namespace, namespace, armed)
        return taken

    def _one_each(self, value: Any, count: int) -> list[Any]:
        """The record for each of its windows: what is folded in one of them may be changed by it,
        or become what is changed."""
        if count < 2 or self._shares or type(value) in FIXED:
            return [value] * count
        return [kept(value) for _ in range(count)]

    def _add_merging(self, key: Any, value: Any, stamp: int) -> bool:
        """`_add` for windows that grow together."""
        windows = self._merging_windows(key)
        taken = False
        for window in self._assign(value, stamp, self._context):
            actual, merges = windows.add(window)
            for merge in merges:
                self._merge(merge)
            namespace = to_namespace(actual)
            armed = self._armed.get(namespace, _UNKNOWN)
            if armed is _UNKNOWN:
                armed = self._first_seen(actual, namespace)
            if armed is None:
                windows.retire(namespace)
                continue
            taken = True
            held_at = windows.state_of(namespace)
            self._contents.add(held_at, value)
            if not self._idempotent:
                self._added(key, value, stamp, actual, namespace, held_at, armed)
            elif actual.max_timestamp() <= self._timers.watermark:
                self._ask(key, value, stamp, actual, namespace, held_at)
        return taken

    def _first_seen(self, window: Any, namespace: Namespace) -> set[Any] | None:
        """For a window that no record of the batch fell into before: see `_armed`."""
        if window.max_timestamp() >= MAX_TIMESTAMP or getattr(window, "start", 0) < MIN_TIMESTAMP:
            self._check_bounds(window)
        armed: set[Any] | None = None if self._is_late(self._end_of_life(window)) else set()
        self._armed[namespace] = armed
        return armed

    def _check_bounds(self, window: Any) -> None:
        """TypeMismatchError for a window that no watermark would ever end, as it ends behind the
        last one. Others, such as the global window, end with the last one."""
        within = getattr(window, "start", 0) >= MIN_TIMESTAMP
        if not within or getattr(window, "end", window.max_timestamp()) > MAX_TIMESTAMP:
            raise TypeMismatchError(
                f"window operator '{self.ctx.name}': a record's window {window} begins or ends "
                f"beyond all timestamps, which are from {MIN_TIMESTAMP} to {MAX_TIMESTAMP}: "
                "correct the record's time, or filter it out before the window"
            )

    def _added(
        self,
        key: Any,
        value: Any,
        stamp: int,
        window: Any,
        namespace: Namespace,
        held_at: Namespace,
        armed: set[Any],
    ) -> None:
        """Ask the trigger about a record, and see to it that the window will be cleared."""
        result = self._ask(key, value, stamp, window, namespace, held_at)
        if result is _CONTINUE and self._idempotent:
            armed.add(key)
        self._set_clean_up(window, namespace)

    def _ask(
        self,
        key: Any,
        value: Any,
        stamp: int,
        window: Any,
        namespace: Namespace,
        held_at: Namespace,
    ) -> TriggerResult:
        """Do what the trigger says of a record."""
        self._window.select(namespace)
        result = self._trigger.on_element(value, stamp, window, self._window)
        if result is not _CONTINUE:
            run_to_end(self._act(result, key, window, held_at))
        return result

    def _merge(self, merge: Merge) -> None:
        result = to_window(merge.result)
        if self._is_late(self._end_of_life(result)):
            raise StateError(
                f"operator '{self.ctx.name}' merged windows into {result}, which is over at "
                f"watermark {max(self._timers.watermark, self._passed)}: a merging assigner must "
                "not shrink windows"
            )
        if not self._idempotent:
            self._window.select(merge.result, merge.windows)
            self._trigger.on_merge(result, self._window)
            for namespace in merge.windows:
                self._disarm(namespace)
        if merge.sources:
            self._contents.merge(merge.target, merge.sources)

    def _disarm(self, namespace: Namespace) -> None:
        """The window of the current key is part of another now."""
        window = to_window(namespace)
        self._window.select(namespace)
        self._trigger.clear(window, self._window)
        self._delete_clean_up(window, namespace)

    def _arm_merged(self) -> None:
        """Set and delete the timers of the windows that the batch has left, once for all merges."""
        for key, windows in self._open_windows.items():
            if windows.changed:
                self.ctx.keyed_state.current.key = key
                gone, new = windows.differences()
                for namespace in gone:
                    self._disarm(namespace)
                for namespace in new:
                    window = to_window(namespace)
                    self._window.select(namespace)
                    self._trigger.on_merge(window, self._window)
                    self._set_clean_up(window, namespace)

    def _on_timer(
        self, time: int, key: Any, namespace: Namespace, ask: Any, may_clear: bool
    ) -> Steps:
        """Ask the trigger about a timer, and do what it says; a pause after each batch."""
        window = to_window(namespace)
        windows = self._merging_windows(key) if self._merging else None
        held_at = namespace if windows is None else windows.state_of(namespace)
        if held_at is None:
            return  # a timer of a window that has been merged into another since
        self._contents.recall()
        self._window.select(namespace)
        result = ask(time, window, self._window)
        if result is not _CONTINUE:
            yield from self._act(result, key, window, held_at)
        if may_clear and time == self._end_of_life(window):
            self._contents.clear(held_at)
            self._window.select(namespace)
            self._trigger.clear(window, self._window)
            self._emitter.clear(window)
            if windows is not None:
                windows.retire(namespace)
        if self._emitter.full:
            self._emitter.flush()
            yield None

    def _act(self, result: TriggerResult, key: Any, window: Any, held_at: Namespace) -> Steps:
        if result in _FIRES:
            contents = self._contents.get(held_at)
            if contents is not None:
                if self._eviction is not None:
                    contents = self._eviction.before(contents, window)
                rest = self._emitter.fire(given(key), window, contents)
                while rest is not None:
                    self._emitter.flush()
                    yield None
                    rest = self._emitter.more(rest, window)
                if self._eviction is not None:
                    self._eviction.after(held_at, window)
        if result in _PURGES:
            self._contents.clear(held_at)

    def _is_late(self, end_of_life: int) -> bool:
        return self._event_time and end_of_life <= max(self._timers.watermark, self._passed)

    def _end_of_life(self, window: Any) -> int:
        """When the window is cleared: never, if MAX_TIMESTAMP."""
        end: int = window.max_timestamp()
        return min(end + self._lateness, MAX_TIMESTAMP) if self._event_time else end

    def _set_clean_up(self, window: Any, namespace: Namespace) -> None:
        end = self._end_of_life(window)
        if end < MAX_TIMESTAMP:
            timers = self._timers
            register = timers.register_event if self._event_time else timers.register_processing
            register(end, namespace)

    def _delete_clean_up(self, window: Any, namespace: Namespace) -> None:
        delete = self._timers.delete_event if self._event_time else self._timers.delete_processing
        delete(self._end_of_life(window), namespace)

    def _send_late(self, batch: Batch, late: list[int]) -> None:
        if self._spec.late_tag is None:
            self.ctx.metrics.count(LATE_DROPPED, len(late))
        else:
            rows = np.array(late, dtype=np.int64)
            self.out.emit_side(self._spec.late_tag.tag_id, batch.take(rows))

    def _merging_windows(self, key: Any) -> MergingWindows:
        """Those of the current key."""
        windows = self._open_windows.get(key)
        if windows is None:
            assert self._sessions is not None
            assert isinstance(self._assigner, MergingWindowAssigner)
            windows = MergingWindows(self._assigner, self._sessions.value())
            self._open_windows[key] = windows
        return windows

    def _keep_merging_windows(self) -> None:
        for key, windows in self._open_windows.items():
            if windows.changed:
                assert self._sessions is not None
                self.ctx.keyed_state.current.key = key
                self._sessions.update(windows.pairs() or None)
        self._open_windows.clear()
