"""What a notebook asks of a program that is still being written: its graph so far, and the records
of one stream.

Neither touches the job that is being written: no sink of it runs, and what its sinks read stays.
What was only looked at does not run with it: cells are run again and again, each time with new
operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ...core.config import CheckpointConfig, NoRestart
from ...core.errors import StromError
from ...core.shown import shows
from ...engine.graph.chaining import build_job_graph
from ...engine.graph.model import JobGraph
from ...engine.graph.stream_graph import build_stream_graph, reached
from ...plan.known_columns import foretell
from ...plan.program import plan
from .collected import CollectedResults, sink_operator
from .state_backends import with_backends

if TYPE_CHECKING:
    from ...engine.graph.transformation import Transformation
    from .environment import Environment


def sketch(env: Environment, operators: Sequence[Transformation]) -> JobGraph:
    """The job graph of these operators and all that they read, with or without sinks, as `explain`
    tells it. GraphError if they cannot be one."""
    seen = env._caches.seen(operators)
    graph = build_stream_graph(seen, env._name_of(None), env.get_job_config(), complete=False)
    return build_job_graph(foretell(plan(with_backends(graph))))


def sketched(env: Environment, operators: Sequence[Transformation], note: str = "") -> str:
    """The same as HTML, or why there is none: a notebook is shown that, too."""
    try:
        graph = sketch(env, operators)
    except StromError as error:
        return shows().message_html(str(error))
    return shows().graph_html(graph, note)


def preview(env: Environment, sink: Transformation, job_name: str | None) -> CollectedResults:
    """Run a job that ends in `sink`, a CollectSink just added, and nothing else.

    It takes no checkpoints, so that records come at once, and does not restart, so that none comes
    twice; it starts from the beginning, and ends with the program. Once it runs, what it is made of
    is no part of the job being written any more, unless something of that reads it."""
    try:
        config = replace(
            env.get_job_config(),
            checkpoint=CheckpointConfig(),
            restart=NoRestart(),
            restore_from=None,
            attached=True,
        )
        operators = env._caches.resolve([sink], False)
        stream = build_stream_graph(operators, env._name_of(job_name), config)
        graph = build_job_graph(plan(with_backends(stream)))
        client = env._start(graph)
    finally:
        env._withdraw(sink)
    env._leave(reached([sink]))
    return CollectedResults(client, sink_operator(graph, sink.spec))
