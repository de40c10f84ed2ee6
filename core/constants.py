"""Names and numbers that windows, joins and tables share."""

from __future__ import annotations

START, END = "window_start", "window_end"
"""The columns that windows append to their records: int64, ms since the epoch."""

LATE_DROPPED = "numLateRecordsDropped"
"""The metric that counts records too late for any window or join."""

RETRACTIONS_SKIPPED = "numRetractionsOfForgottenSkipped"
"""Metric: retractions of records that a time to live had forgotten."""

CHUNK_BATCHES = 4
"""What is emitted at once goes out in batches of at most this many times the job's batch size."""
