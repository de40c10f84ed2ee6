"""What `explain()` says of operators: what they run as, and why not faster; one program each."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import polars as pl
import pytest
from explained_kit import ROWS, by_function, by_k, objects, records, said
from strom import (
    ContinuousEventTimeTrigger,
    CountTrigger,
    DiscardSink,
    EventTimeSessionWindows,
    EventTimeTrigger,
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
    ProcessingTimeTrigger,
    PurgingTrigger,
    SlidingEventTimeWindows,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    Types,
    WatermarkStrategy,
    count,
    count_distinct,
    first,
    max_,
)
from strom.connectors.files.source import FileSource
from strom.core.config import JobConfig

KINDS = Types.ROW_NAMED(["k", "n"], [Types.STRING(), Types.LONG()])
WINDOW = TumblingEventTimeWindows.of(1000)

ONE = {"n": count()}


class Passes(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value


class PassesByKey(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value


class Early(EventTimeTrigger):
    """A user's."""


class Halves(TumblingEventTimeWindows):
    """A user's."""


def windows(stream: Any, assigner: Any = WINDOW, trigger: Any = None, lateness: int = 0) -> Any:
    found = stream.window(assigner)
    if trigger is not None:
        found = found.trigger(trigger)
    return found.allowed_lateness(lateness)


