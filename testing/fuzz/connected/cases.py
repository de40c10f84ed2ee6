"""A case: records of two inputs, and what a function does with each. `draw_connected(seed)` gives
the same case for ever, as long as nothing here changes."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Rules = Mapping[int, int]
"""Broadcast state."""

LAST = 10**9
"""Later than all timers."""


@dataclass(frozen=True)
class Record:
    """`k`: its key; an element that is broadcast has one, too, which nobody asks for."""

    n: int
    port: int
    k: Any
    ts: int


@dataclass(frozen=True)
class Effects:
    """What a function does with one record or timer. `held`: what its key has from then on."""

    held: tuple[int, ...]
    results: int
    timers: tuple[int, ...] = ()
    deleted: tuple[int, ...] = ()


@dataclass(frozen=True)
class ConnectedCase:
    """broadcast: port 1 is broadcast, else both are keyed. state: the kind that holds what a key
    has. columns: records are rows of columns. script: ("rows", port, records), ("mark", watermark),
    ("cut", in halves)."""

    seed: int
    broadcast: bool
    state: str
    columns: bool
    batch_size: int
    script: list[tuple[Any, ...]] = field(default_factory=list)

    @property
    def records(self) -> list[Record]:
        return [r for kind, *rest in self.script if kind == "rows" for r in rest[1]]

    def describe(self) -> str:
        kinds = [step[0] for step in self.script]
        counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in sorted(set(kinds)))
        how = "broadcast" if self.broadcast else "keyed"
        return (
            f"seed {self.seed}: connected, {how}, {self.state} state, "
            f"{'columns' if self.columns else 'objects'}, batches of {self.batch_size}; {counts}"
        )

    # --- what the function does ----------------------------------------------------------------

    def on_record(self, held: tuple[int, ...], record: Record, rules: Rules) -> Effects:
        rng = random.Random(f"{self.seed} record {record.n}")
        before = () if rng.random() < 0.15 else held[-rng.choice([1, 4, 30]) :]
        timers = [record.ts + rng.randint(-10, 40) for _ in range(rng.choice([0, 1, 1, 3]))]
        deleted = [record.ts + rng.randint(-10, 40) for _ in range(rng.choice([0, 0, 2]))]
        count = rng.choice([0, 1, 1, 2, 3, 25]) + len(rules) % 2
        return Effects((*before, record.n), count, tuple(timers), tuple(deleted))

    def on_timer(self, held: tuple[int, ...], timestamp: int, rules: Rules) -> Effects:
        rng = random.Random(f"{self.seed} timer {timestamp}")
        kept = () if rng.random() < 0.3 else held
        again = (timestamp + 7,) if timestamp // 7 % 2 == 0 else ()
        return Effects(kept, rng.choice([0, 1, 1, 2, 9]) + len(rules) % 2, again)

    def on_element(self, rules: dict[int, int], n: int) -> None:
        """Change the rules as the broadcast state is changed by element `n`."""
        rng = random.Random(f"{self.seed} element {n}")
        key = rng.randrange(4)
        match rng.choice(["put", "put", "put", "remove", "clear"]):
            case "put":
                rules[key] = 31 * rules.get(key, 0) + n
            case "remove":
                rules.pop(key, None)
            case _:
                rules.clear()


def draw_connected(seed: int) -> ConnectedCase:
    rng = random.Random(f"connected {seed}")
    count = rng.choice([1, 8, 30, 30, 80])
    keys: list[Any] = rng.choice([list(range(5)), ["a", "b", "c"], [7], list(range(40))])
    columns = rng.random() < 0.5
    if not columns and rng.random() < 0.3:
        keys = [None, (1, "x"), *keys]
    case = ConnectedCase(
        seed,
        rng.random() < 0.5,
        rng.choice(["value", "list", "map"]),
        columns,
        rng.choice([2, 7, 1024]),
    )
    step, jitter = rng.choice([0, 1, 5]), rng.choice([0, 10])
    records = [
        Record(n, rng.randrange(2), rng.choice(keys), n * step + rng.randint(-jitter, jitter))
        for n in range(count)
    ]
    _draw_script(rng, case, records)
    return case


def _draw_script(rng: random.Random, case: ConnectedCase, records: list[Record]) -> None:
    size, slack, marks, cuts = (
        rng.choice([1, 4, 20]),
        rng.choice([0, 10, 40]),
        rng.choice([0.2, 0.8]),
        rng.choice([0.0, 0.2]),
    )
    at, mark = 0, -(2**62)
    while at < len(records):
        some = records[at : at + rng.randint(1, size)]
        at += len(some)
        for port in rng.sample([0, 1], 2):
            mine = [record for record in some if record.port == port]
            if mine:
                case.script.append(("rows", port, mine))
        newest = max(record.ts for record in records[:at])
        if rng.random() < marks and newest - slack > mark:
            mark = newest - slack
            case.script.append(("mark", mark))
        if rng.random() < cuts:
            case.script.append(("cut", rng.random() < 0.6))
    case.script.append(("mark", LAST))
