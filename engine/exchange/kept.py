"""What waits in a channel, kept for a checkpoint while it goes on its way.

Of the control elements only event time and activity are kept: by them it is decided which records
behind them are late. The end of all time comes again after a restore, as does the end of the data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...core.batch import ObjectBatch, Timestamps
from ...core.elements import MAX_TIMESTAMP, Control, Element, StreamStatus, Watermark
from .pickling import pickle_values


@dataclass(frozen=True, slots=True)
class Pickled:
    """A batch of objects as they were when it was kept."""

    values: bytes
    rows: int
    timestamps: Timestamps | None


Kept = Callable[[], Element | Pickled]
"""Gives what was kept, on any thread and any time later; it may raise what opening it raises."""


def is_kept(element: Control) -> bool:
    """Whether a control element belongs to what was on its way."""
    match element:
        case Watermark(timestamp):
            return timestamp != MAX_TIMESTAMP
        case StreamStatus():
            return True
    return False


def kept(element: Element) -> Kept:
    """Objects are pickled at once: who gets them may change them. SerializationError if they cannot
    be."""
    if isinstance(element, ObjectBatch):
        pickled = Pickled(pickle_values(element.values), len(element), element.timestamps)
        return lambda: pickled
    return lambda: element