PYTHON_KEY = "not faster: the key is a Python function: name a column or an expression for kernels"
FIRST_BATCH = (
    "the first batch decides: kernels if it has columns, and numbers in them; rows else (declare "
    "output_type for columns)"
)
BY_ROWS = "a batch with which columns would differ from Python goes by rows"
NOT_COMBINED = "not combined ahead of the exchange: "
TABLE: dict[str, tuple[Callable[[Any], Any], list[str]]] = {
    "map": (
        lambda env: records(env).map(lambda row: row),
        [
            "rows: a Python function of each record",
            "not faster: the function is not compiled to columns: it returns the record itself; "
            "select() or with_columns() with expressions, or map_batches(), run on columns",
        ],
    ),
    "map compiled": (
        lambda env: records(env).map(lambda row: (row.k.upper(), row.n * 2 if row.x else None)),
        [
            "batches: compiled to columns: (k.upper(), n * 2) if x else (k.upper(), None)",
            BY_ROWS,
        ],
    ),
    "map that calls": (
        lambda env: records(env).map(lambda row: sorted(row.k)),
        [
            "rows: a Python function of each record",
            "not faster: the function is not compiled to columns: it calls sorted; select() or "
            "with_columns() with expressions, or map_batches(), run on columns",
        ],
    ),
    "map of objects": (
        lambda env: objects(env).map(lambda row: row.n),
        [
            "batches or rows: a Python function",
            "the first batch decides: on columns if it has columns, and the function gives the "
            "same on them; rows else (declare output_type for columns)",
        ],
    ),
    "flat_map": (
        lambda env: records(env).flat_map(lambda row: [row]),
        [
            "rows: a Python function of each record",
            "not faster: the function is Python: map_batches() runs on columns",
        ],
    ),
    "filter": (
        lambda env: records(env).filter(lambda row: row.n > 0),
        ["batches: compiled to columns: n > 0", BY_ROWS],
    ),
    "filter by expression": (
        lambda env: records(env).filter(pl.col("n") > 0),
        ["batches: polars expressions"],
    ),
    "select names": (lambda env: records(env).select("n"), ["batches: columns by name"]),
    "expression on objects": (
        lambda env: objects(env).select("n"),
        [
            "batches: columns by name",
            "its columns are not known: Python objects are turned into columns batch by batch "
            "(declare output_type where they are made)",
        ],
    ),
    "map_batches": (
        lambda env: records(env).map_batches(lambda frame: frame, batch_format="polars"),
        ["batches: a Python function of each batch, as polars"],
    ),
    "process": (
        lambda env: records(env).process(Passes()),
        [
            "rows: a Python function of each record",
            "not faster: the ProcessFunction is Python: map_batches() runs on columns",
        ],
    ),
    "keyed process": (
        lambda env: by_k(env).process(PassesByKey()),
        [
            "rows: a Python function of each record, with the state of its key",
            "not faster: the KeyedProcessFunction is Python: windows, aggregate(), top_n(), "
            "deduplicate() and joins have kernels",
        ],
    ),
    "reduce": (
        lambda env: by_k(env).reduce(lambda a, b: a),
        [
            "rows: rolling reduce row by row",
            "not faster: the reduce function is Python: sum, min, max, min_by, max_by and "
            "aggregate() have kernels",
        ],
    ),
    "rolling": (lambda env: by_k(env).sum("n"), ["kernel: rolling aggregate on columns"]),
    "rolling over declared columns": (
        lambda env: records(env).map(lambda r: (r.k, r.n), output_type=KINDS).key_by("k").sum("n"),
        ["kernel: rolling aggregate on columns"],
    ),
    "rolling over text": (
        lambda env: by_k(env).max("k"),
        [
            "rows: rolling aggregate row by row",
            "not faster: 'k' holds values of type string: kernels take numbers",
        ],
    ),
    "rolling whole records": (
        lambda env: by_k(env).max_by("n"),
        [
            "rows: rolling aggregate row by row",
            "not faster: 'k' holds values of type string: kernels take numbers",
        ],
    ),
    "rolling over objects": (
        lambda env: objects(env).key_by("k").sum("n"),
        ["kernel or rows: rolling aggregate", FIRST_BATCH],
    ),
    "rolling by a function": (
        lambda env: by_function(env).sum("n"),
        ["rows: rolling aggregate row by row", PYTHON_KEY],
    ),
    "window": (lambda env: windows(by_k(env)).aggregate(**ONE), ["kernel: sliced windows"]),
    "window over objects": (
        lambda env: windows(objects(env).key_by("k")).aggregate(**ONE),
        [
            "kernel: sliced windows",
            "its columns are not known: Python objects are turned into columns batch by batch "
            "(declare output_type where they are made)",
        ],
    ),
    "window by a function": (
        lambda env: windows(by_function(env)).aggregate(**ONE),
        [
            "kernel: sliced windows",
            "the key is a Python function, compiled to columns: k",
            "not combined ahead of the exchange: the key is a Python function: name a column or an "
            "expression",
        ],
    ),
    "window reduced by a function": (
        lambda env: windows(by_k(env)).reduce(lambda a, b: a),
        [
            "rows: windows row by row",
            "not faster: the reduce function is Python: aggregate(name=count(), ...), min_by, "
            "max_by and top_n have kernels",
        ],
    ),
    "a user's trigger": (
        lambda env: windows(by_k(env), trigger=Early()).aggregate(**ONE),
        [
            "rows: windows row by row",
            "not faster: the trigger Early is Python: built-in triggers have kernels",
        ],
    ),
    "a user's trigger that purges": (
        lambda env: windows(by_k(env), trigger=PurgingTrigger(Early())).aggregate(**ONE),
        [
            "rows: windows row by row",
            "not faster: the trigger Early is Python: built-in triggers have kernels",
        ],
    ),
    "a user's assigner": (
        lambda env: windows(by_k(env), Halves.of(1000)).aggregate(**ONE),
        [
            "rows: windows row by row",
            "not faster: the window assigner Halves is Python: tumbling, sliding, cumulating, "
            "session and count windows have kernels",
        ],
    ),
    "a trigger without kernels": (
        lambda env: windows(by_k(env), trigger=ProcessingTimeTrigger()).aggregate(**ONE),
        [
            "rows: windows row by row",
            "not faster: ProcessingTimeTrigger() over TumblingEventTimeWindows has no kernels",
        ],
    ),
    "windows that count": (
        lambda env: windows(by_k(env), trigger=CountTrigger(3)).aggregate(**ONE),
        [
            "kernel: windows in panes",
            NOT_COMBINED + "it takes windows that slices of event time make up, and that fire at "
            "their end",
        ],
    ),
    "windows that tick": (
        lambda env: windows(by_k(env), trigger=ContinuousEventTimeTrigger(100)).aggregate(**ONE),
        [
            "kernel: sliced windows that fire every 100 ms",
            NOT_COMBINED + "it takes windows that slices of event time make up, and that fire at "
            "their end",
        ],
    ),
    "windows by count": (
        lambda env: by_k(env).count_window(3).aggregate(**ONE),
        [
            "kernel: windows by count",
            NOT_COMBINED + "it takes windows that slices of event time make up, and that fire at "
            "their end",
        ],
    ),
    "sessions": (
        lambda env: windows(
            by_k(env), EventTimeSessionWindows.with_dynamic_gap(lambda row: 5)
        ).aggregate(**ONE),
        [
            "kernel: session windows",
            "the session gap is a Python function, called record by record: name a column or an "
            "expression",
            NOT_COMBINED + "it takes windows that slices of event time make up, and that fire at "
            "their end",
        ],
    ),
    "lateness": (
        lambda env: windows(by_k(env), lateness=5).aggregate(**ONE),
        [
            "kernel: sliced windows",
            NOT_COMBINED + "with allowed lateness, late records make windows fire again",
        ],
    ),
    "late records": (
        lambda env: windows(by_k(env)).side_output_late_data(OutputTag("late")).aggregate(**ONE),
        ["kernel: sliced windows", NOT_COMBINED + "late records go to a side output"],
    ),
    "gaps": (
        lambda env: windows(by_k(env), SlidingEventTimeWindows.of(5, 9)).aggregate(**ONE),
        ["kernel: sliced windows", NOT_COMBINED + "there are gaps between the windows"],
    ),
    "order": (
        lambda env: windows(by_k(env)).aggregate(n=count(), f=first("n")),
        [
            "kernel: sliced windows",
            NOT_COMBINED + "first cannot be told from partial aggregates",
        ],
    ),
    "top-n": (
        lambda env: windows(by_k(env)).top_n(2, "n"),
        ["kernel: sliced windows", NOT_COMBINED + "top_n needs the records"],
    ),
    "running aggregates that live for a time": (
        lambda env: by_k(env).aggregate(**ONE, ttl=timedelta(hours=1)),
        [
            "kernel: running aggregates",
            NOT_COMBINED + "with a time to live, each record's time counts",
        ],
    ),
    "running aggregates in order": (
        lambda env: by_k(env).aggregate(f=first("n"), d=count_distinct("n")),
        [
            "kernel: running aggregates",
            NOT_COMBINED + "first cannot be told from partial aggregates",
        ],
    ),
    "a union": (
        lambda env: windows(records(env).union(records(env)).key_by("k"), lateness=5).aggregate(
            **ONE
        ),
        [
            "kernel: sliced windows",
            NOT_COMBINED + "with allowed lateness, late records make windows fire again",
        ],
    ),
    "an end of the chain": (
        lambda env: windows(
            records(env).select("k", "n").disable_chaining().name("alone").key_by("k")
        ).aggregate(**ONE),
        ["kernel: sliced windows", NOT_COMBINED + "nothing may be chained to 'alone'"],
    ),
    "a kept partition": (
        lambda env: windows(by_k(env)).aggregate(**ONE).key_by("k").aggregate(m=count()),
        ["kernel: running aggregates", "no exchange: partitioned by k already"],
    ),
    "another key": (
        lambda env: windows(by_k(env)).aggregate(**ONE).key_by("n").aggregate(m=count()),
        ["kernel: running aggregates", "partitioned anew: by n, and by k before"],
    ),
    "another parallelism": (
        lambda env: (
            windows(by_k(env))
            .aggregate(**ONE)
            .name("w")
            .key_by("k")
            .aggregate(m=count())
            .set_parallelism(3)
        ),
        ["kernel: running aggregates", "partitioned anew: 'w' has parallelism 2"],
    ),
    "a key that may have changed": (
        lambda env: (
            windows(by_k(env))
            .aggregate(**ONE)
            .map(lambda row: row, output_type=KINDS)
            .name("m")
            .key_by("k")
            .aggregate(m=count())
        ),
        ["kernel: running aggregates", "partitioned anew: 'm' may change k"],
    ),
    "a key that was a function": (
        lambda env: (
            windows(by_function(env)).aggregate(**ONE).name("w").key_by("key").aggregate(m=count())
        ),
        [
            "kernel: running aggregates",
            "partitioned anew: the output of 'w' need not have its key in the same columns",
            "its columns are not known: Python objects are turned into columns batch by batch "
            "(declare output_type where they are made)",
        ],
    ),
    "event times of a function": (
        lambda env: records(env).assign_timestamps_and_watermarks(
            WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
                lambda row, at: row.ts
            )
        ),
        [
            "rows: event times and watermarks",
            "not faster: the timestamp assigner is a Python function of each record: name a "
            "column or an expression",
        ],
    ),
    "event times of a column": (
        lambda env: records(env).assign_timestamps_and_watermarks(
            WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("ts")
        ),
        ["batches: event times and watermarks"],
    ),
    "source": (lambda env: env.from_collection(ROWS), ["batches: source"]),
    "interval join": (
        lambda env: by_k(env).interval_join(by_k(env), -5, 5),
        ["kernel: interval join"],
    ),
    "tables": (lambda env: by_k(env).top_n(1, "n"), ["kernel: top-n table"]),
}


