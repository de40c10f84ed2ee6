"""Places for checkpoints: what is done there, what is left, what is said, what is hidden."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from strom.checkpoint.secrets import shown_url
from strom.diagnosis import probes
from strom.diagnosis.findings import OK, PROBLEM, WARNING
from strom.diagnosis.probing import ProbeError, ask
from strom.diagnosis.storage import storage

STEPS = ["open", "write", "list", "read", "rename", "delete"]


def here(probe: str, question: Any = None, limit_s: float = 0) -> Any:
    """Probes in this process."""
    return probes.PROBES[probe](question)


@pytest.fixture
def memory() -> MemoryFileSystem:
    filesystem = fsspec.filesystem("memory")
    filesystem.store.clear()
    filesystem.pseudo_dirs[:] = [""]
    return filesystem


def test_a_folder_is_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "kept").touch()
    found = storage(str(tmp_path), ask)
    assert found.status == OK
    assert [word.split()[0] for word in found.found.split(", ")] == STEPS
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_a_folder_that_was_not_there_is_not_there_again(tmp_path: Path) -> None:
    assert storage(f"file://{tmp_path}/new", here).status == OK
    assert list(tmp_path.iterdir()) == []


def test_an_object_store(memory: MemoryFileSystem) -> None:
    assert storage("memory://bucket/jobs", here).status == OK
    assert memory.find("/") == []


@pytest.mark.parametrize(
    ("step", "method"),
    [
        ("open", "exists"),
        ("write", "pipe_file"),
        ("list", "ls"),
        ("read", "cat_file"),
        ("rename", "mv"),
        ("delete", "rm_file"),
    ],
)
def test_the_step_that_fails_is_told_and_nothing_is_left(
    memory: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch, step: str, method: str
) -> None:
    real = getattr(MemoryFileSystem, method)

    def refuse(self: Any, path: str, *arguments: Any, **options: Any) -> Any:
        if step == "delete" and not path.endswith("/renamed"):
            return real(self, path, *arguments, **options)
        raise PermissionError("AccessDenied")

    memory.pipe_file("/bucket/jobs/kept", b"")
    with monkeypatch.context() as patched:
        patched.setattr(MemoryFileSystem, method, refuse)
        found = storage("memory://bucket/jobs", here)
    assert found.status == PROBLEM
    assert found.found == f"cannot {step}: PermissionError: AccessDenied"
    assert found.advice
    if step != "delete":
        assert memory.find("/") == ["/bucket/jobs/kept"]


def test_what_reads_otherwise_than_it_was_written(
    memory: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemoryFileSystem, "cat_file", lambda *a, **o: b"stale")
    found = storage("memory://bucket", here)
    assert "not what was written" in found.found


def test_errors_say_no_secrets(memory: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush-hush")

    def refuse(self: Any, *arguments: Any, **options: Any) -> Any:
        raise PermissionError("no hush-hush, X-Amz-Signature=abcdef")

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", refuse)
    found = storage("memory://bucket", here)
    assert "***" in found.found
    assert "hush" not in found.found
    assert "abcdef" not in found.found


def test_a_url_with_credentials_is_refused_before_anything_is_asked() -> None:
    def never(probe: str, question: Any = None, limit_s: float = 0) -> Any:
        raise AssertionError("asked")

    found = storage("s3://me:hush@bucket/jobs", never)
    assert found.status == PROBLEM
    assert "hush" not in found.found + found.advice


def test_a_protocol_that_nobody_knows() -> None:
    found = storage("nosuch://bucket", here)
    assert (found.status, "cannot open" in found.found) == (PROBLEM, True)


def test_silence_and_slowness() -> None:
    def silent(probe: str, question: Any = None, limit_s: float = 0) -> Any:
        raise ProbeError("no answer within 60 s")

    def slow(probe: str, question: Any = None, limit_s: float = 0) -> Any:
        return {"steps": {"open": 9.0, "write": 2.5}, "step": None, "error": None}

    assert storage("s3://bucket", silent).status == PROBLEM
    found = storage("s3://bucket", slow)
    assert (found.status, "write 2500 ms" in found.found) == (WARNING, True)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://bucket/jobs", "s3://bucket/jobs"),
        ("/a:b@c", "/a:b@c"),
        ("s3://me:hush@bucket/x", "s3://***@bucket/x"),
        ("s3://me:hu@s/h@bucket", "s3://***@bucket"),
        ("abfs://container@account/x", "abfs://container@account/x"),
        ("simplecache::s3://me:hush@b", "simplecache::s3://***@b"),
        ("http://h/x?sig=hush&v=1", "http://h/x?sig=***&v=1"),
        ("http://h/x?api%5Fkey=hush", "http://h/x?api%5Fkey=***"),
        ("http://h/x?password=hush", "http://h/x?password=***"),
        ("http://h/x?plain", "http://h/x?plain"),
    ],
)
def test_urls_are_shown_without_secrets(url: str, shown: str) -> None:
    assert shown_url(url) == shown
