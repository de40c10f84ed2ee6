"""CoProcessFunction and KeyedCoProcessFunction: per-record logic over two inputs.

One object handles both; with keys, both inputs have the state and the timers of their current key.
All else is as with one input.
"""

from __future__ import annotations

from typing import Any

from ...core.keys import KeySelector
from ..rows.keyed_process import KeyedProcessOperator
from ..rows.process import ProcessOperator

_METHODS = ("process_element1", "process_element2")


class CoProcessOperator(ProcessOperator):
    """Runs a CoProcessFunction on streams without keys."""

    METHODS = _METHODS
    KEYED = "KeyedCoProcessFunction"


class KeyedCoProcessOperator(KeyedProcessOperator):
    """Runs a KeyedCoProcessFunction, or a CoProcessFunction on keyed streams."""

    METHODS = _METHODS

    def _keys_of(self, spec: Any) -> tuple[KeySelector, ...]:
        return spec.key, spec.right_key
