"""Rolling aggregates keep the type that records are declared as; a sum beyond it fails."""

from __future__ import annotations

from typing import Any

import pytest
from strom import JobFailedError, StreamExecutionEnvironment, TypeInformation, Types

KINDS = ("sum", "min", "max", "min_by", "max_by")
KEYS = {"by column": "k", "by function": lambda row: row.k}


@pytest.fixture
def env() -> Any:
    return StreamExecutionEnvironment.get_execution_environment()


def rows_of(kind: TypeInformation) -> TypeInformation:
    return Types.ROW_NAMED(["k", "v"], [Types.STRING(), kind])


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("kind", KINDS)
def test_columns_keep_their_types(env: Any, kind: str, key: str) -> None:
    info = rows_of(Types.INT())
    rows = env.from_collection([("a", 1), ("a", 2)], info).key_by(KEYS[key])
    result = getattr(rows, kind)("v")
    assert result.get_type() == info
    seen = result.map(lambda row: row.v, output_type=Types.INT())
    wanted = {"sum": [1, 3], "max": [1, 2], "max_by": [1, 2]}.get(kind, [1, 1])
    assert seen.execute_and_collect(limit=2) == wanted


@pytest.mark.parametrize("kind", KINDS)
def test_single_values_keep_their_type(env: Any, kind: str) -> None:
    values = env.from_collection([1, 2], Types.INT()).key_by(lambda value: 0)
    assert getattr(values, kind)(0).get_type() == Types.INT()


BEYOND = {
    "BYTE": (Types.BYTE(), 127, 1),
    "SHORT": (Types.SHORT(), -(2**15), -1),
    "INT": (Types.INT(), 2**31 - 1, 1),
    "LONG": (Types.LONG(), 2**63 - 1, 1),
    "FLOAT": (Types.FLOAT(), 3e38, 3e38),
}


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("name", BEYOND)
def test_sums_beyond_the_type_fail(env: Any, name: str, key: str) -> None:
    info, *values = BEYOND[name]
    rows = env.from_collection([("a", value) for value in values], rows_of(info))
    with pytest.raises(
        JobFailedError, match=r"'Sum\(v\)', subtask 0: .*(exceeds|beyond) the range"
    ):
        rows.key_by(KEYS[key]).sum("v").execute_and_collect(limit=2)


@pytest.mark.parametrize("name", BEYOND)
def test_sums_of_single_values_beyond_the_type_fail(env: Any, name: str) -> None:
    info, *values = BEYOND[name]
    sums = env.from_collection(values, info).key_by(lambda value: 0).sum()
    with pytest.raises(JobFailedError, match=rf"'Sum\(0\)', subtask 0: .*declared as {name}"):
        sums.execute_and_collect(limit=2)


def test_sums_on_the_way_are_not_rounded_to_float32(env: Any) -> None:
    rows = env.from_collection([("a", 2.0**24), ("a", 1.0), ("a", 1.0)], rows_of(Types.FLOAT()))
    sums = rows.key_by("k").sum("v").map(lambda row: row.v)
    assert sums.execute_and_collect(limit=3)[-1] == 2.0**24 + 2


def test_sums_of_nulls_keep_the_type(env: Any) -> None:
    rows = env.from_collection([("a", None), ("a", 5)], rows_of(Types.INT()))
    sums = rows.key_by("k").sum("v").map(lambda row: row.v)
    assert sums.execute_and_collect(limit=2) == [None, 5]


def test_batches_of_nulls_alone_fit_every_float(env: Any) -> None:
    rows = env.from_collection([("a", None), ("b", None)], rows_of(Types.FLOAT()))
    sums = rows.key_by("k").sum("v").map(lambda row: row.v)
    assert sums.execute_and_collect(limit=2) == [None, None]


def test_objects_are_summed_as_python_sums_them(env: Any) -> None:
    """Integers of any size, as in PyFlink."""
    pairs = env.from_collection([("a", 2**63 - 1), ("a", 1), ("a", 10**30)])
    sums = pairs.key_by(lambda pair: pair[0]).sum(1)
    assert sums.execute_and_collect(limit=3) == [
        ("a", 2**63 - 1),
        ("a", 2**63),
        ("a", 2**63 + 10**30),
    ]


@pytest.mark.parametrize("values", [["x", "y"], [1, "y"]])
def test_what_does_not_add_up_is_named(env: Any, values: list[Any]) -> None:
    pairs = env.from_collection([("a", value) for value in values])
    sums = pairs.key_by(lambda pair: pair[0]).sum(1)
    wanted = r"'Sum\(1\)', subtask 0: .*sum\(1\): the value '[xy]', which is a str"
    with pytest.raises(JobFailedError, match=wanted):
        sums.execute_and_collect(limit=2)
