"""Tables that a stream writes: exactly once, or by key, whatever stops in between."""

from __future__ import annotations

import random
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from postgres_kit import Database, new_database, prepare, until, writer
from strom.connectors.postgres import PostgresConnection, PostgresSink, PostgresUpsertSink
from strom.core.batch import ColumnBatch
from strom.core.errors import ConfigurationError, ConnectorError, TypeMismatchError
from strom.core.row_kind import ROW_KIND, ROW_KIND_FIELD
from strom.testing.equivalence import Ways, assert_files_equivalent
from strom.testing.postgres import PostgresServer
from strom.testing.scripted import ScriptedSource

pytestmark = pytest.mark.postgres

SCHEMA = pa.schema([("n", pa.int64())])
PAIRS = pa.schema([("k", pa.int64()), ("v", pa.string())])


@pytest.fixture
def numbers(database: Database) -> Database:
    database.run("CREATE TABLE numbers (n bigint)")
    return database


@pytest.fixture
def pairs(database: Database) -> Database:
    database.run("CREATE TABLE pairs (k bigint PRIMARY KEY, v text, at timestamptz DEFAULT now())")
    return database


def batch(*numbers: int) -> ColumnBatch:
    return ColumnBatch(pa.RecordBatch.from_pydict({"n": list(numbers)}, schema=SCHEMA))


def changes(*rows: tuple[Any, ...]) -> ColumnBatch:
    """(k, v) inserts, (k, v, kind) says what it is."""
    columns = list(zip(*(row if len(row) == 3 else (*row, 0) for row in rows), strict=True))
    schema = PAIRS.append(ROW_KIND_FIELD)
    named = dict(zip(schema.names, map(list, columns), strict=True))
    return ColumnBatch(pa.RecordBatch.from_pydict(named, schema=schema))


def stages(database: Database) -> list[str]:
    query = "SELECT relname FROM pg_class WHERE starts_with(relname, 'strom_stage') ORDER BY 1"
    return [name for (name,) in database.run(query)]


def found(database: Database, table: str = "numbers") -> list[int]:
    return [row[0] for row in database.table(table)]


def exactly_once(database: Database, **more: Any) -> PostgresSink:
    return PostgresSink(database.conninfo, "numbers", **more)


# --- exactly once --------------------------------------------------------------------------------


def test_invisible_until_committed(numbers: Database) -> None:
    made = writer(exactly_once(numbers, batch_rows=2))
    made.write(batch(1, 2))
    made.write(batch(3))
    committables = prepare(made, 7)
    made.write(batch(4, 5))
    assert found(numbers) == []
    assert [c.rows for c in committables] == [3]
    made.commit(committables)
    assert found(numbers) == [1, 2, 3]
    made.commit(prepare(made, 8))
    assert found(numbers) == [1, 2, 3, 4, 5]
    assert prepare(made, 9) == []
    made.write(batch(6, 7))
    until(lambda: stages(numbers), "a staging table")
    made.close()
    assert stages(numbers) == [], "what nobody will publish is dropped"
    assert numbers.one("SELECT count(*) FROM strom_commits") == 2


def test_committing_twice_is_committing_once(numbers: Database) -> None:
    made = writer(exactly_once(numbers))
    made.write(batch(1))
    committables = prepare(made, 1)
    for _ in range(3):
        made.commit(committables)
    made.close()
    again = writer(exactly_once(numbers), attempt=1)
    again.recover(committables)
    again.close()
    assert found(numbers) == [1]


def test_two_that_commit_at_once(numbers: Database) -> None:
    """One thought dead goes on while its successor recovers."""
    made = writer(exactly_once(numbers))
    made.write(batch(*range(1000)))
    committables = prepare(made, 1)
    others = [writer(exactly_once(numbers), attempt=n) for n in range(1, 4)]
    threads = [threading.Thread(target=o.recover, args=(committables,)) for o in others]
    for thread in threads:
        thread.start()
    made.commit(committables)
    for thread in threads:
        thread.join()
    for one in (made, *others):
        one.close()
    assert found(numbers) == sorted(range(1000), key=lambda n: repr((n,)))


def test_a_staging_table_that_is_gone_or_altered(numbers: Database) -> None:
    made = writer(exactly_once(numbers))
    made.write(batch(1))
    (gone,) = prepare(made, 1)
    made.write(batch(2))
    (altered,) = prepare(made, 2)
    numbers.run(f"DROP TABLE {gone.stage}", f"DELETE FROM {altered.stage}")
    with pytest.raises(ConnectorError, match=r"neither is staging table strom_stage_.* lost"):
        made.commit([gone])
    made.close()
    made = writer(exactly_once(numbers), attempt=1, parallelism=2)
    with pytest.raises(ConnectorError, match="has 0 rows, and the checkpoint says 1"):
        made.recover([altered])
    made.close()
    assert found(numbers) == []


