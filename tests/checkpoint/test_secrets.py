"""Credentials are in no URL that is taken, and in no message."""

from __future__ import annotations

import pytest
from strom.checkpoint.file_storage import FileStorage
from strom.checkpoint.folder_storage import folder_at
from strom.checkpoint.secrets import HIDDEN, check_no_secrets, without_secrets
from strom.checkpoint.storage import open_storage
from strom.core.errors import CheckpointError, ConfigurationError
from strom.testing.faulty_filesystem import Faults, FaultyFileSystem

SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"


@pytest.mark.parametrize(
    "url",
    [
        f"s3://AKIAEXAMPLE:{SECRET}@bucket/folder",
        f"simplecache::s3://key:{SECRET}@bucket/folder",
        f"sftp://user:{SECRET}@host/folder",
        f"abfs://container/folder?sas_token={SECRET}",
        f"s3://bucket/folder?aws_secret_access_key={SECRET}",
    ],
)
def test_a_url_with_credentials_is_refused_without_them(url: str) -> None:
    for opens in (lambda: open_storage(url, "job"), lambda: folder_at(url, "savepoint")):
        with pytest.raises(ConfigurationError, match="fsspec") as caught:
            opens()
        assert SECRET not in str(caught.value)
        assert "EXAMPLE" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["s3://bucket/a/b", "abfs://box@account.dfs/x", "/tmp/a:b@c", "memory://x", "a b"]
)
def test_others_are_taken(url: str) -> None:
    check_no_secrets(url, "checkpoint storage")


class Opened:
    storage_options = {  # noqa: RUF012
        "key": "AKIAEXAMPLE",
        "secret": SECRET,
        "client_kwargs": {"aws_session_token": "session-" + SECRET},
        "endpoint_url": "https://somewhere",
    }


def test_what_a_filesystem_was_opened_with_is_not_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "from-the-environment")
    text = (
        f"AKIAEXAMPLE/session-{SECRET} {SECRET} from-the-environment at https://somewhere"
        "?X-Amz-Signature=0123abc&X-Amz-Expires=60&sig=ab%2Bc"
    )
    assert without_secrets(text, Opened()) == (
        f"{HIDDEN}/{HIDDEN} {HIDDEN} {HIDDEN} at https://somewhere"
        f"?X-Amz-Signature={HIDDEN}&X-Amz-Expires=60&sig={HIDDEN}"
    )


def test_an_error_of_the_filesystem_is_told_without_its_secrets() -> None:
    class Telling(FaultyFileSystem):
        def pipe_file(self, *arguments: object, **options: object) -> None:
            raise PermissionError(f"signed with {SECRET}")

    filesystem = Telling(None, Faults())
    filesystem.storage_options = Opened.storage_options
    storage = FileStorage(filesystem, "/root", "job")
    with pytest.raises(CheckpointError, match="PermissionError: signed with") as caught:
        storage.write_file(1, "f", b"abc")
    assert SECRET not in f"{caught.value} {caught.value.__cause__}"
    assert caught.value.__suppress_context__
