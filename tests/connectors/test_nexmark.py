"""The Nexmark generator: its distributions, its formulas, and that only the number matters."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.api.connectors.base import ReaderContext
from strom.connectors.datagen import NexmarkSource, nexmark_kernels
from strom.connectors.datagen.nexmark_schemas import SCHEMAS, schema_of
from strom.connectors.datagen.nexmark_strings import draws, seed_of
from strom.core.clock import VirtualClock
from strom.core.column_values import python_values
from strom.core.errors import ConfigurationError
from strom.core.union_type import rows_of_kind

BASE = 1_436_918_400_000
KINDS = ("person", "auction", "bid", "all")
N = 200_000


def events(start: int = 0, count: int = N, **options: Any) -> pa.RecordBatch:
    batch = NexmarkSource(None, **options).generator()([(start, count)])
    times = batch.data.column("dateTime").cast(pa.int64()).to_numpy()
    np.testing.assert_array_equal(batch.timestamps, times)
    batch.data.validate(full=True)
    return batch.data


def column(data: pa.RecordBatch, name: str) -> np.ndarray:
    return data.column(name).to_numpy(zero_copy_only=False)


@pytest.fixture(scope="module")
def bids() -> pa.RecordBatch:
    return events(1_000_000)


@pytest.fixture(scope="module")
def auctions() -> pa.RecordBatch:
    return events(1_000_000, kind="auction")


@pytest.fixture(scope="module")
def people() -> pa.RecordBatch:
    return events(1_000_000, kind="person")


def bid_numbers(start: int = 1_000_000, count: int = N) -> np.ndarray:
    numbers = np.arange(start, start + count)
    return numbers[numbers % 50 >= 4]


def test_kernel_hash_is_the_documented_one() -> None:
    seed = seed_of(5)
    numbers = np.arange(10_000)
    bits = draws(seed, 17, numbers)
    low = bits & np.uint64(0xFFFFFFFF)
    expected = 3 + ((low * np.uint64(1000)) >> np.uint64(32)).astype(np.int64)
    np.testing.assert_array_equal(nexmark_kernels.uniform(numbers, seed, 17, 3, 1000), expected)
    hot = bits >> np.uint64(63) == 1
    rows = nexmark_kernels.channels(numbers, seed, 17, 4, 10_000)
    picks = np.where(hot, (low * np.uint64(4)) >> np.uint64(32), 0).astype(np.int64)
    np.testing.assert_array_equal(rows[hot], picks[hot])
    assert rows[~hot].min() >= 4


def test_the_ratio_of_kinds() -> None:
    every = events(count=5000, kind="all")
    kinds = [value.kind for value in python_values(every.column("event"))]
    assert Counter(kinds) == {"person": 100, "auction": 300, "bid": 4600}
    assert kinds[:6] == ["person", *3 * ["auction"], "bid", "bid"]
    for kind, count in (("person", 100), ("auction", 300), ("bid", 4600)):
        assert events(count=5000, kind=kind).num_rows == count


def test_the_union_holds_the_three_streams(bids: Any) -> None:
    every = events(7000, 3000, kind="all")
    assert every.schema.equals(schema_of("all", "string"))
    for kind in ("person", "auction", "bid"):
        rows, mine = rows_of_kind(every.column("event"), kind)
        alone = events(7000, 3000, kind=kind)
        assert rows.to_pylist() == alone.to_pylist()
        times = every.filter(pa.array(mine)).column("dateTime")
        assert times.equals(alone.column("dateTime"))


@pytest.mark.parametrize("kind", KINDS)
def test_strings_that_are_views_are_the_same_strings(kind: Any) -> None:
    plain = events(7000, 3000, kind=kind)
    views = events(7000, 3000, kind=kind, strings="string_view")
    assert views.schema.equals(schema_of(kind, "string_view"))
    for name in plain.schema.names:
        one, other = plain.column(name), views.column(name)
        assert python_values(other) == python_values(one)
        if kind != "all" and one.type == pa.string():
            assert other.type == pa.string_view()


def test_ids_are_consecutive(auctions: Any, people: Any) -> None:
    assert column(events(count=300, kind="person"), "id").tolist() == list(range(1000, 1006))
    assert column(events(count=300, kind="auction"), "id").tolist() == list(range(1000, 1018))
    assert column(auctions, "id")[0] == 1000 + 3 * 20_000
    assert column(people, "id")[0] == 1000 + 20_000


def test_event_time() -> None:
    for rate in (1, 10_000, 3_000_000):
        data = events(500, 500, rate=rate)
        expected = BASE + bid_numbers(500, 500) * 1000 // rate
        np.testing.assert_array_equal(column(data, "dateTime").astype(np.int64), expected)


def test_half_the_bids_are_on_the_hot_auction(bids: Any) -> None:
    last = 3 * (bid_numbers() // 50) + 2
    auction = column(bids, "auction")
    hot = auction == 1000 + last // 100 * 100
    assert hot.mean() == pytest.approx(0.5 + 0.5 / 111, abs=0.005)
    cold = (auction - 1000 - last)[~hot]
    assert cold.min() == -100
    assert cold.max() == 10
    counts = np.bincount(cold + 100)
    assert counts.min() > 0.8 * counts.mean()


def test_three_quarters_of_bidders_and_sellers_are_hot(bids: Any, auctions: Any) -> None:
    epochs = bid_numbers() // 50
    numbers = np.arange(1_000_000, 1_000_000 + N)
    auction_epochs = numbers[(numbers % 50 >= 1) & (numbers % 50 <= 3)] // 50
    for data, name, last, offset in (
        (bids, "bidder", epochs, 1),
        (auctions, "seller", auction_epochs, 0),
    ):
        person = column(data, name)
        hot = person == 1000 + last // 100 * 100 + offset
        assert hot.mean() == pytest.approx(0.75, abs=0.01)
        cold = (person - 1000 - last)[~hot]
        assert cold.min() == -999
        assert cold.max() == 10


def test_ids_at_the_very_start_exist_or_are_just_ahead() -> None:
    data = events(count=50)
    assert column(data, "auction").min() >= 1000
    assert column(data, "auction").max() <= 1000 + 2 + 10
    assert column(data, "bidder").min() >= 1000
    assert column(data, "bidder").max() <= 1000 + 10


def test_prices_are_log_uniform(bids: Any) -> None:
    price = column(bids, "price")
    assert price.min() >= 100
    assert price.max() <= 100_000_000
    decades = np.histogram(np.log10(price), bins=6, range=(2, 8))[0] / len(price)
    np.testing.assert_allclose(decades, 1 / 6, atol=0.005)


def test_auctions(auctions: Any) -> None:
    category = Counter(column(auctions, "category").tolist())
    assert sorted(category) == [10, 11, 12, 13, 14]
    assert max(category.values()) < 1.1 * min(category.values())
    assert (column(auctions, "reserve") - column(auctions, "initialBid")).min() >= 100
    open_ms = (column(auctions, "expires") - column(auctions, "dateTime")).astype(np.int64)
    horizon = 1666 * 1000 // 10_000
    assert open_ms.min() == 1
    assert open_ms.max() in (2 * horizon, 2 * horizon + 1, 2 * horizon + 2)
    assert open_ms.mean() == pytest.approx(horizon + 0.5, rel=0.02)


def test_channels_and_urls(bids: Any) -> None:
    channel = Counter(bids.column("channel").to_pylist())
    hot = {"Google", "Facebook", "Baidu", "Apple"}
    for name in hot:
        assert channel[name] / len(bids) == pytest.approx(0.125, abs=0.005)
    cold = {name: n for name, n in channel.items() if name not in hot}
    assert len(cold) > 9990
    assert all(name.startswith("channel-") for name in cold)
    pairs = set(
        zip(bids.column("channel").to_pylist(), bids.column("url").to_pylist(), strict=True)
    )
    assert len(pairs) == len(channel), "a channel has one URL"
    with_id = [url for name, url in pairs if name not in hot and "&channel_id=" in url]
    assert len(with_id) / len(cold) == pytest.approx(0.9, abs=0.02)
    url = bids.column("url")
    pattern = r"^https://www\.nexmark\.com/\w{5}/\w{5}/\w{5}/item\.htm\?query=1(&channel_id=\d+)?$"
    assert pc.all(pc.match_substring_regex(url, pattern)).as_py()


def sizes(data: pa.RecordBatch, skip: tuple[str, ...] = ()) -> np.ndarray:
    total = np.zeros(data.num_rows)
    for name in data.schema.names:
        if name not in skip:
            kind = data.schema.field(name).type
            text = kind == pa.string()
            total += pc.binary_length(data.column(name)).to_numpy() if text else 8
    return total


def test_mean_sizes(bids: Any, auctions: Any, people: Any) -> None:
    for data, skip, mean in (
        (bids, ("channel", "url"), 100),
        (auctions, (), 500),
        (people, (), 200),
    ):
        size = sizes(data, skip)
        assert size.mean() == pytest.approx(mean, rel=0.01)
        assert abs(size - mean).max() <= 0.2 * mean + 1


def test_people(people: Any) -> None:
    assert set(people.column("state").to_pylist()) == {"AZ", "CA", "ID", "OR", "WA", "WY"}
    assert len(set(people.column("city").to_pylist())) == 10
    for name, pattern in {
        "emailAddress": r"^[a-z]{7}@[a-z]{5}\.com$",
        "creditCard": r"^\d{4} \d{4} \d{4} \d{4}$",
        "name": r"^[A-Z][a-z]+ [A-Z][a-z]+$",
    }.items():
        assert pc.all(pc.match_substring_regex(people.column(name), pattern)).as_py(), name
    assert len(set(people.column("extra").to_pylist())) > 0.99 * people.num_rows


@settings(max_examples=examples(30), deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    count=st.integers(0, 3000),
    splits=st.integers(1, 5),
    block=st.integers(1, 700),
    batch_size=st.integers(40, 900),
    group=st.sampled_from([1, 3, 100]),
    crash=st.integers(0, 12),
)
def test_any_split_batching_and_restore_gives_the_same_events(
    run: Any,
    kind: Any,
    count: int,
    splits: int,
    block: int,
    batch_size: int,
    group: int,
    crash: int,
) -> None:
    def source(splits: int, block: int) -> NexmarkSource:
        return NexmarkSource(
            count, splits=splits, block=block, kind=kind, out_of_order_group=group, seed=3
        )

    whole = run(source(1, 500), batch_size=100_000).finish().rows()
    first = run(source(splits, block), parallelism=2, batch_size=batch_size)
    for i in range(crash):
        first.step(i % 2)
    rest = first.restored(first.snapshot(), 3).finish()
    assert Counter(map(repr, first.rows() + rest.rows())) == Counter(map(repr, whole))


@pytest.mark.parametrize("kind", KINDS)
def test_pruned_columns_are_the_same_columns(kind: Any) -> None:
    full = events(5_000, 5_000, kind=kind)
    source = NexmarkSource(None, kind=kind)
    assert not source.pruned
    assert source.schema.equals(full.schema)
    for name in full.schema.names:
        pruned = NexmarkSource(None, kind=kind, columns=[name])
        assert pruned.pruned
        batch = pruned.generator()([(5_000, 5_000)])
        assert batch.data.schema.names == [name]
        assert batch.data.column(name).equals(full.column(name))
        assert batch.timestamps is not None


def test_a_permutation_of_all_columns_is_not_pruned() -> None:
    assert not NexmarkSource(1, columns=SCHEMAS["bid"].names[::-1]).pruned


def test_seeds_differ_and_repeat() -> None:
    one, two = events(count=500, seed=1), events(count=500, seed=2)
    assert one.equals(events(count=500, seed=1))
    for name in ("auction", "price", "extra", "url"):
        assert not one.column(name).equals(two.column(name))


def test_out_of_order_groups_permute_the_events() -> None:
    group = 100
    plain, mixed = events(count=1000), events(count=1000, out_of_order_group=group)
    assert sorted(map(repr, plain.to_pylist())) == sorted(map(repr, mixed.to_pylist()))
    times = column(events(count=1000, out_of_order_group=group, rate=1000), "dateTime")
    ms = times.astype(np.int64)
    assert (np.diff(ms) < 0).any()
    assert (np.maximum.accumulate(ms) - ms).max() < group
    numbers = [n // group * group + (n * 953) % group for n in range(1000)]
    expected = [BASE + n for n in numbers if n % 50 >= 4]
    assert ms.tolist() == expected


def test_a_batch_ships_only_its_own_bytes(bids: Any) -> None:
    part = bids.slice(1000, 2000)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, part.schema) as writer:
        writer.write_batch(part)
    assert sink.getvalue().size < 1.02 * part.nbytes + 4096


def test_pace_follows_the_clock(run: Any) -> None:
    clock = VirtualClock()
    source = NexmarkSource(20_000, pace=10_000, splits=2)
    done = run(source, parallelism=2, batch_size=1000, clock=clock).finish()
    assert len(done.rows()) == 20_000 * 46 // 50
    assert clock.now_ms() - 1_000_000_000_000 == pytest.approx(2000, abs=20)


def test_positions_count_events_of_the_whole_stream(run: Any) -> None:
    running = run(NexmarkSource(1000, kind="person"), batch_size=100)
    running.step(0)
    polled = running.step(0)
    assert len(polled.batch) == 400 // 50
    assert running.readers[0].snapshot()[0].position == 400


def test_describing_a_source_loads_no_compiler() -> None:
    import subprocess
    import sys

    code = (
        "import sys, pickle; from strom.connectors.datagen import NexmarkSource;"
        "pickle.dumps(NexmarkSource(10)); NexmarkSource(10).schema;"
        "assert 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_wrong_settings() -> None:
    for options, message in (
        ({"kind": "bids"}, "'bids'"),
        ({"strings": "text"}, "'text'"),
        ({"rate": 0}, "rate"),
        ({"out_of_order_group": 953}, "953"),
        ({"columns": ["auction", "sellr"]}, "sellr"),
        ({"columns": []}, "among"),
        ({"pace": -1}, "positive"),
        ({"splits": 0}, "split"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            NexmarkSource(10, **options)  # type: ignore[arg-type]


def test_readers_are_made_per_subtask() -> None:
    context = ReaderContext("op", 0, 1, 100, VirtualClock())
    source = NexmarkSource(10)
    assert source.create_reader(context) is not source.create_reader(context)
