"""A job stopped with a checkpoint, and gone on with a changed program at another parallelism."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from strom import (
    CheckpointConfig,
    DataStream,
    ExternalizedCheckpointRetention,
    FixedDelayRestart,
    JobConfig,
    JobFailedError,
    KeyedProcessFunction,
    NoRestart,
    RuntimeContext,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)
from strom.connectors.datagen import DataGenSource

MODULE = "accounts_of_a_changed_program"
HEADER = "from dataclasses import dataclass\n"
FIRST = "@dataclass\nclass Account:\n    owner: int\n    total: int\n    note: str\n"
SECOND = "@dataclass\nclass Account:\n    total: float\n    user: int\n    level: int = 7\n"

USERS, COUNT = 5, 6_000


def numbers(start: int, count: int) -> list[int]:
    return list(range(start, start + count))


def columns(start: int, count: int) -> pa.RecordBatch:
    rows = numbers(start, count)
    return pa.record_batch({"user": [n % USERS for n in rows], "n": pa.array(rows, pa.int32())})


class Stop:
    """Raises once there is a checkpoint that is not of the beginning."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, record: Any) -> Any:
        n = record if isinstance(record, int) else record.n
        if n > COUNT // 3:
            time.sleep(0.001)  # the source goes on so slowly that a checkpoint comes meanwhile
            if len(list(self.folder.glob("*/chk-*/manifest.json"))) and n > COUNT // 2:
                raise ValueError("it stops here")
        return record


@pytest.fixture
def module() -> Iterator[ModuleType]:
    made = sys.modules[MODULE] = ModuleType(MODULE)
    exec(HEADER + FIRST, made.__dict__)
    yield made
    del sys.modules[MODULE]


def stopped(folder: Path, build: Any) -> str:
    """Run a program until it stops; its checkpoint's folder."""
    keep = ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
    checkpoint = CheckpointConfig(timedelta(milliseconds=20), str(folder), retention=keep)
    config = JobConfig(checkpoint=checkpoint, restart=NoRestart(), parallelism=2, batch_size=50)
    env = StreamExecutionEnvironment.get_execution_environment(config)
    with pytest.raises(JobFailedError, match="it stops here"):
        list(build(env, Stop(folder)).execute_and_collect())
    newest = max(folder.glob("*/chk-*"), key=lambda path: int(path.name[4:]))
    return str(newest)


def gone_on(point: str, build: Any, **settings: Any) -> list[Any]:
    config = JobConfig(restore_from=point, **{"restart": NoRestart(), "parallelism": 3} | settings)
    env = StreamExecutionEnvironment.get_execution_environment(config)
    return list(build(env, lambda record: record).execute_and_collect())


class Totals(KeyedProcessFunction):
    """`make(user)`: a new account. `said`: of its migration."""

    def __init__(self, make: Any, **said: Any) -> None:
        self.make = make
        self.said = said

    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = ValueStateDescriptor("account")
        descriptor.enable_migration(**self.said)
        self.account = runtime_context.get_state(descriptor)

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        account = self.account.value() or self.make(value % USERS)
        account.total += value
        self.account.update(account)
        yield vars(account).copy()


def accounts(function: KeyedProcessFunction) -> Any:
    def build(env: StreamExecutionEnvironment, stop: Any) -> DataStream:
        source = env.from_source(DataGenSource(numbers, COUNT)).uid("numbers")
        kept = source.map(stop).key_by(lambda n: n % USERS).process(function)
        return kept.uid("accounts")

    return build


def test_a_dataclass_that_changed(module: ModuleType, tmp_path: Path) -> None:
    point = stopped(tmp_path, accounts(Totals(lambda user: module.Account(user, 0, "-"))))
    exec(HEADER + SECOND, module.__dict__)
    make = Totals(lambda user: module.Account(0.0, user))
    with pytest.raises(JobFailedError) as refused:
        gone_on(point, accounts(make))
    for part in (
        "'account' was stored as Account[owner: int, total: int, note: str]",
        "is Account[total: float, user: int, level: int] now",
        "['note', 'owner'] are no fields any more",
    ):
        assert part in str(refused.value)
    said = Totals(make.make, rename={"owner": "user"}, drop=["note"])
    # what the first program had not yet published comes first
    found = [one for one in gone_on(point, accounts(said)) if "owner" not in one]
    last = {one["user"]: one for one in found}
    totals: dict[int, int] = defaultdict(int)
    for n in range(COUNT):
        totals[n % USERS] += n
    assert {user: one["total"] for user, one in last.items()} == totals
    assert all(set(one) == {"total", "user", "level"} and one["level"] == 7 for one in found)


