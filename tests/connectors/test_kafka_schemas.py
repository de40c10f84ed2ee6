"""PyFlink's schemas of Kafka's records, without a broker."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pyarrow as pa
import pytest
from strom import Row, Types
from strom.connectors.kafka import (
    AvroFormat,
    AvroRowDeserializationSchema,
    AvroRowSerializationSchema,
    ByteArraySchema,
    CsvRowDeserializationSchema,
    CsvRowSerializationSchema,
    Decoded,
    JsonEncoder,
    JsonFormat,
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
    KafkaRecordSerializationSchema,
    RowFieldExtractorSchema,
    SerializationSchema,
    SimpleStringSchema,
    StringFormat,
)
from strom.connectors.kafka.records import _both, _reasons
from strom.core.batch import ColumnBatch, ObjectBatch
from strom.core.errors import ConfigurationError, TypeMismatchError

ROW = Types.ROW_NAMED(["id", "name"], [Types.INT(), Types.STRING()])


def binary(*values: bytes | None) -> pa.Array:
    return pa.array(values, pa.binary())


def written(schema: SerializationSchema, *records: Any) -> list[Any]:
    made = schema.encoder.encode(ObjectBatch(list(records))).cast(pa.large_binary())
    return list(made.to_pylist())


@pytest.mark.parametrize("charset", ["UTF-8", "ISO-8859-1", "UTF-16LE", "windows-1252"])
def test_text_in_any_charset(charset: str) -> None:
    schema = SimpleStringSchema(charset)
    values = ["grün", "", None]
    encoded = written(schema, *values)
    assert encoded == [None if v is None else v.encode(charset) for v in values]
    assert schema.objects
    assert schema.format.decode(binary(*encoded)).data.column(0).to_pylist() == values


def test_text_that_is_not_in_the_charset() -> None:
    made = StringFormat(charset="ascii").decode(binary(b"a", b"\xff", None, b"\xfe"))
    assert made.data.column(0).to_pylist() == ["a", None]
    assert made.bad is not None
    assert made.bad.tolist() == [False, True, False, True]
    assert ["0xff" in made.whys[0], "0xfe" in made.whys[1]] == [True, True]
    with pytest.raises(TypeMismatchError, match="a record cannot be written in ascii"):
        written(SimpleStringSchema("US-ASCII"), "grün")
    with pytest.raises(ConfigurationError, match="there is no charset 'klingon'"):
        SimpleStringSchema("klingon")


def test_bytes() -> None:
    assert written(ByteArraySchema(), b"a", None) == [b"a", None]
    assert ByteArraySchema().format.decode(binary(b"\xff")).data.to_pylist() == [{"value": b"\xff"}]


def test_csv_both_ways() -> None:
    out = (
        CsvRowSerializationSchema.Builder(ROW)
        .set_field_delimiter("|")
        .set_line_delimiter("\r")
        .set_quote_character("#")
        .set_null_literal("n/a")
        .build()
    )
    encoded = written(out, (1, "a|b"), Row(id=2, name=None))
    assert encoded == [b"1|#a|b#\r", b"2|n/a\r"]
    back = (
        CsvRowDeserializationSchema.Builder(type_info=ROW)
        .set_field_delimiter("|")
        .set_quote_character("#")
        .set_escape_character("\\")
        .set_null_literal("n/a")
        .set_ignore_parse_errors(True)
        .build()
    )
    assert back.skips_malformed
    made = back.format.decode(binary(*encoded, b"x|y"))
    assert made.data.to_pylist() == [{"id": 1, "name": "a|b"}, {"id": 2, "name": None}]
    assert made.data.schema.field("id").type == pa.int32()
    assert made.bad is not None
    assert made.bad.tolist() == [False, False, True]


def test_csv_as_flink_writes_it_by_default() -> None:
    assert written(CsvRowSerializationSchema.Builder(ROW).build(), (None, "x")) == [b",x\n"]
    bare = CsvRowSerializationSchema.Builder(ROW).disable_quote_character().build()
    with pytest.raises(TypeMismatchError, match="text of column 'name' holds a delimiter"):
        written(bare, (1, "a,b"))
    comments = CsvRowDeserializationSchema.Builder(ROW).set_allow_comments(True).build()
    assert comments.format.decode(binary(b"# x\n1,a")).data.to_pylist() == [{"id": 1, "name": "a"}]
    arrays = Types.ROW_NAMED(["a"], [Types.LIST(Types.INT())])
    split = CsvRowDeserializationSchema.Builder(arrays).set_array_element_delimiter("/").build()
    assert split.format.decode(binary(b"1/2")).data.to_pylist() == [{"a": [1, 2]}]
    with pytest.raises(ConfigurationError, match="names and types, is None"):
        CsvRowSerializationSchema.Builder(None)


def test_json_schemas() -> None:
    schema = JsonRowDeserializationSchema.Builder().type_info(ROW).ignore_parse_errors().build()
    assert schema.skips_malformed
    builder = JsonRowDeserializationSchema.builder()
    with pytest.raises(ConfigurationError, match="a JSON schema is not read; give the columns"):
        builder.json_schema("{}")
    with pytest.raises(ConfigurationError, match="a field that is missing is null"):
        builder.fail_on_missing_field()
    out = JsonRowSerializationSchema.builder().with_type_info(ROW).build()
    assert written(out, (1, "x")) == [b'{"id":1,"name":"x"}']


def test_dates_and_times_of_json_are_text_both_ways() -> None:
    names, kinds = ["d", "t", "at"], [Types.SQL_DATE(), Types.SQL_TIME(), Types.SQL_TIMESTAMP()]
    row = (dt.date(2024, 1, 31), dt.time(12, 30, 0, 500000), dt.datetime(2024, 1, 31, 12))
    form = JsonFormat(Types.ROW_NAMED(names, kinds))
    batch = pa.RecordBatch.from_pylist([dict(zip(names, row, strict=True))], schema=form.schema)
    texts = JsonEncoder().encode(ColumnBatch(batch)).cast(pa.binary())
    assert b"2024-01-31" in texts[0].as_py()
    made = form.decode(pa.concat_arrays([texts, binary(b'{"d":"31.1.2024"}', b'{"t":12}')]))
    assert [tuple(found.values()) for found in made.data.to_pylist()] == [row]
    assert len(made.whys) == 2


def test_json_has_no_wide_decimals() -> None:
    batch = pa.RecordBatch.from_arrays([pa.nulls(1, pa.decimal256(50, 2))], ["d"])
    with pytest.raises(
        TypeMismatchError, match=r"column 'd' of type decimal256.*cannot be written"
    ):
        JsonEncoder().encode(ColumnBatch(batch))


def test_each_malformed_record_says_why() -> None:
    made = JsonFormat({"n": int}).decode(binary(b'{"n":1}', b"x", None, b'{"n":"a"}', b'{"n":2}'))
    assert made.whys[:2] == [
        "the value is not exactly one JSON object",
        "the value is null, not a JSON object",
    ]
    assert "Column(/n)" in made.whys[2]
    assert made.why == made.whys[0]
    keys = JsonFormat({"k": int}).decode(binary(b"{}", b"y", b"{}", b"{}", b"z"))
    bad, whys = _both(made.bad, _reasons(made, ""), keys.bad, _reasons(keys, "key: "))
    assert bad.tolist() == [False, True, True, True, True]
    assert whys[1] == "the value is not exactly one JSON object"
    assert whys[4] == "key: the value is not exactly one JSON object"
    alone = Decoded(made.data, made.bad, "a format that says it of the first only")
    assert _reasons(alone, "") == {1: "a format that says it of the first only"}


def test_a_field_of_rows() -> None:
    assert written(RowFieldExtractorSchema(1), (1, b"x"), (2, None)) == [b"x", None]
    batch = ColumnBatch(pa.record_batch({"a": [1], "b": ["x"]}))
    assert RowFieldExtractorSchema(1).encoder.encode(batch).to_pylist() == ["x"]
    with pytest.raises(TypeMismatchError, match="there is no field 2 in the columns"):
        RowFieldExtractorSchema(2).encoder.encode(batch)
    with pytest.raises(TypeMismatchError, match="no field 5 in a record with fewer fields"):
        written(RowFieldExtractorSchema(5), (1, b"x"))
    with pytest.raises(ConfigurationError, match="field_index counts from 0, is -1"):
        RowFieldExtractorSchema(-1)


def test_avro_schemas_take_pyflinks_arguments() -> None:
    text = '{"type":"record","name":"R","fields":[{"name":"a","type":"long"}]}'
    for schema in (
        AvroRowDeserializationSchema(avro_schema_string=text),
        AvroRowDeserializationSchema(None, text),
        AvroRowDeserializationSchema(text),
    ):
        assert isinstance(schema.format, AvroFormat)
        assert schema.format.schema.names == ["a"]
    assert AvroRowSerializationSchema(avro_schema_string=text).encoder.schema["name"] == "R"
    with pytest.raises(ConfigurationError, match=r"classes of Java \('com\.Order'\) are not there"):
        AvroRowSerializationSchema("com.Order")


def test_maps_go_into_avro() -> None:
    values = {"type": "map", "values": "int"}
    fields = [{"name": "m", "type": values}]
    text = json.dumps({"type": "record", "name": "R", "fields": fields})
    batch = pa.RecordBatch.from_pylist(
        [{"m": {"a": 1}}], schema=pa.schema([("m", pa.map_(pa.string(), pa.int32()))])
    )
    encoded = AvroRowSerializationSchema(text).encoder.encode(ColumnBatch(batch))
    made = AvroRowDeserializationSchema(text).format.decode(encoded.cast(pa.binary()))
    assert made.data.equals(batch)


def test_any_schema_goes_into_a_record_serializer() -> None:
    made = (
        KafkaRecordSerializationSchema.builder()
        .set_topic("t")
        .set_key_serialization_schema(RowFieldExtractorSchema(0))
        .set_value_serialization_schema(CsvRowSerializationSchema.Builder(ROW).build())
        .build()
    )
    assert made.value.encode(ObjectBatch([(1, "x")])).to_pylist() == ["1,x\n"]
