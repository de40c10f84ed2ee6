"""A job graph that cannot travel is refused with the operator's name."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import pytest
from strom.core.config import JobConfig
from strom.core.errors import SerializationError
from strom.core.keys import FunctionKey
from strom.engine.graph.chaining import build_job_graph
from strom.engine.graph.model import JobGraph, KeyGroups, Partitioner
from strom.engine.graph.shipping import check_serialisable
from strom.engine.graph.stream_graph import build_stream_graph
from strom.engine.graph.transformation import Input, Transformation


@dataclass(frozen=True)
class Spec:
    function: Any
    label: str = "label"


def job(function: Any, partitioner: Partitioner | None = None, **config: Any) -> JobGraph:
    read = Transformation(0, Spec(None), "read", (), 1, is_source=True)
    source = Input(read, None, partitioner)
    write = Transformation(1, Spec(function), "write", (source,), 1, is_sink=True)
    return build_job_graph(build_stream_graph([write], "test", JobConfig(**config)))


def test_lambdas_and_closures_pass() -> None:
    offset = 3
    check_serialisable(job(lambda value: value + offset))


def test_names_operator_field_and_cause() -> None:
    lock = threading.Lock()
    with pytest.raises(
        SerializationError, match=r"operator 'write'.*its function does not pickle.*lock.*open\(\)"
    ) as caught:
        check_serialisable(job(lambda value: lock.locked()))
    assert "TypeError: cannot pickle" in str(caught.value)


def test_names_the_edge_of_a_bad_key() -> None:
    lock = threading.Lock()
    key = FunctionKey(lambda value: lock.locked())
    with pytest.raises(SerializationError, match=r"partitioning of 'read' for 'write'.*its key"):
        check_serialisable(job(len, KeyGroups(key)))


def test_names_the_configuration() -> None:
    with pytest.raises(SerializationError, match=r"configuration.*its job_parameters"):
        check_serialisable(job(len, job_parameters={"lock": threading.Lock()}))


def test_an_error_of_the_users_own_is_reported() -> None:
    class Stubborn:
        def __reduce__(self) -> str:
            raise RuntimeError("not me")

    with pytest.raises(SerializationError, match=r"'write'.*RuntimeError: not me"):
        check_serialisable(job(Stubborn()))
