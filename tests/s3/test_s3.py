"""Checkpoints on a real S3 server: the whole life of a job, uploads in parts, throttling; and
credentials are nowhere."""

from __future__ import annotations

import json
import logging
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import strom
from chaos_kit import config, until, within
from shaky_storage import check_files
from strom.api.jobs.host import open_host
from strom.checkpoint.cancellation import Cancellation, UnwantedError
from strom.checkpoint.file_storage import FileStorage
from strom.checkpoint.folder_storage import open_folder
from strom.checkpoint.handles import OperatorHandle, OperatorSnapshot, SubtaskSnapshot
from strom.checkpoint.manifest import Manifest, OperatorShape
from strom.checkpoint.storage import open_storage
from strom.checkpoint.transfers import INLINE, process_pool
from strom.checkpoint.uploads import Uploads
from strom.connectors.datagen import DataGenSource
from strom.core.errors import CheckpointError, CorruptCheckpointError
from strom.core.exclusive_files import create, makes_exclusively
from strom.core.ids import TaskId
from strom.testing.faulty_filesystem import Faults, FaultyFileSystem
from strom.testing.probes import CollectProbe
from strom.testing.s3 import KEY, SECRET, S3Server

pytestmark = pytest.mark.s3

NUMBERS, KEYS, MARK = 6_000, 20, 2_500
SCHEMA = pa.schema([("k", pa.int64()), ("n", pa.int64())])


def breaking_once(broken: Path) -> Any:
    """Keeps all records, and fails at one of them the first time."""

    def breaking(record: Any) -> bool:
        if record.n == MARK and not broken.exists():
            broken.touch()
            raise RuntimeError("once")
        return True

    return breaking


def build(env: Any, rate: float | None, breaks: Path | None) -> Any:
    source = DataGenSource(
        lambda start, count: [(n % KEYS, n) for n in range(start, start + count)],
        NUMBERS,
        splits=1,
        rate=rate,
        schema=SCHEMA,
    )
    times = strom.WatermarkStrategy.no_watermarks()
    records = env.from_source(source, times).uid("numbers")
    if breaks is not None:
        records = records.filter(breaking_once(breaks))
    return records.key_by("k").sum("n").uid("sums").map(tuple)


def expected() -> Counter[Any]:
    totals: dict[int, int] = {}
    found: Counter[Any] = Counter()
    for n in range(NUMBERS):
        totals[n % KEYS] = totals.get(n % KEYS, 0) + n
        found[n % KEYS, totals[n % KEYS]] += 1
    return found


class Job:
    def __init__(
        self, settings: Any, rate: float | None = 2000.0, breaks: Path | None = None
    ) -> None:
        self.probe = CollectProbe(lambda env: build(env, rate, breaks))
        self.client = open_host("local").submit(self.probe.graph(settings), "sums")

    def completed(self) -> int:
        return int(self.client.metrics()["checkpoints"]["completed"])

    def output(self) -> list[Any]:
        within(60.0, "the end", self.client.get_job_execution_result)
        sinks = self.probe.sinks.values()
        return self.probe.output({op: list(self.client.published(op)) for op in sinks})


def objects(server: S3Server, bucket: str) -> dict[str, bytes]:
    filesystem = server.filesystem()
    return {path: filesystem.cat_file(path) for path in filesystem.find(bucket)}


