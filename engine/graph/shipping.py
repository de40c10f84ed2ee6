"""Can the job graph travel to its tasks? Asked before anything is started, so that a function that
cannot be pickled is an error in the user's own stack, naming the operator, and not in a dead actor.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from ...core.errors import SerializationError
from ...core.failure_text import described
from .model import JobGraph


def check_serialisable(graph: JobGraph) -> None:
    """Raise SerializationError naming the operator and the field of its spec that is to blame."""
    for vertex in graph.vertices:
        for operator in vertex.operators:
            error = _failure(operator.spec)
            if error is not None:
                raise _error(f"operator '{operator.name}'", operator.spec, error)
    names = {vertex.id: vertex.name for vertex in graph.vertices}
    for edge in graph.edges:
        error = _failure(edge.partitioner)
        if error is not None:
            where = f"the partitioning of '{names[edge.source]}' for '{names[edge.target]}'"
            raise _error(where, edge.partitioner, error)
    error = _failure(graph.config)
    if error is not None:
        raise _error("the job's configuration", graph.config, error)


def _error(where: str, value: Any, error: Exception) -> SerializationError:
    field = _culprit(value)
    what = f"its {field}" if field else "it"
    return SerializationError(
        f"{where} cannot be sent to the tasks: {what} does not pickle "
        f"({described(error)}). Create connections, locks, files and clients in open(), not before "
        "the job is submitted"
    )


def unreadable(error: BaseException) -> SerializationError:
    """Why the job's graph, or a task's part of it, could not be unpickled in another process."""
    module = error.name if isinstance(error, ModuleNotFoundError) else None
    if module is None:
        return SerializationError(
            f"a function cannot be unpickled in the processes that are to run it "
            f"({described(error)}): what it gives to pickle must be enough to make it again, and "
            "its module the same everywhere"
        )
    refusal = SerializationError(
        f"module '{module}' is not to be had in the processes that are to run it: ship it with "
        "env.add_python_file(...), with `ray job submit --working-dir FOLDER`, with "
        "ray.init(runtime_env={'working_dir': ...}) or "
        "{'py_modules': [...]} before the job is submitted, or install it on every node"
    )
    refusal.module = module
    return refusal


def naming_operator(graph: JobGraph, error: SerializationError) -> SerializationError:
    """The error of `unreadable` with the operator in front that needs the missing module."""
    module = error.module
    if module is None:
        return error
    import cloudpickle

    for vertex in graph.vertices:
        for operator in vertex.operators:
            if module.encode() in cloudpickle.dumps(operator.spec, protocol=5):
                return SerializationError(f"operator '{operator.name}': {error}")
    return error


def _culprit(value: Any) -> str | None:
    """Name of the first dataclass field that does not pickle by itself."""
    if not dataclasses.is_dataclass(value):
        return None
    for field in dataclasses.fields(value):
        if _failure(getattr(value, field.name)) is not None:
            return field.name
    return None


def _failure(value: Any) -> Exception | None:
    import cloudpickle

    try:
        cloudpickle.dump(value, _Nowhere(), protocol=5)
    except Exception as error:  # whatever a user's __reduce__ or __getstate__ raises
        return error
    return None


class _Nowhere:
    """A file that forgets: a pickle is made piece by piece and never held as a whole."""

    def write(self, data: Any) -> int:
        return len(data) if isinstance(data, bytes) else memoryview(data).nbytes
