"""What a sink makes of batches, and what it refuses; no broker."""

from __future__ import annotations

import ctypes
import io
import itertools
import json
from typing import Any

import cloudpickle
import fastavro
import numpy as np
import pyarrow as pa
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strom import Types
from strom.connectors.kafka import (
    AvroEncoder,
    AvroRowSerializationSchema,
    DeliveryGuarantee,
    JsonEncoder,
    JsonRowSerializationSchema,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaTopicSelector,
    RawEncoder,
    SimpleStringSchema,
    StringEncoder,
)
from strom.connectors.kafka.outgoing import Outgoing, as_bytes, outgoing
from strom.connectors.kafka.produce_kernels import produce
from strom.connectors.kafka.record_maker import RecordFormat, make_records
from strom.core.batch import ColumnBatch, ObjectBatch
from strom.core.errors import ConfigurationError, TypeMismatchError
from strom.core.row_kind import ROW_KIND


def texts(records: Outgoing) -> list[list[bytes | None]]:
    """Values, keys, and each header, from where they are in memory."""
    found = [
        ctypes.string_at(int(address), int(length)) if address else None
        for address, length in zip(records.addresses, records.lengths, strict=True)
    ]
    count = len(records)
    return [found[i : i + count] for i in range(0, len(found), count)]


def form(**given: Any) -> RecordFormat:
    told: dict[str, Any] = {
        "topic": "t",
        "topic_column": None,
        "value": RawEncoder("v"),
        "key": None,
        "headers": {},
        "partition": None,
        "event_times": False,
        "changelog": "refuse",
    }
    return RecordFormat(**{**told, **given})


def columns(stamps: list[int] | None = None, **arrays: Any) -> ColumnBatch:
    times = None if stamps is None else np.array(stamps, dtype=np.int64)
    return ColumnBatch(pa.record_batch(arrays), times)


BYTES = [b"a", None, b"", b"\x00\xff", b"long" * 20]


@pytest.mark.parametrize(
    "kind",
    [pa.binary(), pa.large_binary(), pa.binary_view(), pa.dictionary(pa.int32(), pa.binary())],
    ids=str,
)
@pytest.mark.parametrize("start", [0, 2])
def test_bytes_are_found_where_they_are(kind: pa.DataType, start: int) -> None:
    plain = pa.array(BYTES, pa.binary())
    column = plain.dictionary_encode() if pa.types.is_dictionary(kind) else plain.cast(kind)
    records = outgoing("t", as_bytes(column[start:], "test"), None, {}, None, None)
    assert texts(records) == [BYTES[start:], [None] * len(BYTES[start:])]


def test_fixed_size_and_text_and_nulls_are_bytes_too() -> None:
    fixed = pa.array([b"ab", b"cd", None], pa.binary(2))
    for column in (
        fixed,
        pa.array(["ab", "cd", None]),
        pa.array(["ab", "cd", None], "string_view"),
    ):
        made = outgoing("t", as_bytes(column, "test"), None, {}, None, None)
        assert texts(made)[0] == [b"ab", b"cd", None]
    assert texts(outgoing("t", pa.nulls(2), None, {}, None, None))[0] == [None, None]


def test_numbers_are_no_bytes() -> None:
    with pytest.raises(TypeMismatchError, match="type int64: encode it by StringEncoder"):
        make_records(form(), columns(v=[1]))


def test_records_that_are_bytes_or_text() -> None:
    made = make_records(form(value=RawEncoder()), ObjectBatch([b"a", "\u00e9", None]))
    assert texts(made)[0] == [b"a", "\u00e9".encode(), None]
    with pytest.raises(TypeMismatchError, match="a record is of type dict"):
        make_records(form(value=RawEncoder()), ObjectBatch([{"a": 1}]))


def test_text_of_any_value() -> None:
    made = make_records(form(value=StringEncoder("v")), columns(v=[1.5, None]))
    assert texts(made)[0] == [b"1.5", None]
    with pytest.raises(TypeMismatchError, match="has no text"):
        make_records(form(value=StringEncoder("v")), columns(v=[[1]]))


def test_json_objects() -> None:
    batch = columns(a=[1, None], s=['"\n', "x"], f=[1.5, float("nan")], b=[True, None])
    made = make_records(form(value=JsonEncoder()), batch)
    assert [json.loads(text or b"") for text in texts(made)[0]] == [
        {"a": 1, "s": '"\n', "f": 1.5, "b": True},
        {"a": None, "s": "x", "f": None, "b": None},
    ]
    some = make_records(form(value=JsonEncoder(["s"])), batch)
    assert texts(some)[0][1] == b'{"s":"x"}'
    with pytest.raises(TypeMismatchError, match="no column 'z'"):
        make_records(form(value=JsonEncoder(["z"])), batch)


