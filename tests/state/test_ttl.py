"""Time to live of keyed state: what expires when, who sees it, and what is left in memory."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from strom import (
    Duration,
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtlConfig,
    Time,
    ValueStateDescriptor,
)
from strom.core.clock import VirtualClock
from strom.core.errors import ConfigurationError, StateError, TypeMismatchError
from strom.core.ids import KeyGroupRange
from strom.state.memory import MemoryKeyedStateBackend

from tests.state.test_ttl_model import OPERATIONS, call, described

TTL = timedelta(milliseconds=10)


def backend(clock: VirtualClock) -> MemoryKeyedStateBackend:
    made = MemoryKeyedStateBackend(KeyGroupRange(0, 7), 8, clock)
    made.current.key = "a"
    return made


def values(config: StateTtlConfig | None = None) -> ValueStateDescriptor:
    made = ValueStateDescriptor("s")
    if config is not None:
        made.enable_time_to_live(config)
    return made


def restored(old: MemoryKeyedStateBackend, clock: VirtualClock) -> MemoryKeyedStateBackend:
    made = backend(clock)
    made.restore(old.snapshot().tables())
    return made


def held(state: MemoryKeyedStateBackend) -> dict[Any, Any]:
    (expiring,) = state.time.states
    return expiring.spaces[None]  # type: ignore[attr-defined,no-any-return]


@pytest.mark.parametrize("kind", OPERATIONS)
def test_an_expired_value_may_be_returned_once(kind: str) -> None:
    clock = VirtualClock(0)
    config = StateTtlConfig.new_builder(TTL).return_expired_if_not_cleaned_up().build()
    state, none = backend(clock), {"list": [], "map": {}}.get(kind)
    view = getattr(state, _GETTERS[kind])(described(kind, config))
    call(kind, view, "write", 7)
    before = call(kind, view, "read", 0)
    assert before != none
    clock.advance_ms(10)
    assert call(kind, view, "read", 0) == before
    assert call(kind, view, "read", 0) == none
    assert not held(state)


_GETTERS = {
    "value": "get_state",
    "list": "get_list_state",
    "map": "get_map_state",
    "reducing": "get_reducing_state",
    "aggregating": "get_aggregating_state",
}


@pytest.mark.parametrize("kind", OPERATIONS)
@pytest.mark.parametrize("operation", ["write", "read"])
def test_a_stamp_never_goes_back(kind: str, operation: str) -> None:
    #  written at 20, then written or read at 15:   20 + 10 is when it goes, not 15 + 10
    clock = VirtualClock(0)
    builder = StateTtlConfig.new_builder(TTL).use_event_time().update_ttl_on_read_and_write()
    state = backend(clock)
    view = getattr(state, _GETTERS[kind])(described(kind, builder.build()))
    at = 20
    state.time.stamp_of = lambda: at
    call(kind, view, "write", 6)
    at = 15
    call(kind, view, operation, 6)
    at = 29
    shown = call(kind, view, "read", 0)
    assert shown in (6, 12, [6], [6, 6], {0: 6}), shown


def test_each_element_of_a_list_and_entry_of_a_map_has_its_own_time() -> None:
    clock = VirtualClock(0)
    state, config = backend(clock), StateTtlConfig.new_builder(TTL).build()
    items, entries = ListStateDescriptor("l"), MapStateDescriptor("m")
    for descriptor in (items, entries):
        descriptor.enable_time_to_live(config)
    listed, mapped = state.get_list_state(items), state.get_map_state(entries)
    for i in range(3):
        listed.add(i)
        mapped[i] = str(i)
        clock.advance_ms(4)
    assert list(listed) == [1, 2]
    assert dict(mapped.items()) == {1: "1", 2: "2"}
    assert (0 in mapped, 1 in mapped, len(mapped), mapped[0]) == (False, True, 2, None)


def test_what_comes_no_more_is_removed_in_the_background_a_little_at_a_time() -> None:
    clock = VirtualClock(0)
    state = backend(clock)
    view = state.get_state(values(StateTtlConfig.new_builder(TTL).build()))
    for key in range(100):
        state.current.key = key
        view.update(key)
    clock.advance_ms(9)
    state.time.begin(1000)
    assert len(held(state)) == 100
    clock.advance_ms(1)
    state.time.begin(1)
    assert len(held(state)) == 95
    state.time.begin(19)
    assert not held(state)


def test_a_large_cleanup_and_none() -> None:
    clock = VirtualClock(0)
    builder = StateTtlConfig.new_builder(TTL).disable_cleanup_in_background()
    for config, left in (
        (builder.build(), 100),
        (builder.cleanup_incrementally(50, True).build(), 50),
    ):
        state = backend(clock)
        view = state.get_state(values(config))
        for key in range(100):
            state.current.key = key
            view.update(key)
        clock.advance_ms(10)
        state.time.begin(1)
        assert len(held(state)) == left
        assert list(state.snapshot().tables()) == []


def test_processing_time_goes_on_while_nothing_runs() -> None:
    clock = VirtualClock(0)
    first = backend(clock)
    first.get_state(values(StateTtlConfig.new_builder(TTL).build())).update(1)
    clock.advance_ms(6)
    second = restored(first, clock)
    view = second.get_state(values(StateTtlConfig.new_builder(TTL).build()))
    assert view.value() == 1
    clock.advance_ms(4)
    assert view.value() is None


def test_a_state_without_time_to_live_gets_one_and_loses_it() -> None:
    clock = VirtualClock(0)
    config = StateTtlConfig.new_builder(TTL).build()
    first = backend(clock)
    first.get_state(values()).update(1)
    clock.advance_ms(50)
    second = restored(first, clock)  # counts from here
    view = second.get_state(values(config))
    clock.advance_ms(9)
    assert view.value() == 1
    third = restored(second, clock)  # lives for ever
    clock.advance_ms(1)
    assert view.value() is None
    assert third.get_state(values()).value() == 1


def test_stamps_of_one_time_are_refused_by_the_other() -> None:
    clock = VirtualClock(0)
    first = backend(clock)
    first.get_state(values(StateTtlConfig.new_builder(TTL).build())).update(1)
    second = restored(first, clock)
    with pytest.raises(StateError, match="'s' was stored with stamps of processing time"):
        second.get_state(values(StateTtlConfig.new_builder(TTL).use_event_time().build()))


def test_what_is_written_before_any_watermark_counts_from_the_first() -> None:
    clock = VirtualClock(0)
    config = StateTtlConfig.new_builder(TTL).use_event_time().build()
    first = backend(clock)
    first.get_state(values(config)).update(1)
    second = restored(first, clock)
    view = second.get_state(values(config))
    second.time.passed(1000)
    assert view.value() == 1
    second.time.passed(1009)
    assert view.value() == 1
    second.time.passed(1010)
    assert (view.value(), held(second)) == (None, {})


def test_the_watermark_outlives_a_restore() -> None:
    """Also where nothing is stored, and through an operator that does not ask for the state."""
    clock = VirtualClock(0)
    config = StateTtlConfig.new_builder(TTL).use_event_time().build()
    first = backend(clock)
    first.get_state(values(config))
    first.time.passed(100)
    second = restored(restored(first, clock), clock)
    second.time.stamp_of = lambda: 50
    view = second.get_state(values(config))
    view.update("late")
    second.time.stamp_of = lambda: 109
    assert view.value() == "late"
    second.time.stamp_of = lambda: 110
    assert view.value() is None


def test_the_watermark_goes_with_key_groups() -> None:
    clock = VirtualClock(0)
    config = StateTtlConfig.new_builder(TTL).use_event_time().build()
    halves = []
    for groups, watermark in ((KeyGroupRange(0, 3), 100), (KeyGroupRange(4, 7), 90)):
        one = MemoryKeyedStateBackend(groups, 8, clock)
        one.get_state(values(config))
        one.time.passed(watermark)
        halves += one.snapshot().tables()
    both = backend(clock)
    both.restore(halves)
    assert both.time.watermark == 90


def test_without_event_time_nothing_is_kept_of_it() -> None:
    state = backend(VirtualClock(0))
    state.get_state(values(StateTtlConfig.new_builder(TTL).build()))
    state.time.passed(100)
    assert list(state.snapshot().tables()) == []


def test_one_name_has_one_time_to_live() -> None:
    state = backend(VirtualClock(0))
    state.get_state(values(StateTtlConfig.new_builder(TTL).build()))
    state.get_state(values(StateTtlConfig.new_builder(10).build()))
    with pytest.raises(StateError, match="state 's' has the time to live"):
        state.get_state(values())


def test_a_declared_type_is_held_to() -> None:
    state = backend(VirtualClock(0))
    descriptor = ListStateDescriptor("l", elem_type_info=int)
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(TTL).build())
    items = state.get_list_state(descriptor)
    with pytest.raises(TypeMismatchError, match="cannot be 'x'"):
        items.add("x")
    assert list(items) == []


def test_a_disabled_time_to_live_is_none() -> None:
    builder = StateTtlConfig.new_builder(TTL)
    config = builder.set_update_type(StateTtlConfig.UpdateType.Disabled).build()
    assert not config.is_enabled()
    state = backend(VirtualClock(0))
    state.get_state(values(config))
    assert state.time.states == []


def test_the_builder_says_what_it_was_told() -> None:
    config = (
        StateTtlConfig.new_builder(Time.seconds(1))
        .update_ttl_on_read_and_write()
        .never_return_expired()
        .use_processing_time()
        .cleanup_full_snapshot()
        .cleanup_in_rocksdb_compact_filter(500)
        .set_ttl(Duration.of_seconds(2))
        .build()
    )
    cleanup = config.get_cleanup_strategies()
    incremental = cleanup.get_incremental_cleanup_strategy()
    assert incremental is not None
    compaction = cleanup.get_rocksdb_compact_filter_cleanup_strategy()
    assert compaction is not None
    assert config.get_ttl() == timedelta(seconds=2)
    assert config.get_update_type() is StateTtlConfig.UpdateType.OnReadAndWrite
    assert config.get_state_visibility() is StateTtlConfig.StateVisibility.NeverReturnExpired
    time = config.get_ttl_time_characteristic()
    assert time is StateTtlConfig.TtlTimeCharacteristic.ProcessingTime
    assert (config.is_enabled(), cleanup.in_full_snapshot()) == (True, True)
    assert cleanup.is_cleanup_in_background()
    assert (incremental.get_cleanup_size(), incremental.run_cleanup_for_every_record()) == (
        5,
        False,
    )
    assert compaction.get_query_time_after_num_entries() == 500
    off = StateTtlConfig.new_builder(1).disable_cleanup_in_background().build()
    assert off.get_cleanup_strategies().get_incremental_cleanup_strategy() is None


@pytest.mark.parametrize("ttl", [0, -1, timedelta(0), None, "1s", True])
def test_a_time_to_live_is_a_duration(ttl: Any) -> None:
    with pytest.raises(ConfigurationError, match="at least 1 ms"):
        StateTtlConfig.new_builder(ttl).build()
