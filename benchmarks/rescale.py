"""How long no records come out while a job that runs gets another parallelism.

Once all keys of the job (`stateful`) have their values and a checkpoint has them, it is rescaled to
each of `steps` in turn, as the same job (`client.rescale`). Of each: `silence_ms`, the longest time
without a note from when it was asked for until a second behind its end, beside the longest of the
second before that (`usual_gap_ms`); `told_ms`, what the job itself says, between the word to its
tasks to stop and the last of the new ones that runs; `took_s`, all of it, with slots, processes and
the checkpoint, while the former tasks still work.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from .stateful import StatefulJob, stateful_job

AROUND_S = 1.0
LONGEST_S = 300.0


def measure_rescale(state_mb: int, rate: int, steps: Sequence[int]) -> dict[str, Any]:
    """One line. `steps`: the first is the parallelism that the job begins with."""
    with stateful_job("rescale", state_mb, rate, steps[0]) as job:
        rescales = [_rescaled(job, *step) for step in pairwise(steps)]
    return {
        "name": "rescale",
        "host": "ray",
        "state_mb": state_mb,
        "checkpoint_bytes": job.checkpoint_bytes,
        "rate": rate,
        "rescales": rescales,
    }


def _rescaled(job: StatefulJob, before: int, after: int) -> dict[str, Any]:
    time.sleep(2 * AROUND_S)
    asked = time.time()
    made = job.client.rescale(after).result(LONGEST_S)
    done = time.time()
    time.sleep(2 * AROUND_S)
    return {
        "from": before,
        "to": after,
        "silence_ms": job.silence_ms(asked, done + AROUND_S),
        "usual_gap_ms": job.silence_ms(asked - AROUND_S, asked),
        "told_ms": round(made.silence.total_seconds() * 1000),
        "took_s": round(done - asked, 2),
    }
