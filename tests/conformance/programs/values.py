"""Which Python values come out of streams of declared types, and of streams of none."""

from __future__ import annotations

import datetime
import decimal
from array import array

from strom.common import Instant, Row, Types

AB = Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.STRING()])


def _seen(value):
    """What a function gets: its type, and its text."""
    return type(value).__name__, repr(value)


def _made(env, values, typed):
    """A stream of these values: records of one function, on their way to another task."""
    indexes = env.from_collection(list(range(len(values))), Types.INT())
    return indexes.map(lambda n: values[n], output_type=typed).rebalance()


def _through(env, values, typed):
    """What the next function sees, and what is collected."""
    return {"seen": _made(env, values, typed).map(_seen), "collected": _made(env, values, typed)}


def integers(env):
    typed = Types.TUPLE([Types.BYTE(), Types.SHORT(), Types.INT(), Types.LONG()])
    values = [(1, 2, 3, 4), (-128, -32768, -(2**31), -(2**63)), (127, 32767, 2**31 - 1, 2**63 - 1)]
    return _through(env, values, typed)


def floats(env):
    typed = Types.TUPLE([Types.FLOAT(), Types.DOUBLE()])
    values = [(1.5, 0.1), (0.1, 1e300), (float("inf"), float("nan")), (-0.0, -0.0)]
    return _made(env, values, typed).map(_seen)


def whole_numbers_where_floats_are_declared(env):
    typed = Types.TUPLE([Types.FLOAT(), Types.DOUBLE()])
    return env.from_collection([1, 2], Types.INT()).map(lambda n: (n, n), output_type=typed)


def texts_and_flags(env):
    typed = Types.TUPLE([Types.STRING(), Types.BOOLEAN()])
    return _through(env, [("", True), ("żółw", False), ("a'b\"c\n", True)], typed)


def decimals(env):
    values = [decimal.Decimal(text) for text in ("1.50", "-0.001", "12345678901234567890.5")]
    return _through(env, values, Types.BIG_DEC())


def dates_and_times(env):
    typed = Types.TUPLE([Types.SQL_DATE(), Types.SQL_TIME(), Types.SQL_TIMESTAMP()])
    values = [
        (
            datetime.date(2026, 2, 28),
            datetime.time(23, 59, 58, 123000),
            datetime.datetime(2026, 2, 28, 1, 2, 3, 456000),
        ),
        (
            datetime.date(1969, 12, 31),
            datetime.time(0, 0),
            datetime.datetime(1970, 1, 1),
        ),
    ]
    return _made(env, values, typed).map(_seen)


def instants(env):
    def made(n):
        return Instant.of_epoch_milli(n)

    stream = env.from_collection([0, 1_500], Types.LONG()).map(made, Types.INSTANT())
    return stream.map(lambda i: (type(i).__name__, i.to_epoch_milli()))


def lists_and_maps(env):
    typed = Types.TUPLE(
        [Types.LIST(Types.INT()), Types.MAP(Types.STRING(), Types.LIST(Types.LONG()))]
    )
    return _through(env, [([1, 2], {"a": [1], "b": []}), ([], {})], typed)


def arrays(env):
    typed = Types.TUPLE(
        [
            Types.PRIMITIVE_ARRAY(Types.INT()),
            Types.BASIC_ARRAY(Types.STRING()),
            Types.OBJECT_ARRAY(Types.TUPLE([Types.INT(), Types.STRING()])),
            Types.PRIMITIVE_ARRAY(Types.DOUBLE()),
        ]
    )
    stream = env.from_collection([1, 2], Types.INT()).map(
        lambda n: ([n, n + 1], ["x", str(n)], [(n, "y")], [0.5]), output_type=typed
    )
    return {"seen": stream.map(lambda v: [_seen(one) for one in v]), "collected": stream}


def bytes_as_arrays(env):
    typed = Types.PRIMITIVE_ARRAY(Types.BYTE())
    return _made(env, [b"abc", b"", bytes([0, 255])], typed).map(_seen)


