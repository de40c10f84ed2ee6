"""Values on their way from sinks to the job's client."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ...core.ids import OperatorId


@dataclass(frozen=True)
class Read:
    """What a reader is told: some of the values, with their keys, of one coordinator.

    Whatever a job publishes it publishes after a checkpoint is complete, and what it has prepared
    for that is in the checkpoint: a coordinator that begins with one publishes it again, under the
    same keys. What was published before is among its values, too, as those before it have written
    it down (`result_log`). `complete`: the newest complete checkpoint (the one that the coordinator
    began with, at first); all that was published before is among these values, or was told before.
    `began`: the checkpoint that the coordinator began with. 0: none; None: that is not settled."""

    values: list[tuple[str, Any]]
    closed: bool
    """Whether no more will come of this coordinator."""
    first_attempt: int
    """Of the coordinator, which this tells from the job's others."""
    began: int | None = None
    complete: int | None = None
    ways_back: tuple[tuple[int, int], ...] = ()
    """Coordinators (by `first_attempt`) with which the job went back, and to which checkpoint: this
    one, or those before it. Not where the tasks ran on, or had ended: then nothing comes again."""
    lost: str | None = None
    """Why some of what was published before `began` was complete may be missing; None: nothing
    is."""


class PublishedValues:
    """Append-only lists by operator; readers wait for more until the job is over. Thread-safe."""

    def __init__(self, first_attempt: int = 0) -> None:
        """`first_attempt`: of the job under this coordinator."""
        self._first_attempt = first_attempt
        self._values: dict[OperatorId, list[tuple[str, Any]]] = {}
        self._closed = False
        self._began: int | None = None
        self._ways_back: tuple[tuple[int, int], ...] = ()
        self._lost: str | None = None
        self._complete: int | None = None
        """Not None if `_began` is not."""
        self._changed = threading.Condition()

    def add(self, operator: OperatorId, key: str, value: Any) -> None:
        """Called once per key."""
        with self._changed:
            self._values.setdefault(operator, []).append((key, value))
            self._changed.notify_all()

    def close(self) -> None:
        """No more values will come."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def begin(
        self,
        checkpoint: int,
        ways_back: Iterable[tuple[int, int]] = (),
        lost: str | None = None,
    ) -> bool:
        """The first attempt begins with it, 0 for none. The rest: as of `Read`. Whether that is
        new."""
        with self._changed:
            if self._began is not None:
                return False
            self._began = self._complete = checkpoint
            self._ways_back, self._lost = tuple(ways_back), lost
            return True

    def complete(self, checkpoint: int) -> bool:
        """It is, and nothing of it is published yet. Whether that is new."""
        with self._changed:
            if self._complete == checkpoint:
                return False
            self._complete = checkpoint
            return True

    def since(self, operator: OperatorId, start: int, of: int | None = None) -> Read:
        """The values from position `start` on; all, if that is `of` another coordinator."""
        if of is not None and of != self._first_attempt:
            start = 0
        with self._changed:
            return Read(
                self._values.get(operator, [])[start:],
                self._closed,
                self._first_attempt,
                self._began,
                self._complete,
                self._ways_back,
                self._lost,
            )

    def operators(self) -> set[OperatorId]:
        """Those that have published something."""
        with self._changed:
            return set(self._values)

    def follow(self, operator: OperatorId) -> Iterator[Any]:
        """All values in order, waiting for more until `close`."""
        position = 0
        while True:
            with self._changed:
                while not self._closed and len(self._values.get(operator, ())) <= position:
                    self._changed.wait()
                fresh = self._values.get(operator, [])[position:]
                if not fresh and self._closed:
                    return
            position += len(fresh)
            for _, value in fresh:
                yield value
