"""Measures one of `ported_programs`, in whichever engine it imports. PyFlink runs a copy of this
file as a script, so it imports neither at the top:

    python -m strom.benchmarks.ported_runner MODULE PROGRAM PARALLELISM SECONDS [KEY=VALUE ...]

MODULE is `pyflink` or `strom`; the options are the engine's configuration. Prints one JSON line.

The program runs as a job once, which does not count, twice with as few events, and then again and
again, each time with more, until a job takes SECONDS longer than the shortest, and STARTS times as
long as that. What a job takes besides its records (processes, connections, the end) it takes each
time, so it is not in the difference; what the JVM has compiled by then, it has.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable
from typing import Any

FIRST = 4_000
"""Events of the first jobs."""
GROWTH = 10
"""At most how many times as many the next has."""
STARTS = 2
"""Starts that take longer than others must not matter."""


def environment(module: str, parallelism: int, options: dict[str, str]) -> Any:
    common = importlib.import_module(f"{module}.common")
    streaming = importlib.import_module(f"{module}.datastream")
    configuration = common.Configuration()
    for key, value in options.items():
        configuration.set_string(key, value)
    env = streaming.StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(parallelism)
    return env


def nowhere(module: str) -> Any:
    """A sink that drops every record, after it has left Python in PyFlink."""
    if module != "pyflink":
        return importlib.import_module(module).DiscardSink()
    base = importlib.import_module("pyflink.datastream.connectors.base")
    jvm = importlib.import_module("pyflink.java_gateway").get_gateway().jvm
    return base.Sink(jvm.org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink())


def grown(
    run: Callable[[int], float], seconds: float, first: int = FIRST
) -> tuple[int, float, list[tuple[int, float]]]:
    """Events and seconds by which the last job exceeds the shortest, and all jobs that count.
    `run`: events to seconds."""
    run(first)  # starts what stays: a JVM, a cluster
    jobs = [(first, run(first)), (first, run(first))]
    events = first * GROWTH
    while True:
        jobs.append((events, run(events)))
        few, shortest = min(jobs[:-1], key=lambda job: job[1])
        more, longer = events - few, jobs[-1][1] - shortest
        wanted = max(seconds, STARTS * shortest)
        if longer >= wanted:
            return more, longer, jobs
        needed = 1.2 * more * wanted / longer if longer > 0 else events * GROWTH
        events = int(min(max(needed, 1.5 * events), GROWTH * events))


def main(module: str, program: str, parallelism: str, seconds: str, *options: str) -> None:
    given = dict(option.split("=", 1) for option in options)
    package = f"{__package__}." if __package__ else ""
    programs = importlib.import_module(f"{package}ported_programs").PROGRAMS

    def run(events: int) -> float:
        env = environment(module, int(parallelism), given)
        programs[program](env, events).sink_to(nowhere(module))
        begin = time.monotonic()
        env.execute(program)
        return time.monotonic() - begin

    events, taken, jobs = grown(run, float(seconds))
    line = {
        "events": events,
        "seconds": round(taken, 3),
        "events_per_s": round(events / taken),
        "jobs": [(n, round(job, 3)) for n, job in jobs],
    }
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