def test_the_life_of_a_job(
    server: S3Server, bucket: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """It fails and goes on from S3, is stopped with a savepoint there, and another one ends it."""
    caplog.set_level(logging.DEBUG, "strom")
    root = f"s3://{bucket}/checkpoints"
    settings = config(None, interval_ms=60, parallelism=2, tolerable=99, retained=2)
    settings = replace(settings, checkpoint=replace(settings.checkpoint, storage=root))
    job = Job(settings, breaks=tmp_path / "broken")
    until(lambda: job.client.metrics()["restarts"] >= 1, "a failure", 60.0)
    until(lambda: job.client.get_job_status() == "RUNNING", "a restart", 60.0)
    completed = job.completed()
    until(lambda: job.completed() > completed, "a checkpoint", 60.0)
    saved = job.client.stop_with_savepoint(False, f"s3://{bucket}/saved")
    path = within(60.0, "the savepoint", lambda: saved.result(timedelta(seconds=50)))
    before = job.output()
    _, manifest = open_folder(path, validate=True)
    assert manifest.savepoint
    storage = open_storage(root, job.client.get_job_id())
    check_files(storage)
    assert len(storage.list()) <= 2
    assert any(storage.load(n).shared for n in storage.list())
    assert {f.rsplit("/", 2)[1] for f in objects(server, bucket)} == {
        *(f"chk-{n}" for n in storage.list()),
        "shared",
        path.rsplit("/", 1)[1],
        str(job.client.get_job_id()),  # whose epochs lie beside them
    }
    rest = Job(replace(config(None, parallelism=3), restore_from=path), rate=None)
    # What was prepared for the savepoint is published by both.
    assert Counter(before) | Counter(rest.output()) == expected()
    assert server.unfinished_uploads(bucket) == []

    said = "\n".join([caplog.text, json.dumps(job.client.metrics(), default=str), path])
    manifests = [data for name, data in objects(server, bucket).items() if "manifest" in name]
    assert manifests
    for secret in (KEY, SECRET):
        assert secret not in said
        assert not any(secret.encode() in data for data in manifests)


def test_of_two_that_begin_an_epoch_one_has_it(server: S3Server, bucket: str) -> None:
    filesystem = server.filesystem()
    assert makes_exclusively(filesystem)
    assert create(filesystem, f"{bucket}/job/epoch-1", b"one")
    assert not create(filesystem, f"{bucket}/job/epoch-1", b"another")
    assert filesystem.cat_file(f"{bucket}/job/epoch-1") == b"one"


def big() -> pa.Table:
    return pa.table({name: np.arange(1 << 20) for name in ("a", "b", "c")})  # 24 MiB


def test_what_is_large_goes_in_parts(server: S3Server, bucket: str) -> None:
    storage = open_storage(f"s3://{bucket}/jobs", "job")
    with Uploads(storage, 1, process_pool(), Cancellation()) as uploads:
        begun = [uploads.table(f"t{n}.arrow", big(), shared=n == 1) for n in range(2)]
        handles = [pending.result() for pending in begun]
    for handle in handles:
        assert pa.ipc.open_file(storage.read_file(1, handle)).read_all() == big()
    found = server.filesystem().find(bucket, detail=True)
    assert sorted(found) == [
        f"{bucket}/jobs/job/chk-1/t0.arrow",
        f"{bucket}/jobs/job/shared/1-t1.arrow",
    ]
    assert all(entry["ETag"].strip('"').endswith("-4") for entry in found.values()), found
    assert server.unfinished_uploads(bucket) == []


def test_small_files_are_parts_of_one(server: S3Server, bucket: str) -> None:
    storage = open_storage(f"s3://{bucket}/jobs", "job")
    tables = [pa.table({"n": [n]}) for n in range(5)]
    with Uploads(storage, 1, process_pool(), Cancellation(), "task-0") as uploads:
        begun = [uploads.table(f"t{n}.arrow", table) for n, table in enumerate(tables)]
        handles = [pending.result() for pending in begun]
    path = f"{bucket}/jobs/job/chk-1/task-0-0.pack"
    filesystem = server.filesystem()
    assert filesystem.find(bucket) == [path]
    for handle, table in zip(handles, tables, strict=True):
        assert pa.ipc.open_file(storage.read_file(1, handle)).read_all() == table
    filesystem.pipe_file(path, filesystem.cat_file(path)[: handles[-1].offset])
    storage.read_file(1, handles[0])
    with pytest.raises(CorruptCheckpointError, match=r"expected \d+ bytes, found \d+"):
        storage.read_file(1, handles[-1])


def test_a_cancelled_upload_in_parts_is_aborted(server: S3Server, bucket: str) -> None:
    storage = open_storage(f"s3://{bucket}/jobs", "job")
    cancellation = Cancellation()
    under_way: list[str] = []

    def write(sink: Any) -> None:
        sink.write(bytes(20 << 20))
        under_way.extend(server.unfinished_uploads(bucket))
        cancellation.cancel()
        sink.write(bytes(20 << 20))

    with pytest.raises(UnwantedError):
        storage.write_stream(1, "t.arrow", write, False, cancellation)
    assert under_way == ["jobs/job/chk-1/t.arrow"]
    assert server.unfinished_uploads(bucket) == []
    assert objects(server, bucket) == {}


def test_throttled_and_cut_off(server: S3Server, bucket: str) -> None:
    """One call in six fails, of parts, too: nothing is missing, nothing left over."""
    failed = 0
    for seed in range(2):
        faults = Faults(seed, 1 / 6, ("throttled", "vendor", "reset", "timeout"))
        filesystem = FaultyFileSystem(server.filesystem(), faults)
        storage = FileStorage(filesystem, f"{bucket}/{seed}", "job", pause=lambda seconds: None)
        for n in (1, 2, 3):
            with Uploads(storage, n, INLINE, Cancellation()) as uploads:
                tables = [big() if n == 3 else pa.table({"a": [n]}), *[pa.table({"a": [n]})] * 2]
                files = [
                    uploads.table(f"f{i}", table, shared=i == 0).result()
                    for i, table in enumerate(tables)
                ]
            operators = [
                OperatorSnapshot(f"o{i}", (), OperatorHandle(f)) for i, f in enumerate(files)
            ]
            shapes = tuple(OperatorShape(f"o{i}", "o", 1, 128) for i in range(len(files)))
            part = SubtaskSnapshot(TaskId("v", 0), tuple(operators))
            storage.publish(Manifest("job", "Job", n, n, shapes, (part,)))
            storage.verify(storage.load(n))
        for n in (1, 2):
            storage.delete(n)
            storage.delete_shared([f"{n}-f0"])
        failed += faults.failed
        faults.stop()
        check_files(storage)
        assert storage.list() == (3,)
        assert len(server.filesystem().find(f"{bucket}/{seed}")) == 4
    assert failed > 5
    assert server.unfinished_uploads(bucket) == []


def test_errors_name_the_place_and_no_secret(server: S3Server, bucket: str) -> None:
    storage = open_storage("s3://there-is-no-such-bucket/jobs", "job")
    with pytest.raises(CheckpointError) as caught:
        storage.write_file(1, "f", b"abc")
    text = f"{caught.value!r} {caught.value.__cause__!r}"
    assert "there-is-no-such-bucket/jobs/job/chk-1/f" in text
    assert KEY not in text
    assert SECRET not in text
    buckets = {entry.rstrip("/") for entry in server.filesystem().ls("")}
    assert "there-is-no-such-bucket" not in buckets
