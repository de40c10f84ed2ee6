"""A real S3 server on loopback, for tests: moto's, in a process of its own.

    with S3Server() as server:
        bucket = server.make_bucket("checkpoints")
        ... f"s3://{bucket}/folder", with server.options for s3fs ...

It needs the packages `moto[server]` and `s3fs`. Contents are in its memory, and gone with it; it
ends with the process that started it, however that ends.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from types import TracebackType
from typing import Any, Final

from ..core.errors import StromError

KEY: Final = "strom-test-key-id"

SECRET: Final = "strom-test-secret-that-nobody-may-see"

_STOP_S: Final = 10.0

_PROGRAM: Final = """
import logging, sys
from moto.server import ThreadedMotoServer
logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
server.stop()
"""
"""Ends when its input does."""


class S3Server:
    """A context; one process."""

    def __init__(self) -> None:
        self.endpoint = ""
        """Its URL, inside the context."""
        self._process: subprocess.Popen[str] | None = None

    @property
    def options(self) -> dict[str, Any]:
        """What s3fs is to be told, by fsspec's configuration."""
        return {"key": KEY, "secret": SECRET, "endpoint_url": self.endpoint}

    def filesystem(self) -> Any:
        """An s3fs of its own, without any cache."""
        import s3fs

        return s3fs.S3FileSystem(**self.options, skip_instance_cache=True, use_listings_cache=False)

    def make_bucket(self, name: str) -> str:
        self.filesystem().mkdir(name)
        return name

    def unfinished_uploads(self, bucket: str) -> list[str]:
        """Keys of multipart uploads that were neither completed nor aborted."""
        found = self.filesystem().call_s3("list_multipart_uploads", Bucket=bucket)
        return [upload["Key"] for upload in found.get("Uploads", [])]

    def __enter__(self) -> S3Server:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        port = self._process.stdout.readline().strip()
        if not port:
            self.__exit__(None, None, None)
            raise StromError("the S3 server did not start: install the packages 'moto[server]'")
        self.endpoint = f"http://127.0.0.1:{port}"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_S)
        if process.poll() is None:
            process.kill()
            process.wait()
        process.stdout.close()
