"""The stable hash, row path: vectors that may never change, and what has no stable hash."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
import uuid
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum, IntEnum
from typing import NamedTuple

import numpy as np
import pytest
from strom.core.errors import TypeMismatchError
from strom.core.row import Row
from strom.state.hashing import stable_hash
from xxhash import xxh64_intdigest


class Color(Enum):
    RED = 1


class Level(IntEnum):
    LOW = 7


class Pair(NamedTuple):
    a: int
    b: str


@dataclass(frozen=True)
class Place:
    city: str
    floor: int
    note: str = field(default="", compare=False)


VECTORS = [
    (None, 0xEF46DB3751D8E999),
    (False, 0x771917C7F6EE2451),
    (True, 0x6EC2195FFCAA3025),
    (0, 0x91DF0C78C3E912C9),
    (1, 0xB425ACA027158691),
    (-1, 0xE9114E3FACCF6470),
    (42, 0x312FDC3B7676C29F),
    (2**63 - 1, 0x529549B8B12F2424),
    (-(2**63), 0x7A1F76A87DFC004C),
    (2**63, 0xD0724268F207DBA2),
    (-(2**63) - 1, 0x43CFE1A00AB897F4),
    (2**100, 0x7C425127CAC5F9EC),
    (0.0, 0x08BD8638293521C6),
    (1.5, 0x22FE84B9F850A80F),
    (float("inf"), 0xCE758CBF49A96A8A),
    ("", 0x4BE1D406981CFD3B),
    ("a", 0x51568C710200C53E),
    ("hello, world", 0x686F7E0D8FEB53AF),
    ("grüezi 🙂", 0x05841E7AC36BE3EB),
    ("x" * 100, 0x1B503435FFB2E749),
    (b"", 0xDF6F0AD8B269C799),
    (b"\x00\xff", 0xDBB8AC015D3BAF95),
    ((), 0x95F0626F6F0A4409),
    ((1,), 0x3177A07F624E33FC),
    ((1, "a"), 0xCB81986A67C8FBD3),
    ((1, 2, 3, 4), 0xB41C1EB19A85529C),
    ((None, (True, 2.0), "z", b"q", 5), 0x056467A7C2967357),
    (dt.date(1970, 1, 1), 0x55FCBA443CB57EEC),
    (dt.date(2026, 11, 21), 0xF67E19C918A852A6),
    (dt.time(23, 59, 59, 999999), 0xF70E9DE7E514C71A),
    (dt.datetime(2026, 11, 21, 9, 30), 0xEC91354226A4283D),
    (dt.datetime(2026, 11, 21, 9, 30, tzinfo=dt.UTC), 0x7EA754E87D2B1647),
    (dt.datetime(1, 1, 1), 0x40A55AFC1683E0B5),
    (dt.timedelta(days=-1, microseconds=1), 0xD956F799E9F78275),
    (dt.timedelta.max, 0xD8B588DDACBAEE98),
    (Decimal("12.340"), 0x85353A2EECE5D2B2),
    (Decimal("-1E+5"), 0x87982073B5C79A4F),
    (Decimal("NaN"), 0xBF6784AE6972E267),
    (uuid.UUID("12345678-1234-5678-1234-567812345678"), 0x4213AEDB50AD7F55),
]


@pytest.mark.parametrize(("key", "expected"), VECTORS, ids=[repr(key) for key, _ in VECTORS])
def test_vectors_hold_for_ever(key: object, expected: int) -> None:
    assert stable_hash(key) == expected


def test_payloads_are_as_specified() -> None:
    assert stable_hash(-2) == xxh64_intdigest(bytes([0xFE] + [0xFF] * 7), 2)
    assert stable_hash(2**64) == xxh64_intdigest(bytes(8) + b"\x01", 3)
    assert stable_hash("é") == xxh64_intdigest(b"\xc3\xa9", 5)
    inner = stable_hash(1).to_bytes(8, "little") + stable_hash("a").to_bytes(8, "little")
    assert stable_hash((1, "a")) == xxh64_intdigest(inner, 7)
    assert stable_hash(Color.RED) == xxh64_intdigest(b"Color.RED", 14)


def test_equal_values_of_one_kind_hash_alike() -> None:
    assert stable_hash(0.0) == stable_hash(-0.0)
    assert stable_hash(float("nan")) == stable_hash(-float("nan"))
    assert stable_hash(Decimal("1.50")) == stable_hash(Decimal("1.5"))
    assert stable_hash(Decimal("-0")) == stable_hash(Decimal("0E+3"))
    assert stable_hash(Decimal("100")) == stable_hash(Decimal("1E2"))
    assert stable_hash(Pair(1, "x")) == stable_hash((1, "x")) == stable_hash([1, "x"])
    assert stable_hash(Row(a=1, b="x")) == stable_hash((1, "x"))
    assert stable_hash(Level.LOW) == stable_hash(7)
    assert stable_hash(np.int32(7)) == stable_hash(np.uint8(7)) == stable_hash(7)
    assert stable_hash(np.float32(0.5)) == stable_hash(np.float64(0.5)) == stable_hash(0.5)
    assert stable_hash(np.bool_(True)) == stable_hash(True)
    assert stable_hash(Place("Bern", 1, "x")) == stable_hash(Place("Bern", 1, "y"))
    zone = dt.timezone(dt.timedelta(hours=2))
    noon = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
    assert stable_hash(noon) == stable_hash(noon.astimezone(zone))


def test_different_kinds_hash_differently() -> None:
    naive = dt.datetime(1970, 1, 1)
    keys = [None, False, 0, 0.0, "", b"", (), Decimal(0), dt.date(1970, 1, 1), dt.time(0), naive]
    keys += [naive.replace(tzinfo=dt.UTC), dt.timedelta(0), "0", b"0", (0,), ("",), ((),)]
    assert len(set(map(stable_hash, keys))) == len(keys)


@pytest.mark.parametrize("key", [object(), {1: 2}, {1}, 1j, Place, bytearray(b"x"), range(3)])
def test_unstable_types_are_named(key: object) -> None:
    with pytest.raises(TypeMismatchError, match=type(key).__qualname__):
        stable_hash(key)


def test_zoned_time_of_day_is_refused() -> None:
    with pytest.raises(TypeMismatchError, match="zone"):
        stable_hash(dt.time(1, tzinfo=dt.UTC))


def test_does_not_depend_on_the_process() -> None:
    program = "from strom.state.hashing import stable_hash; print(stable_hash(('a', 1, None)))"
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(result.stdout) == stable_hash(("a", 1, None))
