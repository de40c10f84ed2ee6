"""Slots that Ray fails to make. On a fake of it; on the real one: `test_ray_slots`."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from chaos_kit import config, environment
from ray.exceptions import RaySystemError
from strom import DiscardSink
from strom.core.errors import JobCancelledError
from strom.engine.hosts import slots as module
from strom.engine.hosts.slots import Slots


@pytest.mark.parametrize("error", [RaySystemError("no"), JobCancelledError("no more")], ids=str)
def test_what_is_not_waited_for_to_the_end_is_given_back(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready: Future[Any] = Future()
    ready.set_exception(error)
    group = SimpleNamespace(ready=lambda: SimpleNamespace(future=lambda: ready))
    given_back: list[Any] = []
    monkeypatch.setattr(module, "placement_group", lambda bundles, **options: group)
    monkeypatch.setattr(module, "give_back", given_back.append)
    env = environment(config())
    env.from_collection([1]).sink_to(DiscardSink())
    slots = Slots(env.get_job_graph("one"), "a name")
    with pytest.raises(type(error)):
        slots.reserve(Future())
    slots.release()
    assert given_back == [group]