def test_leftovers_of_a_dead_attempt_are_removed(numbers: Database) -> None:
    #  attempt 0:  1 |ckpt 1: done|  2 |ckpt 2: prepared, never completed|  3 crash
    dead = writer(exactly_once(numbers, batch_rows=1))
    dead.write(batch(1))
    first = prepare(dead, 1)
    dead.write(batch(2))
    prepare(dead, 2)
    dead.write(batch(3))
    until(lambda: len(stages(numbers)) == 3, "three staging tables")
    dead._worker.close()
    made = writer(exactly_once(numbers), attempt=1)
    made.recover(first)
    made.close()
    assert found(numbers) == [1]
    assert stages(numbers) == []


def test_a_rescale_keeps_others_committables_and_leaves_no_orphans(numbers: Database) -> None:
    #  4 subtasks die with prepared (in checkpoint 1) and open tables; 2 take over, in any order
    held = []
    for subtask in range(4):
        dead = writer(exactly_once(numbers, batch_rows=1), subtask, 4)
        dead.write(batch(subtask))
        held += prepare(dead, 1)
        dead.write(batch(100 + subtask))
        until(lambda n=subtask: len(stages(numbers)) == 2 * (n + 1), "the staging tables")
        dead._worker.close()
    made = [writer(exactly_once(numbers), i, 2, 1) for i in range(2)]
    made[1].recover(held[:3])
    made[0].recover(held[3:])
    assert found(numbers) == [0, 1, 2, 3]
    for one in made:
        one.write(batch(50))
        one.commit(prepare(one, 2))
        one.close()
    assert found(numbers) == [0, 1, 2, 3, 50, 50]
    assert stages(numbers) == []


def test_a_lost_connection_neither_loses_nor_doubles(numbers: Database) -> None:
    made = writer(exactly_once(numbers, batch_rows=10))
    draw = random.Random(1)
    for checkpoint in range(1, 9):
        for n in range(5):
            made.write(batch(*range(checkpoint * 1000 + n * 10, checkpoint * 1000 + n * 10 + 10)))
            if draw.random() < 0.4:
                numbers.terminate()
        committables = prepare(made, checkpoint)
        if draw.random() < 0.5:
            numbers.terminate()
        made.commit(committables)
    made.close()
    expected = [c * 1000 + n for c in range(1, 9) for n in range(50)]
    assert sorted(found(numbers)) == expected


def test_the_equivalence_harness(database: Database) -> None:
    def build(env: Any, folder: Path) -> None:
        table = f'"{folder.name}"'
        database.run(f"CREATE TABLE IF NOT EXISTS {table} (k bigint, v text)")
        lanes = [[(lane * 100 + n, f"v{n}") for n in range(25)] for lane in range(3)]
        stream = env.from_source(ScriptedSource(lanes, PAIRS), source_name="lanes").uid("lanes")
        stream.sink_to(PostgresSink(database.conninfo, table, batch_rows=4)).uid("table")

    def read(folder: Path) -> list[Any]:
        return database.table(f'"{folder.name}"')

    expected = [(lane * 100 + n, f"v{n}") for lane in range(3) for n in range(25)]
    ways = Ways(seeds=range(2))
    assert_files_equivalent(build, read, expected, ways)


# --- by key --------------------------------------------------------------------------------------


BOTH = pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])


def upserts(database: Database, guarantee: Any = "exactly_once", **more: Any) -> PostgresUpsertSink:
    return PostgresUpsertSink(database.conninfo, "pairs", "k", guarantee, **more)


def complete(made: Any, checkpoint_id: int) -> None:
    """A checkpoint is taken and completes."""
    made.commit(prepare(made, checkpoint_id))


def held(database: Database) -> dict[int, str]:
    return dict(database.run("SELECT k, v FROM pairs"))


@BOTH
@pytest.mark.parametrize("batch_rows", [1, 100])
def test_the_last_change_of_a_key_counts(pairs: Database, guarantee: Any, batch_rows: int) -> None:
    made = writer(upserts(pairs, guarantee, batch_rows=batch_rows))
    made.write(changes((1, "a"), (2, "b"), (1, "c", 2)))
    complete(made, 1)
    assert held(pairs) == {1: "c", 2: "b"}
    made.write(changes((1, "c", 1), (1, "d", 2), (2, "b", 3), (3, "x"), (3, "x", 3), (3, "y")))
    made.write(changes((4, "z"), (4, "z", 3)))
    complete(made, 2)
    assert held(pairs) == {1: "d", 3: "y"}
    made.write(changes((3, "y", 1), (5, "y", 2)))  # an update that changes the key
    made.write(changes((1, "d", 3)))
    made.write(changes((1, "e")))
    complete(made, 3)
    made.close()
    assert held(pairs) == {1: "e", 5: "y"}
    assert stages(pairs) == []


