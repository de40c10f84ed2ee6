"""Archives are unpacked as they are, and never outside their folder."""

from __future__ import annotations

import io
import os
import stat
import tarfile
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from strom import ConfigurationError
from strom.engine.hosts.archives import unpack_archive

FILES = {"data/a.txt": b"a", "data/deep/b.bin": bytes(1000), "run.sh": b"#!/bin/sh\n"}


def zipped(entries: dict[str, bytes], links: dict[str, str] | None = None) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = (stat.S_IFREG | (0o777 if name == "run.sh" else 0o644)) << 16
            archive.writestr(entry, data)
        for name, target in (links or {}).items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = (stat.S_IFLNK | 0o777) << 16
            archive.writestr(entry, target)
    return buffer.getvalue()


def tarred(mode: str) -> Callable[..., bytes]:
    def make(entries: dict[str, bytes], links: dict[str, str] | None = None) -> bytes:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode=f"w:{mode}") as archive:
            for name, data in entries.items():
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode = len(data), 0o777 if name == "run.sh" else 0o644
                archive.addfile(entry, io.BytesIO(data))
            for name, target in (links or {}).items():
                entry = tarfile.TarInfo(name)
                entry.type, entry.linkname = tarfile.SYMTYPE, target
                archive.addfile(entry)
        return buffer.getvalue()

    return make


MAKERS = {"zip": zipped, "tar": tarred(""), "tar.gz": tarred("gz"), "tar.xz": tarred("xz")}


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("arrow", [False, True])
def test_what_is_in_it_is_there(kind: str, arrow: bool, tmp_path: Path) -> None:
    data = MAKERS[kind](FILES, {"data/link": "deep/b.bin"})
    file = pa.BufferReader(pa.py_buffer(data)) if arrow else io.BytesIO(data)
    unpack_archive(file, "x", tmp_path)
    found = {
        str(path.relative_to(tmp_path)): path.read_bytes()
        for path in tmp_path.rglob("*")
        if path.is_file()
    }
    assert found == {**FILES, "data/link": FILES["data/deep/b.bin"]}
    assert os.access(tmp_path / "run.sh", os.X_OK)
    assert not (tmp_path / "run.sh").stat().st_mode & 0o022, "others do not write"
    assert not os.access(tmp_path / "data" / "a.txt", os.X_OK)


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize(
    ("entries", "links"),
    [
        ({"../out": b""}, {}),
        ({"a/../../out": b""}, {}),
        ({}, {"link": "/etc/passwd"}),
        ({}, {"link": "../out"}),
        ({}, {"a/link": "../../out"}),
    ],
)
def test_nothing_gets_outside(
    kind: str, entries: dict[str, bytes], links: dict[str, str], tmp_path: Path
) -> None:
    into = tmp_path / "into"
    into.mkdir()
    with pytest.raises(
        ConfigurationError, match=r"archive evil cannot be unpacked: .*(out|absolute)"
    ):
        unpack_archive(io.BytesIO(MAKERS[kind](entries, links)), "evil", into)
    assert [path.name for path in tmp_path.iterdir()] == ["into"]
    for path in into.rglob("*"):
        assert Path(os.path.realpath(path)).is_relative_to(into)


@pytest.mark.parametrize("kind", MAKERS)
def test_links_that_lead_outside_together_do_not(kind: str, tmp_path: Path) -> None:
    """Each leads inside as long as the other is not there. Refused, or, as later versions of Python
    do with a tar, made anew without the way out."""
    into = tmp_path / "into"
    into.mkdir()
    data = MAKERS[kind]({"d/file": b""}, {"one": "two/d/../..", "two": "."})
    with suppress(ConfigurationError):
        unpack_archive(io.BytesIO(data), "evil", into)
        assert kind != "zip"
    for path in into.rglob("*"):
        assert Path(os.path.realpath(path)).is_relative_to(into)


@pytest.mark.parametrize("name", ["/out", "..\\out"])
def test_names_that_zips_should_not_have(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="leads out of the folder"):
        unpack_archive(io.BytesIO(zipped({name: b""})), "evil", tmp_path)


@pytest.mark.parametrize("kind", ["zip", "tar.gz", "tar.xz"])  # others have no checksums
def test_damaged_ones_are_named(kind: str, tmp_path: Path) -> None:
    data = MAKERS[kind]({"file": os.urandom(5000)})
    damaged = data[:2000] + data[2600:]
    with pytest.raises(ConfigurationError, match=r"archive some\.file "):
        unpack_archive(io.BytesIO(damaged), "some.file", tmp_path)
    with pytest.raises(ConfigurationError, match="x is neither a zip nor a tar"):
        unpack_archive(io.BytesIO(b"hello"), "x", tmp_path)


def test_a_tar_with_a_zip_in_it_is_a_tar(tmp_path: Path) -> None:
    inner = zipped({"deep.txt": b"deep"})
    unpack_archive(io.BytesIO(MAKERS["tar"]({"inner.zip": inner})), "x", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["inner.zip"]
