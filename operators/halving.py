"""Batches that raise as a whole, where records that do are put aside: which record it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from ..core.batch import Batch
from .letters import Letters, is_of_record

T = TypeVar("T")


def halved(
    batch: Batch, attempt: Callable[[Batch], T], letters: Letters, function: str
) -> Iterator[T]:
    """What `attempt` makes of the batch; where it raises, of its halves, and so on down to single
    records, which become letters of `function`. In the order of the records, each when it is asked
    for. Of n records, with one that raises, some 2 log2(n) batches are tried: `attempt` is called
    again for records that it has been called for, so it must keep nothing of them."""
    try:
        made = attempt(batch)
    except Exception as error:
        if not is_of_record(error):
            raise
        if len(batch) == 1:
            stamp = None if batch.timestamps is None else int(batch.timestamps[0])
            letters.add(batch.rows()[0], error, stamp, function)
            return
    else:
        yield made
        return
    middle = len(batch) // 2
    yield from halved(batch.slice(0, middle), attempt, letters, function)
    yield from halved(batch.slice(middle, len(batch) - middle), attempt, letters, function)
