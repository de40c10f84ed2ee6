"""What a program hears of a dispatcher that does not answer. On fakes of Ray."""

from __future__ import annotations

from typing import Any

import pytest
from ray.exceptions import GetTimeoutError
from strom.cluster import dispatcher_client, session_client
from strom.cluster.dispatcher_client import AWAY_S, DispatcherClient
from strom.core.errors import ConfigurationError, TransportError
from strom.engine.hosts import ray_host


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


class Dispatcher:
    """Of a session without jobs."""

    def job(self, job_id: str) -> Any:
        raise ConfigurationError(f"this session has no job '{job_id}'")


@pytest.mark.parametrize(
    ("dispatcher", "said"),
    [
        (Dispatcher(), r"this session has no job 'nix' \(`strom list`\), and beside it none runs"),
        (None, r"this cluster has no job 'nix': it runs on another, or ended more than"),
    ],
)
def test_who_asks_for_a_job_that_is_not_there_hears_of_jobs_alone(
    dispatcher: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_actor(name: str, namespace: str) -> Any:
        raise ValueError(f"no actor '{name}'")

    monkeypatch.setattr(session_client, "join_ray", lambda address: None)
    monkeypatch.setattr(session_client, "find", lambda: dispatcher)
    monkeypatch.setattr(ray_host, "find_coordinator", lambda job_id: no_actor(job_id, ""))
    with pytest.raises(ConfigurationError, match=said) as caught:
        session_client.attach("nix")
    assert "actor" not in str(caught.value)
