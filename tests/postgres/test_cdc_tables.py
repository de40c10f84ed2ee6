"""Tables that a capture cannot take, or that are altered under it: an error that says so."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from capture_kit import ITEMS, position, said, source
from postgres_kit import Database, Reading, folded
from strom.core.errors import ConnectorError

pytestmark = pytest.mark.postgres


def test_no_full_identity(items: Database) -> None:
    items.run("ALTER TABLE items REPLICA IDENTITY DEFAULT")
    with pytest.raises(ConnectorError, match="REPLICA IDENTITY FULL, or take"):
        assert source(items).schema
    assert "ALTER TABLE public.items REPLICA IDENTITY FULL" in said(items)


def test_no_key(items: Database) -> None:
    items.run("ALTER TABLE items DROP CONSTRAINT items_pkey")
    assert "has no primary key" in said(items)
    with Reading(source(items, snapshot=False)) as reading:
        reading.read_to(items.mark())
        items.run("DELETE FROM items WHERE id = 3")
        reading.read_to(items.mark())
    assert reading.rows == [(3, "item 3", 3)]


def test_a_key_that_is_not_read(items: Database) -> None:
    assert "lack ['id'] of its key" in said(items, columns=["name"])


def test_no_such_table_and_no_table(items: Database) -> None:
    items.run("CREATE VIEW shown AS SELECT * FROM items")
    assert "there is no table missing" in said(items, table="missing")
    assert "is no table" in said(items, table="shown")
    assert "no name of a table" in said(items, table="a..b")


def test_generated_columns_are_left_out(items: Database) -> None:
    items.run("ALTER TABLE items ADD twice int GENERATED ALWAYS AS (id * 2) STORED")
    assert source(items).schema.names == ["id", "name", "__row_kind"]
    with Reading(source(items)) as reading:
        reading.read(10)
        items.run("INSERT INTO items VALUES (11, 'x')")
        reading.read(11)
    assert "columns ['twice'] of table public.items are generated" in said(
        items, columns=["id", "twice"]
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("ALTER TABLE items ADD extra int", "has new columns ['extra']"),
        ("ALTER TABLE items DROP name", "column 'name' of table public.items is gone"),
        ("ALTER TABLE items RENAME name TO title", "column 'name' of table public.items is gone"),
        ("ALTER TABLE items ALTER id TYPE bigint", "column 'id' of table public.items changed"),
        ("ALTER TABLE items REPLICA IDENTITY DEFAULT", "has no REPLICA IDENTITY FULL any more"),
        ("TRUNCATE items", "was truncated"),
    ],
)
def test_a_change_of_the_table_in_the_middle(items: Database, change: str, words: str) -> None:
    with Reading(source(items)) as reading:
        reading.read_to(items.mark())
        items.run("INSERT INTO items VALUES (100)")
        items.run(change)
        items.run("INSERT INTO items VALUES (101)")
        items.run("DELETE FROM items WHERE id = 101")
        assert words in reading.failure()
        assert (100, None, 0) in reading.rows, "what was before the change comes"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("ALTER TABLE items ADD extra int", "schema change at"),
        ("TRUNCATE items", "was truncated at"),
    ],
)
def test_a_change_of_the_table_within_a_transaction(
    items: Database, change: str, words: str
) -> None:
    """All comes at once; what was before the change is given, and the error at each restart."""
    with Reading(source(items)) as reading:
        reading.read_to(items.mark())
        items.run("INSERT INTO items VALUES (100)", change, "INSERT INTO items VALUES (101)")
        assert words in reading.failure()
        assert reading.rows[10:] == [(100, None, 0)]
        split = reading.split
    with Reading(source(items), split) as again:
        assert words in again.failure()
    assert again.rows == []


def test_chosen_columns_do_not_mind_new_ones(items: Database) -> None:
    with Reading(source(items, columns=["id", "name"])) as reading:
        reading.read_to(items.mark())
        items.run("ALTER TABLE items ADD extra int")
        items.run("INSERT INTO items VALUES (11, 'x', 5)")
        reading.read_to(items.mark())
        items.run("ALTER TABLE items DROP extra")
        items.run("DELETE FROM items WHERE id = 11")
        reading.read_to(items.mark())
    assert folded(reading.rows) == items.table("items")


def test_a_table_made_anew(items: Database) -> None:
    split = position(items)
    items.run("DROP TABLE items", *ITEMS)
    assert "is not the one that the capture began with" in said(items, split, publication="another")


def test_a_table_that_is_not_the_planned_one(items: Database) -> None:
    planned = source(items)
    assert planned.schema.names == ["id", "name", "__row_kind"]
    items.run("ALTER TABLE items ADD extra int")
    with Reading(planned) as reading:
        assert "is another than when the program was written" in reading.failure()


ALTERED = [
    ("ALTER TABLE items ADD extra int", "has new columns ['extra']"),
    ("ALTER TABLE items DROP name", "column 'name' of table public.items is gone"),
    ("ALTER TABLE items RENAME name TO title", "column 'name' of table public.items is gone"),
    (
        "ALTER TABLE items ALTER name TYPE varchar(50)",
        "column 'name' of table public.items changed",
    ),
    (
        "ALTER TABLE items DROP name; ALTER TABLE items ADD name text",
        "column 'name' of table public.items was dropped and added again",
    ),
]


@pytest.mark.parametrize(("change", "words"), ALTERED)
def test_a_table_altered_while_nothing_read_it(items: Database, change: str, words: str) -> None:
    """Each start from the checkpoint fails, of a program that looks at the table first, too."""
    split = position(items)
    items.run(change)
    for looks in (False, True):
        again = source(items)
        if looks:
            assert again.schema
        with Reading(again, split) as reading:
            text = reading.failure()
        assert words in text
        assert "start the job anew" in text or "start it anew" in text
        assert reading.rows == []
    with Reading(source(items)) as fresh:
        fresh.read(10)
    assert len(fresh.rows[0]) == len(items.table("items")[0]) + 1, "without one it begins anew"


def test_a_table_altered_while_it_was_read_at_first(items: Database) -> None:
    with Reading(source(items), batch_size=3) as reading:
        reading.step()
        split = reading.split
    assert not split.loaded
    items.run("ALTER TABLE items DROP name")
    assert "column 'name' of table public.items is gone" in said(items, split)


def test_a_chosen_column_that_went_away(items: Database) -> None:
    split = position(items, columns=["id", "name"])
    items.run("ALTER TABLE items ADD extra int")
    with Reading(source(items, columns=["id", "name"]), split) as reading:
        items.run("DELETE FROM items WHERE id = 3")
        assert reading.read(1).rows == [(3, "item 3", 3)]
    items.run("ALTER TABLE items DROP name")
    assert "column 'name' of table public.items is gone" in said(
        items, split, columns=["id", "name"]
    )


def test_other_columns_than_those_captured(items: Database) -> None:
    split = position(items)
    assert (
        "reads columns ['id'] of table public.items, and what was captured until now has"
        in said(items, split, columns=["id"])
    )
    items.run("ALTER TABLE items ADD extra int")
    with Reading(source(items, columns=["id", "name"]), split) as reading:
        items.run("DELETE FROM items WHERE id = 3")
        assert reading.read(1).rows == [(3, "item 3", 3)], "as the error advises"


def test_another_key(items: Database) -> None:
    by_key, whole = position(items, changelog="upsert"), position(items, slot="whole")
    items.run(
        "ALTER TABLE items DROP CONSTRAINT items_pkey",
        "ALTER TABLE items ADD PRIMARY KEY (name)",
    )
    text = said(items, by_key, changelog="upsert")
    assert "the key of table public.items is ['name'], and was ['id']" in text
    with Reading(source(items, slot="whole"), replace(whole, parts=())) as reading:
        items.run("DELETE FROM items WHERE id = 3")
        assert reading.read(1).rows == [(3, "item 3", 3)], "whole rows need no key"


def test_another_key_in_the_middle(items: Database) -> None:
    """A -D has its key alone: it would name no row."""
    items.run(
        "ALTER TABLE items ALTER name SET NOT NULL", "ALTER TABLE items REPLICA IDENTITY DEFAULT"
    )
    with Reading(source(items, changelog="upsert")) as reading:
        reading.read_to(items.mark())
        items.run("DELETE FROM items WHERE id = 2")
        items.run(
            "ALTER TABLE items DROP CONSTRAINT items_pkey",
            "ALTER TABLE items ADD PRIMARY KEY (name)",
        )
        items.run("DELETE FROM items WHERE id = 3")
        assert "the key of table public.items is ['name'], and was ['id']" in reading.failure()
    assert reading.rows[10:] == [(2, None, 3)]


def test_a_table_altered_while_the_connection_was_lost(items: Database) -> None:
    with Reading(source(items, timedelta(seconds=30))) as reading:
        reading.read_to(items.mark())
        items.run("ALTER TABLE items DROP name")
        items.terminate()
        assert "column 'name' of table public.items is gone" in reading.failure()


def test_a_column_made_anew_under_a_running_capture(
    items: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log does not tell it from the one before."""
    monkeypatch.setattr("strom.connectors.postgres.feed.LOOK_EVERY_S", 0.2)
    with Reading(source(items)) as reading:
        reading.read_to(items.mark())
        items.run("ALTER TABLE items DROP name", "ALTER TABLE items ADD name text")
        assert "column 'name' of table public.items was dropped and added" in reading.failure()


