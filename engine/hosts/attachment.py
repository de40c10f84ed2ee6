"""What ties a job on Ray to the program that submitted it, seen from the program.

Three things tell a coordinator that its program is gone, each for another way to go:

* the program ends, by itself, by Ctrl-C or by SIGTERM: what is attached is cancelled at exit;
* its process is killed: Ray reports the owner of a call dead that the coordinator waits for;
* nothing is heard of it, because it is stopped or cut off: the lease runs out.

A Ray of the program's own ends with it, before coordinators would leave by themselves: what they
have written down goes then, too, as nobody can ask for their jobs any more.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from contextlib import suppress
from typing import Any, Final

import ray

from .job_record import JobRecord
from .lease import PERIOD_S

log = logging.getLogger("strom")

AT_EXIT_S: Final = 10.0
"""How long a program that ends waits for the jobs it cancels."""

REMOVING_S: Final = 5.0
"""For so long it begins to remove one more record."""


class Attachment:
    """From its making to `release`, or until the job is over, this process holds the job's lease.

    A thread renews it: daemonic, so that it ends with the program.
    """

    def __init__(self, job_id: str, coordinator: Any) -> None:
        self.job_id = job_id
        self.coordinator = coordinator
        self.process = os.getpid()
        """A fork of this process does not own the job."""
        self._over = threading.Event()
        self._held = coordinator.hold.remote()
        """A call that never returns: it fails for the coordinator when this process dies."""
        coordinator.tie.remote([self._held])
        _held.add(self)
        threading.Thread(target=self._renew, name=f"strom-lease-{job_id}", daemon=True).start()

    def release(self) -> None:
        """The job is over, or is to be nobody's. Idempotent, thread-safe."""
        self._over.set()
        _held.discard(self)

    def _renew(self) -> None:
        while not self._over.wait(PERIOD_S):
            try:
                self.coordinator.renew.remote().future().add_done_callback(self._on_answer)
            except Exception as error:  # Ray was shut down, or this process is about to be
                log.debug("job %s: its lease is not renewed any more: %s", self.job_id, error)
                return

    def _on_answer(self, answer: Any) -> None:
        """On a thread of Ray's. A coordinator that is gone, or a job that is over, needs no more
        of them; one that cannot be reached for a while may be again."""
        error = answer.exception()
        if isinstance(error, ray.exceptions.ActorDiedError) or (not error and not answer.result()):
            self.release()


_held: set[Attachment] = set()
"""Of this process and, in a fork, of its parent."""

_records: list[tuple[int, JobRecord]] = []
"""With the process that submitted the job: a fork of it ends no cluster."""


def goes_with_program(record: JobRecord) -> None:
    """Of a job on a Ray of this program's own."""
    _records.append((os.getpid(), record))


@atexit.register
def remove_records() -> None:
    """At the program's end, behind `cancel_attached`: what is registered last is called first. The
    newest first: coordinators of jobs that have long been over have removed theirs."""
    mine = [record for process, record in reversed(_records) if process == os.getpid()]
    _records.clear()
    deadline = time.monotonic() + REMOVING_S
    for record in mine:
        if time.monotonic() < deadline:
            record.remove()


@atexit.register
def cancel_attached() -> None:
    """At the program's end, ahead of Ray's own: cancel what is attached to it and wait shortly."""
    mine = [a for a in list(_held) if a.process == os.getpid()]
    if not mine or not ray.is_initialized():
        return
    deadline = time.monotonic() + AT_EXIT_S
    with suppress(Exception):
        for attachment in mine:
            attachment.coordinator.cancel.remote()
        ends = [a.coordinator.outcome.remote(AT_EXIT_S) for a in mine]
        ray.wait(ends, num_returns=len(ends), timeout=max(0.0, deadline - time.monotonic()))
    for attachment in mine:
        attachment.release()
