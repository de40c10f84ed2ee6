"""The records of a case by way of an operator that puts others aside: beside some of them comes one
for which its function raises. Whatever the case's operator makes of the records, it makes the same.

The limit is the number of those: a letter that is counted twice, in whatever way a job goes on from
a checkpoint, fails it. What is drawn here is drawn apart from the case, which stays what it was."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from ...api.connectors.builtin_sinks import DiscardSink
from ...api.dead_letters import dead_letters
from ...api.functions.async_functions import AsyncFunction
from ...api.functions.user_functions import ProcessFunction
from ...api.streams.async_data_stream import AsyncDataStream
from ...api.streams.data_stream import DataStream
from .asking import order_free
from .cases import Case

PLACES = ("map", "flat_map", "filter", "process", "asked")


def poison_of(case: Case) -> str:
    """Which function raises; empty: there is none."""
    place = random.Random(f"poison of {case.seed}").choice(("", "", "", "", *PLACES))
    return place if place != "asked" or order_free(case) else ""


class Poison:
    """A record that no function takes."""

    def __init__(self, number: int) -> None:
        self.n = number


def checked(row: Any) -> Any:
    if isinstance(row, Poison):
        raise ValueError(f"poison {row.n}")
    return row


class Checks(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        if isinstance(value, Poison):
            yield value  # goes nowhere: nothing of such a record does
        yield checked(value)


class Asks(AsyncFunction[Any, Any]):
    async def async_invoke(self, value: Any) -> list[Any]:
        return [checked(value)]


def poisoned(case: Case, records: DataStream) -> DataStream:
    """The records as they are, half of the time with others among them until here."""
    place = poison_of(case)
    if not place:
        return records
    rng = random.Random(f"doses of {case.seed}")
    every, schema = rng.choice((1, 2, 5)), case.data.schema

    def mixed(row: Any) -> list[Any]:
        return [Poison(row.n), row] if row.n % every == 0 else [row]

    limit = sum(number % every == 0 for number in case.data.column("n").to_pylist())
    stream = records.flat_map(mixed)
    match place:
        case "map":
            last = stream.map(checked, schema)
        case "flat_map":
            last = stream.flat_map(lambda row: [checked(row)], schema)
        case "process":
            last = stream.process(Checks(), schema)
        case "asked":
            last = AsyncDataStream.ordered_wait(stream, Asks(), 0, 3, schema)
        case _:
            last = stream.filter(lambda row: checked(row) is not None)
    last = last.on_error(dead_letters(limit))
    if rng.random() < 0.5:
        last.get_dead_letters().sink_to(DiscardSink())
    return last.map(lambda row: row, schema) if place == "filter" else last
