"""Lines of what processes print."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Sequence

import pytest
from strom.core import child_output
from strom.core.child_output import LINE, _lines, followed


def test_what_is_printed_in_pieces_is_put_together() -> None:
    assert _lines(b"a\nb\rc\n") == [b"a\n", b"b\rc\n", b""]
    long = b"x" * (LINE + 1)
    assert _lines(long + b"\n" + long[:3]) == [long[:-1], b"x\n", b"xxx"]


PROGRAM = """
import os, subprocess, sys
print("first", flush=True)
child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"])
print("last", child.pid)
"""


def test_who_hears_slowly_hears_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though a child of the process holds the pipe."""
    monkeypatch.setattr(child_output, "LAST_WORDS_S", 0.01)
    heard: list[bytes] = []
    over = threading.Event()

    def slowly(lines: Sequence[bytes]) -> None:
        over.wait(60)
        heard.extend(lines)

    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdin is not None
    late = threading.Timer(0.1, over.set)
    with process.stdin:
        assert followed(process, process.stdout, slowly, late.start) == 0
    assert b"".join(heard).split()[:2] == [b"first", b"last"]
