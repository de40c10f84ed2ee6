"""Which splits of a source subtask wait for slower ones, of this subtask or of others of its group.

A split whose watermark is beyond the limit that the coordinator has named is paused until a later
limit lets it go on. What was read before stays; a batch is never taken back, so a split may be
ahead of its limit by a batch.

Pure: watermarks and limits come in, decisions go out.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...core.elements import MIN_TIMESTAMP


class SplitAlignment:
    """Of one source subtask."""

    def __init__(self) -> None:
        self._limit: int | None = MIN_TIMESTAMP
        """None: no split waits. At first each does once it has a watermark, until the coordinator
        knows of all sources."""
        self.paused: frozenset[str] = frozenset()
        """Splits that wait."""

    def on_limit(self, limit_ms: int | None) -> None:
        """The coordinator's word; call `update` next."""
        self._limit = limit_ms

    def update(self, watermarks: Mapping[str, int]) -> bool:
        """Whether `paused` changed. `watermarks`: of all splits held; MIN_TIMESTAMP of one that
        has not produced any."""
        limit = self._limit
        ahead = (
            frozenset()
            if limit is None
            else frozenset(s for s, w in watermarks.items() if w > limit and w != MIN_TIMESTAMP)
        )
        changed = ahead != self.paused
        self.paused = ahead
        return changed
