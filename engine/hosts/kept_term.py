"""The term of a coordinator of Ray, as it is and as it is written down for the next one."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Final

from ...core.ids import Attempt
from ..coordinator.restart import Failed
from .job_record import Begun, Term
from .record_keeper import RecordKeeper

NONE_YET: Final = -1
"""The number of no term: of a coordinator that has not begun, or does not know yet which it is.
What tasks say then is for one that is dead."""

PROMISE_S: Final = 10.0
"""How long an answer is held back that holds for the next coordinator once it is written down."""


class KeptTerm:
    """Of one coordinator; thread-safe. What changes it is done when it is written, or cannot be."""

    def __init__(self, records: RecordKeeper) -> None:
        self._records = records
        self._changing = threading.Lock()
        self.now = Term(NONE_YET)

    def begin(self, begun: Begun, attached: bool, now_ms: int) -> Future[None]:
        """The job's first."""
        first = begun.first_attempt
        self.now = Term(0, attached, first, (now_ms,), run=first)
        return self._records.begin(begun, self.now)

    def follow(self, before: Term, now_ms: int) -> Future[None]:
        """That of the coordinator before this is over."""
        self.now = before.next(now_ms)
        return self._records.write(self.now)

    def change(self, **fields: Any) -> Future[None]:
        """Of the term, which has begun."""
        with self._changing:
            self.now = replace(self.now, **fields)
            return self._records.write(self.now)

    def note_attempt(self, attempt: Attempt, failed: Failed, restarts: int) -> None:
        """Before it begins; the rest as of `Handover`. There is an attempt behind each failure."""
        now = self.now
        left = replace(now.left, failed=failed, restarts=restarts)
        self.change(attempt=max(now.attempt, attempt), left=left)

    async def promise(self, **fields: Any) -> None:
        """Whoever asks for this is told so when it holds for the next coordinator, too, or when the
        storage takes too long."""
        if self.now.number != NONE_YET:
            written = asyncio.wrap_future(self.change(**fields))
            await asyncio.wait([written], timeout=PROMISE_S)