def latest(changed: bool) -> Any:
    """The last record of each user; the changed program's have doubles for n, and a color."""

    def build(env: StreamExecutionEnvironment, stop: Any) -> DataStream:
        first = Types.ROW_NAMED(["user", "n"], [Types.LONG(), Types.INT()])
        names = ["user", "amount", "color"]
        second = Types.ROW_NAMED(names, [Types.LONG(), Types.DOUBLE(), Types.STRING()])
        source = env.from_source(DataGenSource(columns, COUNT)).uid("columns")
        if not changed:
            kept = source.map(stop, output_type=first).key_by("user").deduplicate("last")
            return kept.uid("latest")

        def now(record: Any) -> Any:
            return record.user, float(record.n), "red"

        kept = source.map(now, output_type=second).key_by("user").deduplicate("last")
        return kept.uid("latest").migrate_state(
            rename={"n": "amount"},
            types={"amount": Types.DOUBLE()},
            defaults={"color": "none"},
        )

    return build


def test_records_of_an_operator_that_changed(tmp_path: Path) -> None:
    point = stopped(tmp_path, latest(False))
    found = [row for row in gone_on(point, latest(True)) if "n" not in row]
    per_user: dict[int, list[Any]] = defaultdict(list)
    for row in found:
        per_user[row.user].append(row)
    assert len(per_user) == USERS
    for user, rows in per_user.items():
        first = rows[0]
        assert first["__row_kind"] == 1, "what the first program had is taken back"
        assert (first.user, first.color) == (user, "none")
        assert isinstance(first.amount, float)
        assert (rows[-1].amount, rows[-1].color) == (float(COUNT - USERS + user), "red")


class Counted(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.count.update((self.count.value() or 0) + 1)
        yield self.count.value()


def test_what_is_said_of_state_that_is_not_there_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, not by each subtask; and not of what is there."""

    def counted(said: Any = lambda stream: stream) -> Any:
        def build(env: StreamExecutionEnvironment, stop: Any) -> DataStream:
            source = env.from_source(DataGenSource(numbers, COUNT)).uid("numbers")
            return said(
                source.map(stop).key_by(lambda n: n % USERS).process(Counted()).uid("counted")
            )

        return build

    point = stopped(tmp_path, counted())
    caplog.clear()
    for name in (None, "count"):
        gone_on(point, counted(lambda stream, n=name: stream.migrate_state(n, defaults={"a": 1})))
    assert "migrate_state" not in caplog.text
    gone_on(point, counted(lambda stream: stream.migrate_state("cuont", defaults={"a": 1})))
    assert caplog.text.count("no state 'cuont' (did you mean 'count'?) of this operator") == 1
    assert "it holds ['count']" in caplog.text
    caplog.clear()

    def of_the_map(env: StreamExecutionEnvironment, stop: Any) -> DataStream:
        source = env.from_source(DataGenSource(numbers, COUNT)).uid("numbers")
        mapped = source.map(stop).migrate_state(rename={"a": "b"})
        return mapped.key_by(lambda n: n % USERS).process(Counted()).uid("counted")

    gone_on(point, of_the_map)
    assert caplog.text.count("holds no state of this operator") == 1
    assert "(counted)" in caplog.text


def test_keys_of_another_type_are_refused_in_another_job_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A job's own keys may be of several types, and of others first behind a restart. What is
    refused is refused for good: an attempt from the new job's own checkpoint would not notice."""

    def keyed(key: Any) -> Any:
        def build(env: StreamExecutionEnvironment, stop: Any) -> DataStream:
            source = env.from_source(DataGenSource(numbers, COUNT)).uid("numbers")
            return source.map(stop).key_by(key).process(Counted()).uid("counted")

        return build

    point = stopped(tmp_path, keyed(lambda n: n % USERS))
    with pytest.raises(JobFailedError, match="type int and keys are of type str now"):
        gone_on(
            point,
            keyed(lambda n: str(n % USERS)),
            checkpoint=CheckpointConfig(timedelta(milliseconds=1), str(tmp_path / "other")),
            restart=FixedDelayRestart(3, timedelta(milliseconds=1)),
        )
    assert "restart 1" not in caplog.text

    checkpoint = CheckpointConfig(timedelta(milliseconds=20), str(tmp_path / "own"))
    config = JobConfig(checkpoint=checkpoint, batch_size=50)
    env = StreamExecutionEnvironment.get_execution_environment(config)
    failed = tmp_path / "failed"

    def once(n: int) -> int:
        stop = Stop(tmp_path / "own")
        try:
            return stop(n) if not failed.exists() else n
        except ValueError:
            failed.touch()
            raise

    def mixed(n: int) -> Any:
        return n % USERS if n < COUNT // 2 else str(n % USERS)

    source = env.from_source(DataGenSource(numbers, COUNT)).map(once)
    found = list(source.key_by(mixed).process(Counted()).execute_and_collect())
    assert failed.exists()
    assert sorted(found) == sorted(2 * USERS * list(range(1, COUNT // 2 // USERS + 1)))
