"""State in RocksDB in a job that starts from another job's checkpoint: what is the same to every
program goes on as it is in the files, and all else is read, and checked, once."""

from __future__ import annotations

import datetime as dt
import enum
import pickle
import sys
import types
import uuid
from collections import namedtuple
from collections.abc import Iterator
from dataclasses import make_dataclass
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from database_kit import Subtasks
from strom import (
    ListStateDescriptor,
    MapStateDescriptor,
    Row,
    StateTtlConfig,
    Types,
    ValueStateDescriptor,
)
from strom.core.errors import StateError, UnfitStateError
from strom.state.key_types import StoredKeyType
from strom.state.rocks.database.layouts import VALUES, together
from strom.state.rocks.database.plain_pickles import is_plain
from strom.state.rocks.database.taken_over import FORMER, OWN, PLAIN, TYPE, goes_on, of_former
from strom.state.rocks.values.declared_layout import declared_layout

PROGRAM = "strom_test_other_programs"
KEYS = range(20)

Pair = namedtuple("Pair", "a b")


class Word(enum.StrEnum):
    A = "a"


class Own:
    pass


def lasting(descriptor: Any, **event: bool) -> Any:
    builder = StateTtlConfig.new_builder(timedelta(days=1))
    if event:
        builder.use_event_time()
    descriptor.enable_time_to_live(builder.build())
    return descriptor


def migrated(descriptor: Any, **said: Any) -> Any:
    descriptor.enable_migration(**said)
    return descriptor


@pytest.fixture(name="job")
def _job(tmp_path: Path) -> Iterator[Subtasks]:
    made = Subtasks(tmp_path)
    made.start()
    yield made
    made.close()


@pytest.fixture(name="program", autouse=True)
def _program() -> Iterator[types.ModuleType]:
    module = sys.modules[PROGRAM] = types.ModuleType(PROGRAM)
    yield module
    del sys.modules[PROGRAM]


def define(program: types.ModuleType, *fields: Any) -> Any:
    """The program's class as it is from now on."""
    program.Account = made = make_dataclass("Account", fields)
    made.__module__ = PROGRAM
    return made


def write(job: Subtasks, descriptor: Any, value: Any) -> None:
    """Under each key; all of it is in RocksDB then."""
    for key in KEYS:
        state = job.of(key).namespaced(descriptor)
        match descriptor:
            case ListStateDescriptor():
                state.add(value)
            case MapStateDescriptor():
                state.put(key, value)
            case _:
                state.update(value)
    job.flush()
    job.checkpoint()


def read(job: Subtasks, descriptor: Any) -> list[Any]:
    found = []
    for key in KEYS:
        state = job.of(key).namespaced(descriptor)
        match descriptor:
            case ListStateDescriptor():
                found += list(state.get())
            case MapStateDescriptor():
                found += list(state.values())
            case _:
                found.append(state.value())
    return found


def decoded(job: Subtasks, descriptor: Any) -> int:
    """How many rows of files are read as tables where the state is asked for."""
    rows = 0
    (backend,) = job.backends
    waiting = backend._waiting

    def counted(name: str, kind: str) -> Any:
        nonlocal rows
        tables = waiting(name, kind)
        rows += sum(table.data.num_rows for table in tables)
        return tables

    backend._waiting = counted
    backend.namespaced(descriptor)
    return rows


PLAIN_VALUES = [
    7,
    147,
    "text",
    "\x93",
    b"\x93" * 99,
    1.5,
    None,
    (1, "a"),
    [1, {"a": {2, 3}}],
    frozenset([1]),
    bytearray(b"\x93"),
    1 + 2j,
    Decimal("1.50"),
    dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    dt.date(2026, 1, 1),
    dt.timedelta(1),
    uuid.UUID(int=147),
    np.int64(147),
    np.arange(3),
    np.array([1, "a"], object),
    Row(a=1, b=["\x93"]),
    [Row(a=Row(b=1)), Row(1, 2)],
]
OTHER_VALUES = [
    Own,
    Own(),
    [1, [Own()]],
    {"a": Own()},
    Row(a=Own()),
    Pair(1, 2),
    Word.A,
    len,
    range(3),
    np.array([Own()], object),
]


