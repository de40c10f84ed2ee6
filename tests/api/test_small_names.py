"""Names of PyFlink that programs seldom call, and what they give."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from strom import (
    AggregateFunction,
    AggregatingStateDescriptor,
    CheckpointedFunction,
    CloseableIterator,
    Duration,
    EventTimeSessionWindows,
    ExponentialBackoffDelayRetryStrategy,
    ExternalizedCheckpointRetention,
    FileSystemCheckpointStorage,
    FixedDelayRetryStrategy,
    FunctionInitializationContext,
    GlobalWindow,
    GlobalWindows,
    JobConfig,
    JobManagerCheckpointStorage,
    MapFunction,
    MapStateDescriptor,
    NeverTrigger,
    NoRetryStrategy,
    ReducingStateDescriptor,
    RuntimeContext,
    SessionWindowTimeGapExtractor,
    StreamExecutionEnvironment,
    TimeWindow,
    Trigger,
    TriggerResult,
    Types,
    WatermarkStrategy,
    WindowAssigner,
    WindowFunction,
)
from strom.common import Encoder, SimpleStringSchema
from strom.common.serialization import BulkWriterFactory, DeserializationSchema
from strom.common.typeinfo import DateTypeInfo, TimestampTypeInfo, TimeTypeInfo
from strom.datastream import (
    AllWindowedStream,
    AsyncRetryPredicate,
    BaseBroadcastProcessFunction,
    BroadcastProcessFunction,
    BroadcastState,
    CachedDataStream,
    CountTumblingWindowAssigner,
    DataStreamSink,
    HashMapStateBackend,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    OperatorStateStore,
    ReadOnlyBroadcastState,
    StateBackend,
    TimerService,
)
from strom.datastream.connectors.file_system import FileSink
from strom.datastream.formats.parquet import ParquetBulkWriters
from strom.metrics import MetricGroup


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment(JobConfig())


def results(stream: Any) -> list[Any]:
    with stream.execute_and_collect() as found:
        return sorted(found)


# --- values --------------------------------------------------------------------------------------


def test_durations() -> None:
    assert Duration.of_minutes(2) == Duration.of_seconds(120) == timedelta(minutes=2)
    assert Duration.of_hours(3) == Duration.of_minutes(180) == timedelta(hours=3)
    assert Duration.of_days(2) == Duration.of_hours(48) == timedelta(days=2)
    assert Duration.of_hours(1).to_milliseconds() == 3_600_000


def test_types_of_times() -> None:
    assert isinstance(Types.SQL_DATE(), DateTypeInfo)
    assert isinstance(Types.SQL_TIME(), TimeTypeInfo)
    assert isinstance(Types.SQL_TIMESTAMP(), TimestampTypeInfo)
    assert DateTypeInfo() == Types.SQL_DATE() != TimeTypeInfo()
    assert TimestampTypeInfo() == Types.SQL_TIMESTAMP() != DateTypeInfo()


def test_predicates_of_retries() -> None:
    def empty(found: list[Any]) -> bool:
        return not found

    def refused(error: Exception) -> bool:
        return isinstance(error, ConnectionError)

    made: list[Any] = [
        FixedDelayRetryStrategy(3, 10, empty, refused),
        ExponentialBackoffDelayRetryStrategy(3, 10, 100, 2.0, empty, refused),
    ]
    for strategy in made:
        predicate = strategy.get_retry_predicate()
        assert isinstance(predicate, AsyncRetryPredicate)
        assert (predicate.result_predicate(), predicate.exception_predicate()) == (empty, refused)
    none = NoRetryStrategy().get_retry_predicate()
    assert none.result_predicate() is none.exception_predicate() is None


def test_functions_of_state_descriptors() -> None:
    class Count(AggregateFunction):
        def create_accumulator(self) -> int:
            return 0

        def add(self, value: Any, accumulator: int) -> int:
            return accumulator + 1

        def get_result(self, accumulator: int) -> int:
            return accumulator

        def merge(self, a: int, b: int) -> int:
            return a + b

    function = Count()
    described = AggregatingStateDescriptor("n", function, Types.LONG())
    assert described.get_agg_function() is function
    assert ReducingStateDescriptor("m", max, Types.LONG()).get_reduce_function() is max


def test_settings_of_checkpoints(env: StreamExecutionEnvironment) -> None:
    assert FileSystemCheckpointStorage.MAX_FILE_STATE_THRESHOLD == 1024 * 1024
    assert JobManagerCheckpointStorage.DEFAULT_MAX_STATE_SIZE == 5 * 1024 * 1024
    config = env.get_checkpoint_config().set_alignment_timeout(Duration.of_minutes(1))
    assert config.get_aligned_checkpoint_timeout() == timedelta(minutes=1)
    assert env.is_chaining_of_operators_with_different_max_parallelism_enabled() is False
    assert isinstance(env.get_state_backend(), StateBackend)
    assert isinstance(HashMapStateBackend(), StateBackend)


def test_names_of_retentions() -> None:
    assert {one.name: one.value for one in ExternalizedCheckpointRetention} == {
        "DELETE_ON_CANCELLATION": 0,
        "RETAIN_ON_CANCELLATION": 1,
        "NO_EXTERNALIZED_CHECKPOINTS": 2,
    }


# --- windows -------------------------------------------------------------------------------------


def test_windows_of_time() -> None:
    window = TimeWindow(10, 20)
    for other, meets in ((TimeWindow(20, 30), True), (TimeWindow(21, 30), False)):
        assert window.intersects(other) is other.intersects(window) is meets
    assert TimeWindow(0, 5).intersects(window) is False
    assert window.cover(TimeWindow(15, 40)) == TimeWindow(10, 40)
    assert window.cover(TimeWindow(0, 5)) == TimeWindow(0, 20)
    start = TimeWindow.get_window_start_with_offset
    assert [start(time, 3, 10) for time in (2, 3, 12, 13, -8)] == [-7, 3, 3, 13, -17]
    assert isinstance(GlobalWindow.get(), GlobalWindow)
    assert GlobalWindow() == GlobalWindow.get()


def test_results_of_triggers() -> None:
    told = {one.name: (one.is_fire(), one.is_purge()) for one in TriggerResult}
    assert told == {
        "CONTINUE": (False, False),
        "FIRE": (True, False),
        "PURGE": (False, True),
        "FIRE_AND_PURGE": (True, True),
    }


class Spans(WindowFunction):
    def apply(self, key: str, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
        return [(key, window.start, window.end, len(list(inputs)))]


class Sizes(WindowFunction):
    def apply(self, key: str, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
        return [len(list(inputs))]


def timed(env: StreamExecutionEnvironment, *times: int) -> Any:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda record, _: record[1]
    )
    stream = env.from_collection([("a", time) for time in times])
    return stream.assign_timestamps_and_watermarks(strategy).key_by(lambda record: record[0])


def test_a_trigger_that_never_fires(env: StreamExecutionEnvironment) -> None:
    assert results(timed(env, 1, 2).window(GlobalWindows.create()).apply(Sizes())) == []
    never = EventTimeSessionWindows.with_gap(5)
    assert results(timed(env, 1, 2).window(never).trigger(NeverTrigger()).apply(Sizes())) == []
    assert results(timed(env, 1, 2).window(never).apply(Sizes())) == [2]


class Gap(SessionWindowTimeGapExtractor):
    """Even times have long gaps."""

    def extract(self, element: Any) -> int:
        return 100 if element[1] % 2 == 0 else 5


def test_gaps_of_an_extractor(env: StreamExecutionEnvironment) -> None:
    sessions = EventTimeSessionWindows.with_dynamic_gap(Gap())
    found = results(timed(env, 1, 10, 90, 301).window(sessions).apply(Spans()))
    assert found == [("a", 1, 6, 1), ("a", 10, 190, 2), ("a", 301, 306, 1)]


class Third(Trigger):
    """Fires with every third record, of sessions that became one, too: it counts in state."""

    COUNT = ReducingStateDescriptor("count", lambda a, b: a + b, Types.LONG())

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> TriggerResult:
        assert ctx.get_current_processing_time() > 0
        count = ctx.get_partitioned_state(self.COUNT)
        count.add(1)
        if count.get() < 3:
            return TriggerResult.CONTINUE
        count.clear()
        return TriggerResult.FIRE

    def on_processing_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_merge(self, window: Any, ctx: Trigger.OnMergeContext) -> None:
        ctx.merge_partitioned_state(self.COUNT)

    def clear(self, window: Any, ctx: Any) -> None:
        ctx.get_partitioned_state(self.COUNT).clear()


def test_state_of_a_trigger_is_merged_with_its_windows(env: StreamExecutionEnvironment) -> None:
    #   time     0       8       16      26          100     110
    #            [1 ...  2 ...   3 fires ]           [1      ]
    sessions = EventTimeSessionWindows.with_gap(10)
    found = results(timed(env, 0, 8, 16, 100).window(sessions).trigger(Third()).apply(Spans()))
    assert found == [("a", 0, 26, 3)]


class Clocked(WindowAssigner):
    def assign_windows(self, element: Any, timestamp: int, context: Any) -> list[TimeWindow]:
        assert context.get_current_processing_time() > 1_600_000_000_000
        return [TimeWindow(0, 1000)]

    def get_default_trigger(self, env: Any = None) -> Any:
        return Third()

    def is_event_time(self) -> bool:
        return True


def test_an_assigner_is_told_the_time(env: StreamExecutionEnvironment) -> None:
    assert results(timed(env, 1, 2, 3).window(Clocked()).apply(Sizes())) == [3]


# --- functions -----------------------------------------------------------------------------------


class Placed(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.context = runtime_context
        self.group = runtime_context.get_metrics_group()

    def map(self, value: Any) -> Any:
        assert isinstance(self.group, MetricGroup)
        told = self.context
        return (
            told.get_task_name_with_subtasks(),
            told.get_index_of_this_subtask(),
            told.get_number_of_parallel_subtasks(),
            told.get_max_number_of_parallel_subtasks(),
        )


def test_what_a_function_is_told_of_its_place(env: StreamExecutionEnvironment) -> None:
    numbers = env.from_collection([0, 1]).partition_custom(lambda key, n: key % n, lambda r: r)
    stream = numbers.map(Placed()).name("placed")
    stream = stream.set_parallelism(2).set_max_parallelism(16)
    assert results(stream) == [("placed (1/2)", 0, 2, 16), ("placed (2/2)", 1, 2, 16)]


RULES = MapStateDescriptor("rules", Types.STRING(), Types.STRING())


def test_kinds_of_broadcast_state(env: StreamExecutionEnvironment) -> None:
    class Asked(BroadcastProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Any:
            state = ctx.get_broadcast_state(RULES)
            yield isinstance(state, ReadOnlyBroadcastState), isinstance(state, BroadcastState)

        def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
            yield isinstance(ctx.get_broadcast_state(RULES), BroadcastState), True

    rules = env.from_collection(["x"]).broadcast(RULES)
    found = results(env.from_collection([1]).connect(rules).process(Asked()))
    assert found == [(True, False), (True, True)]
    for kind in (BroadcastProcessFunction, KeyedBroadcastProcessFunction):
        assert issubclass(kind, BaseBroadcastProcessFunction)


class Stored(MapFunction, CheckpointedFunction):
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store = context.get_operator_state_store()
        self.told = (
            isinstance(context, FunctionInitializationContext),
            isinstance(store, OperatorStateStore),
        )

    def snapshot_state(self, context: Any) -> None:
        pass

    def map(self, value: Any) -> Any:
        return self.told


def test_a_store_of_operator_state(env: StreamExecutionEnvironment) -> None:
    assert results(env.from_collection([1]).map(Stored())) == [(True, True)]


def test_a_timer_service(env: StreamExecutionEnvironment) -> None:
    class Asked(KeyedProcessFunction):
        def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
            yield isinstance(ctx.timer_service(), TimerService)

    assert results(env.from_collection([1]).key_by(abs).process(Asked())) == [True]


def test_what_methods_of_streams_give(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    numbers = env.from_collection([1, 2, 3])
    windows = AllWindowedStream(numbers, CountTumblingWindowAssigner.of(3))
    assert isinstance(numbers.window_all(CountTumblingWindowAssigner.of(3)), AllWindowedStream)
    assert results(windows.reduce(lambda a, b: a + b)) == [6]
    cached = env.from_collection([1, 2]).cache()
    assert isinstance(cached, CachedDataStream)
    with cached.execute_and_collect() as found:
        assert isinstance(found, CloseableIterator)
        assert sorted(found) == [1, 2]
    sink = FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder()).build()
    assert isinstance(env.from_collection(["a"]).sink_to(sink), DataStreamSink)
    assert isinstance(SimpleStringSchema(), DeserializationSchema)
    row = Types.ROW_NAMED(["a"], [Types.INT()])
    assert isinstance(ParquetBulkWriters.for_row_type(row), BulkWriterFactory)
