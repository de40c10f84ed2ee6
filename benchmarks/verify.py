"""Runs a workload with its output collected, and compares it with the reference."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from .measure import Setting, environment
from .nexmark.events import whole_stream
from .nexmark.query import Query

MOST_EVENTS = 1_000_000
"""A million records fit into the memory of the client; the reference takes some seconds."""


class WrongOutput(Exception):
    """A workload's output is not what the reference says."""


def verify(setting: Setting) -> int:
    """Run on at most MOST_EVENTS events, which are returned. Raises WrongOutput."""
    events = min(setting.events, MOST_EVENTS)
    query = setting.query
    with tempfile.TemporaryDirectory(prefix="strom-verify-") as folder:
        env = environment(replace(setting, events=events), str(Path(folder, "checkpoints")))
        with whole_stream(setting.whole_stream):
            stream = query.build(env, events)
        if query.sink is None or query.read is None:
            with stream.execute_and_collect("verification") as results:
                difference = differences(query, events, results)
        else:
            out = str(Path(folder, "out"))
            stream.sink_to(query.sink(out))
            env.execute("verification")
            difference = differences(query, events, query.read(out))
    if difference is not None:
        raise WrongOutput(f"{setting.name}, {events} events: {difference}")
    return events


def differences(query: Query, events: int, output: Iterable[Any]) -> str | None:
    """How the output (rows in any order) differs from the reference's; None if it does not.

    Compared by hashes of the rows (64 bits), so that a million wide rows fit into memory.
    """
    found = Counter(hash(row) for row in query.outcome(map(tuple, output)))
    count = sum(found.values())
    expected, missing = 0, []
    for row in query.expected(events):
        expected += 1
        if found[hash(row)] > 0:
            found[hash(row)] -= 1
        else:
            missing.append(row)
    unexpected = sum(found.values())
    if not missing and not unexpected:
        return None
    return (
        f"{count} rows, expected {expected}; {unexpected} are not in the reference and "
        f"{len(missing)} of the reference are missing, for instance {missing[:3]}"
    )
