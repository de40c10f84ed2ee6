"""Credentials stay out of what strom says and stores.

They come from fsspec's own configuration (its files and environment variables, the vendor's
environment and profiles), never in a URL: a URL stands in logs, manifests and answers. What a
vendor's library says in its errors is passed on without what the filesystem was opened with. What
is a secret by its name, or within a text, `core.redaction` says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from ..core.errors import ConfigurationError
from ..core.redaction import HIDDEN, SHORTEST, is_secret, redacted, without


def check_no_secrets(location: str, setting: str) -> None:
    """ConfigurationError, without the secret, if a URL holds a password, or an option like one."""
    if "://" not in location:
        return
    for part in location.split("::"):
        url = urlsplit(part)
        # A secret may hold slashes: what is before an @ is looked at as a whole.
        before = part.split("://", 1)[-1].rpartition("@")[0]
        named = [name for name, _ in parse_qsl(url.query) if _is_secret_option(name)]
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
        f"{name}{equals}{HIDDEN if equals and _is_secret_option(unquote(name)) else value}"
        for name, equals, value in pairs
    )
    return f"{scheme}{mark}{place}{question}{hidden}"


def without_secrets(text: str, filesystem: Any = None) -> str:
    """A text as it may be shown, without any credential that the filesystem has either."""
    options = getattr(filesystem, "storage_options", None)
    return redacted(without(text, _values(options if isinstance(options, Mapping) else {})))


def _values(options: Mapping[str, Any], secret: bool = False) -> Iterator[str]:
    for name, value in options.items():
        hidden = secret or _is_secret_option(str(name))
        if isinstance(value, Mapping):
            yield from _values(value, hidden)
        elif hidden and isinstance(value, str) and len(value) >= SHORTEST:
            yield value


def _is_secret_option(name: str) -> bool:
    """Of a filesystem, whose keys are no data: S3's are called `key` and `secret`."""
    return is_secret(name) or name.lower() == "key" or name.lower().endswith("_key")
