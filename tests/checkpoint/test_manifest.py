"""Manifests: text and back, and every way a text can be wrong."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from strom.checkpoint import manifest as manifest_module
from strom.checkpoint.handles import (
    DatabaseHandle,
    FileHandle,
    InFlightHandle,
    KeyedHandle,
    OperatorHandle,
    OperatorSnapshot,
    SubtaskSnapshot,
)
from strom.checkpoint.manifest import (
    FORMAT_VERSION,
    READ_VERSIONS,
    Manifest,
    OperatorShape,
    _checksum,
    decode,
    encode,
    unmatched,
)
from strom.checkpoint.names import safe_name
from strom.core.errors import CheckpointFormatError, CorruptCheckpointError
from strom.core.ids import OperatorId, TaskId, VertexId
from strom.state.stored_files import StoredState

names = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,20}", fullmatch=True).filter(
    lambda name: name != "manifest.json"
)
sizes, checksums = st.integers(0, 2**40), st.from_regex(r"[0-9a-f]{16}", fullmatch=True)
files = st.builds(
    FileHandle,
    names,
    sizes,
    checksums,
    st.none() | st.binary(max_size=20),
) | st.builds(
    FileHandle,
    names.map(lambda name: f"7-{name}"),
    sizes,
    checksums,
    shared=st.just(True),
    offset=st.none() | st.integers(0, 2**40),
)
groups = st.lists(st.tuples(*[st.integers(0, 2**20)] * 3), max_size=3).map(tuple)
keyed = st.builds(
    KeyedHandle,
    st.text(max_size=9),
    st.sampled_from(["value", "timers"]),
    files,
    groups,
    st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2),
    st.sampled_from(["whole", "base", "delta"]),
)
databases = st.builds(
    DatabaseHandle,
    st.lists(st.tuples(st.sampled_from(["000012.sst", "CURRENT"]), files), max_size=2).map(tuple),
    st.lists(
        st.builds(
            StoredState,
            st.text(max_size=5),
            st.just("value"),
            st.binary(min_size=2, max_size=2),
            st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2),
        ),
        max_size=2,
    ).map(tuple),
    st.none() | files,
)
operators = st.builds(
    OperatorSnapshot,
    st.text(max_size=9),
    st.lists(keyed, max_size=2).map(tuple),
    st.none() | st.builds(OperatorHandle, files),
    st.none() | databases,
)
subtasks = st.builds(
    SubtaskSnapshot,
    st.builds(TaskId, st.text(max_size=9), st.integers(0, 9)),
    st.lists(operators, max_size=2).map(tuple),
    st.none()
    | st.builds(InFlightHandle, files, st.lists(st.text(max_size=9), max_size=2).map(tuple)),
)
manifests = st.builds(
    Manifest,
    names,
    st.text(max_size=9),
    st.integers(1, 2**40),
    st.integers(0, 2**45),
    st.lists(
        st.builds(
            OperatorShape,
            st.text(max_size=9),
            st.text(),
            st.integers(1, 9),
            st.just(128),
            st.none() | st.text(max_size=9),
        ),
        max_size=2,
    ).map(tuple),
    st.lists(subtasks, max_size=3).map(tuple),
    st.dictionaries(st.text(max_size=9), st.binary(max_size=30), max_size=2),
    *[st.booleans()] * 3,
    st.none() | st.text(max_size=9),
    st.integers(0, 9),
)


@given(manifests)
def test_round_trip(manifest: Manifest) -> None:
    assert decode(encode(manifest), "m") == manifest


@given(manifests)
def test_what_is_written_is_what_json_makes_of_it(manifest: Manifest) -> None:
    """And its body is what the checksum is of, so that who reads it need not encode it again."""
    data = encode(manifest)
    document = json.loads(data)
    assert json.dumps(document, sort_keys=True, separators=(",", ":")).encode() == data
    assert document["checksum"] == _checksum(document["body"])


def test_what_was_written_so_is_not_encoded_to_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[Any] = []

    def noted(body: Any) -> str:
        encoded.append(body)
        return _checksum(body)

    monkeypatch.setattr(manifest_module, "_checksum", noted)
    data = encode(EXAMPLE)
    assert decode(data, "m") == EXAMPLE
    assert encoded == []
    spaced = json.dumps(json.loads(data)).encode()
    assert decode(spaced, "m") == EXAMPLE
    assert len(encoded) == 1
    with pytest.raises(CorruptCheckpointError, match="was altered: checksum"):
        decode(data.replace(b'"Sum"', b'"Max"'), "m")


FILE = FileHandle("f.arrow", 3, "0123456789abcdef", b"abc")
EXAMPLE = Manifest(
    "job",
    "Job",
    5,
    99,
    (OperatorShape("op", "Sum", 2, 128),),
    (
        SubtaskSnapshot(TaskId("v", 1), (OperatorSnapshot("op", (), OperatorHandle(FILE)),)),
        SubtaskSnapshot(
            TaskId("v", 0),
            (OperatorSnapshot("op", (KeyedHandle("s", "value", FILE, ((0, 0, 1),)),)),),
        ),
    ),
    {"src": b"\x00\xff"},
)


def signed(change: Any) -> bytes:
    """EXAMPLE with its body changed and the checksum made right again."""
    document = json.loads(encode(EXAMPLE))
    change(document["body"])
    canonical = json.dumps(document["body"], sort_keys=True, separators=(",", ":"))
    document["checksum"] = xxhash.xxh64_hexdigest(canonical.encode())
    return json.dumps(document).encode()


def set_file(field: str, value: Any) -> Any:
    def change(body: Any) -> None:
        body["subtasks"][0]["operators"][0]["operator_state"][field] = value

    return change


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda b: b.pop("job_name"), r"m: body: field 'job_name' is missing"),
        (lambda b: b.update(checkpoint_id="5"), "'checkpoint_id' is str, expected int"),
        (lambda b: b.update(checkpoint_id=True), "'checkpoint_id' is bool, expected int"),
        (lambda b: b.update(subtasks={}), "'subtasks' is dict, expected list"),
        (lambda b: b.update(subtasks=[3]), r"subtasks\[0\]: found int, expected object"),
        (lambda b: b.update(enumerators={"s": 1}), "'enumerators.s' is int"),
        (lambda b: b.update(enumerators={"s": "%"}), "bad base64"),
        (set_file("path", "../x"), r"path '\.\./x' leaves"),
        (set_file("path", "/x"), "leaves"),
        (set_file("size", 1.5), "'size' is float, expected int"),
        (
            lambda b: b["subtasks"][1]["operators"][0]["keyed"][0].update(groups=[[1, 2]]),
            r"key group entry \[1, 2\]",
        ),
        (lambda b: b["subtasks"][0]["operators"][0].pop("operator_state"), "is missing"),
    ],
)
def test_wrong_bodies_name_the_field(change: Any, reason: str) -> None:
    with pytest.raises(CorruptCheckpointError, match=reason):
        decode(signed(change), "m")


def test_white_space_does_not_matter_but_content_does() -> None:
    assert decode(signed(lambda body: None), "m") == EXAMPLE
    altered = encode(EXAMPLE).replace(b'"size":3', b'"size":4')
    with pytest.raises(CorruptCheckpointError, match="was altered: checksum"):
        decode(altered, "m")


@pytest.mark.parametrize("cut", [0, 1, 50, -1])
def test_torn_text_is_named(cut: int) -> None:
    with pytest.raises(CorruptCheckpointError, match=r"where/manifest\.json: not JSON"):
        decode(encode(EXAMPLE)[:cut], "where/manifest.json")


@pytest.mark.parametrize("version", [READ_VERSIONS[0] - 1, READ_VERSIONS[-1] + 1])
def test_another_format_is_refused_by_a_sentence_that_names_both(version: int) -> None:
    """Before anything else of it is looked at: its body may be quite different."""
    other = {"format": version, "anything": "else"}
    with pytest.raises(CheckpointFormatError) as caught:
        decode(json.dumps(other).encode(), "chk-3/manifest.json")
    text = str(caught.value)
    assert text.startswith(f"chk-3/manifest.json: written in checkpoint format {version}, ")
    assert f"this strom reads formats {READ_VERSIONS[0]} to {READ_VERSIONS[-1]}:" in text
    assert not isinstance(caught.value, CorruptCheckpointError)


UNEVEN = replace(EXAMPLE, operators=(OperatorShape("op", "Sum", 3, 128, "sum", (0, 5, 90)),))


def test_an_uneven_deal_is_told_in_a_format_of_its_own() -> None:
    """All others are as they were: who knows of no deals reads them."""
    found = json.loads(encode(UNEVEN))
    assert (found["format"], json.loads(encode(EXAMPLE))["format"]) == (10, FORMAT_VERSION)
    assert found["body"]["operators"] == [
        {
            "operator": "op",
            "name": "Sum",
            "parallelism": 3,
            "max_parallelism": 128,
            "uid": "sum",
            "deal": [0, 5, 90],
        }
    ]
    assert "deal" not in json.loads(encode(EXAMPLE))["body"]["operators"][0]
    assert decode(encode(UNEVEN), "m") == UNEVEN


@pytest.mark.parametrize("deal", [[0], [0, 200], [1, 2], [0, 0], ["0", 4], [0, True], "0,5", None])
def test_a_deal_that_is_none_names_the_field(deal: Any) -> None:
    with pytest.raises(CorruptCheckpointError, match="field 'deal'"):
        decode(signed(lambda body: body["operators"][0].update(deal=deal)), "m")


def test_other_texts() -> None:
    with pytest.raises(CorruptCheckpointError, match="found list, expected object"):
        decode(b"[]", "m")
    with pytest.raises(CorruptCheckpointError, match="not JSON"):
        decode(b"\xff\xfe\x00", "m")


def test_questions_to_a_manifest() -> None:
    assert EXAMPLE.size == 6
    assert [s.keyed != () for s in EXAMPLE.snapshots("op")] == [True, False]
    assert EXAMPLE.shape("op") == OperatorShape("op", "Sum", 2, 128)
    assert EXAMPLE.shape("other") is None
    assert unmatched(EXAMPLE, ["op", "src"]) == []
    assert unmatched(EXAMPLE, ["new"]) == ["op", "src"]


def test_safe_names_are_distinct() -> None:
    operators = ["a/b", "a b", "a-b", "ä", "../..", "", "x" * 500]
    found = [safe_name(operator) for operator in operators]
    assert len(set(found)) == len(found)
    assert all("/" not in name and len(name) < 60 for name in found)


def _with_database(name: str = "000012.sst", prefix: str = "0001") -> dict[str, Any]:
    file = FileHandle("3-op-0-000012.sst", 7, "0" * 16, shared=True)
    own = FileHandle("op-0-CURRENT", 2, "1" * 16)
    states = (StoredState("s", "value", b"\x00\x01", {"layout": "entries"}),)
    handle = DatabaseHandle((("000012.sst", file), ("CURRENT", own)), states, own)
    snapshot = OperatorSnapshot(OperatorId("op"), database=handle)
    manifest = replace(EXAMPLE, subtasks=(SubtaskSnapshot(TaskId(VertexId("v"), 0), (snapshot,)),))
    decoded = decode(encode(manifest), "manifest.json")
    assert decoded == manifest
    assert [*decoded.files()] == [file, own, own]
    assert decoded.shared == {file.path}
    document: dict[str, Any] = json.loads(encode(manifest))
    database = document["body"]["subtasks"][0]["operators"][0]["database"]
    database["files"][0]["name"] = name
    database["states"][0]["prefix"] = prefix
    return document


@pytest.mark.parametrize(
    "wrong",
    [{"name": "../out"}, {"name": "a/b"}, {"name": ".."}, {"prefix": "01"}, {"prefix": "zzzz"}],
)
def test_files_of_databases_stay_in_the_folder_that_is_made_for_them(wrong: dict[str, str]) -> None:
    document = _with_database(**wrong)
    document["checksum"] = _checksum(document["body"])
    with pytest.raises(CorruptCheckpointError, match=re.escape(repr(next(iter(wrong.values()))))):
        decode(json.dumps(document).encode(), "manifest.json")
