"""Jobs that take the place of others, as a rescaled one does. Pure.

A new job *follows* the one that it replaces: that is stopped with a savepoint, which the new one
*claims* once it is known, and starts from when the other one is over.

    ask ──▶ the other one is told to stop ──▶ stopped: its savepoint is claimed ──▶ it is over
                       │                                                              │
                       │ it goes on                  who was told did not answer      ▼
                       ▼                             ──▶ settle: see how it ended    the new one
                 the new one fails                                                   starts

Both answers and both ends may come in any order, and twice, since a dispatcher may die at any time:
the next one knows `follows` and `claims`, and asks again for the rest.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..core.errors import ConfigurationError
from .actions import Action, Settle, Stop
from .records import JobRecord, Phase
from .room import Room


class Succession:
    """Which job follows which, and who is still to answer. Who follows nobody is no concern of
    it. Invariant: no job is followed by two."""

    def __init__(self, jobs: Mapping[str, JobRecord], room: Room) -> None:
        """`jobs`: as of `Room`, which is the same session's."""
        self._jobs = jobs
        self._room = room
        self._waiting: set[str] = set()
        """The jobs that wait for the answer of a `Stop` or `Settle`."""

    @property
    def followers(self) -> list[JobRecord]:
        return [record for record in self._jobs.values() if record.follows is not None]

    def followers_of(self, job_id: str) -> list[JobRecord]:
        return [record for record in self.followers if record.follows == job_id]

    def was_stopped(self, job_id: str) -> bool:
        """Whether it left its savepoint to another job, so that it counts as finished however its
        coordinator goes."""
        return any(one.claims is not None for one in self.followers_of(job_id))

    def check(self, job_id: str, record: JobRecord) -> None:
        """As `Session.check_replaced`."""
        old = self._jobs.get(job_id)
        if old is None or old.phase is not Phase.RUNNING or old.cancelling:
            raise ConfigurationError(f"job '{job_id}' does not run: only a job that runs is moved")
        if old.attached:
            raise ConfigurationError(
                f"job '{job_id}' ends with its program, which waits for it: detach it"
            )
        if self.followers_of(job_id):
            raise ConfigurationError(f"job '{job_id}' is being stopped to start again already")
        first = next((one for one in self._jobs.values() if one.waits_in_line), None)
        why = self._room.why_not_instead(record, old, first)
        if why is not None:
            raise ConfigurationError(why)

    def ask(self, record: JobRecord) -> list[Action]:
        """Have the job stopped that this new one follows."""
        self._waiting.add(record.job_id)
        return [Stop(record)]

    def ask_again(self, job_id: str) -> list[Action]:
        """The job lives, and a former dispatcher may have asked it to stop, or not."""
        actions: list[Action] = []
        for one in self.followers_of(job_id):
            if one.claims is None and one.job_id not in self._waiting:
                actions += self.ask(one)
        return actions

    def answered(self, job_id: str) -> JobRecord | None:
        """There is an answer for this job. None: it is of no use any more."""
        self._waiting.discard(job_id)
        record = self._jobs.get(job_id)
        return None if record is None or record.follows is None else record

    def settle(self, record: JobRecord) -> list[Action]:
        """The job that this one follows is over, and what it claims is not known. Nothing, if who
        was to stop it, or to find out, has not answered yet."""
        if record.job_id in self._waiting:
            return []
        self._waiting.add(record.job_id)
        return [Settle(record)]

    def drop(self, job_id: str) -> None:
        """The job is over."""
        self._waiting.discard(job_id)
