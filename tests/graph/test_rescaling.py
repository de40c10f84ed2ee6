"""A job's graph at another parallelism."""

from __future__ import annotations

import pytest
from chaos_kit import config, environment
from strom import DiscardSink
from strom.core.errors import GraphError
from strom.engine.graph.execution import build_execution_graph
from strom.engine.graph.model import JobGraph
from strom.engine.graph.rescaling import rescaled


def graph(parallelism: int, own: int | None = None) -> JobGraph:
    """A collection in one subtask, and a keyed function of the job's parallelism, or its own."""
    env = environment(config(parallelism=parallelism, max_parallelism=16))
    keyed = env.from_collection([1, 2, 3]).key_by(lambda n: n).map(lambda n: n)
    (keyed if own is None else keyed.set_parallelism(own)).name("keyed")
    end = keyed.sink_to(DiscardSink())
    if own is not None:
        end.set_parallelism(own)
    made: JobGraph = env.get_job_graph("rescaled")
    return made


def test_what_has_the_jobs_parallelism_gets_another() -> None:
    before = graph(2)
    after = rescaled(before, 5)
    widths = [vertex.parallelism for vertex in after.vertices]
    assert widths == [1, 5]
    assert [v.id for v in after.vertices] == [v.id for v in before.vertices]
    assert (after.config.parallelism, before.config.parallelism) == (5, 2)
    assert len(build_execution_graph(after).tasks) == 6
    assert rescaled(after, 2) == before


@pytest.mark.parametrize(
    ("before", "own", "wanted", "why"),
    [
        (2, None, 2, "already"),
        (2, None, 0, "at least 1"),
        (2, None, 17, "16 key groups"),
        (1, None, 2, "planned for the parallelism 1"),
        (4, 3, 5, "one of its own"),
    ],
)
def test_what_cannot_be(before: int, own: int | None, wanted: int, why: str) -> None:
    with pytest.raises(GraphError, match=why):
        rescaled(graph(before, own), wanted)
