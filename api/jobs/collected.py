"""Results of a running job, brought to the program that submitted it."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...core.ids import OperatorId
    from ...engine.graph.model import JobGraph
    from ...engine.graph.transformation import Transformation
    from .environment import Environment
    from .host import JobClient


def collect(
    env: Environment, sink: Transformation, job_name: str | None, limit: int | None
) -> CollectedResults | list[Any]:
    """Run the job that ends in `sink`, a CollectSink: CollectedResults, or with limit a list."""
    try:
        graph = env.get_job_graph(job_name)
        operator_id = sink_operator(graph, sink.spec)
        client = env._submit(env._waited_for(graph))
    except BaseException:
        env._withdraw(sink)
        raise
    results = CollectedResults(client, operator_id)
    if limit is None:
        return results
    with results:
        return list(itertools.islice(results, limit))


def sink_operator(graph: JobGraph, spec: Any) -> OperatorId:
    """The operator of this very spec."""
    return next(o.operator_id for v in graph.vertices for o in v.operators if o.spec is spec)


class CollectedResults:
    """The records as they are published. Iterate once; `with` (or `close()`) cancels the job if it
    still runs. At the end of a failed job the iteration raises its JobFailedError."""

    def __init__(self, client: JobClient, operator_id: OperatorId) -> None:
        self.client = client
        self._records = self._iterate(operator_id)
        self._over = False
        """Whether the job has ended and its outcome was reported, or `close` was called."""

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._records)

    def next(self) -> Any:
        return next(self)

    def __enter__(self) -> CollectedResults:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Cancel the job if it has not ended; a second call does nothing. From any thread: an
        iteration in another one ends with what is published by then."""
        if self._over:
            return
        self._over = True
        self.client.cancel()
        with suppress(ValueError):  # it runs in another thread
            self._records.close()

    def _iterate(self, operator_id: OperatorId) -> Generator[Any, None, None]:
        for values in self.client.published(operator_id):
            yield from values
            if self._over:
                return
        if self._over:
            return
        self._over = True
        self.client.get_job_execution_result()


CloseableIterator = CollectedResults
"""PyFlink's name."""
