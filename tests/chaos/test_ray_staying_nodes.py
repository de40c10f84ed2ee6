"""A node dies while a job on Ray is rescaled for which tasks stand still: theirs, or that on which
the new ones begin."""

from __future__ import annotations

from pathlib import Path

import pytest
from chaos_kit import until
from ray_chaos_kit import live_groups
from shared_ray import stop_ray
from stages_kit import Stages
from strom.testing.machines.local_nodes import LocalNodes

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.parametrize("whose", ["theirs", pytest.param("the new ones'", marks=pytest.mark.soak)])
def test_a_node_may_die_meanwhile(tmp_path: Path, whose: str) -> None:
    """Both slots of the job are on one node, the third is to be on another. Another node comes
    instead of the dead one; the output is exact."""
    stop_ray()
    with LocalNodes([0, 2]) as nodes:
        (theirs,) = nodes.others
        job = Stages(tmp_path, "ray")
        job.checkpoint()
        new = nodes.add(1)
        asked = job.client.rescale({"sums": 3})
        until(lambda: asked.done() or job.kept()["former"], "the new parallelism", 60.0)
        nodes.kill(theirs if whose == "theirs" else new)
        nodes.add(2)
        until(asked.done, "an answer", 240.0)
        job.checkpoint()
        assert len(job.tasks("sums")) in (2, 3)
        job.finish()
        until(lambda: not nodes.actors("TaskActor") and not live_groups(), "the end of all", 30.0)
