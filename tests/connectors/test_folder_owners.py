"""Whose a folder is, as its files say: what is warned of, and what a former owner is told."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from strom.api.connectors.base import OutputClaim
from strom.connectors.files import FileCompactStrategy, FileSink
from strom.core.batch import ObjectBatch
from strom.core.errors import ConnectorError, FencedError

HERE = f"process {os.getpid()} on {socket.gethostname()}"
MERGED = FileCompactStrategy.builder().enable_compaction_on_checkpoint(9).build()


def claim(job: str, place: str = HERE, **more: Any) -> OutputClaim:
    return OutputClaim(job, "copy", "my sink", "my sink", f"token-{job}", place, **more)


@pytest.fixture(scope="module")
def gone() -> str:
    """Where a process was that is dead."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return f"process {child.pid} on {socket.gethostname()}"


class Job:
    """A sink as one job has it: taken over, and a writer."""

    def __init__(self, sink: FileSink, context: Callable[..., Any], claim: OutputClaim) -> None:
        self.said = list(sink.take_over(claim))
        made = replace(context(job_id=claim.job_id), token=sink.writers_token(claim))
        self.writer = sink.create_writer(made)

    def prepared(self, checkpoint: int, *values: str) -> Any:
        self.writer.write(ObjectBatch([{"v": value} for value in values]))
        made = self.writer.prepare_commit(checkpoint)
        return made() if callable(made) else made

    def publishes(self, checkpoint: int, *values: str) -> None:
        self.writer.commit(self.prepared(checkpoint, *values))


@pytest.mark.parametrize("home", ["file:///checkpoints", None])
def test_a_run_that_begins_anew_on_its_own_output_is_warned(
    tmp_path: Path, writer_context: Any, gone: str, home: str | None
) -> None:
    sink = FileSink(tmp_path, format="jsonl")
    first = Job(sink, writer_context, claim("a", gone, home=home))
    assert first.said == []
    first.publishes(3, "x")
    first.publishes(5, "y")
    (said,) = Job(sink, writer_context, claim("b", gone)).said
    assert f"'{tmp_path}' has 2 files of an earlier run of this job, job 'copy' (a, {gone}" in said
    assert "gone without a word and has published up to checkpoint 5" in said
    if home is None:
        assert "in memory, and are lost with it" in said
    else:
        assert "restore_from='file:///checkpoints/a'" in said
    assert Job(sink, writer_context, claim("c")).said == [], "the last one published nothing"


def test_nothing_is_said_of_a_run_that_goes_on_nor_behind_one_that_finished(
    tmp_path: Path, writer_context: Any, gone: str
) -> None:
    sink = FileSink(tmp_path, format="jsonl")
    first = Job(sink, writer_context, claim("a", gone))
    first.publishes(5, "y")
    assert Job(sink, writer_context, claim("b", gone, origin=("a", 5))).said == []
    last = claim("c", gone, origin=("a", 5))
    Job(sink, writer_context, last).publishes(6, "z")
    sink.release(last, "FINISHED")
    assert Job(sink, writer_context, claim("d")).said == []


def test_what_cannot_be_read_among_the_records_is_named_and_fences_nobody(
    tmp_path: Path, writer_context: Any
) -> None:
    sink = FileSink(tmp_path, format="jsonl", take_over=True)
    first = Job(sink, writer_context, claim("a"))
    first.publishes(1, "x")
    folder = tmp_path / ".strom"
    (folder / "owner-2").write_bytes(b"\0 no record")
    (folder / "owner-x").write_bytes(b"")
    first.publishes(2, "y")
    second = Job(sink, writer_context, claim("b"))
    odd, unread, _ = second.said
    assert odd == f"'{folder}/owner-x' is none of strom's files"
    assert unread.startswith(f"'{folder}/owner-2' cannot be read (")
    assert (folder / "owner-3").exists()
    with pytest.raises(FencedError, match=r"\(b, process"):
        first.publishes(3, "z")
    second.publishes(1, "z")


def test_a_former_owner_that_compacts_is_told_that_it_was_fenced(
    tmp_path: Path, writer_context: Any
) -> None:
    """And not to restore from its latest checkpoint: its held files are the other one's now."""
    sink = FileSink(tmp_path, format="jsonl", compact=MERGED)
    first = Job(sink, writer_context, claim("a"))
    first.publishes(1, "x")
    held = first.prepared(2, "y")
    second = Job(sink, writer_context, claim("b", origin=("a", 1)))
    with pytest.raises(FencedError, match=r"nothing is published .*\(b, process"):
        first.writer.commit([replace(one, held=f"{one.held}-gone", staged="gone") for one in held])
    (tmp_path / ".strom" / "owner-2").unlink()
    alone = Job(sink, writer_context, claim("a"))
    with pytest.raises(ConnectorError, match="Restore from the latest checkpoint"):
        alone.writer.commit([replace(one, held=f"{one.held}-gone", staged="gone") for one in held])
    second.writer.close()