@BOTH
def test_streams_that_only_insert_replace_rows(pairs: Database, guarantee: Any) -> None:
    made = writer(upserts(pairs, guarantee, batch_rows=3))
    for value in ("a", "b"):
        rows = {"k": [1, 2, 3, 1], "v": [value, value, value, f"{value}!"]}
        made.write(ColumnBatch(pa.RecordBatch.from_pydict(rows, schema=PAIRS)))
    complete(made, 1)
    made.close()
    assert held(pairs) == {1: "b!", 2: "b", 3: "b"}
    assert pairs.one("SELECT count(at) FROM pairs") == 3


@BOTH
def test_random_changelogs_replayed_and_interrupted(pairs: Database, guarantee: Any) -> None:
    draw = random.Random(7)
    model: dict[int, str] = {}
    log: list[tuple[Any, ...]] = []
    for n in range(600):
        key = draw.randrange(40)
        if key in model and draw.random() < 0.3:
            log.append((key, model.pop(key), 3))
        elif key in model:
            log += [(key, model[key], 1), (key, f"v{n}", 2)]
            model[key] = f"v{n}"
        else:
            log.append((key, f"v{n}", 0))
            model[key] = f"v{n}"
    at = 0
    for attempt in range(5):
        made = writer(upserts(pairs, guarantee, batch_rows=23), attempt=attempt)
        if attempt:
            made.recover([])
        ends = [len(log)] if attempt == 4 else [at + 120, at + 170]  # a checkpoint, then a failure
        start = at
        for end in ends:
            for row in range(start, end, 9):
                made.write(changes(*log[row : min(row + 9, end)]))
                if draw.random() < 0.1:
                    pairs.terminate()
            if end == ends[0]:
                complete(made, attempt)
                at = end
            start = end
        made.close()
    assert held(pairs) == model
    assert stages(pairs) == []


def test_no_older_change_is_published_over_a_newer_one(pairs: Database) -> None:
    """Checkpoint 1 did not complete, 2 did; then two new subtasks share what was prepared."""
    dead = writer(upserts(pairs))
    dead.write(changes((1, "old"), (2, "old")))
    first = prepare(dead, 1)
    dead.write(changes((1, "new"), (2, "old", 3)))
    second = prepare(dead, 2)
    dead.close()
    one, other = (writer(upserts(pairs), i, 2, 1) for i in range(2))
    one.recover(second)
    other.recover(first)
    for made in (one, other):
        made.close()
    assert held(pairs) == {1: "new"}


@BOTH
def test_a_key_of_two_columns_and_nothing_else(database: Database, guarantee: Any) -> None:
    database.run("CREATE TABLE pairs (k bigint, v text, PRIMARY KEY (v, k))")
    made = writer(PostgresUpsertSink(database.conninfo, "pairs", ["k", "v"], guarantee))
    made.write(changes((1, "a"), (1, "b"), (1, "a", 2), (1, "b", 3)))
    made.write(changes((1, "a"), (2, "c")))
    complete(made, 1)
    made.close()
    assert database.table("pairs") == [(1, "a"), (2, "c")]


