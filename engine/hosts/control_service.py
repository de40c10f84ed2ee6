"""Questions to Ray's control service (GCS), which may be away: it is on the cluster's head, which
may die and come back (docs/machines.md, "When the head dies").

Ray's own calls wait for it, most without an end, some for a minute, and say nothing meanwhile. That
it is away is never taken for "there is no such actor". Ray itself ends this process when it has
waited for long enough (RAY_gcs_rpc_server_reconnect_timeout_s).
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from ray.exceptions import GetTimeoutError

log = logging.getLogger("strom")

T = TypeVar("T")

LATE_S: Final = 2.0
"""What takes no longer than that, nobody has to be told of."""


def in_log(notice: str) -> None:
    """For the job's own processes."""
    log.warning("%s", notice)


def on_stderr(notice: str) -> None:
    """For programs."""
    print(f"strom: {notice}", file=sys.stderr, flush=True)


@contextmanager
def told_if_late(tell: Callable[[str], None] = in_log) -> Iterator[None]:
    """Around what waits for the service alone: `tell` is called once, on another thread, if it
    takes long."""
    notice = "Ray's control service (GCS) does not answer; waiting until it is back"
    late = threading.Timer(LATE_S, tell, [notice])
    late.daemon = True
    late.start()
    try:
        yield
    finally:
        late.cancel()


def patiently(call: Callable[[], T], tell: Callable[[str], None] = in_log) -> T:
    """What `call` returns or raises, which asks the service and nobody else, and may be called
    again if Ray gives up on it. Blocks: not for event loops."""
    with told_if_late(tell):
        while True:
            try:
                return call()
            except GetTimeoutError as error:
                log.debug("asking once more: %s", error)
