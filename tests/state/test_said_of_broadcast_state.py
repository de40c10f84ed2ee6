"""What `migrate_state` says reaches broadcast state, too; what its descriptor says counts first."""

from __future__ import annotations

from typing import Any

import pytest
from strom import (
    BroadcastProcessFunction,
    MapStateDescriptor,
    Row,
    StreamExecutionEnvironment,
    Types,
)
from strom.core.errors import StateError
from strom.testing import OperatorHarness

OLD = Types.ROW_NAMED(["name", "limit"], [Types.STRING(), Types.LONG()])
NEW = Types.ROW_NAMED(["name", "most", "level"], [Types.STRING(), Types.LONG(), Types.LONG()])


class Rules(BroadcastProcessFunction):
    def __init__(self, rules: MapStateDescriptor) -> None:
        self.rules = rules

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield ctx.get_broadcast_state(self.rules).get(value).as_dict()

    def process_broadcast_element(self, value: Any, ctx: Any) -> None:
        ctx.get_broadcast_state(self.rules).put(value[0], value[1])


def rules(kind: Any, said: bool = False) -> Any:
    env = StreamExecutionEnvironment.get_execution_environment()
    descriptor = MapStateDescriptor("rules", Types.LONG(), kind)
    if said:
        descriptor.enable_migration(rename={"limit": "most"}, defaults={"level": 2})
    told = env.from_collection([(1, None)]).broadcast(descriptor)
    return env.from_collection([1]).connect(told).process(Rules(descriptor))


def checkpoint() -> Any:
    first = OperatorHarness.of(rules(OLD))
    first.push([(1, Row(name="a", limit=5))], port=1)
    return first.snapshot()


@pytest.mark.parametrize("state", [None, "rules"])
@pytest.mark.parametrize("said", [False, True])
def test_values_of_broadcast_state_become_what_is_said(state: str | None, said: bool) -> None:
    stream = rules(NEW, said).migrate_state(state, rename={"limit": "most"}, defaults={"level": 1})
    second = OperatorHarness.of(stream, restored=checkpoint())
    second.push([1])
    assert second.outputs() == [{"name": "a", "most": 5, "level": 2 if said else 1}]


def test_without_a_word_they_are_refused() -> None:
    with pytest.raises(StateError, match="limit"):
        OperatorHarness.of(rules(NEW), restored=checkpoint())
