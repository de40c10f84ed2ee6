"""What is said of the machine: shared memory, open files, sockets, folders."""

from __future__ import annotations

import os
import resource
import socket
from pathlib import Path

import pytest
from strom.diagnosis import machine
from strom.diagnosis.findings import OK, PROBLEM, SKIPPED, WARNING
from strom.diagnosis.machine import GB, Room, Tried


@pytest.mark.parametrize(
    ("room", "status"),
    [
        (Room(16 * GB, 15 * GB), OK),
        (Room(64 << 20, 64 << 20), WARNING),  # what Docker gives a container
        (Room(16 * GB, 1 * GB), WARNING),
        (None, WARNING),
    ],
)
def test_shared_memory(room: Room | None, status: str) -> None:
    found = machine.shared_memory(room, memory=32 * GB)
    assert found.status == status
    assert ("--shm-size=10g" in found.advice) == (status == WARNING)


@pytest.mark.parametrize(
    ("soft", "hard", "status", "said"),
    [
        (-1, -1, OK, ""),
        (65536, 65536, OK, ""),
        (1024, 1 << 20, WARNING, "ulimit -n"),
        (1024, -1, WARNING, "ulimit -n"),
        (4096, 4096, WARNING, "LimitNOFILE"),
        (256, 4096, PROBLEM, "LimitNOFILE"),
    ],
)
def test_open_files(soft: int, hard: int, status: str, said: str) -> None:
    found = machine.open_files(soft, hard)
    assert (found.status, said in found.advice) == (status, True)


def test_the_limit_is_this_process() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert machine.open_files_limit()[0] == (-1 if soft == resource.RLIM_INFINITY else soft)


def test_loopback() -> None:
    assert machine.loopback().status == OK
    found = machine.loopback("192.0.2.1")  # of nobody: kept for documents
    assert (found.status, "192.0.2.1" in found.found) == (PROBLEM, True)


def test_ports_that_somebody_has() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        assert machine.taken_ports({port: "--port"}) == [port]
    assert machine.taken_ports({port: "--port"}) == []


def test_rays_ports() -> None:
    assert machine.ray_ports([], None).status == OK
    assert machine.ray_ports([], "10.0.0.1:6379").status == SKIPPED
    found = machine.ray_ports([6379], None)
    assert (found.status, "6379 (--port)" in found.found) == (WARNING, True)


@pytest.mark.parametrize(
    ("tried", "status", "said"),
    [
        (Tried(Room(99 * GB, 50 * GB), "ext4", 0.001, True), OK, "50.0 GB of 99.0 GB free, ext4"),
        (Tried(Room(99 * GB, 1 * GB), "ext4", 0.001, True), WARNING, "little"),
        (Tried(Room(99 * GB, 1 << 20), "ext4", 0.001, True), PROBLEM, "too little"),
        (Tried(Room(99 * GB, 50 * GB), "tmpfs", 0.001, True), WARNING, "memory"),
        (Tried(Room(99 * GB, 50 * GB), "vfat", 0.001, False), WARNING, "linked"),
        (Tried(Room(99 * GB, 50 * GB), "nfs", 1.5, True), WARNING, "1.5 s"),
    ],
)
def test_a_folder(tried: Tried, status: str, said: str) -> None:
    found = machine.local_folder(tried, "the.option")
    assert (found.status, said in found.found) == (status, True)
    assert ("the.option" in found.advice) == (status != OK)


def test_a_folder_of_this_machine(tmp_path: Path) -> None:
    tried = machine.tried_folder(tmp_path / "made" / "on the way")
    assert tried.links
    assert tried.room.total >= tried.room.free > 0
    assert list((tmp_path / "made" / "on the way").iterdir()) == []


def test_a_folder_that_cannot_be_one(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(NotADirectoryError) as caught:
        machine.tried_folder(file / "folder")
    found = machine.folder_refused(caught.value, "the.option")
    assert found.status == PROBLEM
    assert os.strerror(caught.value.errno or 0) in found.found


def test_which_filesystem_a_folder_is_on() -> None:
    assert machine.filesystem_of(Path("/proc")) == "proc"
