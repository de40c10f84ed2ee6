"""Secrets out of what people and logs are shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

HIDDEN: Final = "******"

_PARTS: Final = (
    *("password", "secret", "token", "apikey", "api-key", "credential", "authorization"),
)
"""Parts of names whose values are not shown."""

_KINDS: Final = "password|passwd|secret|token|api[_-]?key|credential|authorization"

_SAID: Final = re.compile(
    rf"""(?P<name>(?:{_KINDS})[\w.\-]{{0,64}}+)(?P<sign>["']?\s{{0,8}}[=:]\s{{0,8}})"""
    r"""(?P<value>"[^"\n]{0,1000}"|'[^'\n]{0,1000}'|["']?[^\s"',;&)}\]]+)""",
    re.IGNORECASE,
)
"""`name=value`, `name: value`, `"name": "value"`, from the part on that tells. All repeats, here
and below, are bounded: looking takes time in proportion to the text."""

_BEARER: Final = re.compile(r"\b(Bearer|Basic)\s{1,8}[\w.~+/=\-]{6,}", re.IGNORECASE)

_LOGIN: Final = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.\-]{0,32}://)(?P<user>[^\s/:@]{0,256}):[^\s/@]{1,512}@", re.I
)
"""Of a URL that has a password in it."""

_MAY_HOLD: Final = re.compile(rf"{_KINDS}|bearer|basic|://[^\s/]{{0,800}}@", re.IGNORECASE)


def is_secret(name: str) -> bool:
    """Whether values under this name are not to be shown."""
    small = name.lower()
    return any(part in small for part in _PARTS)


def redacted(values: Mapping[str, str]) -> dict[str, str]:
    """The same names, with what is secret hidden."""
    return {name: HIDDEN if is_secret(name) else value for name, value in values.items()}


def redacted_text(text: str) -> str:
    """A text as logs may have it: what it gives as the value of a secret's name, as the password
    of a URL, or as a login is hidden. A number under a name of tokens is how many there are.

    >>> redacted_text("password=hunter2, tokens: 17, kafka://me:pw@host")
    'password=******, tokens: 17, kafka://me:******@host'
    """
    if _MAY_HOLD.search(text) is None:
        return text
    text = _BEARER.sub(rf"\1 {HIDDEN}", text)
    text = _LOGIN.sub(rf"\g<scheme>\g<user>:{HIDDEN}@", text)
    return _SAID.sub(_hide, text)


def _hide(said: re.Match[str]) -> str:
    value = said["value"]
    counts = "token" in said["name"].lower() and value.replace(".", "").isdigit()
    if counts or value in ("Bearer", "Basic", "None", "null"):
        return said[0]
    quote = value[0] if value[0] in "\"'" else ""
    return f"{said['name']}{said['sign']}{quote}{HIDDEN}{quote}"
