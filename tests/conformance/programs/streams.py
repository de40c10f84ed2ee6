"""Keys, partitions, side outputs, sources and sinks, and what functions are told about the job."""

from __future__ import annotations

import tempfile
from pathlib import Path

from strom.common import Configuration, Encoder, Row, Types, WatermarkStrategy
from strom.common.time import Time
from strom.datastream import (
    AsyncDataStream,
    AsyncFunction,
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    OutputTag,
    Partitioner,
    ProcessFunction,
)
from strom.datastream.async_retry_strategies import FixedDelayRetryStrategy
from strom.datastream.connectors.file_system import (
    FileSink,
    FileSource,
    OutputFileConfig,
    StreamFormat,
)
from strom.datastream.connectors.number_seq import NumberSequenceSource

PAIR = Types.TUPLE([Types.STRING(), Types.INT()])
DATA = [("a", 1), ("b", 2), ("c", 3), ("a", 4)]
ROW = Types.ROW_NAMED(["k", "n"], [Types.STRING(), Types.INT()])


def _pairs(env):
    return env.from_collection(DATA, PAIR)


def functions_of_one_record(env):
    return {
        "map": _pairs(env).map(lambda v: v),
        "flat_map": _pairs(env).flat_map(lambda v: [v] * (v[1] % 3)),
        "flat_map of nothing": _pairs(env).flat_map(lambda v: [] if v[1] % 2 else (v[1],)),
        "filter": _pairs(env).filter(lambda v: v[1] > 1),
    }


class _Told(MapFunction):
    def open(self, runtime_context):
        self.context = runtime_context
        self.counter = runtime_context.get_metrics_group().counter("seen")

    def map(self, value):
        self.counter.inc()
        return (
            self.context.get_number_of_parallel_subtasks(),
            self.context.get_index_of_this_subtask(),
            self.context.get_attempt_number(),
            self.context.get_job_parameter("mine", "default"),
            self.context.get_job_parameter("not there", "default"),
        )


class _Open(FilterFunction, FlatMapFunction):
    def open(self, runtime_context):
        self.least = 2

    def filter(self, value):
        return value[1] >= self.least

    def flat_map(self, value):
        yield self.least


def what_functions_are_told(env):
    env.get_config().set_global_job_parameters({"mine": "value"})
    return {
        "map": _pairs(env).map(_Told()),
        "filter": _pairs(env).filter(_Open()),
        "flat_map": _pairs(env).flat_map(_Open()),
    }


SIDE = OutputTag("side", Types.STRING())
KEYED = OutputTag("keyed", Types.STRING())
OTHER = OutputTag("other", Types.ROW_NAMED(["k", "n"], [Types.STRING(), Types.INT()]))


class _Sides(ProcessFunction):
    def process_element(self, value, ctx):
        if value[1] != 2:
            yield value
        yield SIDE, value[0]
        yield OTHER, Row(k=value[0], n=value[1])


