"""Files on any fsspec filesystem: finding them, opening them, and errors that name them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import fsspec
import pyarrow as pa
from fsspec.implementations.local import LocalFileSystem

from ...core.errors import ConnectorError

_MAGIC = frozenset("*?[")


def filesystem(url: str, options: Mapping[str, Any] | None) -> tuple[Any, str]:
    """The filesystem of a URL or path, and the path within it."""
    try:
        found, path = fsspec.core.url_to_fs(os.fspath(url), **(options or {}))
    except (ImportError, ValueError) as error:
        raise ConnectorError(f"cannot open the filesystem of '{url}': {error}") from error
    return found, path


def is_local(fs: Any) -> bool:
    return isinstance(fs, LocalFileSystem)


def find_files(urls: Iterable[str], options: Mapping[str, Any] | None) -> list[str]:
    """Files that the paths, globs and folders name: full URLs, sorted, each once.

    In folders and globs, names starting with a dot or underscore are skipped: staging areas and
    marker files. Raises ConnectorError for a pattern that names nothing.
    """
    found: set[str] = set()
    for url in urls:
        fs, path = filesystem(url, options)
        files = list(_matches(fs, path))
        if not files:
            raise ConnectorError(
                f"no file matches '{url}': check the path; it is looked up where the job's "
                "coordinator runs"
            )
        found.update(path if is_local(fs) else fs.unstrip_protocol(path) for path in files)
    return sorted(found)


def _matches(fs: Any, path: str) -> Iterator[str]:
    if _MAGIC.intersection(path):
        for match in fs.glob(path):
            if fs.isdir(match):
                yield from _in_folder(fs, match)
            elif not match.rsplit("/", 1)[-1].startswith((".", "_")):
                yield match
    elif fs.isdir(path):
        yield from _in_folder(fs, path)
    elif fs.exists(path):
        yield path


def _in_folder(fs: Any, folder: str) -> Iterator[str]:
    for path in fs.find(folder):
        inside = path[len(folder) :].strip("/").split("/")
        if not any(part.startswith((".", "_")) for part in inside):
            yield path


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