def test_what_is_plain() -> None:
    for value in PLAIN_VALUES:
        assert is_plain(pickle.dumps(value, protocol=5)), value
    for value in OTHER_VALUES:
        assert not is_plain(pickle.dumps(value, protocol=5)), value


DESCRIPTORS = [
    ValueStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    lambda name: lasting(ValueStateDescriptor(name)),
    lambda name: lasting(ListStateDescriptor(name)),
    lambda name: lasting(MapStateDescriptor(name)),
]


@pytest.mark.parametrize("make", DESCRIPTORS)
def test_plain_values_go_on_as_they_are(make: Any, job: Subtasks) -> None:
    """None is decoded, by as many jobs as there are."""
    write(job, make("s"), ["\x93", 1])
    for _ in range(2):
        job.start(same_program=False)
        assert decoded(job, make("s")) == 0
        assert job.backends[0]._database.waiting == {}
        job.checkpoint()
    assert read(job, make("s")) == [["\x93", 1]] * len(KEYS)


@pytest.mark.parametrize("make", DESCRIPTORS)
@pytest.mark.parametrize("at", ["before", "behind"])
def test_one_other_value_has_all_of_them_read(make: Any, at: str, job: Subtasks) -> None:
    """Also where it is written behind a restore that has read nothing."""
    if at == "before":
        job.of(3).namespaced(make("s"))
        write(job, make("s"), 1)
        _one_other(job, make("s"))
    else:
        write(job, make("s"), 1)
        job.start(same_program=False)
        _one_other(job, make("s"))
    job.start(same_program=True)
    assert decoded(job, make("s")) == 0
    job.checkpoint()
    job.start(same_program=False)
    assert decoded(job, make("s")) >= len(KEYS)


def _one_other(job: Subtasks, descriptor: Any) -> None:
    state = job.of(3).namespaced(descriptor)
    match descriptor:
        case ListStateDescriptor():
            state.add(Word.A)
        case MapStateDescriptor():
            state.put(Word.A, 1)
        case _:
            state.update(Word.A)
    job.flush()
    job.checkpoint()


def test_keys_and_namespaces_count_as_well(job: Subtasks) -> None:
    descriptor = ValueStateDescriptor("s")
    for key in (Pair(1, 2), 7):
        for space in (None, (0, 10)):
            job.of(key).namespaced(descriptor).of(space).update(1)
    job.flush()
    job.checkpoint()
    job.start(same_program=False)
    assert decoded(job, descriptor) == 4


def test_timers_go_on_as_they_are(job: Subtasks) -> None:
    for name, space in (("plain", (0, 10)), ("others", Word.A)):
        job.of(0).timers(name).register(5, 0)  # what is due first stays in memory
        for key in KEYS:
            job.of(key).timers(name).register(10, key, space)
    job.flush()
    job.checkpoint()
    job.start(same_program=False)
    (backend,) = job.backends
    assert {*backend._database.waiting} == {"plain", "others"}
    inherited, as_tables = backend._inherited, []
    backend._inherited = lambda state: as_tables.append(state.name) or inherited(state)
    for name, space in (("plain", (0, 10)), ("others", Word.A)):
        queue, found = backend.timers(name), []
        while (timer := queue.pop_due(10)) is not None:
            found.append(timer)
        assert sorted(found) == [(5, 0, None), *((10, key, space) for key in KEYS)]
    assert as_tables == ["others"]


ROW = Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.STRING()])
RENAMED = Types.ROW_NAMED(["a", "c"], [Types.LONG(), Types.STRING()])
TUPLE = Types.TUPLE([Types.LONG(), Types.STRING()])


