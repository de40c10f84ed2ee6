"""Names and numbers that windows, joins and tables share."""

from __future__ import annotations

START, END = "window_start", "window_end"
"""The columns that windows append to their records: int64, ms since the epoch."""

LATE_DROPPED = "numLateRecordsDropped"
"""The metric that counts records too late for any window or join."""

DEAD_LETTERS_COUNT = "numDeadLetters"
"""The metric that counts records put aside because a function raised for them. Flink has no figure
of that; `numRecordsInErrors`, which is nearest, is of sources and counts what failed them."""

RETRACTIONS_SKIPPED = "numRetractionsOfForgottenSkipped"
"""Metric: retractions of records that a time to live had forgotten."""

CHUNK_BATCHES = 4
"""What is emitted at once goes out in batches of at most this many times the job's batch size."""