@BOTH
def test_subtasks_that_meet_do_not_stop_each_other(pairs: Database, guarantee: Any) -> None:
    """Keys in opposite orders, which would deadlock if they were written in these."""
    writers = [writer(upserts(pairs, guarantee, batch_rows=50), i, 2) for i in range(2)]

    def write(index: int) -> None:
        keys = range(200) if index else range(199, -1, -1)
        for checkpoint in range(5):
            writers[index].write(changes(*((k, f"w{index}") for k in keys)))
            complete(writers[index], checkpoint)

    threads = [threading.Thread(target=write, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one in writers:
        one.close()
    assert set(held(pairs)) == set(range(200))


# --- what cannot be written ----------------------------------------------------------------------


def failure(made: Any, *batches: ColumnBatch) -> str:
    try:
        for one in batches:
            made.write(one)
        committables = prepare(made, 1)
        made.commit(committables)
    except (ConnectorError, TypeMismatchError) as error:
        return str(error)
    finally:
        made.close()
    raise AssertionError("it was written")


def test_wrong_tables(numbers: Database) -> None:
    def said(sink: Any) -> str:
        return failure(writer(sink), batch(1))

    info = numbers.conninfo
    assert "there is no table nowhere" in said(PostgresSink(info, "nowhere"))
    numbers.run("CREATE TABLE other (x int)", "CREATE VIEW shown AS SELECT * FROM numbers")
    for guarantee in ("exactly_once", "at_least_once"):
        assert "has no columns ['n'], only ['x']" in said(PostgresSink(info, "other", guarantee))
        assert "is no table" in said(PostgresSink(info, "shown", guarantee))
    assert "unique constraint on exactly its key columns" in said(
        PostgresUpsertSink(info, "numbers", "n")
    )
    assert "has no key columns ['x']" in said(PostgresUpsertSink(info, "numbers", "x"))


def test_constraints_and_values(pairs: Database) -> None:
    pairs.run("ALTER TABLE pairs ADD CHECK (k < 100)", "INSERT INTO pairs VALUES (1, 'there')")
    info = pairs.conninfo
    plain = pa.RecordBatch.from_pydict({"k": [1], "v": ["x"]}, schema=PAIRS)
    for guarantee in ("exactly_once", "at_least_once"):
        text = failure(writer(PostgresSink(info, "pairs", guarantee)), ColumnBatch(plain))
        assert "pairs_pkey" in text
        assert "an upsert replaces them" in text
    assert "pairs_k_check" in failure(writer(upserts(pairs)), changes((100, "x")))
    assert "character NUL" in failure(writer(upserts(pairs)), changes((2, "\0")))
    assert "key column 'k' holds a null" in failure(writer(upserts(pairs)), changes((None, "x")))
    assert held(pairs) == {1: "there"}


@BOTH
def test_after_a_failure_nothing_is_written(pairs: Database, guarantee: Any) -> None:
    """Later changes must not overtake those that failed."""
    made = writer(upserts(pairs, guarantee, batch_rows=1))

    def write_all() -> None:
        for n in range(20):
            made.write(changes((n, "\0" if n == 2 else "x")))

    with pytest.raises(ConnectorError, match="NUL"):
        write_all()
    with pytest.raises(ConnectorError, match="NUL"):
        prepare(made, 1)
    made.close()
    assert set(held(pairs)) <= {0, 1}


def test_a_changelog_is_no_stream_of_inserts(pairs: Database) -> None:
    made = writer(PostgresSink(pairs.conninfo, "pairs"))
    with pytest.raises(TypeMismatchError, match=f"changelog .*{ROW_KIND}"):
        made.write(changes((1, "a")))
    made.close()


def test_a_server_that_is_not_there() -> None:
    connection = PostgresConnection(
        "host=127.0.0.1 port=1 dbname=x", password="s3cr3t", patience=timedelta(milliseconds=200)
    )
    text = failure(writer(PostgresSink(connection, "numbers")), batch(1))
    assert text.startswith("cannot write to table numbers (PostgreSQL host=127.0.0.1")
    assert "s3cr3t" not in text


@pytest.mark.parametrize("keys", [False, True])
def test_a_server_that_is_killed(own_server: PostgresServer, keys: bool) -> None:
    with new_database(own_server, f"killed_{int(keys)}") as database:
        database.run("CREATE TABLE numbers (n bigint PRIMARY KEY)")
        sink: Any = PostgresSink(database.conninfo, "numbers", batch_rows=10)
        if keys:
            sink = PostgresUpsertSink(database.conninfo, "numbers", "n", batch_rows=10)
        made = writer(sink)
        for checkpoint in range(3):
            first = checkpoint * 100
            for n in range(first, first + 100, 10):
                made.write(batch(*range(n, n + 10)))
                if n == first + 50 and checkpoint < 2:
                    own_server.kill()
                    threading.Timer(0.3, own_server.start).start()
            complete(made, checkpoint)
        made.close()
        assert sorted(found(database)) == list(range(300))
        assert stages(database) == []


def test_a_declared_schema_and_a_changelog(pairs: Database) -> None:
    schema = pa.schema([("k", pa.int32()), ("v", pa.string())])
    made = writer(upserts(pairs, schema=schema))
    made.write(changes((1, "a"), (2, "b"), (1, "a", 3)))
    complete(made, 1)
    made.close()
    assert held(pairs) == {2: "b"}


def test_wrong_settings(numbers: Database) -> None:
    with pytest.raises(ConfigurationError, match="batch_rows"):
        PostgresSink("", "numbers", batch_rows=0)
    with pytest.raises(ConfigurationError, match="guarantee"):
        PostgresSink("", "numbers", "twice")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="key must name"):
        PostgresUpsertSink("", "numbers", [])
    with pytest.raises(ConfigurationError, match="table must be"):
        PostgresSink("", "")
    with pytest.raises(ConfigurationError, match="connection must be"):
        PostgresSink(7, "numbers")  # type: ignore[arg-type]