@pytest.mark.parametrize("reason", TABLE)
def test_each_reason(reason: str) -> None:
    build, expected = TABLE[reason]
    assert said(build) == expected


def test_switches_that_are_off_are_named() -> None:
    def build(env: Any) -> Any:
        return windows(by_k(env)).aggregate(**ONE)

    off = "local_combining is off in the job's configuration"
    assert said(build, local_combining=False) == ["kernel: sliced windows", NOT_COMBINED + off]
    unchained = NOT_COMBINED + "operators are not chained"
    assert said(build, chaining=False) == ["kernel: sliced windows", unchained]


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (
            lambda env: windows(by_k(env)).aggregate(**ONE),
            """\
[kernel: partial aggregates by slice of time]
         passed on uncombined: keys that hardly repeat""",
        ),
        (
            lambda env: windows(objects(env).key_by("k")).aggregate(top=max_("n")),
            """\
[kernel or batches: partial aggregates by slice of time]
         the first batch decides: combined if max(n) is of numbers or times; else records are \
passed on
         passed on uncombined: Python objects, keys that hardly repeat""",
        ),
        (
            lambda env: windows(by_k(env).select("n", __rows="k").key_by("__rows")).aggregate(
                **ONE
            ),
            """\
[kernel or batches: partial aggregates by slice of time]
         the first batch decides: combined if no column of partials is called '__rows', too; else \
records are passed on
         passed on uncombined: Python objects, keys that hardly repeat""",
        ),
        (
            lambda env: windows(by_k(env)).aggregate(top=max_("k")),
            """\
[batches: passes records on]
         not faster: max(k) is of values of type string: only numbers and times are combined \
ahead of the exchange""",
        ),
        (
            lambda env: windows(objects(env).key_by("k")).max_by("n"),
            """\
[kernel or batches: leaves out records that hold no extreme]
         the first batch decides: combined if 'n' holds numbers or times; else records are passed on
         passed on uncombined: Python objects, keys that hardly repeat""",
        ),
    ],
)
def test_the_local_operator_says_what_it_passes_on(
    build: Callable[[Any], Any], expected: str
) -> None:
    env = StreamExecutionEnvironment.get_execution_environment(JobConfig(parallelism=2))
    build(env).name("asked").sink_to(DiscardSink())
    assert f"   └─ runs LocalCombine(asked)  {expected}\n" in env.explain()


def test_json_and_mermaid_have_it_too() -> None:
    env = StreamExecutionEnvironment.get_execution_environment(JobConfig(parallelism=2))
    by_function(env).sum("n").sink_to(DiscardSink())
    vertex = json.loads(env.explain("json"))["nodes"][2]
    assert vertex["operators"][0]["implementation"] == {
        "kind": "rows",
        "name": "rolling aggregate row by row",
        "why_not": PYTHON_KEY.removeprefix("not faster: "),
        "remarks": [],
    }
    assert f"[rows: rolling aggregate row by row; {PYTHON_KEY}]<br/>Sink" in env.explain("mermaid")


def test_a_source_that_is_not_there_is_no_error_of_explain() -> None:
    """It is the job's to say; and only `explain()` asks sources for their columns."""
    env = StreamExecutionEnvironment.get_execution_environment()
    asked = env.from_source(FileSource("/nowhere/x.parquet"), None, "files")
    asked.map_batches(lambda data: data).sink_to(DiscardSink())
    assert "its columns are not known" in env.explain()
    env.get_job_graph()
