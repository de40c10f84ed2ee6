"""Fields of tuples and rows by their positions; columns stay columns."""

from __future__ import annotations

from typing import Any

import pytest
from drawn_ways import assert_equivalent
from strom import (
    ConfigurationError,
    GraphError,
    JobFailedError,
    NoRestart,
    Row,
    StreamExecutionEnvironment,
    Types,
    count,
)
from strom.testing.equivalence import Ways

NAMED = Types.ROW_NAMED(["a", "b", "c"], [Types.STRING(), Types.INT(), Types.DOUBLE()])
TUPLE = Types.TUPLE([Types.STRING(), Types.INT(), Types.DOUBLE()])
RECORDS = [("x", 1, 0.5), ("y", 2, 1.5)]


def stream(type_info: Any = None, records: Any = RECORDS) -> Any:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_restart_strategy(NoRestart())
    return env.from_collection(records, type_info)


@pytest.mark.parametrize("type_info", [None, NAMED, TUPLE])
@pytest.mark.parametrize("indexes", [(2, 0), (1,), (0, 1, 2)])
def test_the_fields_at_these_positions(type_info: Any, indexes: tuple[int, ...]) -> None:
    found = list(stream(type_info).project(*indexes).execute_and_collect())
    assert [tuple(r) for r in found] == [tuple(r[at] for at in indexes) for r in RECORDS]


def test_columns_keep_their_names_and_those_of_tuples_are_counted_anew() -> None:
    assert [r.as_dict() for r in stream(NAMED).project(2, 0).execute_and_collect()] == [
        {"c": 0.5, "a": "x"},
        {"c": 1.5, "a": "y"},
    ]
    total = stream(TUPLE).project(1, 1, 0).key_by("f2").sum("f0")
    assert sorted(tuple(r) for r in total.execute_and_collect()) == [(1, 1, "x"), (2, 2, "y")]


def test_tuples_and_rows_among_python_objects() -> None:
    assert list(stream().project(1, 1).execute_and_collect()) == [(1, 1), (2, 2)]
    rows = stream(records=[Row(a=1, b=2)]).project(1).execute_and_collect(limit=1)
    assert rows == [(2,)]
    assert rows[0].as_dict() == {"b": 2}


def test_it_runs_on_batches() -> None:
    projected = stream(TUPLE).project(0)
    projected.print()
    text = projected.get_execution_environment().explain()
    assert "Project  [batches: fields by position]" in text


def test_a_changelog_keeps_its_kinds() -> None:
    rows = stream(NAMED).key_by("a").aggregate(n=count(), total=count())
    (first, second) = rows.project(1, 0).execute_and_collect()
    assert set(first.as_dict()) == {"n", "a", "__row_kind"}
    assert (first.n, second.n) == (1, 1)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: stream().project(), ConfigurationError, "at least one"),
        (lambda: stream().project(-1), ConfigurationError, "positions from 0, got -1"),
        (lambda: stream().project("a"), ConfigurationError, "got 'a'"),
        (lambda: stream().project(True), ConfigurationError, "got True"),
        (lambda: stream(NAMED).project(0, 3), GraphError, r"project\(0, 3\).*only 3 fields"),
        (lambda: stream(NAMED).project(0, 0), GraphError, "cannot come twice"),
    ],
)
def test_what_is_refused_where_the_program_is_written(call: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize(
    ("records", "text"),
    [
        ([5], "a int, 5, has no positions"),
        (["abc"], "a str, 'abc', has no positions"),
        ([{"a": 1}], "has no positions"),
        ([(1,)], r"\(1,\) has only 1 fields"),
    ],
)
def test_what_has_no_such_fields_fails_by_name(records: Any, text: str) -> None:
    with pytest.raises(JobFailedError, match=rf"'Project'.*project\(1\) takes tuples.*{text}"):
        list(stream(records=records).project(1).execute_and_collect())


def test_every_way(readings: Any, kind: str) -> None:
    def build(env: Any) -> Any:
        return readings.stream(env, kind).project(2, 0).map(tuple)

    assert_equivalent(build, [(r.v, r.k) for r in readings.all], Ways(seeds=range(2)))
