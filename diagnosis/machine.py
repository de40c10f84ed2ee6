"""Checks of the machine: shared memory, ports, open files, folders for local state."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import shutil
import socket
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from .findings import OK, PROBLEM, SKIPPED, WARNING, Finding

GB: Final = 1 << 30

SHARED_MEMORY: Final = Path("/dev/shm")
RAY_SHARE: Final = 0.3
"""Of memory, for Ray's object store, which it wants to lie in shared memory."""

FILES_AT_LEAST: Final = 1024
FILES_WANTED: Final = 8192
"""Ray, sockets between tasks, and files of local databases."""

FREE_AT_LEAST: Final = 256 << 20
FREE_WANTED: Final = 5 * GB

SLOW_SYNC_S: Final = 0.2

PORTS: Final = 64
"""So many at once: about what tasks of one machine listen at."""

RAY_PORTS: Final = {6379: "--port", 8265: "--dashboard-port", 10001: "--ray-client-server-port"}
"""What `ray start --head` listens at, and how it is told another."""

UNKEPT: Final = frozenset({"tmpfs", "ramfs"})
"""Filesystems whose files are memory."""


class Room(NamedTuple):
    """Bytes of a filesystem."""

    total: int
    free: int


def shared_memory_of(path: Path) -> Room | None:
    """None: there is none."""
    return room_in(path) if path.is_dir() else None


def room_in(path: Path) -> Room:
    usage = shutil.disk_usage(path)
    return Room(usage.total, usage.free)


def shared_memory(room: Room | None, memory: int) -> Finding:
    """Whether Ray's object store fits where it is fast. `memory`: the machine's, in bytes."""
    wanted = int(memory * RAY_SHARE)
    advice = (
        f"in a container: --shm-size={-(-wanted // GB)}g (Kubernetes: an emptyDir of medium Memory "
        "at /dev/shm); or start Ray with a smaller --object-store-memory"
    )
    if room is None:
        found = "there is no /dev/shm: Ray's object store would lie on disk"
        return Finding(WARNING, found, advice)
    found = f"{_gb(room.total)}, {_gb(room.free)} of it free"
    if room.free < wanted:
        found += f"; Ray would take {_gb(wanted)}, and goes to disk, slowly, where it cannot"
        return Finding(WARNING, found, advice)
    return Finding(OK, found)


