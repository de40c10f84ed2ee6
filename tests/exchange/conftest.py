"""Two transports, one behaviour: most tests run over each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from exchange_kit import SECRET, TcpOnly, job_certificate
from strom.core.clock import VirtualClock
from strom.core.config import ExchangeConfig
from strom.core.ids import TaskId
from strom.engine.exchange.inprocess import InProcessNetwork
from strom.engine.exchange.sockets import SocketEndpoint

Make = Callable[..., Any]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture(params=["in process", "through the codec", "unix", "tcp", "tls"])
def make(request: pytest.FixtureRequest, clock: VirtualClock) -> Iterator[Make]:
    """make(task, config) -> endpoint on the virtual clock; all are closed at the end."""
    network = InProcessNetwork(clock, through_codec=request.param == "through the codec")
    made: list[Any] = []

    def build(task: TaskId, config: ExchangeConfig | None = None) -> Any:
        config = config or ExchangeConfig()
        endpoint: Any
        if request.param in ("unix", "tcp", "tls"):
            kind = SocketEndpoint if request.param == "unix" else TcpOnly
            certificate = job_certificate() if request.param == "tls" else None
            endpoint = kind(task, config, SECRET, clock, certificate=certificate)
        else:
            endpoint = network.endpoint(task, config)
        made.append(endpoint)
        return endpoint

    yield build
    for endpoint in made:
        endpoint.close()