def rows_without_names(env):
    typed = Types.ROW([Types.INT(), Types.STRING()])
    values = [Row(1, "x"), Row(2, "y")]
    stream = env.from_collection(values, typed)
    return {
        "seen": stream.map(lambda r: (repr(r), str(r), list(r), r[0], len(r))),
        "dict": _made(env, values, typed).map(lambda r: sorted(r.as_dict().items())),
        "collected": env.from_collection(values, typed),
    }


def rows_with_names(env):
    values = [Row(a=1, b="x"), Row(a=2, b="y")]
    stream = env.from_collection(values, AB)
    return {
        "seen": stream.map(lambda r: (repr(r), r.a, r["b"], r[1], "a" in r, r.as_dict())),
        "collected": env.from_collection(values, AB),
    }


def rows_given_as_something_else(env):
    return {
        "other order": _made(env, [Row(b="x", a=1), Row(a=2, b="y")], AB).map(_seen),
        "no names": _made(env, [Row(1, "x")], AB).map(_seen),
    }


def nested_rows(env):
    typed = Types.ROW_NAMED(
        ["k", "inner", "pairs"],
        [Types.STRING(), AB, Types.LIST(Types.TUPLE([Types.INT(), Types.INT()]))],
    )
    values = [Row(k="x", inner=Row(a=1, b="y"), pairs=[(1, 2)]), Row("z", Row(2, "w"), [])]
    stream = _made(env, values, typed)
    return stream.map(lambda r: (repr(r), r.inner.a, r.as_dict(True), type(r.pairs)))


def nothing_as_a_field_of_rows(env):
    typed = Types.ROW_NAMED(
        ["s", "i", "l", "d", "m"],
        [
            Types.STRING(),
            Types.INT(),
            Types.LIST(Types.INT()),
            Types.BIG_DEC(),
            Types.MAP(Types.STRING(), Types.INT()),
        ],
    )
    values = [Row(None, None, None, None, None), Row("x", 1, [1], decimal.Decimal("1.0"), {"a": 1})]
    return _made(env, values, typed).map(_seen)


def values_of_no_declared_type(env):
    values = [1, "a", (1, "x"), [1, 2], {"k": {1, 2}}, 1.5, b"x", Row(a=1), True]
    return {
        "seen": env.from_collection(values).map(_seen),
        "collected": env.from_collection(values),
        "mapped": env.from_collection(values).map(lambda v: v),
    }


def pickled_fields(env):
    typed = Types.TUPLE([Types.STRING(), Types.PICKLED_BYTE_ARRAY()])
    values = [("a", {"n": decimal.Decimal("1.0")}), ("b", None)]
    return _made(env, values, typed).map(_seen)


def types_of_streams(env):
    typed = Types.TUPLE([Types.STRING(), Types.INT()])
    stream = env.from_collection([("a", 1)], typed)
    keyed = stream.key_by(lambda v: v[0], key_type=Types.STRING())
    return [
        stream.get_type() == typed,
        stream.map(lambda v: v).get_type() == Types.PICKLED_BYTE_ARRAY(),
        stream.map(lambda v: Row(*v), AB).get_type() == AB,
        keyed.reduce(lambda a, b: a).get_type() == typed,
        stream.project(1, 0).get_type() == Types.TUPLE([Types.INT(), Types.STRING()]),
        stream.union(stream).get_type() == typed,
        stream.filter(lambda v: True).get_type() == typed,
        Types.LIST(AB) == Types.LIST(AB),
        Types.LIST(AB) == Types.LIST(Types.INT()),
        typed == Types.TUPLE([Types.STRING(), Types.LONG()]),
        AB.get_field_names(),
        AB.get_field_index("b"),
        AB.get_field_types() == [Types.INT(), Types.STRING()],
    ]


def arrays_of_the_standard_library(env):
    typed = Types.PRIMITIVE_ARRAY(Types.INT())
    stream = env.from_collection([1, 2], Types.INT())
    return stream.map(lambda n: list(array("i", [n, n])), output_type=typed)


ANY_ORDER: set[str] = set()
