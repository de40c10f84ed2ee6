"""Changes of a real table: all of them, once, in order, whatever stops in between."""

from __future__ import annotations

import random
from typing import Any

import pytest
from postgres_kit import Database, Reading, Writing, folded, replaced, until
from strom.api.connectors.base import Wait
from strom.connectors.postgres import PostgresCdcSource
from strom.core.row_kind import RowKind
from strom.testing.postgres import PASSWORD

pytestmark = pytest.mark.postgres

INS, UB, UA, DEL = RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.DELETE

ITEMS = (
    "CREATE TABLE items (id int PRIMARY KEY, name text, n bigint)",
    "ALTER TABLE items REPLICA IDENTITY FULL",
)


@pytest.fixture
def items(database: Database) -> Database:
    rows = "SELECT i, 'item ' || i, i * 10 FROM generate_series(1, 10) i"
    database.run(*ITEMS, f"INSERT INTO items {rows}")
    return database


def source(database: Database, **more: Any) -> PostgresCdcSource:
    settings = {"slot": f"slot_{database.name}", **more}
    return PostgresCdcSource(database.conninfo, settings.pop("table", "items"), **settings)


def everything(database: Database, split: Any = None, **more: Any) -> list[tuple[Any, ...]]:
    """What a reader gives from a position to now."""
    with Reading(source(database, **more), split, batch_size=7) as reading:
        return reading.read_to(database.mark()).rows


def test_first_the_rows_then_the_changes(items: Database) -> None:
    with Reading(source(items)) as reading:
        reading.read(10)
        items.run("INSERT INTO items VALUES (11, NULL, 1)")
        items.run("UPDATE items SET n = 2 WHERE id = 11", "UPDATE items SET id = 12 WHERE id = 11")
        items.run("DELETE FROM items WHERE id IN (12, 1)")
        reading.read_to(items.mark())
    assert reading.rows[:10] == [(i, f"item {i}", 10 * i, INS) for i in range(1, 11)]
    assert reading.rows[10:] == [
        (11, None, 1, INS),
        (11, None, 1, UB),
        (11, None, 2, UA),
        (11, None, 2, UB),
        (12, None, 2, UA),
        (1, "item 1", 10, DEL),
        (12, None, 2, DEL),
    ]
    assert folded(reading.rows) == items.table("items")
    assert reading.stamps == sorted(reading.stamps)


def test_what_is_rolled_back_is_no_change(items: Database) -> None:
    with Reading(source(items, snapshot=False)) as reading, items.connect() as connection:
        reading.read_to(items.mark())
        connection.execute("DELETE FROM items")
        connection.rollback()
        connection.execute("INSERT INTO items VALUES (11, 'x', 1)")
        connection.execute("SAVEPOINT a")
        connection.execute("INSERT INTO items VALUES (12, 'y', 1)")
        connection.execute("ROLLBACK TO a")
        connection.commit()
        reading.read_to(items.mark())
    assert reading.rows == [(11, "x", 1, INS)]


def test_a_bounded_capture_ends(items: Database) -> None:
    with Reading(source(items, stop_at="now")) as reading:
        while reading.step():
            items.run("INSERT INTO items SELECT max(id) + 1, 'later', 0 FROM items")
        assert reading.finished
        assert list(reading.reader.snapshot()) == []
    assert len(reading.rows) == 10


def test_a_bounded_capture_stops_where_it_was_to_stop_before_a_restart(items: Database) -> None:
    with Reading(source(items, stop_at="now"), batch_size=3) as first:
        first.step()
        split = first.split
    items.run("INSERT INTO items VALUES (11, 'later', 0)", "DELETE FROM items WHERE id = 10")
    with Reading(source(items, stop_at="now"), split, batch_size=3) as second:
        while second.step():
            pass
    # What the second transaction saw of the table counts; what was written after the stop may be
    # in it, and changes of it come no more.
    assert first.rows == [(i, f"item {i}", 10 * i, INS) for i in (1, 2, 3)]
    assert [row[0] for row in second.rows] == [4, 5, 6, 7, 8, 9, 11]


