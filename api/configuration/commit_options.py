"""Options of commits that failed and are tried again."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from .registry import known, millis
from .settings import Settings
from .values import DURATION, INTEGER


def _change(settings: Settings, **changes: Any) -> None:
    settings.change(commit=replace(settings.base.commit, **changes))


COMMITS: Final = (
    known(
        "sink.committer.retries",
        INTEGER,
        10,
        lambda settings, value: _change(settings, retries=value),
        "of a commit that failed by what may pass; then the job fails",
    ),
    known(
        "strom.sink.committer.retry-delay",
        DURATION,
        millis(200),
        lambda settings, value: _change(settings, delay=value),
        "before the first of them; each further one waits twice as long",
    ),
    known(
        "strom.sink.committer.longest-retry-delay",
        DURATION,
        timedelta(seconds=30),
        lambda settings, value: _change(settings, longest_delay=value),
        "none waits longer",
    ),
    known(
        "strom.sink.committer.retry-timeout",
        DURATION,
        timedelta(minutes=10),
        lambda settings, value: _change(settings, timeout=value),
        "after its first try a commit is not tried again",
    ),
    known(
        "strom.sink.committer.max-uncommitted",
        INTEGER,
        100,
        lambda settings, value: _change(settings, uncommitted=value),
        "complete checkpoints that wait behind such a commit; then the sink takes no records",
    ),
)
