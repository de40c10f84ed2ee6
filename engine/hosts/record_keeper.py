"""A coordinator's way to its `JobRecord`: one thread writes, in order, and nothing waits for it but
what must be there before anything else happens."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Final

from ...core.errors import CheckpointError, CorruptCheckpointError, MissingCheckpointError
from .job_outcome import JobOutcome
from .job_record import Begun, JobRecord, Term

log = logging.getLogger("strom")

END_S: Final = 10.0
"""How long the end of a job is held back until it is written down."""

READ_S: Final = 600.0
"""How long a storage may be away that has what a coordinator is to go on from."""

PAUSE_S: Final = 1.0

Left = tuple[Begun, Term, JobOutcome | None]


class RecordKeeper:
    """Of one coordinator. What cannot be written is warned of, once: the job then ends with its
    coordinator."""

    def __init__(self, record: JobRecord, job_id: str) -> None:
        self._record = record
        self._job_id = job_id
        self._writer = ThreadPoolExecutor(1, f"strom-record-{job_id}")
        self._warned = False

    @property
    def of_machine(self) -> bool:
        """Whether what is kept is lost with the machine."""
        return self._record.of_machine

    def begin(self, begun: Begun, term: Term) -> Future[None]:
        """Done when it is written, or cannot be."""
        self._submit(self._record.begin, begun)
        return self.write(term)

    def write(self, term: Term) -> Future[None]:
        """Done when it is written, or cannot be."""
        return self._submit(self._record.write, term)

    def end(self, outcome: JobOutcome) -> None:
        """Returns when it is written, or after `END_S`."""
        wait([self._submit(self._record.end, outcome)], END_S)

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
        return (*self._record.read(), self._record.outcome())

    async def remove(self) -> None:
        """Nobody will ask any more; takes no longer than `END_S`. The last call."""
        removed = asyncio.wrap_future(self._writer.submit(self._record.remove))
        await asyncio.wait([removed], timeout=END_S)
        self._writer.shutdown(wait=False)

    def _submit(self, write: Callable[[Any], None], what: Any) -> Future[None]:
        return self._writer.submit(self._write, write, what)

    def _write(self, write: Callable[[Any], None], what: Any) -> None:
        try:
            write(what)
        except Exception as error:
            if not self._warned:
                self._warned = True
                log.warning(
                    "job %s: what its coordinator would go on from if it died cannot be written "
                    "down, so that the job would end with it: %s",
                    self._job_id,
                    error,
                )
