"""Files on their way: how many, how large, tried how often, cancelled when."""

from __future__ import annotations

import errno
import random
import threading
import tracemalloc
from collections import deque
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import strom.checkpoint.streaming as streaming
from strom.checkpoint.attempts import AttemptPolicy, Attempts
from strom.checkpoint.cancellation import Cancellation, UnwantedError
from strom.checkpoint.downloads import AHEAD, AHEAD_BYTES, Downloads
from strom.checkpoint.handles import FileHandle
from strom.checkpoint.storage import checksum, open_storage
from strom.checkpoint.streaming import PieceWriter
from strom.checkpoint.transfers import INLINE, InFlight, TransferPool
from strom.checkpoint.uploads import Uploads
from strom.core.errors import CheckpointError
from strom.core.transient import is_transient

# --- which attempt, how long to wait, what is in flight -----------------------------------------


class ClientError(Exception):
    """As botocore's."""

    def __init__(self, code: str, status: int) -> None:
        self.response = {
            "Error": {"Code": code},
            "ResponseMetadata": {"HTTPStatusCode": status},
        }


class HttpError(Exception):
    """As gcsfs's, whose code is a number or its text."""

    def __init__(self, code: Any) -> None:
        self.code = code


class ServerDisconnectedError(type("ClientConnectionError", (Exception,), {})):  # type: ignore[misc]
    """As aiohttp's."""


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        TimeoutError(),
        ConnectionResetError(),
        BrokenPipeError(),
        OSError(errno.EBUSY, "Please reduce your request rate"),
        OSError(errno.EREMOTEIO, "internal"),
        OSError(errno.ENETUNREACH, "no route"),
        ClientError("SlowDown", 503),
        ClientError("Unheard", 500),
        ClientError("Throttling", 400),
        HttpError(429),
        HttpError("503"),
        ServerDisconnectedError(),
        caused(OSError("something"), ConnectionResetError()),
    ],
    ids=repr,
)
def test_what_may_pass_is_tried_again(error: Exception) -> None:
    assert is_transient(error)


@pytest.mark.parametrize(
    "error",
    [
        PermissionError("no"),
        FileNotFoundError("gone"),
        OSError(errno.ENOSPC, "full"),
        OSError("who knows"),
        ValueError("wrong"),
        ClientError("AccessDenied", 403),
        ClientError("NoSuchBucket", 404),
        HttpError(404),
        HttpError("text"),
        caused(FileNotFoundError("gone"), TimeoutError()),
    ],
    ids=repr,
)
def test_what_will_not_pass_is_not(error: Exception) -> None:
    assert not is_transient(error)


def test_pauses_double_are_bounded_and_drawn() -> None:
    policy = AttemptPolicy(most=9, first_ms=10, longest_ms=100)
    for seed in range(200):
        attempts = Attempts(policy, random.Random(seed).random)
        pauses = [attempts.after(TimeoutError()) for _ in range(9)]
        assert pauses.pop() is None
        for n, pause in enumerate(pauses):
            whole = min(10 * 2**n, 100)
            assert whole / 2 <= pause <= whole
    assert attempts.made == 9


def test_in_flight_is_bounded_and_nobody_waits_for_ever() -> None:
    """Transfers of any size begin in their order, as soon as there is room."""
    for seed in range(300):
        rng = random.Random(seed)
        room = InFlight(rng.randint(1, 5), rng.choice([10, 100]))
        waiting = deque(rng.choice([0, 1, 10, 50, 500]) for _ in range(50))
        running: list[int] = []
        while waiting or running:
            if waiting and room.begin(waiting[0]):
                running.append(waiting.popleft())
            else:
                assert running, "there is nothing, but no room"
                size = running.pop(rng.randrange(len(running)))
                room.end(size)
            assert room.count == len(running) <= room.most
            assert room.size == sum(running)
            large = [s for s in running if s > room.most_bytes]
            assert room.size <= room.most_bytes or large == [room.size]
        assert (room.count, room.size) == (0, 0)


# --- the pool -------------------------------------------------------------------------------------


def test_several_at_a_time_and_no_more() -> None:
    pool = TransferPool(most=3, most_bytes=100)
    gate, lock = threading.Event(), threading.Lock()
    running, most = 0, 0
    full = threading.Semaphore(0)

    def call(n: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        full.release()
        assert gate.wait(30)
        with lock:
            running -= 1
        return n

    found: list[int] = []

    def submit() -> None:
        begun = [pool.submit(10, lambda n=n: call(n), Cancellation()) for n in range(10)]  # type: ignore[misc]
        found.extend(pending.result() for pending in begun)

    submitter = threading.Thread(target=submit)
    submitter.start()
    for _ in range(3):
        assert full.acquire(timeout=30)
    assert (pool.statistics().count, pool.statistics().size) == (3, 30)
    gate.set()
    submitter.join(30)
    assert found == list(range(10))
    assert most == 3
    assert (pool.statistics().count, pool.statistics().size) == (0, 0)


def test_errors_are_those_of_the_call() -> None:
    pool = TransferPool()

    def fails() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError, match="x"):
        pool.submit(0, fails, Cancellation()).result()
    assert pool.statistics().count == 0


def test_what_hangs_holds_nobody_up_once_it_is_cancelled() -> None:
    pool = TransferPool(most=1)
    hung, other = Cancellation(), Cancellation()
    gate = threading.Event()
    pending = pool.submit(1, lambda: gate.wait(60), hung)
    waits = threading.Event()
    results: list[Any] = []

    def next_one() -> None:
        waits.set()
        results.append(pool.submit(1, lambda: "next", other).result())

    waiting = threading.Thread(target=next_one)
    waiting.start()
    assert waits.wait(30)
    assert results == []
    hung.cancel()
    with pytest.raises(UnwantedError):
        pending.result()
    waiting.join(30)
    assert results == ["next"]
    gate.set()


