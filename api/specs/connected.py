"""Specs of operators of users' functions with two inputs. The first is read at port 0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from ...core.keys import KeySelector
from ...state.descriptors import MapStateDescriptor
from ..types.declared import Declared
from .records import OperatorSpec


@dataclass(frozen=True)
class CoProcessSpec(OperatorSpec):
    """`function`: CoProcessFunction."""

    writes_letters = True

    function: Any
    schema: Declared | None = None


@dataclass(frozen=True)
class KeyedCoProcessSpec(OperatorSpec):
    """`function`: KeyedCoProcessFunction or CoProcessFunction. `key`, `right_key`: of port 0 and
    1."""

    writes_letters = True

    key: KeySelector
    right_key: KeySelector
    function: Any
    schema: Declared | None = None


@dataclass(frozen=True)
class CoMapBatchesSpec(OperatorSpec):
    """`function`: an object with `map_batches1` and `map_batches2`, or a class of such. `keyed`:
    both inputs are partitioned by key, and it may use state of keys that it names."""

    function: Any
    keyed: bool = False
    batch_format: Literal["arrow", "polars", "pandas", "numpy"] = "arrow"
    schema: Declared | None = None


@dataclass(frozen=True)
class BroadcastProcessSpec(OperatorSpec):
    """`function`: BroadcastProcessFunction. Port 1: the broadcast elements."""

    writes_letters = True

    function: Any
    descriptors: tuple[MapStateDescriptor, ...]
    schema: Declared | None = None


@dataclass(frozen=True)
class KeyedBroadcastProcessSpec(OperatorSpec):
    """`function`: KeyedBroadcastProcessFunction. `key`: of port 0."""

    writes_letters = True

    key: KeySelector
    function: Any
    descriptors: tuple[MapStateDescriptor, ...]
    schema: Declared | None = None


@dataclass(frozen=True)
class OneOrderSpec(OperatorSpec):
    """All records through one subtask, unchanged, so that all who read them get them in one order.
    `timeless`: no watermark will ever come, so the stream holds back nobody's event time."""

    keeps_records = True

    timeless: bool = False

    def result_schema(self, left: pa.Schema | None, right: pa.Schema | None) -> pa.Schema | None:
        return left