def test_an_empty_table(database: Database) -> None:
    database.run(*ITEMS)
    with Reading(source(database)) as reading:
        reading.read_to(database.mark())
        database.run("INSERT INTO items VALUES (1, 'a', 1)")
        reading.read_to(database.mark())
    assert reading.rows == [(1, "a", 1, INS)]


def test_columns_and_names_in_quotes(database: Database) -> None:
    database.run(
        'CREATE SCHEMA "My Shop"',
        'CREATE TABLE "My Shop"."Items" ("Id" int PRIMARY KEY, "a ""b""" text, other int)',
        'ALTER TABLE "My Shop"."Items" REPLICA IDENTITY FULL',
        """INSERT INTO "My Shop"."Items" VALUES (1, 'x', 2)""",
    )
    chosen = source(database, table='"My Shop"."Items"', columns=['a "b"', "Id"])
    assert chosen.schema.names == ['a "b"', "Id", "__row_kind"]
    with Reading(chosen) as reading:
        reading.read(1)
        database.run('UPDATE "My Shop"."Items" SET "a ""b""" = \'y\'')
        reading.read_to(database.mark())
    assert reading.rows == [("x", 1, INS), ("x", 1, UB), ("y", 1, UA)]


def test_a_partitioned_table(database: Database) -> None:
    database.run(
        "CREATE TABLE items (id int PRIMARY KEY, v int) PARTITION BY RANGE (id)",
        "CREATE TABLE low PARTITION OF items FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE high PARTITION OF items FOR VALUES FROM (10) TO (20)",
        *(f"ALTER TABLE {name} REPLICA IDENTITY FULL" for name in ("items", "low", "high")),
        "INSERT INTO items VALUES (1, 1), (11, 11)",
    )
    with Reading(source(database)) as reading:
        reading.read(2)
        database.run("UPDATE items SET v = v + 1", "UPDATE items SET id = 12 WHERE id = 1")
        reading.read_to(database.mark())
    assert folded(reading.rows) == database.table("items")


# --- by key alone ------------------------------------------------------------------------------


def test_an_upsert_changelog_needs_no_full_identity(database: Database) -> None:
    database.run("CREATE TABLE items (id int PRIMARY KEY, name text, n bigint)")
    database.run("INSERT INTO items VALUES (1, 'a', 1), (2, 'b', 2)")
    with Reading(source(database, changelog="upsert")) as reading:
        reading.read(2)
        database.run("UPDATE items SET n = 5 WHERE id = 1")
        database.run("UPDATE items SET id = 3 WHERE id = 2")
        database.run("DELETE FROM items WHERE id = 1")
        reading.read_to(database.mark())
    moved = [(2, None, None, DEL), (3, "b", 2, INS)]
    assert reading.rows[2:] == [(1, "a", 5, UA), *moved, (1, None, None, DEL)]
    assert replaced(reading.rows) == database.table("items")


def test_an_upsert_changelog_of_a_full_identity_is_the_same(items: Database) -> None:
    with Reading(source(items, changelog="upsert")) as reading:
        reading.read(10)
        items.run("UPDATE items SET n = 5 WHERE id = 1")
        items.run("UPDATE items SET id = 13 WHERE id = 2")
        items.run("DELETE FROM items WHERE id = 1")
        reading.read_to(items.mark())
    ends = [
        (1, "item 1", 5, UA),
        (2, None, None, DEL),
        (13, "item 2", 20, INS),
        (1, None, None, DEL),
    ]
    assert reading.rows[10:] == ends


def test_rows_that_an_index_identifies(database: Database) -> None:
    database.run(
        "CREATE TABLE items (n int, code text NOT NULL, part int NOT NULL)",
        "CREATE UNIQUE INDEX codes ON items (part, code)",
        "ALTER TABLE items REPLICA IDENTITY USING INDEX codes",
        "INSERT INTO items VALUES (1, 'a', 1), (2, 'b', 1), (3, 'a', 2)",
    )
    chosen = source(database, changelog="upsert")
    assert chosen.upsert_key == ("part", "code")
    with Reading(chosen, batch_size=2) as reading:
        reading.read(3)
        database.run("UPDATE items SET n = 5 WHERE code = 'b'")
        database.run("UPDATE items SET code = 'c' WHERE n = 5", "DELETE FROM items WHERE n = 3")
        reading.read_to(database.mark())
    assert reading.rows[3:] == [
        (5, "b", 1, UA),
        (None, "b", 1, DEL),
        (5, "c", 1, INS),
        (None, "a", 2, DEL),
    ]


