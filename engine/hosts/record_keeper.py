"""A coordinator's way to its `JobRecord`: one thread writes, in order, and nothing waits for it but
what must be there before anything else happens."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from ...core.errors import CheckpointError, CorruptCheckpointError, MissingCheckpointError
from .job_outcome import JobOutcome
from .job_record import Begun, JobRecord, Term
from .result_files import END
from .result_log import Left as ResultsLeft
from .result_log import ResultLog, left_by

log = logging.getLogger("strom")

END_S: Final = 10.0
"""How long the end of a job is held back until it is written down."""

READ_S: Final = 600.0
"""How long a storage may be away that has what a coordinator is to go on from."""

WRITE_S: Final = 600.0
"""The same for what is to be written; then it is tried once more with each further write."""

PAUSE_S: Final = 1.0


@dataclass(frozen=True)
class Left:
    """By the coordinator before. `outcome`: how the job ended; None: it has not. `published`: so
    many results, if it has; None: nobody knows."""

    begun: Begun
    term: Term
    outcome: JobOutcome | None
    published: int | None


class RecordKeeper:
    """Of one coordinator. What cannot be written is warned of, and tried until it can be: the next
    coordinator would go on from what was so before. Writes keep their order."""

    def __init__(self, record: JobRecord, job_id: str) -> None:
        self._record = record
        self._job_id = job_id
        self._writer = ThreadPoolExecutor(1, f"strom-record-{job_id}")
        self._failing_since: float | None = None
        """When the first of all writes failed that have failed since the last one that did not."""
        self._leaving = threading.Event()
        self._mine: Term | None = None
        """That was written last; None: none was."""

    def result_log(self, number: int, whole: bool) -> ResultLog:
        """As of `ResultLog`."""
        return ResultLog(self._record, number, whole)

    @property
    def of_machine(self) -> bool:
        """Whether what is kept is lost with the machine."""
        return self._record.of_machine

    def begin(self, begun: Begun, term: Term) -> Future[None]:
        """Done when both are written, or given up after `WRITE_S`."""
        self._submit(self._record.begin, begun)
        return self.write(term)

    def write(self, term: Term) -> Future[None]:
        """Done when it is written, or given up after `WRITE_S`; or when another has come since, of
        which the term stays."""
        self._mine = term
        return self._submit(self._write_term, term)

    def _write_term(self, term: Term) -> None:
        with suppress(CorruptCheckpointError):
            if _is_behind(term, self._record.term()):
                return
        self._record.write(term)

    def end(self, outcome: JobOutcome, results: ResultLog | None = None) -> None:
        """Returns when it is written, with what is left to write of `results`, or after `END_S`; it
        is then still tried until `remove`."""
        wait([self._submit(lambda ended: self._end(ended, results), outcome)], END_S)

    def _end(self, outcome: JobOutcome, results: ResultLog | None) -> None:
        """Results that cannot be written are counted all the same: who reads them is told."""
        if not self._holds():
            return
        if results is not None:
            with suppress(CheckpointError, OSError):
                results.finish()
        self._record.end(outcome, None if results is None else results.count)

    def _holds(self) -> bool:
        """Whether no other has come since: who was taken for dead changes nothing any more. Raises
        CheckpointError if that cannot be read now."""
        if self._mine is None:
            return True
        try:
            term = self._record.term()
        except (MissingCheckpointError, CorruptCheckpointError):
            return False
        return not _is_behind(self._mine, term)

    async def results(self, published: int | None) -> ResultsLeft:
        """What was written down by a job that is over, and has published so many (None: nobody
        knows)."""
        if published == 0:
            return ResultsLeft()
        return await asyncio.wrap_future(self._writer.submit(self._read_results, published))

    def _read_results(self, published: int | None) -> ResultsLeft:
        try:
            found = left_by(self._record.all_results(), END)
        except (CheckpointError, OSError) as error:
            return ResultsLeft(lost=str(error))
        missing = (published or 0) - len(found.results)
        if found.lost is None and missing > 0:
            why = f"{missing} of its {published} results were not written down when it ended"
            return replace(found, lost=why)
        return found

    async def read(self) -> Left | None:
        """What there is, as soon as it can be read; None if there is nothing, or it is of no
        use."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + READ_S
        while True:
            try:
                return await asyncio.wrap_future(self._writer.submit(self._read))
            except MissingCheckpointError:
                return None
            except CorruptCheckpointError as error:
                log.error("job %s: its record is of no use: %s", self._job_id, error)
                return None
            except CheckpointError as error:
                if loop.time() >= deadline:
                    log.error("job %s: its record cannot be read: %s", self._job_id, error)
                    return None
                await asyncio.sleep(PAUSE_S)
            except Exception:
                log.exception("job %s: its record is of no use", self._job_id)
                return None

    def _read(self) -> Left:
        outcome, published = self._record.outcome() or (None, None)
        return Left(*self._record.read(), outcome, published)

    async def remove(self) -> None:
        """Nobody will ask any more; takes no longer than `END_S`. The last call."""
        self._leaving.set()
        removed = asyncio.wrap_future(self._writer.submit(self._remove))
        await asyncio.wait([removed], timeout=END_S)
        self._writer.shutdown(wait=False)

    def _remove(self) -> None:
        with suppress(CheckpointError):
            if self._holds():
                self._record.remove()

    def _submit(self, write: Callable[[Any], None], what: Any) -> Future[None]:
        return self._writer.submit(self._write, write, what)

    def _write(self, write: Callable[[Any], None], what: Any) -> None:
        while True:
            try:
                write(what)
            except Exception as error:
                if not self._is_tried_again(error):
                    return
            else:
                self._failing_since = None
                return

    def _is_tried_again(self, error: Exception) -> bool:
        """After a pause."""
        now = time.monotonic()
        if self._failing_since is None:
            self._failing_since = now
            log.warning(
                "job %s: what its coordinator would go on from if it died cannot be written down, "
                "and is tried again: %s",
                self._job_id,
                error,
            )
        return now < self._failing_since + WRITE_S and not self._leaving.wait(PAUSE_S)


def _is_behind(term: Term, other: Term) -> bool:
    return (term.run, term.number) < (other.run, other.number)
