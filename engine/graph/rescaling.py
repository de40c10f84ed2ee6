"""A job's graph at another parallelism, as it was planned, without the program."""

from __future__ import annotations

from dataclasses import replace

from ...core.errors import GraphError
from .model import JobGraph


def rescaled(job: JobGraph, parallelism: int) -> JobGraph:
    """All vertices that have the job's own parallelism get another; those that were given one of
    their own keep it. GraphError where that cannot be: a plan for one subtask relies on there being
    one, and nobody gets more subtasks than key groups."""
    before = job.config.parallelism
    if parallelism == before:
        raise GraphError(f"job '{job.name}' has the parallelism {before} already")
    if parallelism < 1:
        raise GraphError(f"a parallelism is at least 1, is {parallelism}")
    if before == 1:
        raise GraphError(
            f"job '{job.name}' was planned for the parallelism 1, and its plan may rely on it: "
            "stop it with a savepoint, and run its program from that at another parallelism"
        )
    moved = [vertex for vertex in job.vertices if vertex.parallelism == before]
    if not moved:
        raise GraphError(
            f"no operator of job '{job.name}' has the job's parallelism {before}: each was given "
            "one of its own by the program"
        )
    for vertex in moved:
        if parallelism > vertex.max_parallelism:
            raise GraphError(
                f"'{vertex.name}' has {vertex.max_parallelism} key groups (max_parallelism): it "
                f"cannot have the parallelism {parallelism}"
            )
    return replace(
        job,
        vertices=tuple(
            replace(v, parallelism=parallelism) if v.parallelism == before else v
            for v in job.vertices
        ),
        config=replace(
            job.config,
            parallelism=parallelism,
            max_parallelism=max(job.config.max_parallelism, parallelism),
        ),
    )
