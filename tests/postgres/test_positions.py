"""Which transactions a snapshot shows, at the end of the numbers too, and messages byte by byte."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest
from strom.connectors.postgres.captured import Captured, CapturedColumn
from strom.connectors.postgres.pgoutput import decode
from strom.connectors.postgres.positions import CdcSplit, Part, Seen
from strom.core.errors import ConnectorError

LAP = 1 << 32


def test_numbers_that_begin_again() -> None:
    #  ... LAP - 2, LAP - 1 | LAP + 3 (3), LAP + 4 (4) | xmax = LAP + 5
    seen = Seen.of(f"{LAP - 1}:{LAP + 5}:{LAP - 1},{LAP + 4}", lsn=1000)
    shown = {xid: seen.shows(xid, 10) for xid in (LAP - 2, LAP - 1, 3, 4, 5, 6)}
    assert shown == {LAP - 2: True, LAP - 1: False, 3: True, 4: False, 5: False, 6: False}
    before = Seen.of(f"{LAP - 10}:{LAP - 5}:", lsn=1000)
    assert [before.shows(xid, 10) for xid in (LAP - 6, LAP - 5, LAP - 1, 3)] == [
        True,
        False,
        False,
        False,
    ]


def test_parts_that_show_different_transactions() -> None:
    early, late = Seen.of("5:5:", lsn=100), Seen.of("5:9:7", lsn=200)
    split = CdcSplit("s", lsn=50, parts=(Part(("k",), early), Part(None, late)), loaded=True)
    assert [split.shown(xid, 60) for xid in (4, 6, 7, 9)] == [True, None, False, False]
    assert split.shown(4, 250) is False
    assert split.streamed(150).parts == split.parts
    assert split.streamed(200).parts == ()


def test_a_part_in_which_nothing_was_read_is_forgotten() -> None:
    one, two, three = (Seen.of(f"{n}:{n}:", lsn=n) for n in (1, 2, 3))
    split = CdcSplit("s", lsn=1).new_part(one).new_part(two)
    assert split.parts == (Part(None, two),)
    split = split.read_to(("a",)).new_part(one).new_part(three).read_to(("b",))
    assert split.parts == (Part(("a",), two), Part(("b",), three))
    assert split.after == ("b",)
    assert split.all_read().parts == (Part(("a",), two), Part(None, three))


def test_a_position_of_before_columns_were_kept() -> None:
    """It is pickled as the values of its fields, which were fewer."""
    split = CdcSplit("s", 7, "system", "published", 50, loaded=True, stop_lsn=90)
    *older, _ = split.__getstate__()
    restored = CdcSplit.__new__(CdcSplit)
    restored.__setstate__(older)
    assert restored == split
    assert restored.captured is None
    kept = replace(split, captured=Captured((CapturedColumn("id", 1, 23, -1),), ("id",)))
    assert pickle.loads(pickle.dumps(kept)) == kept


def test_messages_that_are_none() -> None:
    assert decode(b"M" + bytes(10)) is None
    with pytest.raises(ConnectorError, match="message b'S'"):
        decode(b"S\0\0")
    with pytest.raises(ConnectorError, match="kind 'b'"):
        decode(b"I\0\0\0\1N\0\1b\0\0\0\0")
