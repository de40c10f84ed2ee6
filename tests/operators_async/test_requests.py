"""The queue of requests in flight, against a plain model, with random schedules."""

from __future__ import annotations

import pickle
import random
from typing import Any

import pytest
from strom import AsyncRetryStrategy, ConfigurationError
from strom.core.elements import StreamStatus, Watermark
from strom.operators.async_io.attempts import Deadlines, Retries
from strom.operators.async_io.requests import (
    Emission,
    OrderedRequests,
    Request,
    Requests,
    UnorderedRequests,
)

SEEDS = range(300)


class Model:
    """What may come out, told by what went in: the records between two markers, as a list."""

    def __init__(self) -> None:
        self.groups: list[list[Any]] = [[]]
        self.markers: list[Any] = []

    def add(self, value: int) -> None:
        self.groups[-1].append(value)

    def mark(self, marker: Any) -> None:
        self.markers.append(marker)
        self.groups.append([])


def drain(requests: Requests, limit: int) -> list[Any]:
    """All that may go out now: (value, stamp) pairs and markers."""
    out: list[Any] = []
    while (one := requests.next(limit)) is not None:
        if not isinstance(one, Emission):
            out.append(one)
            continue
        assert 0 < len(one.values) <= limit
        counts = one.counts or [1] * len(one.stamps)
        assert sum(counts) == len(one.values)
        assert len(counts) == len(one.stamps)
        stamps = [s for s, n in zip(one.stamps, counts, strict=True) for _ in range(n)]
        out += zip(one.values, stamps, strict=True)
    return out


def results_of(value: int) -> list[Any]:
    return [(value, i) for i in range(value % 4)]


def stamp_of(value: int) -> int | None:
    return None if value % 50 > 40 else value * 10


@pytest.mark.parametrize("kind", [OrderedRequests, UnorderedRequests])
def test_random_schedules(kind: type[Requests]) -> None:
    for seed in SEEDS:
        rng = random.Random(seed)
        capacity = rng.choice([1, 2, 5, 100])
        requests, model = kind(capacity), Model()
        flying: list[Request] = []
        out: list[Any] = []
        for value in range(rng.randrange(1, 60)):
            for _ in range(rng.randrange(3)):
                step(rng, requests, flying, out, capacity)
            requests.add([Request(value, stamp_of(value))])
            model.add(value)
            if rng.random() < 0.2:
                marker = Watermark(value) if rng.random() < 0.7 else StreamStatus(value % 2 == 0)
                requests.mark(marker)
                model.mark(marker)
        while not requests.empty:
            step(rng, requests, flying, out, capacity)
        check(out, model, kind is OrderedRequests, seed)
        assert requests.begun == requests.waiting == len(flying) == 0, seed


def step(
    rng: random.Random, requests: Requests, flying: list[Request], out: list[Any], capacity: int
) -> None:
    """Begin, complete and send on a random part of what can be."""
    if rng.random() < 0.7:
        begun = requests.begin()
        flying += begun
    assert requests.begun <= capacity
    done = [flying.pop(rng.randrange(len(flying))) for _ in range(rng.randrange(4)) if flying]
    for one in done:
        one.results = results_of(one.value)
    requests.complete(done)
    if rng.random() < 0.7:
        out += drain(requests, rng.choice([1, 2, 7]))


def check(out: list[Any], model: Model, ordered: bool, seed: int) -> None:
    """Between the same markers the same results, in the order asked for."""
    for index, group in enumerate(model.groups):
        want = [(result, stamp_of(value)) for value in group for result in results_of(value)]
        got, out = out[: len(want)], out[len(want) :]
        assert (got if ordered else sorted(got)) == (want if ordered else sorted(want)), seed
        if index < len(model.markers):
            assert out.pop(0) is model.markers[index], seed
    assert out == []


@pytest.mark.parametrize("kind", [OrderedRequests, UnorderedRequests])
def test_snapshots_lose_nothing_and_double_nothing(kind: type[Requests]) -> None:
    """A snapshot at any time, and a queue that goes on from it: together each result once, and in
    order where that is asked for."""
    for seed in SEEDS:
        rng = random.Random(seed)
        requests = kind(rng.choice([1, 3, 10]))
        flying: list[Request] = []
        out: list[Any] = []
        count = rng.randrange(1, 40)
        requests.add([Request(value, stamp_of(value)) for value in range(count)])
        for _ in range(rng.randrange(30)):
            step(rng, requests, flying, out, 10)
        stored = [(r.value, r.stamp, r.results) for r in requests.requests()]
        restored = kind(rng.choice([1, 3, 10]))
        restored.restore(Request(*one) for one in pickle.loads(pickle.dumps(stored)))
        again: list[Request] = []
        while not restored.empty:
            again += restored.begin()
            assert all(one.results is None for one in again)
            for one in again:
                one.results = results_of(one.value)
            restored.complete(again)
            again = []
            out += drain(restored, 5)
        want = [(result, stamp_of(v)) for v in range(count) for result in results_of(v)]
        assert (out if kind is OrderedRequests else sorted(out)) == want, seed