def test_who_waits_for_room_hears_of_the_end() -> None:
    pool = TransferPool(most=1)
    gate = threading.Event()
    pool.submit(1, lambda: gate.wait(60), Cancellation())
    cancellation = Cancellation()
    errors: list[BaseException] = []

    def waits() -> None:
        try:
            pool.submit(1, lambda: None, cancellation)
        except UnwantedError as error:
            errors.append(error)

    waiting = threading.Thread(target=waits)
    waiting.start()
    cancellation.cancel()
    waiting.join(30)
    assert len(errors) == 1
    assert not pool.try_submit(lambda: None)
    gate.set()


# --- files --------------------------------------------------------------------------------------


def pieces_of(*parts: bytes) -> tuple[list[bytes], PieceWriter]:
    handed: list[bytes] = []

    class Target:
        def write(self, piece: Any) -> None:
            handed.append(bytes(piece))

    writer = PieceWriter(Target, lambda: None)
    for part in parts:
        writer.write(part)
    return handed, writer


def test_pieces_are_all_that_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "PIECE", 10)
    for seed in range(200):
        rng = random.Random(seed)
        parts = [rng.randbytes(rng.choice([0, 1, 3, 9, 10, 11, 25])) for _ in range(12)]
        handed, writer = pieces_of(*parts)
        assert all(len(piece) == 10 for piece in handed)
        assert len(writer.rest) < 10
        assert b"".join(handed) + writer.rest == b"".join(parts)
        assert (writer.size, writer.checksum) == (
            len(b"".join(parts)),
            checksum(b"".join(parts)),
        )
        assert (writer.target is None) == (not handed)


def big_table() -> pa.Table:
    return pa.table({n: np.arange(2_000_000) for n in "abcd"})  # 64 MB


@pytest.mark.parametrize("place", ["local", "memory"])
def test_a_large_table_is_never_a_buffer_as_a_whole(place: str, tmp_path: Any) -> None:
    url = str(tmp_path) if place == "local" else f"memory://{tmp_path.name}"
    storage = open_storage(url, "job")
    table = big_table()
    before, python = pa.total_allocated_bytes(), 0
    tracemalloc.start()
    with Uploads(storage, 1, INLINE, Cancellation()) as uploads:
        handle = uploads.table("t.arrow", table).result()
        python = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert pa.total_allocated_bytes() == before
    if place == "local":
        assert python < 4 * streaming.PIECE
    assert pa.ipc.open_file(storage.read_file(1, handle)).read_all() == table
    files = storage._fs.find(storage._home)
    assert [file.rpartition("/")[2] for file in files] == ["t.arrow"]
    storage.delete(1)


def test_a_file_that_fails_takes_the_others_with_it(tmp_path: Any) -> None:
    """The one that hangs is not waited for, those that are there are removed, and so is the one
    that hung when it is written in the end."""
    storage = open_storage(str(tmp_path), "job")
    gate, hangs = threading.Event(), threading.Event()
    inner = storage.write_stream

    def write_stream(n: Any, name: str, *rest: Any) -> FileHandle:
        if name == "hangs":
            hangs.set()
            assert gate.wait(60)
            return inner(n, name, *rest[:2])  # as if the last piece had been on its way
        if name == "fails":
            assert hangs.wait(60)
            raise CheckpointError("the disk is full")
        return inner(n, name, *rest)

    storage.write_stream = write_stream  # type: ignore[method-assign,assignment]
    pool = TransferPool()
    table = pa.table({"a": [1]})

    def write_three() -> None:
        with Uploads(storage, 1, pool, Cancellation()) as uploads:
            uploads.table("first", table).result()
            for pending in [uploads.table(name, table) for name in ("hangs", "fails")]:
                pending.result()

    with pytest.raises(CheckpointError, match="the disk is full"):
        write_three()
    gate.set()
    folder = tmp_path / "job" / "chk-1"
    until(lambda: pool.statistics().count == 0 and threads_gone() and not any(folder.iterdir()))


def threads_gone() -> bool:
    return not any(t.name == "strom-transfer" for t in threading.enumerate())


def until(condition: Any) -> None:
    tick = threading.Event()
    for _ in range(3000):
        if condition():
            return
        tick.wait(0.01)
    raise AssertionError("never")


def test_reading_ahead_is_bounded() -> None:
    """As many files and bytes as said are read and not taken; all come in the end, in order."""
    for seed in range(50):
        rng = random.Random(seed)
        handles = [
            FileHandle(f"f{n}", rng.choice([1, AHEAD_BYTES // 3, 2 * AHEAD_BYTES]), "")
            for n in range(30)
        ]
        read: list[FileHandle] = []
        taken = 0

        def reading(n: Any, handle: FileHandle, read: list[FileHandle] = read) -> Any:
            read.append(handle)
            return handle.path

        with Downloads(reading, 1, INLINE) as files:
            files.want(handles)
            for handle in handles:
                assert files.read_file(1, handle) == handle.path
                taken += 1
                ahead = read[taken - 1 :]
                assert len(ahead) <= AHEAD
                assert len(ahead) == 1 or sum(h.size for h in ahead) <= 3 * AHEAD_BYTES
        assert read == handles
