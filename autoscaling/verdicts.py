"""What was decided of each vertex and why, as data and as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ..core.ids import VertexId


class Reason(Enum):
    """Why a vertex gets the parallelism it is to have."""

    UP = "more is to be handled"
    DOWN = "less is to be handled"
    JOINS = "the job is rescaled anyway"
    FITS = "utilisation is within its bounds"
    WAITS = "fewer subtasks have to be enough for longer"
    LIMITED = "more subtasks cannot be had, or would not help"
    INEFFECTIVE = "more subtasks did not help the last time"
    FIXED = "it keeps its parallelism"
    UNKNOWN = "too little is known"


@dataclass(frozen=True)
class Verdict:
    """Of one vertex. `after`: the parallelism it is to have; equal to `before`: it stays. `target`:
    records/s that come to it; `extra`: on top of it, to work off backlogs. `true_rate`: what one
    subtask does. `used`: utilisation of the busiest subtask by what comes, now; `then`: with
    `after`. `capacity`, `expected`: records/s that it can handle, and should be able to with
    `after`. `said`: what the reason alone does not say."""

    vertex: VertexId
    name: str
    reason: Reason
    before: int
    after: int
    target: float = 0.0
    extra: float = 0.0
    true_rate: float | None = None
    used: float = 0.0
    then: float = 0.0
    said: str = ""
    capacity: float = 0.0
    expected: float = 0.0

    @property
    def changes(self) -> bool:
        return self.after != self.before

    def explain(self) -> str:
        """One line.

        >>> verdict = Verdict(
        ...     VertexId("m"), "Map", Reason.UP, 1, 4, 210_000, 0, 80_000, 2.63, 0.66
        ... )
        >>> verdict.explain()
        'Map: 1 -> 4: 210,000/s are to be handled, one subtask does 80,000/s: 263 % used, then 66 %'
        """
        count = f"{self.before} -> {self.after}" if self.changes else f"stays {self.before}"
        words = [f"{self.name}: {count}"]
        if self.reason not in (Reason.UP, Reason.DOWN) or self.said:
            words.append(self.said or self.reason.value)
        if self.reason not in (Reason.FIXED, Reason.UNKNOWN):
            words.append(self._figures())
        return ": ".join(words)

    def _figures(self) -> str:
        more = f" and {self.extra:,.0f}/s of backlog" if self.extra >= 0.5 else ""
        come = f"{self.target:,.0f}/s{more} are to be handled"
        if self.true_rate is None:
            return come
        used = f"{100 * self.used:.0f} % used"
        then = f", then {100 * self.then:.0f} %" if self.changes else ""
        return f"{come}, one subtask does {self.true_rate:,.0f}/s: {used}{then}"


@dataclass(frozen=True)
class Decision:
    """`waiting`: why nothing is decided now; None: it was. `verdicts`: in the order of the graph,
    also while waiting, as far as figures are there."""

    at_s: float
    verdicts: tuple[Verdict, ...]
    waiting: str | None = None

    @property
    def changes(self) -> Mapping[VertexId, int]:
        """Parallelisms to be had, of vertices that get another one; empty: nothing is to be
        done."""
        if self.waiting is not None:
            return {}
        return {verdict.vertex: verdict.after for verdict in self.verdicts if verdict.changes}

    def explain(self) -> str:
        """A line for each vertex, behind one that says what it waits for."""
        lines = [verdict.explain() for verdict in self.verdicts]
        return "\n".join(lines if self.waiting is None else [f"waits: {self.waiting}", *lines])

    def plain(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "waiting": self.waiting,
            "vertices": [
                {
                    "id": str(one.vertex),
                    "name": one.name,
                    "reason": one.reason.name,
                    "parallelism": one.before,
                    "wanted": one.after,
                    "records_per_s": one.target,
                    "backlog_per_s": one.extra,
                    "subtask_does_per_s": one.true_rate,
                    "used": one.used,
                    "then_used": one.then,
                    "text": one.explain(),
                }
                for one in self.verdicts
            ],
        }