def test_a_checkpoint_of_before_columns_were_kept(items: Database) -> None:
    split = replace(position(items), captured=None)
    with Reading(source(items), split) as reading:
        reading.read_to(items.mark())
        kept = reading.split
    assert kept.captured is not None
    items.run("ALTER TABLE items DROP name")
    assert "column 'name' of table public.items is gone" in said(items, kept)


def test_publications_that_leave_out_changes(items: Database) -> None:
    items.run("CREATE TABLE other (id int)", "CREATE PUBLICATION none FOR TABLE other")
    assert "does not publish table public.items" in said(items, publication="none")
    items.run("CREATE PUBLICATION few FOR TABLE items WITH (publish = 'insert')")
    assert "inserts, updates, deletes and truncates alike" in said(items, publication="few")
    items.run("CREATE PUBLICATION part FOR TABLE items WHERE (id > 5)")
    assert "some rows of public.items only" in said(items, publication="part")


def test_a_publication_with_quotes_in_its_name(items: Database) -> None:
    with Reading(source(items, publication="o'brien's \"own\"")) as reading:
        reading.read(10)
        items.run("DELETE FROM items WHERE id = 3")
        reading.read_to(items.mark())
    assert folded(reading.rows) == items.table("items")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("DROP PUBLICATION slot_{}", "so that changes of table public.items are lost"),
        ("ALTER PUBLICATION slot_{} DROP TABLE items", "does not publish table public.items"),
        ("DROP TABLE items; CREATE TABLE items (id int)", "but another or was made anew"),
        ("DROP TABLE items", "there is no table items"),
    ],
)
def test_a_table_of_which_nothing_comes_any_more(
    items: Database, change: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No message says so: the catalogs are looked at now and then."""
    monkeypatch.setattr("strom.connectors.postgres.feed.LOOK_EVERY_S", 0.2)
    with Reading(source(items)) as reading:
        reading.read_to(items.mark())
        items.run(change.format(items.name))
        assert words in reading.failure()


def test_a_table_that_was_not_published_for_a_while(items: Database) -> None:
    split = position(items)
    items.run(f"ALTER PUBLICATION {split.slot} DROP TABLE items")
    items.run("INSERT INTO items VALUES (11, 'lost')")
    items.run(f"ALTER PUBLICATION {split.slot} ADD TABLE items")
    assert "taken out of it for a while" in said(items, split)


def test_a_value_that_arrow_has_no_place_for(items: Database) -> None:
    items.run("ALTER TABLE items ADD day date")
    with Reading(source(items)) as reading:
        reading.read(10)
        items.run("INSERT INTO items VALUES (11, 'x', 'infinity')")
        assert "column 'day': value 'infinity' does not fit date32" in reading.failure()
