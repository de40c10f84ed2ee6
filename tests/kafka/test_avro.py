"""Avro becomes columns, by one schema or by those a registry knows."""

from __future__ import annotations

import io
import json
import threading
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from kafka_kit import decoded
from strom import ConfigurationError, ConnectorError
from strom.connectors.kafka.formats import AvroFormat

AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "item", "type": ["null", "string"]},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
        {
            "name": "size",
            "type": {"type": "record", "name": "Size", "fields": [{"name": "w", "type": "int"}]},
        },
    ],
}


def avro(record: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(AVRO), record)
    return out.getvalue()


def test_avro_records() -> None:
    from datetime import UTC, datetime

    at = datetime(2024, 5, 1, 12, 30, tzinfo=UTC)
    order = {
        "id": 7,
        "item": "pen",
        "price": Decimal("1.25"),
        "at": at,
        "tags": {"x": 1},
        "size": {"w": 2},
    }
    values: list[bytes | None] = [
        avro(order),
        b"",
        avro({**order, "item": None}),
        avro(order) + b"x",
        None,
    ]
    rows, bad, why = decoded(AvroFormat(json.dumps(AVRO)), values)
    assert bad == [False, True, False, True, True]
    assert rows[0] == {**order, "tags": [("x", 1)]}
    assert rows[1]["item"] is None
    assert why


def plain_avro(schema: dict[str, Any], *records: dict[str, Any]) -> list[bytes | None]:
    made: list[bytes | None] = []
    for record in records:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(schema), record)
        made.append(out.getvalue())
    return made


def record_of(**types: Any) -> dict[str, Any]:
    fields = [{"name": name, "type": kind} for name, kind in types.items()]
    return {"type": "record", "name": "R", "fields": fields}


def test_avro_uuids_are_texts() -> None:
    text = {"type": "string", "logicalType": "uuid"}
    inner = {"type": "record", "name": "In", "fields": [{"name": "id", "type": ["null", text]}]}
    schema = record_of(
        id=text,
        others={"type": "array", "items": text},
        inner=inner,
        raw={"type": "fixed", "name": "Raw", "size": 16, "logicalType": "uuid"},
    )
    one = "550e8400-e29b-41d4-a716-446655440000"
    record = {"id": one, "others": [one], "inner": {"id": one}, "raw": b"0123456789abcdef"}
    rows, bad, _ = decoded(AvroFormat(schema), plain_avro(schema, record))
    assert not any(bad)
    assert rows == [record]
    assert AvroFormat(schema).schema.field("id").type == pa.string()


def test_an_avro_value_that_no_column_takes_costs_no_other() -> None:
    """Read by its schema it is well-formed: an int beyond 32 bits, more digits than declared."""
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
    schema = record_of(n="int", price=decimal)
    wide = record_of(n="long", price={**decimal, "precision": 9})
    good = [{"n": n, "price": Decimal("1.25")} for n in range(20)]
    values = plain_avro(wide, *good)
    values[3:3] = plain_avro(wide, {"n": 2**40, "price": Decimal("1.25")})
    values[11:11] = plain_avro(wide, {"n": 1, "price": Decimal("12345.67")})
    values[15:15] = [b"\x80"]
    rows, bad, why = decoded(AvroFormat(schema), values)
    assert [at for at, wrong in enumerate(bad) if wrong] == [3, 11, 15]
    assert rows == good
    assert "1099511627776" in why


def test_an_avro_name_may_be_used_again() -> None:
    """A record beside itself does not contain itself; names of all kinds stand for what they are
    of."""
    address = {"type": "record", "name": "Address", "fields": [{"name": "town", "type": "string"}]}
    schema = record_of(
        billing=address,
        shipping="Address",
        others={"type": "array", "items": "Address"},
        one={
            "type": "fixed",
            "name": "Money",
            "size": 4,
            "logicalType": "decimal",
            "precision": 9,
            "scale": 2,
        },
        other="Money",
    )
    town = {"town": "a"}
    record = {
        "billing": town,
        "shipping": {"town": "b"},
        "others": [town],
        "one": Decimal("1.25"),
        "other": Decimal("-2.50"),
    }
    rows, _, _ = decoded(AvroFormat(schema), plain_avro(schema, record))
    assert rows == [record]


