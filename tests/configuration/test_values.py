"""Values of options: every spelling that Flink takes, and back."""

from __future__ import annotations

from datetime import timedelta
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strom import ConfigurationError, MemorySize
from strom.api.configuration.values import (
    BOOLEAN,
    DURATION,
    FLOAT,
    INTEGER,
    LIST,
    MAP,
    MEMORY,
    STRING,
    enum_type,
)


class Fruit(Enum):
    RED_APPLE = 0
    PEAR = 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10", timedelta(milliseconds=10)),
        ("500ms", timedelta(milliseconds=500)),
        (" 10 s ", timedelta(seconds=10)),
        ("1 min", timedelta(minutes=1)),
        ("1m", timedelta(minutes=1)),
        ("3 Hours", timedelta(hours=3)),
        ("2 d", timedelta(days=2)),
        ("7 µs", timedelta(microseconds=7)),
        ("2500 ns", timedelta(microseconds=2)),
        (250, timedelta(milliseconds=250)),
    ],
)
def test_durations(text: Any, expected: timedelta) -> None:
    assert DURATION.read(text) == expected


@pytest.mark.parametrize("text", ["", "s", "1.5 s", "-1 s", "10 parsec", "1 s 2 ms", True])
def test_no_durations(text: Any) -> None:
    with pytest.raises(ConfigurationError, match="is no duration: write a number"):
        DURATION.read(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("64mb", 64 << 20), ("64 m", 64 << 20), ("10", 10), ("3 Kibibytes", 3072), ("1 tb", 1 << 40)],
)
def test_memory(text: str, expected: int) -> None:
    assert MEMORY.read(text) == MemorySize(expected)


def test_memory_sizes() -> None:
    size = MemorySize.of_mebi_bytes(2048)
    assert (size.get_bytes(), size.get_kibi_bytes(), size.get_mebi_bytes()) == (
        2 << 30,
        2 << 20,
        2048,
    )
    assert (size.get_gibi_bytes(), size.get_tebi_bytes()) == (2, 0)
    assert size > MemorySize(5)
    assert size == MemorySize(2 << 30)
    assert size <= MemorySize(2 << 30)
    assert str(size) == "2 gb"
    for wrong in ("many", "1 pb", "-3"):
        with pytest.raises(ConfigurationError, match="is no memory size"):
            MemorySize.parse(wrong)
    with pytest.raises(ConfigurationError, match="at least 0"):
        MemorySize(-1)


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (BOOLEAN, "True", True),
        (BOOLEAN, False, False),
        (INTEGER, " 12 ", 12),
        (FLOAT, "1e3", 1000.0),
        (FLOAT, 2, 2.0),
        (STRING, 5, "5"),
        (STRING, True, "true"),
        (LIST, "a; b ;'c;d'", ["a", "b", "c;d"]),
        (LIST, "it's;b", ["it's", "b"]),
        (LIST, '[a, "b,c"]', ["a", "b,c"]),
        (LIST, "", []),
        (LIST, (1, 2), ["1", "2"]),
        (MAP, "a:1, b:http://x", {"a": "1", "b": "http://x"}),
        (MAP, "{a: 1, b: 'x: y'}", {"a": "1", "b": "x: y"}),
        (MAP, {"a": 1}, {"a": "1"}),
        (enum_type(Fruit), "red-apple", Fruit.RED_APPLE),
        (enum_type(Fruit), Fruit.PEAR, Fruit.PEAR),
    ],
)
def test_other_types(kind: Any, text: Any, expected: Any) -> None:
    assert kind.read(text) == expected


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        (BOOLEAN, "yes", "neither true nor false"),
        (INTEGER, "1.5", "no integer"),
        (INTEGER, True, "no integer"),
        (FLOAT, "much", "no number"),
        (LIST, "'a;b", "a quote that is not closed"),
        (LIST, "[a", "no well-formed|not a well-formed list"),
        (MAP, "a", "is no map"),
        (MAP, "{a", "not a well-formed dict"),
        (STRING, b"x", "get_bytearray"),
        (enum_type(Fruit), "plum", "none of RED_APPLE, PEAR"),
    ],
)
def test_what_is_refused(kind: Any, text: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        kind.read(text)


TEXTS = st.text(max_size=8)
CASES = st.one_of(
    st.tuples(st.just(DURATION), st.integers(0, 10**15).map(lambda n: timedelta(microseconds=n))),
    st.tuples(st.just(MEMORY), st.integers(0, 2**50).map(MemorySize)),
    st.tuples(st.just(BOOLEAN), st.booleans()),
    st.tuples(st.just(INTEGER), st.integers()),
    st.tuples(st.just(FLOAT), st.floats(allow_nan=False)),
    st.tuples(st.just(LIST), st.lists(TEXTS)),
    st.tuples(st.just(MAP), st.dictionaries(TEXTS, TEXTS)),
    st.tuples(st.just(enum_type(Fruit)), st.sampled_from(Fruit)),
)


@given(CASES)
def test_what_is_written_is_read_again(case: tuple[Any, Any]) -> None:
    kind, value = case
    assert kind.read(kind.write(value)) == value