def test_json_of_objects_of_a_type() -> None:
    value = JsonEncoder(type_info=Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.STRING()]))
    made = make_records(form(value=value), ObjectBatch([(1, "x"), (None, "y")]))
    assert texts(made)[0] == [b'{"a":1,"b":"x"}', b'{"a":null,"b":"y"}']


def test_json_has_no_form_for_bytes() -> None:
    for column in (pa.array([b"x"]), pa.array([[b"x"]]), pa.array([{"in": b"x"}])):
        with pytest.raises(TypeMismatchError, match=r"column 'c' of type .* has no form in JSON"):
            make_records(form(value=JsonEncoder()), columns(c=column))


AVRO = {
    "type": "record",
    "name": "bid",
    "fields": [{"name": "a", "type": "long"}, {"name": "s", "type": ["null", "string"]}],
}


def test_avro_records() -> None:
    batch = columns(a=[1, 2], s=["x", None], more=[0, 0])
    made = make_records(form(value=AvroEncoder(json.dumps(AVRO))), batch)
    parsed = fastavro.parse_schema(AVRO)
    read = [fastavro.schemaless_reader(io.BytesIO(text or b""), parsed) for text in texts(made)[0]]
    assert read == [{"a": 1, "s": "x"}, {"a": 2, "s": None}]
    framed = make_records(form(value=AvroEncoder(AVRO, schema_id=258)), batch)
    assert [(text or b"")[:5] for text in texts(framed)[0]] == [b"\0\0\0\1\2"] * 2
    with pytest.raises(TypeMismatchError, match="does not fit the schema 'bid'"):
        make_records(form(value=AvroEncoder(AVRO)), columns(a=[None], s=["x"]))
    with pytest.raises(ConfigurationError, match="no JSON"):
        AvroEncoder("{")


def test_topics_of_records() -> None:
    batch = columns(v=["1", "2", "3"], t=["x", "y", "x"])
    for of in ("t", lambda row: row.t):
        made = make_records(form(topic=None, topic_column=of), batch)
        assert [made.topic(i) for i in range(3)] == ["x", "y", "x"]
    with pytest.raises(TypeMismatchError, match="'t' of topics holds a null"):
        make_records(
            form(topic=None, topic_column="t"), columns(v=["1"], t=pa.array([None], "str"))
        )
    with pytest.raises(TypeMismatchError, match="7 is no topic's name"):
        make_records(form(topic=None, topic_column=lambda row: 7), batch)


def test_partitions_keys_headers() -> None:
    batch = columns(v=["1", "2"], k=["a", None], p=[3, None], h=[None, "z"])
    made = make_records(form(key=RawEncoder("k"), headers={"who": "h"}, partition="p"), batch)
    assert made.partitions.tolist() == [3, -1]
    assert made.headers == ("who",)
    assert texts(made) == [[b"1", b"2"], [b"a", None], [None, b"z"]]
    with pytest.raises(TypeMismatchError, match="partition -2; they count from 0"):
        make_records(form(partition="p"), columns(v=["1"], p=[-2]))
    with pytest.raises(TypeMismatchError, match="holds partition 4294967296"):
        make_records(form(partition="p"), columns(v=["1"], p=[2**32]))


def test_event_times() -> None:
    batch = columns([0, 5], v=["1", "2"])
    assert make_records(form(event_times=True), batch).timestamps.tolist() == [1, 5]
    assert make_records(form(), batch).timestamps.tolist() == [0, 0]
    with pytest.raises(TypeMismatchError, match="-1 ms is before 1970"):
        make_records(form(event_times=True), columns([-1], v=["1"]))


def changes() -> ColumnBatch:
    kinds = pa.array([0, 1, 2, 3], pa.int8())
    data = {"v": ["new", "old", "newer", "gone"], "k": ["a", "a", "a", "a"], ROW_KIND: kinds}
    return columns(**data)


def test_a_changelog_is_refused_or_written_as_upserts() -> None:
    with pytest.raises(TypeMismatchError, match='set changelog="upsert" and a key'):
        make_records(form(), changes())
    made = make_records(form(key=RawEncoder("k"), changelog="upsert"), changes())
    assert texts(made) == [[b"new", b"newer", None], [b"a"] * 3]
    whole = make_records(
        form(value=JsonEncoder(), key=RawEncoder("k"), changelog="upsert"), changes()
    )
    assert texts(whole)[0] == [b'{"v":"new","k":"a"}', b'{"v":"newer","k":"a"}', None]
    with pytest.raises(TypeMismatchError, match="the key of a record is null"):
        make_records(
            form(key=RawEncoder("k"), changelog="upsert"),
            columns(v=["1"], k=pa.array([None], pa.string())),
        )
    with pytest.raises(ConfigurationError, match="upserts need a key"):
        form(changelog="upsert")


