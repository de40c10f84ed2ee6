"""Rows of a real table for the keys of a stream."""

from __future__ import annotations

import pickle
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from postgres_kit import Database
from strom import JobFailedError, StreamExecutionEnvironment
from strom.connectors.postgres import PostgresConnection, PostgresLookup
from strom.core.errors import ConfigurationError, ConnectorError

pytestmark = pytest.mark.postgres


@pytest.fixture
def products(database: Database) -> Database:
    database.run(
        "CREATE TABLE products (id int, lang text, name varchar(5), price numeric(8,2), "
        "PRIMARY KEY (id, lang))",
        "INSERT INTO products VALUES (1, 'en', 'lamp', 9.5), (1, 'de', 'Lampe', 9.5), "
        "(2, 'en', NULL, 1), (3, 'fr', 'a''\"\\', NULL)",
    )
    return database


def asked(lookup: PostgresLookup, **keys: Any) -> list[Any]:
    found = lookup(pa.RecordBatch.from_pydict(keys)).to_pylist()
    return sorted((tuple(row.values()) for row in found), key=repr)


def test_rows_of_keys(products: Database) -> None:
    lookup = PostgresLookup(products.conninfo, "products", ["name"])
    assert asked(lookup, id=pa.array([1, 3, 9])) == [(1, "Lampe"), (1, "lamp"), (3, "a'\"\\")]
    assert asked(lookup, lang=["en"], id=pa.array([1])) == [("en", 1, "lamp")]
    assert asked(lookup, lang=["none'); DROP TABLE products --"]) == []
    assert asked(lookup, name=["Lampe", "Lampen", "a'\"\\"]) == [("Lampe",), ("a'\"\\",)]
    assert asked(lookup, id=pa.array([2**40])) == [], "a key that no row can have"
    products.run("INSERT INTO products VALUES (4, 'x', '\ufeffmark')")
    marked = PostgresLookup(products.conninfo, "products", ["id"])
    assert asked(marked, name=["\ufeffmark"]) == [("\ufeffmark", 4)]
    marked.close()
    products.run("CREATE VIEW cheap AS SELECT id, lang FROM products WHERE price < 5")
    view = PostgresLookup(products.conninfo, "cheap")
    assert asked(view, id=pa.array([1, 2])) == [(2, "en")]
    view.close()
    products.terminate()
    assert asked(lookup, id=pa.array([2])) == [(2, None)], "it connects again"
    again = pickle.loads(pickle.dumps(lookup))
    assert asked(again, id=pa.array([2])) == [(2, None)]
    lookup.close()
    again.close()


def test_in_a_job(products: Database) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    orders = pa.table({"order": [10, 11, 12], "product": [1, 2, 7], "lang": ["en", "en", "en"]})
    joined = env.from_collection(orders).lookup_join(
        PostgresLookup(products.conninfo, "products"),
        how="left",
        left_on=["product", "lang"],
        right_on=["id", "lang"],
        cache_size=100,
        cache_ttl=timedelta(minutes=1),
    )
    rows = sorted(map(tuple, joined.execute_and_collect()))
    assert [row[:3] for row in rows] == [(10, 1, "en"), (11, 2, "en"), (12, 7, "en")]
    assert [row[-2] for row in rows] == ["lamp", None, None]
    query = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{products.name}'"
    assert products.one(query) == 1, "its connection is closed with the job"


def test_what_cannot_be_looked_up(products: Database) -> None:
    missing = PostgresLookup(products.conninfo, "nowhere")
    with pytest.raises(ConnectorError, match="there is no table nowhere"):
        asked(missing, id=pa.array([1]))
    lookup = PostgresLookup(products.conninfo, "products", ["colour"])
    with pytest.raises(ConfigurationError, match="has no column 'colour'"):
        asked(lookup, id=pa.array([1]))
    with pytest.raises(ConfigurationError, match="list of names"):
        PostgresLookup("", "products", "name")
    connection = PostgresConnection(products.conninfo, password="s3cr3t")
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection(pa.table({"id": [1]}))
    joined = stream.lookup_join(PostgresLookup(connection, "products"), on="id")
    with pytest.raises(JobFailedError, match="cannot look up keys in table products") as info:
        list(joined.execute_and_collect())
    assert "s3cr3t" not in str(info.value)
