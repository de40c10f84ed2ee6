"""Classes that changed while their objects were in state: right, or refused."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strom import ListStateDescriptor, MapStateDescriptor, Row, Types, ValueStateDescriptor
from strom.core.errors import StateError
from strom.core.ids import KeyGroupRange
from strom.state.backend import StateTable
from strom.state.memory import MemoryKeyedStateBackend
from strom.state.object_fields import fields_of
from strom.state.object_reader import ObjectReader
from strom.state.operator_state import OperatorStateBackend
from strom.state.pickling import dumps

MODULE = "classes_in_state"
HEADER = "from dataclasses import dataclass, field\nfrom typing import Any, NamedTuple\n"

KINDS = {
    "plain": "@dataclass\nclass A:\n",
    "frozen": "@dataclass(frozen=True)\nclass A:\n",
    "slots": "@dataclass(slots=True)\nclass A:\n",
    "frozen slots": "@dataclass(frozen=True, slots=True)\nclass A:\n",
    "tuple": "class A(NamedTuple):\n",
}

Define = Callable[[str, str], type]


@pytest.fixture
def define() -> Iterator[Define]:
    """Gives the class A of a kind with these fields, in the module that pickles name."""
    module = sys.modules[MODULE] = ModuleType(MODULE)

    def defined(kind: str, fields: str) -> type:
        return _defined(module, kind, fields)

    yield defined
    del sys.modules[MODULE]


def _defined(module: ModuleType, kind: str, fields: str) -> type:
    body = "".join(f"    {line.strip()}\n" for line in fields.split(";"))
    exec(HEADER + KINDS[kind] + body, module.__dict__)
    made: type = module.__dict__["A"]
    return made


def backend(restored: Sequence[StateTable] = ()) -> MemoryKeyedStateBackend:
    made = MemoryKeyedStateBackend(KeyGroupRange(0, 15), 16)
    made.restore(restored)
    made.set_current_key("k")
    return made


def described(**migration: Any) -> ValueStateDescriptor:
    descriptor = ValueStateDescriptor("account")
    descriptor.enable_migration(**migration)
    return descriptor


def tables_of(kept: MemoryKeyedStateBackend) -> list[StateTable]:
    return list(kept.snapshot().tables())


def stored(value: Any) -> list[StateTable]:
    made = backend()
    made.get_state(ValueStateDescriptor("account")).update(value)
    return tables_of(made)


every_kind = pytest.mark.parametrize("kind", KINDS)


@every_kind
def test_a_new_field_has_its_default(kind: str, define: Define) -> None:
    # without a reader an object came back that lacks the field, or has another one's value in it
    before = stored(define(kind, "owner: str; total: int")("ann", 3))
    factory = "note: str = '-'" if kind == "tuple" else "note: list = field(default_factory=list)"
    default: Any = "-" if kind == "tuple" else []
    now = define(kind, f"owner: str; total: int; {factory}")
    found = backend(before).get_state(described()).value()
    assert (type(found), found.owner, found.total, found.note) == (now, "ann", 3, default)


@every_kind
def test_fields_are_found_by_name(kind: str, define: Define) -> None:
    before = stored(define(kind, "owner: str; total: int")("ann", 3))
    define(kind, "total: int; owner: str")
    found = backend(before).get_state(described()).value()
    assert (found.owner, found.total) == ("ann", 3)


@every_kind
def test_the_program_says_what_has_become_of_fields(kind: str, define: Define) -> None:
    before = stored(define(kind, "owner: str; total: int; old: float")("ann", 3, 1.5))
    define(kind, "name: str; total: float; level: int")
    said = described(rename={"owner": "name"}, defaults={"level": 7}, drop=["old"])
    restored = backend(before)
    found = restored.get_state(said).value()
    assert (found.name, found.total, found.level) == ("ann", 3, 7)
    after = tables_of(restored)
    again = backend(after).get_state(described()).value()
    assert again == found, "the next checkpoint holds the new form"
    assert backend(after).get_state(said).value() == found, "and may be migrated once more"


@every_kind
@pytest.mark.parametrize(
    ("now", "why"),
    [
        ("name: str; total: int", "['owner'] are no fields any more"),
        ("owner: str", "['total'] are no fields any more"),
        ("owner: str; total: int; level: int", "'level' is new and has no default"),
        ("owner: int; total: int", "'owner' is 'ann'"),
    ],
)
def test_all_else_is_refused(kind: str, now: str, why: str, define: Define) -> None:
    before = stored(define(kind, "owner: str; total: int")("ann", 3))
    define(kind, now)
    with pytest.raises(StateError) as refused:
        backend(before).get_state(ValueStateDescriptor("account"))
    text = str(refused.value)
    assert why in text
    assert "value of state 'account' was stored as A[owner: str, total: int]" in text
    assert f"and is A[{now.replace(';', ',')}] now" in text
    assert "enable_migration" in text


@every_kind
def test_what_python_pickled_by_itself(kind: str, define: Define) -> None:
    """As the first format did: the names of fields are there unless it is a list."""
    data = pickle.dumps(define(kind, "owner: str; total: int")("ann", 3))
    same = ObjectReader("state 's'").loads(data)
    assert (type(same), same.owner, same.total) == (sys.modules[MODULE].A, "ann", 3)
    define(kind, "owner: str; total: int; note: str = '-'")
    reader = ObjectReader("state 's'")
    if kind in ("tuple", "frozen slots"):
        with pytest.raises(StateError, match="without the names of its fields"):
            reader.loads(data)
    else:
        assert reader.loads(data).note == "-"


@every_kind
def test_within_lists_maps_and_sets(kind: str, define: Define) -> None:
    kept = define(kind, "owner: str; total: int")
    one = kept("ann", 3)
    kept_before = backend()
    kept_before.get_list_state(ListStateDescriptor("list")).add_all([one, [one]])
    kept_before.get_map_state(MapStateDescriptor("map")).put("x", {"y": (one, one)})
    before = tables_of(kept_before)
    define(kind, "owner: str; total: int; level: int = 5")
    restored = backend(before)
    first, (second,) = restored.get_list_state(ListStateDescriptor("list")).get()
    pair = restored.get_map_state(MapStateDescriptor("map")).get("x")["y"]
    assert {first.level, second.level, pair[0].level} == {5}
    if kind != "tuple":
        assert pair[0] is pair[1]


def test_what_is_in_sets_is_hashed_with_all_its_fields(define: Define) -> None:
    before = stored({define("frozen", "owner: str")("ann")})
    now = define("frozen", "owner: str; level: int = 5")
    assert now("ann", 5) in backend(before).get_state(described()).value()


def test_operator_state_likewise(define: Define) -> None:
    store = OperatorStateBackend()
    kept = define("tuple", "owner: str; total: int")
    store.get_list_state(ListStateDescriptor("list")).add(kept("ann", 3))
    store.get_broadcast_state(MapStateDescriptor("rules")).put("x", kept("bob", 4))
    before = store.snapshot().tables()
    define("tuple", "total: int; name: str")
    restored = OperatorStateBackend()
    restored.restore(before)
    with pytest.raises(StateError, match="operator state 'list' was stored as A"):
        restored.get_list_state(ListStateDescriptor("list"))
    for descriptor in (listed := ListStateDescriptor("list"), rules := MapStateDescriptor("rules")):
        descriptor.enable_migration(rename={"owner": "name"})
    assert [(a.name, a.total) for a in restored.get_list_state(listed).get()] == [("ann", 3)]
    assert restored.get_broadcast_state(rules).get("x").name == "bob"


def test_a_key_may_not_change(define: Define) -> None:
    kept = backend()
    kept.set_current_key(define("frozen", "owner: str")("ann"))
    kept.get_state(ValueStateDescriptor("account")).update(1)
    before = tables_of(kept)
    define("frozen", "owner: str; level: int = 5")
    with pytest.raises(StateError, match="a key's class cannot change"):
        backend(before).get_state(ValueStateDescriptor("account"))


def test_classes_with_hooks_take_care_of_themselves(define: Define) -> None:
    hooks = "def __getstate__(self): return (self.owner,)"
    before = stored(define("plain", f"owner: str; {hooks}")("ann"))
    setter = "def __setstate__(self, state): self.owner, self.level = state[0], 9"
    define("plain", f"owner: str; level: int; {hooks}; {setter}")
    assert backend(before).get_state(described()).value().level == 9


def test_classes_that_count_their_subclasses(define: Define) -> None:
    counted = "def __init_subclass__(cls): raise AssertionError(cls)"
    before = stored(define("plain", f"owner: str; {counted}")("ann"))
    define("plain", f"owner: str; level: int = 5; {counted}")
    assert backend(before).get_state(described()).value().level == 5


def test_a_named_tuple_beside_a_text_of_any_kind(define: Define) -> None:
    before = stored({"make_row": define("tuple", "owner: str; total: int")("ann", 3)})
    define("tuple", "total: int; owner: str")
    assert backend(before).get_state(described()).value()["make_row"].owner == "ann"


def test_a_class_of_the_main_program_is_found_by_the_declared_one() -> None:
    def version(level: str) -> type:
        scope: dict[str, Any] = {"__name__": "__main__"}
        fields = f"    owner: str\n{level}"
        exec(f"{HEADER}@dataclass\nclass Account:\n{fields}", scope)
        made: type = scope["Account"]
        return made

    before = stored(version("")("ann"))
    now = version("    level: int = 2\n")
    found = backend(before).get_state(ValueStateDescriptor("account", now)).value()
    assert type(found) is now
    assert (found.owner, found.level) == ("ann", 2)


ROW = Types.ROW_NAMED(["name", "total", "level"], [Types.STRING(), Types.LONG(), Types.INT()])


def test_rows_of_a_declared_type() -> None:
    before = stored(Row(owner="ann", total=3))
    descriptor = ValueStateDescriptor("account", ROW)
    with pytest.raises(StateError) as refused:
        backend(before).get_state(descriptor)
    assert "Row[owner: str, total: int]" in str(refused.value)
    assert "Row[name: string, total: int64, level: int32]" in str(refused.value)
    descriptor.enable_migration(rename={"owner": "name"})
    found = backend(before).get_state(descriptor).value()
    assert (found.name, found.total, found.level) == ("ann", 3, None), "what is new is null"


def test_rows_that_fit_stay_as_they_are() -> None:
    value = Row("level", "total", "name")(1, 2, "ann")
    assert repr(backend(stored(value)).get_state(ValueStateDescriptor("account", ROW)).value()) == (
        "Row(level=1, total=2, name='ann')"
    )
    pair = ValueStateDescriptor("account", Types.TUPLE([Types.INT(), Types.INT()]))
    assert backend(stored(Row(a=1, b=2))).get_state(pair).value() == Row(a=1, b=2)


def test_a_key_that_cannot_be_read_does_not_matter_to_who_does_not_ask(define: Define) -> None:
    kept = backend()
    kept.set_current_key(define("frozen", "owner: str")("ann"))
    kept.get_state(ValueStateDescriptor("account")).update(1)
    before = tables_of(kept)
    define("frozen", "name: str")
    (carried,) = backend(before).snapshot().tables()
    assert carried.data.equals(before[0].data)


def test_values_that_do_not_fit_the_declared_type_are_refused() -> None:
    before = stored("three")
    with pytest.raises(StateError, match="was stored as str and is declared as int64 now"):
        backend(before).get_state(ValueStateDescriptor("account", Types.LONG()))
    assert (
        backend(stored(3)).get_state(ValueStateDescriptor("account", Types.DOUBLE())).value() == 3
    )
    with pytest.raises(StateError, match="declared as int16 now: it does not fit"):
        backend(stored(1 << 20)).get_state(ValueStateDescriptor("account", Types.SHORT()))


def test_plain_values_are_pickled_as_ever() -> None:
    for value in ([1, "a", None], {"a": (1, 2)}, Row(a=1, b="x")):
        assert dumps(value, "value") == pickle.dumps(value, protocol=5)


# --- random classes against values migrated by hand -----------------------------------------------

NAMES = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=5, unique=True)


@st.composite
def changes(draw: Any) -> tuple[list[str], dict[str, str], list[str], list[str]]:
    """(old fields, renamed ones, dropped ones, new ones)."""
    old = draw(NAMES)
    what = {name: draw(st.sampled_from(["keep", "rename", "drop"])) for name in old}
    rename = {name: name.upper() for name in old if what[name] == "rename"}
    drop = [name for name in old if what[name] == "drop"]
    added = draw(st.lists(st.sampled_from("uvw"), max_size=2, unique=True))
    return old, rename, drop, added


@settings(deadline=None, max_examples=examples(60))
@given(st.sampled_from(sorted(KINDS)), changes(), st.randoms())
def test_any_change(
    kind: str, change: tuple[list[str], dict[str, str], list[str], list[str]], order: Any
) -> None:
    old, rename, drop, added = change
    new = [rename.get(name, name) for name in old if name not in drop] + added
    order.shuffle(new)
    module = sys.modules[MODULE] = ModuleType(MODULE)
    try:
        fields = "; ".join(f"{name}: str" for name in old)
        value = _defined(module, kind, fields)(**{name: f"old {name}" for name in old})
        before = stored([value])
        now = _defined(module, kind, "; ".join(f"{name}: str" for name in new) or "pass")
        defaults = {name: f"new {name}" for name in added}
        if rename or drop or added:
            with pytest.raises(StateError, match="enable_migration"):
                backend(before).get_state(described())
        said = described(rename=rename, defaults=defaults, drop=drop)
        (found,) = backend(before).get_state(said).value()
        back = {target: source for source, target in rename.items()}
        model = {n: defaults.get(n, f"old {back.get(n, n)}") for n in new}
        assert type(found) is now
        assert {name: getattr(found, name) for name in fields_of(now) or ()} == model
    finally:
        del sys.modules[MODULE]
