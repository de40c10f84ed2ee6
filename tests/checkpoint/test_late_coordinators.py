"""Of the coordinators of a job the newest is right, in whichever order they begin their epochs."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Any

import pytest
from strom.checkpoint.epochs import Tenant, decode, encode
from strom.checkpoint.manifest import Manifest
from strom.checkpoint.storage import CheckpointStorage, open_storage
from strom.core.errors import FencedError
from strom.core.ids import CheckpointId
from strom.engine.hosts.checkpoint_books import CheckpointBooks
from strom.engine.hosts.tenure import Tenure
from strom.testing.simulation.storage import FilesInMemory

Come = Callable[..., "Coordinator"]


class Coordinator:
    def __init__(self, storage: CheckpointStorage, number: int | None) -> None:
        self.storage = storage
        self.tenure = Tenure(storage, "shop", f"token-{number}-{id(self)}", 0, number)
        self.books = CheckpointBooks(storage, self.tenure)

    def publishes(self, n: int) -> None:
        epoch = self.tenure.epochs[0]
        made = Manifest(self.storage.job_id, "shop", CheckpointId(n), 0, (), (), epoch=epoch)
        self.books.publish(made, None)

    def newest(self) -> int:
        self.tenure.begin()
        found = self.storage.latest_valid().manifest
        return 0 if found is None else int(found.checkpoint_id)


@pytest.fixture(params=["files", "simulated"])
def come(request: pytest.FixtureRequest, tmp_path: Path) -> Come:
    """Makes coordinators, each with the storage as another process has it."""
    simulated = FilesInMemory("job")

    def make(number: int | None) -> Coordinator:
        files = request.param == "files"
        return Coordinator(open_storage(str(tmp_path), "job") if files else copy(simulated), number)

    return make


def has_looked(late: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the others began: its look is old."""
    tenants, looks = late.storage.tenants, [{}]
    look = lambda last=False: looks.pop() if looks else tenants(last)
    monkeypatch.setattr(late.storage, "tenants", look)


def test_who_comes_late_begins_nothing(come: Come) -> None:
    first, late, newer = come(0), come(1), come(2)
    for one in (first, newer):
        one.tenure.begin()
    with pytest.raises(FencedError, match="began anew as the coordinator of this job"):
        late.tenure.begin()
    assert late.tenure.epochs == (0, 0)
    newer.publishes(1)
    with pytest.raises(FencedError):
        late.tenure.check()
    with pytest.raises(FencedError):
        first.tenure.check()


def test_who_has_looked_before_is_passed_over(come: Come, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its epoch is later, and says nothing of which checkpoints count."""
    late, newer = come(1), come(2)
    newer.tenure.begin()
    newer.publishes(1)
    for again in (late, come(0)):
        has_looked(again, monkeypatch)
        with pytest.raises(FencedError):
            again.tenure.begin()
    newer.tenure.check()
    newer.publishes(2)
    newest = come(3)
    assert newest.newest() == 2
    assert newest.tenure.epochs[0] == 4
    with pytest.raises(FencedError):
        newer.publishes(3)
    newest.publishes(3)
    assert come(3).newest() == 3


@pytest.mark.parametrize(("one", "other"), [(None, None), (2, None), (None, 2), (1, 1)])
def test_without_numbers_the_later_epoch_is_right(
    come: Come, one: int | None, other: int | None
) -> None:
    former, latter = come(one), come(other)
    former.tenure.begin()
    latter.tenure.begin()
    latter.publishes(1)
    with pytest.raises(FencedError):
        former.tenure.check()


def test_numbers_of_other_jobs_say_nothing() -> None:
    def tenant(job: str, number: int | None) -> Tenant:
        return Tenant(job, "shop", "token", None, 0, 0, "here", number)

    assert tenant("a", 1).is_older(tenant("a", 2))
    assert not tenant("a", 2).is_older(tenant("a", 1))
    assert not tenant("a", 1).is_older(tenant("b", 2))


def test_a_record_of_before_there_were_numbers_is_read() -> None:
    tenant = Tenant("a", "shop", "token", None, 0, 0, "here", 7)
    assert decode(encode(tenant)) == tenant
    known: dict[str, Any] = json.loads(encode(tenant))
    del known["number"]
    found = decode(json.dumps(known).encode())
    assert found is not None
    assert (found.token, found.number) == ("token", None)
    for garbage in (b"[]", b"7", b"{", json.dumps({**known, "number": "x"}).encode()):
        assert decode(garbage) is None