def test_avro_logical_types_of_the_wrong_type_are_ignored() -> None:
    """As the specification says; so does fastavro."""
    schema = record_of(
        at={"type": "string", "logicalType": "timestamp-millis"},
        n={"type": "long", "logicalType": "no-such"},
        many={"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 1},
    )
    record = {"at": "noon", "n": 5, "many": Decimal("7.5")}
    rows, _, _ = decoded(AvroFormat(schema), plain_avro(schema, record))
    assert rows == [record]


def test_a_registrys_password_is_not_shown() -> None:
    schema = record_of(id="int")
    for registry in (
        {"url": "http://127.0.0.1:1/at/x@y", "basic.auth.user.info": "me:secret"},
        {"url": "http://me:secret@127.0.0.1:1/at/x@y"},
    ):
        form = AvroFormat(schema, {**registry, "max.retries": 0})
        assert "secret" not in repr(form)
        with pytest.raises(ConnectorError, match=r"127\.0\.0\.1:1/at/x@y") as error:
            form.decode(pa.array([registered(7, schema, {"id": 1})], pa.binary()))
        assert "secret" not in str(error.value)
        assert "registry at http://127.0.0.1:1/" in str(error.value)


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ("{", "no Avro schema"),
        (
            '{"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "bytes", '
            '"logicalType": "decimal", "precision": 90}}]}',
            "decimal of 90 digits",
        ),
        ('"long"', "of a record"),
        (
            '{"type": "record", "name": "R", "fields": [{"name": "a", "type": ["int", "string"]}]}',
            "union",
        ),
        (
            '{"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "R"]}]}',
            "contains itself",
        ),
    ],
)
def test_avro_schemas_that_have_no_columns(schema: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        _ = AvroFormat(schema).schema


class Registry:
    """Confluent's schema registry protocol, as much as a reader asks of it."""

    def __init__(self, schemas: dict[int, Any], code: int = 40403) -> None:
        """`code`: what it says of schemas that it does not know."""
        asked = self.asked = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                number = int(self.path.partition("?")[0].rsplit("/", 1)[1])
                known = number in schemas
                answer = (
                    {"schema": json.dumps(schemas[number])}
                    if known
                    else {"error_code": code, "message": "Schema not found"}
                )
                body = json.dumps(answer).encode()
                self.send_response(200 if known else 404)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: Any) -> None:
                """Nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


def registered(number: int, schema: Any, record: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), record)
    return b"\0" + number.to_bytes(4, "big") + out.getvalue()


def test_avro_of_several_writers_by_a_registry() -> None:
    """Each value says which schema it was written with; they are resolved to the reader's."""
    old = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}
    new = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "gone", "type": "string"},
            {"name": "id", "type": "long"},
            {"name": "name", "type": "string"},
        ],
    }
    mine = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "name", "type": ["null", "string"], "default": None},
        ],
    }
    registry = Registry({7: old, 8: new})
    try:
        values: list[bytes | None] = [
            registered(7, old, {"id": 1}),
            registered(8, new, {"gone": "x", "id": 2, "name": "b"}),
            b"\x01no id",
            registered(9, old, {"id": 3}),
            registered(7, old, {"id": 4}),
        ]
        rows, bad, _ = decoded(AvroFormat(json.dumps(mine), {"url": registry.url}), values)
    finally:
        registry.close()
    assert rows == [{"id": 1, "name": None}, {"id": 2, "name": "b"}, {"id": 4, "name": None}]
    assert bad == [False, False, True, True, False]
    assert sum("/7" in path for path in registry.asked) == 1, "asked once"


def test_what_is_no_registry_makes_no_record_malformed() -> None:
    """A wrong path answers 404, too, to every question."""
    schema = record_of(id="int")
    wrong = Registry({}, code=404)
    try:
        form = AvroFormat(json.dumps(schema), {"url": wrong.url})
        with pytest.raises(ConnectorError, match="cannot be asked for schema 7"):
            form.decode(pa.array([registered(7, schema, {"id": 1})], pa.binary()))
    finally:
        wrong.close()


def test_a_registry_that_is_away_makes_no_record_malformed() -> None:
    """Else `malformed="skip"` would drop all that comes meanwhile."""
    schema = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}
    away = {"url": "http://127.0.0.1:1", "max.retries": 0}
    form = AvroFormat(json.dumps(schema), away)
    with pytest.raises(ConnectorError, match="cannot be asked for schema 7"):
        form.decode(pa.array([registered(7, schema, {"id": 1})], pa.binary()))
