"""The client of a simulated job, which reads when it gets to it: what coordinators have then, and
what those before them have written down, is all there is to read.

One reader looks now and then, one when the job is over; and a coordinator that came back then would
have to have it all, too. Each is to find what the job has ever published, once.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from ...core.errors import CorruptCheckpointError
from ...core.ids import OperatorId
from ..exchange.pickling import Parcel, opened
from ..graph.model import JobGraph
from .delivered import Delivered
from .driver import JobDriver
from .job_outcome import JobOutcome
from .published import PublishedValues
from .result_files import END
from .result_log import ResultLog, left_by
from .result_merges import ResultMerges

OFTEN: Final = 0.01
"""How often the one looks that does not wait for the end."""


class _Folder:
    """A job's record."""

    def __init__(self) -> None:
        self.files: dict[str, bytes | CorruptCheckpointError] = {}

    def put_results(self, name: str, data: bytes) -> None:
        self.files[name] = data

    def all_results(self) -> dict[str, bytes | CorruptCheckpointError]:
        return dict(self.files)

    def get_results(self, name: str) -> bytes:
        found = self.files[name]
        if isinstance(found, CorruptCheckpointError):
            raise found
        return found

    def remove_results(self, names: Sequence[str]) -> None:
        for name in names:
            self.files.pop(name, None)


class Desk:
    """Where one coordinator has what it has published."""

    def __init__(self, client: SimulatedClient, number: int) -> None:
        self._client = client
        self.values = PublishedValues(number)
        self.log = ResultLog(client.folder, number, merges=ResultMerges(at_once=2, behind=1))
        self.driver: JobDriver
        """Set when it is made, before it starts."""

    def publish(self, operator: OperatorId, key: str, value: Any) -> None:
        self._note()
        self.values.add(operator, key, value)
        self._client.seen[operator].setdefault(key, _text(value))

    def end(self, outcome: JobOutcome) -> None:
        """It is settled how the job ends."""
        self.log.finish()

    def read(self, reader: _Reader) -> None:
        self._note()
        for operator, delivered in reader.delivered.items():
            found = self.values.since(operator, delivered.position, delivered.of)
            reader.found[operator] += map(_text, delivered.take(found))

    def _note(self) -> None:
        driver = self.driver
        if driver.began_with is not None:
            self.values.begin(driver.began_with, self.log.ways_back, self.log.lost)
        if driver.newest_complete is not None:
            self.values.complete(driver.newest_complete)


class _Reader:
    def __init__(self, operators: list[OperatorId]) -> None:
        self.delivered = {operator: Delivered("simulated job") for operator in operators}
        self.found: dict[OperatorId, list[str]] = {operator: [] for operator in operators}


class SimulatedClient:
    """Of one job, over all its coordinators. Draws from a generator of its own, so that nothing
    else depends on whether it looks."""

    def __init__(self, graph: JobGraph, seed: int) -> None:
        self._rng = random.Random(f"client {seed}")
        sinks = [o.operator_id for v in graph.vertices for o in v.operators if o.is_sink]
        self._now_and_then, self._late = _Reader(sinks), _Reader(sinks)
        self.folder = _Folder()
        self.seen: dict[OperatorId, dict[str, str]] = {operator: {} for operator in sinks}
        """What was ever published, by keys."""
        self._desks: list[Desk] = []

    def desk(self) -> Desk:
        """Of another coordinator."""
        self._desks.append(Desk(self, len(self._desks)))
        return self._desks[-1]

    def step(self) -> None:
        if self._rng.random() < OFTEN:
            self._desks[-1].read(self._now_and_then)

    def finished(self) -> str | None:
        """The job has: what is wrong with what is read; None: nothing."""
        left = left_by(self.folder.files, END)
        kept: dict[OperatorId, list[str]] = {operator: [] for operator in self.seen}
        for one in left.results:
            kept[one.operator].append(_text(Parcel(one.data)))
        for reader in (self._now_and_then, self._late):
            self._desks[-1].read(reader)
        sides = {
            "who looks now and then": self._now_and_then.found,
            "who comes late": self._late.found,
            f"who comes when it is over ({left.lost or 'all is written'})": kept,
        }
        for who, found in sides.items():
            for operator, values in self.seen.items():
                there, wanted = Counter(found[operator]), Counter(values.values())
                if there != wanted:
                    return (
                        f"{who}, of operator {operator}, misses {dict(wanted - there)} and has "
                        f"{dict(there - wanted)} more than once"
                    )
        return None


def _text(value: Any) -> str:
    return repr(opened(value, "published records"))
