"""How often a sink tries to publish what a complete checkpoint holds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from .checks import check_count, check_duration


@dataclass(frozen=True)
class CommitConfig:
    """`retries`: after the first try of a commit that failed by what may pass. `delay`: before the
    first of them; each further one waits twice as long, `longest_delay` at most, and up to a half
    less, drawn at random. `timeout`: none begins later than this after the first try.
    `uncommitted`: so many complete checkpoints of a sink's subtask may wait behind a commit that
    failed; then it takes no records until that went through."""

    retries: int = 10
    delay: timedelta = timedelta(milliseconds=200)
    longest_delay: timedelta = timedelta(seconds=30)
    timeout: timedelta = timedelta(minutes=10)
    uncommitted: int = 100

    def __post_init__(self) -> None:
        check_count("commit retries", self.retries, 0)
        check_duration("commit delay", self.delay, positive=True)
        check_duration("commit longest_delay", self.longest_delay, positive=True)
        check_duration("commit timeout", self.timeout)
        check_count("commit uncommitted", self.uncommitted, 1)