class _KeyedSides(KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield value
        yield KEYED, ctx.get_current_key() + "!"


def side_outputs(env):
    keyed = _pairs(env).key_by(lambda v: v[0], key_type=Types.STRING()).process(_KeyedSides())
    main = _pairs(env).process(_Sides(), output_type=PAIR)
    return {
        "main": main,
        "side": main.get_side_output(SIDE),
        "other": main.get_side_output(OTHER),
        "keyed": keyed.get_side_output(KEYED).map(lambda s: s * 2),
    }


class _ByFirst(KeySelector):
    def get_key(self, value):
        return value[0]


class _Keys(KeyedProcessFunction):
    def process_element(self, value, ctx):
        key = ctx.get_current_key()
        yield type(key).__name__, repr(key), value


def keys(env):
    return {
        "text": _pairs(env).key_by(lambda v: v[0], key_type=Types.STRING()).process(_Keys()),
        "selector": _pairs(env).key_by(_ByFirst(), Types.STRING()).process(_Keys()),
        "undeclared": _pairs(env).key_by(lambda v: v[1] % 2).process(_Keys()),
        "tuple": _pairs(env).key_by(lambda v: v, key_type=PAIR).process(_Keys()),
        "row": _pairs(env).key_by(lambda v: Row(k=v[0], n=v[1]), key_type=ROW).process(_Keys()),
        "undeclared tuple": _pairs(env).key_by(lambda v: (v[0], True)).process(_Keys()),
        "flag": _pairs(env).key_by(lambda v: v[1] > 1, Types.BOOLEAN()).process(_Keys()),
        "none": _pairs(env).key_by(lambda v: None).process(_Keys()),
        "again": _pairs(env)
        .key_by(lambda v: v[0], Types.STRING())
        .key_by(lambda v: v[1], Types.INT())
        .process(_Keys()),
    }


def projections(env):
    return {"both": _pairs(env).project(1, 0), "one": _pairs(env).project(1)}


class _Index(MapFunction):
    def open(self, runtime_context):
        self.index = runtime_context.get_index_of_this_subtask()

    def map(self, value):
        return self.index, value


class _ByNumber(Partitioner):
    def partition(self, key, num_partitions):
        return key % num_partitions


def _written(env, stream):
    """What an executed job writes: PyFlink knows partitions only there."""
    folder = Path(tempfile.mkdtemp())
    sink = FileSink.for_row_format(str(folder), Encoder.simple_string_encoder()).build()
    stream.map(repr, Types.STRING()).sink_to(sink)
    env.execute()
    found = _files(folder)
    return sorted(line for path in found for line in path.read_text().splitlines())


def _files(folder):
    """But for what is in folders that are hidden, as readers of such folders have it."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [
        p for p in files if not any(d.startswith(".") for d in p.relative_to(folder).parts[:-1])
    ]


def partitions(env):
    env.set_parallelism(2)

    def stream():
        return _pairs(env).rebalance().map(lambda v: v, output_type=PAIR)

    return [
        _written(env, stream().partition_custom(_ByNumber(), lambda v: v[1]).map(_Index())),
        _written(env, stream().partition_custom(lambda k, n: 1, lambda v: v[1]).map(_Index())),
        _written(env, stream().broadcast().map(_Index())),
    ]


def redistributed(env):
    env.set_parallelism(2)

    def stream():
        return _pairs(env).rebalance().map(lambda v: v, output_type=PAIR)

    every = stream().rebalance().map(lambda v: v, output_type=PAIR)
    every = every.rescale().map(lambda v: v, output_type=PAIR)
    every = every.shuffle().map(lambda v: v, output_type=PAIR)
    return {
        "every": every.forward().map(lambda v: v),
        "keyed": stream().key_by(lambda v: v[0], Types.STRING()).sum(1).map(lambda v: v[0]),
    }


def number_sequences(env):
    source = NumberSequenceSource(1, 5)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers", Types.LONG())
    return stream.map(lambda n: n * n, output_type=Types.LONG())


def lines_of_files(env):
    folder = Path(tempfile.mkdtemp())
    (folder / "one.txt").write_text("first\n\nthird with żółw\n")
    (folder / "two.txt").write_text("no newline at the end")
    source = (
        FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(folder))
        .process_static_file_set()
        .build()
    )
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "lines")


def files_written(env):
    folder = Path(tempfile.mkdtemp())
    config = OutputFileConfig.builder().with_part_prefix("p").with_part_suffix(".txt").build()
    sink = (
        FileSink.for_row_format(str(folder), Encoder.simple_string_encoder())
        .with_output_file_config(config)
        .build()
    )
    env.from_collection(["x", "y z", "ż"], Types.STRING()).sink_to(sink)
    env.execute()
    found = _files(folder)
    lines = [line for path in found for line in path.read_text(encoding="utf-8").splitlines()]
    names = [(path.name[:2], path.suffix) for path in found]
    return [sorted(lines), sorted(set(names)), all(not p.name.startswith(".") for p in found)]


def collecting(env):
    with _pairs(env).execute_and_collect() as results:
        first = next(results)
        others = list(results)
    limited = _pairs(env).execute_and_collect("a name", 2)
    return [first, others, type(limited).__name__, limited]


def settings(env):
    given = Configuration()
    given.set_string("parallelism.default", "3")
    given.set_integer("mine", 5)
    env.configure(given)
    before = env.get_parallelism()
    env.set_parallelism(2).set_max_parallelism(64).set_buffer_timeout(10)
    env.enable_checkpointing(60_000)
    checkpoints = env.get_checkpoint_config()
    return [
        before,
        env.get_parallelism(),
        env.get_max_parallelism(),
        env.get_buffer_timeout(),
        env.get_checkpoint_interval(),
        env.is_chaining_enabled(),
        env.get_config().get_auto_watermark_interval(),
        checkpoints.get_checkpoint_timeout(),
        checkpoints.get_min_pause_between_checkpoints(),
        checkpoints.get_checkpointing_mode().name,
        given.get_integer("mine", 0),
        given.get_string("absent", "given"),
        sorted(given.to_dict().items()),
    ]


class _Ask(AsyncFunction):
    def open(self, runtime_context):
        self.asked = set()

    async def async_invoke(self, value):
        import asyncio

        await asyncio.sleep(0.02 * (3 - value[1] % 3))
        if value[1] == 2 and value not in self.asked:
            self.asked.add(value)
            raise ConnectionError("again")
        if value[1] == 3:
            await asyncio.sleep(3600)
        return [value[0], value[0]] if value[1] == 4 else [value[0]]

    def timeout(self, value):
        return ["late"]


def asynchronous_requests(env):
    retry = FixedDelayRetryStrategy(3, 1, None, lambda error: isinstance(error, ConnectionError))
    pairs = [one for one in DATA if one[1] != 2]
    return {
        "ordered": AsyncDataStream.ordered_wait(
            env.from_collection(pairs, PAIR), _Ask(), Time.milliseconds(500), 10, Types.STRING()
        ),
        "again": AsyncDataStream.ordered_wait_with_retry(
            _pairs(env), _Ask(), Time.milliseconds(500), retry, 10, Types.STRING()
        ),
    }


def names_of_packages(env):
    from strom.datastream.connectors import NumberSequenceSource, Sink, Source
    from strom.datastream.functions import TimerService
    from strom.metrics import Counter, Distribution, Meter, MetricGroup

    found = (NumberSequenceSource, Sink, Source, TimerService, Counter, Distribution, Meter)
    return [one.__name__ for one in (*found, MetricGroup)]


ANY_ORDER = {"redistributed", "lines_of_files", "number_sequences"}
