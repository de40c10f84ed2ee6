"""One server for all tests of this folder, and a bucket for each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import fsspec
import pytest
from strom.testing.s3 import S3Server

_numbers = itertools.count()


@pytest.fixture(scope="session", autouse=True)
def server() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


@pytest.fixture
def bucket(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """Its name. What is needed to reach it stands in fsspec's configuration."""
    monkeypatch.setitem(fsspec.config.conf, "s3", {**server.options, "use_listings_cache": False})
    return server.make_bucket(f"bucket-{next(_numbers)}")
