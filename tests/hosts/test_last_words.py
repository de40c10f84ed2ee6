"""How a dead process is explained, from logs of every kind."""

from __future__ import annotations

from pathlib import Path

import pytest
from strom.engine.hosts.last_words import Whereabouts, how_it_died, own_whereabouts

RAY = "The actor died unexpectedly before finishing this task.\n\tclass_name: A\n"
PYTHON = """Fatal Python error: Segmentation fault

Thread 0x00007f (most recent call first):
  File "{library}", line 519 in string_at
  File "/home/u/job.py", line 12 in broken
  File "/home/u/job.py", line 30 in outer

Extension modules: numpy._core (total: 1)
"""


def died(folder: Path, text: str, account: str = RAY) -> str:
    log = folder / "worker.err"
    log.write_text(text)
    return how_it_died(Whereabouts("node", 7, str(log)), account)


def test_signal_and_line(tmp_path: Path) -> None:
    import ctypes

    python = PYTHON.format(library=ctypes.__file__)
    said = died(tmp_path, f"noise\n*** SIGSEGV received at time=1 on cpu 1 ***\nPC: @\n{python}")
    start = "its process died: SIGSEGV at /home/u/job.py:12 in broken; see its log "
    assert said == f"{start}{tmp_path}/worker.err on node (process 7)"


def test_signal_without_lines(tmp_path: Path) -> None:
    said = died(tmp_path, "*** SIGBUS received at time=1 on cpu 1 ***\nPC: @\n")
    assert said.startswith("its process died: SIGBUS; see its log ")


def test_python_alone(tmp_path: Path) -> None:
    said = died(tmp_path, PYTHON.format(library="/usr/x.py"))
    assert said.startswith("its process died: Segmentation fault at /usr/x.py:519 in string_at; ")


def test_an_exit_that_was_confessed(tmp_path: Path) -> None:
    said = died(tmp_path, "noise\nstrom: os._exit(3) was called at job.py:1 in f\n")
    assert said.startswith("its process died: os._exit(3) was called at job.py:1 in f; ")


def test_a_log_of_megabytes_is_read_from_its_end(tmp_path: Path) -> None:
    said = died(tmp_path, "x" * 3_000_000 + "\n*** SIGFPE received at time=1 on cpu 1 ***\n")
    assert said.startswith("its process died: SIGFPE; ")


@pytest.mark.parametrize("text", ["", ":job_id:01000000\n", "\x00\xff garbage"])
def test_a_log_that_says_nothing(tmp_path: Path, text: str) -> None:
    said = died(tmp_path, text)
    assert said.startswith("its process died: it was killed, or ended itself, without a word; see ")
    assert "class_name" not in said
    assert "\n" not in said


def test_memory(tmp_path: Path) -> None:
    said = died(tmp_path, "", "Worker exit type: NODE_OUT_OF_MEMORY Worker exit detail: ...")
    assert said.startswith("its process died: Ray ended it because its node ran short of memory; ")


@pytest.mark.parametrize("log", [None, "/nowhere/worker.err"])
def test_no_log_to_read(log: str | None) -> None:
    said = how_it_died(Whereabouts("far", 7, log), RAY)
    assert said.startswith("its process died: it was killed, or ended itself, without a word")
    assert "process 7 on far" in said or "on far (process 7)" in said
    assert how_it_died(None, RAY).endswith("without a word")


def test_own_whereabouts() -> None:
    import os

    assert own_whereabouts().pid == os.getpid()
