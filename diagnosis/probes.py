"""What probes do, each in a process of its own: `python -m strom.diagnosis.probes NAME SECONDS`.

Called by `probing.ask` alone. A probe that raises ends with the error on stderr; after so many
seconds it is ended by SIGALRM, whatever it hangs in.
"""

from __future__ import annotations

import json
import posixpath
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

CONTENT = b"strom doctor was here"


def load(question: dict[str, str]) -> dict[str, Any]:
    """Import a module."""
    import_module(question["module"])
    return {}


def kernels(question: None) -> dict[str, Any]:
    """Hash words by the kernels: whether that is right, what ran, and what was said of it."""
    import logging

    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("strom").addHandler(handler)

    import numpy as np
    import xxhash

    from ..core.native import library
    from ..state.hash_kernels import hash_words

    words, seed = np.array([1, 2**63], dtype=np.uint64), 2
    out = np.empty_like(words)
    hash_words(words, seed, out)
    wanted = [xxhash.xxh64_intdigest(one.tobytes(), seed) for one in words]
    loaded = library.load()
    return {
        "library": None if loaded is None else str(loaded.__file__),
        "right": out.tolist() == wanted,
        "said": said,
    }


def rocks(question: None) -> dict[str, Any]:
    """Open a database, write to it, read from it, and remove it."""
    import rocksdict

    with tempfile.TemporaryDirectory(prefix="strom-doctor-") as folder:
        database = rocksdict.Rdict(str(Path(folder) / "db"), rocksdict.Options(raw_mode=True))
        database[b"key"] = b"value"
        database.flush()
        read = database[b"key"]
        database.close()
    return {"same": read == b"value"}


def storage(url: str) -> dict[str, Any]:
    """The seconds that each step took with a small object at the URL; nothing of it is left.
    `step` and `error` of the one that failed."""
    from ..checkpoint.secrets import without_secrets
    from ..checkpoint.storage import located

    steps: dict[str, float] = {}
    filesystem: Any = None
    doing = "open"
    try:
        began = time.perf_counter()
        filesystem, root = located(url, "--storage")
        there = bool(filesystem.exists(root))
        steps[doing] = time.perf_counter() - began
        folder = posixpath.join(root.rstrip("/") or "/", f".strom-doctor-{uuid4().hex}")
        try:
            for doing, step in object_steps(filesystem, folder):
                began = time.perf_counter()
                step()
                steps[doing] = time.perf_counter() - began
        finally:
            _remove(filesystem, folder if there else root, there)
    except Exception as error:
        told = without_secrets(f"{type(error).__name__}: {error}", filesystem)
        return {"steps": steps, "step": doing, "error": told}
    return {"steps": steps, "step": None, "error": None}


def object_steps(filesystem: Any, folder: str) -> list[tuple[str, Callable[[], None]]]:
    """What checkpoints do with files, by name. Each raises if it cannot, or finds other than it
    should."""
    path, moved = (posixpath.join(folder, name) for name in ("object", "renamed"))

    def write() -> None:
        filesystem.makedirs(folder, exist_ok=True)
        filesystem.pipe_file(path, CONTENT)

    def list_() -> None:
        filesystem.invalidate_cache(folder)
        names = [posixpath.basename(str(one)) for one in filesystem.ls(folder, detail=False)]
        _check(names == ["object"], f"listed {names}, expected ['object']")

    def read() -> None:
        _check(filesystem.cat_file(path) == CONTENT, "what was read is not what was written")

    def rename() -> None:
        filesystem.mv(path, moved)
        _check(filesystem.cat_file(moved) == CONTENT, "what was renamed reads otherwise")

    def delete() -> None:
        filesystem.rm_file(moved)
        filesystem.invalidate_cache(folder)
        _check(not filesystem.exists(moved), "what was deleted is still there")

    return [
        ("write", write),
        ("list", list_),
        ("read", read),
        ("rename", rename),
        ("delete", delete),
    ]


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise AssertionError(otherwise)


def _remove(filesystem: Any, folder: str, there: bool) -> None:
    """Our folder; where that of the URL was not there either, that one, if it is empty then."""
    from contextlib import suppress

    with suppress(Exception):
        if there:
            filesystem.rm(folder, recursive=True)
            return
        for inner in filesystem.ls(folder, detail=False):
            if posixpath.basename(str(inner).rstrip("/")).startswith(".strom-doctor-"):
                filesystem.rm(str(inner), recursive=True)
        filesystem.rmdir(folder)


def cluster(question: dict[str, Any]) -> dict[str, Any]:
    """The alive nodes of a Ray cluster, what runs there, and how far their clocks are from ours.
    Starts no cluster; `refused` says why it could not be joined."""
    import ray

    from ..core.errors import StromError
    from ..engine.hosts.ray_connect import join_ray

    try:
        join_ray(question["address"], log_to_driver=False)
    except (StromError, RuntimeError, OSError) as error:
        return {"refused": f"{type(error).__name__}: {error}", "nodes": []}
    alive = [node for node in ray.nodes() if node["Alive"]]
    return {"refused": None, "nodes": _asked(ray, alive, question["node_s"])}


def _asked(ray: Any, nodes: list[dict[str, Any]], node_s: float) -> list[dict[str, Any]]:
    """What each node says; `error` of one that does not."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    witnesses = []
    for node in nodes:
        strategy = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        remote = ray.remote(num_cpus=0, scheduling_strategy=strategy)(witness_class())
        witnesses.append((node["NodeManagerAddress"], remote.remote()))
    answers = []
    deadline = time.monotonic() + node_s
    for address, actor in witnesses:
        try:
            told = ray.get(actor.told.remote(), timeout=max(0.1, deadline - time.monotonic()))
            told |= _clock(ray, actor)
        except Exception as error:
            told = {"error": f"{type(error).__name__}: {str(error).strip().splitlines()[-1]}"}
        answers.append({"address": address, **told})
    return answers


def witness_class() -> type:
    """What runs on a node. Made in a function, so that it travels by value to nodes that do not
    have strom."""

    class Witness:
        def told(self) -> dict[str, Any]:
            import platform
            from importlib import metadata

            import ray

            try:
                strom = metadata.version("strom")
            except metadata.PackageNotFoundError:
                strom = None
            return {
                "python": platform.python_version(),
                "ray": ray.__version__,
                "strom": strom,
            }

        def now(self) -> float:
            import time

            return time.time()

    return Witness


def _clock(ray: Any, actor: Any) -> dict[str, float]:
    """How far the node's clock is ahead of ours, and how far off that may be: of several questions
    the one that was answered soonest."""
    best: tuple[float, float] | None = None
    for _ in range(5):
        before, began = time.time(), time.perf_counter()
        there = ray.get(actor.now.remote(), timeout=10)
        took = time.perf_counter() - began
        if best is None or took < best[0]:
            best = took, there - (before + took / 2)
    assert best is not None
    return {"ahead_s": best[1], "unsure_s": best[0] / 2}


PROBES: dict[str, Callable[[Any], dict[str, Any]]] = {
    "cluster": cluster,
    "kernels": kernels,
    "load": load,
    "rocks": rocks,
    "storage": storage,
}


def main() -> None:
    """Answer the question on stdin. Nothing else writes to stdout behind the answer."""
    signal.alarm(int(sys.argv[2]))
    answer = PROBES[sys.argv[1]](json.load(sys.stdin))
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