def test_large_values_left_as_they_were(database: Database) -> None:
    database.run("CREATE TABLE items (id int PRIMARY KEY, big text, n int)")
    database.run("ALTER TABLE items ALTER big SET STORAGE EXTERNAL", ITEMS[1])
    with Reading(source(database)) as reading:
        reading.read_to(database.mark())
        database.run("INSERT INTO items VALUES (1, repeat('x', 50000), 1)")
        database.run("UPDATE items SET n = 2")
        reading.read_to(database.mark())
        assert reading.rows[-1] == (1, "x" * 50_000, 2, UA)
        database.run("ALTER TABLE items REPLICA IDENTITY DEFAULT")
    with Reading(source(database, changelog="upsert", slot="other")) as reading:
        reading.read_to(database.mark())
        database.run("UPDATE items SET n = 3")
        said = reading.failure()
    assert "column 'big'" in said
    assert "REPLICA IDENTITY FULL" in said


# --- restarts ----------------------------------------------------------------------------------


def test_it_goes_on_from_every_position(items: Database) -> None:
    """The rows in batches of three, then transactions of 1, 8 and 2 changes: each position that a
    checkpoint could hold is restored, and what comes then completes what came before."""
    positions: list[tuple[int, Any]] = []
    with Reading(source(items), batch_size=3) as whole:
        while len(whole.rows) < 10:
            positions.append((len(whole.rows), whole.split))
            whole.step()
        items.run("INSERT INTO items VALUES (11, 'x', 1)")
        items.run("UPDATE items SET n = n + 1 WHERE id <= 8")
        items.run("DELETE FROM items WHERE id = 3", "INSERT INTO items VALUES (3, 'new', 0)")
        end = items.mark()
        while whole.split.lsn < end:
            positions.append((len(whole.rows), whole.split))
            whole.step()
        positions.append((len(whole.rows), whole.split))
    assert folded(whole.rows) == items.table("items")
    assert len({split for _, split in positions}) >= 9
    assert any(split.skip for _, split in positions)
    # What has not begun begins anew, and takes the slot along: the others come first.
    for count, split in sorted(positions, key=lambda one: not one[1].begun):
        rest = everything(items, split)
        assert folded([*whole.rows[:count], *rest]) == items.table("items"), split


@pytest.mark.parametrize("kind", ["int", 'text COLLATE "en-x-icu"', "numeric(8,3)"])
def test_a_restart_while_the_table_is_read(database: Database, kind: str) -> None:
    """Rows before and behind the last key change in the meantime, and some move over it. ICU orders
    'a' before 'B', Python does not: only the database may compare."""
    names = ["a", "B", "c", "D", "e", "F", "g", "H"]
    keys = [repr(n) for n in names] if kind.startswith("text") else [f"{n}" for n in range(8)]
    first, second = ("'A0'", "'A1'") if kind.startswith("text") else ("-1", "-2")
    database.run(f"CREATE TABLE items (id {kind} PRIMARY KEY, v int)", ITEMS[1])
    database.run(f"INSERT INTO items VALUES {', '.join(f'({key}, 0)' for key in keys)}")
    rows: list[Any] = []
    split = None
    for step in range(4):
        with Reading(source(database), split, batch_size=2) as reading:
            reading.step()
            split, rows = reading.split, [*rows, *reading.rows]
            with database.connect() as connection:
                # Of one transaction some changes are in what is read later, others are not.
                connection.execute("UPDATE items SET v = v + 1")
                connection.execute(f"DELETE FROM items WHERE id = {keys[step]}")
                # From where nothing is read to where all is read, and one of them back.
                if step == 0:
                    connection.execute(f"UPDATE items SET id = {second} WHERE id = {keys[7]}")
                if step == 1:
                    connection.execute(f"UPDATE items SET id = {first} WHERE id = {keys[5]}")
                if step == 2:
                    connection.execute(f"UPDATE items SET id = {keys[5]} WHERE id = {first}")
                connection.execute(f"INSERT INTO items VALUES ({keys[step]}, 100)")
    assert len(split.parts) == 4
    rows += everything(database, split)
    assert folded(rows) == database.table("items")


