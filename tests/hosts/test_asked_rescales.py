"""What is asked of a running job is answered, whatever it is, and harms nobody."""

from __future__ import annotations

from typing import Any

import pytest
from chaos_kit import config, environment
from strom import DiscardSink
from strom.core.answered import CompletableFuture
from strom.core.errors import ConfigurationError
from strom.engine.coordinator.askers import Asker
from strom.engine.graph.model import JobGraph
from strom.engine.hosts.asked_rescales import AskedRescales
from strom.engine.hosts.rescale_calls import RescaleCalls


class Calls(RescaleCalls):
    def _rescale(self, wanted: Any) -> CompletableFuture[Any]:
        raise AssertionError(f"{wanted} reached the job")


@pytest.mark.parametrize("wanted", [True, False, {"a": True}, 1.0, "2", {1: 2}, {}, None])
def test_what_is_no_parallelism_stays_with_who_asks(wanted: Any) -> None:
    with pytest.raises(ConfigurationError):
        Calls().rescale(wanted)


def graph() -> JobGraph:
    env = environment(config(parallelism=2, max_parallelism=16))
    env.from_collection([1, 2]).key_by(lambda n: n).map(lambda n: n).sink_to(DiscardSink())
    made: JobGraph = env.get_job_graph("asked")
    return made


@pytest.mark.parametrize(
    ("wanted", "why"),
    [(17, "16 key groups"), (True, "parallelism must be an int"), ({"a": 2}, "'a'")],
)
def test_what_cannot_be_worked_out_is_the_answer(wanted: Any, why: str) -> None:
    job, answers = graph(), list[Any]()
    asked = AskedRescales(job)
    asked.want(wanted, lambda *answer: answers.append(answer), Asker.SOMEBODY)
    asked.want(3, lambda *answer: answers.append(answer), Asker.SOMEBODY)
    assert asked.next(job, {}) is None
    ((figures, said),) = answers
    assert figures is None
    assert said.startswith("not rescaled: ")
    assert why in said
    following = asked.next(job, {})
    assert following is not None
    assert following.graph.job.config.parallelism == 3
