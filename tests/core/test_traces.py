"""What is shown of an error's traceback: the user's lines first, strom's calls folded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from strom.core import failure_text
from strom.core.checks import check_count
from strom.core.failure_text import TRACE_LIMIT, traced


def raised(call: Callable[[], Any]) -> BaseException:
    with pytest.raises(BaseException) as caught:  # noqa: PT011
        call()
    return caught.value


def shown(error: BaseException) -> list[str]:
    """Its lines without code."""
    return [line.strip() for line in traced(error).splitlines() if not line.startswith("    ")]


def test_calls_of_strom_behind_the_users_are_one_line() -> None:
    def users() -> None:
        check_count("n", "no number", 0)

    lines = shown(raised(users))
    assert "test_traces.py" in lines[1]
    assert "in users" in " ".join(lines)
    folded = [line for line in lines if line.startswith("[")]
    assert len(folded) == 1
    assert folded[0].startswith("[inside strom: 1 call, the last strom/core/checks.py:")
    assert lines[-1].endswith("n must be an int, is 'no number'")


def test_the_errors_it_was_raised_from_are_kept() -> None:
    def users() -> None:
        try:
            check_count("n", -1, 0)
        except ValueError as error:
            raise RuntimeError("bad record") from error

    text = traced(raised(users))
    cause, _, end = text.partition("direct cause")
    assert "must be at least 0" in cause
    assert cause.count("inside strom") == 1
    assert "bad record" in end
    assert "inside strom" not in end


def test_an_error_of_strom_alone_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure_text, "_is_users", lambda frame: False)
    text = traced(raised(lambda: check_count("n", -1, 0)))
    assert "inside strom" not in text
    assert "in check_count" in text


def test_calls_between_the_users_are_folded_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = [
        "Traceback (most recent call last):\n",
        '  File "/u/job.py", line 1, in users\n    f()\n',
        f'  File "{failure_text._ROOT}/core/a.py", line 2, in one\n',
        f'  File "{failure_text._ROOT}/engine/b.py", line 3, in two\n',
        '  File "/u/job.py", line 4, in again\n',
        f'  File "{failure_text._ROOT}/core/a.py", line 5, in three\n',
        "ValueError: x\n",
    ]
    assert list(failure_text._folded(pieces)) == [
        pieces[0],
        pieces[1],
        "  [inside strom: 2 calls, the last strom/engine/b.py:3 in two]\n",
        pieces[4],
        "  [inside strom: 1 call, the last strom/core/a.py:5 in three]\n",
        pieces[6],
    ]


def test_long_traces_are_cut() -> None:
    def deep(left: int) -> None:
        if not left:
            raise ValueError("x" * 100_000)
        deep(left - 1)

    assert len(traced(raised(lambda: deep(900)))) < TRACE_LIMIT + 100
