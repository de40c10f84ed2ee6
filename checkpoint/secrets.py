"""Credentials stay out of what strom says and stores.

They come from fsspec's own configuration (its files and environment variables, the vendor's
environment and profiles), never in a URL: a URL stands in logs, manifests and answers. What a
vendor's library says in its errors is passed on without what the filesystem was opened with, and
without the signatures of URLs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from ..core.errors import ConfigurationError

HIDDEN: Final = "***"

_SECRET: Final = re.compile(
    r"secret|password|passwd|passphrase|token|credential|signature|\bsas\b|sas_|_key$|^key$"
    r"|access.?key|account.?key|api.?key|connection.?string|private",
    re.IGNORECASE,
)
"""In names of options and environment variables."""

_SIGNED: Final = re.compile(
    r"((?:X-(?:Amz|Goog)-(?:Signature|Credential|Security-Token)|sig|access_token|AWSAccessKeyId"
    r"|Signature)=)[^&\s'\")]+",
    re.IGNORECASE,
)
"""In the query of a URL."""

_LOGIN: Final = re.compile(r"(?<=://)[^\s/:'\"]*:[^\s/'\"]+(?=@)")
"""In a URL."""

_ASSIGNED: Final = re.compile(
    r"((?:password|passwd|passphrase|secret|token|api.?key|access.?key|credential)[\w.-]{0,40}"
    r"(?:=|['\"]?\s{0,4}:\s{0,4}(?=['\"])))(\"[^\"]*\"|'[^']*'|[^\s,;&)\]}'\"]+)",
    re.IGNORECASE,
)
"""`password=...`, and `"password": "..."` as in JSON and dicts. It looks at each character a few
times, whatever the text: a user's error may be any."""

_VENDORS: Final = ("AWS_", "AZURE_", "GOOGLE_", "GCS_", "OSS_", "FSSPEC_")
_SHORTEST: Final = 4
"""A shorter value hides nothing, and would be found in any text."""


def check_no_secrets(location: str, setting: str) -> None:
    """ConfigurationError, without the secret, if a URL holds a password, or an option like one."""
    if "://" not in location:
        return
    for part in location.split("::"):
        url = urlsplit(part)
        # A secret may hold slashes: what is before an @ is looked at as a whole.
        before = part.split("://", 1)[-1].rpartition("@")[0]
        named = [name for name, _ in parse_qsl(url.query) if _SECRET.search(name)]
        if ":" in before or named:
            raise ConfigurationError(
                f"{setting}: the URL holds credentials, which logs and manifests would show: leave "
                "them out, and give them to fsspec by its configuration (a file in "
                "~/.config/fsspec, or variables FSSPEC_<PROTOCOL>_<OPTION>) or by the environment "
                "of the storage's own library"
            )


def shown_url(location: str) -> str:
    """A URL or path as it may be shown: without a login, and without options named like secrets.

    >>> shown_url("s3://me:hush@bucket/jobs?token=1234&region=x")
    's3://***@bucket/jobs?token=***&region=x'
    """
    return "::".join(_shown(part) for part in location.split("::"))


def _shown(part: str) -> str:
    scheme, mark, rest = part.partition("://")
    if not mark:
        return part
    before, at, behind = rest.rpartition("@")
    if ":" in before:
        rest = f"{HIDDEN}{at}{behind}"
    place, question, query = rest.partition("?")
    pairs = [pair.partition("=") for pair in query.split("&")]
    hidden = "&".join(
        f"{name}{equals}{HIDDEN if equals and _SECRET.search(unquote(name)) else value}"
        for name, equals, value in pairs
    )
    hidden = _SIGNED.sub(rf"\1{HIDDEN}", hidden)
    return f"{scheme}{mark}{place}{question}{hidden}"


def is_secret_name(name: str) -> bool:
    """Whether what an option or variable of this name holds is not to be shown."""
    return bool(_SECRET.search(name))


def redacted(text: str) -> str:
    """Any text as it may be shown: also what a user's own errors say. Hides the environment's
    credentials, logins in URLs, signatures, and values of what is named like a secret.

    >>> redacted("no connection: host=db password=hush, via http://me:hush@proxy:80")
    'no connection: host=db password=***, via http://***@proxy:80'
    """
    text = _LOGIN.sub(HIDDEN, without_secrets(text))
    return _ASSIGNED.sub(rf"\1{HIDDEN}", text)


def without_secrets(text: str, filesystem: Any = None) -> str:
    """The text without any credential that the filesystem, or the environment, has."""
    options = getattr(filesystem, "storage_options", None)
    secrets = {*_values(options if isinstance(options, Mapping) else {}), *_of_environment()}
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return _SIGNED.sub(rf"\1{HIDDEN}", text)


def _values(options: Mapping[str, Any], secret: bool = False) -> Iterator[str]:
    for name, value in options.items():
        is_secret = secret or bool(_SECRET.search(str(name)))
        if isinstance(value, Mapping):
            yield from _values(value, is_secret)
        elif is_secret and isinstance(value, str) and len(value) >= _SHORTEST:
            yield value


def _of_environment() -> Iterator[str]:
    ours = {k: v for k, v in os.environ.items() if k.startswith(_VENDORS)}
    return _values(ours)