def test_an_update_that_changes_the_key_deletes_the_old_one() -> None:
    #  -U a, +U b     and     -U c | at the end of the batch     and     -U d, -D d
    data = {
        "v": ["1", "2", "3", "4", "5"],
        "k": ["a", "b", "d", "d", "c"],
        ROW_KIND: pa.array([1, 2, 1, 3, 1], pa.int8()),
    }
    made = make_records(form(key=RawEncoder("k"), changelog="upsert"), columns(**data))
    assert texts(made) == [[None, b"2", None, None, None], [b"a", b"b", b"d", b"d", b"c"]]


@given(
    changes=st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abc"), st.integers(0, 9))),
    cuts=st.lists(st.integers(0, 40)),
)
def test_upserts_make_the_table_that_the_changelog_describes(changes: Any, cuts: Any) -> None:
    table: dict[str, str] = {}
    rows: list[tuple[str, str, int]] = []
    for old, new, value in changes:
        text = str(value)
        if old in table and (new == old or new not in table):
            rows += [(old, table.pop(old), 1), (new, text, 2)]
            table[new] = text
        elif old in table:
            rows.append((old, table.pop(old), 3))
        else:
            rows.append((old, text, 0))
            table[old] = text
    found: dict[bytes, bytes] = {}
    bounds = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    for start, end in itertools.pairwise(bounds):
        part = rows[start:end]
        data = {
            "v": [row[1] for row in part],
            "k": [row[0] for row in part],
            ROW_KIND: pa.array([row[2] for row in part], pa.int8()),
        }
        made = make_records(form(key=RawEncoder("k"), changelog="upsert"), columns(**data))
        for value, key in zip(*texts(made), strict=True):
            assert key is not None
            if value is None:
                found.pop(key, None)
            else:
                found[key] = value
    assert found == {k.encode(): v.encode() for k, v in table.items()}


# --- the kernel, with a function of ours where the library's would be ----------------------------


CALLED = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


class Library:
    """Takes what the kernel passes, and refuses record number `full`."""

    def __init__(self, full: int | None) -> None:
        self.full = full
        self.taken: list[Any] = []
        self._function = CALLED(self._called)
        self.address = ctypes.cast(self._function, ctypes.c_void_p).value or 0

    def _called(self, client: int, arguments: int, count: int) -> int:
        if len(self.taken) == self.full:
            self.full = None
            return 4711
        record: dict[str, Any] = {"client": client, "headers": []}
        for i in range(count):
            at = arguments + 72 * i
            kind = ctypes.c_int32.from_address(at).value
            word = ctypes.c_int64.from_address(at + 8).value
            size = ctypes.c_int64.from_address(at + 16).value
            if kind in (4, 5):
                record[kind] = ctypes.string_at(word, size) if word else None
            elif kind == 9:
                length = ctypes.c_int64.from_address(at + 24).value
                text = ctypes.string_at(size, length)
                record["headers"].append((ctypes.string_at(word), text))
            else:
                record[kind] = ctypes.c_int32.from_address(at + 8).value if kind == 3 else word
        self.taken.append(record)
        return 0


optional = st.one_of(st.none(), st.binary(max_size=5))


@settings(deadline=None, max_examples=examples(50))
@given(
    rows=st.lists(
        st.tuples(
            optional, optional, optional, optional, st.integers(-1, 9), st.integers(0, 1 << 50)
        ),
        max_size=20,
    ),
    data=st.data(),
)
def test_the_kernel_passes_every_record_once_and_goes_on_where_it_stopped(
    rows: list[Any], data: Any
) -> None:
    parts = [pa.array([row[i] for row in rows], pa.binary()) for i in range(4)]
    partitions = np.array([row[4] for row in rows], dtype=np.int64)
    stamps = np.array([row[5] for row in rows], dtype=np.int64)
    records = outgoing("t", parts[0], parts[1], {"x": parts[2], "y": parts[3]}, partitions, stamps)
    full = data.draw(st.one_of(st.none(), st.integers(0, max(0, len(rows) - 1))))
    library = Library(full if rows else None)
    names = [np.frombuffer(name, dtype=np.uint8) for name in (b"x\0", b"y\0")]
    headers = np.array([name.ctypes.data for name in names], dtype=np.int64)
    topics = np.arange(len(rows), dtype=np.int64) + 1000

    def call(start: int) -> tuple[int, int]:
        return produce(
            library.address,
            99,
            topics,
            records.partitions,
            records.timestamps,
            records.addresses,
            records.lengths,
            headers,
            start,
        )

    done, failed = call(0)
    if rows and full is not None:
        assert (done, failed) == (full, 4711)
        done, failed = call(done)
    assert (done, failed) == (len(rows), 0)
    assert library.taken == [
        {
            "client": 99,
            2: 1000 + i,
            3: row[4],
            4: row[0],
            5: row[1],
            7: 2,
            8: row[5],
            "headers": [(n, t) for n, t in ((b"x", row[2]), (b"y", row[3])) if t is not None],
        }
        for i, row in enumerate(rows)
    ]


