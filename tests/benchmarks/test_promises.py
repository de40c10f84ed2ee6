"""What is compared of outputs that leave something open."""

from __future__ import annotations

import pytest
from strom.benchmarks.nexmark.query import columns_only, materialise
from strom.benchmarks.nexmark.references.joins import means_without_ties
from strom.benchmarks.nexmark.references.windows import bids_per_bidder


def test_a_changelog_comes_to_a_table_in_any_order() -> None:
    """+I a, -U a, +U b, +I c twice, -D c"""
    log = [("a", 0), ("a", 1), ("b", 2), ("c", 0), ("c", 0), ("c", 3)]
    assert sorted(materialise(log)) == [("b",), ("c",)]
    assert sorted(materialise(reversed(log))) == [("b",), ("c",)]
    with pytest.raises(ValueError, match="a"):
        list(materialise(log[1:]))


def test_some_columns() -> None:
    assert list(columns_only(2, 0)([(1, 2, 3), (4, 5, 6)])) == [(3, 1), (6, 4)]


def sale(auction: int, end: int, mean: float, seller: int = 1) -> tuple[int, int, int, int, float]:
    return seller, auction, 100 * auction, end, mean


def test_means_that_hang_on_the_order_of_ties_are_not_compared() -> None:
    """
    end       1   2   2   3      seller 2: 1
    auction   1   2   3   4                9
    mean          ?   ?          2 and 3 may have come either way
    """
    rows = [sale(4, 3, 4.0), sale(3, 2, 3.0), sale(1, 1, 1.0), sale(2, 2, 2.0)]
    found = list(means_without_ties([*rows, sale(9, 1, 9.0, seller=2)]))
    by_auction = {row[1]: row[4] for row in found}
    assert by_auction == {1: 1.0, 2: None, 3: None, 4: 4.0, 9: 9.0}
    assert {row[:4] for row in found} == {row[:4] for row in [*rows, sale(9, 1, 9.0, seller=2)]}


def test_a_tie_at_the_far_end_of_ten_sales_hides_a_mean_too() -> None:
    """Auctions 1 and 2 end together. The tenth sale takes all; the eleventh takes one of the two;
    the twelfth neither."""
    rows = [sale(n, max(n, 2), float(n)) for n in range(1, 13)]
    means = {row[1]: row[4] for row in means_without_ties(rows)}
    assert means == {1: None, 2: None, 11: None, **{n: float(n) for n in (*range(3, 11), 12)}}


def test_windows_of_a_bidder_are_added_up() -> None:
    assert sorted(bids_per_bidder([(1, 2, 0, 9), (2, 5, 0, 9), (1, 3, 9, 18)])) == [(1, 5), (2, 5)]
