"""`stream.show()`: the first records of a job, drawn while they come."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from .display import REDRAW_S, place
from .incoming import Incoming
from .records import Records


def show(
    results: Any,
    columns: Sequence[str] | None,
    *,
    limit: int,
    truncate: int,
    timeout: timedelta | None,
) -> None:
    """See `DataStream.show`."""
    records = Records(columns, limit, truncate)
    with place() as shown, Incoming(results, limit, timeout) as incoming:
        try:
            gather(incoming, records.add, lambda: shown.draw(records.html, records.text))
        finally:
            if incoming.ended:
                records.end()
            shown.draw(records.html, records.text)
    incoming.check()


def gather(
    incoming: Incoming,
    add: Callable[[list[Any]], None],
    draw: Callable[[], None],
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Give all that comes to `add`, and draw it: at once, then at most every `REDRAW_S`, and no
    more than half of the time. What came last is left to who draws the end."""
    due, changed = clock(), False
    while not incoming.over:
        fresh = incoming.take(max(0.0, due - clock()) if changed else None)
        if fresh:
            add(fresh)
            changed = True
        now = clock()
        if changed and now >= due:
            draw()
            took = clock() - now
            due, changed = clock() + max(REDRAW_S, took), False
    add(incoming.take(0.0))
