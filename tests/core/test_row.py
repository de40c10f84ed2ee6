"""`Row` is PyFlink's: names, kinds, mutation, makers of rows; and a tuple, as fast as one."""

from __future__ import annotations

import copy
import gc
import pickle
import sys

import pytest
from strom import Row, RowKind


def test_by_positions_and_by_names() -> None:
    assert (Row(1, "x")[1], Row(1, "x").f0, list(Row(1, "x"))) == ("x", 1, [1, "x"])
    row = Row(name="Ann", age=7)
    assert (row.name, row["age"], row[0], row[-1], row[0:1]) == ("Ann", 7, 7, "Ann", (7,))
    assert repr(row) == "Row(age=7, name='Ann')"
    with pytest.raises(ValueError, match="not both"):
        Row(1, a=2)
    with pytest.raises(KeyError, match="no field 'size'"):
        row["size"]


def test_named_values_are_sorted_by_name() -> None:
    """As PyFlink sorts them; a kind of change stays the last column."""
    row = Row(b=1, a=2)
    assert (row[0], tuple(row), row._fields) == (2, (2, 1), ("a", "b"))
    assert row == Row(a=2, b=1)
    assert hash(row) == hash((2, 1))
    assert Row.of_kind(RowKind.DELETE, b=1, a=2)[0] == 2
    assert Row(z=1, __row_kind=0)._fields == ("z", "__row_kind")


def test_a_row_of_names_makes_rows() -> None:
    person = Row("name", "age")
    assert "name" in person
    assert "size" not in person
    assert repr(person("Ann", 7)) == "Row(name='Ann', age=7)"
    assert person("Ann", 7).as_dict() == Row(name="Ann", age=7).as_dict()
    with pytest.raises(ValueError, match="cannot have the values"):
        person("Ann")


def test_in_asks_for_fields_and_of_unnamed_rows_for_values() -> None:
    assert "a" in Row(a="b")
    assert "b" not in Row(a="b")
    assert 3 in Row(3, 4)
    assert 5 not in Row(3, 4)


def test_fields_can_be_set() -> None:
    row = Row(a=1, b=2, c=3)
    row["a"] = 10
    row[1] = 20
    row[-1] = 30
    assert row == Row(a=10, b=20, c=30)
    assert (row.a, row[1], tuple(row), dict(row._items())["c"]) == (10, 20, (10, 20, 30), 30)
    row[0:2] = [5, 6]
    assert list(row) == [5, 6, 30]
    assert hash(row) == hash((5, 6, 30))


@pytest.mark.parametrize(
    ("place", "value", "error"),
    [("z", 1, KeyError), (3, 1, IndexError), (-4, 1, IndexError), (slice(0, 2), [1], ValueError)],
)
def test_what_cannot_be_set(place: object, value: object, error: type[Exception]) -> None:
    row = Row(a=1, b=2, c=3)
    with pytest.raises(error):
        row[place] = value
    assert row == (1, 2, 3)


def test_a_row_holds_what_is_set_and_lets_go_of_what_was_there() -> None:
    class Thing:
        pass

    first, second = Thing(), Thing()
    before = sys.getrefcount(first), sys.getrefcount(second)
    row = Row(a=first)
    assert sys.getrefcount(first) == before[0] + 1
    for _ in range(1000):
        row["a"] = second
    assert (sys.getrefcount(first), sys.getrefcount(second)) == (before[0], before[1] + 1)
    row["a"] = [row]
    del row
    gc.collect()
    assert sys.getrefcount(second) == before[1]


def test_equality_is_of_names_values_and_kinds() -> None:
    assert Row(a=1) == Row(a=1)
    assert Row(a=1) != Row(b=1)
    assert Row(a=1) != Row(a=2)
    assert Row(a=1) == (1,)
    assert Row(a=1) == (1,)
    assert Row(a=1) != Row.of_kind(RowKind.DELETE, a=1)
    assert Row.of_kind(RowKind.DELETE, a=1) == Row.of_kind(RowKind.DELETE, a=1)
    assert {Row(a=1): "x"}[Row(a=1)] == "x"


def test_kinds_and_names_can_be_changed() -> None:
    row = Row(a=1, b=2)
    assert row.get_row_kind() is RowKind.INSERT
    row.set_row_kind(RowKind.UPDATE_AFTER)
    row.set_field_names(["x", "y"])
    assert (row.x, row.get_row_kind(), repr(row)) == (1, RowKind.UPDATE_AFTER, "+U Row(x=1, y=2)")
    assert row.replace(x=5).get_row_kind() is RowKind.UPDATE_AFTER
    with pytest.raises(ValueError, match="2 values cannot have the 1 names"):
        row.set_field_names(["x"])


def test_fields_by_names() -> None:
    assert Row(a=1, b=2, c=3).get_fields_by_names(["c", "a"]) == [3, 1]
    with pytest.raises(KeyError, match="no field \\['x'\\]"):
        Row(a=1).get_fields_by_names(["a", "x"])


def test_as_dict() -> None:
    row = Row(key=1, value=Row(a=[Row(b=2)], m={"k": Row(c=3)}))
    assert row.as_dict() == {"key": 1, "value": row.value}
    deep = {"key": 1, "value": {"a": [{"b": 2}], "m": {"k": {"c": 3}}}}
    assert row.as_dict(recursive=True) == deep
    assert type(row.as_dict(True)["value"]["a"][0]) is dict


def test_fields_named_like_methods() -> None:
    row = Row(count=1, index=2, as_dict=3, of_kind=4)
    assert (row.count, row.index, row["as_dict"], row["of_kind"]) == (1, 2, 3, 4)
    assert row.as_dict() == {"count": 1, "index": 2, "as_dict": 3, "of_kind": 4}


@pytest.mark.parametrize("row", [Row(1, 2), Row(a=1, b=[2]), Row.of_kind(RowKind.DELETE, a=1)])
def test_copies_are_rows_of_their_own(row: Row) -> None:
    for other in (pickle.loads(pickle.dumps(row)), copy.deepcopy(row), copy.copy(row)):
        assert other == row
        assert (repr(other), other.get_row_kind()) == (repr(row), row.get_row_kind())
        other[0] = "changed"
        assert row[0] == 1


def test_rows_of_one_kind_and_names_are_of_one_class() -> None:
    row = Row(a=1)
    changed = Row.of_kind(RowKind.DELETE, b=1)
    changed.set_row_kind(RowKind.INSERT)
    changed.set_field_names(["a"])
    for other in (pickle.loads(pickle.dumps(row)), Row("a")(1), changed, copy.copy(row)):
        assert type(other) is type(row)
