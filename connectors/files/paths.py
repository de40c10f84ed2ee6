"""Files on any fsspec filesystem: finding them, opening them, and errors that name them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import fsspec
import pyarrow as pa
from fsspec.implementations.local import LocalFileSystem

from ...core.errors import ConnectorError

_MAGIC = frozenset("*?[")

_LISTING_TRIES = 10


def filesystem(url: str, options: Mapping[str, Any] | None) -> tuple[Any, str]:
    """The filesystem of a URL or path, and the path within it."""
    try:
        found, path = fsspec.core.url_to_fs(os.fspath(url), **(options or {}))
    except (ImportError, ValueError) as error:
        raise ConnectorError(f"cannot open the filesystem of '{url}': {error}") from error
    return found, path


def is_local(fs: Any) -> bool:
    return isinstance(fs, LocalFileSystem)


def make_folder(fs: Any, path: str) -> None:
    """Make it and its parents, as far as they are not there; on a local disk a crash of the machine
    does not take them away again."""
    missing = []
    above = path
    while is_local(fs) and not os.path.isdir(above) and above not in ("", "/"):
        missing.append(above)
        above = os.path.dirname(above)
    fs.makedirs(path, exist_ok=True)
    sync_folders(os.path.dirname(folder) or "." for folder in reversed(missing))


def sync_folders(paths: Iterable[str]) -> None:
    """Make the names in local folders durable: what a crash of the machine leaves there."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Stamp:
    """How a file looked: bytes, and when it was modified last (µs since the epoch; 0: the
    filesystem does not say)."""

    size: int
    modified: int


def find_files(urls: Iterable[str], options: Mapping[str, Any] | None) -> list[str]:
    """Files that the paths, globs and folders name: full URLs, sorted, each once.

    In folders and globs, names starting with a dot or underscore are skipped: staging areas and
    marker files (not the folders of columns whose names begin with an underscore). Raises
    ConnectorError for a pattern that names nothing.
    """
    found: set[str] = set()
    for url in urls:
        fs, path = filesystem(url, options)
        with naming("list", url, "Its folders must be readable"):
            files = [name for name, _ in _matches(fs, path)]
        if not files:
            raise ConnectorError(
                f"no file matches '{url}': check the path; it is looked up where the job's "
                "coordinator runs"
            ) from FileNotFoundError(url)
        found.update(_full(fs, name) for name in files)
    return sorted(found)


def list_files(urls: Iterable[str], options: Mapping[str, Any] | None) -> dict[str, Stamp]:
    """What the paths, globs and folders name now, which may be nothing, as `find_files` and without
    names that end as those of unfinished files do (`UNFINISHED`).

    Raises ConnectorError if a folder cannot be listed, or is not there on a local disk.
    """
    found: dict[str, Stamp] = {}
    for url in urls:
        fs, path = filesystem(url, options)
        fs.invalidate_cache()
        if is_local(fs) and not _MAGIC.intersection(path) and not fs.exists(path):
            raise ConnectorError(
                f"cannot watch '{url}': there is no such file or folder where the job's "
                "coordinator runs; make the folder first"
            ) from FileNotFoundError(url)
        skipped = tuple(end for end in UNFINISHED if not path.endswith(end))
        with naming("list", url, "Its folders must be readable"):
            for name, info in _matches(fs, path):
                if name == path or not name.endswith(skipped):
                    found[_full(fs, name)] = _stamp(info)
    return found


UNFINISHED = (".tmp", ".temp", ".part", ".partial", ".crdownload", ".inprogress", "._COPYING_", "~")
"""Ends of the names that writers and tools give to files that they have not completed."""


def stamp_of(url: str, options: Mapping[str, Any] | None) -> Stamp:
    """How the file looks now. Raises OSError as the filesystem does.

    A local file is opened for it: on network mounts that asks the server, a listing may not."""
    fs, path = filesystem(url, options)
    if not is_local(fs):
        fs.invalidate_cache()
        return _stamp(fs.info(path))
    with open(path, "rb") as file:
        found = os.fstat(file.fileno())
    return _stamp({"size": found.st_size, "mtime": found.st_mtime})


def absolute(path: str | os.PathLike[str]) -> str:
    """A local path as it is from everywhere; a URL as it is."""
    text = os.fspath(path)
    return text if "://" in text else str(LocalFileSystem._strip_protocol(text))


def root_of(url: str, options: Mapping[str, Any] | None) -> str:
    """The folder above everything that a path, glob or folder names, as a full URL."""
    fs, path = filesystem(url, options)
    return _full(fs, _fixed(path)).rstrip("/")


def _fixed(path: str) -> str:
    """The path up to its first wildcard."""
    parts = path.split("/")
    first = next((i for i, part in enumerate(parts) if _MAGIC.intersection(part)), len(parts))
    return "/".join(parts[:first])


def _full(fs: Any, path: str) -> str:
    return path if is_local(fs) else str(fs.unstrip_protocol(path))


