r"""When a source subtask asks the enumerator for splits.

    start --ask--> asked --splits--> reading --nothing left--> ask
                     |  \--empty--> waiting --a pause later--> ask
                     \--no more--> over

It asks when its reader has nothing left; once more a while after an empty answer; beside what it
reads, as often as the reader wants to; and first of all after a restore, whatever it holds, since
the enumerator may keep splits for it while its own never end. Never are two questions on their way.

Pure: answers and times (ms) come in, decisions go out.
"""

from __future__ import annotations

from collections.abc import Iterator

ASK_AGAIN_MS = 100
"""Pause before asking again when the enumerator had no split ready."""


class SplitAsking:
    """Of one source subtask. `every_ms`: how often the reader has it ask, beside what it holds and
    after empty answers; None: only when nothing is left."""

    def __init__(self, every_ms: int | None, restored: bool, now_ms: int) -> None:
        self._every = every_ms
        self._first = restored
        self.holding = restored
        """Restored, and not yet answered since: nothing may be read, for splits that were not
        assigned then may hold earlier records than those at hand, and would be late behind them."""
        self.over = False
        """There will be no more splits."""
        self._asked = False
        """A question is on its way."""
        self._again_at: int | None = None
        """When to ask again, because the last answer was empty."""
        self._next_at: int | None = None
        """When to ask beside what is held."""
        self._plan_next(now_ms)

    def due(self, now_ms: int) -> bool:
        """Whether to ask now, whatever is left."""
        return self._first or (not self._asked and any(at <= now_ms for at in self.wakes()))

    def wanted(self) -> bool:
        """Whether to ask now that nothing is left."""
        return not (self.over or self._asked or self._again_at is not None)

    def expecting(self) -> bool:
        """Whether splits may be on their way, if there are any at all."""
        return not self.over and self._again_at is None

    def ask(self) -> None:
        """The question is sent."""
        self._first, self._asked = False, True
        self._again_at = None

    def answer(self, empty: bool, now_ms: int) -> None:
        """Of the enumerator; empty: it has none now."""
        self._asked = self.holding = False
        self._plan_next(now_ms)
        pause = ASK_AGAIN_MS if self._every is None else self._every
        self._again_at = now_ms + pause if empty else None

    def no_more(self) -> None:
        """The enumerator's last answer."""
        self._asked = self.holding = False
        self.over = True
        self._again_at = self._next_at = None

    def wakes(self) -> Iterator[int]:
        """When to look again whether a question is due."""
        return (at for at in (self._again_at, self._next_at) if at is not None)

    def _plan_next(self, now_ms: int) -> None:
        self._next_at = None if self._every is None else now_ms + self._every
