"""Which Ray is looked for where, and how long by."""

from __future__ import annotations

import signal
import socket
import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from strom import ResourceError, connect_to_ray
from strom.engine.hosts import ray_connect
from strom.engine.hosts.ray_connect import LEFT, Named, named_cluster, require_listener


class StandInRay(types.ModuleType):
    """Remembers what it was told to join."""

    def __init__(self) -> None:
        super().__init__("ray")
        self.calls: list[dict[str, Any]] = []
        self.error: Exception | None = None
        self.util = types.SimpleNamespace(get_node_ip_address=lambda: "127.0.0.1")

    def is_initialized(self) -> bool:
        return False

    def init(self, **options: Any) -> None:
        self.calls.append(options)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if self.error is not None:
            raise self.error

    def get_runtime_context(self) -> Any:
        return types.SimpleNamespace(gcs_address="127.0.0.1:1")


@pytest.fixture
def ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandInRay]:
    """No cluster anywhere; Ray's temporary folder is `tmp_path`."""
    stand_in = StandInRay()
    monkeypatch.setitem(sys.modules, "ray", stand_in)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray_connect, "_own", [])
    before = signal.getsignal(signal.SIGTERM)
    yield stand_in
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def closed() -> str:
    """An address where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture
def open_address() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def leave(folder: Path, address: str) -> Path:
    file = folder / "ray" / "ray_current_cluster"
    file.parent.mkdir()
    file.write_text(address)
    return file


def refused(ray: StandInRay, **options: Any) -> str:
    started = time.monotonic()
    with pytest.raises(ResourceError) as caught:
        connect_to_ray(**options)
    assert time.monotonic() - started < 10.0
    assert ray.calls == [], "Ray would try for minutes"
    return str(caught.value)


def test_a_cluster_that_left_its_address_and_died(
    ray: StandInRay, tmp_path: Path, closed: str
) -> None:
    file = leave(tmp_path, closed)
    assert refused(ray) == (
        f"no Ray cluster is at {closed}, the address that `ray start` left on this machine "
        f"([Errno 111] Connection refused): remove {file} (`ray stop` does) to do without it, "
        "or start one with `ray start`"
    )
    assert str(file) in refused(ray, address="auto")


def test_an_address_in_the_environment_or_given_that_nobody_listens_at(
    ray: StandInRay, closed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "given as `address`" in refused(ray, address=closed)
    assert "given as `address`" in refused(ray, address=f"ray://{closed}")
    monkeypatch.setenv("RAY_ADDRESS", closed)
    text = refused(ray)
    assert f"{closed}, the address in RAY_ADDRESS" in text
    assert "set RAY_ADDRESS to another or to nothing" in text


def test_a_machine_that_does_not_answer(ray: StandInRay, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(where: Any, timeout: float) -> Any:
        assert timeout <= 5.0
        raise TimeoutError("timed out")

    monkeypatch.setattr(socket, "create_connection", silent)
    assert "timed out" in refused(ray, address="192.0.2.1:6379")
    assert "nonsense" in refused(ray, address="127.0.0.1:nonsense")


def test_who_listens_is_joined(
    ray: StandInRay, tmp_path: Path, open_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect_to_ray(address=open_address)
    leave(tmp_path, open_address)
    connect_to_ray()
    monkeypatch.setenv("RAY_ADDRESS", open_address)
    connect_to_ray()
    assert [c["address"] for c in ray.calls] == [open_address, None, open_address]


def test_without_any_address_there_is_a_cluster_of_its_own(ray: StandInRay) -> None:
    connect_to_ray()
    assert ray.calls[0]["address"] == "local"
    assert ray_connect.on_own_cluster()


def test_what_ray_cannot_join_is_one_sentence(ray: StandInRay, open_address: str) -> None:
    ray.error = ConnectionError("Failed")
    ray.error.__cause__ = RuntimeError("a trace\nof many lines\nRPC error: InvalidAuthToken")
    with pytest.raises(ResourceError) as caught:
        connect_to_ray(address=open_address)
    assert str(caught.value) == (
        f"the Ray cluster at {open_address}, the address given as `address`, could not be joined: "
        "RPC error: InvalidAuthToken"
    )
    assert caught.value.__suppress_context__


def test_addresses_that_are_no_host_and_port_are_left_to_ray(ray: StandInRay) -> None:
    for address in ("auto", "somebody://host:1"):
        require_listener(Named(address, LEFT, ""))
    assert named_cluster("local") is None
    assert named_cluster("auto") is not None


# --- SIGTERM ----------------------------------------------------------------------------------


def test_sigterm_ends_the_program_as_sys_exit_does(ray: StandInRay) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    connect_to_ray()
    with pytest.raises(SystemExit) as caught:
        signal.raise_signal(signal.SIGTERM)
    assert caught.value.code == 143


def test_a_handler_of_the_program_survives(ray: StandInRay) -> None:
    heard: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    connect_to_ray()
    signal.raise_signal(signal.SIGTERM)
    assert heard == [signal.SIGTERM]