def _matches(fs: Any, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Files and what the filesystem says of them."""
    if _MAGIC.intersection(path):
        above = frozenset({os.path.realpath(_fixed(path))} if is_local(fs) else ())
        for match, info in _listed(fs, _fixed(path), lambda at: at.glob(path, detail=True)).items():
            if _is_hidden_match(path, match):
                continue
            if fs.isdir(match):
                if not (info.get("islink") and _leads_above(match, above)):
                    yield from _in_folder(fs, match, above)
            elif _is_file(info):
                yield match, _followed(fs, match, info)
    elif fs.isdir(path):
        yield from _in_folder(fs, path)
    elif fs.exists(path):
        yield path, fs.info(path)


def _in_folder(
    fs: Any, folder: str, above: frozenset[str] = frozenset()
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Also what is in folders that links lead to, but for one that leads to a folder that the link
    is in. above: those, as they are without links."""
    if is_local(fs):
        above = above | {os.path.realpath(folder)}
    for path, info in _listed(fs, folder, lambda at: at.find(folder, detail=True)).items():
        inside = path[len(folder) :].strip("/").split("/")
        if not _is_file(info) or any(map(_is_hidden, inside)):
            continue
        if not (info.get("islink") and fs.isdir(path)):
            yield path, _followed(fs, path, info)
        elif not _leads_above(path, above):
            yield from _in_folder(fs, path, above)


def _leads_above(link: str, above: frozenset[str]) -> bool:
    """Whether what the link leads to holds the link itself, so that there is no end to it."""
    to = os.path.realpath(link)
    here = os.path.realpath(os.path.dirname(link))
    return to in above or os.path.commonpath([to, here]) == to


Listing = Callable[[Any], Mapping[str, Mapping[str, Any]]]
"""Of a filesystem, files and what it says of them."""


def _listed(fs: Any, root: str, listing: Listing) -> Mapping[str, Mapping[str, Any]]:
    """All that `listing` finds below the folder. A local one of which something goes away meanwhile
    is begun again, and fails if that does not help."""
    if not is_local(fs):
        return listing(fs)
    for left in reversed(range(_LISTING_TRIES)):
        if not fs.exists(root):
            break
        strict = _StrictFileSystem(root)
        found = listing(strict)
        if not strict.gone:
            return found
        if not left:
            raise strict.gone[0]
    return {}


class _StrictFileSystem(LocalFileSystem):  # type: ignore[misc]
    """fsspec passes over folders that it cannot list, with all that is in them; here that is an
    error, and what went away is in `gone`. What is in hidden folders is no matter."""

    cachable = False

    def __init__(self, root: str) -> None:
        super().__init__()
        self._root = root
        self.gone: list[OSError] = []

    def walk(self, path: str, maxdepth: int | None = None, **options: Any) -> Iterator[Any]:
        options["on_error"] = self._take
        for here, folders, files in super().walk(path, maxdepth=1, **options):
            yield here, folders, files
            if maxdepth is None or maxdepth > 1:
                deeper = None if maxdepth is None else maxdepth - 1
                for name in folders:
                    yield from self.walk(f"{here.rstrip('/')}/{name}", deeper, **options)

    def _take(self, error: OSError) -> None:
        *folders, name = str(error.filename or "")[len(self._root) :].strip("/").split("/")
        if any(map(_is_hidden, folders)):
            return
        if isinstance(error, FileNotFoundError):
            self.gone.append(error)
        elif not _is_hidden(name):
            raise error


def _is_file(info: Mapping[str, Any]) -> bool:
    """Not a pipe or socket, which nobody can read again."""
    return info.get("type") != "other" or bool(info.get("islink"))


def _is_hidden(name: str) -> bool:
    """As Spark sees it: `_k=1` is the folder of a column `_k`."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _is_hidden_match(pattern: str, match: str) -> bool:
    """Whether a wildcard stands for a hidden name; one that is written out is meant."""
    wanted, found = pattern.rstrip("/").split("/"), match.rstrip("/").split("/")
    if len(wanted) != len(found):  # with **
        return any(map(_is_hidden, found[_fixed(pattern).count("/") + 1 :]))
    pairs = zip(wanted, found, strict=True)
    return any(_is_hidden(name) for part, name in pairs if _MAGIC.intersection(part))


def _followed(fs: Any, path: str, info: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of a symbolic link, what it leads to: listings describe the link itself."""
    if not info.get("islink"):
        return info
    with suppress(FileNotFoundError):
        info = fs.info(path)
    return info


_TIMES = ("mtime", "LastModified", "last_modified", "updated", "modified", "created")
"""What filesystems call the time of the last change, the best first."""


def _stamp(info: Mapping[str, Any]) -> Stamp:
    at = next((info[name] for name in _TIMES if info.get(name) is not None), 0)
    if isinstance(at, str):
        at = datetime.fromisoformat(at)
    if isinstance(at, datetime):
        at = at.timestamp()
    return Stamp(int(info.get("size") or 0), round(at * 1e6))


def open_input(url: str, options: Mapping[str, Any] | None) -> Any:
    """The file for pyarrow to read; local files are opened natively."""
    fs, path = filesystem(url, options)
    if is_local(fs):
        return pa.OSFile(path, "rb")
    return pa.PythonFile(fs.open(path, "rb"), mode="r")


def size_of(url: str, options: Mapping[str, Any] | None) -> int:
    fs, path = filesystem(url, options)
    return int(fs.size(path))


@contextmanager
def naming(action: str, url: str, hint: str) -> Iterator[None]:
    """Turn filesystem and Arrow errors into a ConnectorError with the file, the cause, the hint."""
    try:
        yield
    except FileNotFoundError as error:
        raise ConnectorError(
            f"cannot {action} '{url}': there is no such file. It must exist, under this path, on "
            "every machine of the job"
        ) from error
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise ConnectorError(f"cannot {action} '{url}': {error}. {hint}") from error


def show_schema(schema: pa.Schema) -> str:
    return "(" + ", ".join(f"{field.name}: {field.type}" for field in schema) + ")"
