"""A state with a declared type takes values of that type only."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
import strom
from strom import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    Row,
    Types,
    ValueStateDescriptor,
)
from strom.core.errors import JobFailedError, TypeMismatchError
from strom.core.ids import KeyGroupRange
from strom.state.memory import MemoryKeyedStateBackend


@dataclass
class Point:
    x: int
    y: int


POINT = Types.ROW_NAMED(["x", "y"], [Types.INT(), Types.INT()])
NOW = dt.datetime(2026, 1, 2, 3, 4)

FITTING = [
    (Types.LONG(), [0, -(2**63), 2**63 - 1, np.int64(3), np.int8(1)]),
    (Types.INT(), [2**31 - 1, -(2**31)]),
    (Types.SHORT(), [2**15 - 1, -(2**15)]),
    (Types.BYTE(), [127, -128]),
    (pa.uint8(), [0, 255]),
    (int, [1]),
    (Types.DOUBLE(), [1.5, 1, float("nan"), np.float32(1), np.int16(2)]),
    (Types.FLOAT(), [1.5, 1]),
    (Types.BOOLEAN(), [True, False, np.bool_(True)]),
    (Types.STRING(), ["", "a", np.str_("b")]),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), [b"x", bytearray(b"y")]),
    (Types.BIG_INT(), [10**30, Decimal(5)]),
    (Types.BIG_DEC(), [Decimal("1.5"), 2]),
    (Types.SQL_DATE(), [NOW.date()]),
    (Types.SQL_TIME(), [NOW.time()]),
    (Types.SQL_TIMESTAMP(), [NOW]),
    (Types.INSTANT(), [NOW.replace(tzinfo=dt.UTC)]),
    (pa.duration("ms"), [dt.timedelta(1)]),
    (POINT, [(1, 2), [1, None], Row(x=1, y=2), Row("y", "x")(2, 1), {"y": 2, "x": 1}, Point(1, 2)]),
    (Types.TUPLE([Types.STRING(), Types.LONG()]), [("a", 1), Row("a", 1)]),
    (Types.LIST(Types.LONG()), [[1], (), np.arange(3)]),
    (Types.MAP(Types.STRING(), Types.LONG()), [{"a": 1}, {}]),
    (Types.PICKLED_BYTE_ARRAY(), [object(), "anything"]),
    (None, [object(), 1]),
    (object(), ["nobody knows this type", 1]),
]

UNFIT = [
    (Types.LONG(), ["text", 1.0, True, 2**63, -(2**63) - 1, Decimal(1), np.bool_(True), [1]]),
    (Types.INT(), [2**31, -(2**31) - 1, np.int64(2**31)]),
    (Types.SHORT(), [2**15]),
    (Types.BYTE(), [128]),
    (pa.uint8(), [-1, 256]),
    (int, ["1"]),
    (Types.DOUBLE(), ["1", True, Decimal(1), 1j]),
    (Types.BOOLEAN(), [1, 0, "true"]),
    (Types.STRING(), [1, b"a"]),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), ["x", [1]]),
    (Types.BIG_INT(), [1.0, True]),
    (Types.SQL_DATE(), [NOW, "2026-01-02", 5]),
    (Types.SQL_TIME(), [NOW]),
    (Types.SQL_TIMESTAMP(), [NOW.date(), 5]),
    (POINT, [(1,), (1, 2, 3), ("1", 2), {"x": 1}, 7, "xy", Row("y", "x")(2, "1"), Point("1", 2)]),
    (Types.LIST(Types.LONG()), [1, "ab", {1: 2}, (n for n in ())]),
    (Types.MAP(Types.STRING(), Types.LONG()), [[("a", 1)], "a"]),
]


def pairs(table):
    return [pytest.param(t, v, id=f"{_id(t)}-{_id(v)}") for t, values in table for v in values]


def _id(value):
    """The same in every process: not where an object lies in memory."""
    return re.sub(r" at 0x[0-9a-f]+>?", "", f"{value!r:.60}")


@pytest.fixture
def backend():
    made = MemoryKeyedStateBackend(KeyGroupRange(0, 127), 128)
    made.set_current_key("k")
    return made


@pytest.mark.parametrize(("declared", "value"), pairs(FITTING))
def test_what_fits_is_kept_as_it_is(backend, declared, value):
    state = backend.get_state(ValueStateDescriptor("s", declared))
    state.update(value)
    assert state.value() is value
    state.update(None)
    assert state.value() is None


@pytest.mark.parametrize(("declared", "value"), pairs(UNFIT))
def test_what_does_not_fit_is_refused_by_every_state(backend, declared, value):
    number = backend.get_state(ValueStateDescriptor("value", declared))
    listed = backend.get_list_state(ListStateDescriptor("list", declared))
    mapped = backend.get_map_state(MapStateDescriptor("map", Types.STRING(), declared))
    keyed = backend.get_map_state(MapStateDescriptor("keyed", declared))
    reduced = backend.get_reducing_state(ReducingStateDescriptor("red", lambda a, b: b, declared))
    writes = [
        lambda: number.update(value),
        lambda: listed.add(value),
        lambda: listed.add_all([None, value]),
        lambda: listed.update([None, value]),
        lambda: mapped.put("a", value),
        lambda: mapped.put_all({"a": None, "b": value}),
        lambda: reduced.add(value),
    ]
    try:
        hash(value)
    except TypeError:
        pass
    else:
        writes += [lambda: keyed.put(value, 1), lambda: keyed.put_all({value: 1})]
    for write in writes:
        with pytest.raises(TypeMismatchError, match=r"state '\w+' is declared as .* and cannot be"):
            write()
    assert number.value() is None
    assert list(listed.get()) == []
    assert mapped.is_empty()
    assert keyed.is_empty()
    assert reduced.get() is None
    backend.validate()


def test_what_is_stored_stays_when_a_write_is_refused(backend):
    state = backend.get_list_state(ListStateDescriptor("list", Types.LONG()))
    state.update([1, 2])
    for write in (lambda: state.update([3, "4"]), lambda: state.add_all([3, "4"])):
        with pytest.raises(TypeMismatchError, match=r"LONG and cannot be '4' \(str\)"):
            write()
    assert list(state.get()) == [1, 2]


def test_what_functions_make_of_values_must_fit_too(backend):
    reducing = ReducingStateDescriptor("r", lambda a, b: f"{a}{b}", Types.LONG())
    reduced = backend.get_reducing_state(reducing)
    reduced.add(1)
    with pytest.raises(TypeMismatchError, match=r"'r' is declared as LONG and cannot be '12'"):
        reduced.add(2)
    assert reduced.get() == 1

    class Total(strom.AggregateFunction):
        def create_accumulator(self):
            return (0,)

        def add(self, value, accumulator):
            return (*accumulator, value)

        def get_result(self, accumulator):
            return sum(accumulator)

        def merge(self, acc_a, acc_b):
            return acc_a + acc_b

    two = Types.TUPLE([Types.LONG(), Types.LONG()])
    aggregated = backend.get_aggregating_state(AggregatingStateDescriptor("a", Total(), two))
    aggregated.add(1)
    with pytest.raises(TypeMismatchError, match=r"cannot be \(0, 1, 2\) \(tuple\)"):
        aggregated.add(2)
    assert aggregated.get() == 1


def test_states_of_windows_are_declared_too(backend):
    state = backend.namespaced(ValueStateDescriptor("w", Types.LONG())).of((0, 10))
    with pytest.raises(TypeMismatchError, match="LONG"):
        state.update("text")


def test_a_long_value_is_cut(backend):
    state = backend.get_state(ValueStateDescriptor("s", Types.LONG()))
    with pytest.raises(TypeMismatchError) as caught:
        state.update("x" * 10_000)
    assert len(str(caught.value)) < 300


class Texts(strom.KeyedProcessFunction):
    def open(self, runtime_context):
        self.last = runtime_context.get_state(ValueStateDescriptor("last", Types.LONG()))

    def process_element(self, value, ctx):
        self.last.update("text")
        return [value]


def test_the_job_fails_and_names_operator_and_state():
    env = strom.StreamExecutionEnvironment.get_execution_environment(host="local")
    stream = env.from_collection([1]).key_by(lambda n: n).process(Texts()).name("it")
    expected = (
        r"operator 'it', subtask 0: TypeMismatchError: state 'last' is declared as LONG and cannot "
        r"be 'text' \(str\): write a value of that type, or declare another one "
        r"\(at .*test_declared_types\.py:\d+ in process_element\)$"
    )
    with pytest.raises(JobFailedError, match=expected):
        list(stream.execute_and_collect())
