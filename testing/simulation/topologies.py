"""The jobs that are simulated: a few records through unions, diamonds, two inputs, broadcasts and
independent pipelines, each with what has to come out, computed in plain Python from the definition.

A new one is a function that builds it, one that says what comes out of it, and a line in
`TOPOLOGIES`. Operators behind a shuffle must not depend on the order of records, unless all of a
key come from one lane (`running`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal

from ...api.aggregates import count, count_distinct, max_, sum_
from ...api.streams.data_stream import DataStream
from ...api.windows.session_windows import EventTimeSessionWindows
from ...api.windows.time_windows import SlidingEventTimeWindows, TumblingEventTimeWindows
from ..scripted import Pause
from .functions import (
    BOUND,
    RULES,
    SPAN,
    Chains,
    Doubled,
    Latest,
    Matches,
    Pairs,
    Spans,
    chained,
    span_end,
)
from .reading import Reading
from .records import Data, Record

Streams = dict[str, DataStream]

Expected = list[tuple[str, Any]]
"""Pairs of a stream's name and a record."""

AtLeast = Literal["set", "numbers"]
"""What holds if records count at least once. set: the same records come out, some of them more than
once. numbers: the last field of a record may be larger, and what has it smaller comes beside it."""


@dataclass(frozen=True)
class Topology:
    """`at_least`: what holds with at-least-once checkpoints; None: nothing that could be checked.
    `sources`: the names of those whose records may be refused. `parts`: whether some of it can be
    rescaled while the rest goes on. `stages`: whether vertices can be rescaled one by one."""

    build: Callable[[Reading, Data], Streams]
    expect: Callable[[Data], Expected]
    at_least: AtLeast | None = "numbers"
    sources: str = "a"
    parts: bool = False
    stages: bool = False


def _key(record: Record) -> int:
    return record[0]


def _named(name: str, values: Iterable[Any]) -> Expected:
    return [(name, value) for value in values]


def _sums(records: Iterable[Record]) -> list[tuple[int, int, int]]:
    """As `Spans` has it."""
    found: Counter[tuple[int, int]] = Counter()
    for k, v, ts in records:
        found[k, span_end(ts)] += v
    return [(k, end, total) for (k, end), total in found.items()]


# --- one input --------------------------------------------------------------------------------


def timers(read: Reading, data: Data) -> Streams:
    return {"out": read.tuples(data.first, "a").key_by(_key).process(Spans())}


def expect_timers(data: Data) -> Expected:
    return _named("out", _sums(data.records))


def stateless(read: Reading, data: Data) -> Streams:
    """Between different numbers of subtasks, by partitioners that know no keys."""
    stream = read.tuples(data.first, "a").rebalance().map(lambda r: (r[0], r[1] + 1))
    doubled = stream.rescale().flat_map(Doubled()).set_parallelism(2)
    return {"out": doubled.shuffle().filter(lambda r: r[1] % 3 > 0)}


def expect_stateless(data: Data) -> Expected:
    doubled = [(k, n) for k, v, _ in data.records for n in (v + 1, 2 * v + 2)]
    return _named("out", [r for r in doubled if r[1] % 3])


def running(read: Reading, data: Data) -> Streams:
    """What depends on the order of a key's records."""
    return {"out": read.tuples(data.first, "a").key_by(_key).process(Chains())}


def expect_running(data: Data) -> Expected:
    seen: dict[int, tuple[int, int]] = {}
    found = []
    for k, v, _ in data.records:
        seen[k] = chained(*seen.get(k, (0, 0)), v)
        found.append((k, *seen[k]))
    return _named("out", found)


def tumbling(read: Reading, data: Data) -> Streams:
    windows = read.columns(data.first, "a").key_by("k").window(TumblingEventTimeWindows.of(SPAN))
    return {"out": windows.aggregate(n=count(), top=max_("v"), total=sum_("v"))}


def expect_tumbling(data: Data) -> Expected:
    return _expect_windows(data, SPAN)


def sliding(read: Reading, data: Data) -> Streams:
    windows = SlidingEventTimeWindows.of(2 * SPAN, SPAN)
    stream = read.columns(data.first, "a").key_by("k").window(windows)
    return {"out": stream.aggregate(n=count(), top=max_("v"), total=sum_("v"))}


def expect_sliding(data: Data) -> Expected:
    return _expect_windows(data, 2 * SPAN)


def _expect_windows(data: Data, size: int) -> Expected:
    found: dict[tuple[int, int], list[int]] = {}
    for k, v, ts in data.records:
        first = ts - ts % SPAN
        for start in range(first - size + SPAN, first + SPAN, SPAN):
            found.setdefault((k, start), []).append(v)
    rows = [(k, at, at + size, len(vs), max(vs), sum(vs)) for (k, at), vs in found.items()]
    return _named("out", rows)


