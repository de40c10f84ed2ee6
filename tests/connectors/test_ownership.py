"""Whose a sink's folder is, and what of it is published again: pure."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import replace

import pytest
from strom.connectors.ownership import (
    Owner,
    is_family,
    is_fenced,
    later,
    line_of,
    succeeded,
    why_not,
)
from strom.core.place import is_dead


def owner(name: str, origin: str | None = None, n: int = 0, **changes: object) -> Owner:
    return replace(Owner(name, f"job {name}", f"token {name}", "there", origin, n), **changes)


#      o ──3──▶ a ──9──▶ b        a stranger, s, had the folder before
#               └──7──▶ c
ROOT, A, B = owner("o"), owner("a", "o", 3), owner("b", "a", 9)
C, S = owner("c", "a", 7), owner("s")
HISTORY = [S, ROOT, A, B, C]


def test_the_line_of_a_job() -> None:
    assert line_of(HISTORY, "c") == {"a": 7, "o": 3}
    assert line_of(HISTORY, "o") == {}
    assert line_of([owner("a", "b"), owner("b", "a")], "a") == {"b": 0, "a": 0}


def test_what_is_published_again() -> None:
    """Of ancestors behind where they were left, and all of whoever else descends from them."""
    assert later(HISTORY, "c") == {"a": 7, "o": 3, "b": 0}
    assert later(HISTORY, "s") == {}
    assert later(HISTORY, "o") == {}, "it begins anew, and adds to what is there"
    assert later([A, C], "c") == {"a": 7, "o": 3}, "an ancestor that never had the folder"


def test_a_job_that_goes_on_keeps_its_origin() -> None:
    again = replace(A, token="another", origin=None, origin_checkpoint=0, epoch=2)
    assert line_of(succeeded(HISTORY, again), "a") == {"o": 3}
    assert [o.job_id for o in succeeded(HISTORY, again)] == ["s", "o", "a", "b", "c"]


@pytest.mark.parametrize(
    ("last", "new", "allowed"),
    [
        (None, S, True),
        (replace(S, ended="FAILED"), A, True),
        (S, A, False),
        (A, S, False),
        (A, C, True),
        (B, C, True),
        (ROOT, C, True),
        (S, replace(S, token="another"), True),
    ],
)
def test_who_may_take_it(last: Owner | None, new: Owner, allowed: bool) -> None:
    why = why_not(HISTORY, last, new, False, "FileSink")
    assert (why is None) == allowed
    if why is not None and last is not None:
        assert last.named() in why
        assert new.named() in why
    assert why_not(HISTORY, last, new, True, "FileSink") is None


def test_who_was_fenced_may_not() -> None:
    assert is_fenced(HISTORY, C, A), "what an ancestor does comes too late"
    assert not is_fenced(HISTORY, A, C)
    assert is_fenced(HISTORY, replace(A, epoch=2, token="second"), replace(A, epoch=1))
    assert not is_fenced(HISTORY, replace(A, epoch=1), replace(A, epoch=2, token="second"))
    first, second = owner("x", "a", 7, origin_epoch=2), owner("y", "a", 7, origin_epoch=3)
    assert is_fenced([first, second], second, first)
    assert not is_fenced([first, second], first, second)
    assert not is_fenced(HISTORY, None, A)
    assert is_family(HISTORY, "b", "c")
    assert not is_family(HISTORY, "s", "c")


def test_a_process_that_is_gone() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    host = socket.gethostname()
    if sys.platform == "linux":
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert is_dead(f"process {child.pid} on {host}"), "nobody has asked how it ended"
    child.wait()
    assert is_dead(f"process {child.pid} on {host}")
    assert not is_dead(f"process {os.getpid()} on {host}")
    assert not is_dead(f"process {child.pid} on another machine")
    assert not is_dead("somewhere")
