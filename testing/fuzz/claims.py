"""What `explain()` says of each operator, held against the operators that tasks build.

How an operator works is told by the package that its class is from, and for operators that decide
with their first batch by what they chose.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...api.connectors.builtin_sinks import DiscardSink
from ...api.streams.data_stream import DataStream, StreamExecutionEnvironment
from ...core.config import JobConfig
from ...engine.graph.model import JobGraph
from ...engine.task import chain
from ...operators.async_io.operator import AsyncOperator
from ...operators.base import Operator
from ...operators.combining.aggregates import LocalAggregatesOperator
from ...operators.combining.extremes import LocalExtremesOperator
from ...operators.combining.groups import LocalGroupsOperator
from ...operators.rolling.choice import RollingOperator
from ...operators.rows.functions import RowOperator
from ...operators.time.watermarks import WatermarkOperator
from ..probes import CollectProbe

_BY_PACKAGE = {
    "rows": "rows",
    "row_windows": "rows",
    "batches": "batches",
    "io": "batches",
    "time": "batches",
    "joins": "kernel",
    "sessions": "kernel",
    "tables": "kernel",
    "windows": "kernel",
}


def runs_as(operator: Operator) -> str | None:
    """The kind of implementation (see `engine.graph.implementation`) that an operator is; None for
    one that has not decided, or whose class does not tell."""
    if isinstance(operator, RollingOperator):
        face = operator.face
        return None if face is None else ("kernel", "rows")[_package(face, 0) == "rows"]
    if isinstance(operator, LocalAggregatesOperator | LocalExtremesOperator | LocalGroupsOperator):
        combines = operator.combines
        return None if combines is None else ("batches", "kernel")[combines]
    if isinstance(operator, WatermarkOperator):
        return None
    if isinstance(operator, RowOperator) and operator.by_columns is not None:
        reads = operator.by_columns.reads
        return None if reads is None else ("rows", "batches")[reads]
    if isinstance(operator, AsyncOperator):
        return _BY_PACKAGE[_package(operator, 0)]
    return _BY_PACKAGE[_package(operator, 1)]


def check_claim(kind: str, operator: Operator) -> bool:
    """AssertionError unless the operator is what `kind` claims; whether it has told what it is."""
    found = runs_as(operator)
    if found is not None and found not in kind.split(" or "):
        raise AssertionError(
            f"explain() says {kind}, but {type(operator).__name__} runs, by {found}"
        )
    return found is not None


def claimed(env: StreamExecutionEnvironment, stream: DataStream) -> str:
    """What `explain()` says of the operator that the stream is the direct result of; the program
    has no other end."""
    stream.sink_to(DiscardSink())
    nodes = {node["id"]: node for node in json.loads(env.explain("json", "stream"))["nodes"]}
    (sink,) = [node for node in nodes.values() if node["kind"] == "sink"]
    return str(nodes[sink["inputs"][0]["from"]]["implementation"]["kind"])


class ClaimingProbe(CollectProbe):
    """Notes what `explain()` says of the jobs it makes."""

    def __init__(self, build: Any) -> None:
        super().__init__(build)
        self.claims: dict[str, str] = {}
        """By operator id."""

    def graph(self, config: JobConfig) -> JobGraph:
        env = self.environment(config)
        for node in json.loads(env.explain("json"))["nodes"]:
            for operator in node["operators"]:
                self.claims[operator["operator_id"]] = operator["implementation"]["kind"]
        return super().graph(config)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Have all operators that tasks of this process build meanwhile held against the claims."""
        built: list[Operator] = []
        build = vars(chain)["build_operator"]

        def building(*arguments: Any) -> Operator:
            operator: Operator = build(*arguments)
            built.append(operator)
            return operator

        vars(chain)["build_operator"] = building
        try:
            yield
        finally:
            vars(chain)["build_operator"] = build
        opened = [one for one in built if hasattr(one, "ctx")]  # a task may end before it opens
        told = [check_claim(self.claims[str(one.ctx.operator_id)], one) for one in opened]
        assert any(told), "no operator was opened"


def _package(one: object, depth: int) -> str:
    """The package in `operators/` of an object's class, or for depth 0 its module."""
    return type(one).__module__.split(".")[-1 - depth]