# --- what a sink is told ----------------------------------------------------------------------


def test_settings_that_do_not_fit_are_refused_by_name() -> None:
    def refused(match: str, **given: Any) -> None:
        with pytest.raises(ConfigurationError, match=match):
            KafkaSink("h:1", **{"topic": "t", **given})

    exactly: dict[str, Any] = {"delivery": "exactly-once", "transactional_id_prefix": "p"}
    refused("give a topic", topic=None)
    refused("give a topic", topic_column="c")
    refused("delivery must be one of", delivery="twice")
    refused("needs transactional_id_prefix", delivery="exactly-once")
    refused("'transactional.id' is the sink's own", properties={"transactional.id": "x"})
    refused("must be true", properties={"enable.idempotence": False}, **exactly)
    refused("'ssl.ca.pem'", properties={"ssl.ca.pem": "x"}, **exactly)
    refused(
        "sasl.mechanism=OAUTHBEARER",
        properties={"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"},
        **exactly,
    )
    refused("value must be a column's name or an encoder", value=3)
    refused("on_lost_transaction", on_lost_transaction="maybe", **exactly)
    with pytest.raises(ConfigurationError, match="bootstrap_servers is empty"):
        KafkaSink("", "t")


def test_only_exactly_once_cannot_go_back_to_an_older_checkpoint() -> None:
    exactly = KafkaSink("h:1", "t", delivery="exactly-once", transactional_id_prefix="p")
    assert not exactly.revocable
    assert KafkaSink("h:1", "t").revocable


def test_no_secret_is_shown_and_a_sink_travels() -> None:
    login = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "me",
        "sasl.password": "hidden-word",
        "ssl.key.password": "hidden-word",
    }
    sink = KafkaSink(
        "h:1",
        "t",
        delivery="exactly-once",
        transactional_id_prefix="p",
        properties=login,
    )
    assert "hidden-word" not in f"{sink!r} {sink.config!r}"
    again = cloudpickle.loads(cloudpickle.dumps(sink))
    assert again.config.properties["sasl.password"] == "hidden-word"


class Selector(KafkaTopicSelector):
    def apply(self, data: Any) -> str:
        return f"topic-{data}"


def test_pyflinks_names() -> None:
    serializer = (
        KafkaRecordSerializationSchema.builder()
        .set_topic("t")
        .set_value_serialization_schema(SimpleStringSchema())
        .build()
    )
    sink = (
        KafkaSink.builder()
        .set_bootstrap_servers("h:1")
        .set_record_serializer(serializer)
        .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .set_transactional_id_prefix("p")
        .set_property("transaction.timeout.ms", "60000")
        .build()
    )
    assert sink.config.delivery == "exactly-once"
    assert sink.config.prefix == "p"
    assert sink.config.timeout_ms == 60_000
    made = make_records(sink.config.format, ObjectBatch(["x"]))
    assert texts(made) == [[b"x"], [None]]


def test_pyflinks_schemas_and_selectors() -> None:
    row_type = Types.ROW_NAMED(["a"], [Types.LONG()])
    json_schema = JsonRowSerializationSchema.builder().with_type_info(row_type).build()
    serializer = (
        KafkaRecordSerializationSchema.builder()
        .set_topic_selector(Selector())
        .set_value_serialization_schema(json_schema)
        .set_key_serialization_schema(AvroRowSerializationSchema(json.dumps(AVRO)))
        .build()
    )
    assert isinstance(serializer.key, AvroEncoder)
    sink = (
        KafkaSink.builder().set_bootstrap_servers("h:1").set_record_serializer(serializer).build()
    )
    assert sink.config.delivery == "none"
    sink = KafkaSink("h:1", value=serializer.value, topic_column=Selector().apply)
    made = make_records(sink.config.format, ObjectBatch([(1,)]))
    assert made.topics == ("topic-(1,)",)
    assert texts(made)[0] == [b'{"a":1}']
    with pytest.raises(ConfigurationError, match=r"needs set_topic\(...\)"):
        KafkaRecordSerializationSchema.builder().set_value_serialization_schema(
            SimpleStringSchema()
        ).build()
    with pytest.raises(ConfigurationError, match="is no way to write records"):
        KafkaRecordSerializationSchema.builder().set_value_serialization_schema("json")