@pytest.mark.parametrize(
    ("before", "now", "value", "wanted"),
    [
        (int, int, 7, 7),
        (None, int, 7, 7),
        (int, None, 7, 7),
        (int, float, 7, 7),
        (int, str, 7, "declared as string"),
        (None, str, 7, "declared as string"),
        (ROW, ROW, Row(a=1, b="x"), Row(a=1, b="x")),
        (ROW, RENAMED, Row(a=1, b="x"), "'b'. are not declared"),
        (ROW, TUPLE, (1, "x"), (1, "x")),
        (ROW, RENAMED, {"a": 1, "b": "x"}, "'b'. are not declared"),
    ],
)
@pytest.mark.parametrize("kind", [ValueStateDescriptor, ListStateDescriptor])
def test_another_type_is_looked_at(
    before: Any, now: Any, value: Any, wanted: Any, kind: Any, job: Subtasks
) -> None:
    write(job, kind("s", before), value)
    job.start(same_program=False)
    if isinstance(wanted, str):
        with pytest.raises(StateError, match=wanted):
            job.backends[0].namespaced(kind("s", now))
        return
    assert decoded(job, kind("s", now)) == (0 if before is now else len(KEYS))
    assert read(job, kind("s", now)) == [wanted] * len(KEYS)


def test_types_of_map_keys_and_values_are_apart(job: Subtasks) -> None:
    write(job, MapStateDescriptor("s", int, None), 7)
    job.start(same_program=False)
    assert decoded(job, MapStateDescriptor("s", None, int)) == len(KEYS)
    job.start(same_program=False)
    with pytest.raises(StateError, match="map key"):
        job.backends[0].namespaced(MapStateDescriptor("s", str, None))


def test_renamed_fields_of_plain_rows_are_renamed(job: Subtasks) -> None:
    write(job, ValueStateDescriptor("s", ROW), Row(a=1, b="x"))
    job.start(same_program=False)
    found = read(job, migrated(ValueStateDescriptor("s", RENAMED), rename={"b": "c"}))
    assert found == [Row(a=1, c="x")] * len(KEYS)


def test_a_program_that_speaks_of_changes_has_all_read(job: Subtasks) -> None:
    write(job, ValueStateDescriptor("s", ROW), Row(a=1, b="x"))
    job.start(same_program=False)
    assert decoded(job, migrated(ValueStateDescriptor("s", ROW), drop=["c"])) == len(KEYS)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (ValueStateDescriptor("s"), lasting(ValueStateDescriptor("s"))),
        (lasting(ValueStateDescriptor("s")), ValueStateDescriptor("s")),
    ],
)
def test_state_that_expires_from_now_on_or_no_more(before: Any, now: Any, job: Subtasks) -> None:
    write(job, before, 7)
    job.start(same_program=False)
    assert decoded(job, now) == len(KEYS)
    assert read(job, now) == [7] * len(KEYS)


def test_stamps_of_the_other_time_are_refused(job: Subtasks) -> None:
    write(job, lasting(ValueStateDescriptor("s")), 7)
    job.start(same_program=False)
    with pytest.raises(StateError, match="time"):
        job.backends[0].namespaced(lasting(ValueStateDescriptor("s"), event=True))


def test_another_kind_of_state_is_refused(job: Subtasks) -> None:
    write(job, ValueStateDescriptor("s"), 7)
    job.start(same_program=False)
    with pytest.raises(StateError, match="'value' state and is asked for as a 'list'"):
        job.backends[0].namespaced(ListStateDescriptor("s"))