def test_unordered_results_pass_each_other_but_no_watermark() -> None:
    """
    r0 r1 |W7| r2      r2 and r1 are answered first, r0 last

    out:  r1 ........ r0 W7 r2
    """
    requests = UnorderedRequests(10)
    requests.add([Request(value, 0) for value in "ab"])
    requests.mark(Watermark(7))
    requests.add([Request("c", 9)])
    a, b, c = requests.begin()
    for one in (c, b):
        one.results = [one.value]
        requests.complete([one])
    assert drain(requests, 10) == [("b", 0)]
    a.results = ["a"]
    requests.complete([a])
    assert drain(requests, 10) == [("a", 0), Watermark(7), ("c", 9)]


def test_empty_results_hold_back_no_watermark() -> None:
    for kind in (OrderedRequests, UnorderedRequests):
        requests = kind(10)
        requests.add([Request("a", 0)])
        requests.mark(Watermark(7))
        (a,) = requests.begin()
        a.results = []
        requests.complete([a])
        assert drain(requests, 10) == [Watermark(7)]
        assert requests.empty


def test_deadlines_against_a_model() -> None:
    """Nobody expires before the time, everybody who is left up to a 64th late; each once."""
    for seed in SEEDS:
        rng = random.Random(seed)
        timeout = rng.choice([0.5, 3.0, 60.0])
        late = timeout / 64 + 1e-6
        deadlines, begun, gone = Deadlines(timeout), {}, set()
        now = rng.choice([0.0, 1e9])
        for number in range(100):
            now += rng.choice([0, 0.001, timeout / 10, timeout / 3])
            expired = [request.value for request, _ in deadlines.expired(now)]
            assert len(set(expired) - gone) == len(expired), seed
            assert all(now >= begun[value] + timeout - 1e-6 for value in expired), seed
            gone |= set(expired)
            overdue = [v for v, at in begun.items() if at + timeout + late < now and v not in gone]
            assert not overdue, seed
            request = Request(number, None)
            group = deadlines.group(now)
            group[request] = number
            begun[number] = now
            if rng.random() < 0.5:
                del group[request]
                gone.add(number)
        left = {request.value for request, _ in deadlines.in_flight()}
        assert left == set(begun) - gone, seed


def test_there_are_few_groups_however_many_requests() -> None:
    deadlines = Deadlines(60.0)
    groups = {id(deadlines.group(at / 100_000)) for at in range(100_000)}
    assert len(groups) <= 22


def test_without_a_timeout_nothing_expires() -> None:
    deadlines = Deadlines(None)
    request = Request(1, None)
    deadlines.group(0.0)[request] = "task"
    assert deadlines.next_due() is None
    assert deadlines.expired(1e12) == []
    assert deadlines.in_flight() == [(request, "task")]


def test_retries_ask_the_predicates() -> None:
    strategy = AsyncRetryStrategy.exponential_backoff(
        2, 100, 1000, 3.0, lambda r: r == [], lambda e: isinstance(e, KeyError)
    )
    retries = Retries(strategy)
    assert retries.after_results([1], 1) is None
    assert [retries.after_results([], n) for n in (1, 2, 3)] == [0.1, 0.3, None]
    assert [retries.after_error(KeyError(), n) for n in (1, 2, 3)] == [0.1, 0.3, None]
    assert retries.after_error(ValueError(), 1) is None
    assert retries.after_error(SystemExit(), 1) is None
    assert Retries(AsyncRetryStrategy.no_restart()).after_error(KeyError(), 1) is None


@pytest.mark.parametrize(
    "wrong",
    [lambda: AsyncRetryStrategy.fixed_delay(0, 1), lambda: AsyncRetryStrategy.fixed_delay(1, -5)],
)
def test_settings_of_retries_are_checked(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="must be greater than zero"):
        wrong()
