"""Two transports, one behaviour: most tests run over each of them."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from strom.core.clock import VirtualClock
from strom.core.config import ExchangeConfig
from strom.core.ids import TaskId
from strom.engine.exchange.inprocess import InProcessNetwork
from strom.engine.exchange.sockets import SocketEndpoint

_SPEC = importlib.util.spec_from_file_location(
    "exchange_kit", Path(__file__).with_name("exchange_kit.py")
)
assert _SPEC is not None
assert _SPEC.loader is not None
_KIT = importlib.util.module_from_spec(_SPEC)
sys.modules["exchange_kit"] = _KIT
_SPEC.loader.exec_module(_KIT)

Make = Callable[..., Any]


class TcpOnly(SocketEndpoint):
    """Hides its unix socket from peers."""

    @property
    def address(self) -> Any:
        return dataclasses.replace(super().address, unix_path=None)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture(params=["in process", "through the codec", "unix", "tcp"])
def make(request: pytest.FixtureRequest, clock: VirtualClock) -> Iterator[Make]:
    """make(task, config) -> endpoint on the virtual clock; all are closed at the end."""
    network = InProcessNetwork(clock, through_codec=request.param == "through the codec")
    made: list[Any] = []

    def build(task: TaskId, config: ExchangeConfig | None = None) -> Any:
        config = config or ExchangeConfig()
        endpoint: Any
        if request.param in ("unix", "tcp"):
            kind = SocketEndpoint if request.param == "unix" else TcpOnly
            endpoint = kind(task, config, _KIT.SECRET, clock)
        else:
            endpoint = network.endpoint(task, config)
        made.append(endpoint)
        return endpoint

    yield build
    for endpoint in made:
        endpoint.close()
