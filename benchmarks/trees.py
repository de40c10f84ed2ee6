"""Trees of strom, of other revisions and this one, and commands run in them.

A tree is run through a folder of its own with a link `strom` to it, first on PYTHONPATH: whatever
is installed, `strom` is that tree, for the workers of Ray, too, which have their driver's
environment.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
"""The tree that this file belongs to."""


LIBRARIES = Path("core", "native", "__pycache__")
"""Where a tree's compiled kernels lie, by names that hold a digest of their sources."""


class NoTree(Exception):
    """A revision cannot be checked out or run; the message says why."""


@dataclass(frozen=True)
class Tree:
    """A checkout. revision: what it is called in results. path: the folder with the link."""

    revision: str
    path: Path

    def run(self, arguments: Sequence[str], limit_s: float) -> subprocess.CompletedProcess[str]:
        """`python ARGUMENTS` with this tree as strom. What it started ends with it, after `limit_s`
        at the latest: then the code is -SIGKILL."""
        inherited = os.environ.get("PYTHONPATH")
        path = os.pathsep.join([str(self.path), *([inherited] if inherited else [])])
        command = [sys.executable, *arguments]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.path,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,
        )
        try:
            out, err = process.communicate(timeout=limit_s)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            err += f"\nwas ended after {limit_s:.0f} s"
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def lines(self, arguments: Sequence[str], limit_s: float) -> list[dict[str, Any]]:
        """What `python -m benchmarks ARGUMENTS --json` of this tree prints; if it fails, one line
        with its `error`."""
        done = self.run(["-m", "strom.benchmarks", *arguments, "--json"], limit_s)
        found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        if done.returncode and not any("error" in line for line in found):
            said = done.stderr.strip()[-500:]
            return [{"error": f"{self.revision} ended with {done.returncode}: {said}"}]
        return found

    def prepare(self) -> None:
        """Build the kernels. Raises NoTree if that fails or strom would be another tree."""
        code = "import strom, strom.core.native.build as b; b.build(); print(strom.__file__)"
        done = self.run(["-c", code], 600.0)
        if done.returncode:
            raise NoTree(f"{self.revision} has no kernels: {done.stderr.strip()[-500:]}")
        found = Path(done.stdout.splitlines()[-1]).resolve().parent
        if found != (self.path / "strom").resolve():
            raise NoTree(f"strom is {found} where {self.revision} was to be run")


@contextmanager
def base_and_here(revision: str) -> Iterator[tuple[Tree, Tree]]:
    """That revision and this tree as it lies here, both with kernels. Raises NoTree for a revision
    that does not exist."""
    with checked_out(revision) as base, as_it_lies() as here:
        yield base, here


@contextmanager
def checked_out(revision: str) -> Iterator[Tree]:
    """That revision in a temporary folder, with kernels. Raises NoTree."""
    with tempfile.TemporaryDirectory(prefix="strom-base-") as folder:
        checkout = Path(folder, "tree")
        _git("worktree", "add", "--detach", str(checkout), revision)
        try:
            tree = _linked(_git("rev-parse", "--short", revision), Path(folder, "base"), checkout)
            _copy_libraries(HERE, checkout)
            tree.prepare()
            _copy_libraries(checkout, HERE)  # for the next time
            yield tree
        finally:
            _git("worktree", "remove", "--force", str(checkout))


@contextmanager
def as_it_lies() -> Iterator[Tree]:
    """This tree, with kernels. Raises NoTree."""
    with tempfile.TemporaryDirectory(prefix="strom-here-") as folder:
        tree = _linked("here", Path(folder, "here"), HERE)
        tree.prepare()
        yield tree


def commits(wanted: str | None) -> list[str]:
    """Full ids: of a revision, of several with commas, or of a range of git's, the oldest first;
    None: of the one that this tree was made from. Raises NoTree."""
    if wanted is None:
        return [_git("rev-parse", "HEAD")]
    if ".." in wanted:
        return _git("rev-list", "--reverse", "--first-parent", wanted).split()
    return [_git("rev-parse", "--verify", f"{one}^{{commit}}") for one in wanted.split(",")]


def committed_at(commit: str) -> str:
    """The time of a commit, as ISO 8601 has it, in UTC. Raises NoTree."""
    seconds = int(_git("show", "-s", "--format=%ct", commit))
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def is_changed() -> bool:
    """Whether this tree has changes that are not committed. Raises NoTree."""
    return bool(_git("status", "--porcelain", "--untracked-files=no"))


def _linked(revision: str, path: Path, tree: Path) -> Tree:
    path.mkdir()
    Path(path, "strom").symlink_to(tree)
    return Tree(revision, path)


def _copy_libraries(source: Path, target: Path) -> None:
    for library in (source / LIBRARIES).glob("*.so"):
        wanted = target / LIBRARIES / library.name
        if not wanted.exists():
            wanted.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, wanted)


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(HERE), *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise NoTree(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()
