"""Time to live of keyed state, under PyFlink's names: how long what is stored may be used.

What was not written for `ttl` (or not written or read, as `UpdateType` says) has expired: each
value, each element of a list and each entry of a map by itself. It is not returned any more, and
is removed when it is come across, when a snapshot is taken, and in the background.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Any

from ..core.errors import ConfigurationError

_MILLISECOND = timedelta(milliseconds=1)


class StateTtlConfig:
    """Made by `new_builder`; given to a descriptor with `enable_time_to_live`.

    >>> from strom import ValueStateDescriptor
    >>> config = StateTtlConfig.new_builder(timedelta(hours=1)).update_ttl_on_read_and_write()
    >>> descriptor = ValueStateDescriptor("last")
    >>> descriptor.enable_time_to_live(config.build())
    """

    class UpdateType(Enum):
        """What makes a value live on."""

        Disabled = 0
        """Nothing expires."""
        OnCreateAndWrite = 1
        """Being written."""
        OnReadAndWrite = 2
        """Being written or read."""

    class StateVisibility(Enum):
        """Whether a value that has expired may still be returned."""

        ReturnExpiredIfNotCleanedUp = 0
        """Once, by the access that finds it, if it has not been removed."""
        NeverReturnExpired = 1

    class TtlTimeCharacteristic(Enum):
        """Which time is meant."""

        ProcessingTime = 0
        """The clock, which goes on while a job is down."""
        EventTime = 1
        """The timestamp of the record or timer at hand, or the watermark if it is later (it alone
        where a record has no timestamp). Flink has no such."""

    class CleanupStrategies:
        """When expired state is removed, besides when it is come across."""

        class Strategies(Enum):
            FULL_STATE_SCAN_SNAPSHOT = 0
            INCREMENTAL_CLEANUP = 1
            ROCKSDB_COMPACTION_FILTER = 2

        class CleanupStrategy:
            """Settings of one strategy."""

        class EmptyCleanupStrategy(CleanupStrategy):
            """One without settings."""

        class IncrementalCleanupStrategy(CleanupStrategy):
            def __init__(self, cleanup_size: int, run_cleanup_for_every_record: bool) -> None:
                self._cleanup_size = cleanup_size
                self._run_cleanup_for_every_record = run_cleanup_for_every_record

            def get_cleanup_size(self) -> int:
                return self._cleanup_size

            def run_cleanup_for_every_record(self) -> bool:
                return self._run_cleanup_for_every_record

        class RocksdbCompactFilterCleanupStrategy(CleanupStrategy):
            def __init__(
                self,
                query_time_after_num_entries: int,
                periodic_compaction_time: timedelta = timedelta(days=30),
            ) -> None:
                self._query_time_after_num_entries = query_time_after_num_entries
                self._periodic_compaction_time = periodic_compaction_time

            def get_query_time_after_num_entries(self) -> int:
                return self._query_time_after_num_entries

            def get_periodic_compaction_time(self) -> timedelta:
                return self._periodic_compaction_time

        EMPTY_STRATEGY = EmptyCleanupStrategy()

        def __init__(
            self,
            strategies: dict[Strategies, CleanupStrategy],
            is_cleanup_in_background: bool,
        ) -> None:
            self._strategies = dict(strategies)
            self._is_cleanup_in_background = is_cleanup_in_background

        def is_cleanup_in_background(self) -> bool:
            return self._is_cleanup_in_background

        def in_full_snapshot(self) -> bool:
            """Whether it was asked for; snapshots leave expired state out in any case."""
            return self.Strategies.FULL_STATE_SCAN_SNAPSHOT in self._strategies

        def get_incremental_cleanup_strategy(
            self,
        ) -> StateTtlConfig.CleanupStrategies.IncrementalCleanupStrategy | None:
            """What the background removes; None: nothing."""
            default = self.IncrementalCleanupStrategy(5, False)
            chosen = self._chosen(self.Strategies.INCREMENTAL_CLEANUP, default)
            assert chosen is None or isinstance(chosen, self.IncrementalCleanupStrategy)
            return chosen

        def get_rocksdb_compact_filter_cleanup_strategy(
            self,
        ) -> StateTtlConfig.CleanupStrategies.RocksdbCompactFilterCleanupStrategy | None:
            default = self.RocksdbCompactFilterCleanupStrategy(1000)
            chosen = self._chosen(self.Strategies.ROCKSDB_COMPACTION_FILTER, default)
            assert chosen is None or isinstance(chosen, self.RocksdbCompactFilterCleanupStrategy)
            return chosen

        def _chosen(self, strategy: Strategies, default: CleanupStrategy) -> CleanupStrategy | None:
            in_background = default if self._is_cleanup_in_background else None
            return self._strategies.get(strategy, in_background)

    class Builder:
        """Settings one by one; `build` makes the configuration."""

        def __init__(self, ttl: Any) -> None:
            self._ttl = ttl
            self._update_type = StateTtlConfig.UpdateType.OnCreateAndWrite
            self._visibility = StateTtlConfig.StateVisibility.NeverReturnExpired
            self._time = StateTtlConfig.TtlTimeCharacteristic.ProcessingTime
            self._in_background = True
            self._strategies: dict[
                StateTtlConfig.CleanupStrategies.Strategies,
                StateTtlConfig.CleanupStrategies.CleanupStrategy,
            ] = {}

        def set_update_type(self, update_type: StateTtlConfig.UpdateType) -> StateTtlConfig.Builder:
            self._update_type = update_type
            return self

        def update_ttl_on_create_and_write(self) -> StateTtlConfig.Builder:
            return self.set_update_type(StateTtlConfig.UpdateType.OnCreateAndWrite)

        def update_ttl_on_read_and_write(self) -> StateTtlConfig.Builder:
            return self.set_update_type(StateTtlConfig.UpdateType.OnReadAndWrite)

        def set_state_visibility(
            self, state_visibility: StateTtlConfig.StateVisibility
        ) -> StateTtlConfig.Builder:
            self._visibility = state_visibility
            return self

        def return_expired_if_not_cleaned_up(self) -> StateTtlConfig.Builder:
            return self.set_state_visibility(
                StateTtlConfig.StateVisibility.ReturnExpiredIfNotCleanedUp
            )

        def never_return_expired(self) -> StateTtlConfig.Builder:
            return self.set_state_visibility(StateTtlConfig.StateVisibility.NeverReturnExpired)

        def set_ttl_time_characteristic(
            self, ttl_time_characteristic: StateTtlConfig.TtlTimeCharacteristic
        ) -> StateTtlConfig.Builder:
            self._time = ttl_time_characteristic
            return self

        def use_processing_time(self) -> StateTtlConfig.Builder:
            return self.set_ttl_time_characteristic(
                StateTtlConfig.TtlTimeCharacteristic.ProcessingTime
            )

        def use_event_time(self) -> StateTtlConfig.Builder:
            """Not in Flink: see `TtlTimeCharacteristic.EventTime`."""
            return self.set_ttl_time_characteristic(StateTtlConfig.TtlTimeCharacteristic.EventTime)

        def cleanup_full_snapshot(self) -> StateTtlConfig.Builder:
            """Leave expired state out of snapshots, which is done in any case."""
            strategies = StateTtlConfig.CleanupStrategies
            return self._with(
                strategies.Strategies.FULL_STATE_SCAN_SNAPSHOT, strategies.EMPTY_STRATEGY
            )

        def cleanup_incrementally(
            self, cleanup_size: int, run_cleanup_for_every_record: bool
        ) -> StateTtlConfig.Builder:
            """Remove up to `cleanup_size` expired keys for each record of a batch, before the batch
            is worked on, whether or not its records touch this state. What has expired is known
            without looking at anything else, so that the second argument changes nothing."""
            strategies = StateTtlConfig.CleanupStrategies
            if type(cleanup_size) is not int or cleanup_size < 1:
                raise ConfigurationError(
                    f"cleanup_incrementally: cleanup_size must be an int of at least 1, is "
                    f"{cleanup_size!r}"
                )
            return self._with(
                strategies.Strategies.INCREMENTAL_CLEANUP,
                strategies.IncrementalCleanupStrategy(cleanup_size, run_cleanup_for_every_record),
            )

        def cleanup_in_rocksdb_compact_filter(
            self,
            query_time_after_num_entries: int,
            periodic_compaction_time: timedelta = timedelta(days=30),
        ) -> StateTtlConfig.Builder:
            """Of RocksDB, which keeps no state here: it is noted, and changes nothing. State in
            memory is cleaned up as ever."""
            strategies = StateTtlConfig.CleanupStrategies
            return self._with(
                strategies.Strategies.ROCKSDB_COMPACTION_FILTER,
                strategies.RocksdbCompactFilterCleanupStrategy(
                    query_time_after_num_entries, periodic_compaction_time
                ),
            )

        def disable_cleanup_in_background(self) -> StateTtlConfig.Builder:
            """Remove what has expired only when it is come across and from snapshots, unless
            `cleanup_incrementally` is set, too: keys that never come again stay in memory."""
            self._in_background = False
            return self

        def set_ttl(self, ttl: Any) -> StateTtlConfig.Builder:
            self._ttl = ttl
            return self

        def build(self) -> StateTtlConfig:
            return StateTtlConfig(
                self._update_type,
                self._visibility,
                self._time,
                self._ttl,
                StateTtlConfig.CleanupStrategies(self._strategies, self._in_background),
            )

        def _with(
            self,
            name: StateTtlConfig.CleanupStrategies.Strategies,
            strategy: StateTtlConfig.CleanupStrategies.CleanupStrategy,
        ) -> StateTtlConfig.Builder:
            self._strategies[name] = strategy
            return self

    def __init__(
        self,
        update_type: UpdateType,
        state_visibility: StateVisibility,
        ttl_time_characteristic: TtlTimeCharacteristic,
        ttl: Any,
        cleanup_strategies: CleanupStrategies,
    ) -> None:
        for what, value, kind in (
            ("update type", update_type, self.UpdateType),
            ("state visibility", state_visibility, self.StateVisibility),
            ("time characteristic", ttl_time_characteristic, self.TtlTimeCharacteristic),
            ("cleanup strategies", cleanup_strategies, self.CleanupStrategies),
        ):
            if not isinstance(value, kind):
                raise ConfigurationError(
                    f"StateTtlConfig: the {what} must be a {kind.__qualname__}, is {value!r}"
                )
        self._update_type = update_type
        self._visibility = state_visibility
        self._time = ttl_time_characteristic
        self._ttl = _duration(ttl)
        self._cleanup = cleanup_strategies

    @staticmethod
    def new_builder(ttl: Any) -> Builder:
        """`ttl`: a `Duration`, `Time`, timedelta or number of milliseconds, at least 1 ms."""
        return StateTtlConfig.Builder(ttl)

    def get_update_type(self) -> UpdateType:
        return self._update_type

    def get_state_visibility(self) -> StateVisibility:
        return self._visibility

    def get_ttl(self) -> timedelta:
        return self._ttl

    def get_ttl_time_characteristic(self) -> TtlTimeCharacteristic:
        return self._time

    def is_enabled(self) -> bool:
        return self._update_type is not self.UpdateType.Disabled

    def get_cleanup_strategies(self) -> CleanupStrategies:
        return self._cleanup

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StateTtlConfig) and self._facts() == other._facts()

    def __hash__(self) -> int:
        return hash(self._facts())

    def __repr__(self) -> str:
        return (
            f"StateTtlConfig<update_type={self._update_type}, state_visibility={self._visibility}, "
            f"ttl_time_characteristic={self._time}, ttl={self._ttl}>"
        )

    def _facts(self) -> tuple[Any, ...]:
        cleanup = self._cleanup.get_incremental_cleanup_strategy()
        size = None if cleanup is None else cleanup.get_cleanup_size()
        return (self._update_type, self._visibility, self._time, self._ttl, size)


def _duration(ttl: Any) -> timedelta:
    convert = getattr(ttl, "to_milliseconds", None)
    number = convert() if callable(convert) else ttl
    if isinstance(number, (int, float)) and not isinstance(number, bool):
        number = timedelta(milliseconds=number)
    if not isinstance(number, timedelta) or number < _MILLISECOND:
        raise ConfigurationError(
            f"StateTtlConfig: the time to live must be a Duration of at least 1 ms, is {ttl!r}"
        )
    return number


@dataclass(frozen=True)
class Lifetime:
    """How long an operator of this package keeps what is not written. `event`: of event time,
    else of processing time."""

    ms: int
    event: bool = False

    @property
    def config(self) -> StateTtlConfig:
        """The same for a state."""
        builder = StateTtlConfig.new_builder(timedelta(milliseconds=self.ms))
        return (builder.use_event_time() if self.event else builder).build()

    def column(self, name: str) -> str:
        """The column of stamps, in a state that holds those of one time: of event time it has a
        name of its own, so that stamps of the other time are never taken for such."""
        return f"event_{name}" if self.event else name