def test_a_transaction_that_runs_while_the_table_is_read(items: Database) -> None:
    with items.connect() as before, items.connect() as meanwhile:
        before.execute("UPDATE items SET n = 1 WHERE id = 1")
        with Reading(source(items), batch_size=3) as reading:
            # The slot is made when all that runs is over.
            waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted"
            until(lambda: items.one(waits), "the slot to wait")
            meanwhile.execute("UPDATE items SET n = 2 WHERE id = 2")
            before.commit()
            meanwhile.commit()
            reading.read(10)
            reading.read_to(items.mark())
        assert folded(reading.rows) == items.table("items")


def test_a_transaction_that_runs_while_the_rest_is_read(items: Database) -> None:
    with Reading(source(items), batch_size=3) as first:
        first.step()
        split = first.split
    with items.connect() as meanwhile:
        meanwhile.execute("UPDATE items SET n = n + 1 WHERE id IN (1, 8)")
        items.run("UPDATE items SET n = n + 1 WHERE id IN (2, 9)")
        with Reading(source(items), split, batch_size=3) as second:
            second.read(7)
            meanwhile.commit()
            second.read_to(items.mark())
    assert folded([*first.rows[:3], *second.rows]) == items.table("items")


def test_a_fresh_start_waits_for_what_runs(
    items: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The slot is there, and goes forward: what is in the log behind it has to be in the rows."""
    monkeypatch.setattr("strom.connectors.postgres.slots._WARN_S", 0.2)
    with Reading(source(items)) as before:
        before.read(10)
    with items.connect() as meanwhile:
        meanwhile.execute("UPDATE items SET n = 1 WHERE id = 1")
        with Reading(source(items)) as reading:
            until(lambda: "waits for 1 transactions" in caplog.text, "the warning")
            assert reading.reader.poll() == Wait(None)
            meanwhile.commit()
            reading.read_to(items.mark())
    assert reading.rows[0] == (1, "item 1", 1, INS)
    assert folded(reading.rows) == items.table("items")


def test_a_large_transaction_in_parts(items: Database) -> None:
    with Reading(source(items, snapshot=False), batch_size=500) as reading:
        reading.read_to(items.mark())
        items.run(
            "INSERT INTO items SELECT i, 'many', i FROM generate_series(100, 5099) i",
            "UPDATE items SET n = 0 WHERE id < 1100",
            "DELETE FROM items WHERE id > 4000",
        )
        rows: list[Any] = []
        splits = [reading.split]
        while len(rows) < 3_000:
            reading.step()
            rows, splits = reading.rows, [*splits, reading.split]
    assert all(0 < split.lsn <= split.within for split in splits[1:]), "all are ahead of its commit"
    assert len({split.within for split in splits[1:]}) == 1
    rest = everything(items, splits[-1], snapshot=False)
    assert len(rows) + len(rest) == 5000 + 2 * 1010 + 1099
    again = everything(items, splits[0], snapshot=False)
    assert [*rows, *rest] == again


def test_large_rows_come_in_small_batches(database: Database) -> None:
    database.run(*ITEMS, "ALTER TABLE items ALTER name SET STORAGE EXTERNAL")
    database.run(
        "INSERT INTO items SELECT i, 'small', i FROM generate_series(1, 2000) i",
        "INSERT INTO items SELECT i, repeat('x', 1000000), i FROM generate_series(2001, 2030) i",
    )
    with Reading(source(database), batch_size=10_000) as reading:
        sizes = []
        while len(reading.rows) < 2030:
            before = len(reading.rows)
            reading.step()
            sizes.append(len(reading.rows) - before)
        assert sizes[0] == 1000
        assert folded(reading.rows) == database.table("items")
        del reading.rows[:]
        database.run("UPDATE items SET n = 0 WHERE id > 2000")
        while len(reading.rows) < 60:
            before = len(reading.rows)
            reading.step()
            assert len(reading.rows) - before <= 18


@pytest.mark.parametrize("seed", range(4))
def test_random_writes_and_random_restarts(items: Database, seed: int) -> None:
    draw = random.Random(seed)

    def write(connection: Any, number: int) -> None:
        for _ in range(draw.choice((1, 1, 2, 30))):
            key = draw.randrange(60)
            match draw.randrange(4):
                case 0:
                    connection.execute("DELETE FROM items WHERE id = %s", (key,))
                case 1:
                    connection.execute(
                        "UPDATE items SET id = %s WHERE id = %s AND NOT EXISTS "
                        "(SELECT FROM items WHERE id = %s)",
                        (key + 1, key, key + 1),
                    )
                case _:
                    connection.execute(
                        "INSERT INTO items VALUES (%s, 'w', %s) ON CONFLICT (id) DO UPDATE "
                        "SET n = excluded.n",
                        (key, number),
                    )

    rows: list[Any] = []
    split = None
    other = random.Random(seed + 100)
    with Writing(items, write):
        for _ in range(8):
            with Reading(source(items), split, batch_size=other.choice((2, 5, 50))) as reading:
                for _ in range(other.randrange(1, 12)):
                    reading.step()
                if other.random() < 0.5:
                    items.terminate()
                    reading.step()
                split, rows = reading.split, [*rows, *reading.rows]
                reading.complete(1)
    rows += everything(items, split)
    assert folded(rows) == items.table("items")


# --- the server's side -----------------------------------------------------------------------


def test_only_complete_checkpoints_are_confirmed(items: Database) -> None:
    slot = f"slot_{items.name}"
    with Reading(source(items)) as reading:
        reading.read(10)
        reading.read_to(items.mark())
        made = items.confirmed(slot)
        first = reading.complete(1)
        for n in range(2, 5):
            items.run(f"INSERT INTO items VALUES ({n * 100}, 'x', 1)")
            reading.read_to(items.mark())
            assert items.confirmed(slot) <= first.lsn
        assert items.confirmed(slot) in (made, first.lsn)
        second = reading.complete(2)
        assert second.lsn > first.lsn
        until(lambda: items.confirmed(slot) == first.lsn, "the confirmation of the first")
        reading.complete(3)
        until(lambda: items.confirmed(slot) == second.lsn, "the confirmation of the second")
    # The job goes back by one checkpoint, and finds its changes.
    assert everything(items, second) == []


def test_a_busy_server_and_an_idle_table(items: Database) -> None:
    items.run("CREATE TABLE other (v text)")
    with Reading(source(items)) as reading:
        reading.read_to(items.mark())
        start = reading.split
        items.run("INSERT INTO other SELECT repeat('x', 1000) FROM generate_series(1, 1000)")
        reading.read_to(items.mark())
        assert reading.split.lsn > start.lsn + 100_000
        reading.complete(1)
        reading.complete(2)
        until(
            lambda: items.confirmed(f"slot_{items.name}") > start.lsn + 100_000,
            "the log to be freed",
        )
        assert len(reading.rows) == 10


def test_a_lost_connection_is_none_to_the_task(
    items: Database, caplog: pytest.LogCaptureFixture
) -> None:
    with Reading(source(items), batch_size=4) as reading:
        reading.step()
        for n in range(20, 24):
            assert items.terminate() >= 0
            items.run(f"INSERT INTO items VALUES ({n}, 'x', 1)")
            reading.read_to(items.mark())
    assert folded(reading.rows) == items.table("items")
    assert "cannot read table items through slot" in caplog.text
    assert "trying again for up to 60 s" in caplog.text
    assert PASSWORD not in caplog.text
