"""What a client has been given of a job's published values, by one coordinator after another. Pure.

Each coordinator has all that was ever published: from those before it, as they have written it down
(`result_log`), and what is published again under the same keys. So nothing is missing, and by their
keys nothing comes twice. What remains: a coordinator that goes back behind what was given out (to
an older checkpoint, as newer ones are not usable, or to the beginning), and results that were
written down and cannot be read. The client is told so, where it may be concerned.
"""

from __future__ import annotations

from typing import Any

from ...core.errors import TransportError
from .published import Read


class Delivered:
    """Of one operator, for one reader."""

    def __init__(self, job: str) -> None:
        """`job`: what errors call it."""
        self._job = job
        self._first_attempt: int | None = None
        """Of the coordinator that is read; None: none yet."""
        self._settled = True
        """Whether it is known that this coordinator goes on where the last one stopped."""
        self._settled_of = -1
        """The last one of which that is so; none: below all."""
        self._keys: set[str] = set()
        """Of all values that were given out."""
        self._complete: int | None = None
        """As of the last `Read` that told it."""
        self.complete: int | None = None
        """The same, of this coordinator."""
        self.position = 0
        """How many values were read of this coordinator."""

    def take(self, read: Read) -> list[Any]:
        """Those that are new. TransportError where some may be missing, or may be others than those
        that were given out."""
        if read.first_attempt != self._first_attempt:
            first = self._first_attempt is None and read.first_attempt == 0
            self._first_attempt, self.position = read.first_attempt, 0
            self._settled = first
            if first:
                self._settled_of = 0
        if not self._settled and read.began is not None:
            self._check(read, read.began)
            self._settled, self._settled_of = True, read.first_attempt
        if not self._settled and read.values:
            raise self._unknown("it is not known what its new coordinator began with")
        self.position += len(read.values)
        fresh = []
        for key, value in read.values:
            if key not in self._keys:
                self._keys.add(key)
                fresh.append(value)
        self.complete = read.complete
        if read.complete is not None:
            self._complete = read.complete
        return fresh

    @property
    def of(self) -> int | None:
        """Which coordinator `position` is of, as of `Read.first_attempt`."""
        return self._first_attempt

    def restart(self) -> None:
        """The coordinator is gone: what comes next is of another."""
        self.position, self.complete = 0, None

    def gone(self) -> TransportError:
        """The job has finished, and there is no coordinator any more that could be read."""
        return TransportError(
            f"the results of {self._job} cannot be read any more: its coordinator is gone; they "
            "are to be read while it runs, and soon after it has ended"
        )

    def _check(self, read: Read, began: int) -> None:
        known = self._complete or 0
        if read.lost is not None and known < began:
            raise self._unknown(
                f"what was published before is not all there ({read.lost}), and was heard of here "
                f"only up to {f'checkpoint {known}' if known else 'none'}: some may be missing"
            )
        later = [n for of, n in read.ways_back if of > self._settled_of]
        back = min(later, default=known)
        if back < known or (back == 0 and later and self._keys):
            where = f"checkpoint {back}" if back else "the beginning"
            raise self._unknown(
                f"it goes on from {where}, and results of after that are here already: they would "
                "come again"
            )

    def _unknown(self, why: str) -> TransportError:
        return TransportError(
            f"the results of {self._job} cannot be read on exactly once: its coordinator was lost, "
            f"and {why}. The job itself goes on; for results that outlive its coordinators give it "
            "a sink that keeps them (files, Kafka)"
        )