def sessions(read: Reading, data: Data) -> Streams:
    windows = EventTimeSessionWindows.with_gap(SPAN // 2)
    stream = read.columns(data.first, "a").key_by("k").window(windows)
    return {"out": stream.aggregate(n=count(), total=sum_("v"))}


def expect_sessions(data: Data) -> Expected:
    gap = SPAN // 2
    found: list[tuple[int, int, int, int, int]] = []
    for k in {r[0] for r in data.records}:
        mine = sorted((ts, v) for key, v, ts in data.records if key == k)
        start, end, n, total = mine[0][0], mine[0][0], 0, 0
        for ts, v in mine:
            if n and ts > end + gap:
                found.append((k, start, end + gap, n, total))
                start, n, total = ts, 0, 0
            end, n, total = ts, n + 1, total + v
        found.append((k, start, end + gap, n, total))
    return _named("out", found)


def two_stages(read: Reading, data: Data) -> Streams:
    """The second exchange sends records elsewhere than the first."""
    windows = tumbling(read, data)["out"]
    shaped = windows.map(lambda r: (r.k % 2, r.total, r.window_start))
    return {"windows": windows.map(tuple), "spans": shaped.key_by(_key).process(Spans(4))}


def expect_two_stages(data: Data) -> Expected:
    windows = expect_tumbling(data)
    found: Counter[tuple[int, int]] = Counter()
    for _, (k, start, _, _, _, total) in windows:
        found[k % 2, span_end(start, 4)] += total
    rows = [(k, end, total) for (k, end), total in found.items()]
    return [*_named("windows", [row for _, row in windows]), *_named("spans", rows)]


def totals(read: Reading, data: Data) -> Streams:
    """Running aggregates, which senders combine ahead of the exchange: what they have sent of a key
    is known to them alone. Two keys, of which all lanes have records."""
    import polars as pl

    halves = read.columns(data.first, "a").select(pl.col("v"), p=pl.col("k") % 2)
    rows = halves.key_by("p").aggregate(n=count(), values=count_distinct("v"), total=sum_("v"))
    return {"out": rows.key_by("p").process(Latest())}


def expect_totals(data: Data) -> Expected:
    found: dict[int, list[int]] = {}
    for k, v, _ in data.records:
        found.setdefault(k % 2, []).append(v)
    rows = [(p, len(vs), len(set(vs)), sum(vs)) for p, vs in found.items()]
    return _named("out", rows)


# --- several inputs ---------------------------------------------------------------------------


def union(read: Reading, data: Data) -> Streams:
    both = read.tuples(data.first, "a").union(read.tuples(data.second, "b"))
    return {"out": both.key_by(_key).process(Spans())}


def expect_union(data: Data) -> Expected:
    return _named("out", _sums([*data.records, *data.others]))


def diamond(read: Reading, data: Data) -> Streams:
    """Two ways to one operator, by different exchanges."""
    source = read.tuples(data.first, "a")
    odd = source.rebalance().filter(lambda r: r[1] % 2 == 1)
    even = source.key_by(lambda r: r[1] % 4).filter(lambda r: r[1] % 2 == 0)
    both = odd.union(even).map(lambda r: (r[0], r[1], r[2]))
    return {"out": both.key_by(_key).process(Spans()), "odd": odd}


def expect_diamond(data: Data) -> Expected:
    odd = [r for r in data.records if r[1] % 2]
    return [*expect_timers(data), *_named("odd", odd)]


def pairs(read: Reading, data: Data) -> Streams:
    """Each record of one input with each of the other that has its key."""
    first, second = read.tuples(data.first, "a"), read.tuples(data.second, "b")
    return {"out": first.connect(second).key_by(_key, _key).process(Pairs())}


def expect_pairs(data: Data) -> Expected:
    return _named("out", [(*a, *b) for a in data.records for b in data.others if a[0] == b[0]])


def joined(read: Reading, data: Data) -> Streams:
    left = read.columns(data.first, "a").key_by("k")
    right = read.columns(data.second, "b").key_by("k")
    return {"out": left.interval_join(right, -BOUND, BOUND).map(tuple)}


def expect_joined(data: Data) -> Expected:
    found = [
        (a[0], a[1], a[2], b[1], b[2])
        for a in data.records
        for b in data.others
        if a[0] == b[0] and abs(a[2] - b[2]) <= BOUND
    ]
    return _named("out", found)


def broadcast(read: Reading, data: Data) -> Streams:
    """Each record with each rule, whichever comes first."""
    rules = read.tuples(data.rules, "rules").broadcast(RULES)
    records = read.tuples(data.first, "a").key_by(_key)
    return {"out": records.connect(rules).process(Matches())}


def expect_broadcast(data: Data) -> Expected:
    rules = [r for lane in data.rules for r in lane if isinstance(r, tuple)]
    return _named("out", [(*r, rule[1]) for r in data.records for rule in rules])


def regions(read: Reading, data: Data) -> Streams:
    """Pipelines that share nothing."""
    second = read.tuples(data.second, "b").map(lambda r: (r[0], 3 * r[1]))
    rules = read.tuples(data.rules, "c").set_parallelism(1).map(lambda r: -r[1])
    first = read.tuples(data.first, "a").key_by(_key).process(Spans())
    return {"first": first, "second": second, "rules": rules.set_parallelism(1)}


def expect_regions(data: Data) -> Expected:
    rules = [-r[1] for lane in data.rules for r in lane if isinstance(r, tuple)]
    second = [(k, 3 * v) for k, v, _ in data.others]
    first = _named("first", _sums(data.records))
    return [*first, *_named("second", second), *_named("rules", rules)]


def islands(read: Reading, data: Data) -> Streams:
    """The same that take their time, so that one is rescaled while the others go on: two with an
    exchange, and one of which each subtask is alone."""
    first = read.tuples(_slowly(data.first), "a").key_by(_key).process(Spans())
    second = read.tuples(_slowly(data.second), "b").key_by(_key).process(Spans())
    alone = [[r for r in lane if not isinstance(r, tuple) or r[1] >= 0] for lane in data.second]
    third = read.tuples(_slowly(alone), "c").map(lambda r: (r[0], 3 * r[1]))
    return {"first": first, "second": second, "third": third}


def expect_islands(data: Data) -> Expected:
    third = [(k, 3 * v) for k, v, _ in data.others]
    first, second = _named("first", _sums(data.records)), _named("second", _sums(data.others))
    return [*first, *second, *_named("third", third)]


def stages(read: Reading, data: Data) -> Streams:
    """One behind the other, by different exchanges, that take their time: of those around the one
    that is rescaled some only read, some only keep state, and some only write."""
    both = read.tuples(_slowly(data.first), "a").union(read.tuples(_slowly(data.second), "b"))
    sums = both.key_by(_key).process(Spans())
    thirds = sums.rebalance().map(lambda r: (r[0], r[1], 3 * r[2]))
    alone = [[r for r in lane if not isinstance(r, tuple) or r[1] >= 0] for lane in data.first]
    chains = read.tuples(_slowly(alone), "c").key_by(_key).process(Chains())
    return {"sums": thirds, "chains": chains}


def expect_stages(data: Data) -> Expected:
    sums = [(k, end, 3 * total) for k, end, total in _sums([*data.records, *data.others])]
    chains = [row for _, row in expect_running(data)]
    return [*_named("sums", sums), *_named("chains", chains)]


def pointwise(read: Reading, data: Data) -> Streams:
    """Behind edges over which a subtask hears of event time from only some of those before it."""
    some = read.tuples(_slowly(data.first), "a").rescale().map(lambda r: (r[0], r[1], r[2]))
    one = read.tuples(_slowly(data.second), "b").disable_chaining()
    both = some.set_parallelism(2).union(one.map(lambda r: r).disable_chaining())
    return {"out": both.key_by(_key).process(Spans())}


def expect_pointwise(data: Data) -> Expected:
    return _named("out", _sums([*data.records, *data.others]))


def _slowly(lanes: list[list[Any]]) -> list[list[Any]]:
    """With a pause behind each third record."""
    return [
        [item for at, r in enumerate(lane) for item in ([r, Pause(2)] if at % 3 == 2 else [r])]
        for lane in lanes
    ]


TOPOLOGIES: Final[dict[str, Topology]] = {
    "timers": Topology(timers, expect_timers),
    "stateless": Topology(stateless, expect_stateless, "set"),
    "running": Topology(running, expect_running, None),
    "tumbling": Topology(tumbling, expect_tumbling),
    "sliding": Topology(sliding, expect_sliding),
    "sessions": Topology(sessions, expect_sessions, None),
    "totals": Topology(totals, expect_totals, None, stages=True),
    "two_stages": Topology(two_stages, expect_two_stages, None),
    "union": Topology(union, expect_union, sources="ab"),
    "diamond": Topology(diamond, expect_diamond),
    "pairs": Topology(pairs, expect_pairs, "set", "ab"),
    "joined": Topology(joined, expect_joined, "set", "ab"),
    "broadcast": Topology(broadcast, expect_broadcast, "set"),
    "regions": Topology(regions, expect_regions, sources="ab", parts=True),
    "islands": Topology(islands, expect_islands, sources="ab", parts=True),
    "pointwise": Topology(pointwise, expect_pointwise, sources="ab", stages=True),
    "stages": Topology(stages, expect_stages, None, "ab", parts=True, stages=True),
}