def test_a_class_that_has_changed_is_migrated_or_refused(
    job: Subtasks, program: types.ModuleType
) -> None:
    account = define(program, ("owner", str))
    write(job, ValueStateDescriptor("s"), account("Ann"))
    account = define(program, ("name", str))
    job.start(same_program=False)
    with pytest.raises(StateError, match=r"owner(.|\n)*name"):
        job.backends[0].namespaced(ValueStateDescriptor("s"))
    job.start(same_program=False)
    found = read(job, migrated(ValueStateDescriptor("s"), rename={"owner": "name"}))
    assert found == [account("Ann")] * len(KEYS)


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_state_that_a_job_has_not_asked_for_is_read_behind_its_restart(
    parallelism: int, job: Subtasks, program: types.ModuleType
) -> None:
    """The files are of a checkpoint of the same program, but it has never seen the values."""
    account = define(program, ("owner", str))
    write(job, ValueStateDescriptor("s"), account("Ann"))
    write(job, ValueStateDescriptor("t", int), 7)
    account = define(program, ("name", str))
    job.start(2, same_program=False)
    said = migrated(ValueStateDescriptor("s"), rename={"owner": "name"})
    if parallelism == 1:  # one of two former subtasks has asked
        job.backends[0].namespaced(said)
    job.checkpoint()
    job.start(parallelism, same_program=True)
    assert read(job, said) == [account("Ann")] * len(KEYS)
    with pytest.raises(StateError, match="declared as string"):
        job.backends[0].namespaced(ValueStateDescriptor("t", str))


def test_of_several_databases_what_is_known_least_counts() -> None:
    asked = {"layout": "entries", **declared_layout(ValueStateDescriptor("s", int))}
    own, former = {**asked, VALUES: OWN}, {**asked, VALUES: FORMER}
    assert together([asked, own]) == together([own, asked]) == own
    assert together([asked, former, own]) == former
    assert together([asked, {"layout": "entries"}]) is None
    assert together([asked, {**asked, TYPE: ""}]) is None


def test_layouts_of_before_say_nothing_of_their_values() -> None:
    asked, before = {"layout": "entries", TYPE: "", VALUES: PLAIN}, {"layout": "entries"}
    assert goes_on(before, asked, same_program=False) is None
    assert goes_on(before, asked, same_program=True) == {**asked, VALUES: OWN}
    assert goes_on(of_former(before), asked, same_program=True) is None
    assert goes_on({"layout": "lists"}, asked, same_program=True) is None
    table = {"layout": "slots", "keys": "k"}
    assert goes_on(of_former(table), table, same_program=False) == table


def test_types_are_told_with_the_marks_of_their_fields() -> None:
    row = pa.struct([("a", pa.int64()), ("b", pa.string())])
    kinds = [None, row, TUPLE, ROW, RENAMED, int, str, Types.BIG_DEC(), pa.large_string()]
    texts = [declared_layout(ValueStateDescriptor("s", kind))[TYPE] for kind in kinds]
    assert texts[1] == texts[3]
    assert len(set(texts)) == len(texts) - 1
    assert declared_layout(ValueStateDescriptor("s", Own))[TYPE] == texts[0] == ""


@pytest.mark.parametrize(
    ("keys", "other", "refused"),
    [
        ([None], "a", False),
        ([None, *KEYS], "a", True),
        ([*KEYS, *((n, "x") for n in KEYS)], "a", False),
    ],
)
def test_types_of_keys_are_told_from_several_rows(
    job: Subtasks, keys: list[Any], other: Any, refused: bool
) -> None:
    for key in keys:
        job.of(key).get_state(ValueStateDescriptor("held")).update(1)
        job.of(key).timers("due").register(1000, key)
    job.flush()
    job.checkpoint()
    job.start(same_program=False)
    (backend,) = job.backends
    samples = backend.inherited_samples()
    assert [one.name for one in samples] == ["held"]
    for tables in (samples, job.tables()):  # also as pickles, of the timers
        stored = StoredKeyType.of(tables)
        if refused:
            assert stored is not None
            with pytest.raises(UnfitStateError, match="of type int and keys are of type str"):
                stored.check([other])
        else:
            assert stored is None