def open_files_limit() -> tuple[int, int]:
    """The soft and the hard limit; -1: none."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return tuple(-1 if one == resource.RLIM_INFINITY else one for one in (soft, hard))  # type: ignore[return-value]


def open_files(soft: int, hard: int) -> Finding:
    """Whether a process may have enough files open."""
    if soft < 0 or soft >= FILES_WANTED:
        return Finding(OK, "no limit" if soft < 0 else f"{soft} per process")
    found = f"{soft} per process (at most {'any' if hard < 0 else hard}); {FILES_WANTED} are wanted"
    enough = hard < 0 or hard >= FILES_WANTED
    how = "ulimit -n 65536" if enough else "raise the hard limit (limits.conf, LimitNOFILE)"
    advice = f"{how}, before Ray is started"
    return Finding(PROBLEM if soft < FILES_AT_LEAST else WARNING, found, advice)


def loopback(address: str = "127.0.0.1", ports: int = PORTS) -> Finding:
    """Whether processes of this machine reach each other, and there are free ports."""
    with ExitStack() as opened:
        try:
            for _ in range(ports):
                listener = opened.enter_context(socket.socket())
                listener.bind((address, 0))
                listener.listen(1)
            client = opened.enter_context(socket.create_connection(listener.getsockname(), 5))
            server, _ = listener.accept()
            opened.enter_context(server)
            server.settimeout(5)
            client.sendall(b"strom")
            heard = server.recv(5)
        except OSError as error:
            return Finding(
                PROBLEM,
                f"no sockets at {address}: {error}",
                "let processes of this machine connect to each other (firewall, sandbox), and see "
                "net.ipv4.ip_local_port_range and how many ports are in use",
            )
    if heard != b"strom":
        return Finding(PROBLEM, f"a socket at {address} gives {heard!r} instead of b'strom'")
    return Finding(OK, f"{ports} ports at once at {address}, and what is sent arrives")


def taken_ports(ports: dict[int, str]) -> list[int]:
    """Those of which somebody has one on this machine."""
    taken = []
    for port in ports:
        with socket.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind(("127.0.0.1", port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                taken.append(port)
    return taken


def ray_ports(taken: list[int], cluster: str | None) -> Finding:
    """Whether `ray start --head` would find its ports. `cluster`: where one is named, it has
    them."""
    if cluster is not None:
        return Finding(SKIPPED, f"a cluster is named ({cluster})")
    if not taken:
        return Finding(OK, f"{', '.join(str(one) for one in RAY_PORTS)} are free")
    told = ", ".join(f"{port} ({RAY_PORTS[port]})" for port in taken)
    return Finding(
        WARNING,
        f"in use: {told}; `ray start --head` wants them, a Ray of a program's own does not",
        "if that is a Ray, name it (--address, RAY_ADDRESS); else give `ray start` other ports",
    )


class Tried(NamedTuple):
    """What came of writing into a folder."""

    room: Room
    filesystem: str
    """Its type; empty where that cannot be known."""
    sync_s: float
    links: bool
    """Whether files can have a second name, as incremental checkpoints give them."""


def tried_folder(folder: Path) -> Tried:
    """Make the folder if need be, then write, lock, sync, rename and link a file in it. OSError
    says what cannot be done. Nothing is left, but for folders on the way that were missing."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="strom-doctor-", dir=folder) as made:
        path = Path(made, "file")
        with path.open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.write(b"\0" * 65536)
            file.flush()
            began = time.perf_counter()
            os.fsync(file.fileno())
            sync_s = time.perf_counter() - began
        renamed = path.rename(path.with_name("renamed"))
        try:
            os.link(renamed, path)
            links = True
        except OSError:
            links = False
    return Tried(room_in(folder), filesystem_of(folder), sync_s, links)


def filesystem_of(folder: Path) -> str:
    """The type of filesystem that a folder lies on."""
    try:
        lines = Path("/proc/self/mounts").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    real = folder.resolve()
    best, found = -1, ""
    for line in lines:
        fields = line.split()
        if len(fields) < 3:
            continue
        mount = Path(fields[1].encode().decode("unicode_escape", "replace"))
        if len(mount.parts) >= best and real.is_relative_to(mount):
            best, found = len(mount.parts), fields[2]
    return found


def local_folder(tried: Tried, option: str) -> Finding:
    """Whether local state may lie there. `option`: says where else."""
    room = tried.room
    found = f"{_gb(room.free)} of {_gb(room.total)} free"
    if tried.filesystem:
        found += f", {tried.filesystem}"
    elsewhere = f"set {option} to a folder on a disk of its own"
    if room.free < FREE_AT_LEAST:
        return Finding(PROBLEM, f"{found}: too little", f"make room, or {elsewhere}")
    said = []
    if room.free < FREE_WANTED:
        said.append("little for state that leaves memory")
    if tried.filesystem in UNKEPT:
        said.append("it is memory: state that leaves memory would stay in it")
    if not tried.links:
        said.append("files cannot be linked there: incremental checkpoints copy them")
    if tried.sync_s > SLOW_SYNC_S:
        said.append(f"a file takes {tried.sync_s:.1f} s to reach the disk")
    if said:
        return Finding(WARNING, f"{found}: {'; '.join(said)}", elsewhere)
    return Finding(OK, found)


def folder_refused(error: OSError, option: str) -> Finding:
    """Of a folder that `tried_folder` could not use."""
    return Finding(
        PROBLEM,
        f"cannot be written: {error.strerror or error}",
        f"let this user write there, or set {option} to another folder",
    )


def _gb(size: int) -> str:
    """Bytes for people.

    >>> _gb(64 << 20), _gb(3 << 30)
    ('64 MB', '3.0 GB')
    """
    return f"{size / GB:.1f} GB" if size >= GB else f"{size >> 20} MB"
