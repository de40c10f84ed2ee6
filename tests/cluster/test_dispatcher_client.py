"""What a program hears of a dispatcher that does not answer. On fakes of Ray."""

from __future__ import annotations

from typing import Any

import pytest
from ray.exceptions import GetTimeoutError
from strom.cluster import dispatcher_client
from strom.cluster.dispatcher_client import AWAY_S, DispatcherClient
from strom.core.errors import TransportError


class Silent:
    """An actor whose constructor still runs: it answers nothing."""

    def __getattr__(self, call: str) -> Any:
        return type("Call", (), {"remote": lambda *arguments: call})


def test_a_dispatcher_that_is_there_and_silent_is_waited_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[str, float | None]] = []

    def get(call: str, timeout: float | None) -> None:
        asked.append((call, timeout))
        raise GetTimeoutError

    monkeypatch.setattr(dispatcher_client.ray, "get", get)
    client = DispatcherClient(Silent())
    with pytest.raises(TransportError, match="does not answer within 60 s: it may be starting"):
        client.jobs()
    with pytest.raises(TransportError, match="its registry cannot be read"):
        client.waiting("a1", 10.0, None)
    assert asked == [("jobs", AWAY_S), ("about", AWAY_S)]
