"""Of several that make a file one does, and what it says is whole."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from strom.core.exclusive_files import create, makes_exclusively


def test_one_of_many_writers_makes_it(tmp_path: Path) -> None:
    path = str(tmp_path / "epoch-1")
    texts = [str(n).encode() * 1000 for n in range(16)]
    with ThreadPoolExecutor(16) as pool:
        made = list(pool.map(lambda text: create(LocalFileSystem(), path, text), texts))
    assert made.count(True) == 1
    assert Path(path).read_bytes() == texts[made.index(True)]
    assert os.listdir(tmp_path) == ["epoch-1"], "nothing is left beside it"


def test_a_disk_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: str, target: str) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    path = str(tmp_path / "epoch-1")
    assert create(LocalFileSystem(), path, b"one")
    assert not create(LocalFileSystem(), path, b"two")
    assert Path(path).read_bytes() == b"one"
    assert os.listdir(tmp_path) == ["epoch-1"]


class Old(MemoryFileSystem):  # type: ignore[misc]
    """One whose server knows of no conditions."""

    protocol = "s3"
    cachable = False

    def __init__(self, error: Exception | None) -> None:
        super().__init__()
        self.error = error

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        if mode == "create" and self.error is not None:
            raise self.error
        super().pipe_file(path, value, mode=mode)


@pytest.mark.parametrize(
    "error", [None, NotImplementedError("a header"), OSError("NotImplemented: a header")]
)
def test_object_stores_and_those_without_conditions(
    error: Exception | None, caplog: pytest.LogCaptureFixture
) -> None:
    filesystem = Old(error)
    path = f"/exclusive-{id(filesystem)}/epoch-1"
    assert makes_exclusively(filesystem)
    assert create(filesystem, path, b"one")
    assert not create(filesystem, path, b"two")
    assert filesystem.cat_file(path) == b"one"
    said = [one.getMessage() for one in caplog.records if "cannot make a file" in one.message]
    place = f"the store 's3://exclusive-{id(filesystem)}'"
    assert [one.partition(" cannot")[0] for one in said] == ([place] if error else []), "once"


def told(message: str, **attributes: Any) -> Exception:
    """What the library of a store raises."""
    error = OSError(errno.EINVAL, message)
    for name, value in attributes.items():
        setattr(error, name, value)
    return error


BOTO = {"Error": {"Code": "PreconditionFailed"}, "ResponseMetadata": {"HTTPStatusCode": 412}}


@pytest.mark.parametrize(
    "error",
    [
        told("An error occurred", response=BOTO),
        told("An error occurred", response={"Error": {"Code": "ConditionalRequestConflict"}}),
        told("At least one of the pre-conditions you specified did not hold"),
        told("no", code=412),
        told("no", status_code="412"),
        told("no", __cause__=told("", response=BOTO)),
    ],
    ids=lambda error: str(vars(error)),
)
def test_what_refusals_look_like(error: Exception) -> None:
    assert not create(Old(error), "/exclusive/epoch-1", b"one")


@pytest.mark.parametrize(
    "error",
    [
        TimeoutError("/exclusive-34127/epoch-412: no answer"),
        told("412 of 900 bytes were sent", code=500),
        told("the server is busy", response={"Error": {"Code": "SlowDown"}}),
    ],
    ids=str,
)
def test_a_number_in_a_text_is_no_refusal(error: Exception) -> None:
    """Who takes the file for another's gives up what would have gone well the next time."""
    with pytest.raises(type(error), match=str(error.args[-1])):
        create(Old(error), "/exclusive-34127/epoch-412", b"one")


def test_what_a_server_refuses_for_another_reason_is_raised() -> None:
    with pytest.raises(PermissionError):
        create(Old(PermissionError("not yours")), "/exclusive/epoch-1", b"one")
